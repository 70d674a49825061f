"""The one way to read a data file: YAML, JSON and TOML, within limits of size, depth and number of values.

YAML, JSON and TOML of a user's are read here and nowhere else: whatever is wrong with a file or a text is a
:class:`RequestError` that names it and, where it is known, the line.
"""

from __future__ import annotations

import json
import re
import stat
import tomllib
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import yaml

from trainwright.core.errors import RequestError

MAX_BYTES = 20_000_000  # the largest lock that we know of has 0.4 MB
MAX_TOML_BYTES = 1_000_000  # tomllib takes the square of the parts of a dotted key
MAX_DEPTH = 100  # lists and mappings in each other; libyaml's composer overflows the C stack at some 20,000
MAX_VALUES = 1_000_000  # aliases of YAML counted as often as they are used
MAX_DOTS = 200  # in one dotted key of TOML


# ---- files -----------------------------------------------------------------------------------------------------------


def read_bytes(path: Path, *, limit: int = MAX_BYTES, remedy: str = "") -> bytes:
    """The content of a file.

    Args:
        path: of a regular file; a device or a pipe would never end.
        limit: bytes that it may have.
        remedy: of the error.

    Raises:
        RequestError: the file is missing, cannot be read or is too large.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "is a directory" if stat.S_ISDIR(mode) else "is not a regular file"
            raise RequestError(f"{path}: {what}", remedy=remedy)
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise RequestError(f"{path}: no such file", remedy=remedy) from None
    except OSError as wrong:
        raise RequestError(f"{path}: cannot be read: {wrong.strerror}", remedy=remedy) from None
    except ValueError as wrong:  # a NUL in the name, which YAML can say
        raise RequestError(f"{str(path)!r}: not a file name: {wrong}", remedy=remedy) from None
    if len(data) > limit:
        raise RequestError(f"{path}: is too large: more than {limit:,} bytes", remedy=remedy)
    return data


def read_text(path: Path, *, limit: int = MAX_BYTES, remedy: str = "") -> str:
    """The text of a file in UTF-8; arguments and errors as :func:`read_bytes` has them."""
    data = read_bytes(path, limit=limit, remedy=remedy)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = data.count(b"\n", 0, wrong.start) + 1
        raise RequestError(f"{path}:{line}: is not UTF-8: {wrong.reason}", remedy=remedy) from None


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; raises as :func:`parse_yaml` does."""
    return parse_yaml(read_text(path), str(path))


def read_json(path: Path, *, remedy: str = "") -> Any:
    """The content of a JSON file; raises as :func:`parse_json` does."""
    return parse_json(read_text(path, remedy=remedy), str(path), remedy=remedy)


def read_state(path: Path) -> Any:
    """The content of a JSON file of ours; ``None`` if it is missing or broken; it is then made again."""
    try:
        return read_json(path)
    except RequestError:
        return None


# ---- YAML ------------------------------------------------------------------------------------------------------------


def parse_yaml(text: str, where: str, *, remedy: str = "") -> Any:
    """What a text of YAML says.

    Args:
        text: with keys that differ, no more than :data:`MAX_DEPTH` levels and :data:`MAX_VALUES` values.
        where: what to name in an error: a file or a flag.
        remedy: of the error.

    Raises:
        RequestError: it is not that; the message names the line.
    """
    try:
        _check_nesting(text)
        loader = _Loader(text)
        node = loader.get_single_node()
        data = None if node is None else _Builder(loader).value(node)
    except yaml.MarkedYAMLError as wrong:
        mark = wrong.problem_mark or wrong.context_mark
        what = " ".join(f"{wrong.context or ''} {wrong.problem or ''}".split())
        raise _unreadable("YAML", where, mark.line + 1 if mark else None, what, remedy) from None
    except (yaml.YAMLError, ValueError) as wrong:
        raise _unreadable("YAML", where, None, " ".join(str(wrong).split()), remedy) from None
    if "*" in text:
        _check_values(data, "YAML", where, remedy)
    return data


