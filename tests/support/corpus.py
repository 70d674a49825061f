"""The corpus of training scripts: good ones, and each with planted mistakes, as small edits (``tests/corpus/*.yaml``).

A file has ``about``, ``job``, ``script``, perhaps the text of ``requirements`` beside it, and ``mistakes``: each with a
name, the ``code`` that preflight should give (several are possible), ``edits`` (text to replace, and by what), changes
of the job, and other ``requirements``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from trainwright.core.findings import Finding
from trainwright.core.records import parse_record
from trainwright.preflight import requirements
from trainwright.preflight.preflight import examine
from trainwright.sagemaker.job import Job
from trainwright.script.reader import Reader

FOLDER = Path(__file__).resolve().parents[1] / "corpus"
NO_CORPUS = ("public",)
ENTRY = Path("/opt/ml/code/train.py")  # not on the disk


@dataclass(frozen=True)
class Planted:
    """A script with a mistake in it (``codes`` is empty for a good script)."""

    base: str
    name: str
    codes: tuple[str, ...]
    text: str
    job: dict[str, Any]
    requirements: str = ""

    def findings(self) -> list[Finding]:
        """What preflight says of it."""
        job = parse_record(Job, self.job, self.base)
        script = Reader({ENTRY: self.text}).script(ENTRY, ENTRY.parent)
        found = list(examine(script, job).findings)
        if self.requirements:
            with TemporaryDirectory() as folder:
                path = Path(folder, requirements.FILE)
                path.write_text(self.requirements)
                found += requirements.check_for(job, path, path.name)
        return found


def edited(base: str, name: str, text: str, edits: dict[str, str]) -> str:
    """Return a script with a mistake's edits.

    Raises:
        AssertionError: a text to replace is not in the script.
    """
    for old, new in edits.items():
        assert old in text, f"{base}: {name}: {old!r} is not in the script"
        text = text.replace(old, new)
    return text


def load(stems: list[str] | None = None) -> Iterator[tuple[Planted, list[Planted]]]:
    """Yield each good script, and its versions with a mistake."""
    for path in sorted(FOLDER.glob("*.yaml")):
        if path.stem in NO_CORPUS or (stems and path.stem not in stems):
            continue
        case = yaml.safe_load(path.read_text())
        text, job, asked = case["script"], case["job"], case.get("requirements", "")
        good = Planted(path.stem, "", (), text, job, asked)
        wrong = []
        for row in case["mistakes"]:
            codes = tuple(row["code"].split())
            changed = edited(path.stem, row["name"], text, row["edits"])
            more = row.get("requirements", asked)
            wrong.append(Planted(path.stem, row["name"], codes, changed, job | row.get("job", {}), more))
        yield good, wrong


def report(stems: list[str] | None = None) -> tuple[int, int, int]:
    """Print recall, precision and time per rule; return found, planted and false."""
    found: dict[str, list[int]] = {}
    false: dict[str, int] = {}
    started = time.process_time()
    lines = 0
    for good, wrong in load(stems):
        lines += good.text.count("\n") * (1 + len(wrong))
        known = {(f.code, f.message) for f in good.findings()}
        for finding in good.findings():
            false[finding.code] = false.get(finding.code, 0) + 1
            print(f"false  {good.base}: {finding.code} {finding.line}: {finding.message}")
        for planted in wrong:
            got = {f.code for f in planted.findings() if (f.code, f.message) not in known}
            hit = bool(got & set(planted.codes))
            counts = found.setdefault(planted.codes[0], [0, 0])
            counts[0] += hit
            counts[1] += 1
            if not hit:
                print(f"missed {planted.base}: {planted.name}: {'/'.join(planted.codes)}, got {sorted(got)}")
    seconds = time.process_time() - started
    for code in sorted({*found, *false}):
        hits, planted_count = found.get(code, [0, 0])
        print(f"{code}: {hits} of {planted_count} found, {false.get(code, 0)} false")
    hits, total = sum(h for h, _ in found.values()), sum(n for _, n in found.values())
    wrong_ones = sum(false.values())
    print(f"{hits} of {total} planted mistakes found, {wrong_ones} false findings in good scripts")
    print(f"{seconds:.1f} s of CPU for {lines} lines: {1000 * seconds / max(lines, 1):.2f} s per 1000")
    return hits, total, wrong_ones
