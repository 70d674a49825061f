"""One GPU for each process of a host: which device a process selects, and from which rank."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.collectives import called_by_library
from trainwright.script.call import Call
from trainwright.script.calls import joined_elsewhere
from trainwright.script.events import Event
from trainwright.script.known import DDP, LIGHTNING
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import WRAPPERS, Value

DOCS = "PyTorch's documentation of torch.distributed"
NO_DEVICE = Rule(
    code="TW121",
    severity="error",
    title="several processes use CUDA, but none of them selects its own GPU",
    source=f"{DOCS}: without it every process of a host uses GPU 0; AWS guide for distributed training scripts",
    remedy='torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything is moved to a GPU',
)
GLOBAL_RANK = Rule(
    code="TW129",
    severity="error",
    title="the number of the GPU is the global rank, which is larger than the last GPU on every host but the first",
    source=f"{DOCS}: RANK counts the processes of all hosts, LOCAL_RANK those of one",
    remedy='Use int(os.environ["LOCAL_RANK"]) for the device; keep the global rank for samplers and conditions.',
)
APART = Rule(
    code="TW459",
    severity="error",
    title="tensors of one operation are on a GPU and in main memory",
    source='PyTorch, aten: "Expected all tensors to be on the same device, but found at least two devices"',
    remedy="torch.zeros(…, device=output.device), or target.to(device), before the loss.",
)
ONE_VISIBLE = Rule(
    code="TW506",
    severity="error",
    title="the process sees one GPU, which is number 0 to it, and asks for another",
    source="CUDA C++ Programming Guide, environment variables: the devices of CUDA_VISIBLE_DEVICES are numbered anew",
    remedy='Remove os.environ["CUDA_VISIBLE_DEVICES"] = …, or use cuda:0.',
)
RULES = (APART, NO_DEVICE, GLOBAL_RANK, ONE_VISIBLE)
OWN = frozenset({"local_rank", "own-device", "xla-device"})
_WRAPS = ("DistributedDataParallel", "FullyShardedDataParallel")
_DECIDES = ("set_device", *_WRAPS)
_OTHERS = ("accelerate", "deepspeed", "pytorch_lightning", "lightning", "ray", "fairscale")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if not code.torch_xla and not code.tensorflow and not code.incomplete and code.backwards:
        yield from _apart(code)
    if not code.several_per_host or code.torch_xla or code.tensorflow:
        return
    if code.managed:
        yield from _noise(code)
        if code.launch.launched and code.imports("ray") is None:
            yield from _visible(code)
            yield from _one_for_all(code)
            yield from _by_global_rank(code)
    elif code.group or code.wraps or code.horovod or code.smp:
        yield from _own(code)


def _by_global_rank(code: ScriptFacts) -> Iterator[Finding]:
    """Report set_device with the global rank in a script whose library does the rest."""
    for event in code.ran("set_device", live=True):
        wrong = [v for v in devices_of(event) if "rank" in v.tags and not v.tags & OWN and _index(v)]
        if wrong and code.several_hosts and event.name.startswith("torch."):
            yield at(GLOBAL_RANK, event, f"`{event.text}` with the global rank")
            return


_LOSSES = re.compile(r"criterion|loss|bce|mse|cross_entropy|nll", re.I)


def _apart(code: ScriptFacts) -> Iterator[Finding]:
    """Report a loss of a model's output on a GPU, and a target that the script makes in main memory."""
    moved = [e for e in code.ran("to", "cuda", live=True) if e.receiver is not None and "model" in e.receiver.tags]
    defaults = ("set_default_device", "set_default_tensor_type")
    if not code.launch.gpus or not moved or code.mentions(*defaults):
        return
    for event in code.events:
        mine = [e.order for e in moved if event.model in (e.receiver, e.result)]
        before = not mine or min(mine) < event.order
        ours = event.model is not None and not event.detached and before
        if ours and _in_memory(event.args[:1]) and event.model is not None and _on_gpu(event.model):
            yield at(APART, event, f"`{event.text}`: the input is in main memory")
            return
        if event.detached or len(event.args) < 2 or not _LOSSES.search(ast.unparse(event.node.func)):
            continue
        out, target = event.args[:2]
        if {"out", "on-device"} <= out.tags and _in_memory([target]):
            yield at(APART, event, f"`{event.text}`: the second tensor is in main memory")
            return


def _in_memory(values: list[Value]) -> bool:
    """Return whether a value is a tensor that a function of PyTorch has made in main memory."""
    for value in values:
        if "cpu-tensor" in value.tags and not value.tags & {"on-device", "out", "moved"} and value.made:
            return all(name.startswith("torch.") and name.count(".") == 1 for name in value.made)
    return False


