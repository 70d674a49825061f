"""Several processes: a process group, a wrapped model, a single launcher, a learning rate that fits the batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.sagemaker.toolkit import PYTORCH_TOOLKIT
from trainwright.script.call import Call
from trainwright.script.calls import joined_elsewhere
from trainwright.script.events import Event
from trainwright.script.known import DDP, NO_GRAPH
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, conditions
from trainwright.script.values import WRAPPERS, Value

DOCS = "PyTorch's documentation of torch.distributed"
NO_GROUP = Rule(
    code="TW120",
    severity="warning",
    title="the job starts several processes, but the script joins no process group",
    source=f"{PYTORCH_TOOLKIT} only starts the processes; each would train the whole model alone",
    remedy='torch.distributed.init_process_group("nccl"), and DistributedDataParallel around the model.',
)
SPAWNS_TWICE = Rule(
    code="TW122",
    severity="error",
    title="the launcher starts a process per GPU, and the script starts more",
    source=f"{PYTORCH_TOOLKIT}: torchrun, mpirun and xla_spawn already start one process per GPU",
    remedy="Call the training function directly; rank and world size are in the environment.",
)
LOCAL_RANK_FLAG = Rule(
    code="TW123",
    severity="warning",
    title="the script expects a --local_rank argument, which torchrun does not pass",
    source="PyTorch's documentation of torchrun: the rank is in LOCAL_RANK",
    remedy='default=int(os.environ.get("LOCAL_RANK", 0))',
)
NOT_WRAPPED = Rule(
    code="TW124",
    severity="warning",
    title="a process group is created, but gradients are never averaged",
    source=f"{DOCS}: the group alone shares nothing",
    remedy="model = DistributedDataParallel(model, device_ids=[local_rank])",
)
GROUP_PLACE = Rule(
    code="TW104",
    severity="error",
    title="the process group is created with a rank, size or address that is right on one host only",
    source=f"{DOCS}: rank and world_size count the processes of all hosts, as does a DeviceMesh, and all meet at "
    "one address",
    remedy='init_process_group("nccl") alone: the launcher has set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.',
)
RULES = (
    GROUP_PLACE,
    NO_GROUP,
    SPAWNS_TWICE,
    LOCAL_RANK_FLAG,
    NOT_WRAPPED,
)
_GRADIENTS = re.compile(r"(average|reduce|sync|allreduce)_?\w*grad", re.I)
# Other ways to share gradients: a name of these anywhere means that the script knows what it does.
_SHARES = (
    *("DistributedOptimizer", "average_parameters", "all_reduce_gradients", "parallelize_module", "distribute_tensor"),
    *("DTensor", "PipelineStage", "rpc", "init_rpc", "DistributedDataParallelCPU"),
    *("reduce_scatter", "reduce_scatter_tensor", "replicate", "PipelineParallel", "Pipe"),
)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    yield from _group(code)
    yield from _place(code)
    yield from _by_file(code)
    yield from _of_neuron(code)
    yield from _launchers(code)


def _group(code: ScriptFacts) -> Iterator[Finding]:
    entry = code.script.entry
    if code.managed or code.smp or code.torch_xla or not code.backwards or entry is None or code.incomplete:
        return
    other = code.imports("horovod", "mpi4py", "byteps") is not None
    smddp = code.imports("smdistributed.dataparallel.torch.distributed") is not None  # its first interface
    joined = code.group is not None or any(code.roles("group")) or code.mentions("init_device_mesh", "init_distributed")
    wraps = [e for e in code.wrapped_events if DDP.search(e.name) and not e.detached]
    if smddp and code.job is not None:
        yield from _first_interface(code, wraps)
    if not code.several:
        return
    every = [e for e in code.wrapped_events if not e.detached and e.last != "fully_shard"]
    if every and code.job is not None and (uncalled := code.never_called("init_process_group", "init_device_mesh")):
        what = f"nothing calls {uncalled}, which has the init_process_group"
        yield at(NO_GROUP, every[0], f"{every[0].last}: {what}", severity="error")
        return
    if (never := _never_joined(code)) is not None:
        many = code.launch.processes or code.launch.hosts
        what = f"the job has {many} processes, and nothing in it changes the default that keeps them from coming here"
        yield at(NO_GROUP, never, what)
        return
    if not joined and not other and not smddp:
        # A helper of an installed package may do it; a wrapper alone does not.
        helper = (
            joined_elsewhere(code.events)
            or code.mentions("Accelerator")
            or code.mentions_like("init_dist|setup_dist|init_process|dist_init|setup_ddp|ddp_setup")
        )
        if wraps and not helper and code.spawns is None and code.job is not None:
            what = f"{wraps[0].last} without init_process_group"
            yield at(NO_GROUP, wraps[0], what, severity="error")
        elif (
            code.launcher in ("mpi", "torchrun", "smddp") and not code.wrapped_events and not code.wraps and not helper
        ):
            yield at(NO_GROUP, code.backwards[0], f"the job starts the script with {code.launcher}")
    elif joined and not other:
        groups = [e for e in code.roles("group") if not e.detached]
        if wraps and groups and wraps[0].order < groups[0].order and wraps[0].stack == groups[0].stack:
            what = f"{wraps[0].last} comes before init_process_group in line {groups[0].line}"
            yield at(NO_GROUP, wraps[0], what, severity="error")
        yield from _not_wrapped(code)


def _first_interface(code: ScriptFacts, wraps: list[Event]) -> Iterator[Finding]:
    """Check the first interface of SageMaker's data parallel library, which has a group and a wrapper of its own."""
    package = "smdistributed.dataparallel.torch."
    own = [e for e in code.events if e.name.startswith(package)]
    if own and code.several and not any(e.role == "group" for e in code.events):
        used = own[0]
        what = f"`{ast.unparse(used.node)[:50]}` without init_process_group of the library"
        yield at(NO_GROUP, used, what, severity="error")
        return
    groups = list(code.roles("group"))
    for event in wraps:
        if event.name.startswith("torch.") and groups and all(e.name.startswith(package) for e in groups):
            what = f"`{ast.unparse(event.node)[:50]}` is PyTorch's own, and only the library's process group is created"
            yield at(NO_GROUP, event, what, severity="error")
            return


