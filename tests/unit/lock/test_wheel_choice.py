"""Which file of a Python package is locked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.catalog import wheel_lock as locking
from trainwright.core.errors import SourceError
from trainwright.lock import wheels as resolver

BEST_FIRST = [
    "a-1-cp311-cp311-manylinux_2_28_x86_64.whl",
    "a-1-2-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",  # a second build goes before ...
    "a-1-1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",  # ... the first
    "a-1-cp311-cp311-manylinux_2_5_x86_64.manylinux1_x86_64.whl",
    "a-1-cp311-abi3-manylinux_2_28_x86_64.whl",
    "a-1-cp39-abi3-manylinux_2_28_x86_64.whl",
    "a-1-py3-none-manylinux1_x86_64.whl",
    "a-1-py3-none-any.whl",
]
UNFIT = [
    "a-1-cp312-cp312-manylinux_2_28_x86_64.whl",
    "a-1-cp311-cp311-manylinux_2_34_x86_64.whl",
    "a-1-cp311-cp311-manylinux_2_28_aarch64.whl",
    "a-1-cp311-cp311-musllinux_1_2_x86_64.whl",
    "a-1-cp311-cp311-win_amd64.whl",
    "a-1-cp312-abi3-manylinux_2_28_x86_64.whl",
]


@given(st.data())
def test_the_best_wheel_is_taken_and_no_other_kind_ever(data: st.DataObject) -> None:
    offered = data.draw(st.lists(st.sampled_from(BEST_FIRST + UNFIT), unique=True))
    package = {
        "name": "a",
        "version": "1",
        "wheels": [{"url": f"https://h.example/{file}"} for file in offered],
        "sdist": {"url": "https://h.example/a-1.tar.gz"},
    }
    chosen = resolver.file_name(resolver._best_file(package, resolver._tag_ranks("3.11", locking.PLATFORM)))
    assert chosen == next((file for file in BEST_FIRST if file in offered), "a-1.tar.gz")


BEST = "a-1-cp311-cp311-manylinux_2_28_x86_64.whl"
AS_GOOD = "a-1-cp311-cp311-manylinux_2_28_x86_64.manylinux_2_5_x86_64.whl"
OLDER = "a-1-cp311-cp311-manylinux_2_17_x86_64.whl"


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        # A wheel is as good as the best of its tags (pip's rule).
        ([{"url": f"https://h.example/{file}"} for file in (OLDER, AS_GOOD)], AS_GOOD),
        # Two indexes have the same file.
        ([{"url": f"https://{host}.example/{BEST}"} for host in ("h", "i")], BEST),
        # PEP 751: a name of its own goes before that in the address.
        ([{"name": BEST, "url": "https://h.example/get?file=7"}, {"path": f"wheels/{OLDER}"}], BEST),
    ],
    ids=["tags", "twice", "named"],
)
def test_of_several_wheels(offered: list[dict[str, str]], chosen: str) -> None:
    package = {"name": "a", "version": "1", "wheels": offered}
    found = resolver._best_file(package, resolver._tag_ranks("3.11", locking.PLATFORM))
    assert resolver.file_name(found) == chosen


@pytest.mark.parametrize(
    ("python", "fits"),
    [("3.6", ["cp36-cp36m"]), ("3.7", ["cp37-cp37m"]), ("3.8", ["cp38-cp38"]), ("3.13", ["cp313-cp313"])],
)
def test_the_abi_of_a_python_is_known(python: str, fits: list[str]) -> None:
    tags = ["cp36-cp36m", "cp36-cp36", "cp37-cp37m", "cp38-cp38", "cp38-cp38m", "cp313-cp313", "cp313-cp313t"]
    ranks = {str(tag) for tag in resolver._tag_ranks(python, "x86_64-manylinux_2_17")}
    assert [tag for tag in tags if f"{tag}-manylinux_2_17_x86_64" in ranks] == fits


def test_no_file_at_all_is_a_failure_with_the_package_s_name() -> None:
    package = {"name": "a", "version": "1", "wheels": [{"url": f"https://h.example/{file}"} for file in UNFIT]}
    with pytest.raises(SourceError, match="a 1: no wheel fits"):
        resolver._best_file(package, resolver._tag_ranks("3.11", locking.PLATFORM))


@pytest.mark.parametrize(
    ("python", "file"),
    [
        ("3.6", "a-1-cp36-cp36m-manylinux1_x86_64.whl"),
        ("3.7", "a-1-cp37-cp37m-manylinux2010_x86_64.whl"),
        ("3.8", "a-1-cp38-cp38-manylinux2014_x86_64.whl"),
    ],
)
def test_wheels_of_old_pythons_are_known_by_their_abi(python: str, file: str) -> None:
    wheels = [{"url": f"https://h.example/{name}"} for name in ("a-1-cp38-none-any.whl", file)]
    ranks = resolver._tag_ranks(python, "x86_64-manylinux_2_17")
    assert resolver.file_name(resolver._best_file({"name": "a", "version": "1", "wheels": wheels}, ranks)) == file
