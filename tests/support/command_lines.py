"""Command lines of this program as people read them, taken as the program would take them; nothing is run."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from invoke.collection import Collection
from msgspec.structs import fields

from trainwright.cli import plain
from trainwright.cli.flags import Verb
from trainwright.cli.parser import check_command_line, with_flags
from trainwright.cli.tasks import collection
from trainwright.cli.values import values_of
from trainwright.verbs.find import find
from trainwright.verbs.namespace import namespace

# A value that stands for another, or for any: FILE, IMAGE, <plan id>, {{name}}, $NAME, a pattern, what was left out.
STANDS_FOR = re.compile(r"[A-Z][A-Z-]*|.*[<{$*…~].*")


@cache
def maintainers() -> dict[str, Verb[Any]]:
    """The verbs that only the checkout has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainwright.verbs.namespace.namespace", Collection())  # tasks.py adds its own to it
        verbs: dict[str, Verb[Any]] = importlib.import_module("tasks").OWN
    return verbs


def typed(words: Sequence[str]) -> None:
    """Take a command line as the program would, without running its verb.

    Raises:
        RequestError: the program would refuse it.
        AssertionError: it has a value that the flag does not offer.
    """
    if plain.take(words, find) is None:
        contexts = [*namespace.to_contexts(), *collection(*maintainers().values()).to_contexts()]
        check_command_line(with_flags(words, contexts), contexts)
    known(words)


def known(words: Sequence[str]) -> None:
    """Hold a verb, its flags and their values to what there is; parts of the line may be missing.

    Raises:
        AssertionError: it has something that does not exist.
    """
    verb = find(words[0]) or maintainers().get(words[0])
    assert verb, f"there is no verb {words[0]}"
    flags = {f"--{each.encode_name.replace('_', '-')}": each.name for each in fields(verb.record)}
    rest = iter(words[1:])
    for word in rest:
        if word == "--":
            return
        flag, equals, value = word.partition("=")
        if not flag.startswith("--"):
            continue
        assert flag in flags, f"{words[0]} has no flag {flag}"
        told = verb.record.described[flags[flag]]
        if told.values:
            offered = values_of(told.values) if isinstance(told.values, str) else told.values
            given = value if equals else next(rest, "…")
            strange = [
                each for each in re.split("[,|]", given) if each not in offered and not STANDS_FOR.fullmatch(each)
            ]
            assert told.values == "built" or strange == [], f"{words[0]} {flag}: {strange} are not among {offered}"


def simple(text: str) -> list[str]:
    """The words of the first simple command of a line of shell: up to a pipe, a redirection or a comment."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words = []
    for word in lexer:
        if set(word) <= set("();<>|&"):
            break
        words.append(word)
    return words


def shown(page: str) -> Iterator[str]:
    """What follows ``./invoke`` in the lines of a page's blocks of code, indented or fenced; ``\\`` joins lines."""
    fenced = False
    for line in re.sub(r"\\\n\s*", "", page).splitlines():
        fenced ^= line.startswith("```")
        if fenced or line.startswith("    "):
            yield from re.findall(r"\$\(\./invoke ([^)]+)\)", line)
            yield from re.findall(r"(?:^\s*(?:\$ )?|(?:\|\||&&) )\./invoke (.+)", line)


def named(page: str) -> Iterator[str]:
    """What is in backticks outside of blocks of code, and begins with ``./invoke``, or is a verb with a flag."""
    prose = re.sub(r"^```[^`]*^```$|^    .*$", "", page, flags=re.MULTILINE)
    for span in re.findall(r"`([^`]+)`", prose):
        text = " ".join(span.split())
        verb = text.partition(" ")[0]
        if text.startswith("./invoke "):
            yield text.removeprefix("./invoke ")
        elif find(verb) and " --" in text:
            yield text
