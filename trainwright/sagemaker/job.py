"""The job file, a description of a training job that ``preflight`` and ``estimator`` read.

Unknown keys are errors that name the nearest valid one, here and in ``distribution``; the SDKs' names of a key are
known (:mod:`trainwright.sagemaker.spellings`). What a distribution starts in a container depends on the training
toolkit (sagemaker-training 5.1.4, sagemaker-pytorch-training 3.0.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from trainwright.core.checked import Checked
from trainwright.core.data_files import read_yaml
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.records import Field, Record, parse_record
from trainwright.sagemaker.distribution import (
    ONE_PER_HOST,
    STRATEGIES,
    Launcher,
    launcher_named,
    processes_per_host,
    ranks_per_host,
)
from trainwright.sagemaker.instances import instance
from trainwright.sagemaker.job_parts import (
    DEFAULT_VOLUME_GB,
    Batch,
    Checkpoint,
    Compiler,
    ImageRegistry,
    InstanceGroup,
    Kept,
    MetricDefinition,
    Model,
    Placement,
    PlanRequest,
    Positive,
    Profiler,
    Tag,
    Tuner,
)
from trainwright.sagemaker.spellings import respelled


def _by_name(given: dict[str, str] | tuple[Tag | MetricDefinition, ...]) -> dict[str, str]:
    """Tags or metrics by their names, each of which may stand there once.

    Raises:
        ValueError: the API's list has a name twice.
    """
    if isinstance(given, dict):
        return given
    made = {row.key: row.value for row in given}
    if len(made) < len(given):
        names = [row.key for row in given]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return made


if TYPE_CHECKING:  # both forms are read, and every reader of a job sees the first
    Tags = dict[str, str]
    Metrics = dict[str, str]
else:
    Tags = Checked[dict[str, str] | tuple[Tag, ...], _by_name]
    Metrics = Checked[dict[str, str] | tuple[MetricDefinition, ...], _by_name]


class Job(Record):
    """A training job."""

    image: Annotated[str, Meta(min_length=1)] | None = Field(
        default=None, description="address in ECR or `registry`; a local tag is enough for checks"
    )
    registry: ImageRegistry | None = Field(default=None, description="the image's registry, if it is not ECR")
    plan: PlanRequest | None = None
    entry_point: str | None = None
    source_dir: str | None = None
    instance_type: str | None = None
    instance_count: Positive = 1
    instance_groups: tuple[InstanceGroup, ...] = ()
    distribution: dict[str, Any] = Field(default={}, description="in the form of the SageMaker SDK 2")
    hyperparameters: dict[str, Any] = {}
    environment: dict[str, str] = {}
    inputs: dict[str, Any] = Field(default={}, description="channel: S3 address or the SDK's record")
    role: str | None = None
    region: str | None = None
    checkpoint: Checkpoint | None = None
    spot: bool = False
    compiler: Compiler | None = None
    batch: Batch | None = None
    model: Model | None = None
    name: str | None = Field(default=None, description="prefix of the job's name (default: the repository's name)")
    output: str | None = Field(default=None, description="S3 address for models and code (default: the SDK's bucket)")
    disable_output_compression: bool = Field(default=False, description="upload the model without packing it")
    volume_gb: Positive = Field(default=DEFAULT_VOLUME_GB, description="disk size of each instance in GB")
    max_run: Positive = Field(default=86400, description="maximum run time in seconds")
    max_wait: Positive | None = Field(default=None, description="maximum seconds from request to end, with spot")
    subnets: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    network_isolation: bool = False
    encrypt_traffic: bool = Field(default=False, description="encrypt the traffic between the containers")
    volume_kms_key: str | None = None
    output_kms_key: str | None = None
    keep_alive: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = Field(
        default=None, description="seconds in a warm pool after the end"
    )
    retries: Positive | None = Field(default=None, description="attempts after failures of the service")
    training_plan: str | None = Field(default=None, description="ARN of a training plan")
    placement: Placement | None = None
    tensorboard: Kept | None = None
    debugger: Kept | None = None
    profiler: Profiler | None = None
    remote_debug: bool = Field(default=False, description="allow a shell in the containers (SSM)")
    session_tags: bool = Field(default=False, description="pass on the tags of the caller's session")
    tuner: Tuner | None = Field(default=None, description="a tuning job in place of one training job")
    silence: dict[str, str] = Field(default={}, description="code of a finding: why it is accepted")
    tags: Tags = Field(default={}, description="key: value, or the API's list of them")
    metrics: Metrics = Field(default={}, description="name: regular expression for the log, or the API's list of them")

    @property
    def arguments(self) -> dict[str, Any]:
        """What the script gets as arguments: the hyperparameters, and of each tuned one a value of its range."""
        tuned = self.tuner.ranges if self.tuner else {}
        return self.hyperparameters | {name: (*each.values, each.min)[0] for name, each in tuned.items()}

    @property
    def launcher(self) -> Launcher:
        """The launcher that starts the script in the container."""
        return launcher_named(self.distribution)

    @property
    def host_has_its_own_files(self) -> bool:
        """Whether every input channel is divided among the hosts (``ShardedByS3Key``)."""
        divided = [isinstance(c, dict) and c.get("distribution") == "ShardedByS3Key" for c in self.inputs.values()]
        return bool(divided) and all(divided)

    @property
    def model_parallel(self) -> bool:
        """Whether SageMaker's model parallel library is enabled."""
        return _enabled(_part(self.distribution, "smdistributed", "modelparallel"))

    @property
    def smp_parameters(self) -> dict[str, Any]:
        """The parameters of the model parallel library, if it is enabled."""
        given = _part(self.distribution, "smdistributed", "modelparallel", "parameters")
        return dict(given) if self.model_parallel and isinstance(given, dict) else {}

    @property
    def launched_groups(self) -> tuple[InstanceGroup, ...]:
        """The groups whose instances train together: those that ``distribution`` names, otherwise all of them."""
        named = self.distribution.get("instance_groups")
        chosen = [group for group in self.instance_groups if isinstance(named, list) and group.name in named]
        return tuple(chosen or self.instance_groups)

    @property
    def hosts(self) -> int:
        """Number of instances that train together."""
        return sum(group.instance_count for group in self.launched_groups) or self.instance_count

    @property
    def instances(self) -> int:
        """Number of instances, all groups together."""
        return sum(group.instance_count for group in self.instance_groups) or self.instance_count

    @property
    def processes_per_host(self) -> int | None:
        """Processes that the launcher starts on each host; None without an instance type.

        Raises:
            RequestError: the instance type is unknown.
        """
        launcher, asked = self.launcher, processes_per_host(self.distribution)
        if asked is not None or launcher in ONE_PER_HOST:
            return ranks_per_host(launcher, asked, 1)
        name = self.instance_type or next((group.instance_type for group in self.launched_groups), None)
        known = name not in (None, "local", "local_gpu")
        return ranks_per_host(launcher, None, instance(str(name)).processes_per_host) if known else None

    @property
    def gpus(self) -> int | None:
        """GPUs per host; None without an instance type.

        Raises:
            RequestError: the instance type is unknown.
        """
        name = self.instance_type
        return None if name is None or name.startswith("local") else instance(name).gpus


