"""Hyperparameters that ``parse_known_args`` leaves out, where the script has an argument that is meant."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from trainwright.script.call import Call
from trainwright.script.script_facts import ScriptFacts


def left_out(
    parse: Call, names: Collection[str], passed: Collection[str], *, every: bool, code: ScriptFacts
) -> Iterator[tuple[str, str]]:
    """Yield hyperparameters that no argument takes, and the argument that each of them must mean.

    Args:
        parse: the call of ``parse_known_args``.
        names: of the script's arguments.
        passed: the job's hyperparameters.
        every: there are no other arguments.
        code: the script.
    """
    lost = every and _dropped(parse) and not code.says("SM_HP|hyperparameters")
    for name in sorted(set(passed) - set(names)):
        known = next((each for each in sorted(names) if _meant_by(name, each, exact=not lost or each in passed)), None)
        if known is not None:
            yield name, known


def _meant_by(name: str, known: str, *, exact: bool) -> bool:
    """Return whether two names differ in a dash; if they need not be so alike, in short forms: lr, epochs."""
    given, words = name.replace("-", "_").split("_"), known.replace("-", "_").split("_")
    initials = given == ["".join(word[:1] for word in words)] and len(words) > 1
    return given == words or (not exact and (initials or set(given) < set(words) or set(words) < set(given)))


def _dropped(call: Call) -> bool:
    """Return whether nothing takes what parse_known_args returns besides the arguments."""
    around = call.module.parents.get(call.node)
    if isinstance(around, ast.Subscript):
        return ast.unparse(around.slice) == "0"
    target = around.targets[0] if isinstance(around, ast.Assign) else None
    rest = target.elts[1:] if isinstance(target, ast.Tuple) else []
    names = [each.id for each in rest if isinstance(each, ast.Name)]
    reads = (n.id for n in call.module.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return len(names) == 1 and names[0] not in set(reads)
