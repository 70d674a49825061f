"""``init``: writes the project file."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from trainwright.cli.flags import verb
from trainwright.cli.output import answer
from trainwright.core.errors import RequestError
from trainwright.core.records import Field
from trainwright.verbs.request import RequestPlaces, begin
from trainwright.verbs.state import known, run
from trainwright.verbs.way import upto


class InitFlags(RequestPlaces):
    """The flags of ``init``."""

    examples: ClassVar[tuple[str, ...]] = (
        "init pytorch:cu124",
        "init pytorch:cu124 --code src --entry-point train.py --with-requirements requirements.txt",
        "init --framework tensorflow --cuda cpu --repository training",
    )

    repository: str | None = Field(
        default=None, description="the ECR repository that push sends the image to", heading="After the build"
    )


@verb
def init(flags: InitFlags) -> None:
    """Write the image of a project into trainwright.toml.

    In that folder, build, smoke, rehearse, push and every verb that takes a request then need no flags.
    """
    from trainwright.catalog.image_line import cuda_tag
    from trainwright.core.owned import write_atomically
    from trainwright.plan.project import project_text, read_project
    from trainwright.site.site import SITE_FILE

    path = Path(SITE_FILE).absolute()
    if read_project(path.parent) is not None:
        raise RequestError(f"{SITE_FILE} has an [image] already", remedy="Edit it, or remove the table first.")
    state = run(upto("resolve"), begin(flags, asks="init", to_build=False))
    plan, request = known(state.plan), known(state.request)
    values: dict[str, str | list[str] | dict[str, str] | None] = {
        "framework": plan.framework,
        "version": plan.version,
        "cuda": cuda_tag(plan.cuda),
        "python": request.python,
        "base": request.base,
        "for": flags.for_,
        "platform": flags.platform,
        "with": list(request.with_),
        "without": list(request.without),
        "set": dict(request.set_),
        "for_gpus": list(request.gpus),
        "requirements": flags.requirements,
        "apt": list(request.user.apt),
        "run": flags.run,
        "code": flags.code,
        "entry_point": flags.entry_point,
        "repository": flags.repository,
    }
    before = path.read_text() if path.exists() else ""
    write_atomically(path, f"{before.rstrip()}\n\n".lstrip() + project_text(values))
    answer(f"{path}\nnext    ./invoke build --smoke")
