"""Collective operations: every process of the group has to make the call, or the others wait for it for ever."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from trainwright.core.findings import Finding, Rule
from trainwright.script.configurations import of_file, stage_of
from trainwright.script.events import Event, Guard
from trainwright.script.known import DDP, FSDP
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, meant, qualified
from trainwright.script.values import Code, Value

DEADLOCK = Rule(
    code="TW128",
    severity="error",
    title="a collective operation that only some processes reach, so they wait for the others for ever",
    source="PyTorch's documentation of torch.distributed: a collective is called by every process of the group; "
    "Horovod, torch_xla, MPI and FSDP's and SMP's state dictionaries require the same; huggingface/transformers #1081",
    remedy="Move the call out of the condition on the rank; keep only printing and writing inside.",
)
ONE_UPDATE = Rule(
    code="TW169",
    severity="error",
    title="only some processes update their weights or their learning rates",
    source="PyTorch's documentation of DistributedDataParallel: each process runs its own optimizer "
    "with the same gradients, so they stay alike only at the same learning rate",
    remedy="Call optimizer.step() and scheduler.step() in every process, outside of the condition on the rank.",
)
RULES = (DEADLOCK, ONE_UPDATE)
_WORKERS = ("MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy")
_HVD_CALLBACKS = ("BroadcastGlobalVariablesCallback", "BroadcastGlobalVariablesHook", "MetricAverageCallback")
# Communication between two processes, and groups of some of them, are made for some ranks only.
_LIBRARIES = ("transformers.", "lightning.", "pytorch_lightning.", "tensorflow.", "keras.")
_CALLED = ("Callback", "LightningModule")
# Functions that gather or scatter what FSDP shards.
_OF_SHARDS = (
    *("get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict", "set_state_dict"),
    *("set_optimizer_state_dict", "optim_state_dict", "optim_state_dict_to_load", "full_optim_state_dict"),
    *("scatter_full_optim_state_dict", "shard_full_optim_state_dict", "summon_full_params"),
)
_CHECKPOINTS = ("torch.distributed.checkpoint.", "torch.sagemaker.distributed.checkpoint.")
_SHARDED = {"fsdp", "deepspeed", "smp"}


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if not code.several or code.ran("init_rpc"):
        return  # with RPC, processes have different tasks by design
    reported: set[tuple[str, int]] = set()
    for event in code.ran("step", live=True):
        guard = event.by_rank
        updates = event.receiver is not None and bool(event.receiver.tags & {"optimizer", "scaler"})
        updates = updates or any(".lr_scheduler." in made for made in _made(event))
        if guard is None or not event.loops or not updates:
            continue
        if not _answered(code, event, guard) and not _has_task(code, event, guard):
            reported.add((event.module.name, event.line))
            says = condition(guard)
            yield at(ONE_UPDATE, event, f"`{ast.unparse(event.node)[:50]}` only where {says}")
    grouped = [e for e in code.wrapped_events if "process_group" in e.keywords]  # DDP among some of the processes
    for event in code.events:
        what = collective(event) or (_of_xla(event) if code.launcher == "xla" or code.torch_xla else "")
        what = what or _of_accelerate(code, event)
        if what and event.last in _HVD_CALLBACKS and "only-one" in event.result.tags and event.by_rank is None:
            yield at(DEADLOCK, event, f"{what} is a callback of the first process alone")
        guard = event.by_rank if what else None
        if guard is None and what and event.last == "barrier":
            guard = event.under("dp", "rdp")  # of one process in each group, and all processes meet
        if (
            guard is None
            or (event.detached and not called_by_library(code, event))
            or event.under("error")
            or "group" in event.keywords
            or (grouped and (event in grouped or event.last == "backward"))
            or _nobody(code, event)
            or _unlaunched(event)
            or _shared_out(event, guard)
        ):
            continue
        place = (event.module.name, event.line)
        if place in reported or _answered(code, event, guard):
            continue
        reported.add(place)
        half = _half(code, event, guard)
        says = f"{what} runs only where {condition(guard)}"
        decider = _decider(event, guard)
        if decider is not _function(event):
            where = decider.module if decider is not None else code.script.entry
            says += f" in line {guard.node.lineno}" + (f" of {where.name}" if where not in (None, event.module) else "")
        if half is None:
            yield at(DEADLOCK, event, says)
            continue
        reported.add((half[0].module.name, half[0].line))
        says += f", and the one in line {half[0].line} where {condition(half[1])}: they match on the first host only"
        yield at(DEADLOCK, event, says, remedy="Use the local rank in both conditions, or the global rank in both.")


# Of a script's functions, whether a library calls them: the answer takes a look at all that is called.
_KNOWN: WeakKeyDictionary[ScriptFacts, dict[tuple[Code, int], bool]] = WeakKeyDictionary()


def called_by_library(code: ScriptFacts, event: Event) -> bool:
    """Return whether a call is in a method that a library calls in every process: ``on_epoch_end`` of a callback.

    Or in one that such a method calls.
    """
    return bool(event.stack) and _by_library(code, event.stack[0], 2)


def _by_library(code: ScriptFacts, outer: Code, depth: int) -> bool:
    known = _KNOWN.setdefault(code, {})
    if (outer, depth) not in known:
        around = outer.module.parents.get(outer.node)
        if not isinstance(around, ast.ClassDef):
            found = False
        elif re.match("on_(?!exception|keyboard_interrupt)|training_|validation_", outer.name):
            bases = [qualified(outer.module, base) for base in around.bases]
            found = any(base.startswith(_LIBRARIES) and base.endswith(_CALLED) for base in bases)
        else:
            callers = {e.stack[0] for e in code.ran(outer.name) if e.stack and e.by_rank is None} if depth else set()
            found = any(each.node in around.body and _by_library(code, each, depth - 1) for each in callers)
        known[outer, depth] = found
    return known[outer, depth]


def _of_xla(event: Event) -> str:
    """Return how to name a save of a Trainer, which waits for all processes with torch_xla."""
    trainer = event.receiver is not None and any(_hf_trainer(made) for made in event.receiver.made)
    return f"trainer.{event.last}" if trainer and event.last in ("save_model", "_save_tpu") else ""


def _of_accelerate(code: ScriptFacts, event: Event) -> str:
    """Return how to name a call of Accelerate in which all processes that hold shards have to take part."""
    if event.last not in ("get_state_dict", "save_model") or not event.name.startswith("accelerate."):
        return ""
    shards = stage_3_of_accelerate(code) or code.ran("FullyShardedDataParallelPlugin", live=True)
    by_job = code.launch.environment.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true")
    return f"accelerator.{event.last} of a model that is sharded" if shards or by_job else ""


def stage_3_of_accelerate(code: ScriptFacts) -> Event | None:
    """Return the call that makes Accelerate use ZeRO stage 3, or None."""
    for event in code.ran("DeepSpeedPlugin", live=True):
        stage = event.arg("zero_stage", 3)
        if 3 in (
            stage.single() if stage is not None else None,
            stage_of(of_file(event.module, event.arg("hf_ds_config", 0))),
        ):
            return event
    return None


def collective(event: Event) -> str:
    """Return how to name a call that every process has to make; nothing if it is another."""
    if event.role == "collective":
        if event.name.startswith("torch_xla") and event.last == "save" and event.arg("master_only") is not None:
            return ""
        return f"{event.name.rpartition('.')[0].rpartition('.')[2] or '?'}.{event.last}"
    if (DDP.search(event.name) or FSDP.search(event.name)) and not event.name.startswith("script."):
        return f"{event.last}(…)"
    if event.role == "group":
        return event.last
    receiver = event.receiver.tags if event.receiver is not None else frozenset()
    if event.name.startswith(("horovod.", "smdistributed.dataparallel.")) and event.last in _HVD_CALLBACKS:
        return event.last
    if event.last in ("fit", "fit_generator") and "hvd-compiled" in receiver:
        return f"{event.last} of a model whose gradients Horovod averages"
    if event.last == "gradient" and "hvd" in receiver:
        return "gradient of Horovod's tape"
    if event.last == "step" and {"hvd", "optimizer"} <= receiver:
        return "step of Horovod's optimizer"
    if event.name.startswith("script.") and "step-output" in event.result.tags:
        return f"{event.last}, a step of the model parallel library"
    loss = event.args[0].tags if event.args and event.name.startswith("accelerate.") else receiver
    if event.last == "backward" and "wrapped-out" in loss:
        return "backward of a model whose gradients are reduced in it"
    if "fsdp-out" in event.result.tags:
        return f"{ast.unparse(event.node.func)}(…), which gathers the weights that FSDP shards,"
    if event.last == "full_tensor" and event.receiver is not None and not event.args:
        return "full_tensor() of a tensor that the processes share"
    if event.last == "state_dict" and "fsdp" in receiver and "fsdp2" not in receiver:
        return "state_dict of a model that FSDP shards"
    if event.last == "state_dict" and "smp" in receiver and event.under("one"):
        return "state_dict of a model that SMP partitions"
    if event.last in ("reduce", "gather") and event.receiver is not None and event.receiver.made_by(*_WORKERS):
        return f"{event.last} of the strategy of several workers"
    if event.last in ("save_checkpoint", "save_16bit_model") and "deepspeed" in receiver:
        return f"DeepSpeed's {event.last}"
    if event.last == "consolidate_state_dict" and ".ZeroRedundancyOptimizer" in event.name:
        return "consolidate_state_dict of a ZeroRedundancyOptimizer"
    if event.last in _OF_SHARDS and event.name.startswith("torch.distributed"):
        return event.last
    if event.last in ("save", "load") and event.name.startswith("lightning") and ".Fabric." in event.name:
        return f"Fabric's {event.last}"
    if event.name.startswith(_CHECKPOINTS) and event.last in ("save", "load", "async_save"):
        return event.name
    if (
        event.last in ("train", "evaluate", "predict")
        and event.receiver is not None
        and any(_hf_trainer(made) for made in event.receiver.made)
    ):
        return f"trainer.{event.last}"
    return ""


def _made(event: Event) -> frozenset[str]:
    return event.receiver.made if event.receiver is not None else frozenset()


def _hf_trainer(made: str) -> bool:
    return made.startswith(("transformers.", "trl.")) and made.endswith("Trainer") and ".TF" not in made


def condition(guard: Guard) -> str:
    """Return how to name the processes that a condition selects."""
    text = ast.unparse(guard.node)[:50]
    return f"`{text}`" if guard.side else f"not `{text}`"


def _answered(code: ScriptFacts, event: Event, guard: Guard) -> bool:
    """Return whether the processes on the other side of the condition make the same call.

    Either in the other branch, or before or after it: `if rank != 0: barrier()` … `if rank == 0: barrier()`. Where all
    of this is in a function that only some processes call, the condition is that of the caller, and both are under it.
    """
    for _, match in _beside(code, event, guard):
        if code.several_hosts and _of_other_processes(guard, match):
            continue
        kinds = {"others" if _all_but_first(each) else each.kind for each in (guard, match)}
        opposite = kinds in ({"one", "others"}, {"host", "others"})
        if opposite or (match.node is guard.node and match.side is not guard.side):
            return True
        if guard.kind == "ranks" and match.node is not guard.node:
            return True
    return False


def _beside(code: ScriptFacts, event: Event, guard: Guard) -> Iterator[tuple[Event, Guard]]:
    """Yield the same calls in the function of a call, or in its context manager's other method.

    Only those that the same function keeps some processes from: this one, or the same of its callers.
    """
    for other in code.ran(event.last):
        match = other.by_rank
        if match is None:
            continue
        if match.node is guard.node and match.side is not guard.side:
            yield other, match  # `player(link) if rank == 0 else trainer(link)`, in functions of their own, too
        elif _function(other) is _function(event) and _decider(other, match) is _decider(event, guard):
            yield other, match


def _has_task(code: ScriptFacts, event: Event, guard: Guard) -> bool:
    """Return whether the processes on each side run a function of their own: `player() if rank == 0 else trainer()`."""
    if _decider(event, guard) is _function(event):
        return False
    others = (e for e in code.events if e.name.startswith("script."))
    return any(g.node is guard.node and g.side is not guard.side for e in others for g in e.guards)


def _decider(event: Event, guard: Guard) -> Code | None:
    """Return the function around a call that has the condition; None for code outside of functions."""
    around = (each for each in event.stack if each.module.functions.get(guard.node) is each.node)
    return _whole(next(around, None))


def _nobody(code: ScriptFacts, event: Event) -> bool:
    """Return whether the conditions around a call exclude each other: one process, and all the others."""
    kinds = {guard.kind for guard in event.guards}
    others = [guard for guard in event.guards if guard.kind == "others"]
    first_of_host = "host" in kinds and any(guard.local or not code.several_hosts for guard in others)
    return first_of_host or ("one" in kinds and bool(others))


def _shared_out(event: Event, guard: Guard) -> bool:
    """Return whether a loop gives each process every n-th pass: `if step % world_size != rank: continue`."""
    test = guard.node
    return bool(event.loops) and isinstance(test, ast.Compare) and any(isinstance(n, ast.Mod) for n in ast.walk(test))


def _unlaunched(event: Event) -> bool:
    """Return whether a call is only for a process that no launcher has started: `if args.local_rank == -1`."""
    for guard in event.guards:
        both = guard.node.values if isinstance(guard.node, ast.BoolOp) and isinstance(guard.node.op, ast.And) else []
        tests = [ast.unparse(each) for each in both or [guard.node]]
        if guard.side and any(re.search(r"rank == -1$", text) for text in tests):
            return True
    return False


def _all_but_first(guard: Guard) -> bool:
    """Return whether a condition may be that for all but the first: `rank != 0 and not evaluate`, too."""
    return guard.kind == "others" or (guard.kind == "ranks" and isinstance(guard.node, ast.BoolOp))


def _of_other_processes(guard: Guard, match: Guard) -> bool:
    """Return whether one condition tells the processes of a host apart, and the other those of all hosts."""
    unclear = any(each.kind == "ranks" and not each.local for each in (guard, match))  # `rank % 8 == 0`
    return guard.local is not match.local and not unclear


def _half(code: ScriptFacts, event: Event, guard: Guard) -> tuple[Event, Guard] | None:
    """Return a matching call that is reached only on the first host, with its condition."""
    for other, match in _beside(code, event, guard) if code.several_hosts else ():
        first = [each.kind in ("one", "host") for each in (guard, match)]
        if first[0] is not first[1] and _of_other_processes(guard, match):
            return other, match
    return None


def behind_first(code: ScriptFacts, event: Event, path: Value) -> bool:
    """Return whether other processes come to a call when the first has made its file, and only if it is missing.

    `if rank != 0: barrier()`, `if not exists(path): make(path)`, `if rank == 0: barrier()`, or a library's
    ``main_process_first``. Hosts share no disk: if there are several, the first process of each has to be through.
    """
    waits = [e for e in code.ran(*_WAITS, live=True) if collective(e)]
    before: Event | None
    first = [e for e in waits if e.last in _FIRST and e.order < event.order]
    if first and any("main_process_first" in name for name in event.contexts):
        before, each_host = first[-1], _local_first(first[-1])
    else:
        before, each_host = _paired(waits, event)
    if before is None or (code.several_hosts and not each_host):
        return False
    asked = {e.node for e in code.ran(*_ASKS) if before.order < e.order < event.order and _asks_for(e, path, event)}
    inner = (n for guard in event.guards for n in ast.walk(guard.node) if isinstance(n, ast.expr))
    return any(not asked.isdisjoint(ast.walk(meant(event.module, each))) for each in inner)


def _paired(waits: list[Event], event: Event) -> tuple[Event | None, bool]:
    """Return the barrier before a call, in which all but the first process wait for it, and if that is one of a host.

    The first process reaches the one after it in the same function.
    """
    before = next((e for e in reversed(waits) if e.order < event.order), None)
    after = next((e for e in waits if e.order > event.order), None)
    if before is None or after is None or _function(before) is not _function(after):
        return None, False
    held, first = before.by_rank, after.by_rank
    if held is None or first is None or not _all_but_first(held) or first.kind not in ("one", "host"):
        return None, False
    return before, held.local


_FIRST = ("main_process_first", "local_main_process_first")
_WAITS = ("barrier", "Barrier", "wait_for_everyone", "rendezvous", *_FIRST)
_ASKS = ("exists", "isfile", "is_file", "isdir", "is_dir")


def _local_first(event: Event) -> bool:
    """Return whether a library lets the first process of each host go first: the default of transformers alone."""
    local = event.arg("local", 0)
    by_default = event.name.startswith("transformers.") and (local is None or local.single() is not False)
    return by_default or event.last == "local_main_process_first"


def _asks_for(question: Event, path: Value, save: Event) -> bool:
    """Return whether a call asks for the file that another one writes, or for its folder."""
    given = question.args[0] if question.args else question.receiver
    if given is None or given is path:
        return given is not None
    known, wanted = given.single(), path.single()
    if isinstance(known, str) and isinstance(wanted, str):
        return wanted.startswith(known)
    node = question.node.args[0] if question.node.args else question.node.func
    text = ast.unparse(node.value if isinstance(node, ast.Attribute) and not question.node.args else node)
    return text in ast.unparse(save.node)


def _function(event: Event) -> Code | None:
    return _whole(event.stack[-1] if event.stack else None)


def _whole(code: Code | None) -> Code | None:
    """Return a function, or the class of a method by which ``with`` enters or leaves it."""
    return code.owner if code is not None and code.name in ("__enter__", "__exit__") else code