def _of_neuron(code: ScriptFacts) -> Iterator[Finding]:
    """Report processes that torchrun starts for XLA devices and that never meet."""
    xla = code.torch_xla and code.launcher == "torchrun" and code.several and code.spawns is None
    if not xla or code.incomplete or not code.backwards or code.managed:
        return
    joined = any(code.roles("group")) or code.group is not None or code.mentions_like("init_dist|use_spmd|init_process")
    if not joined and code.xla_distributed and code.imports("optimum", "accelerate") is None:
        what = 'the job starts the script with torchrun, and nothing calls init_process_group("xla")'
        yield at(NO_GROUP, code.backwards[0], what, severity="error")


def _by_file(code: ScriptFacts) -> Iterator[Finding]:
    """Report a file at which the processes of several hosts are to meet, on a disk that they do not share."""
    for event in code.roles("group"):
        method = event.arg("init_method", 1)
        text = method.single() if method is not None else ...
        local = isinstance(text, str) and text.startswith("file:///") and not text.startswith("file:///opt/ml/input")
        if local and code.several_hosts and not event.detached:
            yield at(GROUP_PLACE, event, f"init_method={text!r}: hosts share no disk")
            return


def _never_joined(code: ScriptFacts) -> Event | None:
    """Return the call that joins the processes, if a default of an argument that the job does not set prevents it."""
    groups = list(code.roles("group"))
    if not code.launch.hyperparameters or not groups or any(e.detached for e in groups):
        return None
    return groups[0] if all(event.off for event in groups) else None


