"""The pages on jobs and on the compiler: what they name exists, and nothing is left out."""

from __future__ import annotations

import re

from tests.support.estimator_jobs import ROOT
from trainwright.sagemaker.job import Job


def test_what_the_page_on_the_compiler_names_exists():
    from trainwright.estimator.check import CODES as OF_JOBS
    from trainwright.preflight.preflight import CODES as OF_SCRIPTS
    from trainwright.sagemaker.causes import load_causes
    from trainwright.verbs.namespace import namespace

    page = (ROOT / "docs" / "training-compiler.md").read_text()
    assert set(re.findall(r"TW\d{3}", page)) <= set(OF_JOBS) | set(OF_SCRIPTS)
    causes = set(re.findall(r"\(`([a-z-]+)`\)", page))
    assert causes
    assert causes <= {cause.id for cause in load_causes()}
    commands = re.findall(r"\./invoke ((?:[^`\n]|\n(?! ))+)", page.replace("list --framework\n", "list --framework "))
    for command in commands:
        verb, *words = command.split()
        flags = {name for argument in namespace[verb].get_arguments() for name in argument.names}
        assert {word.lstrip("-") for word in words if word.startswith("--")} <= flags, command
    assert len(commands) > 8


def test_every_leaf_of_the_tree_says_what_checks_it():
    page = (ROOT / "docs" / "training-compiler.md").read_text()
    tree = page[page.index("## The compiled job learns something different") : page.index("## What is not checked")]
    entries = re.split(r"\n(?= *(?:-|\d+\.) )", tree)[1:]
    depth = [len(entry) - len(entry.lstrip()) for entry in entries]
    leaves = [e for n, e in enumerate(entries) if n + 1 == len(entries) or depth[n + 1] <= depth[n]]
    assert len(leaves) > 20
    for leaf in leaves:
        assert re.search(r"TW\d{3}|\./invoke", leaf), leaf


def test_the_page_on_jobs_names_every_key_and_range_of_codes():
    from trainwright.estimator.check import CODES as OF_JOBS

    page = (ROOT / "docs" / "estimator.md").read_text()
    keys = set(Job.__struct_encode_fields__)
    assert keys <= set(re.findall(r"`(\w+)`", page))
    numbers = {int(code[2:]) for code in OF_JOBS}
    named = set()
    for first, last in re.findall(r"\| TW(\d+)(?: to TW|, TW)(\d+) \|", page):
        named |= set(range(int(first), int(last) + 1))
    assert numbers <= named
    assert {int(each) for each in re.findall(r"TW(\d{3})", page)} <= numbers
