"""The flags of ``rehearse`` that describe the job."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

from trainwright.core.records import Field, Words

DEFAULT_INSTANCE = "ml.m5.xlarge"
# What starts a job on its hosts: SageMaker, or a cluster of one's own.
RehearsalStart = Literal["sagemaker", "pytorchjob", "slurm"]
STARTS: tuple[RehearsalStart, ...] = get_args(RehearsalStart)


class RehearsalWords(Words):
    """A job as it was typed; :func:`trainwright.rehearse.flags.make_job` reads it. A number 0 means: not given."""

    bare: ClassVar[str] = "image"
    heading: ClassVar[str] = "The job"

    image: str = Field(
        default="",
        description="tag or id of an image that the engine has (default: the one of trainwright.toml, or the newest)",
        values="built",
    )
    entry_point: str = Field(
        default="",
        description="the script, relative to --source-dir or, without it, any file (default: the image's own program)",
        metavar="FILE",
    )
    source_dir: str | None = Field(default=None, description="the folder that an estimator would upload", metavar="DIR")
    requirements: str | None = Field(
        default=None,
        description="a requirements file, instead of the source folder's requirements.txt",
        metavar="FILE",
    )
    hosts: int = Field(default=1, description="how many instances", heading="The cluster", metavar="N")
    processes_per_host: int = Field(
        default=0,
        description="processes per host (default: what the platform starts on --instance-type)",
        heading="The cluster",
        metavar="N",
    )
    distribution: str | None = Field(
        default=None,
        description="the estimator's distribution: a JSON file, JSON, or a name",
        heading="The cluster",
        metavar="JSON",
        values="distributions",
    )
    instance_type: str = Field(
        default=DEFAULT_INSTANCE,
        description="such as ml.p4d.24xlarge",
        heading="The cluster",
        metavar="TYPE",
        values="instances",
    )
    instance_groups: str | None = Field(
        default=None,
        description="groups of a heterogeneous cluster: a JSON file or JSON; replaces --hosts and --instance-type",
        heading="The cluster",
        metavar="JSON",
    )
    hyperparameters: str | None = Field(
        default=None, description="the script's arguments: a JSON file or JSON", metavar="JSON"
    )
    inputs: tuple[str, ...] = Field(
        default=(),
        alias="input",
        description="a channel and its folder, as training=DIR (may be repeated)",
        metavar="NAME=DIR",
    )
    environment: tuple[str, ...] = Field(
        default=(),
        alias="env",
        description="a variable of the estimator's environment, as NAME=VALUE (may be repeated)",
        metavar="NAME=VALUE",
    )
    sdk: int = Field(
        default=2,
        description="version of the SageMaker SDK: 2 (the image's `train`) or 3 (that SDK's drivers)",
        metavar="N",
        values=("2", "3"),
    )
    start: str = Field(
        default="sagemaker",
        description="what starts the job: sagemaker, or as estimator --format writes it, pytorchjob or slurm",
        metavar="HOW",
        values=STARTS,
    )
    launch_only: bool = Field(
        default=False,
        description="show the launch line and environment on every host, and run nothing",
        heading="How it runs",
    )
    timeout: float = Field(
        default=300.0, description="seconds after which the job is ended", heading="How it runs", metavar="SECONDS"
    )
    stop_after: str | None = Field(
        default=None,
        description="seconds after the start of the script when SIGTERM is sent, as by StopTrainingJob",
        heading="How it runs",
        metavar="SECONDS",
    )
    memory: str | None = Field(
        default=None, description="memory limit of each host, such as 2g", heading="How it runs", metavar="SIZE"
    )
