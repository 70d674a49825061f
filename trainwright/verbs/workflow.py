"""Whole jobs, as the verbs start them: engine, build, proof, record, and the document that tells of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainwright.build.store import built_record
from trainwright.catalog.catalog import Catalog
from trainwright.core.errors import RequestError
from trainwright.core.junit import check_junit
from trainwright.core.owned import claim
from trainwright.engine.engine import connect
from trainwright.engine.setup import ensure_tool
from trainwright.lock import diff, mirror
from trainwright.lock.make import make_lock
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import PlanLock, lock_path, save_lock
from trainwright.site.site import Site
from trainwright.sources.gather import gather
from trainwright.verbs.way import smoke_record


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
    done = smoke_record(record, image, engine, select=select, junit=junit, say=say)
    assert done.smoke is not None
    return done.smoke
