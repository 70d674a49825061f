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


def how_to_list(name: str, catalog: Catalog, draft: Draft) -> str:
    """What to add to which image line, so that it offers a component.

    Args:
        name: of the component.
        catalog: that has it.
        draft: of the line nearest to the request.
    """
    line, found = draft.line, _own(catalog, name)
    fitting = [
        (provider, version)
        for provider, entry in found.items()
        for version in sorted(entry.versions, key=version_key, reverse=True)
        if entry.sources_for(version, target_of(line, draft.version)) is not None
    ]
    # A provider without a table of versions installs Python packages; only the user knows the version.
    open_ = next((provider for provider, entry in found.items() if not entry.versions), next(iter(found)))
    provider, version = next(iter(fitting), (open_, ""))
    chosen = f'version: "{version}"' if version else f'version: "VERSION", packages: ["{name}==VERSION"]'
    return (
        f"Add {name} to {draft.file}, under options: (packages: names its Python packages and theirs, if any)\n\n"
        f"  {name}: {{provider: {provider}, {chosen}}}\n\n"
        f"Then run ./invoke lock-lines --framework {line.framework} --version {line.version}, and this command again."
    )


def _own(catalog: Catalog, name: str) -> dict[str, Provider]:
    """The providers that install something."""
    return {n: provider for n, provider in catalog.components[name].component.providers.items() if n != BASE}
