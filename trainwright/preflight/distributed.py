"""Several processes: a process group, one GPU each, launchers that agree, a learning rate that fits the batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import at, conditions, enclosing_function

DOCS = "PyTorch's documentation of torch.distributed"
TOOLKIT = "sagemaker-pytorch-training 3.0.0"
NO_GROUP = Rule(
    code="TW120",
    severity="warning",
    title="the job starts several processes, and the script joins no process group",
    source=f"{TOOLKIT} only starts the processes; each would train the whole model alone",
    remedy='torch.distributed.init_process_group("nccl"), and DistributedDataParallel around the model.',
)
NO_DEVICE = Rule(
    code="TW121",
    severity="error",
    title="several processes use CUDA, and none of them chooses its own GPU",
    source=f"{DOCS}: without it every process of a host uses GPU 0; AWS guide for distributed training scripts",
    remedy='torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything is moved to a GPU.',
)
SPAWNS_TWICE = Rule(
    code="TW122",
    severity="error",
    title="the launcher starts a process per GPU, and the script starts processes again",
    source=f"{TOOLKIT}: torchrun, mpirun and xla_spawn already start one process per GPU",
    remedy="Call the training function itself; rank and world size are in the environment.",
)
LOCAL_RANK_FLAG = Rule(
    code="TW123",
    severity="warning",
    title="the script waits for a --local_rank argument, which torchrun does not pass",
    source="PyTorch's documentation of torchrun: the rank is in LOCAL_RANK",
    remedy='default=int(os.environ.get("LOCAL_RANK", 0))',
)
NOT_WRAPPED = Rule(
    code="TW124",
    severity="warning",
    title="a process group is made, and gradients are never averaged",
    source=f"{DOCS}: the group alone shares nothing",
    remedy="model = DistributedDataParallel(model, device_ids=[local_rank])",
)
LEARNING_RATE = Rule(
    code="TW125",
    severity="warning",
    title="the batch grows with the number of replicas, and the learning rate stays as it was",
    source="AWS guides: for k times the batch, k times the learning rate (or its square root), then tune",
    remedy="Scale it in the script by the world size, or give the new rate as a hyperparameter of the job.",
)
SMDDP_BACKEND = Rule(
    code="TW126",
    severity="error",
    title='backend "smddp" without the import that registers it',
    source="AWS guide for SageMaker's data parallel library, 1.4.0 and newer",
    remedy="import smdistributed.dataparallel.torch.torch_smddp",
)
SMDDP_UNUSED = Rule(
    code="TW127",
    severity="warning",
    title="the job uses the launcher of SageMaker's data parallel library, and the script does not use the library",
    source="AWS guide for SageMaker's data parallel library: the launcher alone speeds nothing up",
    remedy='import smdistributed.dataparallel.torch.torch_smddp; init_process_group(backend="smddp")',
)
RULES = (
    NO_GROUP,
    NO_DEVICE,
    SPAWNS_TWICE,
    LOCAL_RANK_FLAG,
    NOT_WRAPPED,
    LEARNING_RATE,
    SMDDP_BACKEND,
    SMDDP_UNUSED,
)
RATE = re.compile(r"(?<![a-z])lr(?![a-z])|learning.?rate", re.I)
BATCH = re.compile(r"batch|\bbs\b", re.I)
GROWTH = re.compile(r"world_size|num_replicas|ordinal|dp_size|n_?gpus?|device_count|num_processes|batch|size\(\)", re.I)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """The rules of this family."""
    yield from _group(code)
    yield from _devices(code)
    yield from _launchers(code)
    yield from _smddp(code)
    yield from _learning_rate(code)


def _group(code: ScriptFacts) -> Iterator[Finding]:
    entry = code.script.entry
    if code.managed or code.smp or code.torch_xla or not code.backwards or entry is None:
        return
    other = code.imports("horovod", "mpi4py", "byteps", "smdistributed") is not None
    if code.launcher in ("mpi", "torchrun", "smddp") and code.group is None and not other:
        # A helper of an installed package may do it; then a wrapper of the model still shows.
        if code.wraps is None:
            yield at(NO_GROUP, code.backwards[0], f"the job starts the script with {code.launcher}")
    elif code.group is not None and code.wraps is None and not other:
        shares = ("all_reduce", "DistributedOptimizer", "average_parameters", "all_reduce_gradients", "reduce")
        parallel = ("parallelize_module", "distribute_tensor", "DTensor", "PipelineStage", "rpc", "init_rpc")
        apex = (
            "DDP",
            "DistributedDataParallelCPU",
            "FullyShardedDataParallel",
            "ZeroRedundancyOptimizer",
            "fully_shard",
        )
        known = code.mentions(*shares, *parallel, *apex, "reduce_scatter", "replicate")
        if not known and not code.mentions_like("fsdp|ddp|data_?parallel|sharded"):
            yield at(NOT_WRAPPED, code.group, "init_process_group without DistributedDataParallel or all_reduce")


def _devices(code: ScriptFacts) -> Iterator[Finding]:
    if not (code.group or code.wraps) or code.managed or code.smp or code.torch_xla:
        return
    if code.mentions("set_device", "set_device_index", "device_ids", "device_index") or code.chooses_device():
        yield from _late_device(code)
        return
    for call in code.calls:
        bare = (
            call.last == "cuda" and call.receiver not in ("", "torch") and not call.node.args and not call.node.keywords
        )
        moved = call.last == "to" and call.constant("device", 0) == "cuda"
        made = call.name == "torch.device" and len(call.node.args) == 1 and _may_be_cuda(call.node.args[0])
        if bare or moved or made:
            # Without a wrapper of the model, something that was not read may place it.
            severity: Severity = "error" if code.wraps is not None else "warning"
            what = f"`{ast.unparse(call.node)[:60]}` in every process, and no set_device(local_rank)"
            yield at(NO_DEVICE, call, what, severity=severity)
            return


def _late_device(code: ScriptFacts) -> Iterator[Finding]:
    """set_device behind the wrapper of the model: all processes have put it on GPU 0 by then."""
    wrap = code.wraps
    if wrap is None or wrap.given("device_ids", 1) is not None or code.chooses_device():
        return
    function = enclosing_function(wrap.module, wrap.node)
    chosen = [c for c in code.called("set_device") if c.module is wrap.module]
    here = [c for c in chosen if enclosing_function(c.module, c.node) is function]
    if here and len(here) == len(chosen) and all(c.line > wrap.line for c in here):
        what = f"set_device stands behind {wrap.last} in line {wrap.line}: by then the model is on GPU 0"
        yield at(NO_DEVICE, here[0], what, severity="warning")


def _may_be_cuda(node: ast.expr) -> bool:
    """The text ``cuda``, or a choice with it on one side."""
    if isinstance(node, ast.IfExp):
        return _may_be_cuda(node.body) or _may_be_cuda(node.orelse)
    return isinstance(node, ast.Constant) and node.value == "cuda"


def _launchers(code: ScriptFacts) -> Iterator[Finding]:
    spawn = code.spawns
    if spawn is not None and code.launcher in ("torchrun", "mpi", "smddp", "xla"):
        entry = code.script.entry
        tests = [ast.unparse(test) for test, _ in conditions(spawn.module, spawn.node)]
        main = any("__name__" in test for test in tests)
        # Under a condition of its own, a script may know that somebody else started it.
        severity: Severity = "warning" if any("__name__" not in test for test in tests) else "error"
        # xla_spawn imports the script, so what stands below `if __name__ == "__main__"` does not run.
        if not (code.launcher == "xla" and main and spawn.module is entry):
            what = f"the job's launcher is {code.launcher}, and this starts processes in each of its processes"
            yield at(SPAWNS_TWICE, spawn, what, severity=severity)
    if code.launcher not in (None, "torchrun") or code.says("^LOCAL_RANK$"):
        return
    for call in code.called("add_argument"):
        names = [a.value for a in call.node.args if isinstance(a, ast.Constant)]
        if {"--local_rank", "--local-rank"} & set(names):
            known = code.launcher == "torchrun" or code.mentions("nprocs")
            what = "--local_rank, and the script never reads LOCAL_RANK"
            yield at(LOCAL_RANK_FLAG, call, what, severity="warning" if known else "note")
            return


def _smddp(code: ScriptFacts) -> Iterator[Finding]:
    registered = code.imports("smdistributed.dataparallel") is not None
    if code.group is not None and code.group.constant("backend", 0) == "smddp" and not registered:
        yield at(SMDDP_BACKEND, code.group, "nothing registers the backend smddp")
    entry = code.script.entry
    asked = code.launcher == "smddp" and code.job is not None and "pytorchddp" not in code.job.distribution
    if asked and not registered and not code.managed and entry is not None and not code.says("^smddp$"):
        yield at(SMDDP_UNUSED, (entry, entry.tree), "smdistributed.dataparallel is switched on in the job alone")


def _scaled(code: ScriptFacts) -> bool:
    """The script scales its learning rate, or divides a fixed batch among the processes."""
    for module in code.modules:
        for node in module.nodes:
            if not isinstance(node, ast.BinOp | ast.AugAssign):
                continue
            text = ast.unparse(node)
            if RATE.search(text) and GROWTH.search(text):
                return True
            left = ast.unparse(node.left if isinstance(node, ast.BinOp) else node.target)
            right = ast.unparse(node.right if isinstance(node, ast.BinOp) else node.value)
            if isinstance(node.op, ast.Div | ast.FloorDiv) and BATCH.search(left) and GROWTH.search(right):
                return True
    return False


def _learning_rate(code: ScriptFacts) -> Iterator[Finding]:
    job = code.job
    if job is None or job.launcher == "process" or code.smp or job.model_parallel or not code.cooperates:
        return
    grows = job.hosts * (job.processes_per_host or 1) > 1
    if job.batch is not None and job.batch.global_ and job.batch.per_replica:
        grows = job.batch.global_ > job.batch.per_replica
    # Processes that share one model's parts do not share out the data.
    tensors = code.mentions("parallelize_module", "ColwiseParallel", "RowwiseParallel", "PipelineStage")
    if not grows or tensors or any(RATE.search(name) for name in job.hyperparameters) or _scaled(code):
        return
    for call in code.calls:
        rate = call.given("lr") or call.given("learning_rate")
        # An optimizer is a class (torch.optim.SGD); a parser, a config or a helper may take an lr, too.
        if rate is None or not call.last[:1].isupper():
            continue
        if GROWTH.search(ast.unparse(rate)):
            return
        world = f"{job.hosts} x {job.processes_per_host or '?'} processes"
        yield at(LEARNING_RATE, call, f"{call.last}(lr={ast.unparse(rate)[:30]}) is the same for {world}")
        return
