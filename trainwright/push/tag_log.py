"""The log of a moving tag: what was decided about it, kept in its repository.

ECR sets a tag unconditionally, so two pushers who both looked first can still set it back. The log makes that visible
and repairable. It only grows: each decision is a document of its own, attached to one small manifest per tag, and no
one ever changes another's. Where the tag belongs follows from the set of decisions alone (:func:`standing`), so
whoever reads the whole log puts it in the same place.

A decision is ordered by its number, one more than the highest that its author saw (a Lamport clock: the clocks of
machines differ).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Literal

from msgspec import Meta

from trainwright.core.records import Field, MisfitError, Record, read_record
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.published import Published
from trainwright.push.registry import MANIFEST, Registry
from trainwright.push.tags import LENGTH, PREFIX, PROOF_PREFIX, order

KIND = "application/vnd.trainwright.tag-log.v1+json"
DECISION = "application/vnd.trainwright.tag-decision.v1+json"
NOTE = "io.trainwright.tag-decision"  # the annotation that has the decision
TAG = "io.trainwright.tag"  # the annotation that has the tag of a log


What = Literal["pushed", "found", "moved", "held", "released"]


class Decision(Record):
    """One decision about a tag.

    ``pushed`` moves the tag if that is forward; ``found`` is where it was set by something else; ``moved`` sets it
    anywhere; ``held`` keeps it, until ``released``.
    """

    what: What
    number: Annotated[int, Meta(ge=1)]
    at: datetime
    digest: str = Field(default="", description="of the image that the tag is for; empty if it stays where it is")
    image: Published | None = Field(default=None, description="what the labels of that image say")
    reason: str = ""


@dataclass(frozen=True)
class TagStanding:
    """Where a tag belongs. ``digest`` is empty if no decision says so; ``held`` is the decision that holds it."""

    digest: str = ""
    image: Published | None = None
    held: Decision | None = None


def hindrance(current: Published | None, new: Published) -> str:
    """Why a tag that points to one image may not move to another; empty if it may.

    Args:
        current: the image that the tag points to; ``None`` if it is not a single image.
        new: the pushed image.
    """
    if current is None or not current.plan:
        return "it points to an image that was not built by Trainwright"
    if current.framework != new.framework:
        return f"it points to an image with {current.framework}"
    if new.unproven and not current.unproven:
        return "it points to an image that passed its smoke tests, and this one did not"
    if current.unproven and not new.unproven:
        return ""
    if order(new.version, new.built) < order(current.version, current.built):
        return f"it points to a newer image: {current.version}, built {current.built:%Y-%m-%d %H:%M} UTC"
    return ""


def standing(decisions: Iterable[Decision]) -> TagStanding:
    """Where a tag belongs after these decisions, in whatever order they are given."""
    now = TagStanding()
    for one in sorted(decisions, key=_rank):
        if one.what == "released":
            now = TagStanding(now.digest, now.image)
        elif one.what != "pushed":
            held = one if one.what == "held" else now.held
            now = TagStanding(one.digest or now.digest, one.image if one.digest else now.image, held)
        elif not now.held and one.image and (not now.digest or not hindrance(now.image, one.image)):
            now = TagStanding(one.digest, one.image)
    return now


def places_before(decisions: Sequence[Decision]) -> list[str]:
    """The images that a tag had before it came to another one, the newest first."""
    places = [standing(decisions[: number + 1]).digest for number in range(len(decisions))]
    return [before for before, after in reversed([*pairwise(places)]) if before and before != after]


def held_text(now: TagStanding) -> str:
    """That a tag is held, since when and why; empty if it is not."""
    if now.held is None:
        return ""
    return f"held since {now.held.at:%Y-%m-%d %H:%M} UTC" + (f": {now.held.reason}" if now.held.reason else "")


def next_number(decisions: Iterable[Decision]) -> int:
    """The number of a new decision of somebody who has seen these."""
    return max((one.number for one in decisions), default=0) + 1


class TagLog:
    """The log of one tag of one repository. Every call raises ``RegistryRefused`` if the registry refuses."""

    def __init__(self, ecr: Ecr, registry: Registry, tag: str) -> None:
        self.tag = tag
        self.ecr, self.registry = ecr, registry
        self._anchor = _anchor(tag)
        self._written = False

    def read(self) -> list[Decision]:
        """All decisions, in their order; those that are not of this form are left out."""
        if not self._written and self.ecr.digest(history_tag(self.tag)) is None:
            return []
        self._written, found = True, []
        for one in self.ecr.referrers(self._anchor.digest, DECISION):
            try:
                found.append(read_record(Decision, json.loads(one.annotations.get(NOTE, ""))))
            except (ValueError, MisfitError):
                continue  # of a later version, or of somebody else
        return sorted(found, key=_rank)

    def write(
        self, seen: Sequence[Decision], what: What, digest: str, image: Published | None, reason: str = ""
    ) -> Decision:
        """Add a decision; returns it.

        Args:
            seen: the decisions that it follows.
            what: was decided.
            digest: of the image that the tag is for; empty if it stays where it is.
            image: what the labels of that image say.
            reason: for people.
        """
        at = datetime.now(UTC)
        made = Decision(what=what, number=next_number(seen), at=at, digest=digest, image=image, reason=reason)
        if not self._written:
            self.registry.store(self._anchor, history_tag(self.tag))
            self._written = True
        text = json.dumps(made.unusual(), sort_keys=True)
        name = f"{history_tag(self.tag)}.{made.number}.{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        self.registry.attach(self._anchor, b"{}", DECISION, {NOTE: text}, tag=name)
        return made


def history_tag(tag: str) -> str:
    """The tag of a tag's log; a long name is cut and gets a checksum."""
    name, room = f"{PREFIX}{tag}", LENGTH - len(".999999.") - 8
    return name if len(name) <= room else f"{name[: room - 9]}-{hashlib.sha256(tag.encode()).hexdigest()[:8]}"


def own_tag(tag: str) -> bool:
    """Whether a tag is not of an image but of what belongs to one: its proof, or the log of a tag."""
    return tag.startswith((PREFIX, PROOF_PREFIX))


def tag_of_log(log: ImageManifest) -> str:
    """The tag whose log this manifest begins; empty if it begins no log."""
    try:
        notes = json.loads(log.text).get("annotations") or {}
    except (ValueError, AttributeError):
        return ""
    tag = str(notes.get(TAG, ""))
    return tag if _anchor(tag).digest == log.digest else ""


def _rank(one: Decision) -> tuple[int, datetime, str, str]:
    return one.number, one.at, one.what, one.digest


def _anchor(tag: str) -> ImageManifest:
    """The manifest that the decisions about a tag are attached to; the same wherever it is made."""
    digest = f"sha256:{hashlib.sha256(b'{}').hexdigest()}"
    empty = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest, "size": 2}
    text = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": KIND,
            "config": empty,
            "layers": [empty],
            "annotations": {TAG: tag},
        },
        separators=(",", ":"),
    )
    return ImageManifest(f"sha256:{hashlib.sha256(text.encode()).hexdigest()}", text, MANIFEST)
