"""Whole jobs, as the verbs start them: engine, build, proof, record, and the document that tells of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from trainwright.build import build as building
from trainwright.build import store
from trainwright.build.build import BuildOptions
from trainwright.build.store import BuildRecord, built_record
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.junit import Case, check_junit, write_junit
from trainwright.core.owned import claim, write_atomically
from trainwright.engine.build_display import Mode
from trainwright.engine.builders import check_registry
from trainwright.engine.cache import check_reference
from trainwright.engine.engine import Engine, connect
from trainwright.engine.setup import ensure_tool
from trainwright.lock import diff, mirror
from trainwright.lock.make import make_lock
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import PlanLock, lock_path, save_lock
from trainwright.prove import smoke as smoking
from trainwright.site.site import Site
from trainwright.sources.fetch import first_use, unpublished
from trainwright.sources.gather import gather, gather_locked
from trainwright.sources.reachability import check_sources


def build_options(
    tags: tuple[str, ...],
    progress: str,
    *,
    no_cache: bool,
    fresh_base: bool,
    skip_source_check: bool = False,
    cache: tuple[str, ...] = (),
    registry: str | None = None,
) -> BuildOptions:
    """The options of a build from the words of the command line.

    Raises:
        RequestError: a tag, the kind of progress, a cache or the registry is none.
    """
    if progress not in get_args(Mode):
        raise RequestError(f"--progress {progress}: no such kind. {did_you_mean(progress, get_args(Mode))}")
    for tag in tags:
        if not building.TAG.fullmatch(tag):
            raise RequestError(f"--tag {tag}: not an image name", remedy="For example: --tag team/trainer:nightly")
    mode: Any = progress
    return BuildOptions(
        tags=tags,
        progress=mode,
        no_cache=no_cache,
        fresh_base=fresh_base,
        skip_source_check=skip_source_check,
        cache=tuple(check_reference(reference) for reference in cache),
        registry=check_registry(registry) if registry is not None else None,
    )


def build_image(
    plan: Plan,
    catalog: Catalog,
    site: Site,
    options: BuildOptions,
    *,
    flags: str,
    locked: bool,
    smoke: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Build and prove an image; returns the document of ``build --json``.

    Args:
        flags: the request as the command line spells it.
        locked: use nothing that the plan's lock does not name.
        smoke: run the smoke tests, too.

    Raises:
        Failure: as :func:`trainwright.build.build.build`, ``ProofFailed`` where a smoke test fails, and
            ``RequestError`` where ``locked`` is asked for and there is no whole lock.
    """
    inputs = gather_locked(plan, catalog, site, flags, strict=locked)
    if inputs.lock is not None:
        say(f"with the lock {lock_path(plan, site)}")
    for notice in plan.notices:
        say(f"note: {notice}")
    engine = connect(say=say)
    if plan.base.image is None and (inputs.lock is None or inputs.lock.base is None):
        ensure_tool("mmdebstrap", say=say)
    if not options.skip_source_check and unpublished(inputs):
        # Before gigabytes are fetched for their checksums: is everything else to be had as well?
        check_sources(inputs, engine)
        options = replace(options, skip_source_check=True)
    inputs = first_use(inputs, say=say)
    record = building.build(inputs, engine, options=options, say=say)
    if smoke and not (record.smoke and record.smoke["failed"] == 0):
        record = _smoke(record, record.tags[0], engine, None, say)
    return _document(record)


