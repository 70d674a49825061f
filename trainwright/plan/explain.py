"""The document of ``explain``: why each version is in a plan."""

from __future__ import annotations

from typing import Any, Literal

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import Evidence
from trainwright.core.records import Document
from trainwright.plan.plan import Plan
from trainwright.site.site import Site


class ExplainRow(Document):
    """Why a component is in the plan in this version."""

    name: str
    version: str
    provider: str
    why: str
    packages: tuple[str, ...]
    download_bytes: int
    evidence: tuple[Evidence, ...]
    rebuilds: tuple[str, ...]


class ExplainDocument(Document):
    """``explain --json``."""

    schema: Literal["trainwright/explain/1"]
    plan: str
    components: tuple[ExplainRow, ...]
    notices: tuple[str, ...]
    site: dict[str, Any]


def explain(plan: Plan, catalog: Catalog, site: Site) -> ExplainDocument:
    """Why each version: its provider, its evidence, its download size, and what would invalidate its layers."""
    names = [component.name for component in plan.components]
    rows = [
        ExplainRow(
            name=component.name,
            version=component.version,
            provider=component.provider,
            why=catalog.components[component.name].component.providers[component.provider].about,
            packages=tuple(source.package for source in component.sources if source.package),
            download_bytes=sum(source.size or 0 for source in component.sources),
            evidence=component.evidence,
            rebuilds=tuple(names[number + 1 :]),
        )
        for number, component in enumerate(plan.components)
    ]
    return ExplainDocument(
        schema="trainwright/explain/1",
        plan=plan.id,
        components=tuple(rows),
        notices=plan.notices,
        site=site.describe(),
    )
