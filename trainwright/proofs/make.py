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
from trainwright.plan.licences import PUBLIC
from trainwright.proofs.proof import EngineVersions, LineProof, Outcomes, ProvenBase, Rehearsed
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
        stands_for: of a twin, the id of the plan that it stands for.
    """
    smoke: Mapping[str, Any] = record.smoke or {}
    passed = bool(smoke) and not smoke["failed"] and rehearsal is not None and rehearsal.outcome == "passed"
    plan = record.plan
    return LineProof(
        framework=entry.path.parent.parent.name,
        line=entry.name,
        plan=plan.id,
        stands_for=stands_for,
        outcome="proven" if passed else "failed",
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        version=plan.version,
        cuda=plan.cuda,
        python=plan.python,
        base=_base(inputs),
        flavour=plan.flavour,
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


def _base(inputs: Inputs) -> ProvenBase:
    base, lock = inputs.plan.base, inputs.lock
    locked = lock.base if lock is not None else None
    return ProvenBase(
        os=base.os,
        image=None if base.image is None else _public(base.image),
        digest=base.digest,
        sha256=locked.sha256 if locked is not None else None,
    )


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
