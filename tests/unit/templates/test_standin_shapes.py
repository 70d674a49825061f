"""Stand-ins of upstream's archives: each is made after a file of a tag, and says what that says."""

from __future__ import annotations

import subprocess

import pytest

from tests.twin.standins import MAKERS
from tests.twin.upstream import SHAPES, compared, differences
from trainwright.core.data_files import read_yaml

ENTRIES = read_yaml(SHAPES / "upstream.yaml")


def test_every_file_of_a_shape_has_an_origin():
    named = set()
    for entry in ENTRIES.values():
        folder = SHAPES / entry["folder"]
        if "closed" in entry:
            named |= {path for path in folder.rglob("*") if path.is_file()}
        else:
            assert entry["repository"] and entry["tag"]
            named |= {folder / own for own in entry["files"]}
    files = {path for path in SHAPES.rglob("*") if path.is_file() and path.name != ".gitkeep"}
    assert files - {SHAPES / "upstream.yaml"} == named


@pytest.mark.parametrize(("entry", "own", "says"), [(e, own, says) for e, own, _, says in compared()])
def test_a_shape_says_what_upstream_says(entry, own, says):
    text = (SHAPES / entry["folder"] / own).read_text()
    assert says and [word for word in says if word not in text] == []


def test_the_tag_is_that_of_the_archive_that_the_stand_in_replaces():
    """Of tests/twin/standins.py: the names of the folders in the archives."""
    assert {owner for owner, _ in MAKERS} >= {"nccl", "aws-ofi-nccl", "rmm", "boost"}
    versions = {name: entry["tag"] for name, entry in ENTRIES.items() if "tag" in entry}
    for name, tag in versions.items():
        version = name.rpartition(" ")[2]
        assert version in tag or name == "cnmem"


def test_a_tag_that_says_something_else_is_told(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    header = tmp_path / "thrust" / "version.h"
    header.parent.mkdir()
    header.write_text("#define THRUST_VERSION 100909\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"], ["tag", "1.9.10"]):
        subprocess.run([*git, *words], check=True)
    told = differences({"NVIDIA/thrust": tmp_path})
    assert told == ["NVIDIA/thrust 1.9.10 thrust/version.h: '#define THRUST_VERSION 100910'"]
    header.write_text("#define THRUST_VERSION 100910\n")
    subprocess.run([*git, "commit", "-qam", "b"], check=True)
    subprocess.run([*git, "tag", "-f", "1.9.10"], check=True, capture_output=True)
    assert differences({"NVIDIA/thrust": tmp_path}) == []
