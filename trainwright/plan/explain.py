"""The document of ``explain``: why each version is in a plan, and what a change of it makes again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import BASE, Evidence
from trainwright.core.records import Document, Field
from trainwright.plan.dockerfile import IMAGE_STAGES, stages, steps
from trainwright.plan.draft import USER
from trainwright.plan.plan import Plan, PlannedComponent
from trainwright.plan.render import render
from trainwright.plan.request import Request
from trainwright.plan.resolve import entry_taken
from trainwright.site.site import Site

BYTECODE = "bytecode"
SHARED = ("os", "tools", "toolchain", "wheels")  # stages that belong to no component, from below


class Remade(Document):
    """A part that a change makes again."""

    name: str = Field(description="a component, or a stage that all share, such as os or bytecode")
    seconds: float | None = Field(
        default=None, description="of its steps when they were last built here; null: not known"
    )
    date: str = Field(default="", description="when that was, YYYY-MM-DD")


class ExplainRow(Document):
    """Why a component is in the plan in this version."""

    name: str
    version: str
    provider: str
    why: str = Field(description="what its provider is")
    decided: str = Field(description="who chose the version: the line, another component, the base image, a flag")
    needed_by: tuple[str, ...] = Field(description="the components of the plan that require it")
    packages: tuple[str, ...]
    download_bytes: int
    evidence: tuple[Evidence, ...] = Field(
        description="of the line, what is about this component; of the framework, all"
    )
    rebuilds: tuple[str, ...] = Field(description="the other components that a change makes again")
    remade: tuple[Remade, ...] = Field(description="all that a change makes again, itself first")


class ExplainDocument(Document):
    """``explain --json``."""

    schema: Literal["trainwright/explain/1"]
    plan: str
    image: str = Field(description="the first tag of the plan")
    line: str = Field(description="the file of the image line")
    components: tuple[ExplainRow, ...]
    notices: tuple[str, ...]
    site: dict[str, Any]


def explain(plan: Plan, catalog: Catalog, site: Site, request: Request) -> ExplainDocument:
    """Why each version: who decided it, its evidence, its download size, and what is made again when it changes."""
    remade = _remade_by(plan, render(plan, catalog))
    entry = entry_taken(request, catalog)
    file = entry.file if entry is not None else ""
    known = tuple(each for component in plan.components for each in component.evidence)
    names = [component.name for component in plan.components]
    order = [*SHARED, *names, BYTECODE]
    rows = [
        ExplainRow(
            name=component.name,
            version=component.version,
            provider=component.provider,
            why=catalog.components[component.name].component.providers[component.provider].about,
            decided=_decided(component, plan, catalog, request, file),
            needed_by=tuple(_needing(component.name, plan, catalog)),
            packages=tuple(source.package for source in component.sources if source.package),
            download_bytes=sum(source.size or 0 for source in component.sources),
            evidence=component.evidence or tuple(each for each in known if _mentions(each, component)),
            rebuilds=tuple(name for name in names if name in again),
            remade=tuple(Remade(name=name) for name in (component.name, *(n for n in order if n in again))),
        )
        for component, again in ((each, remade.get(each.name, set())) for each in plan.components)
    ]
    return ExplainDocument(
        schema="trainwright/explain/1",
        plan=plan.id,
        image=plan.tags[0],
        line=file,
        components=tuple(rows),
        notices=plan.notices,
        site=site.describe(),
    )


def with_seconds(document: ExplainDocument, spent: Mapping[str, tuple[float, str]]) -> ExplainDocument:
    """The document with what each part took: seconds and day by name; what is missing stays unknown."""

    def timed(part: Remade) -> Remade:
        seconds, date = spent.get(part.name, (None, ""))
        return part.replace(seconds=seconds, date=date)

    rows = (row.replace(remade=tuple(map(timed, row.remade))) for row in document.components)
    return document.replace(components=tuple(rows))


def _decided(component: PlannedComponent, plan: Plan, catalog: Catalog, request: Request, file: str) -> str:
    """Who chose the version of a component, in words."""
    name = component.name
    if name == USER:
        return "the files and flags of the request"
    if component.provider == BASE:
        return "the base image, which has it"
    asked = dict(request.set_)
    if name in asked:
        return f"--set {name}={asked[name]}"
    tied = catalog.components[name].component.providers[component.provider].tied
    if tied is not None and plan.component(tied.to) is not None:
        return f"{tied.to}: {tied.why}"
    if any(each.partition(" ")[0] in (name, plan.framework) for each in plan.unproven):
        return "the request (--allow-unproven): no image line has it"
    return f"{file}, an option that --with adds" if name in request.with_ else file


def _needing(name: str, plan: Plan, catalog: Catalog) -> Iterable[str]:
    """The components of a plan that require one of them."""
    for other in plan.components:
        known = catalog.components[other.name].component
        if name in (*known.requires, *known.providers[other.provider].requires_for(other.version)):
            yield other.name


def _mentions(each: Evidence, component: PlannedComponent) -> bool:
    """Whether evidence of a line names a component: ``Open MPI 4.1.1`` is about openmpi."""
    name = "[ -]?".join(component.name.replace("-", ""))
    return re.search(rf"\b{name}\b", f"{each.source} {each.says}", re.IGNORECASE) is not None


def _remade_by(plan: Plan, dockerfile: str) -> dict[str, set[str]]:
    """Component -> what is made from it, directly or not: other components, and stages that all share."""
    found = remade_by(dockerfile)
    distribution = plan.base.os.partition("-")[0]
    for component in plan.components:
        # What is a package of the distribution is in the first layer, and everything is made from that.
        if component.provider == distribution and component.system.run and not component.archives:
            found[component.name] = {"os", *found.get("os", ())} - {component.name}
        elif component.provider in (BASE, "nvidia"):  # the base image itself
            found[component.name] = {step.component for step in steps(dockerfile)} - {component.name}
    return found


def remade_by(dockerfile: str) -> dict[str, set[str]]:
    """Component or shared stage -> what is made from one of its stages, directly or not, the bytecode included."""
    each_step = steps(dockerfile)
    owners = {step.stage: step.component for step in each_step}
    below: dict[str, set[str]] = {}  # stage -> all that it is made from
    found: dict[str, set[str]] = {}
    for stage in stages(dockerfile):
        needs = {name for name in (stage.parent, *stage.needs) if name in below}
        below[stage.name] = needs.union(*(below[name] for name in needs))
        if stage.name == BYTECODE:
            # It compiles what is in the image below it, to whose stages many components have added their steps.
            for step in each_step:
                if step.stage in below[stage.name]:
                    found.setdefault(step.component, set()).add(BYTECODE)
        elif stage.name not in IMAGE_STAGES:
            for name in below[stage.name]:
                found.setdefault(owners.get(name, name), set()).add(owners.get(stage.name, stage.name))
    return {name: others - {name} for name, others in found.items()}
