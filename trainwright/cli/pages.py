"""The pages of help: the front page, the families of verbs, and the flags of one verb, all from the verbs' records."""

from __future__ import annotations

import inspect
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from msgspec.structs import FieldInfo, fields

from trainwright import __version__
from trainwright.cli.flags import Family, Shelf, Verb, kind_of
from trainwright.cli.values import values_of
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.records import Described, Words
from trainwright.core.terminal import styled
from trainwright.core.text import printable

OTHER = "Flags"
LAST = ("After the build", OTHER, "Where it comes from", "Output")  # headings at the end, in this order
_WIDEST = 100  # columns; a longer line is hard to read
_LEFT = 30  # columns of a flag with its metavar
_OFFERED = 12  # values; help does not list more
# What flags of a name take, where that name says nothing of it and the field says nothing else.
_TAKES = {
    **dict.fromkeys(("baseline", "job", "output", "entry_point"), "FILE"),
    **dict.fromkeys(("distribution", "hyperparameters"), "JSON"),
    **dict.fromkeys(("fail_on", "scan_fail_on"), "LEVEL"),
    **dict.fromkeys(("instance_count", "jobs", "sample", "seed"), "N"),
    **{"against": "OTHER", "component": "NAME", "env": "NAME=VALUE", "explain": "CODE", "findings": "FORMAT"},
    **{"for": "PLACE", "import": "PATH", "input": "NAME=S3", "progress": "KIND", "with": "NAME"},
}
# What is typed first; tests run both.
FIRST = (
    ("plan pytorch:cu124", "what the image will contain"),
    ("build pytorch:cpu --smoke", "an image, built and tested here"),
)


def page_of(words: Sequence[str], shelf: Shelf) -> str | None:
    """The page that a command line asks for; nothing where it asks for none.

    Args:
        words: what follows the name of the program.
        shelf: the verbs.

    Raises:
        RequestError: help is asked for a verb that does not exist.
    """
    asked = words[: words.index("--")] if "--" in words else list(words)
    if not asked:
        return None if words else front(shelf)
    if asked in (["version"], ["--version"], ["-V"]):
        return f"Trainwright {__version__}"
    if asked in (["--list"], ["-l"], ["help", "all"]):
        return every(shelf)
    helped = {"--help", "-h"} & set(asked)
    if not helped and asked[0] != "help":
        return None
    named = [word for word in asked if not word.startswith("-") and (word != "help" or word is not asked[0])]
    if not named:
        return front(shelf)
    if (verb := shelf.find(named[0])) is None:
        hint = did_you_mean(named[0], shelf.names)
        raise RequestError(f"no verb {named[0]!r}. {hint}", remedy="./invoke help shows the verbs.")
    return of_verb(verb)


def front(shelf: Shelf) -> str:
    """What one sees first: what this is, two commands, the verbs of every day, and where the others are."""
    daily, *others = shelf.families
    width = max(len(f"./invoke {line}") for line, _ in FIRST)
    lines = [*_wrapped(str(sys.modules["trainwright"].__doc__), ""), "", _title("Start with")]
    lines += [f"  {f'./invoke {line}'.ljust(width)}  {what}" for line, what in FIRST]
    lines += ["", _title(daily.heading), *_summaries(daily, shelf)]
    lines += ["", _title("More"), *_columns([(family.heading, ", ".join(family.names)) for family in others])]
    lines += [
        "",
        *_columns([("./invoke help VERB", "what a verb does, and its flags"), ("./invoke help all", "every verb")]),
    ]
    return "\n".join(lines)


def every(shelf: Shelf) -> str:
    """Every verb with its line, by family."""
    blocks = ["\n".join([_title(family.heading), *_summaries(family, shelf)]) for family in shelf.families]
    return "\n\n".join(blocks)


def _summaries(family: Family, shelf: Shelf) -> list[str]:
    rows = [(name, summary(verb)) for name in family.names if (verb := shelf.find(name))]
    return _columns(rows)


def summary(verb: Verb[Any]) -> str:
    """What a verb does, in one line."""
    return (inspect.getdoc(verb) or "").partition("\n")[0]


def of_verb(verb: Verb[Any]) -> str:
    """A verb: what it does, examples, and its flags by what they are about."""
    record = verb.record
    after = f" [-- {record.rest.upper()}…]" if record.rest else ""
    usage = f"Usage: ./invoke {verb.name}{_positional(record)} [--flags]{after}"
    lines = [usage, "", *_wrapped(inspect.getdoc(verb) or "", "")]
    if record.examples:
        lines += ["", _title("Examples"), *map(_command, record.examples)]
    groups: dict[str, list[tuple[str, str]]] = {}
    for field in fields(record):
        told = record.described[field.name]
        groups.setdefault(told.heading or OTHER, []).append((_left(record, field, told), _right(field, told)))
    for heading in sorted(groups, key=lambda heading: LAST.index(heading) if heading in LAST else -1):
        lines += ["", _title(heading), *_columns(groups[heading], _LEFT)]
    return "\n".join(lines)


def _command(line: str) -> str:
    """An example as it can be copied: a long one goes on in a further line, before a flag."""
    first, width = f"  ./invoke {line}", min(shutil.get_terminal_size().columns, _WIDEST)
    place = first.rfind(" --", 0, width - 2)
    return first if len(first) <= width or place < 0 else f"{first[:place]} \\\n     {first[place:]}"


def metavar(field: FieldInfo, told: Described) -> str:
    """What stands for a flag's value: what its field or its name says, else the last word of the name."""
    return told.metavar or _TAKES.get(field.encode_name) or field.encode_name.rpartition("_")[2].upper()


def _positional(record: type[Words]) -> str:
    shown = ""
    for field in fields(record):
        word = metavar(field, record.described[field.name])
        if field.required:
            shown += f" {word}"
        elif field.name == record.bare:
            shown += f" [{word}{'…' if kind_of(field.type) is list else ''}]"
    return shown


def _left(record: type[Words], field: FieldInfo, told: Described) -> str:
    flag = f"--{field.encode_name.replace('_', '-')}"
    if field.required:
        return metavar(field, told)
    if field.name == record.rest:
        return f"-- {metavar(field, told)}…"
    if field.name == record.bare:
        return f"[{flag}] {metavar(field, told)}"
    return flag if kind_of(field.type) is bool else f"{flag} {metavar(field, told)}"


def _right(field: FieldInfo, told: Described) -> str:
    text = told.description
    offered = values_of(told.values) if told.values else []
    if 0 < len(offered) <= _OFFERED and not all(value in text for value in offered):
        text += f" (one of {', '.join(offered)})"
    default = field.default
    if not field.required and default not in (None, False, "", (), 0) and "default" not in text:
        text += f" (default: {default:g})" if isinstance(default, float) else f" (default: {default})"
    return text


def _columns(rows: Sequence[tuple[str, str]], most: int = 20) -> list[str]:
    """Names and texts side by side; a text is wrapped beside its name, and begins below one that is too long."""
    left = min(max(len(name) for name, _ in rows) + 2, most)
    lines = []
    for name, text in rows:
        first, *more = _wrapped(text, " " * (left + 2))
        beside = len(name) + 2 <= left
        lines += [f"  {name.ljust(left)}{first.lstrip()}"] if beside else [f"  {name}", first]
        lines += more
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    lines = []
    for paragraph in printable(text).split("\n\n"):
        lines += [
            "",
            *textwrap.wrap(
                paragraph,
                max(width, 40),
                initial_indent=indent,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            ),
        ]
    return lines[1:]


def _title(text: str) -> str:
    return styled(text, "bold", sys.stdout)
