"""The flags of ``rehearse`` that describe the job."""

from __future__ import annotations

from pydantic import Field

from trainwright.core.records import Words

DEFAULT_INSTANCE = "ml.m5.xlarge"


class RehearsalWords(Words):
    """A job as it was typed; :func:`trainwright.rehearse.flags.make_job` reads it. A number 0 means: not given."""

    image: str = Field(default="", description="tag or id of an image that the engine has")
    entry_point: str = Field(
        default="",
        description="the script, relative to --source-dir or, without it, any file (default: the image's own program)",
    )
    source_dir: str | None = Field(default=None, description="the folder that an estimator would upload")
    requirements: str | None = Field(
        default=None, description="a requirements file, instead of the source folder's requirements.txt"
    )
    hosts: int = Field(default=1, description="how many instances (default: 1)")
    processes_per_host: int = Field(
        default=0, description="processes per host (default: what the platform starts on --instance-type)"
    )
    distribution: str | None = Field(
        default=None, description="the estimator's distribution: a JSON file, JSON, mpi or torch_distributed"
    )
    instance_type: str = Field(
        default=DEFAULT_INSTANCE, description=f"such as ml.p4d.24xlarge (default: {DEFAULT_INSTANCE})"
    )
    instance_groups: str | None = Field(
        default=None,
        description="groups of a heterogeneous cluster: a JSON file or JSON; replaces --hosts and --instance-type",
    )
    hyperparameters: str | None = Field(default=None, description="the script's arguments: a JSON file or JSON")
    inputs: tuple[str, ...] = Field(
        default=(), alias="input", description="a channel and its folder, as training=DIR (may be repeated)"
    )
    environment: tuple[str, ...] = Field(
        default=(),
        alias="env",
        description="a variable of the estimator's environment, as NAME=VALUE (may be repeated)",
    )
    sdk: int = Field(
        default=2, description="version of the SageMaker SDK: 2 (the image's `train`) or 3 (that SDK's drivers)"
    )
    launch_only: bool = Field(
        default=False, description="show the launch line and environment on every host, and run nothing"
    )
    timeout: float = Field(default=300.0, description="seconds after which the job is ended (default: 300)")
    stop_after: str | None = Field(
        default=None,
        description="seconds after the start of the script when SIGTERM is sent, as by StopTrainingJob",
    )
    memory: str | None = Field(default=None, description="memory limit of each host, such as 2g")
