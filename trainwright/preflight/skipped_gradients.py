"""Gradients that a script reduces itself, which have to be the same ones in every process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, enclosing_function, meant
from trainwright.script.values import IDENTITY, WRAPPERS, Code, Value

OWN_LAYERS = Rule(
    code="TW570",
    severity="error",
    title="missing gradients are skipped in a reduction, and they are missing in different places in each process",
    source="PyTorch's documentation of torch.distributed: a collective is called by every process of the group, in the "
    "same order; deepspeedai/DeepSpeed #291: one process with fewer gradients than another makes both hang, so that "
    "those that are missing count as zeros",
    remedy="Reduce zeros where a gradient is missing (torch.zeros_like(p) if p.grad is None else p.grad), or draw the "
    "same layers in every process.",
)
RULES = (OWN_LAYERS,)
_REDUCES = ("all_reduce", "allreduce", "allreduce_", "reduce", "all_reduce_coalesced")
_GENERATORS = ("Random", "default_rng", "RandomState")
# Functions of Python and NumPy that draw, and what seeds them.
_DRAW = re.compile(r"(?:^|\.)(choice|choices|randint|randrange|integers|sample|random|permutation)$")
_SEEDS = {"random": "random.seed", "numpy": "numpy.random.seed"}
_ALL_SEEDS = re.compile(r"seed")
_ROWS = ("ModuleDict", "ModuleList")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several or code.managed or not code.mentions("grad") or _fills(code):
        return
    reduced = next((e for e in code.ran(*_REDUCES, live=True) if _skips(e)), None)
    if reduced is None:
        return
    for event in code.events:
        model = event.model
        if model is None or model.tags & WRAPPERS or event.detached or not event.loops or model.code is None:
            continue
        forward = model.code.method("forward")
        for name, value in _given(event, forward) if forward is not None else ():
            why = _own(code, event, value)
            if why and forward is not None and _chooses(model, forward, name):
                what = f"`{reduced.text}` only where there is a gradient, and `{event.text}` in line {event.line}"
                yield at(OWN_LAYERS, reduced, f"{what} takes the layers of `{name}`, {why}")
                return


def _fills(code: ScriptFacts) -> bool:
    """Return whether the script makes sure that no gradient is missing.

    It sets some to zeros, or adds ``0 * sum(p.sum() for p in model.parameters())`` to the loss.
    """
    return any(_sets_zeros(node) or _times_zero(node) for module in code.modules for node in module.nodes)


def _sets_zeros(node: ast.AST) -> bool:
    grad = isinstance(node, ast.Assign) and any(isinstance(t, ast.Attribute) and t.attr == "grad" for t in node.targets)
    return grad and isinstance(node, ast.Assign) and "zeros" in ast.unparse(node.value)


def _times_zero(node: ast.AST) -> bool:
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) else ()
    return any(isinstance(each, ast.Constant) and each.value == 0 for each in sides)


def _skips(event: Event) -> bool:
    """Return whether a collective is called once for each gradient that there is, or of a row of those."""
    if event.role != "collective" or event.by_rank is not None:
        return False
    if any(_there_is(event.module, guard.node) is guard.side for guard in event.guards):
        return bool(event.loops)
    return any(_selects(event.module, each) for each in _made_of(event))


def _there_is(module: Module, test: ast.expr) -> bool | None:
    """Return which side of a condition means that a gradient is there; None if it asks something else."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return True if any(_there_is(module, each) for each in test.values) else None
    other = test.comparators[0] if isinstance(test, ast.Compare) else None
    if not isinstance(test, ast.Compare) or not isinstance(other, ast.Constant) or other.value is not None:
        return None
    asked = meant(module, test.left)
    grad = isinstance(asked, ast.Attribute) and asked.attr == "grad"
    return isinstance(test.ops[0], ast.IsNot | ast.NotEq) if grad else None


