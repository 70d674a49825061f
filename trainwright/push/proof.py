"""The gate: only proven images are pushed.

An image's record must contain a passed smoke run of exactly this image and plan, and its labels and tags must match
what the probe found in it. The first can be overridden (``--unproven``), the second cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trainwright.core.errors import ProofFailed
from trainwright.plan.plan import LABEL, variant
from trainwright.prove.differences import Difference, differences, distribution

if TYPE_CHECKING:
    import docker

    from trainwright.build.store import BuildRecord

UNPROVEN_LABEL = f"{LABEL}.unproven-push"
BUILT_LABEL = f"{LABEL}.built"
_REBUILD = "The record belongs to another image, or was edited: ./invoke build creates image and record again."


@dataclass(frozen=True)
class Proof:
    """Whether an image passed its smoke tests; ``lacking`` says what is missing if it did not."""

    lacking: str = ""

    @property
    def proven(self) -> bool:
        """Whether nothing is missing."""
        return not self.lacking


def gate(record: BuildRecord, image: str, *, unproven: bool) -> Proof:
    """Check whether an image may be pushed.

    Args:
        record: of the image.
        image: as the user named it.
        unproven: allow it without smoke tests.

    Raises:
        ProofFailed: it is not proven, or its labels or tags contradict what is in it.
    """
    different = [*differences(record.plan.as_json(), record.probe), *contradictions(record)]
    if different:
        raise ProofFailed(
            "\n".join([f"{image}: its labels and tags contradict what is in it", *(f"  {d}" for d in different)]),
            remedy=_REBUILD,
            differences=[asdict(d) for d in different],
        )
    lacking = smoke_lacks(record)
    if lacking and not unproven:
        raise ProofFailed(
            f"{image}: {lacking}; only images that passed their smoke tests can be pushed",
            remedy=f"./invoke smoke --image {image}   # or push it with --unproven, which labels it as such",
            image=image,
        )
    return Proof(lacking)


def smoke_lacks(record: BuildRecord) -> str:
    """Why the smoke run in a record is not a proof; empty if it is one."""
    smoke = record.smoke
    if smoke is None:
        return "no smoke tests were run"
    if smoke.get("image_id") != record.image_id or smoke.get("plan") != record.plan.id:
        return "its smoke tests were run on another image"
    if smoke.get("failed") != 0:
        return f"{smoke.get('failed')} smoke tests failed"
    return "" if smoke.get("passed") else "no test of its smoke run passed"


def contradictions(record: BuildRecord) -> Iterator[Difference]:
    """Where labels and tags contradict the facts that the probe found in the image."""
    plan, found = record.plan, record.probe
    facts: Mapping[str, Mapping[str, Any]] = found.get("facts", {})
    labels: Mapping[str, str] = found.get("image", {}).get("labels", {})
    seen = found.get("image", {}).get("id", "")
    if seen != record.image_id:
        yield Difference("image", "id", record.image_id, seen or "nothing", _REBUILD)
    for component in plan.components:
        stated = labels.get(f"{LABEL}.component.{component.name}", "").partition(" (")[0]
        fact = facts.get(component.name, {}).get("version")
        if fact is not None and not _is_version(str(fact), stated):
            yield Difference("labels", f"component.{component.name}", str(fact), stated or "nothing", _REBUILD)
    main = facts.get(plan.framework) or {}
    # A line is named by the CUDA version of its framework or of its image; their minor versions may differ.
    versions = [str(one) for one in (main.get("cuda"), facts.get("cuda", {}).get("version")) if one]
    named = labels.get(f"{LABEL}.cuda", "")
    cuda = next((one for one in versions if _is_version(one, named)), " and ".join(versions))
    rows = [
        ("framework-version", main.get("version")),
        ("python", found.get("interpreter", {}).get("version")),
        ("cuda", cuda),
        ("base", distribution(found.get("os", {}))),
    ]
    for name, fact in rows:
        stated = labels.get(f"{LABEL}.{name}", "")
        if fact and not _is_version(str(fact), stated):
            yield Difference("labels", name, str(fact), stated or "nothing", _REBUILD)
    # The tags are made from the plan, so they are right if the labels are right and match the plan.
    for name, stated in (("framework-version", plan.version), ("cuda", plan.cuda), ("python", plan.python)):
        if (label := labels.get(f"{LABEL}.{name}", "")) != stated:
            yield Difference("tags", name, label or "nothing", f"{stated} in {variant(plan)}", _REBUILD)


def _is_version(fact: str, label: str) -> bool:
    """Whether a version equals a label, or is more exact: 3.11.2 for 3.11, 2.6.0+cpu for 2.6.0."""
    return bool(label) and re.match(re.escape(label) + r"(?!\d)", fact) is not None


def mark_unproven(client: docker.DockerClient, record: BuildRecord, built: str, lacking: str) -> str:
    """Make a copy of an image with labels that say what it lacks; returns its id.

    The copy keeps a local tag, so that a second push finds it: every label changes the image id.

    Args:
        client: the engine.
        record: of the image, which stays as it is.
        built: when the image was built, ISO 8601.
        lacking: what it lacks.
    """
    import io

    from docker.errors import ImageNotFound

    name = f"trainwright/{record.plan.framework}:{record.image_id[7:19]}-unproven-push"
    labels = {UNPROVEN_LABEL: lacking, BUILT_LABEL: built}
    try:
        known = client.images.get(name)
        if labels.items() <= known.labels.items():
            return str(known.id)
    except ImageNotFound:
        pass
    # The engine's own builder takes a bare image id, which BuildKit does not; labels add no layer.
    dockerfile = io.BytesIO(f"FROM {record.image_id}\n".encode())
    made, _ = client.images.build(fileobj=dockerfile, labels=labels, tag=name, rm=True, forcerm=True)
    return str(made.id)
