"""``smoke``: runs the image tests inside an image that was built here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import CatalogFlag, JsonFlag, emit, verb
from trainwright.cli.program import say, use_catalog
from trainwright.core.layout import table
from trainwright.core.records import Field

if TYPE_CHECKING:
    from trainwright.prove.smoke import SmokeDocument


class SmokeFlags(CatalogFlag, JsonFlag):
    """The flags of ``smoke``."""

    bare: ClassVar[str] = "image"
    examples: ClassVar[tuple[str, ...]] = (
        "smoke",
        "smoke --image trainwright/pytorch:2.6.0-cu124-py311-debian12",
        "smoke --select nccl --junit smoke.xml",
    )

    image: str = Field(
        default="",
        description="tag or id of an image built here (default: the one of trainwright.toml, or the newest)",
        values="built",
    )
    select: str | None = Field(default=None, description="only checks whose name contains this word", metavar="WORD")
    junit: str | None = Field(
        default=None,
        description="write the checks to this file, as a JUnit report for build services",
        metavar="FILE",
    )


@verb
def smoke(flags: SmokeFlags) -> None:
    """Run the tests of every component inside an image.

    The container contract of SageMaker is tested as well. A passed run is the proof that push asks for.
    """
    from trainwright.build.smoke import smoke_image
    from trainwright.verbs.request import image_in_hand

    use_catalog(flags.catalog)
    junit = Path(flags.junit) if flags.junit else None
    emit(
        smoke_image(flags.image or image_in_hand(), select=flags.select, say=say, junit=junit),
        smoke_text,
        as_json=flags.json_,
    )


def smoke_text(document: SmokeDocument) -> str:
    """A line per check, and how many ended how."""
    rows = [(row.outcome, row.component, row.check, f"{row.seconds:.1f} s", row.reason) for row in document.rows]
    counts = f"{document.passed} passed, {document.failed} failed, {document.skipped} skipped"
    return f"{table(rows)}\n\n{document.image}: {counts} in {document.seconds:.0f} s"
