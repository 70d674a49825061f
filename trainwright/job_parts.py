"""Records of the job file that only what starts a job reads: the model's size, an input channel."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainwright.records import Record


class Model(Record):
    """What is trained, for the comparison with a GPU's memory."""

    parameters: float = Field(gt=0, description="how many the model has: 7.0e9")
    optimizer: Literal["adam", "momentum", "sgd"] = "adam"


class Channel(Record):
    """An input channel; the keys are those of SDK 2's ``TrainingInput``."""

    s3_data: str
    distribution: Literal["FullyReplicated", "ShardedByS3Key"] = "FullyReplicated"
    s3_data_type: Literal["S3Prefix", "ManifestFile", "AugmentedManifestFile"] = "S3Prefix"
    content_type: str | None = None
    compression: Literal["None", "Gzip"] | None = None
    input_mode: Literal["File", "Pipe", "FastFile"] | None = None
    instance_groups: tuple[str, ...] = ()
