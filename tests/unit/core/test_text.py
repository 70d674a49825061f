"""What somebody else wrote, in a message: short, printable, and held to patterns that cannot run away."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import RequestError
from trainwright.core.text import LONGEST_LINE, LONGEST_WORD, coloured, fits, for_people, printable, trouble

# ECMA-48: the 8-bit and the 7-bit introducer of a control sequence; UAX 9: bidi override; the title sequence of xterm.
ESCAPES = ["\x9b31m", "\x1b[31m", "\u202eabc", "\x1b]0;title\x07", "\u2066x", "\u200bx", "\r", "\x00"]


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_terminal_is_told_nothing(escape):
    shown = printable(f"before {escape} after")
    assert not [char for char in shown if unicodedata.category(char) in {"Cc", "Cf"} and char not in "\n\t"]
    assert "before" in shown
    assert "after" in shown


def test_lines_and_letters_stay_as_they_are():
    text = "größe\n  β: 12 µs\t→ 日本"
    assert for_people(text) == text


@pytest.mark.parametrize("escape", [*ESCAPES[2:], "\x1b[2J", "\x1b[31", "\x1b[1;31H", "\n"])
def test_a_log_keeps_its_colours_and_nothing_else(escape):
    shown = coloured(f"\x1b[1;31mred\x1b[0m {escape} after")
    assert shown.startswith("\x1b[1;31mred\x1b[0m ")
    assert escape not in shown
    assert shown.count("\x1b") == 2


@pytest.mark.parametrize("word", ["x" * 100_000, "y " * 100_000, ("z" * 300 + " ") * 1000])
def test_what_is_endless_is_shortened(word):
    shown = for_people(f"--version {word}: not a version")
    assert len(shown) < 2 * LONGEST_LINE
    assert shown.startswith("--version ")


def test_a_path_of_ordinary_length_is_shown_whole():
    path = "/home/user/" + "folder/" * 40 + "train.py"
    assert len(path) < LONGEST_WORD
    assert path in for_people(f"{path}: no such file")


@given(st.text(max_size=2000))
def test_no_text_breaks_a_message(text):
    shown = str(RequestError(text))
    assert not [char for char in shown if unicodedata.category(char) in {"Cc", "Cf", "Cs"} and char not in "\n\t"]


@pytest.mark.parametrize("value", ["a\nb", "a\x9bb", "a\u202eb", "a\x00b", "x" * 5000])
def test_values_with_control_characters_are_trouble(value):
    assert trouble(value)


def test_ordinary_values_are_no_trouble():
    assert trouble("größe 2.6.0+cu124") == ""
    assert trouble("two\nlines\tand a tab", lines=True) == ""
    assert trouble("two\nlines") != ""


def test_patterns_take_ascii_alone_and_no_endless_text():
    assert fits(r"\d+", "12")
    assert not fits(r"\d+", "١٢")
    assert not fits(r"\d+", "1" * 129)
    assert not fits(r"\d+", "12\n")
