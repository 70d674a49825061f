"""Text on a terminal: wrapped between words, coloured by meaning; the same bytes as ever where it is piped."""

from __future__ import annotations

import io
import re

import pytest

from tests.support.terminal import on_a_terminal
from trainwright.core.terminal import for_terminal

COLOUR = re.compile(r"\x1b\[[\d;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def lines(text: str, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    return for_terminal(text, Terminal()).split("\n")


def test_a_line_goes_on_below_its_last_column(monkeypatch: pytest.MonkeyPatch) -> None:
    note = "note  torch.compile needs a C++ compiler, which the image does not have"
    assert lines(note, 40, monkeypatch) == [
        "\x1b[2mnote\x1b[0m  torch.compile needs a C++",
        "      compiler, which the image does not",
        "      have",
    ]
    row = "  nccl    2.21.5  one two three four five six"
    assert lines(row, 40, monkeypatch) == ["  nccl    2.21.5  one two three four", "                  five six"]
    warned = COLOUR.sub("", "\n".join(lines("warning aws: no credentials, so nothing is pushed", 40, monkeypatch)))
    assert warned.split("\n") == ["warning aws: no credentials, so nothing", "        is pushed"]
    assert lines("one two three four five six seven eight nine", 40, monkeypatch)[1] == "  nine"


@pytest.mark.parametrize("width", [60, 80, 110, 200])
def test_no_word_is_broken_and_none_is_lost(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"error: --cuda cu999: {'known are cu117, cu118 ' * 20}\n  see {'x' * 250} there"
    shown = COLOUR.sub("", "\n".join(lines(text, width, monkeypatch)))
    assert shown.split() == text.split()
    assert all(len(line) <= width or len(line.split()) == 1 for line in shown.splitlines())


@pytest.mark.parametrize(
    "line",
    [
        f"  ./invoke build {'--set a=1 ' * 12}",
        f"next    ./invoke smoke --image {'a' * 70}",
        f"  | /usr/bin/cc {'-I/src ' * 20}",
        f"        TRAINWRIGHT_ENGINE_SETUP=auto ./invoke {'--flag ' * 12}",
    ],
)
def test_what_is_copied_or_quoted_stays_on_one_line(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(line, 60, monkeypatch) == [line]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("error: no such file", "\x1b[1;31merror\x1b[0m: no such file"),
        ("ok      engine: 20.10", "\x1b[32mok\x1b[0m      engine: 20.10"),
        ("warning aws: none", "\x1b[33mwarning\x1b[0m aws: none"),
        ("passed  exit codes  0 on every host", "\x1b[32mpassed\x1b[0m  exit codes  0 on every host"),
        ("a.py:4: error TW142: lost", "a.py:4: \x1b[1;31merror\x1b[0m TW142: lost"),
        ("  cu124  2.6.0  unmaintained  -", "  cu124  2.6.0  \x1b[33munmaintained\x1b[0m  -"),
        ("cpu  2.13.0  supported  2026-11-25", "cpu  2.13.0  \x1b[32msupported\x1b[0m  2026-11-25"),
        ("ab12  1 GB  2 s  not run  2026", "ab12  1 GB  2 s  \x1b[33mnot run\x1b[0m  2026"),
        ("  +  wrapt  2.5.2", "\x1b[32m  +\x1b[0m  wrapt  2.5.2"),
        ("  -  torch  2.6.0", "\x1b[1;31m  -\x1b[0m  torch  2.6.0"),
        ("it is supported by upstream", "it is supported by upstream"),
        ("failed jobs are listed", "failed jobs are listed"),
        ("a file: error of mine", "a file: error of mine"),
    ],
)
def test_colour_says_how_it_went(line: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(line, 80, monkeypatch) == [shown]
    monkeypatch.setenv("NO_COLOR", "1")
    assert lines(line, 80, monkeypatch) == [line]


def test_what_is_piped_is_as_it_was() -> None:
    text = f"error: {'word ' * 100}"
    assert for_terminal(text, io.StringIO()) == text


def test_the_program_fits_the_terminal() -> None:
    """What verbs print, as a reader sees it: tables, errors, remedies; coloured there, and only there."""
    for words in (["plan", "pytorch:1.10.2-cu113"], ["plan", "pytorch:2.5-cu113"]):
        shown = on_a_terminal(words, 60)
        wide = [line for line in COLOUR.sub("", shown).splitlines() if len(line) > 60 and "./invoke" not in line]
        assert [line for line in wide if len(line.split()) > 2] == [], words
    assert "\x1b[1;31merror\x1b[0m:" in shown
    assert "\x1b" not in on_a_terminal(["bild"], NO_COLOR="1")