def build_stages(
    plan: Plan,
    catalog: Catalog,
    site: Site,
    options: BuildOptions,
    *,
    names: str,
    flags: str,
    locked: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Build some stages of a plan for the builder's cache; the document of ``build --stages --json``.

    Args:
        names: of the stages, separated by commas.
        flags: the request as the command line spells it.
        locked: use nothing that the plan's lock does not name.

    Raises:
        Failure: as :func:`trainwright.build.build.build_stages`.
    """
    started = time.monotonic()
    asked = tuple(dict.fromkeys(filter(None, (name.strip() for name in names.split(",")))))
    if not asked:
        raise RequestError(f"--stages {names!r}: no stage is named", remedy="For example: --stages tools,toolchain")
    inputs = gather_locked(plan, catalog, site, flags, strict=locked)
    engine = connect(say=say)
    if plan.base.image is None and (inputs.lock is None or inputs.lock.base is None):
        ensure_tool("mmdebstrap", say=say)
    inputs = first_use(inputs, say=say)
    progress = building.build_stages(inputs, engine, names=asked, options=options, say=say)
    own = [v for v in progress.steps if v.component is not None and not v.text.startswith("FROM ")]
    return {
        "schema": "trainwright/stages/1",
        "plan": plan.id,
        "stages": list(asked),
        "steps": len(own),
        "cached_steps": sum(vertex.cached for vertex in own),
        "seconds": round(time.monotonic() - started, 1),
    }


def lock_plan(
    plan: Plan,
    catalog: Catalog,
    site: Site,
    *,
    flags: str,
    output: Path | None,
    upgrade: tuple[str, ...],
    check: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Write the lock of a plan, or (``check``) say how it differs from what there is; the document of ``lock --json``.

    Raises:
        RequestError: ``check`` found that the lock cannot be built from any more, or that it is not whole; the
            document is among the details.
        Failure: as :func:`trainwright.lock.make.make_lock`.
    """
    path = output or lock_path(plan, site)
    # A file that is no lock is refused as it is read, so none of somebody else's is replaced.
    old = PlanLock.load(path) if path.exists() else None
    # A lock of another plan is refused before anything is asked.
    inputs = gather(plan, catalog, site, old, flags=flags)
    engine = connect(say=say)
    if check:
        document = diff.document(plan, path, diff.compare(inputs, engine, say=say))
        if document["faults"]:
            raise RequestError(
                f"{path}: {document['faults']} entries are missing, gone or different",
                remedy=f"./invoke lock {flags}   # with --upgrade NAME for what is gone",
                rows=[{"constraint": f"{r['kind']} {r['name']}", "evidence": show_row(r)} for r in document["rows"]],
                check=document,
            )
        return document
    if plan.base.image is None:
        ensure_tool("mmdebstrap", say=say)
    made = make_lock(inputs, engine, upgrade=upgrade, say=say)
    save_lock(made, path)
    return diff.document(plan, path, diff.changes(old, made))


def show_row(row: Mapping[str, Any]) -> str:
    """One line of a comparison of locks, for people."""
    was, now = row["locked"], row["now"]
    return f"{row['state']}" + (f", locked {was}" if was else "") + (f", now {now}" if now else "")


def pull_mirror(lock: Path, folder: Path, site: Site, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Fetch what a lock names into a folder; the document of ``mirror pull --json``.

    Raises:
        Failure: as :func:`trainwright.lock.mirror.pull`.
    """
    found = PlanLock.load(lock)
    claim(folder.absolute(), mirror.KIND, f"--to {folder}")
    return mirror.pull(found, folder.absolute(), site, connect(say=say), say=say)


def smoke_image(
    image: str, *, select: str | None, say: Callable[[str], None], junit: Path | None = None
) -> dict[str, Any]:
    """Run the image tests of an image that was built here; returns the document of ``smoke --json``.

    Args:
        image: tag or id.
        select: only checks whose name holds this word; the result is then not recorded as proof.
        say: told of long steps.
        junit: takes the checks as a JUnit report, failed or not.

    Raises:
        RequestError: no such image, or none that was built here.
        ProofFailed: a check failed.
    """
    if junit is not None:
        check_junit(junit)
    engine = connect(say=say)
    record = built_record(image, engine)
    done = _smoke(record, image, engine, select, say, junit=junit)
    assert done.smoke is not None
    return done.smoke


def _smoke(
    record: BuildRecord,
    image: str,
    engine: Engine,
    select: str | None,
    say: Callable[[str], None],
    *,
    junit: Path | None = None,
) -> BuildRecord:
    say("smoke tests: every component of the image, and the container contract")
    report = smoking.smoke(
        engine.client.path,
        record.image_id,
        record.plan.as_json(),
        record.probe,
        record.folder,
        gpus=engine.gpus,
        select=select,
        folders={name: folder.path for name, folder in load_catalog().components.items()},
    )
    document = {**report.as_json(), "image": image, "image_id": record.image_id, "plan": record.plan.id}
    write_atomically(record.folder / "smoke.json", json.dumps(document, indent=1) + "\n")
    if junit is not None:
        cases = (Case(row.component, row.check, row.outcome, row.reason, row.seconds) for row in report.rows)
        write_junit(junit, f"smoke {image}", cases)
    finished = record.model_copy(update={"smoke": document})
    if select is None:
        store.save(finished)
    report.raise_for_failures()
    return finished


def _document(record: BuildRecord) -> dict[str, Any]:
    return {
        "schema": "trainwright/build/1",
        "plan": record.plan.id,
        "image_id": record.image_id,
        "tags": list(record.tags),
        "pushed": record.pushed,
        "size_bytes": record.size_bytes,
        "seconds": record.seconds,
        "cached": record.cached,
        "components": [row.model_dump(mode="json") for row in record.ledger],
        "probe": record.probe,
        "smoke": None if record.smoke is None else {k: record.smoke[k] for k in ("passed", "failed", "skipped")},
        "record": str(record.folder / "record.json"),
    }
