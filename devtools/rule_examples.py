"""An example of each rule, from ``tests/corpus/``: the smallest mistake of that code in a script, or its wrong job."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.corpus import Planted, load
from tests.support.job_corpus import Pair, pairs
from trainwright.plan.plan import LABEL

AROUND = 2  # lines of the script before and after a mistake
WIDTH = 110


def rule_examples() -> dict[str, str]:
    """Return code → a difference: ``-`` is the mistake, ``+`` the right way."""
    of_jobs = {code: in_yaml(pair) for code, pair in pairs().items()}
    return dict(sorted({**of_jobs, **_of_scripts()}.items()))


def _of_scripts() -> dict[str, str]:
    found: dict[str, list[str]] = {}
    beside: dict[str, list[str]] = {}
    for good, wrong in load():
        for planted in wrong:
            if planted.text != good.text:
                found.setdefault(planted.codes[0], []).append(fix(planted.text, good.text))
            else:
                beside.setdefault(planted.codes[0], []).append(_beside(planted, good))
    return {code: min(each, key=_order) for code, each in {**beside, **found}.items()}


def _beside(wrong: Planted, good: Planted) -> str:
    """The difference between two jobs with one script: the line that does not go with it, and what changes."""
    first = next(each for each in wrong.findings() if each.code in wrong.codes)
    line = wrong.text.splitlines()[first.line - 1].strip() if first.line and first.path == "train.py" else ""
    jobs = []
    for each in (wrong, good):
        files = {"train.py": line, "requirements.txt": each.requirements}
        jobs.append({"files": {name: text for name, text in files.items() if text}, **each.job})
    of_wrong, of_right = jobs
    keys = [key for key in of_right | of_wrong if of_wrong.get(key) != of_right.get(key)]
    image = ["plan"] if wrong.requirements else []  # what it is held against
    return in_yaml(Pair(first.code, of_wrong, of_right, tuple(dict.fromkeys(["files", *image, *keys]))))


def _order(text: str) -> tuple[bool, int, str]:
    """Examples that show both the mistake and the right way come first, then short ones."""
    signs = {row[:1] for row in text.split("\n")}
    return not signs >= {"-", "+"}, text.count("\n"), text


def fix(wrong: str, right: str) -> str:
    """Return the difference between two scripts, without its headings and the indentation that all lines share."""
    rows = list(difflib.unified_diff(wrong.splitlines(), right.splitlines(), lineterm="", n=AROUND))[2:]
    hunks: list[list[str]] = []
    for row in rows:
        if row.startswith("@@"):
            hunks.append([])
        else:
            hunks[-1].append(row)
    made: list[str] = []
    for hunk in hunks:
        code = textwrap.dedent("\n".join(row[1:] for row in hunk)).split("\n")
        made += ["…"] if made else []
        made += [f"{row[0]}{line}".rstrip() for row, line in zip(hunk, code, strict=True)]
    return "\n".join(made).strip("\n")


def in_yaml(pair: Pair) -> str:
    """Return the difference between two jobs: the keys that change, and those that their example shows beside them."""
    flags = [f" # --{name} {value}" for name, value in pair.flags.items()]
    wrong, right = ([*_rows(job, pair.shown)] for job in (pair.wrong, pair.right))
    rows = difflib.unified_diff(wrong, right, lineterm="", n=len(wrong))
    return "\n".join([*flags, *(row.rstrip() for row in [*rows][3:])])


def _rows(job: dict[str, Any], keys: tuple[str, ...]) -> Iterator[str]:
    """Keys of a job as rows of YAML; what is not in its file, but beside it or in its image, as comments."""
    for key in keys:
        if key == "files":
            yield from (f"# {name}: {row}" for name, text in job.get(key, {}).items() for row in text.splitlines())
        elif key == "labels":
            yield from (f"# the image's label {LABEL}.{name}: {text}" for name, text in job.get(key, {}).items())
        elif job.get(key) is not None:
            flow = None if isinstance(job[key], dict | list) else False  # None: what holds no other mapping or list
            text = yaml.dump({key: job[key]}, Dumper=_Plain, default_flow_style=flow, sort_keys=False, width=WIDTH)
            yield from text.splitlines()


class _Plain(yaml.SafeDumper):
    """YAML in which a value that is there twice is written twice, and a text with line breaks in one line."""

    def ignore_aliases(self, _data: object) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style='"' if "\n" in data else None)


_Plain.add_representer(str, _Plain.represent_str)