# What begins a block collection stands at the beginning of a line, behind nothing but blanks and these signs.
_INDENT = re.compile(r"^[ \t?:-]+", re.MULTILINE)
_ODD_BREAKS = re.compile("[\r\x85\u2028\u2029\ufeff]")
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _check_nesting(text: str) -> None:
    """Refuse nesting that overflows the stack of libyaml's composer, which recurses in C without a limit.

    Brackets and indents bound the depth. Only where that bound is too high are the events counted, which takes a third
    of the time of loading and does not recurse.
    """
    bound = text.count("[") + text.count("{") + 2 * max(map(len, _INDENT.findall(text)), default=0)
    if bound < 10 * MAX_DEPTH and not _ODD_BREAKS.search(text):
        return
    depth = 0
    event: Any
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                mark: Any = event.start_mark
                raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Builder:
    """Values from the nodes of a document. PyYAML's own constructor takes the last of duplicate keys in silence, does
    not say where a date is wrong, merges without a limit, and is slower."""

    _SEQUENCE, _MAPPING, _TEXT, _MERGE = (f"tag:yaml.org,2002:{kind}" for kind in ("seq", "map", "str", "merge"))
    _SCALARS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "timestamp"))
    _UNFINISHED = object()

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._made: dict[Any, Any] = {}
        self._merged = 0

    def value(self, node: Any, depth: int = 1) -> Any:
        if node.tag == self._TEXT:
            return node.value
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if node in self._made:  # an alias
            if self._made[node] is self._UNFINISHED:
                raise self._wrong(node, "an alias of what it is in")
            return self._made[node]
        self._made[node] = self._UNFINISHED
        if depth > MAX_DEPTH:
            raise self._wrong(node, _TOO_DEEP)
        if node.tag == self._SEQUENCE:
            made: Any = [self.value(each, depth + 1) for each in node.value]
        elif node.tag == self._MAPPING:
            made = self._mapping(node, depth + 1)
        else:
            raise self._wrong(node, f"unknown tag {node.tag}")
        self._made[node] = made
        return made

    def _mapping(self, node: Any, depth: int) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        merged: list[Any] = []
        for key_node, value_node in node.value:
            key = key_node.value if key_node.tag in (self._TEXT, self._MERGE) else self.value(key_node, depth)
            if isinstance(key, dict | list):
                raise self._wrong(key_node, "a key that is a list or a mapping")
            if key in made:
                raise self._wrong(key_node, f"duplicate key {key!r}")
            made[key] = value = self.value(value_node, depth)
            if key_node.tag == self._MERGE:
                merged = value if isinstance(value, list) else [value]
                self._merged += sum(map(len, merged)) if all(isinstance(each, dict) for each in merged) else MAX_VALUES
                if self._merged >= MAX_VALUES:
                    raise self._wrong(key_node, "<< takes a mapping or a list of mappings, with few keys in all")
        if merged:
            del made["<<"]
        return {key: value for each in reversed(merged) for key, value in each.items()} | made if merged else made

    def _scalar(self, node: Any) -> Any:
        if node.tag not in self._SCALARS:
            raise self._wrong(node, f"unknown tag {node.tag}")
        try:
            return self._loader.yaml_constructors[node.tag](self._loader, node)
        except (ValueError, LookupError, AttributeError, OverflowError) as wrong:
            why = f": {_words(wrong)}" if isinstance(wrong, ValueError) else ""
            raise self._wrong(node, f"{node.value!r} is not a valid {node.tag.rpartition(':')[2]}{why}") from None

    @staticmethod
    def _wrong(node: Any, what: str) -> yaml.MarkedYAMLError:
        return yaml.MarkedYAMLError(problem=what, problem_mark=node.start_mark)


# ---- JSON and TOML ---------------------------------------------------------------------------------------------------


def parse_json(text: str, where: str, *, remedy: str = "") -> Any:
    """What a text of JSON says; arguments and errors as :func:`parse_yaml` has them."""
    try:
        data = json.loads(text, object_pairs_hook=_unique)
        json.dumps(data, ensure_ascii=False).encode() if "\\u" in text else None  # half of a surrogate pair
    except json.JSONDecodeError as wrong:
        raise _unreadable("JSON", where, wrong.lineno, f"{wrong.msg}, column {wrong.colno}", remedy) from None
    except _DuplicateError:
        key, line = _duplicate(text)
        raise _unreadable("JSON", where, line, f"duplicate key {key!r}", remedy) from None
    except (RecursionError, ValueError) as wrong:
        raise _unreadable("JSON", where, _long_number(text), _words(wrong), remedy) from None
    _check_values(data, "JSON", where, remedy)
    return data


class _DuplicateError(ValueError):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _DuplicateError
    return made


_JSON_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}:]')


def _duplicate(text: str) -> tuple[str, int]:
    """The first key that an object of a text has twice, and the line of the second."""
    keys: list[set[str]] = []
    last = ""
    for token in _JSON_TOKEN.finditer(text):
        if token[0] in "[{":
            keys.append(set())
        elif token[0] in "]}":
            keys.pop()
        elif token[0] != ":":
            last = json.loads(token[0], strict=False)
        elif last in keys[-1]:
            return last, text.count("\n", 0, token.start()) + 1
        else:
            keys[-1].add(last)
    raise AssertionError("the parser saw a duplicate key")


def parse_toml(text: str, where: str, *, remedy: str = "") -> dict[str, Any]:
    """What a text of TOML says; arguments and errors as :func:`parse_yaml` has them."""
    for number, line in enumerate(text.splitlines(), 1):
        if max(key.count(".") for key in re.findall(r"[^\s,=\"']*", line)) > MAX_DOTS:
            raise _unreadable("TOML", where, number, _TOO_DEEP, remedy)
    try:
        data = tomllib.loads(text)
    except (RecursionError, ValueError) as wrong:
        raise _unreadable("TOML", where, _long_number(text), _words(wrong), remedy) from None
    _check_values(data, "TOML", where, remedy)
    return data


# ---- what they share -------------------------------------------------------------------------------------------------


def _check_values(data: object, form: str, where: str, remedy: str) -> None:
    level: Iterable[object] = [data]
    left = MAX_VALUES
    for _ in range(MAX_DEPTH + 1):
        parts = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, _MANY))
        level = list(islice(chain.from_iterable(parts), left + 1))
        left -= len(level)
        if left < 0:
            raise _unreadable(form, where, None, f"more than {MAX_VALUES:,} values", remedy)
        if not level:
            return
    raise _unreadable(form, where, None, _TOO_DEEP, remedy)


_MANY = (dict, list, tuple, set)


def _words(wrong: Exception) -> str:
    """What to say of an error that a parser did not foresee."""
    if isinstance(wrong, RecursionError):
        return _TOO_DEEP
    if "integer string conversion" in str(wrong):
        return "a number of too many digits"
    return str(wrong)


def _long_number(text: str) -> int | None:
    found = re.search(r"[0-9]{4300}", text)
    return text.count("\n", 0, found.start()) + 1 if found else None


def _unreadable(form: str, where: str, line: int | None, what: str, remedy: str) -> RequestError:
    place = where if line is None else f"{where}:{line}"
    return RequestError(f"{place}: not readable as {form}: {what}", remedy=remedy)
