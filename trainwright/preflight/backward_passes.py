"""Backward passes: how many a step needs with Horovod and Accelerate, and graphs that a backward pass has freed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.loop import GRAPH_KEPT, TWICE, ZERO_EARLY, of_same
from trainwright.preflight.schedule import is_of, trained
from trainwright.script.events import Event
from trainwright.script.known import NO_GRAPH
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at
from trainwright.script.values import Value

PASSES = Rule(
    code="TW415",
    severity="error",
    title="several backward passes before each step of Horovod's optimizer, which expects one",
    source="Horovod's API of horovod.torch.DistributedOptimizer: backward_passes_per_step is the number of passes "
    "before step; horovod/torch/optimizer.py: more of them raise AssertionError",
    remedy="hvd.DistributedOptimizer(optimizer, named_parameters=…, backward_passes_per_step=accumulation), or add "
    "the losses and call backward once.",
)
RULES = (PASSES,)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    yield from _freed(code)
    yield from _kept_by_method(code)
    yield from _cleared_at_last(code)
    if not code.horovod or not code.several:
        return
    made = [e for e in code.ran("DistributedOptimizer", live=True) if e.name.startswith("horovod.torch")]
    if not made or any(e.opened for e in made):
        return
    given = [e.arg("backward_passes_per_step", 3) for e in made]
    if all(value is None for value in given):
        yield from _accumulated(code, made[0])
    allowed = 1 if given[0] is None else given[0].single()
    if isinstance(allowed, int) and len({e.node for e in made}) == 1:
        yield from _several(code, allowed)


def _cleared_at_last(code: ScriptFacts) -> Iterator[Finding]:
    """Report gradients that are cleared within ``accumulate``, before the last of the batches adds its own.

    Source: accelerate, optimizer.py: zero_grad of a prepared optimizer acts only where gradients are synchronised, as
    ``step`` does; a model's acts for every batch. With DeepSpeed neither of an optimizer's two does anything.
    """
    number = _accumulated_batches(code)
    if number in (None, 0, 1) or code.mentions_like("deepspeed") or any("DEEPSPEED" in n for n in code.launch.kept):
        return
    for zero in code.ran("zero_grad", live=True):
        tags = zero.receiver.tags if zero.receiver is not None else frozenset[str]()
        after = [e for e in code.ran("backward", live=True) if e.order > zero.order and _in_accumulate(zero, e)]
        steps = [e for e in code.ran("step", live=True) if _of_prepared(e) and _in_accumulate(zero, e)]
        if "accelerate" not in tags or not after or not steps or steps[0].order < zero.order:
            continue
        own = [e for e in steps if "model" in tags or e.receiver is zero.receiver or of_same(zero, e)]
        if own and after[0].order < own[0].order:
            known = isinstance(number, int) and code.started is None  # `accelerate launch` may choose DeepSpeed
            what = f"`{zero.text}` before backward in line {after[0].line}, within accumulate: it clears the gradients"
            what += " of the batches before"
            yield at(ZERO_EARLY, zero, what, severity=None if known else "warning")
            return


def _of_prepared(step: Event) -> bool:
    """Return whether a step is that of an optimizer that Accelerate has prepared."""
    return step.receiver is not None and {"optimizer", "accelerate"} <= step.receiver.tags


def _accumulated_batches(code: ScriptFacts) -> object:
    """Return how many batches Accelerate accumulates: None if the script does not say, Ellipsis if it is not known."""
    found: set[object] = set()
    for made in (e for e in code.ran("Accelerator", live=True) if e.name.startswith("accelerate.")):
        steps, plugin = made.arg("gradient_accumulation_steps"), made.arg("gradient_accumulation_plugin")
        maker = code.maker(plugin) if plugin is not None else None
        steps = maker.arg("num_steps", 0) if maker is not None else steps
        found.add(steps.single() if steps is not None else None)
    return found.pop() if len(found) == 1 else None


def _in_accumulate(zero: Event, other: Event) -> bool:
    """Return whether two calls are for the same batch, both within ``accelerator.accumulate``."""
    within = all(any(name.endswith(".accumulate") for name in event.contexts) for event in (zero, other))
    apart = {guard.node for guard in zero.guards} - {guard.node for guard in other.guards}
    return within and bool(zero.loops) and zero.loops == other.loops and not apart


def _kept_by_method(code: ScriptFacts) -> Iterator[Finding]:
    """Report a loss that goes with its graph to a method that adds it to an attribute: ``meter.update(loss)``."""
    for backward in code.ran("backward", live=True):
        loss = backward.receiver if not backward.args else backward.args[0]
        scaled = code.maker(loss) if loss is not None and "scaled" in loss.tags else None
        loss = scaled.args[0] if scaled is not None and scaled.args else loss
        for event in code.events:
            called = event.called.code if event.called is not None and event.loops else None
            node = called.node if called is not None and called.owner is not None else None
            if (
                called is None
                or not isinstance(node, ast.FunctionDef)
                or event.loops[: len(backward.loops)] != backward.loops
            ):
                continue
            given = [name for name, value in zip(called.parameters, event.args, strict=False) if value is loss]
            plain = bool(given) and loss is not None and not loss.tags & {"detached"} and not event.detached
            if plain and (added := _adds(node, given[0])) is not None:
                what = (
                    f"`{_text(event)}`: `{ast.unparse(added)[:40]}` in line {added.lineno} keeps the graph of each loss"
                )
                yield at(GRAPH_KEPT, event, what)
                return


def _adds(method: ast.FunctionDef, name: str) -> ast.AugAssign | None:
    """Return where a method adds a parameter to an attribute, and never takes it out of its graph."""
    text = ast.unparse(method)
    if any(word in text for word in ("detach", "item()", "float(", "no_grad", ".data", "backward", "isinstance")):
        return None
    for node in ast.walk(method):
        if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
            continue
        names = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
        if isinstance(node.target, ast.Attribute) and name in names:
            return node
    return None


def _text(event: Event) -> str:
    return ast.unparse(event.node)[:40]


def _steps(code: ScriptFacts) -> list[Event]:
    """The steps of Horovod's optimizer in loops."""
    return [e for e in code.ran("step", live=True) if e.loops and _of_horovod(e)]


