"""The flags that name an image; every verb that takes a request has them."""

from __future__ import annotations

from typing import ClassVar

from trainwright.core.records import Field, Words


class RequestWords(Words):
    """A request as it was typed; :func:`trainwright.plan.request.read_request` reads it."""

    bare: ClassVar[str] = "short"
    heading: ClassVar[str] = "What to build"

    short: str | None = Field(
        default=None,
        alias="request",
        description="framework, version, CUDA and Python in one word: pytorch:cu124, pytorch:2.6.0-cu124-py311",
        values="requests",
    )
    framework: str | None = Field(default=None, description="name of a framework", values="frameworks")
    cuda: str | None = Field(
        default=None, description="CUDA of the image: cu124, 12.4 or cpu (default: the newest)", values="cudas"
    )
    version: str | None = Field(default=None, description="framework version, in full or the beginning: 2.6.0, 2.6")
    python: str | None = Field(default=None, description="Python version, such as 3.11", values="pythons")
    base: str | None = Field(
        default=None, description="what the image starts from (default: the image line's)", values="bases"
    )
    for_: str | None = Field(
        default=None,
        alias="for",
        description="where its jobs run (default: sagemaker); elsewhere the image has no training toolkit",
        values="destinations",
    )
    platform: str | None = Field(
        default=None,
        description="the processor of its hosts (default: linux/amd64); linux/arm64 is unproven",
        values=("linux/amd64", "linux/arm64"),
    )
    with_: str | None = Field(
        default=None,
        alias="with",
        description="components to add, comma-separated: cuda-compiler,metis (./invoke list --components)",
        metavar="NAMES",
        values="components",
    )
    without: str | None = Field(
        default=None,
        description="components to leave out, comma-separated: rmm,metis",
        metavar="NAMES",
        values="components",
    )
    set_: tuple[str, ...] = Field(
        default=(),
        alias="set",
        description="pin a component to another version, NAME=VERSION: nccl=2.21.5, or take it from another provider: "
        "pytorch=index (may be repeated)",
        metavar="NAME=VERSION",
    )
    for_gpus: str | None = Field(
        default=None,
        description="GPUs that its jobs use, comma-separated: 8.0,9.0 or ml.p4d,ml.p5; machine code for others is left "
        "out of PyTorch, TensorFlow and NCCL",
        values="gpus",
    )
    allow_unproven: bool = Field(
        default=False, description="try a version that no image line has, based on the nearest one"
    )
    requirements: str | None = Field(
        default=None,
        alias="with_requirements",
        description="a requirements file, pyproject.toml, uv.lock, pylock.toml or environment.yml; its packages are "
        "installed last",
        heading="Your files",
        metavar="FILE",
    )
    apt: tuple[str, ...] = Field(
        default=(),
        alias="with_apt",
        description="Debian packages, comma-separated, NAME or NAME=VERSION: ffmpeg,libsndfile1 (may be repeated)",
        heading="Your files",
        metavar="PACKAGES",
    )
    run: str | None = Field(
        default=None,
        alias="with_run",
        description="a script with a #! line that runs as root after everything else is in the image",
        heading="Your files",
        metavar="SCRIPT",
    )
    code: str | None = Field(
        default=None,
        description="a folder that is baked into /opt/ml/code (an estimator's source_dir is then ignored)",
        heading="Your files",
        metavar="DIR",
    )
    entry_point: str | None = Field(
        default=None, description="the script in --code that `train` runs", heading="Your files", metavar="FILE"
    )
    allow_change: str | None = Field(
        default=None,
        description="Python packages of an extended image that --with-requirements may change, comma-separated",
        heading="Your files",
        metavar="NAMES",
    )
    allow_secrets: bool = Field(
        default=False,
        description="allow files that look like credentials in the image (.env, .netrc, *.pem, ...)",
        heading="Your files",
    )
