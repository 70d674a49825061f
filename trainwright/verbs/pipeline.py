"""``pipeline``: writes the files with which build services build image lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import CatalogFlag, JsonFlag, emit, verb
from trainwright.cli.output import say
from trainwright.core.layout import table
from trainwright.core.paths import use_catalog
from trainwright.core.records import Field

if TYPE_CHECKING:
    from trainwright.pipeline.pipeline import PipelineDocument

FORMATS = ("buildspec", "batch", "bake", "github", "gitlab", "kubernetes")


class PipelineFlags(CatalogFlag, JsonFlag):
    """The flags of ``pipeline``."""

    examples: ClassVar[tuple[str, ...]] = (
        "pipeline",
        "pipeline --images pytorch:cu124,pytorch:cpu",
        "pipeline --format github",
        "pipeline --format gitlab --images 'pytorch-*-debian'",
        "pipeline --format kubernetes --images pytorch:cu124 --gpus 1",
    )

    images: str | None = Field(
        default=None,
        description="image lines: pytorch, pytorch:cu124, pytorch-2.6.0-cu124 or 'pytorch-*-debian', comma-separated "
        "(default: the supported ones)",
    )
    format: str = Field(default="buildspec", description="what to write", values=FORMATS)
    output: str | None = Field(
        default=None,
        description="the file to write; for bake and kubernetes the folder (default: by format, such as buildspec.yml)",
        metavar="PATH",
    )
    proofs: bool = Field(
        default=False,
        description="a buildspec that proves lines and keeps their proofs; --images then takes the words of prove",
    )
    check: bool = Field(default=False, description="write nothing; fail if a file is missing or would change")
    cache: tuple[str, ...] = Field(
        default=(),
        description="for bake: a registry cache, read and written (may be repeated; all but the first are only read)",
        metavar="REFERENCE",
    )
    gpus: int = Field(
        default=0,
        description="for CodeBuild and kubernetes: GPUs that a smoke test of each image with CUDA gets, by its digest",
        metavar="N",
    )


@verb
def pipeline(flags: PipelineFlags) -> None:
    """Write files for CodeBuild, GitHub, GitLab, Kubernetes or buildx."""
    from trainwright.catalog.catalog import load_catalog
    from trainwright.pipeline.pipeline import pipeline as write_files

    use_catalog(flags.catalog)
    document = write_files(
        flags.images,
        load_catalog(),
        kind=flags.format,
        output=flags.output,
        catalog_folder=flags.catalog,
        check=flags.check,
        cache=flags.cache,
        proofs=flags.proofs,
        gpus=flags.gpus,
        say=say,
    )
    emit(document, pipeline_text, as_json=flags.json_)


def pipeline_text(document: PipelineDocument) -> str:
    """What is shared, what is built, which files say so."""
    group_of = {name: group.name for group in document.groups for name in group.images}
    rows = [("image", "takes shared stages from", "request")]
    rows += [(image.name, group_of.get(image.name, "-"), image.request) for image in document.images]
    lines = [f"{group.name}  {', '.join(group.stages)}" for group in document.groups]
    return "\n".join([table(rows), "", *lines, *(f"file  {name}" for name in document.files)])
