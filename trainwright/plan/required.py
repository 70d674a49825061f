"""Whether what ``--with-requirements`` asks for fits the image: what can be known before anything is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import BASE
from trainwright.catalog.platforms import PLATFORMS
from trainwright.core.errors import RequestError
from trainwright.plan.draft import Draft
from trainwright.plan.plan import PlannedComponent
from trainwright.plan.request import Request
from trainwright.user.files import user_requirements
from trainwright.user.required import Required
from trainwright.user.requirements import required_names, required_pins

_LAST_PATCH = 99  # the patch release of an image's Python is not in its line


def check_required(request: Request, catalog: Catalog, draft: Draft, components: Iterable[PlannedComponent]) -> None:
    """Check the file of a request against what is chosen for the image.

    Raises:
        RequestError: the file is for another Python; it pins what the image has in another version, and is a lock whose
            pins belong together; or the index has no build of a package for the line's framework.
    """
    required = user_requirements(request.user)
    if required is None:
        return
    what = f"--with-requirements {request.user.requirements}"
    _check_python(required, draft.line.python, what)
    _check_index(required, catalog, draft, what)
    if required.resolved:
        machine = PLATFORMS[request.platform].machine
        _check_pins(required_pins(required.lines, draft.line.python, machine), components, what)


def _check_python(required: Required, python: str, what: str) -> None:
    from packaging.specifiers import SpecifierSet

    asked = SpecifierSet(required.python)
    if not any(asked.contains(f"{python}.{patch}") for patch in range(_LAST_PATCH + 1)):
        raise RequestError(
            f"{what}: is for Python {asked}, the image has {python}",
            remedy="Ask for an image line with that Python (--python), or change the file.",
        )


def _check_index(required: Required, catalog: Catalog, draft: Draft, what: str) -> None:
    """Refuse a package that the image line has as an option, from elsewhere than the index."""
    options = draft.line.options.items()
    elsewhere = {n: s.provider for n, s in options if n not in draft.selections and s.provider not in ("wheel", BASE)}
    for name in (name for name in required_names(required.lines) if name in elsewhere):
        tied = catalog.components[name].component.providers[elsewhere[name]].tied
        if tied is not None and tied.to in draft.selections:
            raise RequestError(
                f"{what}: {name} of the package index is not made for {tied.to} {draft.selections[tied.to].version}: "
                f"{tied.why}",
                remedy=f"Remove it from the file and add --with {name}, which takes the one that is.",
            )


def _check_pins(pins: Mapping[str, str], components: Iterable[PlannedComponent], what: str) -> None:
    """Refuse a lock with other versions of packages that the image has: those cannot change."""
    has = dict(
        source.package.split("==", 1)
        for component in components
        for source in component.sources
        if source.package and "==" in source.package and component.name != "user"
    )
    rows = [f"  {n} {pins[n]}, the image has {has[n]}" for n in sorted(pins) if has.get(n, pins[n]) != pins[n]]
    if rows:
        raise RequestError(
            "\n".join([f"{what}: locks other versions than the image line", *rows]),
            remedy="Lock the project again with the image's versions (uv: constraint-dependencies of [tool.uv]), or "
            "give the project's own file, pyproject.toml, of which the build takes what the image lacks.",
        )
