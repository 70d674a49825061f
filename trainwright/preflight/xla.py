"""Training through XLA: the function that the launcher calls, graph barriers, devices, gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.sagemaker.toolkit import TOOLKIT
from trainwright.script.call import Call
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import TrainingStep, at, conditions, enclosing_loop, is_optimizer, same_path

GUIDE = "AWS guide for the SageMaker Training Compiler"
LAUNCHER = f"{TOOLKIT}, PyTorch/XLA runner: python -m torch_xla.distributed.xla_spawn SCRIPT"
NO_MP_FN = Rule(
    code="TW110",
    severity="error",
    title="no `_mp_fn(index)`, which the launcher of PyTorch/XLA calls in each process",
    source=f"{LAUNCHER} imports the script and calls its _mp_fn with the index of the process; {GUIDE}",
    remedy="def _mp_fn(index): main()",
)
NO_MARK_STEP = Rule(
    code="TW111",
    severity="error",
    title="the optimizer steps, but nothing marks the end of the step for XLA",
    source=f"{GUIDE}: the graph grows over all steps until something marks the end of one",
    remedy="xm.mark_step() after optimizer.step() (or xm.optimizer_step(optimizer), or a loop over an MpDeviceLoader).",
)
EARLY_PRINT = Rule(
    code="TW112",
    severity="warning",
    title="a value of the step is printed, logged or fetched before mark_step",
    source=f"{GUIDE}: reading a tensor before the barrier splits the graph in two and compiles both",
    remedy="Move it after xm.mark_step(), or pass it to xm.add_step_closure.",
)
CUDA_DEVICE = Rule(
    code="TW113",
    severity="error",
    title="the script is written for torch_xla but moves tensors to the CUDA device",
    source=f"{GUIDE}: model and data belong on xm.xla_device(); on `cuda` they bypass XLA or fail next to its tensors",
    remedy="Use device = xm.xla_device() and .to(device).",
)
NO_REDUCE = Rule(
    code="TW114",
    severity="error",
    title="several XLA devices train, but their gradients are never reduced",
    source=f"{GUIDE}: each replica would train alone on its share of the data",
    remedy="Call xm.optimizer_step(optimizer), or xm.reduce_gradients(optimizer) before optimizer.step().",
)
SPAWN_ARGUMENTS = Rule(
    code="TW115",
    severity="error",
    title="`_mp_fn` does not take exactly the index of the process",
    source=f"{LAUNCHER}, which calls _mp_fn(index)",
    remedy="Define it as `def _mp_fn(index):`, with no other required parameter.",
)
RANK_BARRIER = Rule(
    code="TW167",
    severity="error",
    title="mark_step under a condition that only some processes meet",
    source=f"{GUIDE}: every process has to end its step, or the graphs differ and collectives in them hang",
    remedy="Call xm.mark_step() once per step, outside of conditions.",
)
NO_DEVICE_LOADER = Rule(
    code="TW172",
    severity="warning",
    title="torch_xla on several devices without MpDeviceLoader",
    source="AWS guide for the SageMaker Training Compiler: wrap the loader; it also marks the end of each step",
    remedy="loader = pl.MpDeviceLoader(loader, xm.xla_device())",
)
SPAWN_DEVICE = Rule(
    code="TW414",
    severity="error",
    title="the XLA device is made before the processes that use it",
    source="PyTorch/XLA's API guide: xm.xla_device() is called in the function that xmp.spawn starts",
    remedy="Call xm.xla_device() in _mp_fn.",
)
BACKEND = Rule(
    code="TW495",
    severity="warning",
    title='backend "xla" without the import that registers it',
    source="AWS Neuron's tutorial of a multi-layer perceptron (archive/nxd-training/mlp.rst); pytorch/xla: "
    "xla_multiprocessing imports it since 2.1.0, xla_model since 2.8.0",
    remedy="import torch_xla.distributed.xla_backend",
)
NO_XLA = Rule(
    code="TW500",
    severity="error",
    title="a script for Trainium or torch_xla asks for CUDA alone, so it trains on the CPU",
    source="AWS Neuron's guide of PyTorch training (torch-neuronx): tensors reach NeuronCores as an XLA device; "
    "torch.cuda.is_available() is false there",
    remedy="device = xm.xla_device(), with torch_xla; or instances with NVIDIA GPUs.",
)
RULES = (
    *(NO_MP_FN, NO_MARK_STEP, EARLY_PRINT, CUDA_DEVICE, NO_REDUCE, SPAWN_ARGUMENTS, RANK_BARRIER, SPAWN_DEVICE),
    *(BACKEND, NO_XLA, NO_DEVICE_LOADER),
)
# What registers it, or imports what does.
_REGISTER = (
    *("torch_xla.distributed.xla_backend", "torch_xla.distributed.xla_multiprocessing"),
    *("neuronx_distributed", "optimum", "accelerate"),
)

_FETCHES = ("item", "cpu", "tolist", "numpy", "float", "print")
BARRIERS = ("mark_step", "optimizer_step", "MpDeviceLoader", "ParallelLoader")
LOGGING = ("print", "master_print", "info", "debug", "warning", "log", "add_scalar", "log_metric", "write")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    yield from _mp_fn(code)
    yield from _on_cpu(code)
    if not code.torch_xla:
        return
    yield from _barriers(code)
    yield from _loaders(code)
    yield from _devices(code)
    yield from _gradients(code)
    yield from _at_import(code)
    yield from _backend(code)
    for event in code.roles("mark"):
        guard = event.by_rank
        if guard is not None and not event.detached:
            what = f"mark_step runs only where `{ast.unparse(guard.node)[:50]}` is {guard.side}"
            yield at(RANK_BARRIER, event, what)


def _on_cpu(code: ScriptFacts) -> Iterator[Finding]:
    """Report a script whose only choice is CUDA or the CPU, in a job on Trainium or though it imports torch_xla."""
    trainium = code.job is not None and str(code.job.instance_type).startswith("ml.trn")
    if not (trainium or code.torch_xla) or not code.backwards or code.managed or code.incomplete:
        return
    if code.imports("torch_neuronx", "torch_xla.distributed", *_REGISTER) is not None:
        return
    named = code.mentions("xla_device", "xla_real_devices", "MpDeviceLoader") or any(code.called("torch_xla.device"))
    if named or code.says("^xla|^privateuse|^neuron"):
        return
    for event in code.ran("is_available", live=True):
        if event.name == "torch.cuda.is_available":
            what = "is false on Trainium" if trainium else "decides where a script of torch_xla trains"
            yield at(NO_XLA, event, f"`{ast.unparse(event.node)[:50]}` {what}")
            return


def _backend(code: ScriptFacts) -> Iterator[Finding]:
    if code.imports(*_REGISTER) is not None or code.spawns is not None or code.managed or code.incomplete:
        return
    for event in code.roles("group"):
        backend = event.arg("backend", 0)
        if backend is not None and backend.single() == "xla":
            yield at(BACKEND, event, "unknown before PyTorch/XLA 2.8, as nothing imports it")


def _mp_fn(code: ScriptFacts) -> Iterator[Finding]:
    entry = code.script.entry
    if code.launcher != "xla" or entry is None:
        return
    functions = [n for n in entry.tree.body if isinstance(n, ast.FunctionDef) and n.name == "_mp_fn"]
    if functions:
        arguments = functions[-1].args
        positional = [*arguments.posonlyargs, *arguments.args]
        required = len(positional) - len(arguments.defaults)
        takes = required <= 1 and (len(positional) >= 1 or arguments.vararg is not None)
        needs = [a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is None]
        if not takes or needs:
            yield at(SPAWN_ARGUMENTS, (entry, functions[-1]), "the launcher calls _mp_fn(index)")
    elif "_mp_fn" not in entry.aliases and not _assigned(entry.tree, "_mp_fn"):
        yield at(NO_MP_FN, (entry, entry.tree), "the job starts the script with xla_spawn, but it has no _mp_fn(index)")


def _assigned(tree: ast.Module, name: str) -> bool:
    return any(
        isinstance(target, ast.Name) and target.id == name
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
    )


def optimizer_steps(code: ScriptFacts) -> list[Call]:
    """Return the calls of an optimizer's own ``step``."""
    return [c for c in code.called("step") if is_optimizer(c.receiver)]


