"""The flags of ``build``, for one image, for many, and elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainwright.build.options import BuildOptions
from trainwright.core.records import Field
from trainwright.verbs.request import RequestFlags

if TYPE_CHECKING:
    from trainwright.push.references import PushTarget
    from trainwright.site.site import Site

JOBS = 2  # BuildKit runs the stages of one build side by side already


class BuildFlags(BuildOptions, RequestFlags):
    """The flags of ``build``."""

    heading: ClassVar[str] = "How to build"
    examples: ClassVar[tuple[str, ...]] = (
        "build pytorch:cu124 --smoke",
        "build pytorch:cu124 --with cuda-compiler --with-requirements requirements.txt",
        "build --framework pytorch --cuda cpu --code src --entry-point train.py",
        "build --images 'pytorch-*-debian' --jobs 4 --keep-going",
        "build pytorch:cu124 --on codebuild",
    )

    locked: bool = Field(
        default=False, description="use only what the lock of the plan names; refuse to build without a whole one"
    )
    smoke: bool = Field(
        default=False,
        description="run the smoke tests, too, unless this image has passed them",
        heading="After the build",
    )
    dry_run: bool = Field(
        default=False, description="ask the engine and every source, say what would be built, and build nothing"
    )
    builder: str | None = Field(
        default=None,
        description="the buildx builder to build with (default: the engine's own); with --images several, "
        "separated by commas",
    )
    stages: str | None = Field(
        default=None, description="build only these stages of the Dockerfile, for the builder's cache: no image, no tag"
    )
    push: str | None = Field(
        default=None,
        description="push the image to this ECR repository, once it has passed its smoke tests "
        "(more flags: ./invoke push)",
        heading="After the build",
        metavar="REPOSITORY",
    )
    leave_tags: bool = Field(
        default=False,
        description="--push leaves the moving tags where they are; ./invoke tags advance moves them later",
        heading="After the build",
    )
    images: str | None = Field(
        default=None,
        description="build all these image lines, comma-separated: pytorch, pytorch:cu124, 'pytorch-*-debian'",
        heading="Many images",
        metavar="PATTERN",
    )
    stale: bool = Field(
        default=False,
        description="of these, only those that are stale by what this machine knows (./invoke fresh says why)",
        heading="Many images",
    )
    jobs: int = Field(default=JOBS, description=f"how many are built at once (default: {JOBS})", heading="Many images")
    keep_going: bool = Field(
        default=False, description="build the other lines, too, after one has failed", heading="Many images"
    )
    resume: str | None = Field(
        default=None,
        description="go on with a run that has ended early, by its name",
        heading="Many images",
        metavar="RUN",
    )
    on: str | None = Field(
        default=None,
        description="build there and not here: codebuild needs no engine on this machine (docs/builders.md)",
        heading="Elsewhere",
        metavar="PLACE",
        values=("codebuild",),
    )
    project: str | None = Field(
        default=None,
        description="the CodeBuild project (default: the one that infra/upload.yaml has made in the region)",
        heading="Elsewhere",
        metavar="NAME",
    )
    region: str | None = Field(
        default=None, description="its AWS region (default: the site's, AWS_REGION)", heading="Elsewhere"
    )
    follow: str | None = Field(
        default=None,
        description="follow a build that was started before to its end, and fetch its record",
        heading="Elsewhere",
        metavar="BUILD",
    )

    def target(self, site: Site) -> PushTarget | None:
        """Where ``--push`` leads to: known before a build begins, as a mistake in it would come out at its end.

        Raises:
            RequestError: the repository is invalid, or its account or region cannot be found.
        """
        if self.push is None:
            return None
        from trainwright.push.references import find_target

        return find_target(self.push, (), None, site.aws)
