"""Horovod for TensorFlow and PyTorch: the steps of its own guide."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import condition
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at

GUIDE = "Horovod's documentation, usage with TensorFlow, Keras and PyTorch"
STRATEGIES = "TensorFlow's guide for multi-worker training"
NO_INIT = Rule(
    code="TW182",
    severity="error",
    title="Horovod is used but never initialised",
    source=f"{GUIDE}: hvd.init() comes first; without it hvd.rank() raises an error",
    remedy="hvd.init()",
)
NO_PIN = Rule(
    code="TW183",
    severity="error",
    title="every Horovod process of a host uses all of its GPUs",
    source=f"{GUIDE}: pin each process to the GPU of its local rank",
    remedy="tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU') (PyTorch: torch.cuda.set_device)",
)
NO_BROADCAST = Rule(
    code="TW184",
    severity="error",
    title="the processes start with different weights",
    source=f"{GUIDE}: broadcast the initial variables from rank 0 to all other processes; PyTorch's tutorial on "
    "writing distributed applications, run: each process seeds alike before it makes its model",
    remedy="callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)] (loops: hvd.broadcast_variables; PyTorch: "
    "hvd.broadcast_parameters; DistributedDataParallel: load the weights in every process, or before it wraps; "
    "gradients averaged by hand: dist.broadcast(parameter.data, 0) of each)",
)
NOT_REDUCED = Rule(
    code="TW185",
    severity="error",
    title="gradients are never averaged among the Horovod processes",
    source=f"{GUIDE}: wrap the optimizer in hvd.DistributedOptimizer (loops: the tape in hvd.DistributedGradientTape)",
    remedy="optimizer = hvd.DistributedOptimizer(optimizer)",
)
NOT_SHARDED = Rule(
    code="TW186",
    severity="warning",
    title="every process reads all of the data in the same order",
    source=f"{GUIDE}: partition the dataset by rank; {STRATEGIES}: shard the dataset by worker",
    remedy="dataset = dataset.shard(hvd.size(), hvd.rank())",
)
LAUNCHER = Rule(
    code="TW187",
    severity="error",
    title="the job's launcher does not start what the script's library needs",
    source=f"{GUIDE}: processes are started by mpirun; {STRATEGIES}: TF_CONFIG names all workers",
    remedy="distribution: {mpi: {enabled: true, processes_per_host: …}} for Horovod, "
    "{multi_worker_mirrored_strategy: {enabled: true}} for MultiWorkerMirroredStrategy",
)
RULES = (NO_INIT, NO_PIN, NO_BROADCAST, NOT_REDUCED, NOT_SHARDED, LAUNCHER)
_STEPS = (
    "fit",
    "fit_generator",
    "apply_gradients",
    "minimize",
    "train",
)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.horovod and not code.incomplete:
        yield from _horovod(code)


def _horovod(code: ScriptFacts) -> Iterator[Finding]:
    used = [e for e in code.events if e.name.startswith(("horovod.", "smdistributed.dataparallel.tensorflow."))]
    trains = [e for e in code.ran(*_STEPS) if e.receiver is not None and not e.receiver.name] + [
        e for e in code.ran("backward") if e.receiver is not None
    ]
    managed = code.imports("pytorch_lightning", "lightning") is not None
    managed = managed or code.mentions("RayExecutor", "spark")
    if not used or not trains or managed:
        return
    # smp.init() initialises Horovod and gives each process its GPU (AWS guide, Modify a TensorFlow training script).
    divided = code.imports("smdistributed.modelparallel.tensorflow", certain=True) is not None
    if not divided and not any(e.last == "init" for e in used):
        yield at(NO_INIT, used[0], f"`{ast.unparse(used[0].node)[:50]}` without hvd.init()")
        return
    launcher = code.launcher
    sdp = code.imports("smdistributed.dataparallel.tensorflow", certain=True) is not None
    if sdp and launcher not in (None, "smddp"):
        yield at(LAUNCHER, used[0], f"smdistributed.dataparallel needs its own launcher, but the job's is {launcher}")
        return
    if launcher is not None and launcher not in ("mpi", "smddp"):
        yield at(LAUNCHER, used[0], f"Horovod needs mpi, but the job's launcher is {launcher}")
        return
    if not code.several:
        return
    gpus = code.launch.gpus is None or code.launch.gpus > 0
    pins = code.mentions("set_visible_devices", "visible_device_list", "set_device")
    pins = (
        pins
        or code.says("CUDA_VISIBLE_DEVICES")
        or any("local_rank" in v.tags for e in code.ran("to", "cuda", "device") for v in e.args)
    )
    gpus = gpus and (code.tensorflow or code.mentions("cuda") or code.says("^cuda"))
    selects = ("set_visible_devices", "set_device")
    dead = any(code.called(*selects)) and not code.ran(*selects)  # in a function that nothing calls
    pins = pins and not dead and not code.never_called(*selects)
    if code.launch.gpus == 0:
        yield from _no_gpu(code)
    if pins and code.several_per_host and gpus:
        yield from _pinned(code)
    elif code.several_per_host and gpus and not divided and not code.says("cpu$"):
        yield at(NO_PIN, used[0], "no process selects the GPU of hvd.local_rank()")
    yield from _reduced(code, used, trains)
    yield from _read_plain(code)
    starts = (
        "broadcast_variables",
        "broadcast_parameters",
        "broadcast_global_variables",
        "BroadcastGlobalVariablesHook",
    )
    more = ("BroadcastGlobalVariablesCallback", "TorchState", "KerasState", "TensorFlowKerasState", "TensorFlowState")
    # Weights that each process reads are the same, but not where a first start has none to read.
    read = [
        e
        for e in code.ran("load_model", "restore", "load_weights", live=True)
        if not e.under("flag", "clock", "other") and e.by_rank is None and not e.name.startswith("script.")
    ]
    # One process that loads its model leaves the others with theirs.
    loads = code.mentions("load_model") and not any(e.by_rank for e in code.ran("load_model"))
    unused = any(code.called(*starts)) and not code.ran(*starts) and not code.mentions(*more)  # in a dead function
    # A function of a file that was not read: ``broadcast_tensors([p.data for p in model.parameters()], 0)``.
    own = any("broadcast" in e.last and "param" in ast.unparse(e.node) and not e.role for e in code.events)
    if (unused or not code.mentions(*starts, *more)) and not (read or own or (loads and code.says("resume"))):
        yield at(NO_BROADCAST, trains[0], "nothing broadcasts the initial weights from rank 0")
    yield from _unbuilt(code)
    yield from _restored_late(code)
    yield from _shares(code, trains)


def _read_plain(code: ScriptFacts) -> Iterator[Finding]:
    """Report a model that Keras reads and that is trained on: its optimizer is no longer Horovod's.

    Sources: horovod/horovod #120, #359: load_model of Horovod wraps the optimizer that a file has.
    """
    for event in code.ran("load_model", live=True):
        keras = event.name.startswith(("tensorflow.keras.", "keras.")) and not event.opened
        if not keras or event.keywords.keys() & {"custom_objects", "compile"}:
            continue
        later = [e for e in code.events if e.order > event.order and not e.excludes(event)]
        anew = [e for e in later if e.last in ("compile", "DistributedOptimizer")]
        fits = [e for e in later if e.last == "fit" and _trains(e, event)]
        if fits and not anew:
            what = f"`{event.text[:50]}` reads the optimizer inside Horovod's; hvd.load_model wraps it again"
            yield at(NOT_REDUCED, event, what)
            return


def _trains(fit: Event, read: Event) -> bool:
    """Return whether a model is trained on that a call has read, by its name or as what a function returned."""
    around = read.module.parents.get(read.node)
    named = isinstance(around, ast.Assign) and ast.unparse(fit.node.func) == f"{ast.unparse(around.targets[0])}.fit"
    return named or (fit.receiver is not None and read.name in fit.receiver.made)


def _reduced(code: ScriptFacts, used: list[Event], trains: list[Event]) -> Iterator[Finding]:
    wraps = ("DistributedOptimizer", "DistributedGradientTape", "DistributedAdasumOptimizer", "DistributedTrainer")
    reduced = [e for e in used if e.last.startswith(("allreduce", "grouped_allreduce"))]
    # gradient.accumulate() of an @smp.step function
    named = any(re.search("grad|accumulate", ast.unparse(e.node)) for e in reduced)
    if named or any(v.tags & {"grad", "params"} for e in reduced for v in e.args):
        return
    if trains[0].last == "train" and trains[0].receiver is not None and not trains[0].receiver.made:
        return  # what trains was made by another package, which may wrap its optimizer
    if not code.mentions(*wraps):
        yield at(NOT_REDUCED, trains[0], "no hvd.DistributedOptimizer or hvd.DistributedGradientTape")
    elif any(code.called(*wraps)) and not code.ran(*wraps):
        yield at(NOT_REDUCED, trains[0], "hvd.DistributedOptimizer is where this job never comes")
    elif code.launch.hyperparameters and all(e.off for e in code.ran(*wraps)):
        made = code.ran(*wraps)[0]
        assert made.off is not None
        what = f"hvd.{made.last} only where {condition(made.off)}, which nothing in the job sets"
        yield at(NOT_REDUCED, made, what)
    else:
        yield from _unused_optimizer(code)
        waits = [e for e in code.ran("synchronize") if not e.name.startswith("torch.cuda")]
        skips = code.ran("skip_synchronize")
        if skips and not waits:
            yield at(NOT_REDUCED, skips[0], "optimizer.skip_synchronize() without optimizer.synchronize() before it")


def _restored_late(code: ScriptFacts) -> Iterator[Finding]:
    """Report that the first process loads a checkpoint when the others have got its weights already."""
    names = ("broadcast_parameters", "broadcast_variables", "broadcast_global_variables", "broadcast_object")
    sent = [e for e in code.ran(*names, live=True) if e.role == "collective"]
    # Of objects, those that are weights; a callback sends them when fit begins.
    weights = ("model", "state", "params")
    sent = [e for e in sent if e.last != "broadcast_object" or any(v.tags.intersection(weights) for v in e.args)]
    if code.ran("BroadcastGlobalVariablesCallback", live=True):
        return
    for event in code.ran("load_state_dict", "load_weights", "restore", live=True):
        ours = event.receiver is not None and "model" in event.receiver.tags
        if ours and event.under("one") and sent and all(e.order < event.order for e in sent) and not sent[0].loops:
            what = f"`{ast.unparse(event.node)[:50]}` in the first process, after the broadcast in line {sent[-1].line}"
            yield at(NO_BROADCAST, event, what)
            return


def _unbuilt(code: ScriptFacts) -> Iterator[Finding]:
    for event in code.ran("broadcast_variables", live=True):
        if event.role == "collective" and _no_variables(code, event):
            what = f"`{ast.unparse(event.node)[:60]}` before the model is built: it has no variables yet"
            yield at(NO_BROADCAST, event, what)
            return


def _no_variables(code: ScriptFacts, event: Event) -> bool:
    """Return whether a model of the script's own class, whose variables are sent, was neither called nor built."""
    model = event.args[0].of if event.args else None
    if model is None or model.code is None:
        return False
    if "model" not in model.tags or any("build" in method for method in model.code.methods):
        return False
    made = model.code.method("__init__")
    earlier = [e for e in code.events if e.order < event.order and not (made and made in e.stack)]
    starts = ("build", "load_weights", "restore", "fit", "predict", "summary")
    return not any("out" in e.result.tags or e.last in starts for e in earlier)


