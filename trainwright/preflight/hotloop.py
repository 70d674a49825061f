"""What slows down every step: fetching values from the device, printing, saving, anomaly detection."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.saves import save_calls
from trainwright.script.call import Call
from trainwright.script.configurations import is_arguments
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import Function, TrainingStep, at, conditions, every_step, reachable
from trainwright.script.values import Value

GUIDE = "AWS guide for the SageMaker Training Compiler, best practices: avoid unnecessary evaluation"
ITEM = Rule(
    code="TW150",
    severity="note",
    title="a value is fetched from the device at every step",
    source=f"{GUIDE}; .item() and .cpu() wait for the device (with XLA, a warning: they also cut the graph)",
    remedy="Accumulate on the device (loss.detach()) and fetch the sum every few steps.",
)
PRINT = Rule(
    code="TW151",
    severity="note",
    title="output is printed or logged at every step",
    source=f"{GUIDE}; every line also goes to CloudWatch (with XLA, a warning)",
    remedy="if step % log_interval == 0:",
)
SAVE = Rule(
    code="TW152",
    severity="warning",
    title="a checkpoint is written at every step",
    source=f"{GUIDE}: checkpoint per epoch or every few hundred steps",
    remedy="Save once per epoch, or under `if step % save_interval == 0:`.",
)
EVERY_STEP = Rule(
    code="TW153",
    severity="warning",
    title="the trainer is configured to log, save or evaluate at every step",
    source=GUIDE,
    remedy="Use a larger interval: 100 steps or more, or once per epoch.",
)
ANOMALY = Rule(
    code="TW154",
    severity="warning",
    title="anomaly detection, the profiler or a mode for debugging is enabled for the whole training",
    source="PyTorch's documentation of torch.autograd: for debugging only, as it slows down every step",
    remedy="Enable it with a flag, for a few steps.",
)
RULES = (ITEM, PRINT, SAVE, EVERY_STEP, ANOMALY)
FETCHES = ("item", "tolist", "numpy")
PRINTS = ("print", "master_print")
LOG_METHODS = ("info", "warning", "error", "critical")
# Shows something for people at each call; what was fetched for it is meant to be seen.
_SHOWS = re.compile(r"(master_)?print\w*$|progress_?bar$|set_description(_str)?$|set_postfix(_str)?$")
_NOT_FINITE = re.compile(r"torch\.(isnan|isinf|isfinite)\(|\.(isnan|isinf|isfinite)\(\)")
EACH = ("logging_steps", "save_steps", "eval_steps", "log_every_n_steps", "checkpoint_frequency")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    severity: Severity | None = "warning" if code.xla else None
    reported: set[ast.AST] = set()
    for step in code.steps:
        if _epoch(step) or not _runs(code, step):
            continue
        for rule, call, what in _each_step(code, step):
            if call.node not in reported:
                reported.add(call.node)
                yield at(rule, call, f"{what} at every step", severity=severity)
    yield from _each_by_arguments(code)
    for call in code.calls:
        for keyword in call.node.keywords:
            # A profiler's hook saves no checkpoints.
            if (
                keyword.arg in EACH
                and "Profiler" not in call.last
                and isinstance(keyword.value, ast.Constant)
                and keyword.value.value == 1
            ):
                # To log at every step is slow, but a choice; to save or evaluate is most likely none.
                logs: Severity | None = "note" if "log" in keyword.arg and not code.xla else None
                yield at(EVERY_STEP, call, f"{keyword.arg}=1", severity=logs)
        if call.last == "set_detect_anomaly" and call.constant("mode", 0) is True and not _chosen(call):
            yield at(ANOMALY, call, "torch.autograd.set_detect_anomaly(True)")
        if call.last in ("detect_anomaly", "emit_nvtx") and "autograd" in call.name and not _chosen(call):
            yield at(ANOMALY, call, f"{call.name}()")


def _each_by_arguments(code: ScriptFacts) -> Iterator[Finding]:
    """Report settings of a trainer that are not written in the call itself: parsed from a list, or set afterwards."""
    for event in code.events:
        written = {keyword.arg for keyword in event.node.keywords}
        for name in EACH if is_arguments(event.name) else ():
            value = event.keywords.get(name)
            if value is None or "flag" in value.tags or type(value.single()) is not int or value.single() != 1:
                continue
            if name not in written or name in event.later:
                place = event.later.get(name, event.node)
                logs: Severity | None = "note" if "log" in name and not code.xla else None
                yield at(EVERY_STEP, (event.module, place), f"{name}=1", severity=logs)


def _chosen(call: Call) -> bool:
    enabled = call.given("enabled", 0)
    if enabled is not None and not (isinstance(enabled, ast.Constant) and enabled.value):
        return True  # an argument decides, or it is off
    return any("__name__" not in ast.unparse(test) for test, _ in conditions(call.module, call.node))


def _epoch(step: TrainingStep) -> bool:
    """Return whether a pass of the loop is an epoch: all data are one batch, as those of a graph often are."""
    target = step.node.target if isinstance(step.node, ast.For | ast.AsyncFor) else None
    return isinstance(target, ast.Name) and "epoch" in target.id.lower()


def _runs(code: ScriptFacts, step: TrainingStep) -> bool:
    """Return whether this training is run: not one of a file of which only something else is imported."""
    if step.module is code.script.entry:
        return True
    nodes = set(ast.walk(step.node))
    return any(reachable(code, call) for call in code.backwards if call.node in nodes)


def _waits(code: ScriptFacts, step: TrainingStep, inside: list[Call], fetches: list[Call]) -> bool:
    """Return whether each step waits for the device anyway: a value decides something in it, or it is shown."""
    if code.xla or code.launch.gpus == 0:
        return not code.xla  # with XLA, a fetch also cuts the graph; without a GPU, there is no device to wait for
    shown = (call for call in inside if _SHOWS.match(call.last) and call.name not in PRINTS)  # prints have their rule
    if any(shown) or any(call.name == "torch.cuda.synchronize" for call in inside):
        return True
    if _in_memory(code, step) or (_copies(code, step) and _workers(code, step)):
        return True
    values = {call.node for call in fetches}
    # Other tensors that go to numpy, for a metric; a length by which a tensor is cut.
    if any(call.last == "numpy" and ".cpu()" in call.receiver and call not in fetches for call in inside):
        return True
    slices = (node.slice for node in ast.walk(step.node) if isinstance(node, ast.Subscript))
    if any(values & set(ast.walk(each)) for each in slices):
        return True
    return _decides(step, values) or _in_progress_bar(step, values)


def _in_memory(code: ScriptFacts, step: TrainingStep) -> bool:
    """Return whether batches of a DataLoader are used where it makes them, in main memory: nothing is moved."""
    if code.loader(step.node) is None or code.incomplete or code.managed:
        return False
    moves = ("to", "cuda", "prepare", "set_default_device", "set_default_tensor_type", "initialize", "wrap", "setup")
    return not code.ran(*moves, live=True) and all(value.single() == "cpu" for value in _devices(code))


def _devices(code: ScriptFacts) -> Iterator[Value]:
    return (e.keywords["device"] for e in code.events if not e.detached and "device" in e.keywords)


def _copies(code: ScriptFacts, step: TrainingStep) -> bool:
    """Return whether the batch is copied to the device in each step, and the copy waits for the device.

    Source: PyTorch's guide on pin_memory and non_blocking: without ``non_blocking=True``, the stream is synchronised
    after the copy. So a step ends before the next begins, whether or not a value of it is fetched.
    """
    batch = _names_of_batch(step.node)
    for call in code.within(step.node):
        moves = (call.last == "cuda" or (call.last == "to" and not _only_type(call))) and call.receiver
        if moves and _root(call.node.func) in batch and call.given("non_blocking", 1) is None:
            return True
    return False


def _only_type(call: Call) -> bool:
    """Return whether ``to`` changes the type only, or moves to main memory."""
    first = call.given("device", 0)
    text = "" if first is None else ast.unparse(first)
    return not text or (text.startswith("torch.") and "device" not in text) or text.strip("'\"") == "cpu"


def _names_of_batch(step: ast.AST) -> set[str]:
    """The names of a batch and its parts: ``images`` of ``images, labels = batch``, ``v`` of ``for v in batch``."""
    found = {"next"}
    if isinstance(step, ast.For | ast.AsyncFor):
        found |= {node.id for node in ast.walk(step.target) if isinstance(node, ast.Name)}
    elif isinstance(step, Function):
        found |= {each.arg for each in step.args.args}
    pairs: list[tuple[list[ast.expr], ast.expr]] = []
    for node in ast.walk(step):
        if isinstance(node, ast.Assign):
            pairs.append((node.targets, node.value))
        elif isinstance(node, ast.comprehension):
            pairs.append(([node.target], node.iter))
    for targets, value in pairs:
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
        if any(_root(part) in found for part in parts):
            found |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return found


def _root(node: ast.expr) -> str:
    """``batch`` of ``batch["image"].x`` and ``batch.items()``, ``next`` of ``next(…)``; empty for another call."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("items", "values", "next"):
            node = node.func
        elif isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        else:
            return ""
    return node.id