def _of_horovod(event: Event) -> bool:
    return any("hvd" in value.tags for value in (event.receiver, *event.args) if value is not None)


def _several(code: ScriptFacts, allowed: int) -> Iterator[Finding]:
    """Report more backward passes in one pass of the loop than the optimizer takes before its step."""
    others = [e for e in code.events if "optimizer" in e.result.tags and e.result.made and "hvd" not in e.result.tags]
    if len({id(e.result) for e in others}) > 1:
        return  # some of the passes may be for the parameters of another one
    ends = [e for e in code.ran("step", "synchronize", live=True) if _of_horovod(e)]
    for step in _steps(code):
        passes: list[Event] = []
        for event in code.ran("backward", live=True):
            if event.loops != step.loops or event.order > step.order or event.off:
                continue
            if any(passes and passes[-1].order < e.order < event.order and e.loops == step.loops for e in ends):
                passes = []
            if not any(event.excludes(e) for e in passes):
                passes.append(event)
        if len(passes) > allowed:
            last = passes[allowed]
            what = f"backward in line {passes[0].line} and {len(passes) - 1} more before step in line {step.line}"
            chosen = any(g not in step.guards and g.default is not g.side for e in passes for g in e.guards)
            told = f"backward_passes_per_step is {allowed}"
            yield at(PASSES, last, f"`{_text(last)}`: {what}; {told}", "warning" if chosen else None)
            return


