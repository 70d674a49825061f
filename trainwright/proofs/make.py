"""Makes the proof of a line from what its build, its smoke run and its rehearsal left behind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainwright.build.store import BuildRecord
from trainwright.catalog.image_line import Line
from trainwright.core.records import read_record
from trainwright.engine.engine import Engine
from trainwright.plan.licences import PUBLIC
from trainwright.plan.plan import Base, Plan
from trainwright.proofs.proof import EngineVersions, LineProof, Outcomes, ProvenBase, Rehearsed
from trainwright.proofs.runs import StepName
from trainwright.rehearse.documents import RehearsalDocument
from trainwright.sources.base_image import canonical
from trainwright.sources.inputs import Inputs

# Amazon's PCI vendor (drivers/infiniband/hw/efa/efa_main.c of Linux: PCI_DEVICE(PCI_VENDOR_ID_AMAZON, 0xefa0) and on).
AMAZON = "0x1d0f"
PUBLIC_REGISTRIES = (*PUBLIC, "nvcr.io")
_ADDRESS = re.compile(r"\b[a-z]+://\S+")
INFINIBAND = Path("/sys/class/infiniband")


def make_proof(
    entry: Line,
    record: BuildRecord,
    inputs: Inputs,
    rehearsal: RehearsalDocument | None,
    *,
    gpu: bool,
    efa: bool,
    failed: StepName | None = None,
    stands_for: str | None = None,
) -> LineProof:
    """The proof of a line.

    Args:
        entry: the line.
        record: of its image, with the smoke run.
        inputs: of the build, with the lock of the plan.
        rehearsal: in the image; None where none was begun.
        gpu: whether the engine has GPUs for containers.
        efa: whether this machine has an EFA device.
        failed: the step that failed, if one did; a report of its own may be of an earlier try.
        stands_for: of a twin, the id of the plan that it stands for.
    """
    smoke: Mapping[str, Any] = record.smoke or {}
    if failed is None and (not smoke or smoke["failed"]):
        failed = "smoke"
    if failed is None and (rehearsal is None or rehearsal.outcome != "passed"):
        failed = "rehearsal"
    locked = inputs.lock.base if inputs.lock is not None else None
    return LineProof(
        **_of_line(entry, record.plan, failed, stands_for),
        base=_base(inputs.plan.base, locked.sha256 if locked is not None else None),
        image=record.image_id,
        size_bytes=record.size_bytes,
        components=record.component_bytes,
        sources=checksums(inputs),
        facts={name: _facts(found) for name, found in record.probe.get("facts", {}).items()},
        tests=_outcomes((f"{row['component']}::{row['check']}", row["outcome"]) for row in smoke.get("rows", ())),
        rehearsal=None if rehearsal is None else _rehearsed(rehearsal),
        gpu=gpu,
        efa=efa,
        engine=read_record(EngineVersions, record.engine.as_json()),
        revision=record.source_revision,
    )


def failed_before_image(
    entry: Line,
    plan: Plan,
    step: StepName,
    engine: Engine,
    *,
    revision: str,
    gpu: bool,
    efa: bool,
    stands_for: str | None = None,
) -> LineProof:
    """That a line came to no image: at which step, not why, as what a failure says can name hosts of the site.

    Args:
        entry: the line.
        plan: what was to be built.
        step: the one that failed.
        engine: what was to build it.
        revision: of the source that Trainwright runs from.
        gpu, efa, stands_for: as of :func:`make_proof`.
    """
    client = engine.client
    return LineProof(
        **_of_line(entry, plan, step, stands_for),
        base=_base(plan.base),
        image=None,
        size_bytes=None,
        sources={},
        facts={},
        tests=Outcomes(),
        rehearsal=None,
        gpu=gpu,
        efa=efa,
        engine=EngineVersions(server=engine.server_version, client=client.version, buildkit=client.buildkit),
        revision=revision,
    )


def _of_line(entry: Line, plan: Plan, failed: StepName | None, stands_for: str | None) -> dict[str, Any]:
    """What a proof says of its line, whether there is an image or not."""
    return {
        "framework": entry.path.parent.parent.name,
        "line": entry.name,
        "plan": plan.id,
        "stands_for": stands_for,
        "outcome": "failed" if failed else "proven",
        "failed_step": failed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": plan.version,
        "cuda": plan.cuda,
        "python": plan.python,
        "flavour": plan.flavour,
    }


def checksums(inputs: Inputs) -> dict[str, dict[str, str]]:
    """The checksums of the files of a build by kind and name; a file of ours is known by the plan's id."""
    found: dict[str, dict[str, str]] = {}
    for each in inputs:
        if each.sha256 is not None and each.kind not in ("component file", "user file"):
            name = each.source.package if each.kind == "package" else each.file
            found.setdefault(each.kind, {})[name or each.file] = each.sha256
    for image in inputs.images:
        if image.digest is not None:
            found.setdefault("base image", {})[_public(image.name)] = image.digest
    return found


def efa_seen(folder: Path = INFINIBAND) -> bool:
    """Whether this machine has an EFA device: one of Amazon's among its RDMA devices."""
    vendors = (path for path in folder.glob("*/device/vendor") if path.is_file())
    return any(path.read_text().strip() == AMAZON for path in vendors)


def _base(base: Base, sha256: str | None = None) -> ProvenBase:
    image = None if base.image is None else _public(base.image)
    return ProvenBase(os=base.os, image=image, digest=base.digest, sha256=sha256)


def _public(reference: str) -> str:
    """An image's name, without its registry unless that is a public one."""
    registry, _, _ = canonical(reference).partition("/")
    return reference if registry in PUBLIC_REGISTRIES else reference.removeprefix(f"{registry}/")


def _facts(found: Mapping[str, Any]) -> dict[str, str]:
    """Facts as text; of an error what it comes to, its last line."""
    lines = {name: str(value).strip().splitlines() for name, value in found.items()}
    return {name: _ADDRESS.sub("(an address)", text[-1].strip())[:500] if text else "" for name, text in lines.items()}


def _outcomes(rows: Iterable[tuple[str, str]]) -> Outcomes:
    sorted_: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
    for name, outcome in rows:
        sorted_[outcome].append(name)
    return Outcomes(**{outcome: tuple(names) for outcome, names in sorted_.items()})


def _rehearsed(document: RehearsalDocument) -> Rehearsed:
    """The outcome of a rehearsal; not what it said, as that quotes logs and folders."""
    return Rehearsed(
        outcome=document.outcome,
        job=Path(document.entry_point).name,
        launcher=document.launcher,
        network=document.network,
        hosts=document.hosts_asked,
        processes_per_host=document.processes_per_host,
        checks=_outcomes((row.check, row.outcome) for row in document.checks),
        cause=document.cause.id if document.cause is not None else None,
    )
