"""Python source of values, as a person would lay it out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainwright.estimator.subject import Subject

WIDTH = 100
HEAD = '"""{title}\n\nWritten by Trainwright. Paths are relative to the folder {folder}; run it there.\n"""\n'


class PythonSource(str):
    """A piece of source that stands for itself."""

    __slots__ = ()


def literal(value: Any, indent: int = 0) -> str:
    """The source of a value: on one line where that fits, else an entry per line.

    Args:
        value: texts, numbers, truth values, nothing, lists and mappings of these, and :class:`PythonSource`.
        indent: columns that the first line is in already.
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
    """The source of a call with keyword arguments; those that are ``None`` or empty are left out."""
    parts = [literal(value, indent + 4) for value in positional]
    parts += [f"{key}={literal(value, indent + 4)}" for key, value in arguments.items() if not _empty(value)]
    return PythonSource(_bracketed(f"{name}(", parts, ")", indent))


def folder_of(subject: Subject) -> str:
    """The folder with the code as the generated script names it: seen from the working folder, where that is near."""
    source = subject.job.source_dir
    folder = (subject.folder / source if source else subject.folder).absolute()
    near = os.path.relpath(folder)
    return str(folder) if near.startswith("..") else near


def entry_of(subject: Subject) -> str:
    """The entry point as an SDK takes it: relative to ``source_dir``, or the path of a file of its own."""
    entry = str(subject.job.entry_point)
    return entry if subject.job.source_dir else str(Path(folder_of(subject), entry))


def head(title: str) -> str:
    """The docstring of a generated script."""
    return HEAD.format(title=title, folder=Path.cwd().name or "/")


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple | dict) and not value)


def _text(value: str) -> str:
    shown = repr(value)
    # Double quotes, as formatters have them, wherever that asks for no escapes.
    return f'"{shown[1:-1]}"' if shown.startswith("'") and '"' not in shown and "\\'" not in shown else shown


def _bracketed(begin: str, parts: list[str], end: str, indent: int) -> str:
    line = begin + ", ".join(parts) + end
    if len(line) + indent <= WIDTH and "\n" not in line and (len(parts) < 4 or not begin.endswith("(")):
        return line
    pad = " " * (indent + 4)
    return begin + "\n" + "".join(f"{pad}{part},\n" for part in parts) + " " * indent + end
