"""What ``lock`` says: how two locks differ, and what keeps a lock from being built from."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.wheel_lock import PLATFORM
from trainwright.core.errors import RequestError
from trainwright.engine import engine as engines
from trainwright.lock import diff
from trainwright.lock.documents import LockDocument, LockRow
from trainwright.plan.plan_lock import LockedArchive, LockedBase, LockedPython, PlanLock, save_lock
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.verbs.lock import lock_plan, lock_text, show_row

SCHEMA = Path(__file__).resolve().parents[3] / "trainwright" / "schemas" / "locked.schema.json"
OLD, NEW = "a" * 64, "b" * 64


def lock(sha256: str, *names: str) -> PlanLock:
    python = tuple(LockedPython(name=n, version="1.0", file=f"{n}.whl", sha256=sha256, component="user") for n in names)
    return PlanLock(
        plan="f" * 64,
        request="--framework x",
        python_version="3.11",
        platform=PLATFORM,
        base=LockedBase(kind="debian", os="debian-12", sha256=OLD),
        archives=(LockedArchive(component="gadget", file="gadget.tar", url="https://x.test/g", sha256=sha256),),
        python=python,
    )


def test_what_is_new_removed_and_changed():
    rows = diff.changes(lock(OLD, "gone", "kept"), lock(NEW, "kept", "more"))
    assert [(row.kind, row.name, row.state) for row in rows] == [
        ("archive", "gadget/gadget.tar", "changed"),
        ("python", "gone", "removed"),
        ("python", "kept", "changed"),
        ("python", "more", "new"),
    ]
    assert show_row(rows[0]) == f"changed, locked {OLD}, now {NEW}"
    assert diff.changes(lock(OLD), lock(OLD)) == []


def test_a_check_that_finds_a_fault_fails_with_the_document(monkeypatch, tmp_path):
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())
    rows = [
        diff.row("package", "gcc", "0.1-1", None, "gone"),
        diff.row("python", "toolz", "0.11", "0.12", "newer"),
    ]
    monkeypatch.setattr(engines, "connect", lambda **_: SimpleNamespace(system="linux", processor="x86_64"))
    monkeypatch.setattr(diff, "compare", lambda *_, **__: rows)
    path, quiet = tmp_path / "x.lock.json", lambda _: None
    asked = {"flags": "--framework pytorch", "output": path, "upgrade": (), "check": True, "say": quiet}
    with pytest.raises(RequestError, match="1 entries are missing, gone or different") as refused:
        lock_plan(plan, load_catalog(), Site(), **asked)
    assert refused.value.details["rows"][0] == {"constraint": "package gcc", "evidence": "gone, locked 0.1-1"}
    document = json.loads(json.dumps(refused.value.as_json()))["check"]
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert LockDocument(**document).rows == tuple(rows)

    del rows[0]  # what is newer keeps nothing from being built
    text = lock_text(lock_plan(plan, load_catalog(), Site(), **asked))
    assert "newer" in text and text.endswith(f"lock    {path}")


def test_checksums_are_short_in_the_table():
    changed = LockRow(state="new", kind="archive", name="x.tar", locked=None, now="ab" * 32)
    shown = lock_text(LockDocument(schema="trainwright/locked/1", path="x", plan="p", rows=(changed,), faults=0))
    assert f"  {'ab' * 6}\n" in shown


def test_a_lock_says_when_anything_in_it_changed_last(monkeypatch, tmp_path):
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())
    monkeypatch.setattr(engines, "connect", lambda **_: SimpleNamespace(system="linux", processor="x86_64"))
    monkeypatch.setattr("trainwright.engine.setup.ensure_tool", lambda *_, **__: None)
    path = tmp_path / "x.lock.json"
    first, second = (lock(sha256).replace(plan=plan.id) for sha256 in (OLD, NEW))

    def made(found: PlanLock, before: str) -> str | None:
        """When the lock says it was made, if ``lock`` finds this, and the file was of that time."""
        if path.exists():
            save_lock(PlanLock.load(path).replace(made=before or None), path)
        monkeypatch.setattr(
            "trainwright.lock.make.make_lock",
            lambda inputs, *_, **__: found.replace(made=inputs.lock and inputs.lock.made),
        )
        asked = {"flags": "--framework pytorch", "output": path, "upgrade": (), "check": False}
        lock_plan(plan, load_catalog(), Site(), **asked, say=lambda _: None)
        return PlanLock.load(path).made

    old = "2020-01-01T00:00:00+00:00"
    assert str(made(first, "")) > "2026"
    assert made(first, old) == old  # nothing changed
    assert str(made(second, old)) > "2026"
    assert str(made(second, "")) > "2026"  # of an earlier version, which wrote no time