def _on_gpu(model: Value) -> bool:
    """Return whether a model was moved, and nothing around it moves its inputs."""
    return "placed" in model.tags and not model.tags & (WRAPPERS | {"copy"})


def _noise(code: ScriptFacts) -> Iterator[Finding]:
    """Report what training_step of Lightning makes in main memory and gives the model: only batches are moved."""
    if not code.launch.gpus or code.imports(*LIGHTNING) is None:
        return
    for event in code.events:
        func = ast.unparse(event.node.func)
        ours = called_by_library(code, event) and re.fullmatch(r"self(\.[A-Za-z0-9_]+)?", func)
        if ours and _in_memory(event.args[:1]) and ("out" in event.result.tags or func == "self"):
            yield at(APART, event, f"`{event.text}`: the input is in main memory")
            return


def _own(code: ScriptFacts) -> Iterator[Finding]:
    """Check a script that selects the GPUs itself."""
    chosen = [(event, value) for event in code.events for value in devices_of(event)]
    wrong = [(e, v) for e, v in chosen if "rank" in v.tags and not v.tags & OWN and _index(v)]
    if wrong and code.several_hosts:
        event, _ = min(wrong, key=lambda each: each[0].off is not None)
        severity: Severity = "error" if event.off is None else "warning"
        yield at(GLOBAL_RANK, event, f"`{event.text}` with the global rank", severity=severity)
        return
    yield from _visible(code)
    if (seen := _sees_its_own(code)) is not None and (hidden := _hidden(seen, chosen)) is not None:
        what = f"`{hidden.text}`, after `{ast.unparse(seen)[:60]}` in line {seen.lineno}"
        yield at(ONE_VISIBLE, hidden, what)
        return
    if (current := _current(code, chosen)) is not None:
        yield current
        return
    selected = bool(wrong) or any(v.tags & OWN or _unclear(v) for _, v in chosen)
    selected = selected or any(e.last in ("init_device_mesh", "fully_shard") for e in code.events)
    selected = selected or code.imports(*_OTHERS) is not None or code.says("^CUDA_VISIBLE_DEVICES$")
    several = [e for e in code.wrapped_events if DDP.search(e.name) and not e.detached and _many(e)]
    if several:
        event = several[0]
        what = f"`{event.text}`: DistributedDataParallel takes one GPU per process"
        yield at(NO_DEVICE, event, what)
        return
    fixed = [] if _sees_its_own(code) is not None else [(e, v) for e, v in chosen if _fixed(v)]
    if selected and not fixed:
        only = all(e.last in _WRAPS for e, v in chosen if v.tags & OWN or _unclear(v))
        yield from _default(code) if only and any(v.tags & OWN for _, v in chosen) else _late(code)
        return
    # What set_device selects is what every later call without a device uses.
    decides = (*_DECIDES, "device")
    fixed = [(e, v) for e, v in fixed if not selected or (e.last in decides and not e.guards and not e.detached)]
    fixed = [(e, v) for e, v in fixed if not selected or e.last != "device" or _used(code, e)]
    if fixed:
        event, _ = fixed[0]
        yield at(NO_DEVICE, event, f"`{event.text}`: the same GPU in every process of a host")
        return
    if selected:
        yield from _away(code)
    elif not code.smp:
        yield from _default(code)


def _away(code: ScriptFacts) -> Iterator[Finding]:
    """Report a model, or what a step moves, on a constant GPU, though each process selects its own."""
    if code.smp or code.imports("ray") is not None or code.says("^CUDA_VISIBLE_DEVICES$"):
        return
    wrapped = [e.arg("module", 0) for e in code.wrapped_events]
    steps = {loop for e in code.ran("backward", live=True) for loop in e.loops}
    fixed = [(e, v) for e in code.ran("to", "cuda", live=True) for v in devices_of(e) if _fixed(v) and code.decided(v)]
    fixed = [(e, v) for e, v in fixed if e.receiver is not None and not e.guards and not _moved_again(code, e)]
    models = [(e, v) for e, v in fixed if e.receiver in wrapped or (e.receiver and "model" in e.receiver.tags)]
    for event, place in models or [(e, v) for e, v in fixed if steps.intersection(e.loops)]:
        number = next(str(c).removeprefix("cuda:") for c in place.constants or () if _fixed(Value(constants=(c,))))
        what = f"`{event.text}`: GPU {number} in every process of a host, though each selects its own"
        # DistributedDataParallel moves the model's inputs, and nothing else, to the right one.
        certain = bool(models) and "flag" not in place.tags
        yield at(NO_DEVICE, event, what, severity="error" if certain else "warning")
        return


