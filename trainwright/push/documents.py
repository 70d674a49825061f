"""The shape of what ``push --json`` prints."""

from __future__ import annotations

from typing import Literal

from trainwright.core.records import Document

TagKind = Literal["immutable", "own", "moving"]


class PushedTag(Document):
    """A tag after a push. ``kept``: it points where it pointed, and ``says`` why."""

    tag: str
    kind: TagKind
    state: Literal["made", "moved", "there already", "kept"]
    says: str


class PushedImage(Document):
    """An image in one registry.

    ``uri`` names it by digest. ``sent_bytes`` counts what was sent, before compression; ``layers_present`` is null
    where the whole image was there. ``sbom_digest`` is the manifest of the attached bill of materials.
    """

    image: str
    image_id: str
    plan: str
    uri: str
    digest: str
    account: str
    region: str
    repository: str
    proven: bool
    cuda: str
    entry_point: str | None
    tags: tuple[PushedTag, ...]
    sent_bytes: int
    layers_sent: int
    layers_present: int | None
    seconds: float
    sbom: str
    sbom_digest: str | None
    record: str


class PushDocument(Document):
    """``push --json``: a row per image and region."""

    schema: Literal["trainwright/push/1"]
    images: tuple[PushedImage, ...]
    notices: tuple[str, ...]
