"""Preflight on the corpus of planted mistakes: recall, false findings and CPU time, in all and per rule.

.venv/bin/python bench/preflight.py [NAME …]     # NAME: a file of tests/corpus, without its ending
.venv/bin/python bench/preflight.py --rules [NAME …]   # CPU time per family of rules
.venv/bin/python bench/preflight.py --long       # a script of 3,000 lines, beside mypy
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.corpus import ENTRY, load, report
from trainwright.core.records import parse_record
from trainwright.preflight.preflight import FAMILIES, examine
from trainwright.sagemaker.job import Job
from trainwright.script.reader import Module, Reader, Script, parse_module
from trainwright.script.script_facts import ScriptFacts

LINES = 3_000


def long_script(lines: int) -> str:
    """The good scripts of the corpus, each as functions of one file, again and again."""
    pieces: list[str] = []
    number = count = 0
    while count < lines:
        for good, _ in load():
            body = "".join(f"    {line}\n" if line else "\n" for line in good.text.splitlines())
            if "from __future__" in body or "import *" in body:
                continue
            pieces.append(f"def job_{number}():\n{body}\n")
            count += pieces[-1].count("\n")
            number += 1
            if count >= lines:
                break
    return "".join(pieces) + "\n" + "".join(f"job_{each}()\n" for each in range(number))


def beside_mypy(lines: int) -> None:
    """Print the CPU seconds of preflight and of mypy for one script, and their ratio."""
    text = long_script(lines)
    started = time.process_time()
    module = parse_module(Path("train.py"), "train.py", text)
    if not isinstance(module, Module):
        raise SystemExit(f"the script is invalid: {module}")
    examine(Script((module,), (), (module.name,)))
    ours = time.process_time() - started
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(text)
        words = ["--no-incremental", "--ignore-missing-imports", "--check-untyped-defs", "--follow-imports=skip"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "mypy", *words, "train.py"], cwd=folder, capture_output=True, check=False)  # noqa: S603
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    theirs = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print("| lines | preflight s | mypy s | ratio |\n| --- | --- | --- | --- |")
    print(f"| {text.count(chr(10)):,} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |")


def by_rules(stems: list[str]) -> None:
    """Print the CPU seconds per 1,000 lines of each family of rules, on all scripts of the corpus.

    The rules of a family share what they look up. What all families share comes first: the script as it runs.
    """
    spent: dict[str, float] = {}
    lines = 0
    for good, wrong in load(stems):
        for each in (good, *wrong):
            lines += each.text.count("\n")
            script = Reader({ENTRY: each.text}).script(ENTRY, ENTRY.parent)
            started = time.process_time()
            facts = ScriptFacts(script, parse_record(Job, each.job, each.base))
            _ = facts.events
            spent["(shared)"] = spent.get("(shared)", 0.0) + time.process_time() - started
            for family in FAMILIES:
                started = time.process_time()
                list(family.check(facts))
                name = ", ".join(sorted({rule.code for rule in family.RULES}))
                spent[name] = spent.get(name, 0.0) + time.process_time() - started
    print("| s per 1,000 lines | part | rules |\n| --- | --- | --- |")
    for name, seconds in sorted(spent.items(), key=lambda row: -row[1]):
        print(f"| {1000 * seconds / max(lines, 1):.4f} | {seconds / sum(spent.values()):.1%} | {name} |")


if __name__ == "__main__":
    if sys.argv[1:] == ["--long"]:
        beside_mypy(LINES)
        sys.exit(0)
    if sys.argv[1:2] == ["--rules"]:
        by_rules(sys.argv[2:])
        sys.exit(0)
    hits, planted, false = report(sys.argv[1:])
    sys.exit(int(hits < planted or false > 0))
