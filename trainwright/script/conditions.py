"""What conditions say about processes: ``rank == 0`` is true in one of them, ``world_size > 1`` if there are more."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from trainwright.script.events import OF_RANK, Guard, Reach
from trainwright.script.gathered import EMPTY_ELSEWHERE
from trainwright.script.known import role, said
from trainwright.script.values import BY_ITSELF, IDENTITY, Marks, Value, unknown

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_OPPOSITE = {"zero:rank": "nonzero:rank", "zero:local": "nonzero:local", "several": "single", "zero:dp": "nonzero:dp"}
_OPPOSITE |= {"zero:host": "nonzero:host", "zero:rdp": "nonzero:rdp"}
_OPPOSITE |= {value: key for key, value in _OPPOSITE.items()}
# The first process by each of the numbers.
_ZERO = {"rank": "zero:rank", "rdp_rank": "zero:rdp", "dp_rank": "zero:dp", "local_rank": "zero:local"}
_AS_TEST = {"only-one": "zero:rank", EMPTY_ELSEWHERE: "zero:rank"} | {
    number: _OPPOSITE[zero] for number, zero in _ZERO.items()
}
TESTS = frozenset(_OPPOSITE) | {"by-rank", "and", "flag", "own", "of-root", "played", "clock", "chosen"}


def kind_of(tags: Marks, side: bool) -> Reach:
    """Return what a condition with these facts selects, on this side of it."""
    negated = bool({"nonzero:rank", "nonzero:local"} & tags)
    if {"zero:rank", "nonzero:rank"} & tags:
        if side is not negated:
            return "one"
        return "ranks" if "and" in tags else "others"
    if {"zero:local", "nonzero:local"} & tags:
        if side is not negated:
            return "host"
        return "ranks" if "and" in tags else "others"
    if {"zero:host", "nonzero:host"} & tags:
        return "host" if side is not ("nonzero:host" in tags) else "others"
    if {"zero:rdp", "nonzero:rdp", "rdp_rank"} & tags:
        return "rdp"
    if {"zero:dp", "nonzero:dp", "dp_rank"} & tags:
        return "dp"
    if "by-rank" in tags:
        return "ranks"
    if {"several", "single"} & tags:
        return "world"
    if {"own", "of-root", "played"} & tags:
        return "own"
    if "clock" in tags:
        return "clock"
    return "flag" if "flag" in tags else "other"


def sides(test: Value, node: ast.expr) -> tuple[Guard, Guard]:
    """Return a condition on its two sides."""
    chosen, single = "chosen" in test.tags, test.single()
    default = bool(single) if single is not ... and "flag" in test.tags and not test.sure else None
    local = bool({"zero:local", "nonzero:local"} & test.tags) and not {"zero:rank", "nonzero:rank"} & test.tags
    return (
        Guard(kind_of(test.tags, True), node, True, chosen, default, local),
        Guard(kind_of(test.tags, False), node, False, chosen, default, local),
    )


def within(guards: tuple[Guard, ...], inner: Guard) -> tuple[Guard, ...]:
    """Return the conditions around a block, without those that its own one implies: of ``a or b``, ``if b`` within."""
    if inner.side and any(isinstance(guard.node, ast.BoolOp) for guard in guards):
        text = ast.unparse(inner.node)
        guards = tuple(guard for guard in guards if text not in _alternatives(guard))
    return (*guards, inner)


def _alternatives(guard: Guard) -> list[str]:
    node = guard.node
    if not guard.side or not isinstance(node, ast.BoolOp) or not isinstance(node.op, ast.Or):
        return []
    return [ast.unparse(each) for each in node.values]


def returned(value: Value, guards: tuple[Guard, ...], written: ast.expr | None = None) -> Value:
    """Return a function's result with what the condition around it says: ``if rank == 0: return True``."""
    number = isinstance(written, ast.BinOp) or (isinstance(written, ast.Constant) and type(written.value) is int)
    if number and any(guard.kind in OF_RANK for guard in guards):
        return value.with_tags("uneven")  # `if rank == 0: return saved["epoch"] + 1`
    if any(guard.kind == "own" for guard in guards) and value.code is None:
        return value.with_tags("own")
    if any(guard.kind == "clock" for guard in guards) and value.code is None:
        return value.with_tags("clock")
    made = (value.attrs or {}).get("(returned)")
    if made is not None and guards and guards[-1].kind in ("one", "host"):
        made.tags |= {"only-one"}  # `if rank == 0: return lambda: ModelCheckpoint(path)`
    if guards and guards[-1].kind == "others" and value.single() is None:
        return value.with_tags("only-one")  # `if rank != 0: return None`
    if guards and guards[-1].kind in ("one", "host", "others") and _is_path(value):
        return value.with_tags("random")  # another one in other processes: `return folder if chief() else temporary`
    tag = {"one": "zero:rank", "host": "zero:local"}.get(guards[-1].kind) if guards else None
    if tag is None or not isinstance(value.single(), bool):
        return value
    return value.with_tags(tag if value.single() else _OPPOSITE[tag])


