"""The learning rate: whether it follows the batch, which grows with the number of processes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.lightning_ranks import OWN_RATE
from trainwright.script.call import Call
from trainwright.script.events import Event
from trainwright.script.known import SCHEDULE_STEPS
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value

LEARNING_RATE = Rule(
    code="TW125",
    severity="note",
    title="the batch grows with the number of replicas, but the learning rate does not",
    source="AWS guides: for k times the batch, k times the learning rate (or its square root), then tune",
    remedy="Scale it by the world size in the script, or set the new rate as a hyperparameter of the job.",
)
WHOLE_BATCH = Rule(
    code="TW455",
    severity="warning",
    title="a batch that is described as that of a host or of the job is used by each process",
    source="PyTorch's ImageNet example: the batch size is that of all GPUs of a node, and each process divides it by "
    "their number",
    remedy="args.batch_size // dist.get_world_size() (or the GPUs of a host) for the DataLoader of a process.",
)
TOO_SHORT = Rule(
    code="TW502",
    severity="error",
    title="a schedule that is as long as there are epochs is stepped at every batch",
    source='PyTorch, torch/optim/lr_scheduler.py, OneCycleLR: "Tried to step … times. The total number of steps is"; '
    "its documentation: total_steps counts the calls of step, T_max likewise; CosineAnnealingLR is periodic and rises "
    "again after T_max",
    remedy="total_steps=epochs * len(loader) (T_max likewise), or call scheduler.step() once per epoch.",
)
TOO_LATE = Rule(
    code="TW521",
    severity="warning",
    title="the learning rate is scaled after the optimizer was made, which keeps the old one",
    source="PyTorch, torch/optim/optimizer.py: the optimizer takes lr into its param_groups when it is made",
    remedy="Scale it before the optimizer is made, or set it: for group in optimizer.param_groups: group['lr'] = lr.",
)
RULES = (LEARNING_RATE, WHOLE_BATCH, TOO_SHORT, TOO_LATE)
RATE = re.compile(r"(?<![a-z])lr(?![a-z])|learning.?rate", re.I)
BATCH = re.compile(r"batch|\bbs\b|accumulation", re.I)
GROWTH = re.compile(
    r"world|n_?procs|num_replicas|ordinal|dp_size|n(um)?_?gpus?|device_count|num_processes|batch|size\(\)|lr_scaler|\bsize\b",
    re.I,
)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check that the rate follows the batch, where the guide of the library asks for it or the job file shows it."""
    yield from _warmed_up(code)
    yield from _whole_batch(code)
    yield from _too_short(code)
    yield from _too_late(code)
    yield from _own_plateau(code)
    job = code.job
    if job is None or job.launcher == "process" or code.smp or job.model_parallel:
        return
    whole, share = (job.batch.global_, job.batch.per_replica) if job.batch is not None else (None, None)
    told = whole is not None and share is not None
    grows = whole is not None and share is not None and whole > share
    asked = (code.horovod or code.xla_distributed) and code.several and not told and not code.managed
    asked = asked and not code.mentions_like("adasum")
    if not (grows or asked) or any(RATE.search(name) for name in code.given) or _scaled(code):
        return
    for call in code.calls:
        optimizer = call.name.startswith("torch.optim.") and ".lr_scheduler." not in call.name
        rate = call.given("lr", 1 if optimizer else None)
        rate = rate or call.given("learning_rate", 0 if ".optimizers." in call.name else None)
        # An optimizer is a class (torch.optim.SGD); a parser, a config or a helper may take an lr, too.
        if rate is None or not call.last[:1].isupper():
            continue
        if GROWTH.search(ast.unparse(rate)) or (_named_as_scaled(rate) and not _unscaled(code, call, rate)):
            return
        world = f"{job.hosts} x {job.processes_per_host or '?'} processes"
        yield at(LEARNING_RATE, call, f"{call.last}(lr={ast.unparse(rate)[:30]}) is the same for {world}")
        return