def _accumulated(code: ScriptFacts, made: Event) -> Iterator[Finding]:
    """Report several backward passes for one step of Horovod's optimizer without backward_passes_per_step."""
    for step in _steps(code):
        more = [g for g in step.guards if g.kind in ("other", "clock", "flag")]
        passes = [e for e in code.ran("backward", live=True) if e.loops == step.loops]
        deeper = [e for e in code.ran("backward", live=True) if e.loops[:-1] == step.loops and e.order < step.order]
        if deeper and not more:
            what = f"step in line {step.line} comes after a loop of backward passes"
            yield at(PASSES, made, f"`{_text(made)}` without backward_passes_per_step: {what}", "warning")
            return
        skipped = [e for e in passes if any(g not in e.guards for g in more)]
        counted = [g for g in more if isinstance(g.node, ast.Compare) and "%" in ast.unparse(g.node)]
        if skipped and counted:
            what = f"`{_text(made)}` without backward_passes_per_step, and step in line {step.line} where"
            yield at(PASSES, made, f"{what} `{ast.unparse(counted[0].node)[:40]}`")
            return


_MANY = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


class _Graphs:
    """The forward passes of trained models that losses were computed from."""

    def __init__(self, code: ScriptFacts) -> None:
        self.code = code
        self.models = trained(code)

    def forwards(self, value: Value, found: dict[int, Event], seen: set[int]) -> dict[int, Event]:
        """Collect the forward passes whose graphs a value is part of, by their order."""
        if id(value) in seen or "detached" in value.tags:
            return found
        seen.add(id(value))
        made = self.code.maker(value)
        inner: list[Value] = [*value.sources, *(value.items or ())]
        if made is None:
            inner += [value.of] if value.of is not None else []
        elif not any(NO_GRAPH.search(name) for name in made.contexts):
            if is_of(made.model, self.models):
                found[made.order] = made
            of_torch = made.name.startswith(("torch.", "?")) or made.name == "sum"
            losses = made.called is not None and any(name.startswith("torch.nn.") for name in made.called.made)
            if made.model is not None or of_torch or losses:
                inner += [*made.args, *made.keywords.values()]
                inner += [made.receiver] if made.receiver is not None and made.model is None else []
        for each in inner:
            self.forwards(each, found, seen)
        return found


def _loss(event: Event) -> Value | None:
    """Return what a backward pass is called on, or gets from a library: ``accelerator.backward(loss)``."""
    tensor = event.receiver is not None and "out" in event.receiver.tags
    return event.receiver if tensor or not event.args else event.args[0]


def _frees(event: Event) -> bool:
    """Return whether a backward pass frees the graph for certain."""
    kept = [event.keywords[name] for name in ("retain_graph", "create_graph") if name in event.keywords]
    if _loss(event) is event.receiver:
        kept += event.args[1:]
    return not event.opened and all(value.single() is False for value in kept)


def _freed(code: ScriptFacts) -> Iterator[Finding]:
    """Report a backward pass through the graph of a forward pass that an earlier one has freed."""
    events = code.ran("backward", "manual_backward", live=True)
    graphs = _Graphs(code) if events else None
    before: list[tuple[Event, dict[int, Event]]] = []
    for event in events:
        loss = _loss(event)
        own = event.called is not None and event.called.code is not None  # a function of the script with that name
        if graphs is None or loss is None or own:
            continue
        mine = graphs.forwards(loss, {}, set())
        for earlier, freed in before:
            shared = [freed[order] for order in sorted(freed.keys() & mine.keys())]
            again = [e for e in shared if not _anew(code, e, event)]
            sure = set(earlier.guards) <= set(event.guards) and earlier.loops == event.loops
            if again and sure and again[0].loops == event.loops and earlier.node is not event.node:
                what = f"`{_text(event)}` through `{_text(again[0])}` of line {again[0].line}"
                yield at(TWICE, event, f"{what}, whose graph backward in line {earlier.line} has freed")
                return
        if _frees(event):
            before.append((event, mine))


def _anew(code: ScriptFacts, forward: Event, backward: Event) -> bool:
    """Return whether a forward pass may run again before a backward pass, or stands for several."""
    inner = [each for each in forward.stack if each not in backward.stack]
    calls = [e for e in code.events if e.called is not None and e.called.code in inner and e.order < backward.order]
    repeated = [e for e in calls if e.order > forward.order]
    return bool(repeated) or any(isinstance(a, _MANY) for e in (forward, *calls) for a in ancestors(e.module, e.node))
