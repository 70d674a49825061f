"""SageMaker's model parallel library: initialisation, wrapping, one device per process, the step function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.devices import OWN, devices_of
from trainwright.sagemaker.toolkit import TOOLKIT
from trainwright.script.call import Call
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at
from trainwright.script.values import Value

V1, V2 = "smdistributed.modelparallel", "torch.sagemaker"
GUIDE = "AWS guide for model-parallel training scripts"
NO_INIT = Rule(
    code="TW105",
    severity="error",
    title="the model parallel library is imported but never initialised",
    source=GUIDE,
    remedy="Call smp.init() (version 2: torch.sagemaker.init()) at the start of the script.",
)
NOT_WRAPPED = Rule(
    code="TW106",
    severity="warning",
    title="the model parallel library is initialised, but the model or the optimizer is not wrapped",
    source=GUIDE,
    remedy="model = smp.DistributedModel(model); optimizer = smp.DistributedOptimizer(optimizer)",
)
NO_DEVICE = Rule(
    code="TW107",
    severity="error",
    title="the model parallel library needs one GPU per process, but the script selects none, or shares them",
    source=f"{GUIDE}: one process per GPU, by torch.cuda.set_device(smp.local_rank()); SageMaker Python SDK, "
    "smd_model_parallel_common_api.rst: dp_rank counts those that hold the same part of the model",
    remedy="Call torch.cuda.set_device(smp.local_rank()) right after smp.init().",
)
PLAIN_BACKWARD = Rule(
    code="TW108",
    severity="error",
    title="loss.backward() is called inside an @smp.step function",
    source=f"{GUIDE}: the library splits the backward pass over microbatches and devices itself",
    remedy="model.backward(loss)",
)
NOT_AGREED = Rule(
    code="TW109",
    severity="error",
    title="job and script disagree on whether the model parallel library is used",
    source=f"{TOOLKIT}: mp_parameters reach the script, which alone decides what to do with them",
    remedy="Enable smdistributed.modelparallel in both, or in neither.",
)
NO_STEP = Rule(
    code="TW116",
    severity="error",
    title="the forward and backward pass are not in a function decorated with @smp.step",
    source=f"{GUIDE}: the library runs the decorated function once per microbatch, pipelined over the devices",
    remedy="Move model(…) and model.backward(loss) into a function with @smp.step; call it in the training loop.",
)
STEP_OUTPUT = Rule(
    code="TW117",
    severity="error",
    title="the result of an @smp.step function is used as a tensor",
    source=f"{GUIDE}: it returns a StepOutput with one value per microbatch",
    remedy="loss = step(…).reduce_mean()",
)
PARTIAL = Rule(
    code="TW118",
    severity="error",
    title="a checkpoint of a partitioned model that lacks parts of it",
    source=f"{GUIDE}: each partition saves its own part (partial=True, on one process of each data-parallel group); "
    "state_dict() collects the whole model and is called by all processes of dp_rank 0",
    remedy="if smp.dp_rank() == 0: smp.save(model.local_state_dict(), path, partial=True)",
)
SCALER = Rule(
    code="TW119",
    severity="error",
    title="torch's GradScaler with the model parallel library",
    source=f"{GUIDE}: overflow is found on one partition only; smp.amp.GradScaler agrees on it among all",
    remedy="scaler = smp.amp.GradScaler()",
)
UNEVEN = Rule(
    code="TW413",
    severity="error",
    title="the batch cannot be split into the job's microbatches",
    source=f"{GUIDE}: microbatches must divide the batch size",
    remedy="Make batch_size a multiple of microbatches.",
)
RULES = (UNEVEN, NO_INIT, NOT_WRAPPED, NO_DEVICE, PLAIN_BACKWARD, NOT_AGREED, NO_STEP, STEP_OUTPUT, PARTIAL, SCALER)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    entry = code.script.entry
    enabled = code.job is not None and code.job.model_parallel
    imported = code.imports(V1, V2)
    # SageMakerTrainer and Trainer of transformers call the library themselves.
    if enabled and imported is None and not code.managed and entry is not None:
        yield at(NOT_AGREED, (entry, entry.tree), "the job enables model parallelism, but the script does not use it")
    # A conditional import belongs to a library, another part of which initialises SMP.
    if imported is None or not (enabled or code.imports(V1, V2, certain=True)):
        return
    module = next(m for m in code.modules if imported in m.parents)
    if code.job is not None and not enabled:
        yield at(NOT_AGREED, (module, imported), "the script uses model parallelism, but the job does not enable it")
    first_version = code.imports(V1) is not None
    if enabled and code.launcher == "torchrun" and code.imports(V2) is None and not code.managed:
        what = "the job starts version 2 of the library with torchrun, but the script imports version 1"
        yield at(NOT_AGREED, (module, imported), f"{what}; version 2 is torch.sagemaker")
        return
    inits = [c for c in code.called("init") if c.name.startswith((V1, V2))]
    if not inits and not code.mentions("SMPTrainer"):
        name = "smp.init()" if first_version else "torch.sagemaker.init()"
        yield at(NO_INIT, (module, imported), f"{name} is never called")
    if not first_version and inits and code.job is not None and not code.incomplete:
        degrees = [code.job.smp_parameters.get(f"{kind}_parallel_degree", 1) for kind in ("tensor", "expert")]
        if max((d for d in degrees if isinstance(d, int)), default=1) > 1 and not code.mentions("transform"):
            what = "tsm.transform is never called, so no layer is split as tensor_parallel_degree says"
            yield at(NOT_WRAPPED, inits[0], what)
    if not first_version or not inits:
        return
    if code.imports("smdistributed.modelparallel.torch") is None:
        return
    yield from _torch(code, inits[0])


def _torch(code: ScriptFacts, init: Call) -> Iterator[Finding]:
    """Check the steps of the guide for PyTorch."""
    missing = [name for name in ("DistributedModel", "DistributedOptimizer") if not code.mentions(name)]
    trains = bool(code.backwards) or code.mentions("DistributedModel")
    if missing and trains and not code.incomplete:
        yield at(NOT_WRAPPED, init, f"smp.{' and smp.'.join(missing)} not used")
    selects = code.mentions("set_device") or code.chooses_device()
    selects = selects or any("local_rank" in v.tags for e in code.ran("to", "cuda", "device") for v in e.args)
    if not selects:
        yield at(NO_DEVICE, init, "no torch.cuda.set_device(smp.local_rank()) after smp.init()")
    yield from _by_replica(code)
    yield from _plain_backward(code)
    decorated = any(_in_step(e) for e in code.events)
    wrapped = any(e.name == f"{V1}.torch.step" for e in code.events)
    passes = code.ran("backward", live=True)
    outside = [
        e
        for e in passes
        if e.receiver is not None
        and "smp" in e.receiver.tags
        and e.args
        and not _in_step(e)
        # The branch of a training without microbatches stands beside one with them.
        and not any(e.excludes(other) for other in passes if _in_step(other))
        and not _chosen(e)
    ]
    if outside and decorated and not wrapped:
        event = outside[0]
        yield at(NO_STEP, event, f"`{ast.unparse(event.node)[:50]}` outside of an @smp.step function")
    yield from _microbatches(code)
    for event in code.events:
        smp_model = event.model is not None and "smp" in event.model.tags
        if (
            smp_model
            and decorated
            and not wrapped
            and not event.detached
            and not _in_step(event)
            and not _chosen(event)
        ):
            what = f"`{ast.unparse(event.node)[:50]}` outside of an @smp.step function"
            yield at(NO_STEP, event, what)
            break
    if code.backwards and not (decorated or wrapped) and not missing:
        yield at(
            NO_STEP, code.backwards[0], f"`{ast.unparse(code.backwards[0].node)[:50]}` outside of an @smp.step function"
        )
    for event in code.events:
        yield from _step_output(event)
        inside = any(name.startswith("@smdistributed") for name in event.contexts)
        if inside and event.last == "step" and event.receiver is not None and "optimizer" in event.receiver.tags:
            what = "the optimizer steps inside the @smp.step function, once per microbatch"
            yield at(PLAIN_BACKWARD, event, what)
        if event.last == "GradScaler" and event.name.startswith("torch."):
            yield at(SCALER, event, f"`{ast.unparse(event.node)[:50]}`")
    yield from _partial(code)
    yield from _loaded_whole(code)


def _by_replica(code: ScriptFacts) -> Iterator[Finding]:
    """Report a GPU chosen by the data-parallel rank, which processes with parts of the same model share."""
    given = code.job.smp_parameters if code.job is not None else {}
    stages = given.get("pipeline_parallel_degree", given.get("partitions", 1))
    parts = given.get("tensor_parallel_degree", 1)
    if not isinstance(stages, int) or not isinstance(parts, int):
        return
    if code.several_hosts and given.get("placement_strategy", "cluster") != "cluster":
        return  # the parts of a model may be on different hosts
    for event in code.ran("set_device", "set_device_index", "to", "cuda", live=True):
        for value in devices_of(event):
            if "dp_rank" not in value.tags or value.tags & OWN:
                continue
            # Tensor-parallel processes differ in dp_rank, and not in rdp_rank.
            sharing = stages * parts if "rdp_rank" in value.tags else stages
            if sharing > 1:
                what = f"`{event.text}` uses the data-parallel rank, which {sharing} processes share"
                yield at(NO_DEVICE, event, what)
                return


def _plain_backward(code: ScriptFacts) -> Iterator[Finding]:
    """Report `loss.backward()` in a step function, or in what it calls."""
    for event in code.ran("backward"):
        base = event.receiver
        loss = base is not None and ("out" in base.tags or "loss" in ast.unparse(event.node.func).lower())
        if _in_step(event) and loss and not event.node.args and event.stack:
            what = f"`{ast.unparse(event.node)[:40]}` in {event.stack[-1].name}, within an @smp.step function"
            yield at(PLAIN_BACKWARD, event, what)


def _in_step(event: Event) -> bool:
    return any(name.startswith("@") and name.endswith(".step") for name in event.contexts)


def _chosen(event: Event) -> bool:
    """Return whether a condition other than the end of the training decides whether the call is made."""
    for guard in event.guards:
        outer = next((n for n in ancestors(event.module, guard.node) if isinstance(n, ast.stmt)), None)
        ends = isinstance(outer, ast.If) and isinstance(outer.body[-1], ast.Break | ast.Return | ast.Raise)
        if not (ends or isinstance(outer, ast.While)):
            return True
    return False


def _microbatches(code: ScriptFacts) -> Iterator[Finding]:
    """Report a constant batch that SMP cannot split into the job's microbatches."""
    parts = code.job.smp_parameters.get("microbatches", 1) if code.job is not None else 1
    for event in code.ran("DataLoader", live=True):
        size = event.arg("batch_size", 1)
        if size is None:
            continue
        number = size.single()
        if isinstance(number, int) and isinstance(parts, int) and number > 1 and parts > 1 and number % parts:
            what = f"batches of {number} cannot be split into {parts} microbatches"
            yield at(UNEVEN, event, what)
            return


