"""The scripts of a Jupyter notebook: what ``%%writefile`` cells write, and the code of the notebook itself."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trainwright.core.data_files import parse_json
from trainwright.core.errors import RequestError

# IPython's documentation of built-in magics; of other cell magics (%%bash, %%html) the cell is not Python.
PYTHON_CELLS = ("capture", "prun", "time", "timeit")
FILE_CELLS = ("file", "writefile")
# What ends a line for Python; str.splitlines knows more.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_CELL_MAGIC = re.compile(r"%%(\w+)[ \t]*(.*)")
# A line for IPython: a shell command, a magic, a question; or the value of an assignment.
_MAGIC = re.compile(r"^(?P<indent>\s*)(?:[!%?].*|[\w.]+\?{1,2}\s*)$")
_ASSIGNED = re.compile(r"^(?P<target>\s*[\w ,.]+=\s*)[!%].*$")
# What starts jobs and is not part of one: it imports the estimators of the SDK.
DRIVES = re.compile(
    r"^\s*(import sagemaker\b(?!\.)|from sagemaker(\.(pytorch|tensorflow|huggingface|estimator|inputs|train|modules"
    r"|tuner|workflow|processing|sklearn|xgboost|mxnet)[\w.]*)? import)",
    re.M,
)
REMEDY = "Name a notebook of format 4 (jupyter nbconvert --to notebook converts older ones)."


@dataclass
class CellCode:
    """A script in a notebook.

    Attributes:
        name: the file that ``%%writefile`` writes; empty for the code of the notebook itself.
        lines: the script.
        places: for each line, the line of the notebook's file, the number of the cell (from 1), and the line in it.
    """

    name: str
    lines: list[str] = field(default_factory=list)
    places: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The whole script."""
        return "\n".join(self.lines) + "\n"


def scripts_of(text: str, where: str) -> list[CellCode]:
    """Return the scripts of a notebook; its own code only if it does not just start jobs with SageMaker's SDK.

    Args:
        text: the notebook's file.
        where: its name in errors.

    Raises:
        RequestError: it is not a notebook of format 4.
    """
    data = parse_json(text, where, remedy=REMEDY)
    cells = data.get("cells") if isinstance(data, dict) else None
    if not isinstance(cells, list):
        raise RequestError(f"{where}: not a notebook: it has no list of cells", remedy=REMEDY)
    language = _at(data, "metadata", "language_info", "name") or _at(data, "metadata", "kernelspec", "language")
    if language not in (None, "python"):
        return []
    # The strings of a text of JSON come in the order in which its keys and values are read.
    starts = iter(_string_lines(text))
    placed = _placed(data, starts)
    own, written = CellCode(""), dict[str, CellCode]()
    for number, cell in enumerate(placed["cells"], 1):
        if isinstance(cell, dict) and _plain(cell.get("cell_type")) == "code":
            _add(list(_lines(cell.get("source"))), number, own, written)
    drives = DRIVES.search(own.text)
    return [*written.values(), *([own] if own.text.strip() and not drives else [])]


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _string_lines(text: str) -> Iterator[int]:
    """Yield the line of each string of a text of JSON, keys included."""
    line, last = 1, 0
    for match in _STRING.finditer(text):
        line += text.count("\n", last, match.start())
        last = match.start()
        yield line


def _placed(value: Any, lines: Iterator[int]) -> Any:
    """Replace each string that is a value by itself and its line."""
    if isinstance(value, str):
        return value, next(lines)
    if isinstance(value, list):
        return [_placed(each, lines) for each in value]
    if isinstance(value, dict):
        found = {}
        for key, each in value.items():
            next(lines)
            found[key] = _placed(each, lines)
        return found
    return value


def _plain(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) else value


def _lines(source: Any) -> Iterator[tuple[str, int]]:
    """Yield each line of a cell with its line in the file; ``source`` is a text or a list of pieces of it."""
    text, started = "", 0
    for piece in source if isinstance(source, list) else [source]:
        if not isinstance(piece, tuple):
            continue
        for part in _LINE.findall(piece[0]):
            started = started or piece[1]
            text += part
            if part.endswith(("\n", "\r")):
                yield text.rstrip("\r\n"), started
                text, started = "", 0
    if text:
        yield text, started


def _add(cell: list[tuple[str, int]], number: int, own: CellCode, written: dict[str, CellCode]) -> None:
    """Add a cell to the script that it belongs to."""
    head = next((i for i, (line, _) in enumerate(cell) if line.strip()), 0)
    magic = _CELL_MAGIC.match(cell[head][0]) if cell else None
    target, lines = own, [line for line, _ in cell]
    if magic is not None and magic[1] in FILE_CELLS:
        words = magic[2].split()
        name = " ".join(word for word in words if word not in ("-a", "--append")).strip("'\"")
        if not name.endswith(".py"):
            return
        if len(words) == 1 or name not in written:
            written[name] = CellCode(name)
        target = written[name]
        cell, lines = cell[head + 1 :], lines[head + 1 :]
        head += 1
    else:
        if magic is not None:
            lines[head] = "" if magic[1] in PYTHON_CELLS else lines[head]
            if magic[1] not in PYTHON_CELLS:
                return
        lines = _without_magics(lines)
        head = 0
    target.lines += lines
    target.places += [(line, number, head + place) for place, (_, line) in enumerate(cell, 1)]


def _without_magics(lines: list[str]) -> list[str]:
    """Replace what IPython understands and Python does not; a cell that stays invalid for it is left out."""
    if _parses(lines):
        return lines
    changed: list[str] = []
    goes_on = False
    for line in lines:
        magic, assigned = _MAGIC.match(line), _ASSIGNED.match(line)
        if goes_on:
            changed.append("")
        elif magic is not None:
            changed.append(f"{magic['indent']}pass")
        elif assigned is not None:
            changed.append(f"{assigned['target']}None")
        else:
            changed.append(line)
        goes_on = (goes_on or magic is not None or assigned is not None) and line.endswith("\\")
    if changed == lines or _parses(changed):
        return changed
    return [""] * len(lines)


def _parses(lines: list[str]) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
