"""Parts of the shipped catalog, for tests of what holds whatever lines there are."""

from __future__ import annotations

from trainwright.catalog import Catalog, load_catalog


def packages_only() -> Catalog:
    """PyTorch's lines that package registries alone can build; few, and each with a CUDA of its own."""
    whole = load_catalog()
    lines = [entry for entry in whole.lines if entry.line.framework == "pytorch" and whole.from_packages(entry)]
    return Catalog(lines, whole.components, whole.rules)