def _is_path(value: Value) -> bool:
    return isinstance(value.single(), str) or any(tag.startswith("root:") for tag in value.tags)


def as_test(value: Value) -> Value:
    """Return what a value says as a condition: a bare ``rank`` is true in all processes but the first."""
    if "filled" in value.tags:
        return value.without_tags("played")  # whether there is anything in it, not what
    for name, tag in _AS_TEST.items():
        if name in value.tags and not value.tags & TESTS:
            return value.with_tags(tag)
    return value


# What asks a library which process this is, or what there is: always true as a function.
_QUESTIONS = ("rank", "local_rank", "world", "several", "zero:rank", "zero:local", "has-gpu", "dp_rank")
# Methods of transformers' Trainer; of its state and its arguments they are no functions.
_OF_TRAINER = ("is_world_process_zero", "is_local_process_zero")


def asks_for_result(node: ast.Name | ast.Attribute, value: Value) -> bool:
    """Return whether a value is a function whose result is meant: ``dist.is_initialized``, ``self.is_main``."""
    written = node.id if isinstance(node, ast.Name) else node.attr
    if value.name and value.code is None:
        modules = ("torch.", "torch_xla.", "smdistributed.", "horovod.")
        return value.name.startswith(modules) and role(value.name) in _QUESTIONS
    if is_function(value) and value.code is not None:
        return value.code.owner is not None and value.of is not None and bool(said(written))
    owner = value.of
    if owner is None or not isinstance(node, ast.Attribute) or written not in _OF_TRAINER:
        return False  # a plain name may be what the method has returned
    return any(made.startswith(("transformers.", "trl.")) for made in owner.made) and owner.made_like("Trainer")


def is_function(value: Value) -> bool:
    """Return whether a value is a function of the script, which is always true, and equal to no text."""
    return value.code is not None and not value.instance and isinstance(value.code.node, ast.FunctionDef)


def negated(value: Value) -> Value:
    single = value.single()
    constants = (not single,) if single is not ... else None
    tags = frozenset(_OPPOSITE.get(tag, tag) for tag in value.tags & TESTS)
    return Value(tags=tags, constants=constants, sure=value.sure)


_COMPARED = frozenset({"flag", "out", "own", "of-root", "played", "clock", "cpu-tensor", "on-device"})