def _pinned(code: ScriptFacts) -> Iterator[Finding]:
    """Report a GPU that is selected by the global rank, or always the same."""
    for module in code.modules:
        for node in module.nodes:
            target = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""
            if not (target.endswith("visible_device_list") or "'CUDA_VISIBLE_DEVICES'" in target):
                continue
            assert isinstance(node, ast.Assign)
            value = ast.unparse(node.value)
            fixed = isinstance(node.value, ast.Constant) and str(node.value.value).isdigit()
            if fixed or (".rank()" in value and "%" not in value and code.several_hosts):
                what = "the same GPU in every process" if fixed else "the global rank, not the local one"
                yield at(NO_PIN, (module, node), f"`{ast.unparse(node)[:60]}`: {what}")
    for event in code.ran("set_visible_devices"):
        values = [v for arg in event.args for v in (arg, *(arg.items or ()))]
        text = ast.unparse(event.node)
        local = "local_rank" in text or any("of-local" in v.tags for v in values)
        if local or event.detached:
            continue
        if (".rank()" in text or any("of-rank" in v.tags for v in values)) and code.several_hosts:
            yield at(NO_PIN, event, f"`{text[:60]}`: the global rank, not the local one")
        elif "[0]" in text:
            yield at(NO_PIN, event, f"`{text[:60]}`: the same GPU in every process")


