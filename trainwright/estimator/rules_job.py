"""The rest of the job file: code, instances, hyperparameters, environment, channels, spot, batch arithmetic."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from pydantic import ValidationError

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.findings import Finding, Rule
from trainwright.core.records import wrong_value
from trainwright.estimator.rules_distribution import TRIED
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.instances import instance
from trainwright.sagemaker.job import Channel

TOOLKIT = "sagemaker-training 5.1.4"
API = "CreateTrainingJob, AWS's API reference"
ENTRY_NAME = Rule(
    code="TW260",
    severity="error",
    title="an entry point that the toolkit refuses: absolute, outside of source_dir, or with odd characters",
    source=f"tried with {TOOLKIT} (strict names since 5.1.4) and sagemaker 2.257.7",
    remedy="A path relative to source_dir, of letters, digits and . _ + - /",
)
ENTRY_MISSING = Rule(
    code="TW261",
    severity="error",
    title="the code is not there",
    source="sagemaker 2.257.7: entry_point and source_dir are files of this machine",
    remedy="Name a file that exists, relative to source_dir; paths are relative to the job file.",
)
INSTANCE = Rule(
    code="TW262",
    severity="error",
    title="no such training instance type",
    source="botocore's model of the API, TrainingInstanceType",
    remedy="Name one of the valid types.",
)
WHERE = Rule(
    code="TW263",
    severity="error",
    title="the job says not what it runs on, or says it twice",
    source=API,
    remedy="instance_type and instance_count, or instance_groups.",
)
INCOMPLETE = Rule(
    code="TW264",
    severity="error",
    title="something that starting the job needs is missing",
    source=API,
    remedy="Add it to the job file, or give it by a flag.",
)
RESERVED = Rule(
    code="TW265",
    severity="error",
    title="a hyperparameter that the toolkit reads itself and withholds from the script",
    source=f"{TOOLKIT}: names that begin with sagemaker_",
    remedy="Take another name, or say it by `distribution`, `compiler` or `entry_point`.",
)
HYPERPARAMETER_NAME = Rule(
    code="TW266",
    severity="error",
    title="a hyperparameter's name that the toolkit refuses",
    source=f"{TOOLKIT}: A-Z a-z 0-9 . _ + - / since 5.1.4",
    remedy="Take another name.",
)
ENVIRONMENT = Rule(
    code="TW267",
    severity="error",
    title="an environment variable that breaks the start of the container, or has no effect",
    source=f"tried with {TOOLKIT}",
    remedy="Take it out.",
)
SPOT = Rule(
    code="TW268",
    severity="error",
    title="spot without room to wait, or a wait without spot",
    source=f"{API}: MaxWaitTimeInSeconds >= MaxRuntimeInSeconds, with managed spot training alone",
    remedy="spot: true with max_wait at least as long as max_run.",
)
SPOT_LOST = Rule(
    code="TW269",
    severity="warning",
    title="spot without checkpoints: an interruption loses everything",
    source="AWS documentation of managed spot training",
    remedy="checkpoint: {s3_uri: s3://…}, and a script that saves to and loads from its folder.",
)
CHANNEL = Rule(
    code="TW270",
    severity="error",
    title="an input channel that is none",
    source=f"{API}; sagemaker 2.257.7, TrainingInput",
    remedy="A channel is an S3 address, or a record with s3_data.",
)
CHANNEL_NAME = Rule(
    code="TW271",
    severity="error",
    title="a channel's name that another one needs",
    source="sagemaker-train 1.27.0: channels code and sm_drivers are SDK 3's own; SDK 2 takes code under isolation",
    remedy="Give the channel another name.",
)
BATCH = Rule(
    code="TW272",
    severity="error",
    title="the batch sizes contradict each other",
    source="AWS guide for distributed training: global batch = replicas x batch of a replica",
    remedy="Correct one of the numbers.",
)
MEMORY = Rule(
    code="TW273",
    severity="warning",
    title="the model's state does not fit into a GPU",
    source="bytes per parameter: Rajbhandari et al., ZeRO (2020), section 3.1; AWS guide for distributed training",
    remedy="Model parallelism, sharding (FSDP), or GPUs with more memory.",
)
FEWER = Rule(
    code="TW274",
    severity="note",
    title="many small instances where fewer larger ones have the same GPUs",
    source="AWS guide for the SageMaker Training Compiler, best practices: GPUs of one host talk faster",
    remedy="Take the larger type.",
)
ONE_PROCESS = Rule(
    code="TW275",
    severity="warning",
    title="several GPUs or hosts, and no distribution: each host trains alone with one process",
    source=f"{TOOLKIT}: without a strategy one process is started on every host",
    remedy='distribution: {"torch_distributed": {"enabled": true}}, if the script is written for it.',
)
NO_EFFECT = Rule(
    code="TW276",
    severity="warning",
    title="something that has no effect in a container",
    source=f"tried with {TOOLKIT}",
    remedy="Take it out.",
)
SMDDP_TYPE = Rule(
    code="TW277",
    severity="warning",
    title="an instance type that SageMaker's data parallel library is not made for",
    source=f"sagemaker 2.257.7 has the list and does not use it; {TRIED}",
    remedy="ml.p3.16xlarge, ml.p3dn.24xlarge, ml.p4d.24xlarge or ml.p4de.24xlarge; else torch_distributed.",
)
NOT_JSON = Rule(
    code="TW278",
    severity="error",
    title="a value that JSON does not have, such as a date",
    source="sagemaker 2.257.7: every hyperparameter is sent as JSON",
    remedy="Write it in quotes.",
)
RULES = (
    ENTRY_NAME,
    ENTRY_MISSING,
    INSTANCE,
    WHERE,
    INCOMPLETE,
    RESERVED,
    HYPERPARAMETER_NAME,
    ENVIRONMENT,
    SPOT,
    SPOT_LOST,
    CHANNEL,
    CHANNEL_NAME,
    BATCH,
    MEMORY,
    FEWER,
    ONE_PROCESS,
    NO_EFFECT,
    SMDDP_TYPE,
    NOT_JSON,
)
SMDDP_TYPES = ("ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge", "ml.p4de.24xlarge")
_ENTRY = re.compile(r"[A-Za-z0-9_+./][A-Za-z0-9_+./-]*")
_HYPERPARAMETER = re.compile(r"[A-Za-z0-9._+/-]+")


def check(subject: Subject) -> Iterator[Finding]:
    """The rules of this family."""
    yield from _code(subject)
    yield from _instances(subject)
    yield from _missing(subject)
    yield from _parameters(subject)
    yield from _environment(subject)
    yield from _spot(subject)
    yield from _inputs(subject)


def _code(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    entry, source = job.entry_point, job.source_dir
    if entry is None:
        if subject.image is not None and not subject.image.baked:
            yield INCOMPLETE.finding("entry_point is missing, and the image holds no code", path="entry_point")
        return
    if entry.startswith("s3://"):
        yield ENTRY_NAME.finding("entry_point is a file of this machine, not an S3 address", path="entry_point")
        return
    local = source is None or not source.startswith("s3://")
    # Without a source_dir the file is uploaded alone, under its last name.
    name = entry if source is not None else PurePosixPath(entry).name
    if not _ENTRY.fullmatch(name) or name.startswith("/") or ".." in name.split("/"):
        yield ENTRY_NAME.finding(f"{entry!r} is refused", path="entry_point")
        return
    if not local:
        if not str(source).endswith(".tar.gz"):
            yield ENTRY_NAME.finding("source_dir in S3 is an archive, sourcedir.tar.gz", path="source_dir")
        return
    folder = subject.folder if source is None else subject.folder / source
    if source is not None and not folder.is_dir():
        yield ENTRY_MISSING.finding(f"{folder} is no folder", path="source_dir")
    elif not (folder / entry).is_file():
        names = [path.name for path in folder.glob("*") if path.is_file()]
        yield ENTRY_MISSING.finding(f"{folder / entry} is no file. {did_you_mean(entry, names)}", path="entry_point")


def _instances(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    if job.instance_groups and job.instance_type:
        yield WHERE.finding("instance_type and instance_groups are both there", path="instance_type")
    elif not subject.types:
        yield WHERE.finding("neither instance_type nor instance_groups is there", path="instance_type")
    names = [group.name for group in job.instance_groups]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield WHERE.finding(f"two groups are called {name!r}", path="instance_groups")
    for path, name in subject.types:
        if name.startswith("local"):
            yield INSTANCE.finding(
                f"{name} is the SDK's local mode", path=path, remedy="./invoke rehearse runs a job on this machine."
            )
            continue
        try:
            kind = instance(name)
        except RequestError as unknown:
            yield INSTANCE.finding(unknown.message, path=path, remedy=unknown.remedy)
            continue
        if subject.launcher == "smddp" and name not in SMDDP_TYPES and kind.gpus:
            yield SMDDP_TYPE.finding(f"{name} is none of {', '.join(SMDDP_TYPES)}", path=path)
    if subject.launcher == "process" and not subject.compiler and not job.distribution and not job.instance_groups:
        several = subject.hosts > 1 or (subject.gpus or 0) > 1
        if several and subject.instances:
            kind = subject.instances[0][1]
            yield ONE_PROCESS.finding(
                f"{subject.hosts} x {kind.name} with {kind.gpus} GPU{'s' * (kind.gpus != 1)} each", path="distribution"
            )


def _missing(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    if not subject.generates:
        return
    if job.image is None:
        remedy = "--image <address in ECR>: ./invoke push prints it."
        yield INCOMPLETE.finding("image is missing: what SageMaker pulls", path="image", remedy=remedy)
    if job.role is None:
        yield INCOMPLETE.finding("role is missing", path="role", remedy="role: arn:aws:iam::<account>:role/<name>")


def _parameters(subject: Subject) -> Iterator[Finding]:
    for path, values in (("hyperparameters", subject.job.hyperparameters), ("distribution", subject.job.distribution)):
        for name, value in values.items():
            try:
                json.dumps(value)
            except (TypeError, ValueError) as wrong:
                yield NOT_JSON.finding(f"{name}: {wrong}", path=f"{path}.{name}")
    for name, value in subject.job.hyperparameters.items():
        path = f"hyperparameters.{name}"
        if name.startswith("sagemaker_") and name != "sagemaker_s3_output":
            yield RESERVED.finding(f"{name} is the toolkit's own", path=path)
        elif name == "mp_parameters":
            yield RESERVED.finding("mp_parameters come from distribution.smdistributed.modelparallel", path=path)
        if not _HYPERPARAMETER.fullmatch(name):
            yield HYPERPARAMETER_NAME.finding(f"{name!r}", path=path)
        if value is None:
            yield NO_EFFECT.finding(f"{name} is null, which reaches the script as an empty text", path=path)


def _environment(subject: Subject) -> Iterator[Finding]:
    said = subject.job.environment
    level = said.get("SAGEMAKER_CONTAINER_LOG_LEVEL")
    if level is not None and not level.lstrip("-").isdigit():
        yield ENVIRONMENT.finding(
            f"SAGEMAKER_CONTAINER_LOG_LEVEL={level}: the toolkit reads a number and ends with an error",
            path="environment.SAGEMAKER_CONTAINER_LOG_LEVEL",
            remedy='A number, such as "20" for INFO.',
        )
    if "SAGEMAKER_SUBMIT_DIRECTORY" in said:
        yield NO_EFFECT.finding(
            "SAGEMAKER_SUBMIT_DIRECTORY is overwritten by the hyperparameter of that name",
            path="environment.SAGEMAKER_SUBMIT_DIRECTORY",
        )
    program = said.get("SAGEMAKER_PROGRAM")
    if program is not None and subject.job.entry_point is not None and program != subject.job.entry_point:
        yield ENVIRONMENT.finding(
            f"SAGEMAKER_PROGRAM={program} wins over entry_point {subject.job.entry_point}",
            path="environment.SAGEMAKER_PROGRAM",
        )


def _spot(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    if job.max_wait is not None and not job.spot:
        yield SPOT.finding("max_wait without spot", path="max_wait", remedy="spot: true, or take max_wait out.")
    if not job.spot:
        return
    if job.max_wait is not None and job.max_wait < job.max_run:
        yield SPOT.finding(f"max_wait {job.max_wait} is shorter than max_run {job.max_run}", path="max_wait")
    if job.checkpoint is None:
        yield SPOT_LOST.finding("spot is on", path="checkpoint")


def channel(name: str, given: object) -> Channel:
    """An input channel as a record.

    Raises:
        RequestError: it is none; the message says what is wrong.
    """
    if isinstance(given, str):
        given = {"s3_data": given}
    if not isinstance(given, Mapping):
        raise RequestError(f"{name} is neither an S3 address nor a record")
    unknown = [key for key in given if key not in Channel.model_fields]
    if unknown:
        raise RequestError(f"{name}: unknown key {unknown[0]!r}. {did_you_mean(str(unknown[0]), Channel.model_fields)}")
    try:
        made = Channel.model_validate(given)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        raise RequestError(f"{name}.{'.'.join(str(p) for p in first['loc'])}: {wrong_value(first)}") from None
    if not made.s3_data.startswith("s3://"):
        raise RequestError(f"{name}: {made.s3_data!r} is no S3 address (s3://bucket/prefix)")
    return made


def _inputs(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    for name, given in job.inputs.items():
        path = f"inputs.{name}"
        try:
            made = channel(name, given)
        except RequestError as wrong:
            yield CHANNEL.finding(wrong.message, path=path)
            continue
        groups = [group.name for group in job.instance_groups]
        for group in made.instance_groups:
            if group not in groups:
                yield CHANNEL.finding(f"no instance group {group!r}. {did_you_mean(group, groups)}", path=path)
        if name in ("code", "sm_drivers") and (subject.sdk == 3 or (name == "code" and job.network_isolation)):
            yield CHANNEL_NAME.finding(f"{name} is taken", path=path)
