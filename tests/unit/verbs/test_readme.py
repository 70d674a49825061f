"""What the README shows of verbs that only answer is what they answer."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.support.in_process import call
from trainwright.core.paths import data_root

# An indented block: a command line, and what it prints up to the next one or the end of the block.
SHOWN = re.compile(r"^    \$ \./invoke ((?:plan|list) .+)\n((?:(?!    \$)(?:    .*)?\n)+)", re.MULTILINE)
EXAMPLES = SHOWN.findall((data_root() / "README.md").read_text())


def test_there_are_examples() -> None:
    assert {command.split()[0] for command, _ in EXAMPLES} == {"plan", "list"}


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_the_readme_shows_what_is_printed(command: str, shown: str) -> None:
    printed = [line.rstrip() for line in call(*shlex.split(command)).stdout.rstrip().splitlines()]
    assert [line.removeprefix("    ") for line in shown.rstrip().splitlines()] == printed