def _selects(module: Module, node: ast.AST) -> bool:
    """Return whether a comprehension leaves out the gradients that are missing."""
    if not isinstance(node, ast.ListComp | ast.GeneratorExp):
        return False
    return any(_there_is(module, test) is True for each in node.generators for test in each.ifs)


def _made_of(event: Event, depth: int = 3) -> list[ast.AST]:
    """Return the parts of what a collective gets, also those of the names in it that its function sets."""
    function = enclosing_function(event.module, event.node)
    found = list(ast.walk(event.node))
    assigned = [n for n in ast.walk(function) if isinstance(n, ast.Assign)] if function is not None else []
    for _ in range(depth):
        names = {n.id for n in found if isinstance(n, ast.Name)}
        named = [n for n in assigned if isinstance(n.targets[0], ast.Name) and n.targets[0].id in names]
        found += [part for each in named for part in ast.walk(each.value)]
    return found


def _given(event: Event, forward: Code) -> Iterator[tuple[str, Value]]:
    """Yield the names of forward's arguments, with what this call gives them."""
    yield from zip(forward.parameters, event.args, strict=False)
    yield from ((name, value) for name, value in event.keywords.items() if name in forward.parameters)


def _own(code: ScriptFacts, event: Event, value: Value) -> str:
    """Return why a value differs between processes: it depends on the rank, or each process draws its own."""
    if value.constants is not None:
        return ""
    if value.tags & (IDENTITY - {"random"}):
        return "which depends on the rank"
    drawn = next((made for made in sorted(value.made) if _DRAW.search(made)), "")
    if not drawn or len(value.made) > 1:
        return ""
    generator = code.maker(value.of) if value.of is not None else None
    if generator is not None and generator.last in _GENERATORS:
        reseeded = any(e.receiver is value.of for e in code.ran("seed", "setstate"))
        alone = not (generator.args or generator.keywords) or _by_rank(generator)
        return f"which is drawn by `{generator.text}` of line {generator.line}" if alone and not reseeded else ""
    seeds = [e for e in code.events if _ALL_SEEDS.search(e.last) and e.order < event.order and not e.detached]
    own = [e for e in seeds if e.name == _SEEDS.get(drawn.partition(".")[0]) or not e.name.startswith(_LIBRARIES)]
    if value.of is None and drawn.startswith(tuple(_SEEDS)) and (not own or _by_rank(own[-1])):
        return f"drawn after `{own[-1].text}` of line {own[-1].line}" if own else "drawn without a seed"
    return ""


_LIBRARIES = ("random.", "numpy.", "torch.")


def _by_rank(event: Event) -> bool:
    """Return whether a call gets a number that differs from process to process."""
    return any(value.tags & IDENTITY for value in (*event.args, *event.keywords.values()))


def _chooses(model: Value, forward: Code, name: str) -> bool:
    """Return whether an argument of forward decides which layers are used: ``self.heads[task](x)``."""
    layers = model.attrs or {}
    for node in ast.walk(forward.node):
        if isinstance(node, ast.Subscript) and _names(node.slice) == {name}:
            row = layers.get(node.value.attr) if isinstance(node.value, ast.Attribute) else None
            if row is not None and row.made_by(*_ROWS):
                return True
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 1:
            if ast.unparse(node.args[0]) == "self" and name in _names(node.args[1]):
                return True
        elif isinstance(node, ast.If | ast.IfExp) and name in _names(node.test):
            body, other = (_layers(side, layers) for side in (node.body, node.orelse))
            if body != other:
                return True
    return False


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _layers(side: list[ast.stmt] | ast.expr, layers: dict[str, Value]) -> set[str]:
    """Return the layers that one side of a condition uses."""
    nodes = [each for part in (side if isinstance(side, list) else [side]) for each in ast.walk(part)]
    used = {n.attr for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "self"}
    return {each for each in used if each in layers and "model" in layers[each].tags}
