"""The documents of ``report`` and ``diff``."""

from __future__ import annotations

from typing import Literal

from trainwright.build.ledger import BuiltLayer, LedgerRow, Timeline
from trainwright.catalog.listing import LineRow
from trainwright.catalog.standing import Standing
from trainwright.core.records import Document, Field
from trainwright.prove.smoke import SmokeDocument
from trainwright.push.sbom import Ingredient
from trainwright.rehearse.documents import RehearsalDocument
from trainwright.scan.documents import ScanDocument


class ChangedName(Document):
    """Something that is not the same on both sides; the side that lacks it has an empty text."""

    part: str = Field(description="what it is a part of: components, Python packages, environment, ...")
    name: str
    before: str
    after: str

    @property
    def state(self) -> Literal["added", "removed", "changed"]:
        """Whether it came, went or is another."""
        return "added" if not self.before else "removed" if not self.after else "changed"


class Pull(Document):
    """What a machine that has BEFORE downloads of AFTER. Bytes are unpacked; a registry sends fewer."""

    layers: int
    bytes: int
    new_layers: int = Field(description="that BEFORE does not have: what containerd downloads")
    new_bytes: int
    above_layers: int = Field(description="from the first difference up: what Docker's own store downloads")
    above_bytes: int


class ChangedBytes(Document):
    """A component, or a shared stage, whose layers in the two images have other sizes; 0 where it is missing."""

    name: str
    before: int
    after: int


class Comparison(Document):
    """``diff --json``. ``compared``: how many names each part has on both sides together."""

    schema: Literal["trainwright/diff/1"]
    before: str
    after: str
    compared: dict[str, int]
    skipped: tuple[str, ...] = Field(description="parts that only one side has, such as the labels of an image")
    changes: tuple[ChangedName, ...]
    pull: Pull | None = Field(description="of AFTER where BEFORE is; null unless both are images")
    weights: tuple[ChangedBytes, ...] = Field(
        default=(), description="of images, unpacked bytes by component, the largest change first"
    )

    @property
    def parts(self) -> dict[str, list[ChangedName]]:
        """The changes by part, in their order."""
        found: dict[str, list[ChangedName]] = {}
        for change in self.changes:
            found.setdefault(change.part, []).append(change)
        return found


class FoundFact(Document):
    """An expectation of the plan, and what the probe found in the image."""

    component: str
    fact: str
    expected: str
    found: str
    fits: bool


class Part(Ingredient):
    """A package of the image, and the component that brought it, if one did."""

    component: str = ""


class ImageComponent(LedgerRow):
    """A component of the image, or a shared stage such as ``base``, which has no version."""

    version: str = ""
    provider: str = ""
    licence: str = ""


class ReportDocument(Document):
    """``report --format json``."""

    schema: Literal["trainwright/report/1"]
    image: str
    image_id: str
    tags: tuple[str, ...]
    plan: str
    framework: str
    version: str
    cuda: str
    python: str
    base: str
    built_at: str
    seconds: float
    size_bytes: int
    engine: str
    source_revision: str
    pushed: str | None
    proof: Standing
    notices: tuple[str, ...]
    components: tuple[ImageComponent, ...]
    layers: tuple[BuiltLayer, ...]
    timeline: Timeline | None
    facts: tuple[FoundFact, ...]
    differences: tuple[str, ...] = Field(description="between plan and image; of the whole probe, not of facts alone")
    smoke: SmokeDocument | None
    rehearsals: tuple[RehearsalDocument, ...] = Field(description="that are kept here, newest first")
    packages: tuple[Part, ...] = Field(description="the heaviest first")
    environment: dict[str, str]
    labels: dict[str, str]
    against: Comparison | None
    scan: ScanDocument | None = Field(default=None, description="the last scan of this image that was made here")


class CatalogLine(LineRow):
    """An image line."""

    download_bytes: int = Field(description="of its locked Python packages")
    default: bool = Field(description="the one that a request for its framework and CUDA gets")


class CatalogDocument(Document):
    """``report --lines --format json``."""

    schema: Literal["trainwright/catalog/1"]
    made_at: str
    lines: tuple[CatalogLine, ...]
    news: tuple[ChangedName, ...] = Field(description="since the document of --against")
    against: str = Field(default="", description="when that was made")
