"""The document of ``explain``: why each version is in a plan."""

from __future__ import annotations

from typing import Any, Literal

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import Evidence
from trainwright.core.records import Document
from trainwright.plan.dockerfile import IMAGE_STAGES, stages, steps
from trainwright.plan.plan import Plan
from trainwright.plan.render import render
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
    """Why each version: its provider, its evidence, its download size, and what else is made again when it changes."""
    rebuilds = _taken_by(render(plan, catalog))
    rows = [
        ExplainRow(
            name=component.name,
            version=component.version,
            provider=component.provider,
            why=catalog.components[component.name].component.providers[component.provider].about,
            packages=tuple(source.package for source in component.sources if source.package),
            download_bytes=sum(source.size or 0 for source in component.sources),
            evidence=component.evidence,
            rebuilds=tuple(other.name for other in plan.components if other.name in rebuilds.get(component.name, ())),
        )
        for component in plan.components
    ]
    return ExplainDocument(
        schema="trainwright/explain/1",
        plan=plan.id,
        components=tuple(rows),
        notices=plan.notices,
        site=site.describe(),
    )


def _taken_by(dockerfile: str) -> dict[str, set[str]]:
    """Component -> the other components whose stages are made from one of its stages, directly or not."""
    owners = {step.stage: step.component for step in steps(dockerfile)}
    below: dict[str, set[str]] = {}  # stage -> all that it is made from
    found: dict[str, set[str]] = {}
    for stage in stages(dockerfile):
        needs = {name for name in (stage.parent, *stage.needs) if name in below}
        below[stage.name] = needs.union(*(below[name] for name in needs))
        if stage.name not in (*IMAGE_STAGES, "bytecode"):
            for name in below[stage.name]:
                found.setdefault(owners.get(name, name), set()).add(owners.get(stage.name, stage.name))
    return {name: others - {name} for name, others in found.items()}
