"""How to push: the flags of ``push`` that say what is done, as opposed to where."""

from __future__ import annotations

from typing import ClassVar, get_args

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.records import Field, Words

STALL = 300.0  # seconds in which nothing moves: a registry puts a big layer together in less


class PlaceWords(Words):
    """Which repository, in which regions; :func:`trainwright.push.references.find_target` reads it."""

    heading: ClassVar[str] = "Where"

    repository: str = Field(default="", description="name of the ECR repository, or its whole address")
    regions: tuple[str, ...] = Field(
        default=(),
        alias="region",
        description="AWS region (may be repeated: each has a copy; default: the site's, AWS_REGION)",
    )
    account: str | None = Field(
        default=None, description="whose registry, twelve digits (default: the site's, else that of the credentials)"
    )


class PushOptions(Words):
    """How to push, as the command line says it; :func:`check_options` before use."""

    heading: ClassVar[str] = "How to push"

    create: bool = Field(
        default=False, description="create the repository if it is missing, and add filters for moving tags"
    )
    policy: str | None = Field(
        default=None, description="settings for --create, a YAML file (default: the shipped one)", metavar="FILE"
    )
    tags: tuple[str, ...] = Field(
        default=(), alias="tag", description="an additional tag of your own (may be repeated)"
    )
    leave_tags: bool = Field(
        default=False,
        description="leave the moving tags where they are; ./invoke tags advance moves those of several images at once",
    )
    revision: int = Field(default=1, description="distinguishes builds of one plan on one day", metavar="N")
    next_revision: bool = Field(
        default=False,
        description="take the next revision if another image has the tag of this plan and day",
    )
    unproven: bool = Field(
        default=False, description="allow an image that has not passed its smoke tests; its label and tag say so"
    )
    soci: bool = Field(
        default=False,
        description="add a SOCI index, with which jobs start before all layers are there; tags point to the index",
    )
    wait_for_replicas: bool = Field(
        default=False, description="wait until ECR has copied the image as its registry's replication rules say"
    )
    stall: float = Field(
        default=STALL, description="seconds without progress after which a push is stopped", metavar="SECONDS"
    )
    progress: str = Field(
        default="auto",
        description="how the upload is shown",
        heading="Output",
        metavar="KIND",
        values=("auto", "live", "plain", "json", "none"),
    )


class PromoteOptions(Words):
    """How an image is copied from registry to registry."""

    heading: ClassVar[str] = "How to copy"

    create: bool = Field(default=False, description="create a repository that is missing")
    policy: str | None = Field(
        default=None, description="settings for --create, a YAML file (default: the shipped one)", metavar="FILE"
    )
    tags: tuple[str, ...] = Field(
        default=(), alias="tag", description="a tag of your own in each target (may be repeated)"
    )


def check_options(options: PushOptions) -> None:
    """Look at the options of a push.

    Raises:
        RequestError: a tag, the kind of progress or a number is invalid.
    """
    from trainwright.engine.build_display import Mode
    from trainwright.push.tags import check_tag

    if options.progress not in get_args(Mode):
        raise RequestError(f"--progress {options.progress}: invalid. {did_you_mean(options.progress, get_args(Mode))}")
    if options.stall <= 0:
        raise RequestError(f"--stall {options.stall:g}: must be more than 0 seconds")
    if options.revision < 1:
        raise RequestError(f"--revision {options.revision}: must be at least 1")
    for tag in options.tags:
        check_tag(tag)
