"""What an image weighs, from three sides: by component, by layer, by package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainwright.report.documents import ReportDocument
from trainwright.report.treemap import Tile, Weight, squarify

# The page's two widths: its own, and that of a telephone.
WIDE, NARROW = (1120.0, 460.0), (358.0, 560.0)
_HEAD, _GAP = 20.0, 2.0  # of a tile with tiles inside
COLOURS = 8  # components with a colour of their own, the heaviest first; the page's style has as many


class Map(NamedTuple):
    """A treemap in both widths. ``says``: what its tiles are."""

    key: str
    title: str
    says: str
    wide: tuple[Tile, ...]
    narrow: tuple[Tile, ...]


def maps(report: ReportDocument) -> list[Map]:
    """The treemaps of an image; one for which nothing is known is left out."""
    found = []
    for key, title, says, weights in (
        (
            "components",
            "Components",
            "Each component by the bytes of its layers, with its packages inside.",
            _components,
        ),
        ("layers", "Layers", "Each layer of the image, as a registry stores it and an engine pulls it.", _layers),
        ("packages", "Packages", "Each package by the bytes of its files, in the colour of its component.", _packages),
    ):
        if each := list(weights(report)):
            found.append(Map(key, title, says, tuple(nested(each, *WIDE)), tuple(nested(each, *NARROW))))
    return found


def colours(report: ReportDocument) -> dict[str, int]:
    """The number of each component's colour: 1 is the heaviest; 0 is shared by what has none of its own."""
    heaviest = sorted((row for row in report.components if row.bytes), key=lambda row: -row.bytes)
    return {row.name: number for number, row in enumerate(heaviest[:COLOURS], start=1)}


def nested(weights: list[Weight], width: float, height: float) -> Iterator[Tile]:
    """The tiles of weights, each followed by the tiles of its parts, which leave room for its name."""
    parts = {each.label: each.parts for each in weights}
    for tile in squarify(weights, 0.0, 0.0, width, height):
        yield tile
        inside = (tile.width - 2 * _GAP, tile.height - _HEAD - _GAP)
        if min(inside) > _HEAD:
            for part in squarify(parts[tile.label], tile.x + _GAP, tile.y + _HEAD, *inside):
                yield part._replace(part=True)


def _components(report: ReportDocument) -> Iterator[Weight]:
    for row in report.components:
        own = [each for each in report.packages if each.component == row.name and each.bytes and each.kind == "python"]
        parts = [Weight(f"{each.name} {each.version}", each.bytes or 0, row.name) for each in own]
        known = sum(each.weight for each in parts)
        # Packages are unpacked into their component's layer; what else is in it has no name.
        if known < row.bytes:
            parts.append(Weight("other files", row.bytes - known, row.name))
        yield Weight(row.name, row.bytes, row.name, tuple(parts) if own and len(parts) > 1 else ())


def _layers(report: ReportDocument) -> Iterator[Weight]:
    for number, layer in enumerate(report.layers, start=1):
        yield Weight(f"{number} {layer.component}", layer.bytes, layer.component)


def _packages(report: ReportDocument) -> Iterator[Weight]:
    for each in report.packages:
        if each.bytes:
            yield Weight(f"{each.name} {each.version}", each.bytes, each.component or "base")
