"""What the verbs share that take a request: its flags, and the plan that it resolves to."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.flags import CatalogFlag, JsonFlag, SiteFlag
from trainwright.cli.program import say, use_catalog
from trainwright.plan.words import RequestWords

if TYPE_CHECKING:
    from trainwright.catalog.catalog import Catalog
    from trainwright.plan.plan import Plan
    from trainwright.plan.request import Request
    from trainwright.site.site import Site


class RequestFlags(RequestWords, CatalogFlag, SiteFlag, JsonFlag):
    """The flags of a verb that takes a request."""


@dataclass(frozen=True)
class Asked:
    """A request that was resolved. ``flags``: the request as a command line spells it, from the working folder."""

    plan: Plan
    catalog: Catalog
    site: Site
    flags: str


def ask(words: RequestFlags, *, to_build: bool = False) -> Asked:
    """The plan of a command line; its catalog becomes the one of this run.

    Args:
        words: the command line.
        to_build: make the lock of an unproven plan where it has none.

    Raises:
        RequestError: a word cannot be read, or a file is missing.
        Conflict: no image line fits.
    """
    from trainwright.catalog.catalog import open_catalog
    from trainwright.lock import unproven
    from trainwright.plan.request import read_request
    from trainwright.plan.resolve import resolve
    from trainwright.site.site import load_site

    use_catalog(words.catalog)
    request = read_request(words)
    site = load_site(Path(words.site) if words.site else None)
    catalog = open_catalog()
    locks = unproven.make_lock(say) if to_build else unproven.stored_lock
    plan = resolve(request, catalog, site.base_image, locks, site.aws.region)
    return Asked(plan, catalog, site, _spelt(request, words))


def _spelt(request: Request, words: RequestFlags) -> str:
    """The request as a command line spells it, with the files of this run, seen from the working folder."""
    user, here = request.user, Path.cwd()
    paths = {name: path for name in ("requirements", "code") if (path := getattr(user, name)) is not None}
    near = {name: path.relative_to(here) for name, path in paths.items() if path.is_relative_to(here)}
    flags = request.model_copy(update={"user": user.model_copy(update=near)}).flags()
    own = {"catalog": words.catalog, "site": words.site}
    return " ".join([flags, *(f"--{name} {shlex.quote(value)}" for name, value in own.items() if value)])
