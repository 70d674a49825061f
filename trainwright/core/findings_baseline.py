"""A baseline: findings that are known and accepted for now. New ones count, and those that are gone are named."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainwright.core.data_files import read_json
from trainwright.core.findings import Finding, Known
from trainwright.core.findings_formats import identity
from trainwright.core.owned import write_atomically
from trainwright.core.records import Record, parse_record

SCHEMA: Literal["trainwright/baseline/1"] = "trainwright/baseline/1"


class Baseline(Record):
    """The file of ``--baseline``, of ``preflight`` and ``estimator``."""

    schema: Literal["trainwright/baseline/1"]
    findings: tuple[Known, ...]


def read_baseline(path: Path) -> Baseline:
    """Read a baseline.

    Raises:
        RequestError: the file is missing, or is not a baseline.
    """
    remedy = f"--baseline {path} --write-baseline makes one."
    return parse_record(Baseline, read_json(path, remedy=remedy), str(path))


def write_baseline(path: Path, findings: Iterable[Finding], kept: Iterable[Known]) -> None:
    """Write the baseline of findings.

    Args:
        path: the file; it is replaced.
        findings: what is accepted.
        kept: entries about files that were not checked.
    """
    counts = Counter(identity(finding) for finding in findings)
    counts.update({(each.code, each.path, each.message): each.count for each in kept})
    known = [
        Known(code=code, path=name, message=message, count=count)
        for (code, name, message), count in sorted(counts.items(), key=lambda item: (item[0][1], item[0]))
    ]
    text = json.dumps(Baseline(schema=SCHEMA, findings=tuple(known)).as_json(), indent=1, ensure_ascii=False)
    write_atomically(path.absolute(), text + "\n")


@dataclass(frozen=True)
class Compared:
    """Findings beside a baseline: new ones, those that it knows, its entries that are gone, and those not checked."""

    new: list[Finding]
    known: list[Finding] = field(default_factory=list)
    gone: list[Known] = field(default_factory=list)
    unchecked: list[Known] = field(default_factory=list)


def compare(findings: list[Finding], checked: Collection[str], path: Path | None, *, renewed: bool = False) -> Compared:
    """Compare findings with a baseline.

    An entry is gone if its file was checked, or exists no more; of a file that was not checked nothing is known.

    Args:
        findings: what was found.
        checked: the files that were read.
        path: the file of the baseline; without one, all findings are new.
        renewed: write the file from these findings, which are then known; it need not exist.

    Raises:
        RequestError: the file is missing, or is not a baseline.
    """
    if path is None:
        return Compared(findings)
    entries = () if renewed and not path.exists() else read_baseline(path).findings
    left = Counter({(each.code, each.path, each.message): each.count for each in entries})
    made = Compared([])
    for finding in findings:
        known = left[identity(finding)] > 0
        left[identity(finding)] -= 1
        (made.known if known else made.new).append(finding)
    for (code, name, message), count in left.items():
        if count > 0:
            seen = name in checked or not Path(name).exists()
            entry = Known(code=code, path=name, message=message, count=count)
            (made.gone if seen else made.unchecked).append(entry)
    if not renewed:
        return made
    write_baseline(path, findings, made.unchecked)
    return Compared([], findings, made.gone)
