"""What verbs that take a request share: its flags, and the first state of their steps."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from trainwright.cli.flags import ArtifactsFlag, CatalogFlag, JsonFlag, SiteFlag
from trainwright.cli.output import say
from trainwright.core.errors import RequestError
from trainwright.core.paths import use_catalog
from trainwright.plan.words import RequestWords
from trainwright.verbs.state import State, known, run, start
from trainwright.verbs.way import upto

if TYPE_CHECKING:
    from trainwright.plan.request import Request
    from trainwright.push.options import PlaceWords
    from trainwright.push.references import PushTarget
    from trainwright.site.site import Site


class RequestPlaces(RequestWords, CatalogFlag, SiteFlag, ArtifactsFlag):
    """A request, and where its data is."""


class RequestFlags(RequestWords, CatalogFlag, SiteFlag, ArtifactsFlag, JsonFlag):
    """The flags of a verb that takes a request."""


def begin(words: RequestFlags | RequestPlaces, *, asks: str = "", **asked: Any) -> State:
    """The beginning of a verb's way; the catalog of the command line becomes the one of this run.

    What the command line leaves out comes from the project file (:mod:`trainwright.plan.project`).

    Args:
        words: the command line.
        asks: the name of the verb, if it asks for an image on a terminal where none is named.
        asked: further fields of the state: what the verb is to do.

    Raises:
        RequestError: a word cannot be read, or a file is missing.
    """
    from trainwright.plan.project import budget_of, read_project, with_project
    from trainwright.plan.request import read_request

    use_catalog(words.catalog)
    project = read_project(Path.cwd())
    budget = budget_of(words, project)
    words = with_project(words, project)
    if asks and not (words.framework or words.short):
        words = _answered(asks, words)
    request = read_request(words)
    soci = project is not None and project.soci
    first = start(request, Path(words.site) if words.site else None, say, budget=budget, soci=soci, **asked)
    return replace(first, flags=_spelt(request, words))


def _answered(verb: str, words: RequestFlags | RequestPlaces) -> RequestFlags | RequestPlaces:
    """The words with the image that a person picks; as they are, if nobody answers."""
    from trainwright.catalog.catalog import open_catalog
    from trainwright.verbs.ask import ask_for_image, somebody_answers

    if not somebody_answers():
        return words
    framework, cuda = ask_for_image(verb, open_catalog(), known=bool(words.cuda or words.version))
    return words.replace(framework=framework, cuda=words.cuda or cuda)


def _spelt(request: Request, words: RequestFlags | RequestPlaces) -> str:
    """The request as a command line spells it, with the files of this run, seen from the working folder."""
    user, here = request.user, Path.cwd()
    paths = {name: path for name in ("requirements", "run", "code") if (path := getattr(user, name)) is not None}
    near = {name: path.relative_to(here) for name, path in paths.items() if path.is_relative_to(here)}
    flags = request.replace(user=user.replace(**near)).flags()
    own = {"catalog": words.catalog, "site": words.site}
    return " ".join([flags, *(f"--{name} {shlex.quote(value)}" for name, value in own.items() if value)])


def image_in_hand() -> str:
    """The id of the image that a command is about if it names none: the project's, else the newest that was built here.

    Raises:
        RequestError: the project's image is not built, or no image at all was built here.
    """
    from trainwright.build.store import all_records
    from trainwright.plan.project import read_project

    records = all_records()
    if read_project(Path.cwd()) is not None:
        plan = known(run(upto("resolve"), begin(RequestFlags(), to_build=False)).plan)
        records = [record for record in records if record.plan.id == plan.id]
        if not records:
            raise RequestError("the image of trainwright.toml is not built", remedy="./invoke build")
    if not records:
        remedy = "./invoke build pytorch:cpu --smoke makes one in a few minutes."
        raise RequestError("no image is named, and none was built here yet", remedy=remedy)
    say(f"image {records[0].tags[0]} ({records[0].image_id[7:19]})")
    return records[0].image_id


def soci_in_hand() -> bool:
    """Whether the project file asks for a SOCI index."""
    from trainwright.plan.project import read_project

    project = read_project(Path.cwd())
    return project is not None and project.soci


def target_in_hand(words: PlaceWords, site: Site) -> PushTarget:
    """The repository that flags name, or that of the project file.

    Raises:
        RequestError: nothing was found, or a flag is invalid.
    """
    from trainwright.plan.project import read_project
    from trainwright.push.references import find_target

    project = None if words.repository else read_project(Path.cwd())
    repository = words.repository or (project.repository if project else None) or ""
    return find_target(repository, words.regions, words.account, site.aws)
