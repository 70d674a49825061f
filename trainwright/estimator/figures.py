"""A job in numbers: processes, replicas, batches, steps, learning rates, memory.

The terms are those of AWS's guide for distributed training: the cluster size is instances x GPUs, the global batch is
replicas x a replica's batch, iterations per epoch are training samples / global batch, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod, sqrt

from trainwright.core.findings import Finding
from trainwright.core.records import Field, Record
from trainwright.estimator.rules_job import BATCH, FEWER, MEMORY
from trainwright.estimator.subject import Subject, enabled
from trainwright.sagemaker.instances import Instance, load_instances
from trainwright.sagemaker.job import Job
from trainwright.sagemaker.smp_parameters import PLACEMENTS

# Bytes of weights, gradients and optimizer state per parameter: with Adam in mixed precision 2 + 2 + 12 (a copy of the
# weights, momentum, variance in 32 bits), in 32 bits 4 + 4 + 8; with momentum 4 + 4 + 4; with plain SGD 4 + 4.
STATE_BYTES = {"adam": 16, "adamw": 16, "momentum": 12, "sgd": 8}
RATES = ("learning_rate", "learning-rate", "lr", "base_lr", "base-lr")
GIB = 2**30


class Memory(Record):
    """A model's state compared with a GPU's memory. Activations and the batch need additional memory."""

    parameters: float
    bytes_per_parameter: int
    state_gib: float = Field(description="GiB of the whole model's weights, gradients and optimizer state")
    shards: int = Field(description="GPUs that share the state of one replica")
    gib_per_gpu: float
    gpu_memory_gib: float | None
    fits: bool | None = Field(description="null: the GPU's memory is unknown")


class Alternative(Record):
    """The same number of the same GPUs in fewer instances."""

    instance_type: str
    instance_count: int
    efa: int


class LearningRate(Record):
    """A learning rate for a batch that is ``factor`` times as large."""

    base: float
    tuned_for: int = Field(description="samples of the global batch that `base` was found for")
    factor: float
    linear: float = Field(description="base x factor")
    square_root: float = Field(description="base x the square root of factor")


class Figures(Record):
    """The numbers of a job; null if unknown."""

    hosts: int
    instance_type: str | None
    gpus_per_host: int | None
    cluster_size: int | None = Field(description="instances x GPUs")
    processes_per_host: int | None
    processes: int | None = Field(description="the world size that every rank should see")
    pipeline_parallel_degree: int
    tensor_parallel_degree: int
    replicas: int | None = Field(description="processes / (pipeline degree x tensor degree)")
    replica_ranks: tuple[tuple[int, ...], ...] = Field(
        description="which processes share a replica; empty if each has its own"
    )
    per_replica_batch: int | None
    global_batch: int | None
    microbatches: int | None
    microbatch: int | None = Field(description="samples")
    samples: int | None
    iterations_per_epoch: int | None
    learning_rate: LearningRate | None
    memory: Memory | None
    alternatives: tuple[Alternative, ...]
    efa_per_host: int | None
    vcpus_per_process: int | None = Field(description="for the workers of its data loader")


def figures(subject: Subject) -> Figures:
    """Return the numbers of a job; :func:`check` reports contradictions."""
    job = subject.job
    kind = subject.instances[0][1] if subject.instances else None
    pipeline, tensor = subject.degree("pipeline_parallel_degree"), subject.degree("tensor_parallel_degree")
    replicas = _replicas(subject)
    each, total = _batches(subject, replicas)
    count, micro = _micro(subject, each)
    samples = job.batch.samples if job.batch else None
    return Figures(
        hosts=subject.hosts,
        instance_type=kind.name if kind else None,
        gpus_per_host=subject.gpus,
        cluster_size=None if kind is None else sum(i.gpus * n for _, i, n in subject.instances),
        processes_per_host=subject.processes_per_host,
        processes=subject.world,
        pipeline_parallel_degree=pipeline,
        tensor_parallel_degree=tensor,
        replicas=replicas,
        replica_ranks=tuple(replica_ranks(replicas, pipeline, tensor, _order(subject))) if replicas else (),
        per_replica_batch=each,
        global_batch=total,
        microbatches=count,
        microbatch=micro,
        samples=samples,
        iterations_per_epoch=ceil(samples / total) if samples and total else None,
        learning_rate=_rate(subject, each, total),
        memory=_memory(subject),
        alternatives=tuple(alternatives(subject)),
        efa_per_host=kind.efa if kind else None,
        vcpus_per_process=kind.vcpus // (subject.processes_per_host or 1) if kind else None,
    )


def check(subject: Subject) -> Iterator[Finding]:
    """Report contradictions between the numbers of the job."""
    job, replicas = subject.job, _replicas(subject)
    batch = job.batch
    steps = _accumulated(job)
    product = replicas * batch.per_replica * (steps or 1) if batch and batch.per_replica and replicas else None
    if batch and batch.global_ and product and batch.global_ != product:
        accumulated = f" x {steps} steps" if steps else ""
        more = "" if steps or batch.global_ % product else f", unless {batch.global_ // product} steps are accumulated"
        yield BATCH.finding(
            f"{replicas} replicas x {batch.per_replica} samples{accumulated} = {product}, not {batch.global_}{more}",
            path="batch.global",
            remedy=f"global: {product}, or another per_replica.",
            severity="warning" if more else None,
        )
    elif batch and batch.global_ and replicas and batch.global_ % replicas:
        yield BATCH.finding(
            f"a global batch of {batch.global_} cannot be divided among {replicas} replicas", path="batch.global"
        )
    each, _ = _batches(subject, replicas)
    count, _ = _micro(subject, None)
    if batch and batch.micro and each and each % batch.micro:
        yield BATCH.finding(f"{each} samples per replica are not a multiple of {batch.micro}", path="batch.micro")
    elif batch and batch.micro and each and count and batch.micro * count != each:
        yield BATCH.finding(f"{count} microbatches x {batch.micro} samples do not make {each}", path="batch.micro")
    memory = _memory(subject)
    if memory and memory.fits is False:
        yield MEMORY.finding(
            f"{memory.gib_per_gpu:.0f} GiB of state per GPU ({memory.parameters:.3g} parameters x "
            f"{memory.bytes_per_parameter} bytes / {memory.shards}), but the GPU has {memory.gpu_memory_gib:.0f} GiB",
            path="model.parameters",
        )
    for other in alternatives(subject)[:1]:
        path, kind, count_ = subject.instances[0]
        yield FEWER.finding(
            f"{count_} x {kind.name} has the same GPUs as {other.instance_count} x {other.instance_type}",
            path=path,
            remedy=f"instance_type: {other.instance_type}, instance_count: {other.instance_count}",
        )


def scaled_rates(base: float, factor: float) -> tuple[float, float]:
    """Scale a learning rate for a batch ``factor`` times as large, by the linear and the square root rule."""
    return base * factor, base * sqrt(factor)


def replica_ranks(replicas: int, pipeline: int, tensor: int, order: str) -> list[tuple[int, ...]]:
    """Return the ranks of each replica, as the model parallel library places them.

    Args:
        replicas: their number.
        pipeline, tensor: the degrees.
        order: ``placement_strategy`` as the library's letters: replicas (D), pipeline (P), tensor (T); neighbouring
            ranks differ in the last one.
    """
    if pipeline * tensor == 1:
        return []
    sizes = {"D": replicas, "P": pipeline, "T": tensor}
    apart = prod(sizes[letter] for letter in order[order.index("D") + 1 :])
    groups: list[list[int]] = [[] for _ in range(replicas)]
    for rank in range(replicas * pipeline * tensor):
        groups[rank // apart % replicas].append(rank)
    return [tuple(group) for group in groups]


def alternatives(subject: Subject) -> list[Alternative]:
    """Return larger types with the same GPU that give the job exactly its GPUs, fewest hosts first."""
    if len(subject.instances) != 1 or subject.launcher == "process":
        return []
    _, kind, count = subject.instances[0]
    if kind.gpus == 0 or count < 2:
        return []
    total = kind.gpus * count
    found = [
        other
        for other in load_instances().values()
        if other.gpu is not None and _same_gpu(other, kind) and other.gpus > kind.gpus and total % other.gpus == 0
    ]
    # Among types with the same number of GPUs: more EFA interfaces first, then the smaller type.
    found.sort(key=lambda other: (-other.gpus, -other.efa, other.vcpus))
    best: dict[int, Instance] = {}
    for other in found:
        best.setdefault(other.gpus, other)
    return [
        Alternative(instance_type=other.name, instance_count=total // other.gpus, efa=other.efa)
        for other in best.values()
    ]


def _same_gpu(other: Instance, kind: Instance) -> bool:
    return other.gpu == kind.gpu and (other.gpu_memory_gib or 0) >= (kind.gpu_memory_gib or 0)


def _order(subject: Subject) -> str:
    given = subject.smp_parameters.get("placement_strategy")
    return given if given in PLACEMENTS else "TPD" if given == "spread" else "DPT"


def _replicas(subject: Subject) -> int | None:
    """Return the number of copies of the model that train together; None if unknown."""
    if subject.launcher == "process":
        return 1
    if subject.launcher == "mwms":
        # TensorFlow itself places a replica on each GPU of a worker.
        return subject.hosts * max(subject.gpus or 1, 1)
    share = subject.degree("pipeline_parallel_degree") * subject.degree("tensor_parallel_degree")
    return None if subject.world is None or subject.world % share else subject.world // share


def _accumulated(job: Job) -> int | None:
    """Return over how many steps a hyperparameter says that gradients are accumulated; None if none says so."""
    said = [value for name, value in job.hyperparameters.items() if "accum" in name.lower()]
    return next((n for n in said if isinstance(n, int) and not isinstance(n, bool) and n > 0), None)


def _batches(subject: Subject, replicas: int | None) -> tuple[int | None, int | None]:
    """Return a replica's batch and the global batch; if one is missing, it is computed from the other."""
    batch = subject.job.batch
    if batch is None:
        return None, None
    each, total = batch.per_replica, batch.global_
    if each is None and total and replicas and total % replicas == 0:
        each = total // replicas
    if total is None and each and replicas:
        total = each * replicas
    return each, total


