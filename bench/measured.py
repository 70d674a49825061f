"""What the benches have measured: a file for each in ``bench/figures/``, from which docs/benchmarks.md is written."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainwright.core.data_files import read_json
from trainwright.core.owned import write_atomically
from trainwright.core.records import Record, parse_record
from trainwright.engine.engine import Engine

PAGE = Path(__file__).resolve().parent.parent / "docs/benchmarks.md"
FOLDER = Path(__file__).with_name("figures")


class Measured(Record):
    """A run of a bench: when and on what machine, and its figures (bytes and seconds) by name."""

    date: str
    machine: str
    values: dict[str, Any]


def keep(name: str, values: dict[str, Any], engine: Engine | None = None) -> Path:
    """Write what a bench has measured on this machine; returns the file.

    Args:
        name: of the measurement.
        values: what was measured.
        engine: the container engine, if one was used.
    """
    found = Measured(date=today(), machine=machine(engine), values=values)
    path = FOLDER / f"{name}.json"
    write_atomically(path, json.dumps(found.as_json(), indent=1, sort_keys=True) + "\n")
    return path


def measured(name: str) -> Measured | None:
    """What was measured last under a name; ``None`` if nothing was.

    Raises:
        RequestError: the file is not a measurement.
    """
    path = FOLDER / f"{name}.json"
    return parse_record(Measured, read_json(path), str(path)) if path.is_file() else None


def today() -> str:
    """The date of a measurement."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def machine(engine: Engine | None = None) -> str:
    """This machine in a few words, without a name: cores, memory, system, engine, and how busy it was."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    words = [f"{os.cpu_count()} cores", f"{memory:.0f} GB", f"{platform.system()} {platform.machine()}"]
    words += [f"Docker {engine.server_version}"] if engine is not None else [f"Python {platform.python_version()}"]
    return ", ".join([*words, f"load {os.getloadavg()[0]:.1f}"])


def with_part(page: str, begin: str, end: str, text: str) -> str:
    """A page with the text between two marks of it.

    Raises:
        ValueError: the page lacks a mark.
    """
    before, mark, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not mark or not ended:
        raise ValueError(f"the page lacks {begin} or {end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def write_part(begin: str, end: str, text: str) -> None:
    """Replace what stands between two marks of docs/benchmarks.md."""
    PAGE.write_text(with_part(PAGE.read_text(), begin, end, text))
