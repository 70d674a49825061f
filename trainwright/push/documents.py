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


class Replica(Document):
    """A copy that ECR made in another region or account. ``uri`` names it by digest."""

    account: str
    region: str
    uri: str


class SociRow(Document):
    """The SOCI index of an image in a registry.

    ``index`` is the digest that tags point to, ``image`` that of the image in it, ``pushed_image`` that of the image as
    it was pushed. ``layers`` have a ztoc; all of these have ``ztoc_bytes``. ``made``: by this push.
    """

    index: str
    image: str
    pushed_image: str
    layers: int
    ztoc_bytes: int
    made: bool
    seconds: float


class PushedImage(Document):
    """An image in one registry.

    ``uri`` names it by digest. ``sent_bytes`` counts what was sent, before compression; ``layers_present`` is null
    where the whole image was there. ``proof`` has the digest of every document attached to the image, by its name;
    ``sbom_digest`` is that of the bill of materials. ``replicas`` are the copies that were waited for. With ``soci``,
    ``uri`` and ``digest`` are of the index, and ``proof`` is attached to the image in it.
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
    sbom_digest: str
    proof: dict[str, str]
    record: str
    replicas: tuple[Replica, ...] = ()
    soci: SociRow | None = None


class PushDocument(Document):
    """``push --json``: a row per image and region."""

    schema: Literal["trainwright/push/1"]
    images: tuple[PushedImage, ...]
    notices: tuple[str, ...]


class AheadImage(Document):
    """What a push would do with an image in one registry. ``exists``: the repository; ``there``: the whole image."""

    image: str
    image_id: str
    plan: str
    account: str
    region: str
    repository: str
    exists: bool
    there: bool
    size_bytes: int
    tags: tuple[PushedTag, ...]


class AheadDocument(Document):
    """``push --dry-run --json``: a row per image and region."""

    schema: Literal["trainwright/push-ahead/1"]
    images: tuple[AheadImage, ...]


class PromotedImage(Document):
    """An image in a repository that it was copied to. ``proof`` counts the documents that came with it."""

    uri: str
    account: str
    region: str
    repository: str
    tags: tuple[PushedTag, ...]
    sent_bytes: int
    blobs_sent: int
    blobs_present: int
    proof: int
    seconds: float


class PromoteDocument(Document):
    """``promote --json``: a row per target."""

    schema: Literal["trainwright/promote/1"]
    source: str
    plan: str
    promoted: tuple[PromotedImage, ...]
