"""Limits of the service that botocore's model does not hold, and options that need or exclude each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from trainwright.core.errors import RequestError
from trainwright.core.findings import Finding, Rule, Severity
from trainwright.estimator.rules_inputs import channel
from trainwright.estimator.service_limits import choices
from trainwright.estimator.subject import Subject, enabled
from trainwright.sagemaker.job import Job
from trainwright.sagemaker.job_parts import DEFAULT_VOLUME_GB, Channel, FileSystem

API = "AWS's API reference"
DOCUMENTED = Rule(
    code="TW292",
    severity="error",
    title="a value outside a limit of the service",
    source="IAM user guide, ARNs: a role has a name; "
    f"{API}: StoppingCondition (28 days); ResourceConfig and EBS (16 TiB for a volume); PlacementSpecification (1 "
    "instance or more); AWS General Reference, tagging: the prefix aws: is reserved",
    remedy="Keep to the limit in the message.",
)
NO_VPC = Rule(
    code="TW293",
    severity="error",
    title="a channel on FSx or EFS, or a registry of your own, without subnets and security groups",
    source="AWS's developer guide, access to training data, and images in a private Docker registry: the job must be "
    "in the VPC of the file system or registry",
    remedy="Add subnets and security_group_ids of that VPC.",
)
# What says of each case of TW295 that the options exclude each other.
_EXCLUDED_BY = {
    "warm pool": "AWS's developer guide, managed warm pools, considerations: neither spot nor heterogeneous clusters",
    "streamed": f"{API}, Channel: CompressionType and RecordWrapperType are for Pipe input mode",
    "placement": f"{API}, InstancePlacementConfig: only for UltraServers",
    "output key": f"{API}, OutputDataConfig: no KMS key with S3 Express One Zone",
    "plan": "botocore's model, ReservedCapacityInstanceType: the types of training plans",
    "spot plan": "botocore's model, InstancePreferences: the capacity of training plans is not spot capacity",
    "remote debugging": "AWS's developer guide, internet-free mode and remote debugging: an isolated container calls "
    "no AWS service, the agent of a shell calls Systems Manager",
    "debugger": "sagemaker 2.257.7, _validate_and_set_debugger_configs of Framework and TensorFlow",
    "groups": "aws/sagemaker-python-sdk #6089: either all channels have instance groups or none",
}
EXCLUDED = Rule(
    code="TW295",
    severity="error",
    title="options that the service does not take together",
    source="; ".join(_EXCLUDED_BY.values()),
    remedy="Remove one of them.",
)
NOT_IN_SDK3 = Rule(
    code="TW285",
    severity="error",
    title="debugger or profiler, which SDK 3 cannot configure",
    source="sagemaker-train 1.27.0, model_trainer.py: no such field in its request",
    remedy="Use --sdk 2.",
)
LOCAL_STORAGE = Rule(
    code="TW286",
    severity="error",
    title="volume_kms_key with an instance type whose volumes are local disks",
    source=f"{API}, ResourceConfig: \"You can't request a VolumeKmsKeyId when using an instance type with local "
    'storage"; sagemaker 2.257.7 (utils.instance_supports_kms); Amazon EC2 user guide, instance store volumes '
    "(g7e, p6, trn2)",
    remedy="Remove volume_kms_key: the instance encrypts its local disks itself.",
)
NO_VOLUME = Rule(
    code="TW330",
    severity="warning",
    title="volume_gb for an instance type that uses its local disks instead of a volume",
    source="botocore's model of the SageMaker API, ResourceConfig.VolumeSizeInGB: no EBS storage is provisioned; "
    "available storage is fixed to the capacity of the NVMe volumes; Amazon EC2 user guide, instance store volumes",
    remedy="Remove volume_gb, and use an instance type whose local disks are large enough for the data.",
)
ONE_OBJECT = Rule(
    code="TW331",
    severity="warning",
    title="a single object that is sharded over several hosts: only one of them gets data",
    source=f"{API}, S3DataSource.S3DataDistributionType: not more instances than objects, or some get no data and are "
    "paid for",
    remedy="Use distribution: FullyReplicated, or a prefix with at least one object per host.",
)
ALIAS = Rule(
    code="TW339",
    severity="error",
    title="volume_kms_key is an alias",
    source=f"{API}, ResourceConfig.VolumeKmsKeyId: the id of a key or its ARN (an alias is for OutputDataConfig alone)",
    remedy="The id or the ARN of the key: aws kms describe-key --key-id ALIAS --query KeyMetadata.Arn",
)
RULES = (DOCUMENTED, ALIAS, NO_VPC, EXCLUDED, NOT_IN_SDK3, LOCAL_STORAGE, NO_VOLUME, ONE_OBJECT)
# Suffixes of files; a prefix ends with the name of a folder or a slash.
_FILE = re.compile(
    r"\.(?:tar|tgz|gz|bz2|zst|zip|csv|tsv|txt|jsonl?|parquet|arrow|tfrecords?|rec|h5|hdf5|npy|npz|pkl|pt)$"
)
_LOCAL = ("g5", "g6", "g7e", "p5", "p6", "trn1", "trn2")  # and every family with a d, such as p4d
ULTRA = ("ml.p6e-", "ml.trn")  # families with UltraServers; of Trainium not all, but newer ones may be
MAX_RUN = 28 * 24 * 3600
MAX_VOLUME_GB = 16384
_DIRECTORY_BUCKET = re.compile(r"s3://[^/]+--x-s3(?:/|$)")


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    job = subject.job
    if job.max_run > MAX_RUN:
        yield DOCUMENTED.finding(f"max_run is {job.max_run}; at most {MAX_RUN} seconds (28 days)", path="max_run")
    if job.volume_gb > MAX_VOLUME_GB:
        yield DOCUMENTED.finding(f"volume_gb is {job.volume_gb}; at most {MAX_VOLUME_GB}", path="volume_gb")
    for key in job.tags:
        if key.lower().startswith("aws:"):
            yield DOCUMENTED.finding(f"the tag {key!r}: keys that begin with aws: are AWS's own", path=f"tags.{key}")
    yield from _in_a_vpc(subject)
    yield from _together(job)
    yield from _streamed(subject)
    yield from _divided(job)
    yield from _grouped(subject)
    yield from _placed(subject)
    yield from _planned(subject)
    if (job.role or "").endswith("/"):
        yield DOCUMENTED.finding(f"{job.role} has no name behind its path", path="role")
    yield from _storage(subject)
    if subject.sdk == 3:
        for what, value in (("debugger", job.debugger), ("profiler", job.profiler)):
            if value is not None:
                yield NOT_IN_SDK3.finding(f"SDK 3 has no {what}", path=what)


def _excluded(
    case: str, message: str, path: str, *, severity: Severity | None = None, remedy: str | None = None
) -> Finding:
    """A finding of TW295 with the source of its own case."""
    return EXCLUDED.finding(message, path=path, severity=severity, remedy=remedy, source=_EXCLUDED_BY[case])


def _together(job: Job) -> Iterator[Finding]:
    """Check pairs of options that exclude each other."""
    if job.keep_alive:
        for given, what in ((job.spot, "spot"), (job.instance_groups, "instance_groups")):
            if given:
                yield _excluded("warm pool", f"keep_alive with {what}: a warm pool cannot have it", "keep_alive")
    if job.spot and job.training_plan:
        yield _excluded("spot plan", "spot with training_plan, which is paid for already", "spot", severity="warning")
    if job.remote_debug and job.network_isolation:
        yield _excluded(
            "remote debugging",
            "remote_debug with network_isolation: the containers cannot reach Systems Manager, which opens the shell",
            "remote_debug",
            severity="warning",
        )
    if job.debugger and enabled(job.distribution, "parameter_server"):
        yield _excluded(
            "debugger",
            "debugger with parameter_server: SDK 2 turns the debugger off, as it does not support parameter servers",
            "debugger",
            severity="warning",
        )
    if job.debugger and job.checkpoint and (job.hosts > 1 or job.distribution):
        yield _excluded(
            "debugger",
            "debugger with checkpoint in a distributed job: SDK 2 turns the debugger off, which cannot have both",
            "debugger",
            severity="warning",
        )


def _inputs(job: Job) -> Iterator[tuple[str, Channel | FileSystem]]:
    """The input channels that are valid; TW270 reports the others."""
    for name, given in job.inputs.items():
        with suppress(RequestError):
            yield name, channel(name, given)


def _divided(job: Job) -> Iterator[Finding]:
    """Check that a channel that is sharded over several hosts is not a single object."""
    for name, made in _inputs(job):
        if not isinstance(made, Channel) or made.distribution != "ShardedByS3Key" or made.s3_data_type != "S3Prefix":
            continue
        groups = [group.instance_count for group in job.instance_groups if group.name in made.instance_groups]
        hosts = sum(groups) if groups else job.hosts
        if hosts > 1 and _FILE.search(made.s3_data):
            told = f"{made.s3_data} is a single object, so only one of {hosts} hosts gets data"
            yield ONE_OBJECT.finding(told, path=f"inputs.{name}")


def _grouped(subject: Subject) -> Iterator[Finding]:
    """Check that all channels in S3 have instance groups, or none; file systems cannot have any."""
    having: dict[bool, list[str]] = {True: [], False: []}
    for name, made in _inputs(subject.job):
        if isinstance(made, Channel):
            having[bool(made.instance_groups)].append(name)
    # The code of an isolated job is a channel too, to which SDK 2 gives no groups.
    if subject.sdk == 2 and subject.job.network_isolation and subject.job.entry_point:
        having[False].append("code")
    if having[True] and having[False]:
        yield _excluded(
            "groups",
            f"{' and '.join(having[True])} with instance_groups, {' and '.join(having[False])} without",
            "inputs",
            remedy="Give every channel instance_groups, or none; an isolated job none.",
        )


def _placed(subject: Subject) -> Iterator[Finding]:
    for _, name in subject.types if subject.job.placement else ():
        if not name.startswith(ULTRA):
            yield _excluded("placement", f"placement with {name}, of which there are no UltraServers", "placement")
    placed = subject.job.placement.ultra_servers if subject.job.placement else {}
    for server, count in placed.items():
        if count == 0:
            yield DOCUMENTED.finding("0 instances; at least 1", path=f"placement.ultra_servers.{server}")
    if sum(placed.values()) > subject.job.hosts:
        told = f"placement of {sum(placed.values())} instances, of which the job has {subject.job.hosts}"
        yield _excluded("placement", told, "placement")


def _planned(subject: Subject) -> Iterator[Finding]:
    names = [name for _, name in subject.types]
    reserved = choices("ReservedCapacityInstanceType")
    # Of several groups only one may be of the plan.
    if subject.job.training_plan and names and not set(names) & set(reserved):
        yield _excluded(
            "plan",
            f"training_plan with {' and '.join(names)}: no plan has it",
            "training_plan",
            remedy=f"Plans are of {', '.join(reserved)}.",
        )


def _in_a_vpc(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    if job.subnets and job.security_group_ids:
        return
    missing = "subnets" if not job.subnets else "security_group_ids"
    if job.registry and job.registry.access_mode == "Vpc":
        yield NO_VPC.finding(f"{missing} is missing", path="registry")
    for name, made in _inputs(job):
        if isinstance(made, FileSystem):
            yield NO_VPC.finding(f"{missing} is missing", path=f"inputs.{name}")


def _streamed(subject: Subject) -> Iterator[Finding]:
    for name, made in _inputs(subject.job):
        if not isinstance(made, Channel) or made.input_mode == "Pipe":
            continue
        mode = made.input_mode or "File"
        if made.record_wrapping == "RecordIO":
            yield _excluded(
                "streamed",
                f"record_wrapping: RecordIO with input_mode {mode}: nothing is wrapped",
                f"inputs.{name}",
                remedy="Add input_mode: Pipe, or remove record_wrapping.",
            )
        if made.compression == "Gzip":
            yield _excluded(
                "streamed",
                f"compression: Gzip with input_mode {mode}: the script gets the files as they are",
                f"inputs.{name}",
                remedy="Add input_mode: Pipe, or remove compression and let the script decompress.",
            )


def _storage(subject: Subject) -> Iterator[Finding]:
    """Check the volumes and the keys that encrypt them and the models."""
    if subject.job.output_kms_key and _DIRECTORY_BUCKET.match(subject.job.output or ""):
        yield _excluded("output key", "output_kms_key with a bucket of S3 Express One Zone", "output_kms_key")
    if re.match(r"alias/|arn:[^:]*:kms:[^:]*:[^:]*:alias/", subject.job.volume_kms_key or ""):
        yield ALIAS.finding(f"{subject.job.volume_kms_key} is the alias of a key", path="volume_kms_key")
    for _, kind, _ in subject.instances:
        if "d" in kind.family or kind.family.startswith(_LOCAL):
            if subject.job.volume_kms_key:
                yield LOCAL_STORAGE.finding(f"{kind.name} has local disks", path="volume_kms_key")
            if subject.job.volume_gb != DEFAULT_VOLUME_GB:
                told = f"volume_gb {subject.job.volume_gb} has no effect: {kind.name} uses its local disks"
                yield NO_VOLUME.finding(told, path="volume_gb")
