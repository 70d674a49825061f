"""``sign``: signs an image in Amazon ECR, with the documents of its proof."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from trainwright.cli.flags import JsonFlag, SiteFlag, emit, verb
from trainwright.core.errors import RequestError
from trainwright.core.records import Document, Field


class SignFlags(SiteFlag, JsonFlag):
    """The flags of ``sign``: which image, with which key."""

    heading: ClassVar[str] = "What is signed"
    bare: ClassVar[str] = "image"
    examples: ClassVar[tuple[str, ...]] = (
        "sign 123456789012.dkr.ecr.us-west-2.amazonaws.com/training@sha256:… --key awskms:///alias/trainwright",
        "sign IMAGE@DIGEST --key cosign.key",
        "sign IMAGE@DIGEST --key arn:aws:signer:us-west-2:123456789012:/signing-profiles/trainwright",
    )

    image: str = Field(
        default="", description="the address of the image in Amazon ECR, by digest", metavar="IMAGE@DIGEST"
    )
    key: str | None = Field(
        default=None,
        description="a private key (PEM, or cosign's), awskms:///KEY, or the ARN of a signing profile of AWS Signer "
        "(default: the site's)",
    )


class SignDocument(Document):
    """``sign --json``. ``signature`` is the digest of its manifest; ``documents`` those of the documents it names."""

    schema: Literal["trainwright/sign/1"]
    image: str
    signature: str
    documents: tuple[str, ...]


@verb
def sign(flags: SignFlags) -> None:
    """Sign an image in Amazon ECR, and what is attached to it.

    `push` does this by itself if the site has a key; `verify` says which signatures are valid.
    """
    from trainwright.push.attest import proof_documents
    from trainwright.push.ecr import Ecr
    from trainwright.push.promote import find_image
    from trainwright.push.registry import Registry
    from trainwright.signing.sign import signer
    from trainwright.signing.verify import image_there
    from trainwright.site.site import load_site

    place, digest = find_image(flags.image, "sign")
    site = load_site(Path(flags.site) if flags.site else None)
    key = flags.key or site.signing.key
    if not key:
        raise RequestError(
            "--key is missing, and the site names none",
            remedy="For example: --key awskms:///alias/trainwright   # or key in [signing] of trainwright.toml",
        )
    attach = signer(key, site, place.region)
    ecr = Ecr(place, site)
    registry = Registry(ecr, site)
    image = image_there(ecr, digest)
    # The proof is attached to the image that an index leads to.
    documents = proof_documents(ecr, registry.single(image).digest)
    made = attach(ecr, registry, image, documents)
    document = SignDocument(
        schema="trainwright/sign/1",
        image=place.digested(digest),
        signature=made,
        documents=() if key.startswith("arn:") else tuple(one for _, one in documents),
    )
    emit(document, sign_text, as_json=flags.json_)


def sign_text(document: SignDocument) -> str:
    """Where the signature is, and how it is verified."""
    return "\n".join(
        [
            f"image      {document.image}",
            f"signature  {document.signature}, with {len(document.documents)} documents of its proof",
            f"verify     ./invoke verify {document.image}",
        ]
    )
