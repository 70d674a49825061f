"""``render``: the Dockerfile of a plan, alone or with its build context."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import emit, verb
from trainwright.cli.program import artifact, say
from trainwright.core.records import Field
from trainwright.verbs.request import RequestFlags, begin
from trainwright.verbs.way import known, run, upto

if TYPE_CHECKING:
    from trainwright.verbs.documents import RenderedFolder


class RenderFlags(RequestFlags):
    """The flags of ``render``."""

    heading: ClassVar[str] = "Output"
    examples: ClassVar[tuple[str, ...]] = (
        "render pytorch:cu124",
        "render pytorch:cu124 --output image",
        "render --framework pytorch --cuda cpu --json",
    )

    output: str | None = Field(default=None, description="the folder to fill (created if missing)", metavar="DIR")


@verb
def render(flags: RenderFlags) -> None:
    """Print the Dockerfile of a plan, or write its build context."""
    from trainwright.build.context import write_context
    from trainwright.core.owned import claim
    from trainwright.plan.render import render_dockerfile
    from trainwright.sources.fetch import fetch_base
    from trainwright.verbs.documents import RenderedFolder, RenderedText

    inputs = known(run(upto("gather"), begin(flags)).inputs)
    if unpinned := inputs.plan.unpinned:
        every = sum(len(component.archives) for component in inputs.plan.components)
        say(
            f"{len(unpinned)} of {every} archives are not pinned, as nobody publishes their checksums; ./invoke lock "
            f"records those of the first download: {', '.join(unpinned)}"
        )
    if flags.output is None:
        text = render_dockerfile(inputs.plan, inputs.catalog)
        if flags.json_:
            document = RenderedText(schema="trainwright/render/1", plan=inputs.plan.id, dockerfile=text)
            emit(document, lambda rendered: rendered.dockerfile, as_json=True)
        else:
            artifact(text)
        return
    folder = Path(flags.output).absolute()
    claim(folder, "context", f"--output {flags.output}")  # before the base is made
    write_context(fetch_base(inputs, say=say), folder, say=say, named=f"--output {flags.output}")
    made = RenderedFolder(schema="trainwright/render/1", plan=inputs.plan.id, output=str(folder))
    emit(made, folder_text, as_json=flags.json_)


def folder_text(document: RenderedFolder) -> str:
    """Where the Dockerfile is, and the command that builds it."""
    return f"{document.output}/Dockerfile\nBuild it with: cd {document.output} && DOCKER_BUILDKIT=1 docker build ."
