"""``smoke``: runs the image tests inside an image that was built here."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trainwright.cli.flags import CatalogFlag, JsonFlag, SiteFlag, emit, verb
from trainwright.cli.output import say
from trainwright.core.errors import RequestError
from trainwright.core.layout import table
from trainwright.core.paths import use_catalog
from trainwright.core.records import Field

if TYPE_CHECKING:
    from trainwright.pipeline.take_results import TakenDocument
    from trainwright.prove.smoke import SmokeDocument
    from trainwright.push.push import Sign
    from trainwright.site.site import Site


class SmokeFlags(CatalogFlag, SiteFlag, JsonFlag):
    """The flags of ``smoke``."""

    bare: ClassVar[str] = "image"
    examples: ClassVar[tuple[str, ...]] = (
        "smoke",
        "smoke --image trainwright/pytorch:2.6.0-cu124-py311-debian12",
        "smoke --verbose",
        "smoke --select nccl --junit smoke.xml",
        "smoke --image IMAGE@DIGEST --attach",
        "smoke --image IMAGE@DIGEST --import gpu-smoke.json",
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
    attach: bool = Field(
        default=False,
        description="pull the image in Amazon ECR that --image names by digest, test it by the build record that is "
        "attached to it, and attach the result",
        heading="Images in a registry",
    )
    imports: tuple[str, ...] = Field(
        default=(),
        alias="import",
        description="run nothing: attach what a job elsewhere has found to the image in Amazon ECR that --image names "
        "by digest; a file, and for an image without a build record the folder of its builder's results (with "
        "--attach, that folder alone)",
        metavar="PATH",
        heading="Images in a registry",
    )
    verbose: bool = Field(default=False, description="a line for each check, passed ones included", heading="Output")


@verb
def smoke(flags: SmokeFlags) -> None:
    """Run the tests of every component inside an image.

    The container contract of SageMaker is tested as well. A passed run is the proof that push asks for. Shown are the
    totals and the reasons of skipped tests, with --verbose all tests; what fails is named in any case.
    """
    from trainwright.build.smoke import smoke_image
    from trainwright.verbs.request import image_in_hand

    use_catalog(flags.catalog)
    if flags.imports and not flags.attach:
        _take(flags)
        return
    junit = Path(flags.junit) if flags.junit else None
    if flags.attach:
        document = _attach(flags, junit)
    else:
        document = smoke_image(flags.image or image_in_hand(), select=flags.select, say=say, junit=junit)
    emit(document, partial(smoke_text, every=flags.verbose), as_json=flags.json_)


def _attach(flags: SmokeFlags, junit: Path | None) -> SmokeDocument:
    """Test an image by its digest, and attach the result."""
    from trainwright.catalog.catalog import open_catalog
    from trainwright.pipeline.smoke_by_digest import smoke_by_digest

    if flags.select:
        raise RequestError("--attach: a part of the tests (--select) proves nothing", remedy="Leave --select out.")
    if len(flags.imports) > 1 or any(not Path(path).is_dir() for path in flags.imports):
        raise RequestError(
            "--attach --import: the folder of the builder's results is needed, and nothing else",
            remedy="./invoke build --stay names it.",
        )
    folder = Path(flags.imports[0]) if flags.imports else None
    site, sign = _registry(flags)
    return smoke_by_digest(flags.image, site, folder, open_catalog(), sign=sign, junit=junit, say=say)


def _registry(flags: SmokeFlags) -> tuple[Site, Sign | None]:
    """The site, and what signs there in the region of the image."""
    from trainwright.push.promote import find_image
    from trainwright.signing.sign import signer
    from trainwright.site.site import load_site

    site = load_site(Path(flags.site) if flags.site else None)
    place, _ = find_image(flags.image, "smoke")
    return site, signer(site.signing.key, site, place.region) if site.signing.key else None


def _take(flags: SmokeFlags) -> None:
    """Attach the results of jobs."""
    from trainwright.catalog.catalog import open_catalog
    from trainwright.pipeline.take_results import take_results

    if flags.select or flags.junit:
        raise RequestError(
            "--select and --junit are about tests that run here, and --import runs none",
            remedy="./invoke smoke --image ADDRESS@DIGEST --import FILE",
        )
    site, sign = _registry(flags)
    document = take_results(flags.image, flags.imports, site, open_catalog(), sign=sign, say=say)
    emit(document, taken_text, as_json=flags.json_)


def taken_text(document: TakenDocument) -> str:
    """What the job has found, and what is attached now."""
    lines = [f"image   {document.image}", *(f"passed  {line}" for line in document.passed)]
    lines += [f"proof   {', '.join(document.attached)} attached"]
    return "\n".join(lines + ([f"tag     {document.tag}"] if document.tag else []))


def smoke_text(document: SmokeDocument, *, every: bool = False) -> str:
    """How many checks ended how, and why some were skipped, or with ``every`` a line for each."""
    counts = f"{document.passed} passed, {document.failed} failed, {document.skipped} skipped"
    end = f"{document.image}: {counts} in {document.seconds:.0f} s"
    if every:
        rows = [(row.outcome, row.component, row.check, f"{row.seconds:.1f} s", row.reason) for row in document.rows]
        return f"{table(rows)}\n\n{end}"
    reasons = Counter(row.reason for row in document.rows if row.outcome == "skipped")
    return "\n".join([*(f"skipped  {count}  {reason}" for reason, count in reasons.most_common()), end])
