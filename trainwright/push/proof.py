"""The gate: only what was proven leaves.

The record of an image has to hold a passed smoke run of this very image and plan, and what labels and tags will say of
the image has to be what the probe found in it. The first can be overridden (``--unproven``), the second cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trainwright.core.errors import ProofFailed
from trainwright.plan.plan import LABEL, variant
from trainwright.prove import probe as probing
from trainwright.prove.probe import Difference

if TYPE_CHECKING:
    import docker

    from trainwright.build.store import BuildRecord

UNPROVEN_LABEL = f"{LABEL}.unproven-push"
BUILT_LABEL = f"{LABEL}.built"
# os-release calls some distributions by another name than images do.
_DISTRIBUTIONS = {"amzn": "amazonlinux"}
_REBUILD = "This is the record of another image, or an edited one: ./invoke build makes the image and its record anew."


@dataclass(frozen=True)
class Proof:
    """Whether an image passed its smoke tests; ``lacking`` says what is missing where it did not."""

    lacking: str = ""

    @property
    def proven(self) -> bool:
        """Whether nothing is missing."""
        return not self.lacking


def gate(record: BuildRecord, image: str, *, unproven: bool) -> Proof:
    """Let an image pass, or not.

    Args:
        record: of the image.
        image: what the user called it.
        unproven: let it pass without smoke tests, too.

    Raises:
        ProofFailed: it is not proven, or labels and tags would say of it what is not in it.
    """
    different = [*probing.differences(record.plan.as_json(), record.probe), *told_otherwise(record)]
    if different:
        raise ProofFailed(
            "\n".join([f"{image}: its labels and tags would say what is not in it", *(f"  {d}" for d in different)]),
            remedy=_REBUILD,
            differences=[asdict(d) for d in different],
        )
    lacking = smoke_lacks(record)
    if lacking and not unproven:
        raise ProofFailed(
            f"{image}: {lacking}; only what passed its smoke tests is pushed",
            remedy=f"./invoke smoke --image {image}   # or push it with --unproven, which labels it so",
            image=image,
        )
    return Proof(lacking)


def smoke_lacks(record: BuildRecord) -> str:
    """Why the smoke run in a record is no proof; empty where it is one."""
    smoke = record.smoke
    if smoke is None:
        return "no smoke tests were run"
    if smoke.get("image_id") != record.image_id or smoke.get("plan") != record.plan.id:
        return "its smoke tests were run on another image"
    if smoke.get("failed") != 0:
        return f"{smoke.get('failed')} smoke tests failed"
    return "" if smoke.get("passed") else "its smoke run holds no passed test"


def told_otherwise(record: BuildRecord) -> Iterator[Difference]:
    """Where the words of labels and tags are not the facts that the probe found in the image."""
    plan, found = record.plan, record.probe
    facts: Mapping[str, Mapping[str, Any]] = found.get("facts", {})
    labels: Mapping[str, str] = found.get("image", {}).get("labels", {})
    seen = found.get("image", {}).get("id", "")
    if seen != record.image_id:
        yield Difference("image", "id", record.image_id, seen or "nothing", _REBUILD)
    for component in plan.components:
        told = labels.get(f"{LABEL}.component.{component.name}", "").partition(" (")[0]
        fact = facts.get(component.name, {}).get("version")
        if fact is not None and not _is_version(str(fact), told):
            yield Difference("labels", f"component.{component.name}", str(fact), told or "nothing", _REBUILD)
    main = facts.get(plan.framework) or {}
    # A line goes by the CUDA version of its framework or of its image, and these may differ by a minor one.
    versions = [str(one) for one in (main.get("cuda"), facts.get("cuda", {}).get("version")) if one]
    named = labels.get(f"{LABEL}.cuda", "")
    cuda = next((one for one in versions if _is_version(one, named)), " and ".join(versions))
    rows = [
        ("framework-version", main.get("version")),
        ("python", found.get("interpreter", {}).get("version")),
        ("cuda", cuda),
        ("base", _distribution(found.get("os", {}))),
    ]
    for name, fact in rows:
        told = labels.get(f"{LABEL}.{name}", "")
        if fact and not _is_version(str(fact), told):
            yield Difference("labels", name, str(fact), told or "nothing", _REBUILD)
    # The tags are made of the plan: they are right where the labels are, and the labels are the plan's.
    for name, told in (("framework-version", plan.version), ("cuda", plan.cuda), ("python", plan.python)):
        if (label := labels.get(f"{LABEL}.{name}", "")) != told:
            yield Difference("tags", name, label or "nothing", f"{told} in {variant(plan)}", _REBUILD)


def _is_version(fact: str, told: str) -> bool:
    """Whether a version is what was told of it, or more exact: 3.11.2 for 3.11, 2.6.0+cpu for 2.6.0."""
    return bool(told) and re.match(re.escape(told) + r"(?!\d)", fact) is not None


def _distribution(release: Mapping[str, str]) -> str:
    """The base as labels spell it, from ``/etc/os-release``; empty where that does not say."""
    name, version = release.get("ID", ""), release.get("VERSION_ID", "")
    return f"{_DISTRIBUTIONS.get(name, name)}-{version}" if name and version else ""


def mark_unproven(client: docker.DockerClient, record: BuildRecord, built: str, lacking: str) -> str:
    """An image that is the given one with labels that say what it lacks; returns its id.

    It keeps a tag here, so that a second push finds the same image: a label more is a new image id.

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
