"""The model parallel library: its launcher, its parameters by version, and degrees that fit the job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from trainwright.catalog.image_line import version_key
from trainwright.core.errors import did_you_mean
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.rules_distribution import SDK, TRIED
from trainwright.estimator.subject import SMP_PARAMETERS, Subject, enabled, part
from trainwright.sagemaker.sdk3 import SMP_FIELDS
from trainwright.sagemaker.smp_parameters import PARTITIONS_RENAMED, SMP_VALUES

GUIDE = "AWS guide for launching a model-parallel job"
NO_LAUNCHER = Rule(
    code="TW220",
    severity="error",
    title="the model parallel library is enabled without mpi or torch_distributed",
    source=f"{GUIDE}; {TRIED}",
    remedy='Add "mpi": {"enabled": true, "processes_per_host": <GPUs>} (version 1) or "torch_distributed": '
    '{"enabled": true} (version 2).',
)
NO_PARAMETERS = Rule(
    code="TW221",
    severity="error",
    title="the model parallel library is enabled without parameters, which silently disables it",
    source=TRIED,
    remedy='"parameters": {"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": true}, or values for your model.',
)
NO_COUNT = Rule(
    code="TW222",
    severity="error",
    title="model parallelism over MPI without processes_per_host",
    source=f"{GUIDE}: mpi.enabled and processes_per_host are mandatory",
    remedy="Set processes_per_host to the number of GPUs of the instance type.",
)
RENAMED = Rule(
    code="TW223",
    severity="error",
    title="pipeline_parallel_degree or partitions, whichever the image's library does not know",
    source=f"{GUIDE}: pipeline_parallel_degree replaces partitions from version {PARTITIONS_RENAMED} on",
    remedy="Use the name in the message.",
)
UNKNOWN = Rule(
    code="TW224",
    severity="warning",
    title="a parameter that the model parallel library does not know",
    source=f"AWS's release notes and references of the library, 1.0 to 1.15 and 2; {TRIED}",
    remedy="Correct or remove the parameter.",
)
TOO_NEW = Rule(
    code="TW225",
    severity="error",
    title="a parameter of a newer model parallel library than the image's",
    source="AWS's release notes of the library",
    remedy="Remove the parameter, or use an image with that version.",
)
VALUE = Rule(
    code="TW226",
    severity="error",
    title="invalid value of a model parallel library parameter",
    source=f"{SDK} (validate_mp_config); degrees and types that it does not check: {TRIED}",
    remedy="Use a value as described in the message.",
)
DIVIDES = Rule(
    code="TW227",
    severity="error",
    title="the parallel degrees do not divide the number of processes",
    source="AWS guide for distributed training: replicas = processes / (pipeline x tensor degree)",
    remedy="Choose degrees whose product divides instances x processes per host.",
)
SDK_BUG = Rule(
    code="TW228",
    severity="note",
    title="default_partition with pipeline_parallel_degree makes the SDK itself fail (KeyError: 'partitions')",
    source="tried with sagemaker 2.257.7 (validate_mp_config)",
    remedy="Nothing to do; the generated code sets the hyperparameters directly.",
)
MICROBATCHES = Rule(
    code="TW229",
    severity="error",
    title="the batch of a replica cannot be split into its microbatches",
    source="AWS guide for distributed training: a replica's batch is split into equal microbatches",
    remedy="Make batch.per_replica a multiple of microbatches.",
)
RULES = (
    NO_LAUNCHER,
    NO_PARAMETERS,
    NO_COUNT,
    RENAMED,
    UNKNOWN,
    TOO_NEW,
    VALUE,
    DIVIDES,
    SDK_BUG,
    MICROBATCHES,
)
# Version 1's parameters and the version that added them; "0": the first.
_FROM_THE_BEGINNING = (
    "partitions",
    "microbatches",
    "pipeline",
    "optimize",
    "placement_strategy",
    "auto_partition",
    "default_partition",
    "ddp",
    "horovod",
    "contiguous",
    "memory_weight",
    "load_partition",
    "partition_file",
    "ddp_port",
    "ddp_dist_backend",
)
_SINCE_1_6 = (
    "pipeline_parallel_degree",
    "tensor_parallel_degree",
    "offload_activations",
    "activation_loading_horizon",
    "shard_optimizer_state",
    "fp16_params",
    "prescaled_batch",
    "skip_tracing",
)
SINCE = {
    **dict.fromkeys(_FROM_THE_BEGINNING, "0"),
    **dict.fromkeys(("active_microbatches", "deterministic_server"), "1.3"),
    **dict.fromkeys(_SINCE_1_6, "1.6"),
    "fp16": "1.10",
    "sharded_data_parallel_degree": "1.11",
}
# Parameters of version 1 whose first version is not known; sdp_ names came with sharded data parallelism.
_OTHERS = ("bf16", "tensor_parallel_seed", "delayed_parameter_initialization", "trace_device")


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    given = subject.job.distribution
    model = part(given, "smdistributed", "modelparallel")
    if not enabled(model):
        return
    parameters = model.get("parameters")
    torchrun, mpi = enabled(given, "torch_distributed"), enabled(given, "mpi")
    if not torchrun and not mpi:
        yield NO_LAUNCHER.finding("no launcher is enabled", path="distribution")
    if mpi and not torchrun and "processes_per_host" not in part(given, "mpi"):
        gpus = f"processes_per_host: {subject.gpus}" if subject.gpus else None
        yield NO_COUNT.finding("mpi has no processes_per_host", path="distribution.mpi.processes_per_host", remedy=gpus)
    if not parameters:
        yield NO_PARAMETERS.finding("no parameters", path=SMP_PARAMETERS)
        return
    if not isinstance(parameters, Mapping):
        return  # a file of JSON, or TW201
    yield from _names(parameters, subject.smp_version, torchrun)
    yield from _values(parameters)
    if not torchrun:
        yield from _version_one(parameters)
    yield from _fits(subject, parameters)


def _names(parameters: Mapping[str, Any], version: str | None, torchrun: bool) -> Iterator[Finding]:
    second = torchrun if version is None else version_key(version) >= (2,)
    known = [*SMP_FIELDS] if second else [*SINCE, *_OTHERS]
    for key in parameters:
        name = str(key)
        path = f"{SMP_PARAMETERS}.{name}"
        if name not in known and not (name.startswith("sdp_") and not second) and not name.startswith("_"):
            hint = did_you_mean(name, known)
            yield UNKNOWN.finding(f"the library (version {2 if second else 1}) has no {name!r}. {hint}", path=path)
        if second or version is None:
            continue
        since = "1.11" if name.startswith("sdp_") else SINCE.get(name, "0")
        if name not in ("partitions", "pipeline_parallel_degree") and version_key(version) < version_key(since):
            yield TOO_NEW.finding(f"{name} needs {since}; the image has {version}", path=path)
    if second or version is None:
        return
    old = version_key(version) < version_key(PARTITIONS_RENAMED)
    wrong, right = ("partitions", "pipeline_parallel_degree")[:: -1 if old else 1]
    if wrong in parameters and right not in parameters:
        yield RENAMED.finding(
            f"{wrong} is called {right} in version {version} of the library, which the image has",
            path=f"{SMP_PARAMETERS}.{wrong}",
            remedy=f"{right}: {parameters[wrong]}",
        )


def _values(parameters: Mapping[str, Any]) -> Iterator[Finding]:
    for name, value in parameters.items():
        right, words = SMP_VALUES.get(name, (lambda _: True, ""))
        if not right(value):
            yield VALUE.finding(
                f"{name} must be {words}, not {json.dumps(value, default=str)}", path=f"{SMP_PARAMETERS}.{name}"
            )


def _version_one(parameters: Mapping[str, Any]) -> Iterator[Finding]:
    """Report what the SDK rejects, or fails on."""
    degree = parameters.get("partitions", parameters.get("pipeline_parallel_degree", 1))
    default = parameters.get("default_partition")
    path = f"{SMP_PARAMETERS}.default_partition"
    if parameters.get("auto_partition") is False and default is None:
        yield VALUE.finding("auto_partition: false needs default_partition", path=f"{SMP_PARAMETERS}.auto_partition")
    if default is not None and isinstance(degree, int) and not (isinstance(default, int) and 0 <= default < degree):
        yield VALUE.finding(f"default_partition must be a number from 0 to {degree - 1}, not {default}", path=path)
    elif default is not None and "partitions" not in parameters:
        yield SDK_BUG.finding("sagemaker.pytorch.PyTorch would raise KeyError: 'partitions'", path=path)
    for name in ("ddp_port", "ddp_dist_backend"):
        if name in parameters and "ddp" not in parameters:
            yield VALUE.finding(f"{name} needs ddp", path=f"{SMP_PARAMETERS}.{name}")
    if parameters.get("ddp") is True and parameters.get("horovod") is True:
        yield VALUE.finding("ddp and horovod are both enabled; use one", path=f"{SMP_PARAMETERS}.horovod")


def _fits(subject: Subject, parameters: Mapping[str, Any]) -> Iterator[Finding]:
    names = ["pipeline_parallel_degree", "tensor_parallel_degree"]
    names += [name for name in ("sharded_data_parallel_degree", "hybrid_shard_degree") if name in parameters]
    degrees = {name: subject.degree(name) for name in names}
    world = subject.world
    if world is not None and world % prod(degrees.values()):
        product = " x ".join(f"{value} ({name})" for name, value in degrees.items() if value > 1)
        yield DIVIDES.finding(
            f"{product} does not divide {world} processes ({subject.hosts} hosts x {subject.processes_per_host})",
            path=SMP_PARAMETERS,
        )
    batch, micro = subject.job.batch, parameters.get("microbatches")
    if batch and batch.per_replica and isinstance(micro, int) and micro > 0 and batch.per_replica % micro:
        yield MICROBATCHES.finding(
            f"{batch.per_replica} samples cannot be split into {micro} equal microbatches", path="batch.per_replica"
        )
