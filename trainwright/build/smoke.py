"""Runs the smoke tests of an image that was built here, and keeps the result in its build record."""

from __future__ import annotations

import json
from pathlib import Path

from trainwright.build import store
from trainwright.build.store import BuildRecord, built_record
from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.image_line import BASE
from trainwright.core.junit import Case, check_junit, write_junit
from trainwright.core.owned import write_atomically
from trainwright.core.say import Say
from trainwright.engine.engine import Engine, connect
from trainwright.prove import base
from trainwright.prove import smoke as smoking
from trainwright.prove.probe import copies_note
from trainwright.prove.smoke import CONTRACT, BuiltProof, SmokeDocument, SmokeReport


def smoke_image(image: str, *, select: str | None, say: Say, junit: Path | None = None) -> SmokeDocument:
    """Run the image tests of an image that was built here.

    Args:
        image: tag or id.
        select: only checks whose name contains this word; the result is then not recorded as proof.
        say: progress callback.
        junit: takes the checks as a JUnit report, failed or not.

    Raises:
        RequestError: no such image, or none that was built here.
        ProofFailed: a check failed.
    """
    if junit is not None:
        check_junit(junit)
    engine = connect(say=say)
    record = built_record(image, engine)
    if note := copies_note(record.probe):
        say(f"note: {note}")
    return smoke_record(record, image, engine, select=select, say=say, junit=junit)[1]


def smoke_record(
    record: BuildRecord,
    image: str,
    engine: Engine,
    *,
    select: str | None = None,
    say: Say,
    junit: Path | None = None,
    bar: bool = True,
    before: BuiltProof | None = None,
) -> tuple[BuildRecord, SmokeDocument]:
    """Run the image tests of a record's image; the record with the result, and the result.

    Args:
        record: of the image.
        image: what the user calls it.
        engine: has it.
        select: as of :func:`smoke_image`.
        say: progress callback.
        junit: as of :func:`smoke_image`.
        bar: show on a terminal how far the tests are.
        before: what the builder found in this image; only what it left is run.

    Raises:
        ProofFailed: a check failed.
    """
    if before is not None and before.rows:
        say(f"smoke tests: the builder ran {len(before.rows)}, {len(before.left)} need a container")
    else:
        say("smoke tests: every component of the image, and the container contract")
    report = smoking.smoke(
        engine.client.path,
        record.image_id,
        record.plan.as_json(),
        record.probe,
        record.folder,
        gpus=engine.gpus,
        select=select,
        bar=bar,
        folders={name: folder.path for name, folder in load_catalog().components.items()},
        before=before,
    )
    report = _without_faults_of_the_base(report, record, engine, say=say, bar=bar)
    document = report.document(image=image, image_id=record.image_id, plan=record.plan.id)
    data = document.as_json()
    write_atomically(record.folder / "smoke.json", json.dumps(data, indent=1) + "\n")
    if junit is not None:
        cases = (Case(row.component, row.check, row.outcome, row.reason, row.seconds) for row in report.rows)
        write_junit(junit, f"smoke {image}", cases)
    finished = record.replace(smoke=data)
    if select is None:
        store.save(finished)
    report.raise_for_failures()
    return finished, document


def _without_faults_of_the_base(
    report: SmokeReport, record: BuildRecord, engine: Engine, *, say: Say, bar: bool
) -> SmokeReport:
    """The report, in which a check that fails in the image that was extended as well is of that image, and says so.

    Only checks of the container contract and of the base's own components are tried there.
    """
    catalog, plan, before = load_catalog(), record.plan, record.probe.get("base")
    held = {CONTRACT, *(component.name for component in plan.components if component.provider == BASE)}
    failed = [row for row in report.rows if row.outcome == "failed" and row.component in held]
    if not before or not failed:
        return report
    say(f"trying the {len(failed)} failed checks in the base image")
    looked = base.look(engine, before["image_id"], plan, catalog, say=say)
    # The base image has neither the user's files nor the variables and components of the plan.
    components = [each.as_json() for each in plan.components if each.provider == BASE]
    own = {**plan.as_json(), "components": components, "environment": {}, "user": {}}
    again = smoking.smoke(
        engine.client.path,
        before["image_id"],
        own,
        looked,
        record.folder / "base",
        gpus=engine.gpus,
        only=[f"{row.component}::{row.check}" for row in failed],
        bar=bar,
        folders={name: folder.path for name, folder in catalog.components.items()},
    )
    return smoking.excused(report, again)
