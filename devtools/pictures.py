"""The pictures in README: a live build, and what an image weighs. Both are drawn from what a real build left behind.

``devtools/recorded/build.txt`` has the lines of BuildKit's log, each after the second at which it came;
``devtools/recorded/image.json`` what the image of that build weighs.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from rich.console import Console

from trainwright.core.layout import size
from trainwright.engine.build_display import rows, table_of
from trainwright.engine.buildkit_log import BuildProgress
from trainwright.report.treemap import Tile, Weight
from trainwright.report.weights import COLOURS, nested

RECORDED = Path(__file__).resolve().parent / "recorded"
PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
COLUMNS = 96
# rich's frame around a terminal, without the font that it would load.
_TERMINAL = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px; \
line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" \
height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""
_STYLE = """\
.ground{fill:#fafaf8}.ink{fill:#1d1f23}.soft{fill:#62676f}
.c0{fill:#d3d5d8}.c1{fill:#a9c1e0}.c2{fill:#b5d3bf}.c3{fill:#e6c9a4}.c4{fill:#cfbbdb}
.c5{fill:#a6d2d5}.c6{fill:#e6b9bb}.c7{fill:#d6d3a4}.c8{fill:#bcc6d1}.lift{fill:#fff;fill-opacity:.42}
@media (prefers-color-scheme:dark){
.ground{fill:#131416}.ink{fill:#e7e6e2}.soft{fill:#9da2aa}
.c0{fill:#3b3f45}.c1{fill:#35517a}.c2{fill:#35604a}.c3{fill:#7a5630}.c4{fill:#5d4570}
.c5{fill:#2b5f64}.c6{fill:#7a3d44}.c7{fill:#5d5a2c}.c8{fill:#4a5563}.lift{fill:#000;fill-opacity:.24}}
text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif}.title{font-size:20px;font-weight:650}"""
_WIDTH, _TOP, _MAP, _EDGE = 960, 76, 360, 20


def pictures() -> dict[Path, str]:
    """Path and content of each picture."""
    return {PICTURES / "build.svg": build_picture(), PICTURES / "report.svg": report_picture()}


def build_picture() -> str:
    """The live view of the recorded build, at its last moment."""
    now = [0.0]
    progress = BuildProgress("plain", clock=lambda: now[0])
    for line in (RECORDED / "build.txt").read_text().splitlines():
        moment, _, text = line.partition(" ")
        now[0] = float(moment)
        progress.feed(text)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), legacy_windows=False)
    console.print(table_of(rows(progress), now[0]))
    drawn = console.export_svg(
        title="./invoke build --framework pytorch --without aws-ofi-nccl",
        code_format=_TERMINAL,
        unique_id="build",
        font_aspect_ratio=0.6,
    )
    return re.sub(r"[ \t]+\n", "\n", drawn)


def report_picture() -> str:
    """The treemap of the recorded image, as its report shows it."""
    known = json.loads((RECORDED / "image.json").read_text())
    weights = [_weight(name, each["bytes"], each["packages"]) for name, each in known["components"].items()]
    heaviest = sorted(weights, key=lambda each: -each.weight)[:COLOURS]
    colours = {each.label: number for number, each in enumerate(heaviest, start=1)}
    height = _TOP + _MAP + _EDGE
    tiles = nested(weights, _WIDTH - 2 * _EDGE, _MAP)
    facts = f"{size(known['size_bytes'])}, {known['layers']} layers, {known['packages']} packages"
    return "\n".join(
        [
            f'<svg viewBox="0 0 {_WIDTH} {height}" xmlns="http://www.w3.org/2000/svg"><style>{_STYLE}</style>',
            f'<rect class="ground" width="{_WIDTH}" height="{height}"/>',
            f'<text class="ink title" x="{_EDGE}" y="38">{escape(known["image"])}</text>',
            f'<text class="soft" x="{_EDGE}" y="60">{escape(known["says"])}: {facts}</text>',
            *(line for tile in tiles for line in _drawn(tile, colours.get(tile.group, 0))),
            "</svg>\n",
        ]
    )


def _weight(name: str, total: int, packages: dict[str, int]) -> Weight:
    parts = [Weight(label, weight, name) for label, weight in packages.items()]
    rest = total - sum(packages.values())
    return Weight(name, total, name, (*parts, Weight("other files", rest, name)) if parts and rest > 0 else ())


def _drawn(tile: Tile, colour: int) -> Iterator[str]:
    x, y = tile.x + _EDGE, tile.y + _TOP
    width, height = max(tile.width - 1, 0), max(tile.height - 1, 0)
    place = f'x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{width:.1f}" height="{height:.1f}"'
    yield f'<rect class="{"lift" if tile.part else f"c{colour}"}" {place}/>'
    room = int((tile.width - 10) / 7.0)  # characters of 12 pixels, in a wide font such as DejaVu Sans
    if room >= 4 and tile.height > 15:
        text = f"{tile.label}  {size(tile.weight)}"
        text = text if len(text) <= room else tile.label
        text = text if len(text) <= room else f"{text[: room - 1]}…"
        yield f'<text class="ink" x="{x + 5:.1f}" y="{y + 14:.1f}">{escape(text)}</text>'
