"""The rest of the job file: code, instances, hyperparameters, environment, spot, batch arithmetic."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.image import ECR
from trainwright.estimator.own_processes import uses_all_gpus
from trainwright.estimator.rules_algorithms import CHECKPOINTING
from trainwright.estimator.subject import Subject, enabled, smddp_types
from trainwright.sagemaker.instances import instance
from trainwright.sagemaker.toolkit import TOOLKIT

API = "CreateTrainingJob, AWS's API reference"
ENTRY_NAME = Rule(
    code="TW260",
    severity="error",
    title="an entry point that the toolkit cannot start: a notebook, absolute, outside source_dir, or a bad name",
    source=f"tried with {TOOLKIT} (strict names since 5.1.4) and sagemaker 2.257.7; a shell gets what is not .py",
    remedy="Use a script by its path in source_dir, with only letters, digits and . _ + - /",
)
ENTRY_MISSING = Rule(
    code="TW261",
    severity="error",
    title="the code was not found",
    source="sagemaker 2.257.7: entry_point and source_dir are local files",
    remedy="Name an existing file, relative to source_dir; source_dir is relative to the job file.",
)
INSTANCE = Rule(
    code="TW262",
    severity="error",
    title="unknown training instance type",
    source="botocore's model of the API, TrainingInstanceType",
    remedy="Use one of the valid types.",
)
WHERE = Rule(
    code="TW263",
    severity="error",
    title="instances are missing, or given twice",
    source=API,
    remedy="Give instance_type and instance_count, or instance_groups.",
)
INCOMPLETE = Rule(
    code="TW264",
    severity="error",
    title="a value that is needed to start the job is missing",
    source=API,
    remedy="Add it to the job file, or pass it with a flag.",
)
CODE_UNKNOWN = Rule(
    code="TW341",
    severity="warning",
    title="no entry_point, and the plan of the image does not say whether it contains code",
    source="sagemaker-training 5.1.4: it starts the script that entry_point or the image's SAGEMAKER_PROGRAM names",
    remedy="Give entry_point, or accept this with `silence` if the image contains the code.",
)
RESERVED = Rule(
    code="TW265",
    severity="error",
    title="a hyperparameter that the toolkit reserves and does not pass to the script",
    source=f"{TOOLKIT}: names that begin with sagemaker_",
    remedy="Use another name, or set it with `distribution`, `compiler` or `entry_point`.",
)
HYPERPARAMETER_NAME = Rule(
    code="TW266",
    severity="error",
    title="a hyperparameter name that the toolkit rejects",
    source=f"{TOOLKIT}: A-Z a-z 0-9 . _ + - / since 5.1.4",
    remedy="Use another name.",
)
ENVIRONMENT = Rule(
    code="TW267",
    severity="error",
    title="an environment variable that prevents the container from starting, or overrides the job",
    source=f"tried with {TOOLKIT}",
    remedy="Remove it.",
)
SPOT = Rule(
    code="TW268",
    severity="error",
    title="max_wait is shorter than max_run, or set without spot",
    source=f"{API}: MaxWaitTimeInSeconds >= MaxRuntimeInSeconds, and only with managed spot training",
    remedy="Use spot: true with max_wait at least as long as max_run.",
)
SPOT_LOST = Rule(
    code="TW269",
    severity="warning",
    title="spot without checkpoints: an interruption loses all progress",
    source="AWS documentation of managed spot training",
    remedy="Add checkpoint: {s3_uri: s3://…}, and let the script save to and load from its folder.",
)
BATCH = Rule(
    code="TW272",
    severity="error",
    title="the batch sizes contradict each other (a warning if accumulated gradients would explain it)",
    source="AWS guide for distributed training: global batch = replicas x batch of a replica",
    remedy="Correct one of the numbers.",
)
MEMORY = Rule(
    code="TW273",
    severity="warning",
    title="the model's state does not fit in a GPU",
    source="bytes per parameter: Rajbhandari et al., ZeRO (2020), section 3.1; AWS guide for distributed training",
    remedy="Use model parallelism, sharding (FSDP), or GPUs with more memory.",
)
FEWER = Rule(
    code="TW274",
    severity="note",
    title="many small instances, although fewer larger ones have the same GPUs",
    source="AWS guide for the SageMaker Training Compiler, best practices: GPUs in one host communicate faster",
    remedy="Use the larger type.",
)
ONE_PROCESS = Rule(
    code="TW275",
    severity="warning",
    title="several GPUs or hosts without distribution; each host trains alone with one process",
    source=f"{TOOLKIT}: without a strategy one process is started on every host",
    remedy='distribution: {"torch_distributed": {"enabled": true}}, if the script supports it.',
)
NO_EFFECT = Rule(
    code="TW276",
    severity="warning",
    title="a setting without effect in the container",
    source=f"tried with {TOOLKIT}",
    remedy="Remove it.",
)
SMDDP_TYPE = Rule(
    code="TW277",
    severity="error",
    title="an instance type that SageMaker's data parallel library does not support",
    source="sagemaker 2.257.7 (fw_utils.py) has the list and does not use it; aws/deep-learning-containers #3645 (p3), "
    "aws/sagemaker-python-sdk #4988 (p5), #3308 (pytorchddp: any GPU)",
    remedy='Use one of them, or "torch_distributed": {"enabled": true}.',
)
NOT_JSON = Rule(
    code="TW278",
    severity="error",
    title="a value that JSON cannot represent, such as a date or .nan",
    source="sagemaker 2.257.7: every hyperparameter is sent as JSON",
    remedy="Write it in quotes.",
)
RULES = (
    ENTRY_NAME,
    ENTRY_MISSING,
    INSTANCE,
    WHERE,
    INCOMPLETE,
    CODE_UNKNOWN,
    RESERVED,
    HYPERPARAMETER_NAME,
    ENVIRONMENT,
    SPOT,
    SPOT_LOST,
    BATCH,
    MEMORY,
    FEWER,
    ONE_PROCESS,
    NO_EFFECT,
    SMDDP_TYPE,
    NOT_JSON,
)
# TensorFlow's guide, distributed training: what a script needs for several GPUs, and for several hosts as well.
_TENSORFLOW = "tf.distribute.MirroredStrategy"
_TENSORFLOW_HOSTS = (
    'distribution: {"multi_worker_mirrored_strategy": {"enabled": true}}, with TensorFlow 2.9 or newer, if the '
    "script supports it."
)
_TORCH = 'torch.nn.DataParallel or device_map="auto"'
# What preflight cannot read may still do so.
_ALL_GPUS = (
    "{} in the script trains on all GPUs of a host with one process. If code that is not here does this, accept it "
    "with `silence`."
)
_ENTRY = re.compile(r"(?!.*[.]ipynb$)[A-Za-z0-9_+./][A-Za-z0-9_+./-]*")
_HYPERPARAMETER = re.compile(r"[A-Za-z0-9._+/-]+")


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    yield from _code(subject)
    yield from _instances(subject)
    yield from missing(subject)
    yield from _parameters(subject)
    yield from _environment(subject)
    yield from _spot(subject)


def _code(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    entry, source = job.entry_point, job.source_dir
    if entry is None:
        if subject.image is not None and not subject.image.baked:
            # A plan in a job file has no field for code, which the image may contain all the same.
            if job.image is not None and subject.image.origin == "plan":
                rule, why = CODE_UNKNOWN, "its plan does not say whether the image contains code"
            else:
                rule, why = INCOMPLETE, "the image contains no code"
            yield rule.finding(f"entry_point is missing, and {why}", path="entry_point")
        return
    if entry.startswith("s3://"):
        yield ENTRY_NAME.finding("entry_point must be a local file, not an S3 address", path="entry_point")
        return
    local = source is None or not source.startswith("s3://")
    # Without a source_dir only the file is uploaded, under its file name.
    name = entry if source is not None else PurePosixPath(entry).name
    if not _ENTRY.fullmatch(name) or name.startswith("/") or ".." in name.split("/"):
        yield ENTRY_NAME.finding(f"the toolkit cannot start {entry!r}", path="entry_point")
        return
    if not local:
        if not str(source).endswith(".tar.gz"):
            yield ENTRY_NAME.finding("source_dir in S3 must be a .tar.gz archive", path="source_dir")
        return
    folder = subject.folder if source is None else subject.folder / source
    if not folder.is_dir():
        yield ENTRY_MISSING.finding(f"folder {folder} not found", path="source_dir")
    elif not (folder / entry).is_file():
        names = [path.name for path in folder.glob("*") if path.is_file()]
        yield ENTRY_MISSING.finding(
            f"file {folder / entry} not found. {did_you_mean(entry, names)}", path="entry_point"
        )


def _instances(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    if job.instance_groups and job.instance_type:
        yield WHERE.finding("instance_type and instance_groups are both given", path="instance_type")
    elif job.instance_groups and job.instance_count > 1:
        yield WHERE.finding("instance_count and instance_groups are both given", path="instance_count")
    elif not subject.types:
        yield WHERE.finding("neither instance_type nor instance_groups is given", path="instance_type")
    names = [group.name for group in job.instance_groups]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield WHERE.finding(f"two groups are named {name!r}", path="instance_groups")
    for path, name in subject.types:
        if name.startswith("local"):
            yield INSTANCE.finding(
                f"{name} is the SDK's local mode", path=path, remedy="./invoke rehearse runs a job on this machine."
            )
            continue
        try:
            instance(name)
        except RequestError as unknown:
            yield INSTANCE.finding(unknown.message, path=path, remedy=unknown.remedy)
            continue
        # Not of a group that the distribution leaves out, such as one that only feeds the others. pytorchddp has the
        # same launcher, and the script's own process group.
        together = path in [place for place, *_ in subject.instances] and "pytorchddp" not in job.distribution
        if subject.launcher == "smddp" and together and name not in (types := smddp_types(subject)):
            yield SMDDP_TYPE.finding(f"{name} is not one of {', '.join(types)}", path=path)
    started = {name for name in job.distribution if enabled(job.distribution, name)} | {*job.distribution} & {
        "smdistributed",
        "instance_groups",
    }
    # A built-in algorithm starts its own processes.
    if subject.instances and not (subject.compiler or started or job.instance_groups or subject.algorithm):
        kind = subject.instances[0][1]
        # Several hosts of a cluster are an error (TW300).
        one_host = subject.hosts == 1 and kind.gpus > 1 and not uses_all_gpus(subject)
        if (subject.hosts > 1 and not subject.cluster) or one_host:
            what = f"{subject.hosts} x {kind.name} with {kind.gpus} GPU{'s' * (kind.gpus != 1)} each"
            yield ONE_PROCESS.finding(what, path="distribution", remedy=_more_processes(subject))


def _more_processes(subject: Subject) -> str:
    """Return how a job uses all of its GPUs: with more processes, or with one on each host."""
    if subject.framework == "tensorflow":
        return _TENSORFLOW_HOSTS if subject.hosts > 1 else _ALL_GPUS.format(_TENSORFLOW)
    return ONE_PROCESS.remedy if subject.hosts > 1 else f"{ONE_PROCESS.remedy} {_ALL_GPUS.format(_TORCH)}"


def missing(subject: Subject) -> Iterator[Finding]:
    """Report what SageMaker cannot start a job without."""
    job = subject.job
    if subject.cluster or not subject.generates:
        return
    if job.image is None:
        remedy = "Add --image <address in ECR>; ./invoke push prints it."
        yield INCOMPLETE.finding("image is missing", path="image", remedy=remedy)
    if job.registry and not job.region and not ECR.fullmatch(job.image or ""):
        remedy = "region: us-west-2, that of the registry's VPC"
        yield INCOMPLETE.finding("region is missing; the image's address has none", path="region", remedy=remedy)
    if job.role is None:
        yield INCOMPLETE.finding("role is missing", path="role", remedy="role: arn:aws:iam::<account>:role/<name>")


def _parameters(subject: Subject) -> Iterator[Finding]:
    for path, values in (("hyperparameters", subject.job.hyperparameters), ("distribution", subject.job.distribution)):
        for name, value in values.items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError) as wrong:
                yield NOT_JSON.finding(f"{name}: {wrong}", path=f"{path}.{name}")
    named = {f"hyperparameters.{name}": (name, value) for name, value in subject.job.hyperparameters.items()}
    # The service sends what it draws from a range as a hyperparameter of that name.
    tuner = subject.job.tuner
    named |= {f"tuner.ranges.{name}": (name, "") for name in (tuner.ranges if tuner else ())}
    for path, (name, value) in named.items():
        if name.startswith("sagemaker_") and name != "sagemaker_s3_output":
            yield RESERVED.finding(f"{name} is reserved by the toolkit", path=path)
        elif name == "mp_parameters":
            yield RESERVED.finding("mp_parameters come from distribution.smdistributed.modelparallel", path=path)
        if not _HYPERPARAMETER.fullmatch(name):
            yield HYPERPARAMETER_NAME.finding(f"{name!r}", path=path)
        if value is None:
            yield NO_EFFECT.finding(f"{name} is null, which reaches the script as an empty string", path=path)


def _environment(subject: Subject) -> Iterator[Finding]:
    environment = subject.job.environment
    level = environment.get("SAGEMAKER_CONTAINER_LOG_LEVEL")
    if level is not None and not re.fullmatch(r"[+-]?[0-9]+", level):
        yield ENVIRONMENT.finding(
            f"SAGEMAKER_CONTAINER_LOG_LEVEL={level}: the toolkit expects a number and fails",
            path="environment.SAGEMAKER_CONTAINER_LOG_LEVEL",
            remedy='Use a number, such as "20" for INFO.',
        )
    if "SAGEMAKER_SUBMIT_DIRECTORY" in environment:
        yield NO_EFFECT.finding(
            "SAGEMAKER_SUBMIT_DIRECTORY is overwritten by the hyperparameter of the same name",
            path="environment.SAGEMAKER_SUBMIT_DIRECTORY",
        )
    program = environment.get("SAGEMAKER_PROGRAM")
    if program is not None and subject.job.entry_point is not None and program != subject.job.entry_point:
        yield ENVIRONMENT.finding(
            f"SAGEMAKER_PROGRAM={program} overrides entry_point {subject.job.entry_point}",
            path="environment.SAGEMAKER_PROGRAM",
        )


def _spot(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    if job.max_wait is not None and not job.spot:
        yield SPOT.finding("max_wait without spot", path="max_wait", remedy="Add spot: true, or remove max_wait.")
    if not job.spot:
        return
    if job.max_wait is not None and job.max_wait < job.max_run:
        yield SPOT.finding(f"max_wait {job.max_wait} is shorter than max_run {job.max_run}", path="max_wait")
    if job.checkpoint is None and (subject.algorithm is None or subject.algorithm in CHECKPOINTING):
        yield SPOT_LOST.finding("spot is enabled without a checkpoint", path="checkpoint")