def _not_wrapped(code: ScriptFacts) -> Iterator[Finding]:
    place = code.group or code.wraps
    if place is None or code.mentions(*_SHARES) or _by_other_library(code):
        return
    parallel = [e for e in code.ran("DataParallel", live=True) if e.name.startswith("torch") and not e.under("world")]
    if parallel and code.launch.launched and code.several_per_host and not code.wrapped_events:
        event = parallel[0]
        what = "DataParallel uses all GPUs of a host in each of its processes; gradients stay in the process"
        yield at(NOT_WRAPPED, event, what)
        return
    reached = [e for e in code.events if not e.detached]
    if any(_GRADIENTS.search(e.last) or (e.role == "collective" and _of_gradients(e)) for e in reached):
        return
    if code.wrapped_events:
        # The wrapper exists: is it what is trained?
        steps = [e for e in code.ran("backward", live=True) if e.receiver is not None]
        never = [e for e in steps if any(re.fullmatch(r"[A-Za-z0-9_.]+\.no_sync\(\)", name) for name in e.contexts)]
        if never and len(never) == len(steps):
            what = f"every backward is within no_sync, as in line {never[0].line}: no gradient is ever averaged"
            yield at(NOT_WRAPPED, never[0], what)
            return
        yield from _never_synced(code, steps)
        known = [e for e in steps if "out" in _tags(e)]
        if known and not any(_tags(e) & (WRAPPERS | {"wrapped-out"}) for e in known):
            live = [e for e in code.wrapped_events if not e.detached and e.order < known[0].order]
            inner = [e for e in code.ran("module", live=True) if "ddp" in _tags(e)]  # in training: TW434
            taken_off = any(not any(map(NO_GRAPH.search, e.contexts)) for e in inner)
            if live and not taken_off and not any(map(_inside, live)):
                what = f"the loss is computed with the model itself, not with what {live[0].last} returned"
                yield at(NOT_WRAPPED, live[0], what)
        return
    steps = [e for e in code.ran("backward", live=True) if "out" in _tags(e)]
    plain = steps and all("known-out" in _tags(e) and "wrapped-out" not in _tags(e) for e in steps)
    if plain or not code.mentions_like("fsdp|ddp|data_?parallel|sharded"):
        yield at(NOT_WRAPPED, place, "init_process_group without DistributedDataParallel or all_reduce of gradients")
    elif code.wraps is None and not code.mentions_like(
        "fsdp|sharded|_ddp|ddp_(?!rank|local|world)|data_?parallel_?\\w+"
    ):
        used = {n.id for m in code.modules for n in m.nodes if isinstance(n, ast.Name)}
        imported = [name for m in code.modules for name, origin in m.aliases.items() if DDP.search(origin)]
        if not any(name in used for name in imported):
            yield at(NOT_WRAPPED, place, "DistributedDataParallel is imported, but no model is wrapped in it")


def _never_synced(code: ScriptFacts, backwards: list[Event]) -> Iterator[Finding]:
    """Report one of several models whose backward passes are all within its no_sync."""
    for begun in code.ran("no_sync", live=True):
        name = ast.unparse(begun.node)
        model = begun.receiver
        if (
            model is None
            or not begun.loops
            or begun.guards
            or not isinstance(begun.module.parents.get(begun.node), ast.withitem)
        ):
            continue
        optimizers = [e.result for e in code.events if "optimizer" in e.result.tags and e.result.of is model]
        steps = [e for e in code.ran("step", live=True) if e.receiver in optimizers and e.order > begun.order]
        around = steps[0].loops if steps else ()
        if not steps or begun.loops[: len(around)] != around:
            continue
        clears = [e for e in code.ran("zero_grad", live=True) if e.receiver in optimizers and e.order < begun.order]
        after = clears[-1].order if clears else 0
        mine = [e for e in backwards if after < e.order < steps[0].order and e.loops[: len(around)] == around]
        if mine and clears and all(name in e.contexts for e in mine):
            what = (
                f"every backward before `{ast.unparse(steps[0].node)[:40]}` is within {name}: no gradient is averaged"
            )
            yield at(NOT_WRAPPED, mine[0], what)
            return