def _moved_again(code: ScriptFacts, event: Event) -> bool:
    """Return whether the same thing is moved later to a GPU that may be the process's own."""
    for later in code.ran("to", "cuda"):
        place = later.arg("device", 0)
        own = later.last == "cuda" if place is None else (place.constants is None or place.may_be("cuda"))
        own = own and not (place is not None and place.name.startswith("torch."))  # a dtype
        if own and later.order > event.order and later.receiver is event.receiver:
            return True
    return False


def _many(event: Event) -> bool:
    """Return whether ``device_ids`` names several GPUs."""
    ids, node = event.arg("device_ids", 1), Call(event.module, event.node, event.name).given("device_ids", 1)
    if ids is None:
        return False
    ranged = node is not None and re.search(r"range\([^0]*device_count|range\(\w*gpus?\w*\)", ast.unparse(node))
    return bool(ranged) or (ids.items is not None and len(ids.items) > 1 and "maybe-none" not in ids.tags)


def _used(code: ScriptFacts, event: Event) -> bool:
    """Return whether the model, or a batch, is moved to a device."""
    return any(event.result in (*e.args, *e.keywords.values()) for e in code.ran("to", live=True))


def _one_for_all(code: ScriptFacts) -> Iterator[Finding]:
    """Report a constant GPU for the model or batches of a library that gives each process its own."""
    for event in code.ran("to", "cuda"):
        if event.guards or event.receiver is None or (event.detached and not called_by_library(code, event)):
            continue
        if any(_fixed(value) and "flag" not in value.tags for value in devices_of(event)):
            what = f"`{event.text}`: the same GPU in every process of a host"
            yield at(NO_DEVICE, event, what, severity="warning")
            return


def _sees_its_own(code: ScriptFacts) -> ast.Assign | None:
    """Return the assignment with which the script shows each process one GPU, which is number 0 to it."""
    return next(
        (
            node
            for module in code.modules
            for node in module.nodes
            if isinstance(node, ast.Assign)
            and not isinstance(node.value, ast.Constant)
            and "'CUDA_VISIBLE_DEVICES'" in ast.unparse(node.targets[0])
        ),
        None,
    )


def _hidden(seen: ast.Assign, chosen: list[tuple[Event, Value]]) -> Event | None:
    """Return a call for the GPU with the number of the local rank, where the process sees that GPU alone."""
    number = seen.value
    if isinstance(number, ast.Call) and ast.unparse(number.func) == "str" and len(number.args) == 1:
        number = number.args[0]
    elif isinstance(number, ast.JoinedStr) and len(number.values) == 1:
        number = number.values[0]
    text = ast.unparse(number.value if isinstance(number, ast.FormattedValue) else number)
    if text != "os.environ['LOCAL_RANK']" and not (text.isidentifier() and "local_rank" in text.lower()):
        return None
    return next((e for e, v in chosen if "local_rank" in v.tags and not e.detached and not e.guards), None)


def _visible(code: ScriptFacts) -> Iterator[Finding]:
    """Report CUDA_VISIBLE_DEVICES set to the same GPU in every process."""
    for module in code.modules:
        for node in module.nodes:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
                continue
            if "'CUDA_VISIBLE_DEVICES'" in ast.unparse(node.targets[0]) and str(node.value.value).isdigit():
                what = f"`{ast.unparse(node)[:60]}`: the same GPU in every process of a host"
                yield at(NO_DEVICE, (module, node), what)


def devices_of(event: Event) -> Iterator[Value]:
    """Yield the devices that a call selects."""
    if event.last in ("set_device", "set_device_index") and not event.name.startswith("script."):
        yield from event.args or event.keywords.values()
    elif event.last == "cuda" and (event.args or "device" in event.keywords):
        yield event.args[0] if event.args else event.keywords["device"]
    elif (event.last == "to" or event.name == "torch.device") and (event.args or "device" in event.keywords):
        yield event.result if event.name == "torch.device" else (event.arg("device", 0) or Value())
    elif event.last in _WRAPS:
        ids = event.arg("device_ids", 1)
        yield from ids.items or (ids,) if ids is not None else ()
        yield from (v for k, v in event.keywords.items() if k in ("device_id", "output_device"))
    elif event.last == "device_index":
        yield from event.args


def _index(value: Value) -> bool:
    return not value.tags & {"out", "params"}


def _unclear(value: Value) -> bool:
    """Return whether a device may be the process's own, as far as can be seen."""
    if value.constants is not None:
        return False
    # `.to(dtype)`, `.to(other)`: not a device.
    return "indexed" in value.tags or {"cuda", "random"} <= value.tags