def _no_gpu(code: ScriptFacts) -> Iterator[Finding]:
    """Report `gpus[…]` on instances whose list of GPUs is empty."""
    for event in code.ran("set_visible_devices", live=True):
        if event.node.args and isinstance(event.node.args[0], ast.Subscript) and not event.guards:
            yield at(NO_PIN, event, f"`{ast.unparse(event.node)[:60]}`: the job's instances have no GPU to select")
            return


def _unused_optimizer(code: ScriptFacts) -> Iterator[Finding]:
    """Report a model that is compiled, or a loop that steps, with the optimizer itself, not the wrapped one."""
    wrapped = [e for e in code.events if e.role == "hvd-optimizer" and not e.detached]
    if any(e.last == "DistributedGradientTape" for e in wrapped):
        return  # the loop's tape averages; compile only names the metrics
    for event in code.ran("compile", live=True):
        optimizer = event.arg("optimizer", 0)
        around = [
            v for e in code.events if e.result is optimizer for v in e.args
        ]  # such as wrap_optimizer of SageMaker Debugger
        if any("hvd" in each.tags for each in around):
            continue
        if wrapped and optimizer is not None and optimizer.made and "hvd" not in optimizer.tags:
            yield at(NOT_REDUCED, event, f"the model is compiled without the optimizer of line {wrapped[0].line}")
    steps = [e for e in code.ran("step", live=True) if e.receiver is not None and "optimizer" in e.receiver.tags]
    if any("hvd" in e.receiver.tags for e in steps if e.receiver is not None):
        return
    for event in steps:
        outer = next((e for e in wrapped if any(v is event.receiver for v in (*e.args, *e.keywords.values()))), None)
        if outer is not None and event.loops:
            what = f"`{ast.unparse(event.node)[:40]}` steps the optimizer inside the one of line {outer.line}"
            yield at(NOT_REDUCED, event, f"{what}, which is never stepped")
            return


