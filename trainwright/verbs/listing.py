"""The documents of ``list`` and ``explain``: what can be built, what was, and why a plan is as it is."""

from __future__ import annotations

from typing import Any

from trainwright.catalog.catalog import Catalog, load_catalog, open_catalog
from trainwright.catalog.image_line import cuda_tag, version_key
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.plan.plan import Plan
from trainwright.plan.request import parse_cuda
from trainwright.site.site import Site


def lines(framework: str | None = None, cuda: str | None = None) -> dict[str, Any]:
    """A row per image line, or per line of a framework, of a CUDA version.

    Raises:
        RequestError: no line is of that framework or CUDA version.
    """
    catalog = open_catalog()
    wanted = None if cuda is None else parse_cuda(cuda)
    of_framework = catalog.lines if framework is None else catalog.lines_of(framework)
    chosen = [e for e in of_framework if wanted is None or e.line.goes_by_cuda(cuda_tag(wanted))]
    if not chosen:
        known = {f"{e.line.framework} {e.line.cuda_tag}" for e in catalog.lines} | set(catalog.frameworks())
        asked = " ".join(filter(None, (framework, cuda)))
        raise RequestError(f"no image line for {asked}. {did_you_mean(asked, known)}", remedy="./invoke list")
    rows = [
        {
            "framework": entry.line.framework,
            "version": entry.line.version,
            "cuda": entry.line.cuda_tag,
            "python": entry.line.python,
            "base": entry.line.base.os,
            "kind": entry.line.base.kind,
            "status": entry.line.status if entry.line.released else "unreleased",
            "needs": "packages" if catalog.from_packages(entry) else "network",
            "components": sorted(entry.line.components),
            "options": sorted(entry.line.options),
        }
        for entry in chosen
    ]
    return {"schema": "trainwright/list/1", "lines": rows}


def components() -> dict[str, Any]:
    """A row per component."""
    folders = load_catalog().components
    rows = [
        {
            "name": name,
            "summary": folder.component.summary,
            "providers": {p: sorted(v.versions, key=version_key) for p, v in folder.component.providers.items()},
            "requires": list(folder.component.requires),
        }
        for name, folder in sorted(folders.items(), key=lambda item: item[1].component.order)
    ]
    return {"schema": "trainwright/components/1", "components": rows}


def built() -> dict[str, Any]:
    """A row per image that was built here, newest first."""
    from trainwright.build.store import all_records

    rows = [
        {
            "image_id": record.image_id,
            "tags": list(record.tags),
            "plan": record.plan.id,
            "size_bytes": record.size_bytes,
            "seconds": record.seconds,
            "built_at": record.built_at,
            "smoke": "not run" if record.smoke is None else "failed" if record.smoke["failed"] else "passed",
            "record": str(record.folder / "record.json"),
        }
        for record in all_records()
    ]
    return {"schema": "trainwright/built/1", "images": rows}


def explain(plan: Plan, catalog: Catalog, site: Site) -> dict[str, Any]:
    """Why each version: its provider, its evidence, its download size, and what would build its layers again."""
    rows = []
    later: list[str] = []
    for component in reversed(plan.components):
        provider = catalog.components[component.name].component.providers[component.provider]
        rows.append(
            {
                "name": component.name,
                "version": component.version,
                "provider": component.provider,
                "why": provider.about,
                "packages": [s.package for s in component.sources if s.package],
                "download_bytes": sum(s.size or 0 for s in component.sources),
                "evidence": [e.model_dump() for e in component.evidence],
                "rebuilds": list(reversed(later)),
            }
        )
        later.append(component.name)
    return {
        "schema": "trainwright/explain/1",
        "plan": plan.id,
        "components": list(reversed(rows)),
        "notices": list(plan.notices),
        "site": site.describe(),
    }
