"""Treemaps: every weight has its share of the area, inside of it, and no two tiles overlap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.report_records import full_record
from trainwright.report.image import report_of
from trainwright.report.treemap import Weight, squarify
from trainwright.report.weights import COLOURS, NARROW, WIDE, colours, maps

WEIGHTS = st.lists(st.integers(0, 10**12), max_size=40)  # bytes


@given(WEIGHTS, st.floats(1, 2000), st.floats(1, 2000))
def test_areas_are_shares(weights, width, height):
    given_ = [Weight(str(number), weight) for number, weight in enumerate(weights)]
    tiles = squarify(given_, 0, 0, width, height)
    total = sum(weights)
    assert len(tiles) == sum(weight > 0 for weight in weights)
    for tile in tiles:
        assert tile.width * tile.height == pytest.approx(tile.weight / total * width * height, rel=1e-6, abs=1e-6)
        assert tile.x >= -1e-6
        assert tile.y >= -1e-6
        assert tile.x + tile.width <= width * (1 + 1e-6)
        assert tile.y + tile.height <= height * (1 + 1e-6)


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=15))
def test_tiles_do_not_overlap(weights):
    tiles = squarify([Weight(str(number), weight) for number, weight in enumerate(weights)], 0, 0, 300, 200)
    for number, one in enumerate(tiles):
        for two in tiles[number + 1 :]:
            across = min(one.x + one.width, two.x + two.width) - max(one.x, two.x)
            down = min(one.y + one.height, two.y + two.height) - max(one.y, two.y)
            assert min(across, down) < 1e-6, (one, two)


def test_the_example_of_the_paper():
    """Figure 4 of Bruls, Huizing and van Wijk: two sixes side by side, four and three above two, two and one."""
    tiles = squarify([Weight(str(weight), weight) for weight in (6, 6, 4, 3, 2, 2, 1)], 0, 0, 6, 4)
    places = [(round(t.x, 2), round(t.y, 2), round(t.width, 2), round(t.height, 2)) for t in tiles]
    assert places[:4] == [(0, 0, 3, 2), (0, 2, 3, 2), (3, 0, 1.71, 2.33), (4.71, 0, 1.29, 2.33)]


def test_equal_weights_are_near_to_squares():
    tiles = squarify([Weight(str(number), 1) for number in range(12)], 0, 0, 400, 300)
    assert all(0.5 < tile.width / tile.height < 2 for tile in tiles)


def test_an_image_from_three_sides():
    report = report_of(full_record())
    found = {each.key: each for each in maps(report)}
    assert list(found) == ["components", "layers", "packages"]
    assert len([tile for tile in found["layers"].wide if not tile.part]) == len(report.layers)
    # A component and what is in it: the tiles of its packages lie inside of its own.
    outer = {tile.label: tile for tile in found["components"].wide if not tile.part}
    inner = [tile for tile in found["components"].wide if tile.part]
    assert inner
    for tile in inner:
        around = outer[tile.group]
        assert around.x <= tile.x
        assert tile.x + tile.width <= around.x + around.width + 1e-6
        assert around.y < tile.y
        assert tile.y + tile.height <= around.y + around.height + 1e-6
    for each in found.values():
        assert max(tile.x + tile.width for tile in each.wide) == pytest.approx(WIDE[0])
        assert max(tile.x + tile.width for tile in each.narrow) == pytest.approx(NARROW[0])


def test_a_record_without_sizes_of_packages_has_no_map_of_them():
    record = full_record()
    record = record.replace(probe={key: value for key, value in record.probe.items() if key != "distribution_bytes"})
    assert [each.key for each in maps(report_of(record))] == ["components", "layers"]


def test_the_heaviest_components_have_colours_of_their_own():
    report = report_of(full_record())
    found = colours(report)
    heaviest = max(report.components, key=lambda row: row.bytes).name
    assert found[heaviest] == 1
    assert sorted(found.values()) == list(range(1, COLOURS + 1))