def read_job(path: Path) -> Job:
    """Read the job in a YAML or JSON file without checking its ``distribution``.

    Raises:
        RequestError: the file is missing, a key is unknown (names the nearest one), or a value has the wrong type.
    """
    return parse_record(Job, respelled(read_yaml(path) or {}, path), str(path))


def load_job(path: Path) -> Job:
    """Read the job in a YAML or JSON file, and check the keys of its ``distribution``.

    Raises:
        RequestError: the file is missing, a key is unknown (names the nearest one), or a value has the wrong type.
    """
    job = read_job(path)
    for key in job.distribution:
        if key not in STRATEGIES:
            hint = "Did you mean pytorchxla?" if key == "torchxla" else did_you_mean(key, STRATEGIES)
            raise RequestError(
                f"{path}: unknown key 'distribution.{key}'. {hint}",
                remedy="Correct the key. The SDK ignores unknown keys, so the job would run as a single process.",
            )
    libraries = job.distribution.get("smdistributed", {})
    for key in libraries if isinstance(libraries, Mapping) else ():
        if key not in ("dataparallel", "modelparallel"):
            hint = did_you_mean(key, ("dataparallel", "modelparallel"))
            raise RequestError(f"{path}: unknown key 'distribution.smdistributed.{key}'. {hint}")
    return job


def _enabled(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value.get("enabled", False))


def _part(mapping: Mapping[str, Any], *keys: str) -> Any:
    current: Any = mapping
    for key in keys:
        current = current.get(key) if isinstance(current, Mapping) else None
    return current
