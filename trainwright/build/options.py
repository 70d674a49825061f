"""How to build: the flags of ``build`` that say how, as opposed to what."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, ClassVar, cast, get_args

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.records import Field, Words

if TYPE_CHECKING:
    from trainwright.engine.build_display import Mode

# The grammar of image references (distribution/reference), without a digest.
TAG = re.compile(
    r"(?:[a-zA-Z0-9.-]+(?::[0-9]+)?/)?[a-z0-9]+(?:[._/-][a-z0-9]+)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
)


class BuildOptions(Words):
    """How to build, as the command line says it.

    Raises:
        RequestError: a tag, the kind of progress, a cache or the registry is invalid.
    """

    heading: ClassVar[str] = "How to build"

    tags: tuple[str, ...] = Field(
        default=(), alias="tag", description="an additional tag (may be repeated)", heading="After the build"
    )
    progress: str = Field(
        default="auto",
        description="how the build is shown",
        heading="Output",
        metavar="KIND",
        values=("auto", "live", "plain", "json", "none"),
    )
    no_cache: bool = Field(default=False, description="build every step again")
    fresh_base: bool = Field(default=False, description="make a new Debian base from today's packages")
    refresh: str | None = Field(
        default=None,
        description="install the distribution's packages anew, and make a new Debian base, where there are only ones "
        "from before this day",
        metavar="DAY",
    )
    skip_source_check: bool = Field(default=False, description="build without checking first that every source answers")
    cache: tuple[str, ...] = Field(
        default=(),
        description="a registry cache, read and written (may be repeated; all but the first are only read)",
        metavar="REFERENCE",
    )
    registry: str | None = Field(
        default=None,
        description="the builder pushes the image to this repository, without a tag; it is pulled and proven here",
        heading="After the build",
        metavar="REPOSITORY",
    )

    stay: bool = Field(
        default=False,
        description="the image stays in --registry and does not come here: its builder proves it, and a job that is "
        "started by its digest (smoke --attach)",
        heading="After the build",
    )
    allow_redistribution: bool = Field(
        default=False,
        description="--registry may be a public one, although licences restrict redistribution",
        heading="After the build",
    )

    @property
    def mode(self) -> Mode:
        """The kind of progress, which is one that there is."""
        return cast("Mode", self.progress)

    def __post_init__(self) -> None:
        """Check what the fields' types cannot say."""
        from trainwright.engine.build_display import Mode
        from trainwright.engine.builders import check_registry
        from trainwright.engine.cache import check_reference

        if self.progress not in get_args(Mode):
            hint = did_you_mean(self.progress, get_args(Mode))
            raise RequestError(f"--progress {self.progress}: invalid. {hint}")
        for tag in self.tags:
            if not TAG.fullmatch(tag):
                raise RequestError(f"--tag {tag}: not an image name", remedy="For example: --tag team/trainer:nightly")
        if self.refresh is not None and not _is_day(self.refresh):
            raise RequestError(f"--refresh {self.refresh}: not a day", remedy="For example: --refresh 2026-11-25")
        for reference in self.cache:
            check_reference(reference)
        if self.registry is not None:
            check_registry(self.registry)
        elif self.stay:
            raise RequestError("--stay: only with --registry", remedy="Without it, the image comes to this engine.")


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