def compare(left: Value, op: ast.cmpop, right: Value) -> Value:
    """Return what is known of a comparison: of ``rank == 0`` that it is true in one process."""
    one, other = left.single(), right.single()
    # What each process decides for itself has the constant of the pass that was followed: `self.bad += 1`.
    decided = not (left.tags | right.tags) & BY_ITSELF
    if decided and one is not ... and other is not ... and type(op) in _COMPARE:
        try:
            known = _COMPARE[type(op)](one, other)
            return Value(tags=(left.tags | right.tags) & {"flag"}, constants=(known,), sure=left.sure and right.sure)
        except TypeError:
            return Value()
    members = [item.single() for item in right.items or ()]
    if decided and one is not ... and isinstance(op, ast.In | ast.NotIn) and members and ... not in members:
        found = any(type(one) is type(each) and one == each for each in members)
        return Value(tags=left.tags & {"flag"}, constants=(found is isinstance(op, ast.In),), sure=left.sure)
    if is_function(left) and isinstance(other, str) and isinstance(op, ast.Eq | ast.NotEq):
        return Value(constants=(isinstance(op, ast.NotEq),), sure=True)
    if "task-type" in left.tags:
        return unknown("by-rank" if other != "chief" else "nonzero:rank" if isinstance(op, ast.NotEq) else "zero:rank")
    if other is None and isinstance(op, ast.Is | ast.IsNot) and _model(left):
        return Value(constants=(isinstance(op, ast.IsNot),), sure=True)
    if "only-one" in left.tags and other is None and isinstance(op, ast.Is | ast.IsNot):
        return unknown("zero:rank" if isinstance(op, ast.IsNot) else "nonzero:rank")
    if EMPTY_ELSEWHERE in left.tags and other == 0 and isinstance(op, ast.Gt | ast.NotEq | ast.Eq):
        return unknown("nonzero:rank" if isinstance(op, ast.Eq) else "zero:rank")
    if isinstance(op, ast.In | ast.NotIn) and right.name == "os.environ" and isinstance(one, str):
        if "environ:known" in right.tags:
            return Value()
        return Value(tags=frozenset({"environ-test"}))
    if right.tags & IDENTITY and not left.tags & IDENTITY:
        left, right, other = right, left, one
    hosts = {"first-host", "host_rank", "some-host"}
    if (left.tags & hosts and right.tags & hosts) or ("host_rank" in left.tags and isinstance(other, str)):
        return unknown("nonzero:host" if isinstance(op, ast.NotEq | ast.NotIn) else "zero:host")
    for tag, zero in _ZERO.items():
        if tag in left.tags:
            return _rank_test(zero, op, other, right)
    if left.tags & IDENTITY:
        return unknown("by-rank")
    if "world" in left.tags or "world" in right.tags:
        if isinstance(op, ast.Gt | ast.NotEq):
            return unknown("several")
        return unknown("single") if isinstance(op, ast.Eq | ast.LtE | ast.Lt) else unknown()
    whether = other is None and isinstance(op, ast.Is | ast.IsNot) and left.tags & {"loader", "dataset"}
    # Whether there are data is the same in all processes, though each has a share of its own.
    return Value(tags=(left.tags | right.tags) & _COMPARED - ({"own"} if whether else set()))


def _model(value: Value) -> bool:
    """Return whether a value is a model for certain, not a model or None."""
    return "model" in value.tags and bool(value.made) and not value.tags & {"maybe-none", "only-one", "flag"}


def _rank_test(zero: str, op: ast.cmpop, other: object, right: Value) -> Value:
    if isinstance(op, ast.In | ast.NotIn):
        members = {item.single() for item in right.items or ()}
        if members and members <= {0, -1} and 0 in members:
            return unknown(zero if isinstance(op, ast.In) else _OPPOSITE[zero])
        return unknown("by-rank")
    if other == -1 or other is None:
        return unknown("single" if isinstance(op, ast.Eq | ast.Is) else "several")
    if isinstance(op, ast.Eq) and (isinstance(other, int) or "world" in right.tags or other is ...):
        return unknown(zero)
    first = other in (0, 1) and not isinstance(other, bool)
    if first and isinstance(op, ast.NotEq | ast.Gt if other == 0 else ast.GtE):
        return unknown(_OPPOSITE[zero])
    if first and isinstance(op, ast.LtE if other == 0 else ast.Lt):
        return unknown(zero)
    if other == 0 and isinstance(op, ast.GtE):
        return unknown("several")  # `rank >= 0`: a launcher has set it
    return unknown("by-rank")


def fails(node: ast.stmt) -> bool:
    """Return whether a statement ends the process with an error: ``raise``, ``sys.exit(1)``."""
    if isinstance(node, ast.Raise):
        return True
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not call.args:
        return False
    status = call.args[0].value if isinstance(call.args[0], ast.Constant) else 1
    return ast.unparse(call.func).rpartition(".")[2] in ("exit", "_exit", "quit") and status not in (0, None)