def _barriers(code: ScriptFacts) -> Iterator[Finding]:
    steps = [c for c in optimizer_steps(code) if enclosing_loop(c.module, c.node) is not None or code.steps]
    synced = any(code.called("torch_xla.sync", "torch_xla.step", "torch_xla.compile"))
    marked = synced or code.mentions(*BARRIERS)
    if steps and not marked and not code.managed:
        yield at(NO_MARK_STEP, steps[0], f"{steps[0].receiver}.step() without xm.mark_step()")
    loaders = code.mentions("MpDeviceLoader", "ParallelLoader")
    if not loaders and not code.managed and not code.incomplete:
        yield from _some_steps(code)
        if not synced and not code.mentions("use_spmd"):
            yield from _no_barrier(code)
            yield from _marked_elsewhere(code)
    for step in code.steps:
        yield from _before_barrier(code, step)


def _no_barrier(code: ScriptFacts) -> Iterator[Finding]:
    """Report xm.optimizer_step over a plain loader: it marks a step with barrier=True alone."""
    for event in code.ran("optimizer_step", live=True):
        if event.loops and not event.opened and not _has_barrier(event) and not _marked(code, event.loops[-1]):
            what = f"`{ast.unparse(event.node)[:50]}` over a plain DataLoader, without barrier=True"
            elsewhere = next((mark.line for mark in code.roles("mark")), None)
            what += f"; mark_step in line {elsewhere} is not in this loop" if elsewhere is not None else ""
            yield at(NO_MARK_STEP, event, what)
            return


