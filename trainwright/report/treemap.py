"""Lays out weights as nested rectangles, near to squares (Bruls, Huizing and van Wijk: Squarified Treemaps, 2000)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Tile(NamedTuple):
    """A rectangle: what it stands for, and its place in units of the area that was laid out."""

    label: str
    weight: int
    group: str
    x: float
    y: float
    width: float
    height: float
    part: bool = False  # inside of another tile


class Weight(NamedTuple):
    """Something to lay out. ``group`` decides its colour; ``parts`` are laid out inside of it."""

    label: str
    weight: int
    group: str = ""
    parts: tuple[Weight, ...] = ()


def squarify(weights: Sequence[Weight], x: float, y: float, width: float, height: float) -> list[Tile]:
    """Tiles that fill a rectangle, the heaviest first, each with an area in proportion to its weight.

    Args:
        weights: what weighs nothing gets no tile.
        x, y, width, height: the rectangle.
    """
    rest = sorted((each for each in weights if each.weight > 0), key=lambda each: -each.weight)
    total = sum(each.weight for each in rest)
    tiles: list[Tile] = []
    if not rest or width <= 0 or height <= 0:
        return tiles
    scale = width * height / total
    while rest:
        side = min(width, height)
        count = _row(rest, scale, side)
        row, rest = rest[:count], rest[count:]
        area = sum(each.weight for each in row) * scale
        depth = area / side if side else 0
        at = 0.0
        for each in row:
            length = each.weight * scale / depth if depth else 0
            place = (x, y + at, depth, length) if width >= height else (x + at, y, length, depth)
            tiles.append(Tile(each.label, each.weight, each.group, *place))
            at += length
        if width >= height:
            x, width = x + depth, max(width - depth, 0.0)
        else:
            y, height = y + depth, max(height - depth, 0.0)
    return tiles


def _row(rest: Sequence[Weight], scale: float, side: float) -> int:
    """How many of the heaviest share a row: one more as long as that makes its worst tile squarer."""
    area, worst = 0.0, float("inf")
    for count, each in enumerate(rest, start=1):
        area += each.weight * scale
        biggest, smallest = rest[0].weight * scale, each.weight * scale
        ratio = max(side * side * biggest / (area * area), area * area / (side * side * smallest)) if side else 1.0
        if ratio > worst:
            return count - 1
        worst = ratio
    return len(rest)
