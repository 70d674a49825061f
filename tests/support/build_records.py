"""Records of images as a build leaves them, for tests of what is done with built images."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from trainwright.build.store import BuildRecord, EngineUsed
from trainwright.plan.plan import Plan


def probe_of(plan: Plan, image_id: str) -> dict[str, Any]:
    """What the probe finds in an image that is what its plan says."""
    facts: dict[str, dict[str, str]] = {}
    for expected in plan.expect:
        facts.setdefault(expected.component, {})[expected.fact] = expected.value.replace(".*", ".9").replace("*", "")
    system, _, release = plan.base.os.partition("-")
    pinned = [s.package for c in plan.components for s in c.sources if s.package and "==" in s.package]
    return {
        "schema": "trainwright/probe/1",
        "facts": facts,
        "distributions": dict(one.split("==") for one in pinned),
        "environment": dict(plan.environment),
        "interpreter": {"version": f"{plan.python}.9"},
        "os": {"ID": system, "VERSION_ID": release},
        "packages": {"libc6": "2.36-9"},
        "image": {"id": image_id, "labels": dict(plan.labels)},
    }


def record_of(plan: Plan, image_id: str, *, tag: str = "", smoke: bool = True) -> BuildRecord:
    """The record of an image, with a passed smoke run unless told otherwise."""
    passed = {
        "schema": "trainwright/smoke/1",
        "image": tag,
        "image_id": image_id,
        "plan": plan.id,
        "passed": 3,
        "failed": 0,
        "skipped": 0,
        "seconds": 1.0,
        "rows": [],
    }
    return BuildRecord(
        image_id=image_id,
        tags=(tag or plan.tags[0],),
        plan=plan,
        size_bytes=1000,
        seconds=1.0,
        cached=False,
        cached_steps=0,
        total_steps=1,
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        ledger=(),
        engine=EngineUsed(server="20.10", client="20.10", buildkit="builtin"),
        source_revision="unknown",
        probe=probe_of(plan, image_id),
        smoke=passed if smoke else None,
    )
