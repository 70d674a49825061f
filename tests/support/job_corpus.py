"""The corpus of job files: of each rule of ``estimator`` a wrong job, and the right one (``tests/corpus/jobs/*.yaml``).

``bases.yaml`` has right jobs by name, the other files rules by code, each with:

- ``base``: the name of a job, and changes of it as JSON merge patches (RFC 7396: null removes a key): ``both`` of the
  wrong and the right one, ``wrong``, ``right``. Beside the keys of a job file, ``files`` are texts by path relative to
  it, and ``labels`` are those of its image, beside what every image has;
- ``flags`` of ``estimator``; ``shown``: keys that the example shows though they do not change; ``also``: codes of other
  rules that find the same mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from trainwright.core.data_files import read_yaml
from trainwright.core.findings import Finding
from trainwright.estimator.estimate import estimate, read_words
from trainwright.estimator.image import facts_of_labels, facts_of_name
from trainwright.plan.plan import LABEL

FOLDER = Path(__file__).resolve().parents[1] / "corpus" / "jobs"
BASES = "bases.yaml"
# Every job can name them.
FILES = {"src/train.py": "", "src/run.sh": "", "finetune.py": ""}
# An image of Trainwright with what MPI needs.
PARTS = ("openmpi", "ssh", "mpi4py", "sagemaker-toolkit", "aws-ofi-nccl")
LABELS = {"framework": "pytorch", "framework-version": "2.6.0", **{f"component.{name}": "1 (test)" for name in PARTS}}


@dataclass(frozen=True)
class Pair:
    """A wrong job and the right one; keys beside those of a job file: ``files`` and ``labels``."""

    code: str
    wrong: dict[str, Any]
    right: dict[str, Any]
    shown: tuple[str, ...]
    flags: dict[str, Any] = field(default_factory=dict)
    also: frozenset[str] = frozenset()


def patched(value: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396, section 2)."""
    if not isinstance(patch, Mapping):
        return patch
    made = dict(value) if isinstance(value, Mapping) else {}
    for name, inner in patch.items():
        if inner is None:
            made.pop(name, None)
        else:
            made[name] = patched(made.get(name), inner)
    return made


@cache
def pairs() -> dict[str, Pair]:
    """The pairs by code.

    Raises:
        ValueError: a code is there twice.
    """
    bases = read_yaml(FOLDER / BASES)
    found: dict[str, Pair] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for code, row in read_yaml(path).items() if path.name != BASES else ():
            if code in found:
                raise ValueError(f"{path.name}: {code} is there twice")
            found[code] = _pair(code, bases, **row)
    return found


def _pair(
    code: str,
    bases: Mapping[str, Any],
    *,
    base: str,
    both: Mapping[str, Any] | None = None,
    wrong: Mapping[str, Any] | None = None,
    right: Mapping[str, Any] | None = None,
    flags: dict[str, Any] | None = None,
    shown: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
) -> Pair:
    shared = patched(patched({}, bases[base]), both or {})
    keys = dict.fromkeys([*shown, *(both or {}), *(wrong or {}), *(right or {})])
    return Pair(
        code, patched(shared, wrong or {}), patched(shared, right or {}), tuple(keys), flags or {}, frozenset(also)
    )


def findings(job: Mapping[str, Any], flags: Mapping[str, Any], folder: Path) -> tuple[Finding, ...]:
    """What ``estimator --check-only`` finds in a job; its file, and those beside it, are written into ``folder``."""
    keys = dict(job)
    files, labels = keys.pop("files", {}), keys.pop("labels", {})
    for name, text in {**FILES, **files, "job.yaml": yaml.safe_dump(keys)}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    known = {f"{LABEL}.{name}": text for name, text in {**LABELS, **labels}.items()} if labels else {}
    facts = facts_of_labels("", known)
    read, beside = read_words(str(folder / "job.yaml"), {})
    form, sdk = flags.get("format", "python"), flags.get("sdk", 2)
    return estimate(
        read, beside, sdk=sdk, form=form, check_only=True, look=lambda image: facts or facts_of_name(image)
    ).findings
