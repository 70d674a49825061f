"""How two locks differ, and how a lock differs from what its sources have today."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from trainwright.core.errors import Conflict
from trainwright.core.heartbeat import heartbeat, waiting
from trainwright.core.masking import mask
from trainwright.core.say import Say
from trainwright.engine.engine import Engine, sdk
from trainwright.lock.documents import Change, Kind, LockDocument, LockRow
from trainwright.lock.make import ask_today, resolve_user, upgraded
from trainwright.lock.python_files import addresses, tool_addresses
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import LockedPython, PlanLock, unlocked
from trainwright.site.web import ask_size
from trainwright.sources.inputs import BaseImage, Inputs


def row(kind: Kind, name: str, locked: str | None, now: str | None, state: Change) -> LockRow:
    """One line of a comparison."""
    return LockRow(kind=kind, name=name, locked=locked, now=now, state=state)


def changes(old: PlanLock | None, new: PlanLock) -> list[LockRow]:
    """The entries added, changed or removed since ``old``."""
    before, after = entries(old), entries(new)
    rows = []
    for kind, name in sorted(before.keys() | after.keys()):
        was, now = before.get((kind, name)), after.get((kind, name))
        if was != now:
            rows.append(row(kind, name, was, now, "new" if was is None else "removed" if now is None else "changed"))
    return rows


def entries(lock: PlanLock | None) -> dict[tuple[Kind, str], str]:
    """Everything that a lock pins, by kind and name."""
    if lock is None:
        return {}
    found: dict[tuple[Kind, str], str] = {}
    if lock.base is not None:
        base = lock.base
        for name, value in (
            ("root file system", base.sha256),
            (base.image or "", base.digest or base.image_id),
            (base.build_image or "", base.build_digest or base.build_image_id),
        ):
            if name and value:
                found["base", name] = value
    found |= {("archive", f"{a.component}/{a.file}"): a.sha256 for a in lock.archives}
    found |= {("package", f"{p.name}:{p.architecture}"): p.version for p in lock.system or ()}
    found |= {("python", p.name): f"{p.version} {p.sha256[:12]}" for p in (*(lock.python or ()), *(lock.user or ()))}
    found |= {("insecure host", host): "certificate not checked" for host in lock.insecure_hosts}
    found |= {("tool", p.name): f"{p.version} {p.sha256[:12]}" for p in lock.tools or ()}
    return found


def document(plan: Plan, path: Path, rows: Sequence[LockRow]) -> LockDocument:
    """What ``lock`` shows of a comparison."""
    return LockDocument(
        schema="trainwright/locked/1",
        plan=plan.id,
        path=str(path),
        rows=tuple(rows),
        faults=sum(row.is_fault for row in rows),
    )


def compare(inputs: Inputs, engine: Engine, *, say: Say) -> list[LockRow]:
    """How a lock differs from what its sources have today. Nothing is changed.

    Raises:
        SourceError: the distribution's archive or an index does not answer at all.
    """
    lock = inputs.lock
    rows = [row("lock", what, None, None, "missing") for what in unlocked(inputs.resolved, lock)]
    if lock is None:
        return rows
    if lock.base is not None:
        rows += _images(inputs.images, engine)
        rows += _system(lock, inputs, engine, say=say)
    rows += _archives(inputs)
    rows += _python(lock, inputs, say)
    return rows


def _images(images: Iterable[BaseImage], engine: Engine) -> Iterable[LockRow]:
    for image in images:
        if image.digest is None:
            continue
        try:
            data = sdk(engine).images.get_registry_data(image.reference)
            now = str(data.attrs["Descriptor"]["digest"])
        except Exception as failed:  # the SDK has many kinds, and each means that there is no answer
            why = mask(str(getattr(failed, "explanation", None) or failed).strip())[:200]
            yield row("base", image.name, image.digest, why, "unknown")
            continue
        if now != image.digest:
            yield row("base", image.name, image.digest, now, "newer")


def _system(lock: PlanLock, inputs: Inputs, engine: Engine, *, say: Say) -> Iterable[LockRow]:
    answer = ask_today(lock, inputs, engine, say=say)
    if answer is None or lock.base is None:
        return
    for package in lock.system or ():
        known = answer.known.get(package.name, ())
        if package.version not in known:
            yield row("package", package.name, package.version, known[0] if known else None, "gone")
        elif known[0] != package.version:
            yield row("package", package.name, package.version, known[0], "newer")
    # A base image changes by its digest.
    for held in lock.base.packages if lock.base.image is None else ():
        known = answer.known.get(held.name, ())
        if known and known[0] != held.version:
            yield row("base", held.name, held.version, known[0], "newer")


def _archives(inputs: Inputs) -> Iterable[LockRow]:
    for archive in inputs.archives:
        name, size = f"{archive.owner}/{archive.file}", archive.source.size
        answers = {url: ask_size(url, inputs.site) for url in archive.urls}
        sizes = {n for n in answers.values() if isinstance(n, int)}
        if not archive.urls:  # apt brings it
            continue
        if all(isinstance(what, str) for what in answers.values()):
            why = "; ".join(f"{mask(url)}: {what}" for url, what in answers.items())
            yield row("archive", name, archive.sha256, why, "gone")
        elif size is not None and sizes and size not in sizes:
            yield row("archive", name, f"{size} bytes", f"{min(sizes)} bytes", "differs")


def _python(lock: PlanLock, inputs: Inputs, say: Say) -> Iterable[LockRow]:
    files = [p for p in lock.python_files if p not in (lock.tools or ())]
    say("asking the index for the locked files, and for newer ones")
    with heartbeat(say, waiting("asking the index")):
        yield from _python_today(lock, inputs, files)


def _python_today(lock: PlanLock, inputs: Inputs, files: Sequence[LockedPython]) -> Iterable[LockRow]:
    offered = addresses(files, lock.python_version, lock.platform, inputs.site, lock.indexes)
    tools = tool_addresses(lock.tools or (), lock.python_version, inputs.site)
    for package in lock.python_files:
        if package.file not in offered and package.file not in tools:
            yield row("python", package.name, package.file, None, "gone")
    yield from newer_python(lock, inputs)


def newer_python(lock: PlanLock, inputs: Inputs) -> Iterable[LockRow]:
    """The locked Python packages of which the index has newer versions that fit the others.

    Raises:
        SourceError: no index answers.
    """
    files = [p for p in lock.python_files if p not in (lock.tools or ())]
    for now in _newest(lock, inputs):
        held = next((p for p in files if p.name == now.name), None)
        if held is not None and held.version != now.version:
            yield row("python", now.name, held.version, now.version, "newer")


def _newest(lock: PlanLock, inputs: Inputs) -> list[LockedPython]:
    """What would be resolved today; empty if today's packages conflict."""
    found: list[LockedPython] = []
    try:
        if lock.python:
            found += upgraded(inputs, lock.python, set(), lock=lock)
        if lock.user is not None and inputs.resolved.user.requirements is not None:
            found += resolve_user(inputs, lock)
    except Conflict:
        return found
    return found
