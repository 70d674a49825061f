"""Forward passes that DistributedDataParallel itself disturbs: by broadcast buffers, or under checkpointing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.apart import normalized
from trainwright.preflight.collectives import DEADLOCK, condition
from trainwright.preflight.trainer_arguments import REENTRANT
from trainwright.script.events import Event
from trainwright.script.known import DDP, NO_GRAPH
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at, enclosing_function
from trainwright.script.values import Value, within

TWO_PASSES = Rule(
    code="TW555",
    severity="error",
    title="a second forward pass of DistributedDataParallel overwrites statistics that backward of the first one needs",
    source="pytorch/pytorch #22095, #175024: the wrapper sends the buffers of batch normalization before each forward; "
    'autograd raises "one of the variables needed for gradient computation has been modified by an inplace operation"',
    remedy="One pass over torch.cat([first, second]), SyncBatchNorm, or DistributedDataParallel(…, "
    "broadcast_buffers=False).",
)
RULES = (TWO_PASSES,)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several:
        return
    wraps = [e for e in code.wrapped_events if DDP.search(e.name) and e.name.startswith("torch.") and not e.detached]
    yield from _statistics_alone(code)
    for wrap in wraps:
        yield from _two_passes(code, wrap)
        yield from _reentrant(code, wrap)


def _taken(wrap: Event) -> Value | None:
    return wrap.args[0] if wrap.args else wrap.arg("module")


def _statistics_alone(code: ScriptFacts) -> Iterator[Finding]:
    """Report statistics that one process recomputes although SyncBatchNorm shares them among all processes."""
    shared = [e for e in code.ran("convert_sync_batchnorm", live=True) if e.off is None]
    for event in code.ran("update_bn", live=True) if shared else ():
        guard = event.under("one", "host")
        if guard is not None and not any(e.excludes(event) for e in code.ran("update_bn")):
            what = f"runs only where {condition(guard)}: SyncBatchNorm gathers the statistics of all processes"
            yield at(DEADLOCK, event, f"`{event.text}` {what}")
            return


def _two_passes(code: ScriptFacts, wrap: Event) -> Iterator[Finding]:
    """Report two forward passes of a wrapper before a single backward of both."""
    model, buffers = _taken(wrap), wrap.arg("broadcast_buffers", 4)
    kept = buffers is not None and buffers.single() is not True
    if model is None or kept or not _has_statistics(code, model) or wrap.opened:
        return
    if code.mentions("SyncBatchNorm", "track_running_stats", "no_sync", "convert_sync_batchnorm"):
        return
    passes = [e for e in code.events if e.model is not None and e.model is wrap.result and not e.detached]
    backwards = code.ran("backward", live=True)
    changed = [e for e in code.ran("requires_grad_", live=True) if _of(e.receiver, wrap.result, model)]
    for first, second in pairwise(passes):
        beside = first.loops == second.loops and first.stack == second.stack and not first.excludes(second)
        graphless = any(NO_GRAPH.search(name) for e in (first, second) for name in e.contexts)
        between = [e for e in backwards if first.order < e.order < second.order]
        later = [e for e in backwards if e.order > second.order and e.loops[: len(first.loops)] == first.loops]
        # A discriminator in the step of its generator.
        before = [e for e in changed if e.order < first.order and e.loops[: len(first.loops)] == first.loops]
        fixed = bool(before) and bool(before[-1].args) and before[-1].args[0].single() is not True
        fixed = fixed or (_assigned(code) and not any("out" in given.tags for given in first.args))
        if not beside or graphless or between or fixed or first.node is second.node:
            continue
        if later and _used(first, second):
            what = f"`{second.text}` after `{first.text}` in line {first.line}, and backward of both in line"
            yield at(TWO_PASSES, second, f"{what} {later[0].line}")
            return


def _of(value: Value | None, *models: Value) -> bool:
    """Return whether a value is one of the models, or their parameters."""
    return value is not None and any(each is model for each in (value, value.of) for model in models)


def _assigned(code: ScriptFacts) -> bool:
    """Return whether the script freezes parameters by an assignment: ``p.requires_grad = flag``."""
    nodes = (node for module in code.modules for node in module.nodes)
    return any(
        isinstance(n, ast.Attribute) and n.attr == "requires_grad" and isinstance(n.ctx, ast.Store) for n in nodes
    )


_BATCH_NORM = re.compile(r"\bBatchNorm[123]d$")


def _has_statistics(code: ScriptFacts, model: Value, depth: int = 4) -> bool:
    """Return whether a model certainly has batch normalization: in its class, or in a row of layers."""
    if model.instance and model.code is not None:
        if re.search(r"\bBatchNorm[123]d\(", ast.unparse(model.code.node)):
            return True
        parts = [each for each in (model.attrs or {}).values() if "model" in each.tags]
        return depth > 0 and any(_has_statistics(code, each, depth - 1) for each in parts)
    maker = code.maker(model)
    if maker is not None and maker.name == "torch.nn.Sequential":
        named = [part for each in maker.args[:1] for part in (each.attrs or {}).values()]
        layers = [*maker.args, *(named if len(maker.args) == 1 else ())]
        return depth > 0 and any(_is_or_has(code, maker, each, depth - 1) for each in layers)
    return normalized(model) and maker is not None and "norm_layer" not in maker.keywords


def _is_or_has(code: ScriptFacts, row: Event, layer: Value, depth: int) -> bool:
    """Return whether a layer that is always in a row is, or has, batch normalization."""
    maker = code.maker(layer)
    if maker is None or not set(maker.guards) <= set(row.guards):
        return False
    return bool(_BATCH_NORM.search(maker.name)) or ("model" in layer.tags and _has_statistics(code, layer, depth))


# What ends the graph of a tensor.
_CUTS = re.compile(r"\b(detach|data|item|argmax|tolist|numpy)\b")


def _used(first: Event, second: Event) -> bool:
    """Return whether the result of one pass is used, with its graph, after the other pass."""
    statement = next((n for n in ancestors(first.module, first.node) if isinstance(n, ast.stmt)), None)
    if statement is not None and any(node is second.node for node in ast.walk(statement)):
        return True
    if not isinstance(statement, ast.Assign) or _CUTS.search(ast.unparse(statement.value)):
        return False
    names = {n.id for target in statement.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    around = enclosing_function(first.module, first.node) or first.module.tree
    for node in ast.walk(around):
        if isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load):
            taken = first.module.parents.get(node)
            cut = isinstance(taken, ast.Attribute) and (_CUTS.search(taken.attr) or taken.attr in ("shape", "size"))
            if node.lineno > (second.node.end_lineno or 0) and not cut:
                return True
    return False


def _reentrant(code: ScriptFacts, wrap: Event) -> Iterator[Finding]:
    """Report reentrant checkpoints in a wrapper that looks for unused parameters.

    It takes the parameters in them for unused, as the graph that it looks at ends before them.
    """
    looks, fixed = wrap.arg("find_unused_parameters"), wrap.arg("static_graph")
    sought = looks is not None and looks.single() is True and code.decided(looks)
    model = _taken(wrap)
    if not sought or fixed is not None or model is None or wrap.opened or code.mentions("_set_static_graph"):
        return
    for event in code.ran("checkpoint", "checkpoint_sequential"):
        given = event.arg("use_reentrant")
        owner = event.stack[-1].owner if event.stack else None
        if not event.name.startswith("torch.utils.checkpoint.") or owner is None or event.opened:
            continue
        if given is not None and given.single() is not True:
            continue
        block = owner.made
        if block is not None and (block is model or within(block, model)) and _always(code, event, block):
            what = f"`{event.text}`, and find_unused_parameters=True in line {wrap.line}"
            remedy = "checkpoint(…, use_reentrant=False), or find_unused_parameters=False."
            yield at(REENTRANT, event, what, remedy=remedy)
            return


def _always(code: ScriptFacts, event: Event, block: Value) -> bool:
    """Return whether a block is always checkpointed in training, as far as its own settings decide that."""
    loops = [n for loop in event.loops if isinstance(loop, ast.For) for n in ast.walk(loop.target)]
    known = {"self", "torch", *(n.id for n in loops if isinstance(n, ast.Name))}
    for guard in event.guards:
        nodes = list(ast.walk(guard.node))
        settings = [n for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "self"]
        settings = [n for n in settings if n.attr != "training"]
        names = {n.id for n in nodes if isinstance(n, ast.Name)}
        if not names <= known or (settings and not (guard.side and all(map(_plain, nodes)))):
            return False
        for setting in settings:
            value = (block.attrs or {}).get(setting.attr)
            if value is None or value.single() in (..., None, False, 0) or not code.decided(value):
                return False
    return True


def _plain(node: ast.AST) -> bool:
    """Return whether a condition that has this part holds if its settings are true: no ``not``, no other bound."""
    if isinstance(node, ast.Compare):
        bounds = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
        return not bounds or (bounds == [0] and isinstance(node.ops[0], ast.Gt | ast.NotEq))
    return not isinstance(node, ast.UnaryOp | ast.BinOp | ast.Or)
