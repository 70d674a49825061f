"""A component that exists but that no image line lists: its providers, and the entry that would add it to a line."""

from __future__ import annotations

from trainwright.catalog.catalog import Catalog, target_of
from trainwright.catalog.component import Provider
from trainwright.catalog.image_line import BASE, version_key
from trainwright.plan.draft import Draft


def providers(catalog: Catalog, name: str) -> str:
    """The providers of a component with their known versions, in words."""
    told = []
    for provider, entry in _own(catalog, name).items():
        versions = ", ".join(sorted(entry.versions, key=version_key))
        told.append(f"provider {provider}" + (f" has {versions}" if versions else ""))
    return "; ".join(told)


def obstacle(name: str, catalog: Catalog, draft: Draft) -> str:
    """Why an image line cannot list a component; empty if it can.

    Args:
        name: of the component.
        catalog: that has it.
        draft: of the line.
    """
    line = draft.line
    known = {other: catalog.components[other].component for other in (*line.components, *line.options)}
    there = {each for other, component in known.items() for each in (other, *component.provides)}
    if lacking := [need for need in catalog.components[name].component.requires if need not in there]:
        return f"{name} requires {' and '.join(lacking)}, which {draft.file} does not have."
    if not _choices(name, catalog, draft):
        return f"No version of {name} is for {draft.file}: {line.framework} {line.version}, {line.cuda_tag}."
    return ""


def how_to_list(name: str, catalog: Catalog, draft: Draft) -> str:
    """What to add to which image line, so that it offers a component; its arguments are those of :func:`obstacle`."""
    line = draft.line
    provider, chosen = _choices(name, catalog, draft)[0]
    return (
        f"Add {name} to {draft.file}, under options: (packages: names its Python packages and theirs, if any)\n\n"
        f"  {name}: {{provider: {provider}, {chosen}}}\n\n"
        f"Then run ./invoke lock-lines --framework {line.framework} --version {line.version}, and this command again."
    )


def _choices(name: str, catalog: Catalog, draft: Draft) -> list[tuple[str, str]]:
    """The providers that have a component for a line, each with the rest of its entry, the newest version first."""
    found, target = _own(catalog, name), target_of(draft.line, draft.version)
    known = [
        (provider, f'version: "{version}"')
        for provider, entry in found.items()
        for version in sorted(entry.versions, key=version_key, reverse=True)
        if entry.sources_for(version, target) is not None
    ]
    # A provider without a table of versions installs Python packages; only the user knows the version.
    packages = ", ".join(f'"{package}==VERSION"' for package in _packages(name, catalog))
    open_ = [provider for provider, entry in found.items() if not entry.versions]
    return known + [(provider, f'version: "VERSION", packages: [{packages}]') for provider in open_]


def frameworks_with(name: str, catalog: Catalog) -> list[str]:
    """The frameworks with image lines that list a component."""
    lines = (entry.line for entry in catalog.lines)
    return sorted({line.framework for line in lines if name in line.components or name in line.options})


def _packages(name: str, catalog: Catalog) -> list[str]:
    """The Python packages whose version is that of a component, as an image line has them."""
    for entry in catalog.lines:
        has = entry.line.options.get(name) or entry.line.components.get(name)
        pairs = (requirement.partition("==") for requirement in has.packages) if has else ()
        if own := [package for package, _, version in pairs if has and version == has.version]:
            return own
    return [name]


def _own(catalog: Catalog, name: str) -> dict[str, Provider]:
    """The providers that install something."""
    return {n: provider for n, provider in catalog.components[name].component.providers.items() if n != BASE}
