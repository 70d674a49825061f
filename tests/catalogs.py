"""Parts of the shipped catalog, for tests of what holds whatever lines there are."""

from __future__ import annotations

from trainwright.catalog import Catalog, load_catalog


def packages_only() -> Catalog:
    """The lines that package registries alone can build; few, and each with a framework and CUDA of its own."""
    whole = load_catalog()
    return Catalog([entry for entry in whole.lines if whole.from_packages(entry)], whole.components, whole.rules)