def _fixed(value: Value) -> bool:
    """Return whether a device is one certain GPU: ``cuda:0``, or 0."""
    for each in value.constants or ():
        if isinstance(each, str) and each.startswith("cuda:"):
            return True
        if isinstance(each, int) and not isinstance(each, bool) and "flag" not in value.tags:
            return True
    return False


def _current(code: ScriptFacts, chosen: list[tuple[Event, Value]]) -> Finding | None:
    """Return what takes the current device, which is GPU 0 in every process if nothing selects another."""
    chooses = ("set_device", "set_device_index", "device_index", "init_device_mesh")
    if any(code.ran(*chooses)) or code.says("^CUDA_VISIBLE_DEVICES$"):
        return None
    for event, value in chosen:
        if event.last in _WRAPS and value.made == {"torch.cuda.current_device"} and not event.detached:
            what = f"`{event.text}`: the current device is GPU 0 in every process without set_device(local_rank)"
            return at(NO_DEVICE, event, what)
    if (sent := _sent_objects(code)) is not None:
        what = f"`{sent.text}` sends what it pickles through the current device, GPU 0 in every process"
        return at(NO_DEVICE, sent, what)
    return None


_OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")


def _sent_objects(code: ScriptFacts) -> Event | None:
    """Return a collective of objects in the default group, if that is NCCL's and has no device of its own."""
    groups = code.ran("init_process_group", live=True)
    backends = [event.arg("backend", 0) for event in groups]
    nccl = any(each is not None and each.single() == "nccl" for each in backends)
    if len(groups) != 1 or not nccl or groups[0].opened or "device_id" in groups[0].keywords:
        return None
    sends = [e for e in code.ran(*_OBJECTS, live=True) if e.name.startswith("torch.distributed.") and not e.opened]
    sends = [e for e in sends if not any("cuda.device" in name for name in e.contexts)]
    return next((e for e in sends if not e.keywords.keys() & {"group", "device"}), None)


def _default(code: ScriptFacts) -> Iterator[Finding]:
    """Report what goes to the current device, which nobody has set."""
    if code.mentions("set_device", "set_device_index", "device_index") or code.chooses_device():
        return
    if joined_elsewhere(code.events):
        return
    for event in code.events:
        node = event.node
        bare = event.last == "cuda" and event.receiver is not None and not event.receiver.name
        bare = bare and not node.args and "device" not in event.keywords
        target = event.arg("device", 0) if event.last in ("to", "device") else None
        if target is not None and event.name == "torch.device":
            target = event.result
        if bare or (target is not None and target.may_be("cuda") and "flag" not in target.tags):
            # Without a wrapper of the model, something that was not read may place it.
            severity: Severity = "error" if code.wraps is not None and not event.detached else "warning"
            what = f"`{event.text}` in every process without set_device(local_rank)"
            yield at(NO_DEVICE, (event.module, node), what, severity=severity)
            return


def _placed(code: ScriptFacts, before: int) -> Event | None:
    """Return a call that puts a model on the current device, before a place in the order."""
    for event in code.events[:before]:
        if event.detached or event.last not in ("to", "cuda") or event.receiver is None:
            continue
        target = event.arg("device", 0)
        bare = event.last == "cuda" and target is None
        if "model" in event.receiver.tags and (bare or (target is not None and target.may_be("cuda"))):
            return event
    return None


def _late(code: ScriptFacts) -> Iterator[Finding]:
    """Report set_device after the model is wrapped: by then all processes have put it on GPU 0."""
    wraps = [e for e in code.wrapped_events if e.arg("device_ids", 1) is None and e.arg("device_id") is None]
    chosen = [e for e in code.events if e.last == "set_device" and not e.name.startswith("script.")]
    if not chosen or chosen[0].detached:
        return
    placed = _placed(code, chosen[0].order) if not wraps and code.wrapped_events else None
    if placed is not None and not any(
        v.tags & OWN for e in code.events[: placed.order] if e.last != "device" for v in devices_of(e)
    ):
        what = f"set_device comes after `{placed.text}` in line {placed.line}; by then the model is on GPU 0"
        yield at(NO_DEVICE, chosen[0], what, severity="warning")
        return
    if not wraps or chosen[0].order < wraps[0].order:
        return
    explicit = any(v.tags & OWN for e in code.events[: wraps[0].order] for v in devices_of(e))
    if not explicit:
        what = f"set_device comes after {wraps[0].last} in line {wraps[0].line}; by then the model is on GPU 0"
        yield at(NO_DEVICE, chosen[0], what, severity="warning")
