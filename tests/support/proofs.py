"""Proofs for tests, from what a real smoke run and a real rehearsal left behind (2026-11-22, folders renamed)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.build_records import record_of
from trainwright.build.store import BuildRecord, EngineUsed
from trainwright.catalog.catalog import Catalog, open_catalog
from trainwright.catalog.image_line import Line
from trainwright.core.records import read_record
from trainwright.plan.of_line import plan_of
from trainwright.plan.plan import Plan
from trainwright.proofs.home import known_lines
from trainwright.proofs.make import make_proof
from trainwright.proofs.proof import LineProof
from trainwright.rehearse.documents import RehearsalDocument
from trainwright.site.site import Site
from trainwright.sources.gather import gather

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_proof.json").read_text())
IMAGE = f"sha256:{'5e' * 32}"


def line_of(name: str, catalog: Catalog | None = None) -> Line:
    """The image line in a folder of ``images/``: ``pytorch/cpu``."""
    framework, _, line = name.partition("/")
    return known_lines(catalog or open_catalog())[framework, line]


def recorded(plan: Plan, *, failed: str = "") -> BuildRecord:
    """The record of an image with the recorded facts and smoke run; one test ``failed``."""
    smoke = dict(RECORDED["smoke"])
    if failed:
        row = {"component": "contract", "check": failed, "outcome": "failed", "reason": "no", "seconds": 0.1}
        smoke |= {"failed": 1, "rows": [*smoke["rows"], row]}
    record = record_of(plan, IMAGE)
    return record.replace(
        smoke=smoke,
        probe={**record.probe, "facts": RECORDED["facts"]},
        engine=EngineUsed(**RECORDED["engine"]),
        size_bytes=RECORDED["size_bytes"],
    )


def rehearsed(**changes: Any) -> RehearsalDocument:
    """The recorded rehearsal, in the image of :data:`IMAGE`."""
    return read_record(RehearsalDocument, RECORDED["rehearsal"] | {"image_id": IMAGE} | changes)


def proof_of(name: str = "pytorch/cpu", **more: Any) -> LineProof:
    """A proof of a shipped line, of today's plan."""
    catalog = open_catalog()
    entry = line_of(name, catalog)
    plan = plan_of(entry, catalog)
    inputs = gather(plan, catalog.alone(entry), Site())
    return make_proof(entry, recorded(plan), inputs, rehearsed(), gpu=False, efa=False, **more)