def _micro(subject: Subject, each: int | None) -> tuple[int | None, int | None]:
    """Return the number of microbatches, and the samples in one."""
    count = subject.smp_parameters.get("microbatches")
    count = count if isinstance(count, int) and count > 0 else None
    size = subject.job.batch.micro if subject.job.batch else None
    if count is None and size and each and each % size == 0:
        count = each // size
    if size is None and count and each and each % count == 0:
        size = each // count
    return count, size


def _rate(subject: Subject, each: int | None, total: int | None) -> LearningRate | None:
    """Scale the learning rate; without ``tuned_for`` it is assumed to be for the batch of one replica."""
    job = subject.job
    given = [job.hyperparameters[name] for name in RATES if name in job.hyperparameters]
    base = job.batch.learning_rate if job.batch and job.batch.learning_rate else (given[0] if given else None)
    tuned = job.batch.tuned_for if job.batch and job.batch.tuned_for else each
    if not isinstance(base, int | float) or isinstance(base, bool) or not tuned or not total:
        return None
    linear, root = scaled_rates(base, total / tuned)
    return LearningRate(base=base, tuned_for=tuned, factor=total / tuned, linear=linear, square_root=root)


def _memory(subject: Subject) -> Memory | None:
    model = subject.job.model
    if model is None:
        return None
    per = STATE_BYTES[model.optimizer]
    shards = prod(subject.degree(name) for name in ("pipeline_parallel_degree", "tensor_parallel_degree"))
    second = enabled(subject.job.distribution, "torch_distributed") and bool(subject.smp_parameters)
    if second and subject.degree("hybrid_shard_degree") == 1 and subject.world:
        # Version 2 of the library shards over all processes by default, as PyTorch's FSDP does.
        shards = subject.world if subject.smp_parameters.get("hybrid_shard_degree") != 1 else shards
    else:
        shards *= subject.degree("sharded_data_parallel_degree") * subject.degree("hybrid_shard_degree")
    state = model.parameters * per / GIB
    kinds = [kind.gpu_memory_gib for _, kind, _ in subject.instances]
    has = min((size for size in kinds if size), default=None)
    each = state / shards
    return Memory(
        parameters=model.parameters,
        bytes_per_parameter=per,
        state_gib=round(state, 2),
        shards=shards,
        gib_per_gpu=round(each, 2),
        gpu_memory_gib=has,
        fits=None if has is None else each <= has,
    )
