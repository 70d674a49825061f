"""What DistributedDataParallel averages, and what it does not know: other models, other passes, new layers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.averaging import PAST
from trainwright.preflight.collectives import ONE_UPDATE
from trainwright.preflight.unalike import FROZEN
from trainwright.script.events import Event
from trainwright.script.known import DDP, NO_GRAPH
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import WRAPPERS, Value, within

DOCS = "PyTorch's documentation of DistributedDataParallel"
NO_GRADIENT = Rule(
    code="TW524",
    severity="error",
    title="a loss of gathered outputs alone: all_gather has no gradient, so nothing trains the model",
    source="PyTorch's documentation of all_gather, which fills tensors of its own; mlfoundations/open_clip, loss.py, "
    "puts the process's own back; OFA-Sys/Chinese-CLIP #54",
    remedy="gathered[rank] = output after all_gather, or torch.distributed.nn.functional.all_gather, which has one.",
)
BESIDE = Rule(
    code="TW474",
    severity="error",
    title="a model is trained beside the wrapped one, and nothing averages its gradients",
    source=f"{DOCS}: gradients are averaged of the module that it wraps; the others drift apart in each process",
    remedy="Make it a part of the wrapped model, or wrap it as well.",
)
DIVIDED = Rule(
    code="TW485",
    severity="warning",
    title="gradients that DistributedDataParallel has averaged are divided by the number of processes again",
    source=f"{DOCS}: gradients are averaged over the processes in backward",
    remedy="Leave the division out.",
)
RULES = (BESIDE, DIVIDED, NO_GRADIENT)
_LAYERS = re.compile(
    r"torch\.nn\.(Linear|Conv\w+|Embedding|Sequential|LSTM|GRU|Transformer\w*)$|torchvision\.models\.|from_pretrained$"
)
# Other ways to average gradients, anywhere in a script.
_AVERAGES = ("all_reduce", "all_reduce_coalesced", "reduce_scatter", "broadcast")
_SHARES_GRADIENTS = r"(average|reduce|sync|allreduce)_?\w*(grad|param)"


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several:
        return
    yield from _other_rates(code)
    wraps = [e for e in code.wrapped_events if DDP.search(e.name) and not e.detached]
    yield from _past_trainer(code)
    if not wraps or code.managed or code.imports("accelerate", "deepspeed") is not None:
        return
    yield from _replaced(code, wraps)
    yield from _beside(code, wraps)
    yield from _again(code)
    yield from _by_grad(code)
    yield from _gathered(code)


def _at(rule: Rule, event: Event, message: str) -> Finding:
    return at(rule, event, f"`{ast.unparse(event.node)[:60]}` {message}")


def _taken(wrap: Event) -> Value | None:
    return wrap.args[0] if wrap.args else wrap.arg("module")


def _gathered(code: ScriptFacts) -> Iterator[Finding]:
    """Report a function that replaces a model's outputs by those of all processes, which have no graph."""
    loops = [event.loops for event in code.ran("backward", live=True)]
    for event in code.ran("all_gather", live=True):
        function = event.stack[-1].node if event.stack else None
        own = event.arg("tensor", 1)
        graph = own is not None and "out" in own.tags and not any(NO_GRAPH.search(name) for name in event.contexts)
        if function is None or not graph or not event.node.args or event.loops not in loops:
            continue
        filled = ast.unparse(event.node.args[0])
        names = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(function)}
        put_back = f"{filled}[" in ast.unparse(function) or any("rank" in name or name == "detach" for name in names)
        returned = [n for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
        if (
            event.name != "torch.distributed.all_gather"
            or put_back
            or not any(filled in ast.unparse(n) for n in returned)
        ):
            continue
        calls = [e for e in code.ran(event.stack[-1].name) if e.order < event.order and e.loops == event.loops]
        if any(_replaces(call) for call in calls):
            yield _at(NO_GRADIENT, event, f"in {event.stack[-1].name}: the loss gets no output that has a graph")
            return


def _replaces(call: Event) -> bool:
    """Return whether the result of a call takes the name of what it got: ``image = gather(image)``."""
    node: ast.AST = call.node
    while not isinstance(node, ast.stmt):
        node = call.module.parents[node]
    names = (
        {ast.unparse(n) for target in node.targets for n in ast.walk(target)} if isinstance(node, ast.Assign) else set()
    )
    return bool(call.node.args) and ast.unparse(call.node.args[0]) in names


def _other_rates(code: ScriptFacts) -> Iterator[Finding]:
    """Report a learning rate that is not the same in all processes."""
    for event in code.events:
        rate = event.arg("lr", 1) if "optimizer" in event.result.tags and event.name.startswith("torch.") else None
        if rate is not None and rate.tags & {"rank", "local_rank"} and not event.detached and event.by_rank is None:
            yield _at(ONE_UPDATE, event, "has another learning rate in each process")
            return


def _replaced(code: ScriptFacts, wraps: list[Event]) -> Iterator[Finding]:
    """Report a layer that is put into a model after DistributedDataParallel has registered its parameters."""
    for change in (each for each in code.replacements if "optimizer" not in each.value.tags):
        base = change.into
        sides = {guard.node: guard.side for guard in change.guards}
        for wrap in wraps:
            if any(sides.get(guard.node, guard.side) is not guard.side for guard in wrap.guards):
                continue
            if wrap.result.instance:
                continue  # the script's own class of this name, which may do it when it is made
            model = _taken(wrap)
            if model is None or change.order <= wrap.order or any(other.order > change.order for other in wraps):
                continue
            if within(base, wrap.result) or within(base, model):
                what = f"`{ast.unparse(change.node)[:40]}` is set after `{wrap.text[:40]}` in line {wrap.line}"
                yield at(FROZEN, (change.module, change.node), what)
                return


def _beside(code: ScriptFacts, wraps: list[Event]) -> Iterator[Finding]:
    """Report a model whose parameters an optimizer gets, while another is wrapped."""
    if _by_hand(code) or any(not DDP.search(e.name) for e in code.wrapped_events):
        return
    known = [value for wrap in wraps for value in (wrap.result, _taken(wrap)) if value is not None]
    optimizers = [e for e in code.events if ("optimizer" in e.result.tags or e.last == "add_param_group")]
    for event in code.ran("parameters", live=True):
        base = event.receiver
        maker = code.maker(base) if base is not None else None
        if base is None or maker is None or maker.detached or base.tags & WRAPPERS or event.by_rank is not None:
            continue
        given = next((o for o in optimizers if _gets(o, event)), None)
        if given is None or any(each is base or within(base, each) for each in known) or given.detached:
            continue
        used = any(each is base for wrap in wraps for each in wrap.args)
        if not used and _has_parameters(base) and not _shares(base, known) and _used_in_training(code, base):
            what = f"gives an optimizer the parameters of `{ast.unparse(maker.node)[:40]}`, which is not wrapped"
            yield _at(BESIDE, event, what)
            return


def _by_hand(code: ScriptFacts) -> bool:
    """Return whether the script itself shares gradients or parameters."""
    shared = any(value.tags & {"grad", "params"} for e in code.ran(*_AVERAGES) for value in e.args)
    return shared or code.mentions("register_hook", "average_parameters") or code.mentions_like(_SHARES_GRADIENTS)


def _gets(optimizer: Event, event: Event) -> bool:
    if any(node is event.node for node in ast.walk(optimizer.node)):
        return True
    given = optimizer.args[0] if optimizer.args else optimizer.arg("params")
    return given is not None and any(each is event.result for each in (given, *given.sources, *(given.items or ())))


def _has_parameters(value: Value) -> bool:
    own = value.code is not None and value.instance and "model" in value.tags and "Loss" not in value.code.name
    return own or any(_LAYERS.search(made) for made in value.made)


def _shares(base: Value, known: list[Value]) -> bool:
    """Return whether a wrapped model is a part of this one: then it is the whole that is trained."""
    return any(within(each, base) for each in known)


def _used_in_training(code: ScriptFacts, base: Value) -> bool:
    loops = {loop for e in code.ran("backward", live=True) for loop in e.loops}
    calls = [e for e in code.events if e.model is base or (e.called is base)]
    return any(
        loop in loops and not any(NO_GRAPH.search(name) for name in e.contexts) for e in calls for loop in e.loops[-1:]
    )


def _again(code: ScriptFacts) -> Iterator[Finding]:
    """Report gradients, or a loss, that a script divides by the number of processes, though DDP takes the mean."""
    if _by_hand(code) or code.mentions("register_comm_hook", "reduction"):
        return
    for event in code.ran("backward", live=True):
        receiver = event.receiver
        if receiver is not None and "per-replica" in receiver.tags and "wrapped-out" in receiver.tags:
            yield _at(DIVIDED, event, "of a loss that was divided by the number of processes")
            return
    loops = {e.loops[-1] for e in code.ran("backward", live=True) if e.loops}
    for event in code.ran("div_", live=True):
        gradient = event.receiver is not None and "grad" in event.receiver.tags and set(event.loops) & loops
        if gradient and event.args and "world" in event.args[0].tags:
            yield _at(DIVIDED, event, "after backward")
            return
    for module in code.modules:
        for node in module.nodes:
            if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Div):
                continue
            text = ast.unparse(node.value)
            if ast.unparse(node.target).endswith((".grad", ".grad.data")) and re.search(
                r"world(_?size)?\b|WORLD", text
            ):
                yield at(DIVIDED, (module, node), f"`{ast.unparse(node)[:60]}`")
                return


def _by_grad(code: ScriptFacts) -> Iterator[Finding]:
    """Report gradients of ``torch.autograd.grad``, which DistributedDataParallel does not see."""
    if _by_hand(code) or code.mentions("create_graph") or code.ran("backward", live=True):
        return
    for event in code.ran("grad", live=True):
        loss = event.arg("outputs", 0)
        if event.name == "torch.autograd.grad" and loss is not None and "wrapped-out" in loss.tags and event.loops:
            yield _at(PAST, event, "computes gradients past DistributedDataParallel's backward")
            return


def _past_trainer(code: ScriptFacts) -> Iterator[Finding]:
    """Report ``self.model`` in a Trainer's compute_loss: what it gets as ``model`` is the wrapper."""
    for event in code.events:
        inner = event.stack[-1] if event.stack else None
        owner = inner.owner if inner is not None and inner.name == "compute_loss" else None
        if owner is None or not any(origin.endswith("Trainer") for origin in owner.origins()):
            continue
        frozen = any(NO_GRAPH.search(name) for name in event.contexts)
        if ast.unparse(event.node.func) == "self.model" and not (frozen or code.mentions("model_wrapped")):
            yield _at(PAST, event, "in compute_loss is the model in the wrapper; call the argument `model`")
            return