def _inside(wrap: Event) -> bool:
    """Return whether a part of a model is wrapped in its place: ``model.top = DDP(model.top)``."""
    around = wrap.module.parents.get(wrap.node)
    targets = around.targets if isinstance(around, ast.Assign) else []
    wrapped = [ast.unparse(each) for each in (*wrap.node.args, *(k.value for k in wrap.node.keywords))]
    return any(isinstance(each, ast.Attribute) and ast.unparse(each) in wrapped for each in targets)


def _by_other_library(code: ScriptFacts) -> bool:
    """Return whether a class of an unknown library takes over parameters or optimizer: ``cherry.optim.Distributed``."""
    return any(
        re.match("Distributed|Parallel|Data_?Parallel|Sync", event.last)
        and not event.last.endswith("Sampler")
        and not event.name.startswith(("torch.", "script.", "?"))
        for event in code.events
        if not event.detached
    )


def _tags(event: Event) -> frozenset[str]:
    return event.receiver.tags if event.receiver is not None else frozenset()


def _joined_before(code: ScriptFacts, event: Event) -> bool:
    """Return whether a group is created only if a library, such as Accelerate, has not created one."""
    return code.managed and any("is_initialized" in ast.unparse(guard.node) for guard in event.guards)


def _of_gradients(event: Event) -> bool:
    """Return whether a collective is about gradients or parameters: its argument is, or the function says so."""
    if any(value.tags & {"grad", "params"} for value in (*event.args, *event.keywords.values())):
        return True
    names = " ".join(code.name for code in event.stack)
    return bool(re.search("grad|average_(model|param)", names, re.I)) or "grad" in ast.unparse(event.node)


def _place(code: ScriptFacts) -> Iterator[Finding]:
    """Check the arguments of init_process_group against the job."""
    if code.job is None or not code.several:
        return
    by_launcher = code.launch.launched and code.spawns is None
    for event in code.roles("group"):
        if event.last != "init_process_group" or event.detached:
            continue
        rank, size, method = event.arg("rank", 4), event.arg("world_size", 3), event.arg("init_method", 1)
        what = ""
        written = Call(event.module, event.node, event.name).constant("rank", 4)
        if isinstance(written, int) and (by_launcher or (event.stack and code.spawns is not None)):
            what = f"rank={written} in every process" if not _joined_before(code, event) else ""
        elif code.several_hosts and (local := _of_one_host(code, rank, size)):
            what = local
        elif size is not None and by_launcher and _wrong_size(code, size):
            what = f"world_size={size.single()}, but the job has {code.launch.processes} processes"
        elif method is not None and code.several_hosts:
            text = method.single()
            if isinstance(text, str) and ("localhost" in text or "127.0.0.1" in text):
                what = f"init_method={text!r}: each host would meet only itself"
        backend = event.arg("backend", 0)
        if not what and backend is not None and backend.single() == "nccl" and code.launch.gpus == 0:
            what = 'backend "nccl" on an instance without GPUs'
        if what:
            yield at(GROUP_PLACE, event, what)
            return
    for event in code.ran("init_device_mesh", live=True):
        shape = event.arg("mesh_shape", 1)
        sizes = (shape.items or ()) if shape is not None else ()
        if code.several_hosts and len(sizes) == 1 and _of_one_host(code, None, sizes[0]):
            what = f"`{ast.unparse(event.node)[:60]}`: the GPUs of one host, but the job has several hosts"
            yield at(GROUP_PLACE, event, what)
            return


def _of_one_host(code: ScriptFacts, rank: Value | None, size: Value | None) -> str:
    """Return what is wrong with a rank or size that counts the processes of one host."""
    if (
        size is not None
        and "gpus" in size.tags
        and size.single() in (..., code.launch.gpus)  # not hosts * gpus
        and not size.tags & {"world", "flag"}
    ):
        return "the GPUs of one host as world_size, but the job has several hosts"
    if rank is not None and "local_rank" in rank.tags and "rank" not in rank.tags:
        return "the local rank as rank: it is the same on every host"
    return ""


