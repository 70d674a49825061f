"""What is known of a sum, product or quotient, by what is known of its two sides."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

from trainwright.script.values import FLOWS, IDENTITY, MEANS, NONE, Marks, Value, mean_of_own

OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}

# A number that was divided by the number of one host's GPUs, with the place of the division among all of them.
QUOTIENT = "by-gpus:"


def without_quotient(tags: Marks) -> Marks:
    """Return facts without that of an earlier division: a further one may be by the number of hosts."""
    return frozenset(tag for tag in tags if not tag.startswith(QUOTIENT))


def quotient(left: Value, right: Value) -> Marks:
    """Return what a division makes of the number of processes, or by it; a quotient by it is not that number."""
    if "world" in right.tags:
        return NONE if "per-replica" in right.tags else frozenset({"per-replica"})
    return frozenset({"part"}) if "world" in left.tags else NONE


def facts(op: ast.operator, left: Value, right: Value, counted: Marks, contexts: Sequence[str]) -> Marks:
    """Return the facts of a result.

    Args:
        counted: of a length on the right, the facts of what it counts.
        contexts: the ``with`` blocks around it.
    """
    one, other = left.single(), right.single()
    identity = (left.tags | right.tags) & IDENTITY
    if "local_rank" in identity and isinstance(op, ast.Add) and other is ... and one is ...:
        identity = frozenset({"rank"})  # node_rank * gpus + local_rank
    elif "rank" in left.tags and isinstance(op, ast.Mod):
        identity = frozenset({"local_rank"})
    elif "rank" in left.tags and isinstance(op, ast.FloorDiv):
        identity = frozenset({"host_rank"})
    elif "dp_rank" in left.tags and isinstance(op, ast.FloorDiv):
        identity = frozenset({"dp_rank", "rdp_rank"})  # dp_rank // tp_size
    kept = FLOWS if one is not ... or other is not ... else FLOWS - MEANS  # a sum of means is not a mean
    flows = (left.tags | right.tags) & (kept | {"world", "gpus", "loss", "uneven"})
    if not flows & {"out", "on-device"} or ("cpu-tensor" in left.tags and "on-device" not in flows):
        flows |= (left.tags | right.tags) & {"cpu-tensor"}
    if isinstance(op, ast.Div | ast.FloorDiv):
        flows |= quotient(left, right)
        if "length" in left.tags and left.of is not None and "dataset" in left.of.tags - {"loader", "sharded", "own"}:
            flows |= {"all-batches"}
        flows -= {"all-batches"} if "world" in right.tags else NONE
        flows |= {"share-length"} if "world" in right.tags and "length" in left.tags else set()
        flows |= {"divided-twice"} if "own-batches" in left.tags and _by_processes(right) else set()
        flows |= mean_of_own(left, contexts) if "own" in left.tags and "own" in right.tags | counted else set()
    if isinstance(op, ast.Mult) and "world" in left.tags | right.tags:
        flows -= {"share-length"}  # each process's batches, of all processes
    if isinstance(op, ast.Mult) and not any(map(_by_processes, (left, right))):
        flows |= (left.tags | right.tags) & {"per-replica"}  # still a share, times something else
    if isinstance(op, ast.Mult) and any(map(_by_processes, (left, right))):
        flows -= {"own-batches", "divided-twice"}
    return flows | identity


def _by_processes(value: Value) -> bool:
    """Return whether a number is that of processes, or a multiple of it, not what was divided by it."""
    return "world" in value.tags and value.tags.isdisjoint({"per-replica", "own-batches"}) and value.single() != 1


def texts(left: Value, right: Value) -> bool:
    """Return whether an operator joins texts or paths, not numbers."""
    for value in (left, right):
        if any(isinstance(c, str) for c in value.constants or ()):
            return True
        if any(tag.startswith("root:") for tag in value.tags):
            return True
    return False