def _marked_elsewhere(code: ScriptFacts) -> Iterator[Finding]:
    """Report optimizer.step() in a loop where nothing marks a step, or fetches a value, though another place does."""
    mark = next((mark.line for mark in code.roles("mark")), None)
    for event in code.ran("step", live=True):
        own = event.receiver is not None and "optimizer" in event.receiver.tags
        if mark is None or not own or not event.loops or _marked(code, event.loops[-1]):
            continue
        called = (node.func for node in ast.walk(event.loops[-1]) if isinstance(node, ast.Call))
        if any(getattr(func, "attr", getattr(func, "id", "")) in _FETCHES for func in called):
            continue  # to fetch a value ends the graph, too
        what = f"`{ast.unparse(event.node)[:50]}`: mark_step in line {mark} is not in this loop"
        yield at(NO_MARK_STEP, event, what)
        return


def _has_barrier(event: Event) -> bool:
    """Return whether xm.optimizer_step marks the step, or that cannot be seen."""
    barrier = event.arg("barrier", 1)
    return barrier is not None and barrier.single() is not False


def _marked(code: ScriptFacts, loop: ast.AST) -> bool:
    """Return whether something marks a step for XLA in a loop, itself or in a function of the script."""
    if any(code.called("torch_xla.step", "torch_xla.compile")):
        return True
    names = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(loop)}
    marks = [*code.roles("mark"), *filter(_has_barrier, code.ran("optimizer_step"))]
    inside = [e for e in marks if e.detached or loop in e.loops]
    # A function that is called in several loops may have been followed in another one.
    called = {each for e in marks for each in e.stack if each.name in names}
    return bool(inside) or any(loop not in ast.walk(each.node) for each in called)


def _some_steps(code: ScriptFacts) -> Iterator[Finding]:
    """Report that mark_step runs after some of the optimizer's steps only."""
    marks = [e for e in code.roles("mark") if not e.detached]
    for step in code.ran("step", "optimizer_step", live=True):
        own = step.receiver is not None and "optimizer" in step.receiver.tags
        by_library = step.last == "optimizer_step" and not _has_barrier(step)
        if not (own or by_library) or not step.loops or step.by_rank:
            continue
        inside = [e for e in marks if step.loops[-1] in e.loops]
        if inside and all(
            any(g not in step.guards and g.kind in ("other", "clock", "flag") for g in e.guards) for e in inside
        ):
            what = f"`{ast.unparse(step.node)[:40]}` at every step, mark_step in line {inside[0].line} at some"
            yield at(NO_MARK_STEP, step, what)
            return


def _before_barrier(code: ScriptFacts, step: TrainingStep) -> Iterator[Finding]:
    """Report what reads the loss after ``backward`` and before ``mark_step`` in one step."""
    inside = code.within(step.node)
    starts = [c for c in inside if c in code.backwards]
    marks = [c for c in inside if c.last == "mark_step" or c.name == "torch_xla.sync"]
    if not starts or not marks:
        return
    for call in inside:
        if not starts[0].line < call.line < marks[-1].line or not any(same_path(call, mark) for mark in marks):
            continue
        if any(starts[0].line < mark.line < call.line for mark in marks):
            continue  # a barrier separates it from the step
        if call.last in LOGGING and _shows_loss(call):
            yield at(
                EARLY_PRINT, call, f"{call.last}(…) uses the step's values before mark_step (line {marks[-1].line})"
            )


def _shows_loss(call: Call) -> bool:
    shown = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
    return any(
        isinstance(node, ast.Name) and ("loss" in node.id.lower() or "acc" in node.id.lower())
        for argument in shown
        for node in ast.walk(argument)
    )


