"""The model parallel library: its launcher, its parameters by version, and degrees that fit the job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from math import prod
from typing import Any

from trainwright.catalog.image_line import version_key
from trainwright.core.errors import did_you_mean, nearest
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.rules_distribution import SDK, TRIED
from trainwright.estimator.subject import SMP_PARAMETERS, Subject, enabled, part
from trainwright.sagemaker.smp_parameters import (
    PARAMETERS,
    PARTITIONS_RENAMED,
    PLACEMENTS,
    SECOND,
    parameter,
    wrong_values,
)

GUIDE = "AWS guide for launching a model-parallel job"
SCHEMA = "the library's schema (smdistributed/modelparallel/backend/config.yaml, 1.11)"
PAGE = "aws/sagemaker-python-sdk, doc/api/training/smd_model_parallel_general.rst"
NO_LAUNCHER = Rule(
    code="TW220",
    severity="error",
    title="the model parallel library is enabled without its launcher: mpi (version 1) or torch_distributed (2)",
    source=f"{GUIDE}; its guide for version 2, Step 2: Launch a training job; {TRIED}",
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
    title="pipeline_parallel_degree with a library that knows partitions only, or the reverse (a note: still accepted)",
    source=f"{GUIDE}: pipeline_parallel_degree replaces partitions from version {PARTITIONS_RENAMED} on; the library's "
    "schema: partitions is an alias",
    remedy="Use the name in the message.",
)
UNKNOWN = Rule(
    code="TW224",
    severity="error",
    title="a parameter that the model parallel library does not know: misspelled, or of the other version (a warning: "
    "any other name)",
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
    source="AWS guide for distributed training: replicas = processes / (pipeline x tensor degree); its guide for "
    "version 2, context and expert parallelism: the degree evenly divides the number of GPUs in the cluster",
    remedy="Choose degrees whose product divides instances x processes per host.",
)
SDK_BUG = Rule(
    code="TW228",
    severity="note",
    title="parameters that make the SDK itself fail: default_partition with pipeline_parallel_degree (KeyError: "
    "'partitions'), placement_strategy of letters (ValueError)",
    source=f"tried with sagemaker 2.257.7 (validate_mp_config); the library takes them: {SCHEMA}; {PAGE}",
    remedy="Nothing to do; the generated code sets the hyperparameters directly.",
)
MICROBATCHES = Rule(
    code="TW229",
    severity="error",
    title="the batch of a replica cannot be split into its microbatches",
    source="AWS guide for distributed training: a replica's batch is split into equal microbatches",
    remedy="Make batch.per_replica a multiple of microbatches.",
)
REQUIRED = Rule(
    code="TW296",
    severity="error",
    title=f"model parallelism without partitions, before version {PARTITIONS_RENAMED}",
    source=f"{PAGE}: required; {SCHEMA}: 1 if missing",
    remedy="partitions: 2, or how many parts the model has.",
)
# What says of the cases of TW297 that the parameters exclude or need each other; of all others the schema does.
_SHARDED = "AWS's developer guide, sharded data parallelism, considerations"
_HYBRID = "sagemaker 3, the configuration of SMP 2: context_parallel_degree must be <= hybrid_shard_degree"
EXCLUDED = Rule(
    code="TW297",
    severity="error",
    title="model parallel parameters that exclude or need each other",
    source=f"{SCHEMA}; {_SHARDED}; {_HYBRID}",
    remedy="Change one of them, as described in the message.",
)
OTHER_FRAMEWORK = Rule(
    code="TW298",
    severity="warning",
    title="a parameter that has an effect with another framework only",
    source=f"{PAGE}: TensorFlow-specific and PyTorch-specific parameters",
    remedy="Remove it.",
)
NOTHING_SPLIT = Rule(
    code="TW299",
    severity="warning",
    title="every parallel degree is 1, so the model parallel library splits nothing",
    source=f"{SCHEMA}: degrees are 1 if missing",
    remedy="Set pipeline_parallel_degree or tensor_parallel_degree to 2 or more, or use torch_distributed alone.",
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
    REQUIRED,
    EXCLUDED,
    OTHER_FRAMEWORK,
    NOTHING_SPLIT,
)


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
    version = subject.smp_version
    second = torchrun if version is None else version_key(version) >= (2,)
    # Without a known version, parameters that version 2 alone has tell which one is meant.
    of_second = [str(name) for name in parameters if name in SECOND and name not in PARAMETERS]
    second = second or (version is None and bool(of_second))
    if second and not torchrun and mpi:
        which = f"version {version}" if version else f"version 2, which has {of_second[0]},"
        yield NO_LAUNCHER.finding(
            f"{which} is started by torch_distributed, not mpi",
            path="distribution",
            remedy='Use "torch_distributed": {"enabled": true} in place of mpi.',
        )
    yield from _names(subject, parameters, second=second)
    for name, wrong in wrong_values(parameters, second=second):
        yield VALUE.finding(wrong, path=f"{SMP_PARAMETERS}.{name}")
    if not torchrun:
        yield from _version_one(subject, parameters)
    if not second:
        yield from _together(subject, parameters)
    yield from _fits(subject, parameters)


def _names(subject: Subject, parameters: Mapping[str, Any], *, second: bool) -> Iterator[Finding]:
    version, framework = subject.smp_version, subject.framework
    known = [*(SECOND if second else PARAMETERS)]
    for key in parameters:
        name = str(key)
        path = f"{SMP_PARAMETERS}.{name}"
        of_name = parameter(name, second=second)
        if of_name is None:
            if not name.startswith("_"):
                hint = did_you_mean(name, known)
                if name in SECOND:
                    yield TOO_NEW.finding(f"{name} needs version 2; the image has {version or 'version 1'}", path=path)
                    continue
                # Of a name like no other it may be that the library has it and nobody documented it.
                certain = name in PARAMETERS or any(_alike(name, each) for each in nearest(name, known))
                yield UNKNOWN.finding(
                    f"the library (version {2 if second else 1}) has no {name!r}. {hint}",
                    path=path,
                    severity="error" if certain else "warning",
                )
            continue
        if framework is not None and framework not in of_name.frameworks:
            # Without its data parallelism the replicas train apart.
            replicas = name in ("ddp", "horovod") and parameters[key] is True
            yield OTHER_FRAMEWORK.finding(
                f"{name} is for {of_name.frameworks[0]}; the image has {framework}",
                path=path,
                severity="error" if replicas else "warning",
            )
        if version and of_name.until and version_key(version) >= version_key(of_name.until):
            yield UNKNOWN.finding(
                f"{name} is gone from {of_name.until} on; the image has {version}", path=path, severity="warning"
            )
        renamed = name == "pipeline_parallel_degree"
        if version and not renamed and version_key(version) < version_key(of_name.since):
            yield TOO_NEW.finding(f"{name} needs {of_name.since}; the image has {version}", path=path)
    if second or version is None or framework == "tensorflow":
        return
    old = version_key(version) < version_key(PARTITIONS_RENAMED)
    wrong, right = ("partitions", "pipeline_parallel_degree")[:: -1 if old else 1]
    if wrong in parameters and right not in parameters:
        yield RENAMED.finding(
            f"{wrong} is called {right} in version {version} of the library, which the image has",
            path=f"{SMP_PARAMETERS}.{wrong}",
            severity="error" if old else "note",
            remedy=f"{right}: {parameters[wrong]}",
        )


def _alike(name: str, known: str) -> bool:
    """Whether a name is a known one with a slip of the pen, or a part of its words (tensor_parallel)."""
    words = set(name.split("_"))
    return SequenceMatcher(None, name, known).ratio() >= 0.85 or (len(words) > 1 and words < set(known.split("_")))


def _together(subject: Subject, parameters: Mapping[str, Any]) -> Iterator[Finding]:
    """Report what version 1 requires, and parameters that exclude or need others."""
    version = subject.smp_version
    named = [parameters[name] for name in ("partitions", "pipeline_parallel_degree") if name in parameters]
    if version and version_key(version) < version_key(PARTITIONS_RENAMED) and not named:
        yield REQUIRED.finding("partitions is missing", path=f"{SMP_PARAMETERS}.partitions")
    elif all(subject.degree(name) == 1 for name in _DEGREES):
        yield NOTHING_SPLIT.finding("every degree is 1", path=SMP_PARAMETERS)
    if named and named[0] != named[-1]:
        yield EXCLUDED.finding(
            f"partitions: {named[0]} and pipeline_parallel_degree: {named[1]} are one parameter",
            path=f"{SMP_PARAMETERS}.partitions",
            remedy="Remove partitions.",
            source=SCHEMA,
        )
    tensor = subject.degree("tensor_parallel_degree")
    if tensor > 1 and parameters.get("ddp") is not True:
        yield EXCLUDED.finding(
            f"tensor_parallel_degree: {tensor} needs ddp: true",
            path=f"{SMP_PARAMETERS}.ddp",
            remedy="ddp: true",
            source=SCHEMA,
        )
    if subject.degree("sharded_data_parallel_degree") > 1:
        offs: list[tuple[str, int | bool]] = [("pipeline_parallel_degree", 1), ("shard_optimizer_state", False)]
        if version and version_key(version) < version_key(SHARDED_WITH_TENSOR):
            offs.append(("tensor_parallel_degree", 1))
        for name, off in offs:
            if subject.degree(name) > 1 or parameters.get(name) is True:
                yield EXCLUDED.finding(
                    f"sharded_data_parallel_degree is not compatible with {name}",
                    path=f"{SMP_PARAMETERS}.{name}",
                    remedy=f"{name}: {json.dumps(off)}, or remove sharded_data_parallel_degree",
                    source=f"{SCHEMA}; {_SHARDED}",
                )
    for name, needs in _NEEDS.items():
        for other, value in needs.items():
            if parameters.get(name) is True and parameters.get(other, value) != value:
                yield EXCLUDED.finding(
                    f"{name}: true needs {other}: {json.dumps(value)}",
                    path=f"{SMP_PARAMETERS}.{other}",
                    source=SCHEMA,
                )
    active, micro = parameters.get("active_microbatches"), parameters.get("microbatches", 1)
    if isinstance(active, int) and isinstance(micro, int) and active > micro:
        yield EXCLUDED.finding(
            f"active_microbatches ({active}) is more than microbatches ({micro})",
            path=f"{SMP_PARAMETERS}.active_microbatches",
            source=SCHEMA,
        )


# The library's schema, 1.11, and the guide of that time; whether 1.13 can do both is not known.
SHARDED_WITH_TENSOR = "1.13"
_NEEDS: dict[str, dict[str, Any]] = {
    "bf16": {"fp16": False, "fp16_params": False},
    "prescaled_batch": {"optimize": "speed"},
}
_DEGREES = ("pipeline_parallel_degree", "tensor_parallel_degree", "sharded_data_parallel_degree")


def _version_one(subject: Subject, parameters: Mapping[str, Any]) -> Iterator[Finding]:
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
    placement = parameters.get("placement_strategy")
    if placement in PLACEMENTS:
        path = f"{SMP_PARAMETERS}.placement_strategy"
        if subject.framework == "tensorflow":
            yield VALUE.finding(
                f'for TensorFlow, placement_strategy must be "spread" or "cluster", not "{placement}"', path=path
            )
        yield SDK_BUG.finding("sagemaker.pytorch.PyTorch would raise ValueError", path=path)
    for name in ("ddp_port", "ddp_dist_backend"):
        if name in parameters and parameters.get("ddp") is not True:
            yield VALUE.finding(f"{name} needs ddp: true", path=f"{SMP_PARAMETERS}.{name}")
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
    for name in ("context_parallel_degree", "expert_parallel_degree"):
        if world is not None and world % subject.degree(name):
            yield DIVIDES.finding(
                f"{subject.degree(name)} ({name}) does not divide {world} processes", path=f"{SMP_PARAMETERS}.{name}"
            )
    context, hybrid = subject.degree("context_parallel_degree"), parameters.get("hybrid_shard_degree")
    if isinstance(hybrid, int) and 0 < hybrid < context:
        yield EXCLUDED.finding(
            f"context_parallel_degree ({context}) is more than hybrid_shard_degree ({hybrid})",
            path=f"{SMP_PARAMETERS}.context_parallel_degree",
            source=_HYBRID,
        )
    batch, micro = subject.job.batch, parameters.get("microbatches")
    if batch and batch.per_replica and isinstance(micro, int) and micro > 0 and batch.per_replica % micro:
        yield MICROBATCHES.finding(
            f"{batch.per_replica} samples cannot be split into {micro} equal microbatches", path="batch.per_replica"
        )
