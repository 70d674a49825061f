"""``promote``: copies a proven image with its proof to other accounts, regions and repositories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import JsonFlag, SiteFlag, emit, verb
from trainwright.cli.output import say
from trainwright.core.layout import size, table
from trainwright.core.records import Field
from trainwright.push.options import PromoteOptions
from trainwright.verbs.scan import ScanGateWords, ScanWords

if TYPE_CHECKING:
    from trainwright.push.documents import PromotedImage, PromoteDocument


class PromoteFlags(PromoteOptions, ScanWords, ScanGateWords, SiteFlag, JsonFlag):
    """The flags of ``promote``: which image goes where."""

    heading: ClassVar[str] = "What goes where"
    bare: ClassVar[str] = "image"
    examples: ClassVar[tuple[str, ...]] = (
        "promote 123456789012.dkr.ecr.us-west-2.amazonaws.com/dev@sha256:… --to 210987654321/us-west-2/prod",
        "promote IMAGE@DIGEST --to 210987654321/us-west-2/prod --create --json",
        "promote IMAGE@DIGEST --to 210987654321/us-west-2/prod --to 210987654321/eu-west-1/prod --tag release-2.6",
    )

    image: str = Field(
        default="", description="the address of the image in Amazon ECR, by digest", metavar="IMAGE@DIGEST"
    )
    to: tuple[str, ...] = Field(
        default=(),
        description="where it goes: ACCOUNT/REGION/REPOSITORY, or a whole address (may be repeated)",
        metavar="PLACE",
    )


@verb
def promote(flags: PromoteFlags) -> None:
    """Copy a proven image with its proof to other accounts and regions.

    From registry to registry, without an engine. The proof that push attached to the image decides whether it may.
    """
    from trainwright.push.promote import find_image, find_places, promote_image
    from trainwright.scan.gate import ScanGate
    from trainwright.scan.subject import find
    from trainwright.signing.verify import SignatureGate, covered_documents
    from trainwright.site.site import load_site

    place, digest = find_image(flags.image)
    places = find_places(flags.to)
    site = load_site(Path(flags.site) if flags.site else None)
    gate = ScanGate(flags.scan_fail_on, flags.database, flags.allow, site, say=say)
    if gate.level is not None:
        gate.check(find(flags.image, site, say=say))
    among = covered_documents(SignatureGate(site.signing, site, say).check(place, digest))
    document = promote_image(flags.image, places, site, flags, say=say, among=among)
    emit(document, promote_text, as_json=flags.json_)


def promote_text(document: PromoteDocument) -> str:
    """Where the image is now."""
    return "\n\n".join(map(_target_text, document.promoted))


def _target_text(row: PromotedImage) -> str:
    sent = f"{row.blobs_sent} layers and documents sent ({size(row.sent_bytes)})" if row.blobs_sent else "there already"
    tags = table([(one.tag, one.state + (f": {one.says}" if one.says else "")) for one in row.tags])
    return "\n".join(
        [
            f"uri     {row.uri}",
            f"image   {sent}, {row.blobs_present} there already, in {row.seconds:.0f} s",
            f"proof   {row.proof} documents",
            *(f"tag     {line}" for line in tags.splitlines()),
        ]
    )
