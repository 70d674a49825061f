"""Format values as readable Python source."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainwright.estimator.subject import Subject

WIDTH = 100
HEAD = '"""{title}\n\nWritten by Trainwright. Paths are relative to the folder {folder}; run it there.\n"""\n'


class PythonSource(str):
    """A piece of source that is inserted as it is."""

    __slots__ = ()


def literal(value: Any, indent: int = 0) -> str:
    """Return the source of a value: on one line if it fits, else one entry per line.

    Args:
        value: a string, number, boolean or None, a list or mapping of these, or a :class:`PythonSource`.
        indent: the column at which the first line starts.
    """
    if isinstance(value, PythonSource):
        return str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        parts = [f"{literal(key)}: {literal(item, indent + 4)}" for key, item in value.items()]
        return _bracketed("{", parts, "}", indent)
    if isinstance(value, list | tuple):
        return _bracketed("[", [literal(item, indent + 4) for item in value], "]", indent)
    return repr(value)


def call(name: str, arguments: Mapping[str, Any], indent: int = 0, positional: Iterable[Any] = ()) -> PythonSource:
    """Return the source of a call with keyword arguments; None and empty values are omitted."""
    parts = [literal(value, indent + 4) for value in positional]
    parts += [f"{key}={literal(value, indent + 4)}" for key, value in arguments.items() if not _empty(value)]
    return PythonSource(_bracketed(f"{name}(", parts, ")", indent))


def folder_of(subject: Subject) -> str:
    """Return the folder with the code as the generated script names it: relative if below the working folder."""
    source = subject.job.source_dir
    folder = (subject.folder / source if source else subject.folder).absolute()
    relative = os.path.relpath(folder)
    return str(folder) if relative.startswith("..") else relative


def entry_of(subject: Subject) -> str:
    """Return the entry point for an SDK: relative to ``source_dir``, or the path of a single file."""
    entry = str(subject.job.entry_point)
    return entry if subject.job.source_dir else str(Path(folder_of(subject), entry))


def head(title: str) -> str:
    """Return the docstring of a generated script."""
    return HEAD.format(title=title, folder=Path.cwd().name or "/")


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple | dict) and not value)


def _text(value: str) -> str:
    shown = repr(value)
    # Double quotes, as formatters write them, unless that needs escapes.
    return f'"{shown[1:-1]}"' if shown.startswith("'") and '"' not in shown and "\\'" not in shown else shown


def _bracketed(begin: str, parts: list[str], end: str, indent: int) -> str:
    line = begin + ", ".join(parts) + end
    if len(line) + indent <= WIDTH and "\n" not in line and (len(parts) < 4 or not begin.endswith("(")):
        return line
    pad = " " * (indent + 4)
    return begin + "\n" + "".join(f"{pad}{part},\n" for part in parts) + " " * indent + end
