"""The order of Debian's versions, against deb-version(7) and dpkg itself."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.scan.debian_version import debian_key

# Epochs are small and digits few, so that equal and nearly equal versions come up.
UPSTREAM = st.from_regex(r"[0-9][0-9a-bz.+~]{0,6}", fullmatch=True)
VERSIONS = st.builds(
    lambda epoch, upstream, revision: f"{epoch}{upstream}{revision}",
    st.sampled_from(["", "0:", "1:"]),
    UPSTREAM,
    st.one_of(st.just(""), st.from_regex(r"-[0-9a-b+.~]{1,5}", fullmatch=True)),
)


def test_the_parts_that_the_manual_page_sorts():
    # deb-version(7), "Sorting algorithm": a tilde sorts before anything, even the end of a part.
    parts = ["~~", "~~a", "~", "", "a"]
    keys = [debian_key(f"1{part}") for part in parts]
    assert keys == sorted(keys)
    assert all(one < other for one, other in pairwise(keys))


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.0~beta1~svn1245", "1.0~beta1"),  # both from Debian Policy, 5.6.12
        ("1.0~beta1", "1.0"),
        ("2.36-9+deb12u9", "2.36-9+deb12u10"),
        ("9.0", "1:1.0"),
        ("0~", "0"),
        ("0~1", "0"),
        ("1.0-0~", "1.0"),
        ("1.0a", "1.0+"),
        ("1.0-1", "1.0-1.1"),
    ],
)
def test_an_order(older, newer):
    assert debian_key(older) < debian_key(newer)


@pytest.mark.parametrize(("one", "other"), [("1.0", "1.0-0"), ("0:1.0", "1.0"), ("1.00", "1.0"), ("1.", "1.0")])
def test_equal_versions(one, other):
    assert debian_key(one) == debian_key(other)


@pytest.mark.parametrize("text", ["", "1 0", "a:1", "1_0", ":", "é"])
def test_what_is_not_a_version(text):
    with pytest.raises(ValueError, match="not a version"):
        debian_key(text)


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg is not installed")
@given(st.lists(st.tuples(VERSIONS, VERSIONS), min_size=1, max_size=8))
def test_dpkg_agrees(pairs):
    for one, other in pairs:
        relation = (
            "lt" if debian_key(one) < debian_key(other) else "eq" if debian_key(one) == debian_key(other) else "gt"
        )
        done = subprocess.run(["dpkg", "--compare-versions", one, relation, other], check=False)
        assert done.returncode == 0, (one, relation, other)
