"""Reports as pages of HTML, each one file: style and script are inside, and nothing is loaded."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from trainwright import __version__
from trainwright.catalog.listing import CURRENT, by_framework, cuda_tags
from trainwright.core.layout import change, size
from trainwright.core.text import printable
from trainwright.report.documents import CatalogDocument, ReportDocument
from trainwright.report.timing import Timing, clock, intent, timing_of
from trainwright.report.vulnerabilities import said, scanned
from trainwright.report.weights import NARROW, WIDE, colours, maps

_HERE = Path(__file__).parent
_SHOWN = 0.005  # of the time of a build: a shorter stage gets no row
_SLOWEST = 8


def image_page(report: ReportDocument) -> str:
    """The page of an image. Names in it come from packages and files of other people, and are escaped."""
    timing = timing_of(report.timeline) if report.timeline is not None else None
    lanes = timing.lanes if timing else ()
    long = [lane for lane in lanes if timing and sum(step.seconds for step in lane.steps) >= _SHOWN * timing.seconds]
    steps = sorted((step for lane in lanes for step in lane.steps), key=lambda step: -step.seconds)
    return render(
        "image.html.j2",
        report=report,
        timing=timing,
        lanes=long,
        hidden=[lane for lane in lanes if lane not in long],
        slowest=steps[:_SLOWEST],
        maps=maps(report),
        colours=colours(report),
        WIDE=WIDE,
        NARROW=NARROW,
    )


def catalog_page(report: CatalogDocument) -> str:
    """The page of a catalog."""
    return render("catalog.html.j2", report=report, groups=by_framework(report.lines), cudas=cuda_tags, CURRENT=CURRENT)


def percent(part: float, whole: float) -> str:
    """A share for CSS."""
    return f"{100 * part / whole if whole else 0:.3f}%"


def load_path(timing: Timing) -> str:
    """How many steps run at a time, as the outline of an area 1000 wide and 40 high."""
    path, height = "M0 40", 40.0
    for moment, count in timing.load:
        x = 1000 * moment / timing.seconds
        path += f"L{x:.1f} {height:.1f}"
        height = 40 - 38 * count / timing.most
        path += f"L{x:.1f} {height:.1f}"
    return f"{path}L1000 40Z"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Hidden characters, such as those that turn text around, are shown as what they are.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    style, script = ((_HERE / name).read_text() for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    made.globals |= {
        **{
            "bytes": size,
            "change": change,
            "said": said,
            "scanned": scanned,
            "clock": clock,
            "intent": intent,
            "percent": percent,
            "load_path": load_path,
        },
        **{"style": Markup(style), "script": Markup(script)},  # noqa: S704 - files of ours
        "script_hash": f"sha256-{digest}",
        "generator": __version__,
    }
    return made


def render(template: str, **values: Any) -> str:
    """A page.

    Args:
        template: a file of this folder.
        values: all that it shows.

    Raises:
        jinja2.TemplateError: it is broken, or lacks a value.
    """
    return _environment().get_template(template).render(**values)
