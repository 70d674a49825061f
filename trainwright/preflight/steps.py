"""What a step of the training lacks, or does in the wrong order: per optimizer, per scheduler, per batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.amp import CLIP_LATE, CLIPS
from trainwright.preflight.loop import NO_ZERO, TWICE
from trainwright.script.events import Event
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import Function, ancestors, at

TEXT_FILE = Rule(
    code="TW460",
    severity="error",
    title="a binary file is opened as text",
    source='Python, io.TextIOWrapper.write: "write() argument must be str, not bytes"; PyTorch\'s documentation of '
    "torch.save: a file-like object has to implement write for bytes",
    remedy='open(path, "wb") to save, open(path, "rb") to load; or pass the path.',
)
NO_METRIC = Rule(
    code="TW461",
    severity="error",
    title="ReduceLROnPlateau is stepped without its metric",
    source="PyTorch's documentation of ReduceLROnPlateau: step(metrics); without it TypeError",
    remedy="scheduler.step(val_loss)",
)
NEVER_STEPPED = Rule(
    code="TW462",
    severity="error",
    title="gradients are computed, and no optimizer uses them",
    source="PyTorch's documentation of torch.optim: optimizer.step() updates the parameters",
    remedy="optimizer.step() after loss.backward()",
)
RULES = (TEXT_FILE, NO_METRIC, NEVER_STEPPED)
_BINARY = ("torch.save", "pickle.dump", "torch.load", "pickle.load")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    for event in code.ran("save", "dump", "load", live=True):
        place = {"save": 1, "dump": 1, "load": 0}[event.last]
        file = event.arg("file" if event.name.startswith("pickle") else "f", place)
        mode = (file.attrs or {}).get("mode") if file is not None and file.made == {"open"} else None
        if event.name in _BINARY and mode is not None and isinstance(text := mode.single(), str) and "b" not in text:
            yield at(TEXT_FILE, event, f"`{event.text}` with a file of mode {text!r}")
    clearing = {outer for call in code.called("zero_grad") for outer in ancestors(call.module, call.node)}
    training = {outer for call in code.backwards for outer in ancestors(call.module, call.node)}
    if any(_detaches(node) for module in code.modules for node in module.nodes):
        training = set()
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, Function) and node in clearing:
                yield from _never_cleared(code, module, node)
            elif isinstance(node, ast.For | ast.While) and node in training:
                yield from _kept_graph(code, module, node)
    if not code.backwards:
        return
    for event in code.ran("step", live=True):
        made = event.receiver.made if event.receiver is not None else frozenset[str]()
        if made == {"torch.optim.lr_scheduler.ReduceLROnPlateau"} and not (event.args or event.keywords):
            yield at(NO_METRIC, event, f"`{event.text}`")
            break
    yield from _never_stepped(code)
    yield from _clipped_before(code)


def _never_stepped(code: ScriptFacts) -> Iterator[Finding]:
    """Report a training loop of a script that makes an optimizer, and steps none."""
    if code.managed and code.imports("accelerate") is None:
        return
    made = [e for e in code.events if "optimizer" in e.result.tags and e.result.made and e.name.startswith("torch.")]
    looped = [e for e in code.ran("backward", live=True) if e.loops and not e.args]
    steps = [c for c in code.called("step") if "sched" not in c.receiver.lower()]
    others = code.mentions("optimizer_step", "minimize", "closure", "register_post_accumulate_grad_hook", "manual_step")
    if made and looped and not steps and not others and not code.mentions_like("_step$|step_|optim_wrapper"):
        yield at(NEVER_STEPPED, looped[0], f"`{looped[0].text}`, and nothing calls step of `{made[0].text}`")


def _clipped_before(code: ScriptFacts) -> Iterator[Finding]:
    """Report gradients that are clipped between zero_grad and backward, before they are computed."""
    for clip in code.ran(*CLIPS, live=True):
        near = [e for e in code.ran("zero_grad", "backward", "step", live=True) if e.loops == clip.loops and e.loops]
        near = [e for e in near if e.stack == clip.stack and not e.excludes(clip) and not _of_scheduler(e)]
        before = [e for e in near if e.order < clip.order]
        after = [e for e in near if e.order > clip.order]
        begins = before[-1].last == "zero_grad" if before else any(e.last == "step" for e in after)
        if begins and after and after[0].last == "backward":
            what = f"`{clip.text}` comes before backward in line {after[0].line}, when there are no gradients"
            yield at(CLIP_LATE, clip, what)
            return


def _of_scheduler(event: Event) -> bool:
    return event.receiver is not None and any("lr_scheduler" in made for made in event.receiver.made)


def _never_cleared(code: ScriptFacts, module: Module, function: Function) -> Iterator[Finding]:
    """Report one of several optimizers of a function that is stepped, and never cleared as the others are."""
    called: dict[str, dict[str, ast.Call]] = {"step": {}, "zero_grad": {}}
    for each in code.called(*called):
        within = each.module is module and function.lineno <= each.line <= (function.end_lineno or 0)
        if within and isinstance(each.node.func, ast.Attribute):
            called[each.last].setdefault(each.receiver, each.node)
    steps = {name: call for name, call in called["step"].items() if "opt" in name.lower() and not call.args}
    cleared = set(called["zero_grad"])
    if len(steps) < 2 or not cleared or not cleared <= steps.keys():
        return  # a network's own zero_grad, or a helper, may clear it
    elsewhere = {ast.unparse(c.node.func) for c in code.called("zero_grad")}
    for name, call in steps.items():
        if name not in cleared and f"{name}.zero_grad" not in elsewhere and not code.mentions("set_to_none_all"):
            yield at(NO_ZERO, (module, call), f"`{ast.unparse(call)[:50]}`, and nothing clears its gradients")
            return


def _detaches(node: ast.AST) -> bool:
    """Return whether a model detaches its hidden state itself."""
    return isinstance(node, ast.FunctionDef) and node.name == "forward" and "detach" in ast.unparse(node)


def _kept_graph(code: ScriptFacts, module: Module, loop: ast.For | ast.While) -> Iterator[Finding]:
    """Report a hidden state that goes from batch to batch with its graph: ``out, hidden = model(x, hidden)``."""
    nodes = [n for statement in loop.body for n in ast.walk(statement)]
    within = set(nodes)
    backward = next((c for c in code.backwards if c.node in within), None)
    if backward is None or any(keyword.arg != "retain_graph" for keyword in backward.node.keywords):
        return  # retain_graph=True keeps the graphs of all batches before, which is no better
    for node in nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        made = [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        taken = [a.id for a in node.value.args if isinstance(a, ast.Name)]
        hidden = next((name for name in made if name in taken and len(made) > 1), None)
        if hidden is None or "model" not in ast.unparse(node.value.func):
            continue
        uses = [n for n in nodes if isinstance(n, ast.Name) and n.id == hidden]
        if len(uses) == 2 and any(g.loops and g.node is backward.node for g in code.ran("backward", live=True)):
            what = f"`{ast.unparse(node)[:60]}` keeps the graph of the batch before: {hidden}.detach() is missing"
            yield at(TWICE, (module, node), what)
            return
