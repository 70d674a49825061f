"""``verify``: which signatures of an image are valid."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import JsonFlag, SiteFlag, emit, verb
from trainwright.cli.output import Ended, say
from trainwright.core.errors import RequestError
from trainwright.core.records import Field

if TYPE_CHECKING:
    from trainwright.signing.verify import VerifyDocument


class VerifyFlags(SiteFlag, JsonFlag):
    """The flags of ``verify``: which image, whose signatures."""

    heading: ClassVar[str] = "What is verified"
    bare: ClassVar[str] = "image"
    examples: ClassVar[tuple[str, ...]] = (
        "verify 123456789012.dkr.ecr.us-west-2.amazonaws.com/training@sha256:… --key cosign.pub",
        "verify IMAGE@DIGEST --key awskms:///alias/trainwright",
        "verify IMAGE@DIGEST --json",
    )

    image: str = Field(
        default="", description="the address of the image in Amazon ECR, by digest", metavar="IMAGE@DIGEST"
    )
    keys: tuple[str, ...] = Field(
        default=(),
        alias="key",
        description="a public key or a certificate of an authority (PEM), or awskms:///KEY (may be repeated; default: "
        "those of the site)",
    )


@verb
def verify(flags: VerifyFlags) -> None:
    """Verify the signatures of an image in Amazon ECR.

    Those of cosign, Notation and AWS Signer are read. The exit code is 1 if none is valid.
    """
    from trainwright.push.promote import find_image
    from trainwright.signing.verify import SignatureGate
    from trainwright.site.site import load_site

    place, digest = find_image(flags.image, "verify")
    site = load_site(Path(flags.site) if flags.site else None)
    signing = site.signing.replace(trusted=flags.keys) if flags.keys else site.signing
    if not signing.required:
        raise RequestError(
            "--key is missing, and the site trusts no key",
            remedy="For example: --key cosign.pub   # or trusted in [signing] of trainwright.toml (docs/signing.md)",
        )
    found = SignatureGate(signing, site, say).verify(place, digest)
    emit(found, verify_text, as_json=flags.json_)
    if not found.valid:
        raise Ended(1)


def verify_text(document: VerifyDocument) -> str:
    """Each signature on a line, and what is signed."""
    from trainwright.signing.verify import row_text

    rows = [row_text(row) for row in document.signatures] or ["no signature"]
    if document.documents:
        rows.append(f"{len(document.documents)} documents of its proof are signed, too")
    return "\n".join([document.image, *rows])
