"""``report``: what there is to see of an image, or of the catalog, as one page."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from trainwright.cli.flags import CatalogFlag, JsonFlag, verb
from trainwright.cli.output import answer, artifact, json_text, say
from trainwright.core.errors import RequestError
from trainwright.core.paths import use_catalog
from trainwright.core.records import Field

FORMATS = ("html", "markdown", "json")
_PAGE = "report.html"


class ReportFlags(CatalogFlag, JsonFlag):
    """The flags of ``report``."""

    bare: ClassVar[str] = "image"
    heading: ClassVar[str] = "What to show"
    examples: ClassVar[tuple[str, ...]] = (
        "report",
        "report trainwright/pytorch:2.6.0-cu124-py311-debian12 --against 33b06dfd4347 --output report.html",
        "report --lines --format markdown",
        "report --run 20261123-215038 --output run.html",
    )

    image: str = Field(
        default="",
        description="tag or id of an image built here (default: the one of trainwright.toml, or the newest)",
        values="built",
    )
    against: str | None = Field(
        default=None,
        description="compare it with another image, a request, an image line or a lock; with --lines, with an "
        "earlier report --lines --format json",
        values="built",
    )
    files: bool = Field(default=False, description="with --against: compare every file; reads both from the engine")
    lines: bool = Field(default=False, description="all image lines instead of an image")
    run: str | None = Field(
        default=None, description="a run of build --images instead of an image, by its name or its folder"
    )
    format: str = Field(default="html", description="html, markdown or json", heading="Output", values=FORMATS)
    output: str | None = Field(
        default=None,
        description=f"the file to write (default: {_PAGE} for html, otherwise standard output)",
        heading="Output",
        metavar="FILE",
    )


@verb
def report(flags: ReportFlags) -> None:
    """Show an image on one page: contents, size, build, tests, packages.

    The page is one file that needs no network. --against compares it with another image, --lines shows all lines, --run
    what came of a run over many.
    """
    use_catalog(flags.catalog)
    form = "json" if flags.json_ else flags.format
    if form not in FORMATS:
        raise RequestError(f"--format {form}: unknown", remedy=f"One of {', '.join(FORMATS)}.")
    output = flags.output or (_PAGE if form == "html" else None)
    if output:
        _check(output, form)
    if flags.run is not None:
        text = _run(flags, form, Path(output or "report").absolute().parent)
    else:
        text = _catalog(flags, form) if flags.lines else _image(flags, form)
    if output is None:
        artifact(text)
        return
    from trainwright.core.owned import write_atomically

    write_atomically(Path(output).absolute(), text)
    answer(str(Path(output).absolute()))


def _check(output: str, form: str) -> None:
    """Refuse to replace a file that is not a report."""
    from trainwright.core.owned import check_replaceable
    from trainwright.report.markdown import MARK

    marks = {"html": '<meta name="generator" content="Trainwright', "markdown": MARK, "json": '"schema": "trainwright/'}
    check_replaceable(Path(output).absolute(), f"--output {output}", mark=marks[form])


def _image(flags: ReportFlags, form: str) -> str:
    from trainwright.report.image import report_on
    from trainwright.verbs.request import image_in_hand

    if flags.files and not flags.against:
        raise RequestError("--files compares, and needs --against", remedy="--against IMAGE --files")
    document = report_on(flags.image or image_in_hand(), flags.against, files=flags.files, say=say)
    if form == "markdown":
        from trainwright.report.markdown import image_markdown

        return image_markdown(document)
    if form == "html":
        from trainwright.report.page import image_page

        return image_page(document)
    return json_text(document.as_json()) + "\n"


def _run(flags: ReportFlags, form: str, beside: Path) -> str:
    """The report of a run; ``beside`` is the folder that it goes to."""
    from trainwright.fleet.report import run_markdown, run_page, run_report
    from trainwright.fleet.run_folder import find

    if flags.image or flags.files or flags.lines or flags.against:
        raise RequestError("--run is about all lines of a run, and goes with no image, --against, --files or --lines")
    document = run_report(find(flags.run or "", "report --run"), beside)
    if form == "markdown":
        return run_markdown(document)
    return run_page(document) if form == "html" else json_text(document.as_json()) + "\n"


def _catalog(flags: ReportFlags, form: str) -> str:
    from trainwright.catalog.catalog import open_catalog
    from trainwright.report.catalog import catalog_report

    if flags.image or flags.files:
        raise RequestError("--lines is about all image lines, not about one image", remedy="./invoke report --lines")
    document = catalog_report(open_catalog(), Path(flags.against) if flags.against else None)
    if form == "markdown":
        from trainwright.report.markdown import catalog_markdown

        return catalog_markdown(document)
    if form == "html":
        from trainwright.report.page import catalog_page

        return catalog_page(document)
    return json_text(document.as_json()) + "\n"
