"""``render``: the Dockerfile of a plan, alone or with its build context, or a file that opens its image elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import emit, verb
from trainwright.cli.output import artifact, print_json, say
from trainwright.core.errors import RequestError
from trainwright.core.records import Field
from trainwright.verbs.request import RequestFlags, begin
from trainwright.verbs.state import known, run
from trainwright.verbs.way import upto

if TYPE_CHECKING:
    from trainwright.verbs.documents import RenderDocument


class RenderFlags(RequestFlags):
    """The flags of ``render``."""

    heading: ClassVar[str] = "Output"
    examples: ClassVar[tuple[str, ...]] = (
        "render pytorch:cu124",
        "render pytorch:cu124 --output image",
        "render pytorch:cu124 --devcontainer",
    )

    output: str | None = Field(default=None, description="the folder to fill (created if missing)", metavar="DIR")
    devcontainer: bool = Field(
        default=False, description="print a devcontainer.json that opens the built image in an editor instead"
    )
    compose: bool = Field(
        default=False, description="print a compose.yaml that starts the built image in Docker Compose instead"
    )


@verb
def render(flags: RenderFlags) -> None:
    """Print the Dockerfile of a plan, or write its build context.

    --devcontainer and --compose print files for the image once it is built: nothing of them enters it.
    """
    if flags.devcontainer or flags.compose:
        _development(flags)
        return
    from trainwright.build.context import write_context
    from trainwright.core.owned import claim
    from trainwright.plan.rendered import render_dockerfile
    from trainwright.sources.fetch import fetch_base
    from trainwright.verbs.documents import RenderDocument

    inputs = known(run(upto("gather"), begin(flags)).inputs)
    if unpinned := inputs.plan.unpinned:
        every = sum(len(component.archives) for component in inputs.plan.components)
        say(
            f"{len(unpinned)} of {every} archives are not pinned, as nobody publishes their checksums; ./invoke lock "
            f"records those of the first download: {', '.join(unpinned)}"
        )
    if tags := inputs.plan.base.tags:
        say(f"not pinned, as their tags may move: {', '.join(tags)}; ./invoke lock records their digests")
    if inputs.plan.base.family == "apt" and (inputs.lock is None or inputs.lock.system is None):
        system = "the distribution's packages" if inputs.plan.base.image else "the root file system and its packages"
        say(f"not pinned: {system}, which are those of the day; ./invoke lock records their versions")
    if flags.output is None:
        text = render_dockerfile(inputs.plan, inputs.catalog)
        if flags.json_:
            document = RenderDocument(schema="trainwright/render/1", plan=inputs.plan.id, dockerfile=text)
            print_json(document.as_json())
        else:
            artifact(text)
        return
    folder = Path(flags.output).absolute()
    claim(folder, "context", f"--output {flags.output}")  # before the base is made
    write_context(fetch_base(inputs, say=say), folder, say=say, named=f"--output {flags.output}")
    made = RenderDocument(schema="trainwright/render/1", plan=inputs.plan.id, output=str(folder))
    emit(made, folder_text, as_json=flags.json_)


def _development(flags: RenderFlags) -> None:
    """Print the file with which another program opens the image.

    Raises:
        RequestError: more than one output is asked for.
    """
    from trainwright.pipeline import development
    from trainwright.verbs.documents import RenderDocument

    if flags.output is not None or (flags.devcontainer and flags.compose):
        raise RequestError(
            "--devcontainer, --compose and --output exclude each other",
            remedy="Use one of them; what --devcontainer or --compose prints goes into a file with > FILE.",
        )
    state = run(upto("resolve"), begin(flags, to_build=False))
    plan = known(state.plan)
    file, make = (
        (development.DEVCONTAINER, development.devcontainer)
        if flags.devcontainer
        else (development.COMPOSE, development.compose)
    )
    made = RenderDocument(schema="trainwright/render/1", plan=plan.id, file=file, text=make(plan))
    say(f"{file} for {plan.tags[0]}; if it is not built yet: ./invoke build {state.flags}")
    if flags.json_:
        print_json(made.as_json())
    else:
        artifact(make(plan))


def folder_text(document: RenderDocument) -> str:
    """Where the Dockerfile is, and the command that builds it."""
    return f"{document.output}/Dockerfile\nBuild it with: cd {document.output} && DOCKER_BUILDKIT=1 docker build ."
