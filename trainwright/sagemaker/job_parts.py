"""The parts of a job file: its image, inputs, outputs, instances, tuner, and what else is a table in it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from trainwright.core.fields import form
from trainwright.core.records import Field, Record

DEFAULT_VOLUME_GB = 30  # as in both SDKs


class Model(Record):
    """The model, for the comparison with a GPU's memory."""

    parameters: Annotated[float, Meta(gt=0)] = Field(description="number of parameters: 7.0e9")
    optimizer: Literal["adam", "adamw", "momentum", "sgd"] = "adam"


class Channel(Record):
    """An input channel; the keys are those of SDK 2's ``TrainingInput``."""

    s3_data: str
    distribution: Literal["FullyReplicated", "ShardedByS3Key"] = "FullyReplicated"
    # Converse: the conversations that Nova models are trained on.
    s3_data_type: Literal["S3Prefix", "ManifestFile", "AugmentedManifestFile", "Converse"] = "S3Prefix"
    content_type: str | None = None
    compression: Literal["None", "Gzip"] | None = None
    input_mode: Literal["File", "Pipe", "FastFile"] | None = None
    instance_groups: tuple[str, ...] = ()
    attribute_names: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=256)], ...], Meta(max_length=16)] = (
        Field(default=(), description="of an augmented manifest: what the script gets of each line, in this order")
    )
    record_wrapping: Literal["None", "RecordIO"] | None = None


Absolute = Annotated[str, form(r"^/.*$")]


class FileSystem(Record):
    """An input channel on a file system; the keys are those of SDK 2's ``FileSystemInput``."""

    file_system_id: str
    file_system_type: Literal["FSxLustre", "EFS"]
    directory_path: Absolute = Field(description="for FSx it begins with the mount name")
    file_system_access_mode: Literal["ro", "rw"] = "ro"
    content_type: str | None = None


# An integer of the service's model has 32 bits (Smithy 2.0, simple types).
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Samples = Annotated[int, Meta(ge=1)]
# SDK 2 leaves an empty path out of its request, SDK 3 sends it.
GivenPath = Annotated[str, Meta(min_length=1)]


class PlanRequest(Record):
    """The image as a request: the flags of ``plan``."""

    framework: str
    cuda: str | None = None
    version: str | None = None
    python: str | None = None
    base: str | None = None
    with_: tuple[str, ...] = Field(default=(), alias="with", description="components to add")
    without: tuple[str, ...] = Field(default=(), description="components to leave out")
    for_gpus: tuple[str, ...] = Field(default=(), description="GPUs whose machine code is kept: 9.0, H100 or ml.p5")


class InstanceGroup(Record):
    """A group of a heterogeneous cluster."""

    name: str
    instance_type: str
    instance_count: Positive


class Checkpoint(Record):
    """Where checkpoints go; the service copies the local folder to S3 while the job runs."""

    s3_uri: str
    local_path: GivenPath = "/opt/ml/checkpoints"


class Kept(Record):
    """A folder of the container that the service copies to S3."""

    s3_uri: str
    local_path: GivenPath | None = None


class Profiler(Record):
    """SageMaker's system monitoring (only SDK 2)."""

    s3_uri: str
    interval_ms: Literal[100, 200, 500, 1000, 5000, 60000] = 500


class ImageRegistry(Record):
    """A registry outside of ECR that the service pulls the image from, through the job's VPC."""

    access_mode: Literal["Vpc", "Platform"] = Field(default="Vpc", description="Platform: from ECR, as without this")
    credentials_provider: str | None = Field(
        default=None, description="ARN of the Lambda function that returns the user and the password"
    )


class Placement(Record):
    """Where the instances of a training plan for UltraServers are placed."""

    multiple_jobs: bool = False
    ultra_servers: dict[str, int] = Field(default={}, description="id of an UltraServer: instances on it")


class TunedRange(Record):
    """The values of a tuned hyperparameter: ``values``, or all from ``min`` to ``max``."""

    min: float | int | None = None
    max: float | int | None = None
    scaling: Literal["Auto", "Linear", "Logarithmic", "ReverseLogarithmic"] = "Auto"
    values: tuple[Any, ...] = Field(default=(), description="the choices of a categorical one")

    @property
    def kind(self) -> Literal["Categorical", "Continuous", "Integer"]:
        """The SDKs' class of range: two integers make an integer range."""
        if self.values:
            return "Categorical"
        return "Integer" if isinstance(self.min, int) and isinstance(self.max, int) else "Continuous"


class Hyperband(Record):
    """The resources, such as epochs, that a training job of a Hyperband search may use."""

    max_resource: Positive
    min_resource: Positive = 1


class WarmStart(Record):
    """Tuning jobs whose results a new one starts from."""

    type: Literal["IdenticalDataAndAlgorithm", "TransferLearning"]
    parents: tuple[str, ...] = Field(description="names of tuning jobs that have ended")


class Tuner(Record):
    """A hyperparameter tuning job, which starts this job many times."""

    metric: str = Field(description="the objective: one of the job's metrics")
    goal: Literal["Maximize", "Minimize"]
    ranges: dict[str, TunedRange] = Field(
        description="hyperparameter: its values; 0.1 to 1 is continuous, 1 to 8 integer"
    )
    strategy: Literal["Bayesian", "Random", "Hyperband", "Grid"] = "Bayesian"
    max_jobs: Positive | None = Field(default=None, description="training jobs in all; grid search may leave it out")
    max_parallel_jobs: Positive = 1
    early_stopping: bool = Field(default=False, description="the service stops jobs that fall behind")
    hyperband: Hyperband | None = Field(default=None, description="for the strategy Hyperband")
    warm_start: WarmStart | None = None
    max_runtime: Positive | None = Field(default=None, description="maximum seconds of the whole search")


class Compiler(Record):
    """SageMaker Training Compiler."""

    enabled: bool = True
    debug: bool = False


class Batch(Record):
    """Batch sizes in samples: ``global`` per optimizer step of the job, ``per_replica`` of one model replica."""

    global_: Samples | None = Field(default=None, alias="global")
    per_replica: Samples | None = None
    micro: Samples | None = None
    samples: Samples | None = Field(default=None, description="in the training set")
    learning_rate: Annotated[float, Meta(gt=0)] | None = Field(
        default=None, description="found for the batch `tuned_for`"
    )
    tuned_for: Samples | None = Field(default=None, description="the global batch that learning_rate was found for")


class Tag(Record):
    """A tag in the form of the API and the SDKs."""

    key: str = Field(alias="Key")
    value: str = Field(alias="Value")


class MetricDefinition(Record):
    """A metric in the form of the API and the SDKs."""

    key: str = Field(alias="Name")
    value: str = Field(alias="Regex")