_REDUCED = ("reduce_mean", "concat", "stack", "reduce_sum", "merge")


def _step_output(event: Event) -> Iterator[Finding]:
    fetches = event.last in ("item", "cpu", "backward", "detach", "numpy")
    used = event.args if event.name in ("float", "int") else [event.receiver] if fetches else []
    if any(value is not None and "step-output" in value.tags and not value.made_by(*_REDUCED) for value in used):
        yield at(STEP_OUTPUT, event, f"`{ast.unparse(event.node)[:50]}`")


def _partial(code: ScriptFacts) -> Iterator[Finding]:
    for event in code.events:
        if event.name not in (f"{V1}.torch.save", "torch.save"):
            continue
        saved, partial = event.arg("obj", 0), event.arg("partial", 2)
        tags = saved.tags if saved is not None else frozenset()
        part = is_part(event)
        text = ast.unparse(event.node)[:50]
        if part and event.under("one"):
            yield at(PARTIAL, event, f"`{text}` on the first process only: the other parts are lost")
        elif part and event.name == "torch.save" and not re.search("rank", ast.unparse(event.node)):
            yield at(PARTIAL, event, f"`{text}`: every partition writes its part to the same file")
        elif "partial" in tags and partial is not None and partial.single() is False:
            yield at(PARTIAL, event, f"`{text}`: local_state_dict() is a part, not the whole model")


