"""The one way to read a data file: YAML, JSON and TOML, within limits of size, depth and number of values.

YAML, JSON and TOML of a user's are read here and nowhere else: whatever is wrong with a file or a text is a
:class:`RequestError` that names it and, where it is known, the line.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import yaml

from trainwright.core.errors import RequestError

T = TypeVar("T")

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


def while_unchanged(read: Callable[[Path], T]) -> Callable[[Path], T]:
    """A reader that reads a file once while it stays as it is: its inode, size and time. Its values must be frozen."""

    @lru_cache(maxsize=1024)
    def kept(path: Path, *_unchanged: int) -> T:
        return read(path)

    @wraps(read)
    def once(path: Path) -> T:
        try:
            now = path.stat()
        except (OSError, ValueError):
            return read(path)  # says what is wrong
        return kept(path, now.st_ino, now.st_size, now.st_mtime_ns)

    return once


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
        data = _Builder(YamlLoader(text)).document()
    except yaml.MarkedYAMLError as wrong:
        mark = wrong.problem_mark or wrong.context_mark
        what = " ".join(f"{wrong.context or ''} {wrong.problem or ''}".split())
        raise _unreadable("YAML", where, mark.line + 1 if mark else None, what, remedy) from None
    except (yaml.YAMLError, ValueError) as wrong:
        raise _unreadable("YAML", where, None, " ".join(str(wrong).split()), remedy) from None
    if "*" in text:
        _check_values(data, "YAML", where, remedy)
    return data


_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
YamlLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Plain values that begin like no number, word or day are text.
_FIRST_LETTERS = frozenset(yaml.SafeLoader.yaml_implicit_resolvers)


class _Builder:
    """Values from the events of a document. PyYAML's own constructor takes the last of duplicate keys in silence, does
    not say where a date is wrong, merges without a limit, and is slower; its composer recurses in C without a limit."""

    _TEXT, _MERGE = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "merge"))
    _SCALARS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "timestamp"))
    _UNFINISHED = object()

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._next = loader.get_event
        self._anchors: dict[str, Any] = {}
        self._merged = 0

    def document(self) -> Any:
        """The value of the only document; ``None`` for an empty text."""
        self._next()  # the stream begins
        if isinstance(self._next(), yaml.StreamEndEvent):
            return None
        value = self._value(self._next(), 1)
        self._next()  # the document ends
        if not isinstance(after := self._next(), yaml.StreamEndEvent):
            raise self._wrong(after, "expected a single document in the stream but found another document")
        return value

    def _value(self, event: Any, depth: int) -> Any:
        kind = type(event)
        if kind is yaml.AliasEvent:
            return self._alias(event)
        anchor = event.anchor
        if kind is yaml.ScalarEvent and anchor is None and self._is_text(event):
            return event.value  # as nearly all are
        if anchor is not None:
            if anchor in self._anchors:
                raise self._wrong(event, f"duplicate anchor {anchor!r}")
            self._anchors[anchor] = self._UNFINISHED
        if kind is yaml.ScalarEvent:
            tag = self._tag(event)
            made: Any = event.value if tag == self._TEXT else self._scalar(event, tag)
        elif depth > MAX_DEPTH:
            raise self._wrong(event, _TOO_DEEP)
        elif event.tag not in (None, "!", f"tag:yaml.org,2002:{'seq' if kind is yaml.SequenceStartEvent else 'map'}"):
            raise self._wrong(event, f"unknown tag {event.tag}")
        elif kind is yaml.SequenceStartEvent:
            made = []
            while type(each := self._next()) is not yaml.SequenceEndEvent:
                made.append(self._value(each, depth + 1))
        else:
            made = self._mapping(depth + 1)
        if anchor is not None:
            self._anchors[anchor] = made
        return made

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise self._wrong(event, f"undefined alias {event.anchor!r}")
        if self._anchors[event.anchor] is self._UNFINISHED:
            raise self._wrong(event, "an alias of what it is in")
        return self._anchors[event.anchor]

    def _mapping(self, depth: int) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        merged: list[Any] = []
        while type(event := self._next()) is not yaml.MappingEndEvent:
            merge = type(event) is yaml.ScalarEvent and event.value == "<<" and self._tag(event) == self._MERGE
            key = event.value if merge else self._value(event, depth)
            if isinstance(key, dict | list):
                raise self._wrong(event, "a key that is a list or a mapping")
            if key in made:
                raise self._wrong(event, f"duplicate key {key!r}")
            made[key] = value = self._value(self._next(), depth)
            if merge:
                merged = value if isinstance(value, list) else [value]
                self._merged += sum(map(len, merged)) if all(isinstance(each, dict) for each in merged) else MAX_VALUES
                if self._merged >= MAX_VALUES:
                    raise self._wrong(event, "<< takes a mapping or a list of mappings, with few keys in all")
        if merged:
            del made["<<"]
        return {key: value for each in reversed(merged) for key, value in each.items()} | made if merged else made

    def _tag(self, event: Any) -> str:
        """What a scalar is: what it says itself, or what its text looks like where that is not quoted."""
        if event.tag not in (None, "!"):
            return str(event.tag)
        return (
            self._TEXT
            if self._is_text(event)
            else str(self._loader.resolve(yaml.ScalarNode, event.value, event.implicit))
        )

    @staticmethod
    def _is_text(event: Any) -> bool:
        """Whether a scalar is text without a closer look."""
        return event.tag in (None, "!") and (not event.implicit[0] or event.value[:1] not in _FIRST_LETTERS)

    def _scalar(self, event: Any, tag: str) -> Any:
        if tag not in self._SCALARS:
            raise self._wrong(event, f"unknown tag {tag}")
        node = yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
        try:
            return self._loader.yaml_constructors[tag](self._loader, node)
        except (ValueError, LookupError, AttributeError, OverflowError) as wrong:
            why = f": {_words(wrong)}" if isinstance(wrong, ValueError) else ""
            raise self._wrong(event, f"{event.value!r} is not a valid {tag.rpartition(':')[2]}{why}") from None

    @staticmethod
    def _wrong(event: Any, what: str) -> yaml.MarkedYAMLError:
        return yaml.MarkedYAMLError(problem=what, problem_mark=event.start_mark)


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
    import tomllib

    for number, line in enumerate(text.splitlines(), 1):
        if max(key.count(".") for key in re.findall(r"[^\s,=\"']*", line)) > MAX_DOTS:
            raise _unreadable("TOML", where, number, _TOO_DEEP, remedy)
    try:
        data = tomllib.loads(text)
    except (RecursionError, ValueError) as wrong:
        raise _unreadable("TOML", where, _long_number(text), _words(wrong), remedy) from None
    _check_values(data, "TOML", where, remedy)
    return data


def toml_line(text: str, table: str, key: str) -> int | None:
    """The line of a key of a table, in a text that :func:`parse_toml` has read; None for one that is written inline."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            inside = header[1].strip(" \t\"'") == table
        elif inside and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            return number
    return None


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
