"""``lock``: pins every input of a plan, or compares its lock with what the sources have today."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import emit, verb
from trainwright.cli.output import say
from trainwright.core.errors import RequestError
from trainwright.core.layout import short_digests, table
from trainwright.core.records import Field
from trainwright.core.say import Say
from trainwright.verbs.request import RequestFlags, begin
from trainwright.verbs.state import known, run
from trainwright.verbs.way import upto

if TYPE_CHECKING:
    from trainwright.catalog.catalog import Catalog
    from trainwright.lock.documents import ExportDocument, LockDocument, LockRow
    from trainwright.plan.plan import Plan
    from trainwright.site.site import Site


class LockFlags(RequestFlags):
    """The flags of ``lock``."""

    heading: ClassVar[str] = "The lock"
    examples: ClassVar[tuple[str, ...]] = (
        "lock pytorch:cu124",
        "lock pytorch:cu124 --check",
        "lock pytorch:cu124 --upgrade apt",
        "lock pytorch:cu124 --export pylock.toml",
    )

    output: str | None = Field(
        default=None,
        description="the file to write (default: locks/<plan id>.lock.json in the working folder)",
        metavar="FILE",
    )
    check: bool = Field(
        default=False,
        description="change nothing; report what differs or is newer, and fail if the lock can no longer be built from",
    )
    upgrade: tuple[str, ...] = Field(
        default=(),
        description="update one thing: base, apt, tools, a component or a Python package (may be repeated)",
        metavar="NAME",
    )
    export: str | None = Field(
        default=None,
        description="change nothing; write the lock's Python packages for other programs: pylock.toml, or "
        "NAME.txt with pinned requirements",
        metavar="FILE",
    )


@verb
def lock(flags: LockFlags) -> None:
    """Pin every input of a plan by checksum.

    The base image, archives, Python files and the distribution's packages.
    """
    if flags.check and flags.upgrade:
        raise RequestError("--check changes nothing, --upgrade does", remedy="Use one of them.")
    if flags.export is not None and (flags.check or flags.upgrade):
        raise RequestError("--export writes what is locked, and goes with neither --check nor --upgrade")
    state = run(upto("resolve"), begin(flags))
    if flags.export is not None:
        emit(_exported(known(state.plan), state.site, flags, state.flags), export_text, as_json=flags.json_)
        return
    document = lock_plan(
        known(state.plan),
        state.catalog,
        state.site,
        flags=state.flags,
        output=Path(flags.output).absolute() if flags.output else None,
        upgrade=flags.upgrade,
        check=flags.check,
        say=say,
    )
    emit(document, lock_text, as_json=flags.json_)


def _exported(plan: Plan, site: Site, flags: LockFlags, request: str) -> ExportDocument:
    from trainwright.lock.export import export
    from trainwright.plan.plan_lock import PlanLock, find_lock, lock_path

    path = Path(flags.output).absolute() if flags.output else lock_path(plan, site)
    lock = PlanLock.load(path) if flags.output else find_lock(plan, site)
    if lock is None:
        raise RequestError(f"the plan {plan.id[:12]} has no lock: {path}", remedy=f"./invoke lock {request}")
    if lock.plan != plan.id:
        raise RequestError(f"{path}: is the lock of plan {lock.plan[:12]}, not of {plan.id[:12]}")
    return export(lock, path, Path(str(flags.export)).absolute())


def export_text(document: ExportDocument) -> str:
    """The file that was written."""
    return f"export  {document.path} ({document.packages} Python packages of plan {document.plan[:12]})"


def lock_plan(
    plan: Plan,
    catalog: Catalog,
    site: Site,
    *,
    flags: str,
    output: Path | None,
    upgrade: tuple[str, ...],
    check: bool,
    say: Say,
) -> LockDocument:
    """Write the lock of a plan, or (``check``) compare it with what its sources have today.

    Raises:
        RequestError: ``check`` found that the lock is incomplete or can no longer be built from; the document is among
            the details.
        Failure: as :func:`trainwright.lock.make.make_lock`.
    """
    from trainwright.engine.engine import connect
    from trainwright.engine.platforms import check_engine
    from trainwright.engine.setup import ensure_tool
    from trainwright.lock import diff
    from trainwright.lock.make import make_lock
    from trainwright.plan.plan_lock import PlanLock, lock_path, save_lock
    from trainwright.sources.gather import gather

    path = output or lock_path(plan, site)
    # A file that is not a lock is refused here, so it is never overwritten.
    old = PlanLock.load(path) if path.exists() else None
    # A lock of another plan is refused before any source is asked.
    inputs = gather(plan, catalog, site, old, flags=flags)
    engine = connect(say=say)
    check_engine(engine, plan.platform)
    if check:
        document = diff.document(plan, path, diff.compare(inputs, engine, say=say))
        if document.faults:
            raise RequestError(
                f"{path}: {document.faults} entries are missing, gone or different",
                remedy=f"./invoke lock {flags}   # with --upgrade NAME for what is gone",
                rows=[{"constraint": f"{row.kind} {row.name}", "evidence": show_row(row)} for row in document.rows],
                check=document.as_json(),
            )
        return document
    if plan.base.image is None:
        ensure_tool("mmdebstrap", say=say)
    made = make_lock(inputs, engine, upgrade=upgrade, say=say)
    changed = diff.changes(old, made)
    if changed or made.made is None:
        made = made.replace(made=datetime.now(UTC).isoformat(timespec="seconds"))
    save_lock(made, path)
    return diff.document(plan, path, changed)


def show_row(row: LockRow) -> str:
    """One line of a comparison of locks, for people."""
    return row.state + (f", locked {row.locked}" if row.locked else "") + (f", now {row.now}" if row.now else "")


def lock_text(document: LockDocument) -> str:
    """What changed, or with ``--check`` what differs."""
    rows = [
        (row.state, row.kind, row.name, short_digests(row.locked or "-"), short_digests(row.now or "-"))
        for row in document.rows
    ]
    # In the first lock of a plan everything is new; the file itself is easier to read.
    few = rows if len(rows) <= 60 else [*rows[:20], ("...", f"{len(rows) - 20} more", "", "", "")]
    lines = [table([("state", "kind", "name", "locked", "now"), *few]), ""] if rows else []
    return "\n".join([*lines, f"lock    {document.path}", *([] if rows else ["nothing differs"])])