def is_part(event: Event) -> bool:
    """Return whether what is saved is the part of one process."""
    saved, partial = event.arg("obj", 0), event.arg("partial", 2)
    of_part = saved is not None and "partial" in saved.tags
    return of_part or (partial is not None and partial.single() is True)


def _loaded_whole(code: ScriptFacts) -> Iterator[Finding]:
    """Report smp.load of a whole checkpoint where the script saves parts alone, and the other way round."""
    saved = {_partly(e, 2) for e in code.events if e.name == f"{V1}.torch.save"}
    for event in (e for e in code.events if e.name == f"{V1}.torch.load"):
        for other in saved if len(saved) == 1 else ():
            if {other, _partly(event, 4)} == {True, False}:
                what = f"`{ast.unparse(event.node)[:50]}`: the checkpoints were saved with partial={other}"
                yield at(PARTIAL, event, what)
                return


def _partly(event: Event, place: int) -> object:
    """Return the argument ``partial``, which is True by default; Ellipsis if it is not known."""
    given = event.arg("partial", place)
    return given.single() if given is not None else True


def of_prescaled_batch(code: ScriptFacts, count: Value | None, rank: Value | None) -> tuple[str, Severity, str] | None:
    """Return what is wrong with a share of the data in a tensor-parallel job of SMP v1, how bad it is, and a remedy.

    SageMaker Python SDK, doc/api/training, smd_model_parallel_general.rst, Prescaled Batch: with it, the processes of a
    tensor-parallel group must read the same batch, by rdp_size() and rdp_rank(); by default each reads its own.
    """
    given = code.job.smp_parameters if code.job is not None else {}
    degree, prescaled = given.get("tensor_parallel_degree", 1), given.get("prescaled_batch", False)
    if count is None or code.imports(f"{V1}.torch") is None or not isinstance(degree, int) or degree < 2:
        return None
    if prescaled is True and "dp_size" in count.tags and "rdp_size" not in count.tags:
        what = f"with prescaled_batch the {degree} processes of a tensor-parallel group must read the same rows"
        return what, "error", "DistributedSampler(dataset, num_replicas=smp.rdp_size(), rank=smp.rdp_rank())"
    reduced = rank is not None and "rdp_size" in count.tags and "rdp_rank" in rank.tags
    if prescaled is False and reduced and not (code.mentions_like("prescaled") or code.says("prescaled")):
        what = f"without prescaled_batch the {degree} processes of a tensor-parallel group train on the same rows, "
        remedy = "DistributedSampler(dataset, num_replicas=smp.dp_size(), rank=smp.dp_rank())"
        return f"{what}as if they were different", "warning", remedy
    return None