def _wrong_size(code: ScriptFacts, size: Value) -> bool:
    number, processes = size.single(), code.launch.processes
    return size.sure and isinstance(number, int) and number > 0 and processes not in (None, number)


def _launchers(code: ScriptFacts) -> Iterator[Finding]:
    spawn = code.spawns
    # Not where the launcher decides it: `if os.environ.get("WORLD_SIZE"): main() else: spawn(main)`, and what is below
    # `if __name__ == "__main__"` does not run where xla_spawn imports the script.
    if spawn is not None and not code.incomplete and not any(e.node is spawn.node for e in code.events):
        return
    if spawn is not None and code.launcher in ("torchrun", "mpi", "smddp", "xla"):
        tests = [ast.unparse(test) for test, _ in conditions(spawn.module, spawn.node)]
        # Under a condition of its own, a script may know that a launcher started it.
        severity: Severity = "warning" if any("__name__" not in test for test in tests) else "error"
        what = f"the job's launcher is {code.launcher}, and this starts more processes in each of its processes"
        yield at(SPAWNS_TWICE, spawn, what, severity=severity)
    if code.launcher not in (None, "torchrun") or code.says("^LOCAL_RANK$"):
        return
    chosen = [ast.unparse(e.node) for e in code.ran("set_device") if e.name.startswith("torch")]
    if chosen and not any("local" in text for text in chosen) and code.mentions("device_count"):
        return  # the GPU is found in another way
    alone = code.launch.per_host == 1 and "local_rank" in code.given
    if any(
        isinstance(n, ast.Attribute)
        and n.attr == "local_rank"
        and isinstance(n.ctx, ast.Store)
        and not conditions(m, n)
        for m in code.modules
        for n in m.nodes
    ):
        return  # `args.local_rank, args.rank = get_envs()` of another package
    alone = alone or joined_elsewhere([e for e in code.events if not e.name.startswith("deepspeed.")])
    if alone or (code.managed_by_trainer and not code.mentions("local_rank")):
        return
    for call in code.called("add_argument"):
        names = [a.value for a in call.node.args if isinstance(a, ast.Constant)]
        if {"--local_rank", "--local-rank"} & set(names) and not _read_by_deepspeed(code):
            known = code.launcher == "torchrun"
            what = "--local_rank, but the script never reads LOCAL_RANK"
            # deepspeed.initialize joins the processes itself, and reads LOCAL_RANK.
            alone = known and code.imports("deepspeed") is None and _starts_alone(code, call)
            what += ": without it, no process joins the others" if alone else ""
            severity = "error" if alone else "warning" if known else "note"
            yield at(LOCAL_RANK_FLAG, call, what, severity=severity)
            return


def _starts_alone(code: ScriptFacts, option: Call) -> bool:
    """Return whether the default, -1, stands for one process, and the group is made for other numbers only."""
    groups = [e for e in code.roles("group") if not e.detached]
    tests = [[ast.unparse(guard.node) for guard in e.guards] for e in groups]
    default = option.given("default")
    return (
        default is not None
        and ast.unparse(default) == "-1"
        and bool(groups)
        and all(any(re.search(r"local_rank\b.*-1|-1.*local_rank\b", text) for text in texts) for texts in tests)
    )


def _read_by_deepspeed(code: ScriptFacts) -> bool:
    """Return whether the argument is only there for DeepSpeed, which reads LOCAL_RANK itself."""
    started = any(e.name == "deepspeed.initialize" for e in code.ran("initialize", live=True))
    reads = (
        node
        for module in code.modules
        for node in module.nodes
        if isinstance(node, ast.Attribute) and node.attr == "local_rank" and isinstance(node.ctx, ast.Load)
    )
    return started and all("engine" in ast.unparse(node.value).lower() for node in reads)