def _shares(code: ScriptFacts, trains: list[Event]) -> Iterator[Finding]:
    by_name = code.mentions_like("shard|sampler|partition|steps_per_epoch|split|take|petastorm|make_batch_reader")
    known = [e for e in code.events if not e.name.startswith(("print", "?.format"))]
    hashed = any(v.tags & {"rank", "dp_rank"} for e in known for v in e.args)
    hashed = hashed or any("sharded" in v.tags for e in trains for v in e.args)
    # rows[hvd.rank() :: hvd.size()]
    indices = (ast.unparse(n.slice) for m in code.modules for n in m.nodes if isinstance(n, ast.Subscript))
    hashed = hashed or any(re.search("(?<!local_)rank", index) for index in indices)
    # number % hvd.size() == hvd.rank()
    compared = (ast.unparse(n) for m in code.modules for n in m.nodes if isinstance(n, ast.Compare))
    hashed = hashed or any("%" in text and re.search("(?<!local_)rank", text) for text in compared)
    pieces = code.mentions("RandomState", "random_shuffle") or code.says("rank")
    if code.tensorflow and code.mentions("shuffle") and code.mentions("repeat"):
        # Horovod's own examples: each process draws its batches from its own order of endless data.
        divided = code.mentions_like("shard|sampler|partition|petastorm|make_batch_reader")
        # Theirs divide the steps of an epoch.
        texts = (ast.unparse(m.tree) for m in code.modules)
        divided = divided or any("// hvd.size()" in text or "// sdp.size()" in text for text in texts)
        steps = [v for e in (*trains, *code.ran("take")) for v in (*e.args, *e.keywords.values())]
        divided = divided or any("world" in value.tags for value in steps)
        seeds = [each for e in code.ran("shuffle", live=True) if (each := e.arg("seed", 1)) is not None]
        if seeds and not any(v.tags & {"rank", "local_rank", "random"} or v.single() is None for v in seeds):
            apart = code.mentions_like("shard|sampler|partition|petastorm|make_batch_reader") or hashed
            if not apart and any("tensorflow.data" in e.name for e in code.events):
                what = "each process reads all of the data in the order of the same seed"
                yield at(NOT_SHARDED, trains[0], what, "warning")
                return
        if not divided and not hashed and any("tensorflow.data" in e.name for e in code.events):
            what = "each process draws from all of the data in an order of its own; an epoch is then no pass over them"
            yield at(NOT_SHARDED, trains[0], what, "note")
        return
    if code.tensorflow and not any("tensorflow.data" in e.name for e in code.events):
        return  # Keras shuffles arrays by itself, differently in each process
    if not by_name and not hashed and not pieces and code.mentions_like("Dataset$|DataLoader"):
        yield at(NOT_SHARDED, trains[0], "no sampler, shard or split by hvd.rank()", "warning")
