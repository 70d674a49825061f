"""How many steps a backtracking matcher takes: a clock would measure the machine, and ``re`` counts nothing.

:func:`steps` interprets the syntax tree that ``re`` itself compiles, in the order in which ``re`` tries things: greedy
repeats from the longest, branches from the left. Each node that is tried at a position is a step. ``re`` has shortcuts
that this has not, so the count is an upper bound of its work up to a constant factor. The tree comes from
``re._parser``, a private module; were it gone, the tests would fail, not pass.
"""

from __future__ import annotations

import re
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Then = Callable[[int], bool]
_CHARACTERS = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}


class TooManySteps(Exception):
    """The matcher was stopped."""


def parse(pattern: str, flags: int = 0) -> Any:
    """The syntax tree of a pattern, and its flags with those that it sets itself."""
    tree = parser.parse(pattern, flags)
    return tree, tree.state.flags


def nodes(tree: Any) -> Iterator[tuple[str, Any]]:
    """Every node of a tree."""
    for op, value in tree:
        yield str(op), value
        for child in _children(str(op), value):
            yield from nodes(child)


def _children(op: str, value: Any) -> Sequence[Any]:
    if op == "BRANCH":
        return list(value[1])
    if op in _REPEATS:
        return [value[2]]
    if op == "SUBPATTERN":
        return [value[3]]
    if op in {"ASSERT", "ASSERT_NOT"}:
        return [value[1]]
    return [value] if op == "ATOMIC_GROUP" else []


def accepts(op: str, value: Any, char: str, flags: int) -> bool:
    """Whether a node of one character takes this one."""
    if op == "ANY":
        return char != "\n" or bool(flags & re.DOTALL)
    if op == "LITERAL":
        return _same(value, char, flags)
    if op == "NOT_LITERAL":
        return not _same(value, char, flags)
    negate = str(value[0][0]) == "NEGATE"
    return negate != any(_in(str(kind), what, char, flags) for kind, what in value[negate:])


def _same(code: int, char: str, flags: int) -> bool:
    return chr(code) == char or bool(flags & re.IGNORECASE and chr(code).lower() == char.lower())


def _in(kind: str, what: Any, char: str, flags: int) -> bool:
    if kind == "LITERAL":
        return _same(what, char, flags)
    if kind == "RANGE":
        cases = {char, char.lower(), char.upper()} if flags & re.IGNORECASE else {char}
        return any(what[0] <= ord(one) <= what[1] for one in cases if len(one) == 1)
    name = str(what).removeprefix("CATEGORY_")
    kinds = {"DIGIT": char.isdigit(), "SPACE": char.isspace(), "WORD": char.isalnum() or char == "_"}
    return kinds[name.removeprefix("NOT_")] != name.startswith("NOT_")


class _Matcher:
    def __init__(self, text: str, flags: int, limit: int) -> None:
        self.text, self.flags, self.limit, self.steps = text, flags, limit, 0

    def run(self, tree: Sequence[Any], index: int, at: int, then: Then) -> bool:
        if index == len(tree):
            return then(at)
        self.steps += 1
        if self.steps > self.limit:
            raise TooManySteps
        op, value = str(tree[index][0]), tree[index][1]

        def rest(end: int) -> bool:
            return self.run(tree, index + 1, end, then)

        if op in _CHARACTERS:
            return self._takes(op, value, at) and rest(at + 1)
        if op in _REPEATS:
            return self._repeat(op, value, at, rest)
        if op == "BRANCH":
            return any(self.run(list(each), 0, at, rest) for each in value[1])
        if op == "SUBPATTERN":
            return self.run(list(value[3]), 0, at, rest)
        if op in {"ASSERT", "ASSERT_NOT"}:
            # Looking behind is at fixed length, so its cost is a constant.
            ahead = value[0] < 0 or self.run(list(value[1]), 0, at, lambda _: True)
            return (ahead == (op == "ASSERT") or value[0] < 0) and rest(at)
        if op == "AT":
            return self._at(str(value), at) and rest(at)
        raise NotImplementedError(op)

    def _takes(self, op: str, value: Any, at: int) -> bool:
        return at < len(self.text) and accepts(op, value, self.text[at], self.flags)

    def _repeat(self, op: str, value: Any, at: int, rest: Then) -> bool:
        low, high, body = value[0], int(value[1]), list(value[2])
        if len(body) == 1 and str(body[0][0]) in _CHARACTERS:
            end = at
            while end - at < high and self._takes(str(body[0][0]), body[0][1], end):
                end += 1
            self.steps += end - at
            ends = range(at + low, end + 1)
            return any(map(rest, ends if op == "MIN_REPEAT" else reversed(ends)))

        def again(end: int, count: int) -> bool:
            more = count < high and (lambda: self.run(body, 0, end, lambda new: new != end and again(new, count + 1)))
            enough = count >= low and (lambda: rest(end))
            first, second = (enough, more) if op == "MIN_REPEAT" else (more, enough)
            return bool((first and first()) or (second and second()))

        return again(at, 0)

    def _at(self, where: str, at: int) -> bool:
        before, after = self.text[at - 1 : at], self.text[at : at + 1]
        if where in {"AT_BOUNDARY", "AT_NON_BOUNDARY"}:
            return (_word(before) != _word(after)) == (where == "AT_BOUNDARY")
        lines = bool(self.flags & re.MULTILINE)
        if where in {"AT_BEGINNING", "AT_BEGINNING_STRING"}:
            return at == 0 or (lines and before == "\n" and where == "AT_BEGINNING")
        return after == "" or (lines and after == "\n")


def _word(char: str) -> bool:
    return char.isalnum() or char == "_"


def attempt(
    pattern: str, text: str, *, flags: int = 0, limit: int = 1_000_000, search: bool = False
) -> tuple[bool, int]:
    """Whether the whole of a text matches (``search``: whether the pattern is in it), and the steps to find out.

    Raises:
        TooManySteps: more than ``limit``.
    """
    tree, flags = parse(pattern, flags)
    matcher = _Matcher(text, flags, limit)
    starts = range(len(text) + 1 if search else 1)
    found = any(matcher.run(list(tree), 0, start, lambda end: search or end == len(text)) for start in starts)
    return found, matcher.steps


def steps(pattern: str, text: str, *, flags: int = 0, limit: int = 1_000_000, search: bool = False) -> int:
    """The second of :func:`attempt`."""
    return attempt(pattern, text, flags=flags, limit=limit, search=search)[1]
