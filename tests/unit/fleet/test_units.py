"""The units of a run: what waits for what, and which lines of an earlier command count as built."""

from __future__ import annotations

import pytest

from trainwright.catalog.catalog import open_catalog
from trainwright.fleet.run_folder import create
from trainwright.fleet.units import split, untouched, works
from trainwright.pipeline.images import choose
from trainwright.pipeline.sharing import Group
from trainwright.site.site import Site

pytestmark = pytest.mark.usefixtures("own_places")
A, B, C = "pytorch-2.4.1-cu121-debian", "pytorch-2.6.0-cu124-debian", "tensorflow-2.21.0-cpu-debian"


def test_lines_wait_for_the_innermost_group_and_groups_for_their_parents():
    images = choose(f"{A},{B},{C}", open_catalog(), Site())
    outer = Group("shared_0", (A, B, C), ("base", "os"))
    inner = Group("shared_1", (A, B), ("base", "os", "tools"), parent="shared_0")
    found = works(images, [outer, inner], ["program"], ["--smoke"], [])
    assert {work.progress.name: (work.needs, work.wanted) for work in found} == {
        "shared_0": ((), 3),
        "shared_1": (("shared_0",), 2),
        A: (("shared_1",), 1),
        B: (("shared_1",), 1),
        C: (("shared_0",), 1),
    }
    by_name = {work.progress.name: work.argv for work in found}
    request = ("--framework", "pytorch", "--cuda", "cu121", "--version", "2.4.1", "--base", "debian")
    end = ("--progress", "plain", "--json")
    assert by_name[A] == ("program", *request, "--smoke", *end)
    assert by_name["shared_1"] == ("program", *request, "--stages", "base,os,tools", *end)


@pytest.mark.parametrize(
    ("changes", "is_built"),
    [
        ({"state": "built", "image": "sha256:1"}, True),
        ({"state": "failed", "image": "sha256:1"}, False),
        ({"state": "running", "image": "sha256:1"}, False),
        ({"state": "built", "image": None}, False),
        ({"state": "built", "image": "sha256:gone"}, False),
        ({"state": "built", "image": "sha256:1", "plan": "another"}, False),
    ],
)
def test_a_line_counts_as_built_if_its_plan_is_the_same_and_its_image_is_there(changes, is_built):
    images = choose(f"{A},{C}", open_catalog(), Site())
    folder = create("x", (A, C), {})
    folder.keep(untouched(next(image for image in images if image.name == A)).replace(**changes))
    built, left = split(folder, images, lambda image: image in ("sha256:1", None))
    assert [unit.name for unit in built] == ([A] if is_built else [])
    assert [image.name for image in left] == ([C] if is_built else [A, C])
