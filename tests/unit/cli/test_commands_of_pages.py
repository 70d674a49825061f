"""Every command of this program that README and docs show or name: its verb, its flags and their values exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_lines import known, named, shown, simple, typed
from trainwright.core.errors import RequestError

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
OF_INVOKE = ("help", "--help", "--version")  # what the program answers itself, of no verb
# Mistakes that a page shows on purpose, with the answer below.
WRONG = {"build --framwork pytorch"}


def test_every_command_in_a_block_can_be_typed() -> None:
    lines = {line: page.name for page in PAGES for line in shown(page.read_text())}
    assert len(lines) > 130
    assert lines.keys() >= WRONG
    for line in lines.keys() - WRONG:
        words = simple(line)
        if words[0] not in OF_INVOKE:
            try:
                typed(words)
            except (AssertionError, RequestError) as wrong:
                pytest.fail(f"{lines[line]}: {line}: {wrong}")


def test_every_command_in_a_sentence_exists() -> None:
    spans = {text: page.name for page in PAGES for text in named(page.read_text())}
    assert len(spans) > 80
    for text, page in spans.items():
        words = simple(text)
        if words[0] not in OF_INVOKE:
            try:
                known(words)
            except AssertionError as wrong:
                pytest.fail(f"{page}: {text}: {wrong}")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("plan --cud cu124", "--cud"),
        ("biuld pytorch:cpu", "biuld"),
        ("estimator --job job.yaml --format yml", "'yml'"),
        ("list --cuda cu999", "'cu999'"),
        ("push --repository", "needs a value"),
        ("generate --chek", "--chek"),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str, says: str) -> None:
    page = f"So:\n\n    $ ./invoke {line}   # why\n\nand `./invoke {line}`.\n"
    (block,), (span,) = shown(page), named(page)
    assert simple(block) == simple(span) == line.split()
    with pytest.raises((AssertionError, RequestError), match=says):
        typed(simple(block))
