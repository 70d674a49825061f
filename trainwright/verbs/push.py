"""``push``: pushes proven images to Amazon ECR."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import JsonFlag, SiteFlag, emit, verb
from trainwright.cli.output import say
from trainwright.core.layout import size, table
from trainwright.core.records import Field
from trainwright.push.options import PlaceWords, PushOptions
from trainwright.verbs.scan import ScanGateWords, ScanWords

if TYPE_CHECKING:
    from trainwright.push.documents import AheadDocument, AheadImage, PushDocument, PushedImage, PushedTag, SociRow


class PushFlags(PlaceWords, PushOptions, ScanWords, ScanGateWords, SiteFlag, JsonFlag):
    """The flags of ``push``: what goes where, and how."""

    heading: ClassVar[str] = "What goes where"
    bare: ClassVar[str] = "images"
    examples: ClassVar[tuple[str, ...]] = (
        "push --repository training",
        "push --image trainwright/pytorch:2.6.0-cu124-py311-debian12 --repository training --create",
        "push --repository training --region eu-west-1 --region us-east-1",
    )

    images: tuple[str, ...] = Field(
        default=(),
        alias="image",
        description="tag or id of an image built here (may be repeated: shared layers are sent once; "
        "default: the one of trainwright.toml)",
        values="built",
    )
    dry_run: bool = Field(
        default=False,
        description="ask the gate and the registries, say what would be sent and which tags would move, and do nothing",
        heading="How to push",
    )


@verb
def push(flags: PushFlags) -> None:
    """Push images that passed their tests to Amazon ECR.

    The immutable tag is first; the moving tags follow once its digest is verified.
    """
    from trainwright.plan.project import read_project
    from trainwright.push.push import push_images
    from trainwright.scan.gate import ScanGate
    from trainwright.signing.sign import signer
    from trainwright.site.site import load_site
    from trainwright.verbs.request import image_in_hand, soci_in_hand, target_in_hand

    site = load_site(Path(flags.site) if flags.site else None)
    target = target_in_hand(flags, site)
    flags = flags.replace(soci=flags.soci or soci_in_hand())
    # Never the newest: what leaves this machine has been named.
    images = flags.images or ((image_in_hand(),) if read_project(Path.cwd()) else ())
    if flags.dry_run:
        from trainwright.push.ahead import look_ahead

        emit(look_ahead(images, target, site, flags, say=say), ahead_text, as_json=flags.json_)
        return
    gate = ScanGate(flags.scan_fail_on, flags.database, flags.allow, site, say=say)
    sign = signer(site.signing.key, site, target.regions[0]) if site.signing.key else None
    document = push_images(images, target, site, flags, say=say, scan=gate.of_push, sign=sign)
    emit(document, push_text, as_json=flags.json_)


def push_text(document: PushDocument) -> str:
    """What is where under which tags, and the two lines that use it."""
    last = document.images[-1]
    use = "\n".join(["use it", *usage(last.uri, last.cuda, last.entry_point)])
    return "\n\n".join([*map(_image_text, document.images), use])


def ahead_text(document: AheadDocument) -> str:
    """What would go where, under which tags."""
    return "\n\n".join(map(_ahead_text, document.images))


def _ahead_text(row: AheadImage) -> str:
    sent = "there already" if row.there else f"{size(row.size_bytes)} at most would be sent"
    made = "" if row.exists else ", which would be created"
    lines = [
        f"image   {row.image}  {sent}",
        f"to      {row.account} {row.region} {row.repository}{made}",
        *_tag_lines(row.tags),
    ]
    return "\n".join(lines)


def _tag_lines(tags: Sequence[PushedTag]) -> list[str]:
    rows = [(one.tag, one.state + (f": {one.says}" if one.says else "")) for one in tags]
    return [f"tag     {line}" for line in table(rows).splitlines()]


def _image_text(row: PushedImage) -> str:
    sent = "there already" if row.layers_present is None else f"{row.layers_sent} layers sent"
    if row.layers_sent:
        sent += f" ({size(row.sent_bytes)})"
    if row.layers_present:
        sent += f", {row.layers_present} there already"
    lines = [
        f"image   {row.image}  {sent} in {row.seconds:.0f} s",
        *_tag_lines(row.tags),
        f"sbom    {row.sbom}",
        f"proof   {', '.join(row.proof)} attached",
        *([f"soci    {_soci_text(row.soci)}"] if row.soci else []),
        f"uri     {row.uri}",
        *(f"copy    {one.uri}" for one in row.replicas),
    ]
    return "\n".join(lines)


def _soci_text(soci: SociRow) -> str:
    made = f"made in {soci.seconds:.0f} s" if soci.made else "there already"
    return f"{soci.layers} layer{'s' * (soci.layers > 1)} indexed ({size(soci.ztoc_bytes)}), {made}"


def usage(uri: str, cuda: str, entry_point: str | None) -> list[str]:
    """The two lines of Python that train with an image."""
    kind = "ml.m5.xlarge" if cuda == "cpu" else "ml.g5.xlarge"
    script = "" if entry_point else ', entry_point="train.py"'
    arguments = f'image_uri="{uri}", role=ROLE, instance_count=1, instance_type="{kind}"{script}'
    return ["from sagemaker.estimator import Estimator", f'Estimator({arguments}).fit({{"training": "s3://…"}})']
