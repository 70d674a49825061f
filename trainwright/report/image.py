"""Puts together what is known of an image: its record, its rehearsals, the proof of its line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.build.store import BuildRecord, find_record
from trainwright.catalog.catalog import open_catalog
from trainwright.catalog.wheel_lock import normalise
from trainwright.core.data_files import read_state
from trainwright.core.records import MisfitError, read_record
from trainwright.core.say import Say
from trainwright.plan.plan import Plan
from trainwright.proofs.standing import of_plan as standing_of
from trainwright.prove.differences import differences, fits, word
from trainwright.prove.smoke import SmokeDocument
from trainwright.push.sbom import ingredients
from trainwright.rehearse.documents import RehearsalDocument
from trainwright.rehearse.leftovers import reports_dir
from trainwright.report.compare import compare
from trainwright.report.contents import of_record, read
from trainwright.report.documents import Comparison, FoundFact, ImageComponent, Part, ReportDocument
from trainwright.report.files import with_files
from trainwright.scan.kept import kept


def report_of(record: BuildRecord, against: Comparison | None = None) -> ReportDocument:
    """The report of an image that was built here.

    Args:
        record: of the image.
        against: what differs from something else.

    Raises:
        RequestError: the proof of its line was edited, or is not a proof.
    """
    plan, probe = record.plan, record.probe
    config = probe.get("image", {})
    return ReportDocument(
        schema="trainwright/report/1",
        image=record.tags[0] if record.tags else record.image_id,
        **{name: getattr(record, name) for name in ("image_id", "tags", "built_at", "seconds", "size_bytes")},
        **{name: getattr(plan, name) for name in ("framework", "version", "cuda", "python", "notices")},
        plan=plan.id,
        base=plan.base.image or plan.base.os,
        engine=f"{record.engine.server}, BuildKit {record.engine.buildkit}",
        source_revision=record.source_revision,
        pushed=record.pushed,
        proof=standing_of(plan),
        components=tuple(_components(record)),
        layers=record.layers,
        timeline=record.timeline,
        facts=tuple(_facts(record)),
        differences=tuple(map(str, differences(plan.as_json(), probe))),
        smoke=_smoke(record),
        rehearsals=tuple(rehearsals(record.image_id)),
        packages=tuple(sorted(_packages(record), key=lambda part: -(part.bytes or 0))),
        environment=config.get("environment", plan.environment),
        labels=config.get("labels", plan.labels),
        against=against,
        scan=kept(record.image_id),
    )


def report_on(image: str, against: str | None = None, *, files: bool = False, say: Say) -> ReportDocument:
    """The report of an image that was built here, by its name.

    Args:
        image: tag or id.
        against: another image, a request, an image line or a lock to compare it with.
        files: compare every file of the two images as well; reads both from the engine.
        say: progress callback.

    Raises:
        RequestError: no such image was built here, or there is nothing of the name of the other.
    """
    record, found = find_record(image), None
    if against:
        both = (read(against, open_catalog()), of_record(record, record.tags[0]))
        found = compare(*(with_files(*both, say=say) if files else both))
    return report_of(record, found)


def owners(plan: Plan) -> dict[str, str]:
    """The component that brings each Python package of a plan."""
    sources = ((component, source.package or "") for component in plan.components for source in component.sources)
    return {normalise(text.partition("==")[0]): own.name for own, text in sources if "==" in text}


def rehearsals(image_id: str) -> list[RehearsalDocument]:
    """The rehearsals of an image whose reports are kept here, newest first."""
    files = sorted(reports_dir().glob("*/report.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    found = []
    for path in files:
        try:
            document = read_record(RehearsalDocument, read_state(path))
        except MisfitError:  # of another version
            continue
        if document.image_id == image_id:
            found.append(document)
    return found


def _components(record: BuildRecord) -> Iterator[ImageComponent]:
    for row in record.ledger:
        planned = record.plan.component(row.name)
        known: dict[str, Any] = {} if planned is None else {"version": planned.version, "provider": planned.provider}
        if planned is not None and planned.licence is not None:
            known["licence"] = planned.licence.name
        yield ImageComponent(**row.as_json(), **known)


def _facts(record: BuildRecord) -> Iterator[FoundFact]:
    for expected in record.plan.expect:
        facts = record.probe.get("facts", {}).get(expected.component, {})
        found = word(facts[expected.fact]) if expected.fact in facts else ""
        fit = expected.fact in facts and fits(expected.value, found)
        yield FoundFact(
            component=expected.component, fact=expected.fact, expected=expected.value, found=found, fits=fit
        )


def _packages(record: BuildRecord) -> Iterator[Part]:
    brought = owners(record.plan)
    for each in ingredients(record.plan, record.probe):
        component = brought.get(each.name, "") if each.kind == "python" else each.name if each.kind == "built" else ""
        yield Part(**each.as_json(), component=component)


def _smoke(record: BuildRecord) -> SmokeDocument | None:
    try:
        return None if record.smoke is None else read_record(SmokeDocument, record.smoke)
    except MisfitError:  # of another version
        return None
