"""Every pattern of the package takes at most the square of a text's length, and a name's pattern its length.

The work is counted by a matcher of our own (``tests/support/regex_steps.py``), so no clock is asked and no result
depends on the machine. The texts are made from the pattern: its beginning, then something that one of its repeats
takes, many times, then something that no repeat takes. A pattern with two ways to read the same text then tries all of
them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainwright
from tests.support.examples import some
from tests.support.regex_steps import TooManySteps, accepts, attempt, nodes, parse, steps
from trainwright.catalog import image_line, incompatibilities
from trainwright.core import fields
from trainwright.core.data_files import read_yaml
from trainwright.core.text import fits
from trainwright.sagemaker.causes import load_causes
from trainwright.site import site

PACKAGE = Path(trainwright.__file__).parent
FUNCTIONS = {"compile", "fullmatch", "match", "search", "sub", "split", "findall", "finditer"}
SHORT, LONG = 8, 16
LIMIT = 20 * LONG * LONG  # of a quadratic pattern; two ways to read each character make 2 ** 16
# What --version was held to until November 2026: 28 characters took eight minutes.
OLD_VERSION = r"\d+(\.\d+)*([abrc.+]?[0-9a-z]+)*"


# These read what a program prints that we started, line by line.
OUTPUT = {"engine/buildkit_parsers.py", "sources/debian_base.py", "estimator/service_limits.py"}


class Pattern(NamedTuple):
    """A pattern in the source; ``whole``: it is matched against whole values, so it is one of names."""

    where: str
    text: str
    flags: int
    whole: bool

    def __str__(self) -> str:
        return self.where


def in_source(path: Path) -> Iterator[Pattern]:
    """The patterns that a module gives to ``re`` or ``fits`` as literals."""
    source = path.read_text()
    found = list(ast.walk(ast.parse(source)))
    matched = set(re.findall(r"(\w+)\.fullmatch\(", source))
    values = [node for node in found if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    assigned = {node.value: ast.unparse(node.targets[0]) for node in values}
    for call in (node for node in found if isinstance(node, ast.Call) and node.args):
        pattern = call.args[0]
        if not (isinstance(pattern, ast.Constant) and isinstance(pattern.value, str)):
            continue
        name = ast.unparse(call.func)
        if name != "fits" and not (name.startswith("re.") and name.removeprefix("re.") in FUNCTIONS):
            continue
        named = {node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute)}
        flags = sum(getattr(re, flag) for flag in ("MULTILINE", "DOTALL", "IGNORECASE", "ASCII") if flag in named)
        flags |= re.IGNORECASE if "I" in named else 0
        flags |= re.ASCII if name == "fits" else 0
        whole = name in {"fits", "re.fullmatch"} or assigned.get(call, "") in matched
        yield Pattern(f"{path.relative_to(PACKAGE)}:{call.lineno}", pattern.value, int(flags), whole)


IN_SOURCE = [pattern for path in sorted(PACKAGE.rglob("*.py")) for pattern in in_source(path)]
BOOK = read_yaml(next(PACKAGE.rglob("causes.yaml")))
IN_DATA = [Pattern(f"causes.yaml: {cause.id}", text, 0, False) for cause in load_causes() for text in cause.patterns]
IN_DATA += [
    Pattern(f"causes.yaml: {cause['id']}", cause["pattern"], re.MULTILINE, False) for cause in BOOK["rehearsal"]
]
INPUT = [Pattern("fields.VERSION", fields.VERSION, re.ASCII, True)]
# What a record's text is held to; as all of them begin and end with an anchor, the matcher can do without.
INPUT += [
    Pattern(f"{module.__name__}.{name}", rule.pattern.removeprefix("^").removesuffix(r"\Z"), 0, True)
    for module in (fields, image_line, incompatibilities, site)
    for name, kind in vars(module).items()
    for rule in getattr(kind, "__metadata__", ())
    if getattr(rule, "pattern", None)
]
PATTERNS = list(dict.fromkeys(IN_SOURCE + IN_DATA + INPUT))
WHOLE = [pattern for pattern in PATTERNS if pattern.whole]


@pytest.fixture(autouse=True)
def _deep() -> Iterator[None]:
    old = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # the matcher calls itself for each character
    yield
    sys.setrecursionlimit(old)


def sample(tree: Any, flags: int) -> str:
    """A short text that a tree matches."""
    made = ""
    for op, value in tree:
        if str(op) in {"LITERAL", "IN", "ANY", "NOT_LITERAL"}:
            chars = ([chr(value)] if str(op) == "LITERAL" else []) + [chr(code) for code in (97, 48, *range(0x110))]
            made += next(char for char in chars if accepts(str(op), value, char, flags))
        elif str(op) in {"MAX_REPEAT", "MIN_REPEAT"}:
            made += sample(value[2], flags) * value[0]
        elif str(op) == "BRANCH":
            made += sample(value[1][0], flags)
        elif str(op) == "SUBPATTERN":
            made += sample(value[3], flags)
    return made


def attacks(tree: Any, flags: int, times: int, before: str = "") -> Iterator[str]:
    """Texts that have a repeat of a tree take as much as it can, and end in what it does not take."""
    for op, value in tree:
        kind = str(op)
        if kind in {"MAX_REPEAT", "MIN_REPEAT"}:
            if int(value[1]) > SHORT:
                for word in {sample(value[2], flags), *(_characters(value[2], flags))} - {""}:
                    yield before + word * times + "!"
                    yield before + word * times + "\n"
            yield from attacks(value[2], flags, times, before)
        elif kind == "BRANCH":
            for branch in value[1]:
                yield from attacks(branch, flags, times, before)
        elif kind == "SUBPATTERN":
            yield from attacks(value[3], flags, times, before)
        before += sample([(op, value)], flags)


def _characters(tree: Any, flags: int) -> set[str]:
    kinds = [(op, value) for op, value in nodes(tree) if op in {"LITERAL", "IN", "ANY", "NOT_LITERAL"}]
    return {char for char in "a0. -\t" if any(accepts(op, value, char, flags) for op, value in kinds)}


def worst(pattern: Pattern, times: int, *, search: bool) -> int:
    """The most steps that any of the attacks takes; more than :data:`LIMIT` where one was stopped."""
    tree, flags = parse(pattern.text, pattern.flags)
    most = 0
    for text in set(attacks(list(tree), flags, times)):
        try:
            most = max(most, steps(pattern.text, text, flags=pattern.flags, limit=LIMIT, search=search))
        except TooManySteps:
            return LIMIT + 1
    return most


def test_patterns_are_found() -> None:
    assert len(IN_SOURCE) > 100
    assert len(IN_DATA) > 100
    assert {"plan/request.py", "site/site.py", "lock/wheels.py"} <= {
        pattern.where.partition(":")[0] for pattern in IN_SOURCE
    }


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_a_pattern_takes_at_most_the_square_of_the_length(pattern: Pattern) -> None:
    assert worst(pattern, LONG, search=not pattern.whole) <= LIMIT


@pytest.mark.parametrize("pattern", WHOLE, ids=str)
def test_the_pattern_of_a_name_is_linear_and_ascii(pattern: Pattern) -> None:
    short, long = worst(pattern, SHORT, search=False), worst(pattern, LONG, search=False)
    assert long <= 3 * short + 20
    if not pattern.flags & re.ASCII and pattern.where.partition(":")[0] not in OUTPUT:
        assert not re.search(r"\\[dw]", pattern.text), "takes digits and letters of every script"


def test_the_old_pattern_of_versions_would_be_found() -> None:
    old = Pattern("old", OLD_VERSION, 0, True)
    assert worst(old, LONG, search=False) > LIMIT
    assert worst(Pattern("nested", r"(?:[a-z]+)*", 0, True), LONG, search=False) > LIMIT
    assert worst(Pattern("overlapping", r"(?:a|ab?)*x", 0, True), LONG, search=False) > LIMIT


@given(st.data())
@settings(max_examples=some(150), deadline=None)
def test_no_text_of_a_patterns_own_characters_takes_longer(data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from(PATTERNS), label="pattern")
    tree, _ = parse(pattern.text, pattern.flags)
    alphabet = {chr(value) for op, value in nodes(tree) if op == "LITERAL"} | set("a0. \n!")
    block = st.text(st.sampled_from(sorted(alphabet)), max_size=4)
    text = data.draw(st.tuples(block, block, block).map(lambda each: each[0] + each[1] * 6 + each[2]), label="text")
    steps(pattern.text, text, flags=pattern.flags, limit=LIMIT, search=not pattern.whole)


@given(st.sampled_from(WHOLE), st.text(st.sampled_from("ab0/:@.-_ =#[]*x\n"), max_size=12))
@settings(deadline=None)
def test_the_step_counter_matches_what_re_matches(pattern: Pattern, text: str) -> None:
    """The counter is a matcher: one that gave up early would count too little."""
    found, _ = attempt(pattern.text, text, flags=pattern.flags)
    assert found == bool(re.fullmatch(pattern.text, text, pattern.flags))


@given(st.from_regex(OLD_VERSION, fullmatch=True))
def test_versions_that_were_taken_still_are(version: str) -> None:
    """But for letters of other scripts, and for what is longer than any version."""
    assert fits(fields.VERSION, version) == (version.isascii() and "\n" not in version and len(version) <= 64)