def _workers(code: ScriptFacts, step: TrainingStep) -> bool:
    """Return whether other processes prepare the batches, so that no work of this one could overlap with the step."""
    own = code.loader(step.node)
    loaders = [own] if own is not None else code.ran("DataLoader")
    return bool(loaders) and all(_has_workers(loader) for loader in loaders)


def _has_workers(loader: Event) -> bool:
    if "num_workers" in loader.keywords:
        return loader.keywords["num_workers"].single() not in (0, None)
    packed = loader.keywords.get("**")
    return packed is not None and packed.attrs is not None and "num_workers" in packed.attrs


def _decides(step: TrainingStep, values: set[ast.Call]) -> bool:
    """Return whether a fetched value, or a test of a tensor, may end the step."""
    names = {
        target.id
        for node in ast.walk(step.node)
        if isinstance(node, ast.Assign) and values & set(ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(step.node):
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and _leaves(node)):
            parts = set(ast.walk(node.test))
            named = any(isinstance(part, ast.Name) and part.id in names for part in parts)
            if named or values & parts or _NOT_FINITE.search(ast.unparse(node.test)):
                return True
    return False


def _leaves(node: ast.If) -> bool:
    """Return whether a condition may end the step: a loss that is not finite, a batch without labels."""
    ends = ast.Continue | ast.Break | ast.Return | ast.Raise
    calls = (ast.unparse(each.func) for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(isinstance(each, ends) for each in ast.walk(node)) or any(name.endswith("exit") for name in calls)


def _in_progress_bar(step: TrainingStep, values: set[ast.Call]) -> bool:
    """Return whether a fetched value ends up in the text of a progress bar, perhaps by way of a running mean."""
    shown = [
        node.value
        for node in ast.walk(step.node)
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Attribute) and target.attr == "desc" for target in node.targets)
    ]
    text = {part.id for value in shown for part in ast.walk(value) if isinstance(part, ast.Name)}
    if any(values & set(ast.walk(value)) for value in shown):
        return True
    means = (node for node in ast.walk(step.node) if isinstance(node, ast.Assign | ast.AugAssign))
    return any(
        values & set(ast.walk(node.value)) and text & {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        for node in means
    )


def _each_step(code: ScriptFacts, step: TrainingStep) -> Iterator[tuple[Rule, Call, str]]:
    inside = [c for c in code.within(step.node) if every_step(code, step, c)]
    fetches = [c for c in inside if c.last in FETCHES and c.receiver and not c.node.args and _of_tensor(c)]
    waits = bool(fetches) and _waits(code, step, inside, fetches)
    for call in inside:
        if call in fetches and not waits:
            yield ITEM, call, f"{call.receiver[-40:]}.{call.last}()"
        elif call.name in PRINTS or call.name.endswith(".master_print"):
            if _shows_something(call):
                yield PRINT, call, "print"
        elif call.last in LOG_METHODS and "log" in call.receiver.lower():
            yield PRINT, call, f"{call.receiver}.{call.last}"
    for call in save_calls(inside):
        yield SAVE, call, f"{call.name}"


def _of_tensor(call: Call) -> bool:
    """Return whether the value may be on the device: not numpy's own ``.item()`` or ``.tolist()``."""
    text = call.receiver
    if call.last != "item":
        return "loss" in text.lower() or "output" in text.lower()
    return not text.startswith(("np.", "numpy.")) and "numpy()" not in text


def _shows_something(call: Call) -> bool:
    """Return whether a print has output; a progress line that overwrites itself is intended."""
    return bool(call.node.args) and call.constant("end") not in ("\r", "")