_EPOCHS = re.compile(r"(^|(?<!per)[._])(num_|n_|max_|total_|train_)*epochs?$", re.I)
# Schedules that are over after their last step, or begin again.
_ENDING = (
    *("OneCycleLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "PolynomialLR", "LinearLR"),
    *("get_cosine_schedule_with_warmup", "get_linear_schedule_with_warmup"),
)


def _too_short(code: ScriptFacts) -> Iterator[Finding]:
    """Report a schedule whose length is the number of epochs, and that is stepped at every batch."""
    for event in code.ran(*_ENDING, live=True):
        name, place = SCHEDULE_STEPS[event.last][-1]
        given = Call(event.module, event.node, event.name).given(name, place)
        if given is None or not _of_epochs(code, given, event.arg(name, place)):
            continue
        schedules = [event.result, *_together_with(code, event)]
        alone = [e for e in code.ran(event.last) if e.name == event.name] == [event]
        for step in code.ran("step", live=True):
            mine = any(step.receiver is each for each in schedules)
            # A condition may have chosen among several kinds.
            mine = mine or (alone and step.receiver is not None and event.name in step.receiver.made)
            if mine and not (step.args or step.keywords) and _at_every_batch(code, step):
                what = f"{name}={ast.unparse(given)}, and it is stepped at every batch, in line {step.line}"
                severity: Severity = "error" if event.last == "OneCycleLR" else "warning"
                yield at(TOO_SHORT, event, f"{event.last}: {what}", severity=severity)
                return


def _of_epochs(code: ScriptFacts, node: ast.expr, value: Value | None) -> bool:
    """Return whether an expression is the number of epochs, or that without some: ``epochs - warmup_epochs``."""
    if any(value is each for name, each in code.arguments_of_script.items() if _EPOCHS.search(name)):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return _of_epochs(code, node.left, None) and (
            isinstance(node.right, ast.Constant) or _of_epochs(code, node.right, None)
        )
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return bool(_EPOCHS.search(str(node.slice.value)))
    return isinstance(node, ast.Name | ast.Attribute) and bool(_EPOCHS.search(ast.unparse(node)))


def _together_with(code: ScriptFacts, schedule: Event) -> Iterator[Value]:
    """Yield the schedules that step another one, one after the other or all at once."""
    for event in code.ran("SequentialLR", "ChainedScheduler", live=True):
        parts = event.arg("schedulers", 1 if event.last == "SequentialLR" else 0)
        if parts is not None and any(part is schedule.result for part in parts.items or ()):
            yield event.result


def _at_every_batch(code: ScriptFacts, step: Event) -> bool:
    """Return whether a schedule is stepped wherever its optimizer is, in a loop over batches within one over epochs."""
    if len(step.loops) < 2 or not any(e.loops == step.loops for e in code.ran("backward", live=True)):
        return False
    owner = ast.unparse(step.node.func).removesuffix(".step")
    there = (owner, f"{owner} is not None")
    guards = {guard for guard in step.guards if not (guard.side and ast.unparse(guard.node) in there)}
    updates = [e for e in code.ran("step", live=True) if e.receiver and e.receiver.tags & {"optimizer", "scaler"}]
    return not guards or any(e.loops == step.loops and guards <= set(e.guards) for e in updates)


def _too_late(code: ScriptFacts) -> Iterator[Finding]:
    """Report a rate that grows with the processes only after the optimizer was made, and is then shown alone."""
    for event in code.events:
        made = event.name.startswith("torch.optim.") and ".lr_scheduler." not in event.name
        rates = [k.value for k in event.node.keywords if k.arg == "lr"] or event.node.args[1:2]
        if not made or event.detached or event.loops or not rates or not isinstance(rates[0], ast.Name | ast.Attribute):
            continue
        module, rate = event.module, ast.unparse(rates[0])
        inside = _function(module, event.node)
        for node in ast.walk(inside):
            if not isinstance(node, ast.Assign | ast.AugAssign) or node.lineno <= event.node.lineno:
                continue
            if _multiplied(node, rate) and not any(_reads(each, inside, node, rate) for each in code.modules):
                yield at(TOO_LATE, (module, node), f"`{ast.unparse(node)[:60]}` comes after line {event.line}")
                return


def _own_plateau(code: ScriptFacts) -> Iterator[Finding]:
    """Report a ReduceLROnPlateau that each process steps by the metric of its own share of the data."""
    if not code.several or code.managed or code.incomplete:
        return
    for event in code.ran("step", live=True):
        plateau = event.name == "torch.optim.lr_scheduler.ReduceLROnPlateau.step"
        metric = event.arg("metrics", 0)
        if not plateau or metric is None or event.by_rank is not None:
            continue
        alone = "own" in metric.tags and bool(metric.tags & {"measured", "graphless"})
        if alone or _with_the_first_alone(code):
            what = f"`{ast.unparse(event.node)[:50]}`: "
            what += "no collective has joined the value with those of the others" if alone else _TO_ONE
            yield at(OWN_RATE, event, what)
            return


_TO_ONE = "`dist.reduce` gives the sum to one process, and the others go by their own"
_TO_ALL = (
    *("all_reduce", "broadcast", "broadcast_object_list", "all_gather", "all_gather_object", "all_gather_into_tensor"),
    "gather_for_metrics",
)


def _with_the_first_alone(code: ScriptFacts) -> bool:
    """Return whether values are joined by ``dist.reduce`` alone, whose result one process has."""
    joins = [e for e in code.events if e.name.startswith("torch.distributed.") and not e.detached]
    return any(e.last == "reduce" for e in joins) and not code.mentions(*_TO_ALL)


def _function(module: Module, node: ast.AST) -> ast.AST:
    """Return the function around a place, or the file."""
    while not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
        node = module.parents[node]
    return node


def _multiplied(node: ast.Assign | ast.AugAssign, rate: str) -> bool:
    """Return whether a statement makes a rate larger with the number of processes."""
    if isinstance(node, ast.AugAssign):
        grows = isinstance(node.op, ast.Mult) and ast.unparse(node.target) == rate
    else:
        text = ast.unparse(node.value)
        grows = [ast.unparse(target) for target in node.targets] == [rate] and rate in text
    return grows and bool(GROWTH.search(ast.unparse(node.value).replace(rate, "")))


def _reads(module: Module, inside: ast.AST, assigned: ast.Assign | ast.AugAssign, rate: str) -> bool:
    """Return whether a file reads a rate after a statement, or in another function, for more than a message."""
    before = {n for n in ast.walk(inside) if getattr(n, "lineno", 0) <= (assigned.end_lineno or 0)}
    local = "." not in rate and isinstance(inside, ast.FunctionDef)
    return any(
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and node not in before
        and ast.unparse(node) == rate
        and not _message(module, node)
        for node in (ast.walk(inside) if local else module.nodes)
    )


def _message(module: Module, node: ast.AST) -> bool:
    """Return whether a value goes into something that is printed or logged."""
    while not isinstance(node, ast.stmt):
        node = module.parents[node]
        if isinstance(node, ast.Call) and _TELLS.search(ast.unparse(node.func)):
            return True
    return False


_TELLS = re.compile(r"(^|[._])(print|info|debug|warning|log|log_\w+|write|add_scalar)$")
_OF_ALL = re.compile(r"(all|total|global|whole|sum)\b.*\b(gpu|node|host|process|worker|device|job|replica)s?\b", re.I)


def _whole_batch(code: ScriptFacts) -> Iterator[Finding]:
    """Report a DataLoader that gets an argument for the batch of several GPUs as it is."""
    if not code.several_per_host or code.managed or code.smp:
        return
    for call in code.called("add_argument"):
        help_, names = call.constant("help"), [a.value for a in call.node.args if isinstance(a, ast.Constant)]
        name = next((str(n).lstrip("-").replace("-", "_") for n in names if str(n).startswith("--")), "")
        if "batch" not in name or not isinstance(help_, str) or not _OF_ALL.search(help_):
            continue
        divided = any(
            isinstance(node, ast.BinOp | ast.AugAssign)
            and isinstance(node.op, ast.Div | ast.FloorDiv)
            and name in ast.unparse(node.left if isinstance(node, ast.BinOp) else node.target)
            for module in code.modules
            for node in module.nodes
        )
        for event in code.ran("DataLoader", live=True):
            given = [k.value for k in event.node.keywords if k.arg == "batch_size"] or event.node.args[1:2]
            used = bool(given) and ast.unparse(given[0]).rpartition(".")[2] == name
            if used and not divided and event.arg("sampler", 3) is not None:
                yield at(WHOLE_BATCH, event, f"--{name} is described as {help_[:50]!r}")
                return


def _scaled(code: ScriptFacts) -> bool:
    """Return whether the script scales its learning rate, or divides a fixed batch among the processes."""
    by_hand = any(_sets_rate(node) for module in code.modules for node in module.nodes)
    for module in code.modules:
        for node in module.nodes:
            if by_hand and isinstance(node, ast.BinOp) and GROWTH.search(ast.unparse(node)):
                return True
            if not isinstance(node, ast.BinOp | ast.AugAssign):
                continue
            around = module.parents.get(node)
            text = ast.unparse(around if isinstance(around, ast.Assign) else node)  # lr = 0.1 * world_size
            if RATE.search(text) and GROWTH.search(text):
                return True
            left = ast.unparse(node.left if isinstance(node, ast.BinOp) else node.target)
            right = ast.unparse(node.right if isinstance(node, ast.BinOp) else node.value)
            plain = isinstance(node, ast.AugAssign) or not isinstance(node.left, ast.BinOp)  # not samples // batch
            if plain and isinstance(node.op, ast.Div | ast.FloorDiv) and BATCH.search(left) and GROWTH.search(right):
                return True
    return False


def _sets_rate(node: ast.AST) -> bool:
    """Return whether a rate is set in the loop: ``group["lr"] = schedule(epoch)``."""
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(("['lr']", ".learning_rate"))


def _warmed_up(code: ScriptFacts) -> Iterator[Finding]:
    """Report a warm-up that ends at the rate of one process, where the optimizer got that of all."""
    if not code.horovod or not code.several:
        return
    rates = [e.arg("learning_rate", 0) or e.arg("lr") for e in code.events if ".optimizers." in e.name]
    for event in code.ran("LearningRateWarmupCallback", live=True):
        rate = event.arg("initial_lr")
        if _scaled_again(code, event):
            what = (
                f"`{ast.unparse(event.node)[:60]}` multiplies a rate by the number of processes that is scaled already"
            )
            yield at(LEARNING_RATE, event, what, severity="warning")
            return
        known = rate is not None and (rate.tags or rate.constants is not None) and "world" not in rate.tags
        if known and any(given is not None and "world" in given.tags for given in rates):
            what = f"`{ast.unparse(event.node)[:60]}` ends at the rate of one process; the optimizer has that of all"
            yield at(LEARNING_RATE, event, what, severity="warning")
            return


def _scaled_again(code: ScriptFacts, event: Event) -> bool:
    """Return whether a function multiplies a rate by the number of processes that each call of it has multiplied."""
    words = [keyword.value for keyword in event.node.keywords if keyword.arg == "initial_lr"]
    if not words or not event.stack or not isinstance(words[0], ast.BinOp) or not isinstance(words[0].op, ast.Mult):
        return False
    sides = (words[0].left, words[0].right)
    names = [side.id for side in sides if isinstance(side, ast.Name)]
    if len(names) != 1 or not any(GROWTH.search(ast.unparse(side)) for side in sides if not isinstance(side, ast.Name)):
        return False
    function = event.stack[-1]
    given = [arg.arg for arg in function.node.args.args] if isinstance(function.node, ast.FunctionDef) else []
    if names[0] not in given:
        return False
    calls = [e for e in code.ran(function.name) if not e.detached]
    values = [e.arg(names[0], given.index(names[0])) for e in calls]
    return bool(values) and all(value is not None and "world" in value.tags for value in values)


def _named_as_scaled(rate: ast.expr) -> bool:
    return bool(re.search("scal|sched|_fn|decay|warm|policy", ast.unparse(rate)))


def _unscaled(code: ScriptFacts, call: Call, rate: ast.expr) -> bool:
    """Return whether a rate is an argument or a constant as it is, whatever its name says."""
    for event in code.events:
        if event.node is call.node:
            keyword = next((k.arg for k in call.node.keywords if k.value is rate), None)
            given = event.keywords.get(keyword or "") or (event.args[0] if event.args and not keyword else None)
            return (
                given is not None
                and (given.constants is not None or "flag" in given.tags)
                and "world" not in given.tags
            )
    return False
