"""The words by which a command line describes a job to rehearse; each is a flag of ``rehearse``."""

from __future__ import annotations

from trainwright.core.records import Field, Words

DEFAULT_INSTANCE = "ml.m5.xlarge"


class RehearsalWords(Words):
    """A job as it was typed; :func:`trainwright.rehearse.flags.make_job` reads it. A number 0 means: not given."""

    image: str = Field(default="", description="tag or id of an image that the engine has")
    entry_point: str = Field(
        default="", description="the script, relative to --source-dir; or any file, where that is not given"
    )
    source_dir: str | None = Field(default=None, description="the folder that an estimator would upload")
    requirements: str | None = Field(
        default=None, description="a requirements file, in place of the source folder's requirements.txt"
    )
    hosts: int = Field(default=1, description="how many instances (default: 1)")
    processes_per_host: int = Field(
        default=0, description="ranks on each (default: what the platform takes for --instance-type)"
    )
    distribution: str | None = Field(
        default=None, description="the estimator's distribution: a file or a text of JSON, or mpi or torch_distributed"
    )
    instance_type: str = Field(
        default=DEFAULT_INSTANCE, description=f"as ml.p4d.24xlarge (default: {DEFAULT_INSTANCE})"
    )
    instance_groups: str | None = Field(
        default=None,
        description="of a heterogeneous cluster: a file or a text of JSON, in place of --hosts, --instance-type",
    )
    hyperparameters: str | None = Field(default=None, description="a file or a text of JSON")
    inputs: tuple[str, ...] = Field(
        default=(), alias="input", description="a channel and its folder, as training=DIR (may be repeated)"
    )
    environment: tuple[str, ...] = Field(
        default=(),
        alias="env",
        description="a variable of the estimator's environment, as NAME=VALUE (may be repeated)",
    )
    sdk: int = Field(
        default=2, description="whose contract: 2 (the image's `train`) or 3 (the drivers of SageMaker SDK 3)"
    )
    launch_only: bool = Field(
        default=False, description="show the launch line and environment on every host, and run nothing"
    )
    timeout: float = Field(default=300.0, description="seconds until it is ended (default: 300)")
    stop_after: str | None = Field(
        default=None, description="send SIGTERM, as StopTrainingJob does, so many seconds after the script began"
    )
    memory: str | None = Field(default=None, description="limit of each host, as 2g")