def _loaders(code: ScriptFacts) -> Iterator[Finding]:
    """Report a plain loader, unless the training loop moves its batches and marks its steps itself."""
    loaders = [e for e in code.ran("DataLoader") if "torch" in e.name or e.name.startswith("?")]
    if not (code.xla_distributed and loaders and code.backwards) or code.managed or code.mentions("use_spmd"):
        return
    if code.mentions("MpDeviceLoader", "ParallelLoader"):
        yield from _left_on_cpu(code)
        return
    loops = [e.loops[-1] for e in code.ran("backward", live=True) if e.loops]
    if not loops or not all(_moves(code, loop) and _marked(code, loop) for loop in loops):
        yield at(NO_DEVICE_LOADER, loaders[0], "DataLoader without MpDeviceLoader")


def _moves(code: ScriptFacts, loop: ast.AST) -> bool:
    """Return whether a call in a loop moves something, such as its batches."""
    return any(e.loops[-1:] == (loop,) for e in code.ran("to", "send_cpu_data_to_device", "cuda"))


def _left_on_cpu(code: ScriptFacts) -> Iterator[Finding]:
    """Report a training loop over the loader itself, where nothing in the loop moves its batches."""
    for event in code.ran("backward", live=True):
        value = code.iterated(event.loops[-1]) if event.loops else None
        while value is not None and not value.made and value.of is not None:
            value = value.of  # enumerate(loader)
        if value is not None and value.made_by("DataLoader") and not _moves(code, event.loops[-1]):
            what = f"the loop in line {getattr(event.loops[-1], 'lineno', 0)} goes over the DataLoader itself"
            yield at(NO_DEVICE_LOADER, event, f"{what}, whose batches stay on the CPU")
            return


def _devices(code: ScriptFacts) -> Iterator[Finding]:
    for call in code.calls:
        if conditions(call.module, call.node):
            continue
        cuda = call.last == "cuda" and call.receiver not in ("", "torch")
        moved = call.last == "to" and str(call.constant("device", 0)).split(":")[0] == "cuda"
        made = call.name == "torch.device" and str(call.constant("type", 0)).split(":")[0] == "cuda"
        chosen = call.name == "torch.cuda.set_device"
        if cuda or moved or made or chosen:
            yield at(CUDA_DEVICE, call, f"`{ast.unparse(call.node)[:60]}` with torch_xla")


def _at_import(code: ScriptFacts) -> Iterator[Finding]:
    """Report what the parent process, or a process without XLA's backend, does."""
    if code.launcher == "xla" or code.spawns is not None:
        for event in code.roles("xla-device"):
            started = any("__name__" in ast.unparse(guard.node) for guard in event.guards)
            if not event.stack and not event.detached and not started:
                what = f"`{ast.unparse(event.node)[:50]}` when the script is imported, before its processes are started"
                yield at(SPAWN_DEVICE, event, what)
                break
    for event in code.roles("group"):
        backend = event.arg("backend", 0)
        if event.last != "init_process_group" or backend is None or "flag" in backend.tags or event.guards:
            continue
        if backend.single() in ("nccl", "gloo") and code.xla_distributed and not event.detached:
            what = f"`{ast.unparse(event.node)[:50]}`: tensors of XLA need the backend xla"
            yield at(CUDA_DEVICE, event, what)


def _gradients(code: ScriptFacts) -> Iterator[Finding]:
    if not code.xla_distributed or code.managed or code.wraps is not None or code.incomplete:
        return
    # SPMD shards tensors and lets the compiler reduce.
    if code.mentions(
        "use_spmd", "mark_sharding", "shard_as", "XlaFullyShardedDataParallel", "SpmdFullyShardedDataParallel"
    ):
        return
    # torch_xla's ZeroRedundancyOptimizer reduces and scatters them in its step (zero_redundancy_optimizer.py).
    reduces = code.mentions("optimizer_step", "reduce_gradients", "ZeroRedundancyOptimizer")
    reduces = reduces or any(e.last == "all_reduce" and _of_gradients(e) for e in code.events)
    reduces = reduces or code.imports("neuronx_distributed") is not None  # its optimizer does it in step (trainer.py)
    steps = optimizer_steps(code)
    scaled = [e for e in code.ran("step") if e.receiver is not None and "scaler" in e.receiver.tags]
    if reduces or not code.backwards:
        return
    if scaled:
        what = "the scaler steps on several XLA devices, but nothing reduces gradients before unscale_ or step"
        yield at(NO_REDUCE, scaled[0], what)
    elif steps:
        what = f"{steps[0].receiver}.step() on several XLA devices, but nothing reduces gradients"
        yield at(NO_REDUCE, steps[0], what)


def _of_gradients(event: Event) -> bool:
    values = (*event.args, *event.keywords.values())
    return any(value.tags & {"grad"} for value in values) or "grad" in ast.unparse(event.node)
