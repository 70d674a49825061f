"""NCCL's plugin for EFA by version: what upstream's sources say of themselves, and what an image is held to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import Conflict
from trainwright.plan.render import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

SHAPE = Path(__file__).resolve().parents[2] / "twin" / "shapes" / "ofi"
CATALOG = load_catalog()
# Whether a source file of the tag prints PACKAGE_STRING or PACKAGE_VERSION, and the version of its configure.ac:
# aws/aws-ofi-nccl, `git grep` and `git show TAG:configure.ac` of the tags, 2026-11-22.
UPSTREAM = {
    "1.1.1": ("v1.1.1", False, "1.1"),
    "1.1.3": ("v1.1.3-aws", False, "1.1"),
    "1.2.0": ("v1.2.0-aws", True, "1.2.0aws"),
    "1.3.0": ("v1.3.0-aws", True, "1.3.0aws"),
    "1.4.0": ("v1.4.0-aws", True, "1.4.0aws"),
    "1.5.0": ("v1.5.0-aws", True, "1.5.0aws"),
    "1.18.0": ("v1.18.0", True, "1.18.0"),
}
# The first headings of RELEASENOTES.md in the tag v1.1.3-aws.
NOTES = """# AWS OFI NCCL Release notes

# Supported Distributions
# v1.1.3 release notes

# v1.1.2 release notes
"""


@pytest.mark.parametrize("version", UPSTREAM)
def test_a_version_is_expected_of_the_library_only_if_it_prints_one(version):
    expect = CATALOG.components["aws-ofi-nccl"].component.providers["source"].expect_for(version)
    assert ("version" in expect) == UPSTREAM[version][1]
    assert expect.get("version", expect.get("release")) == "{version}"
    assert expect["missing"] == "none"


def test_release_is_that_of_the_archive_s_notes(tmp_path):
    plan = resolve(make_request(framework="pytorch", cuda="cu113", version="1.10.2"), CATALOG)
    assert ("aws-ofi-nccl", "release", "1.1.3") in {(e.component, e.fact, e.value) for e in plan.expect}
    step = re.search(r"(sed -n '[^']*' RELEASENOTES\.md .*?) > \S+/RELEASE", render_dockerfile(plan, CATALOG))
    assert step
    (tmp_path / "RELEASENOTES.md").write_text(NOTES)
    said = subprocess.run(["sh", "-c", step[1]], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    (probe,) = [p for p in plan.probes if p.component == "aws-ofi-nccl"]
    assert (found := re.search(probe.match["release"], said, re.MULTILINE))
    assert found[1] == "1.1.3"


def test_later_versions_need_no_notes():
    plan = resolve(make_request(framework="pytorch", cuda="cu113", version="1.12.1"), CATALOG)
    assert "RELEASENOTES" not in render_dockerfile(plan, CATALOG)


def test_a_conflict_offers_the_installer_that_brings_the_version():
    asked = {"framework": "pytorch", "version": "2.9.0", "base": "nvidia"}
    with pytest.raises(Conflict) as refused:
        resolve(make_request(**asked, set_=["aws-ofi-nccl=1.20.0"]), CATALOG)
    commands = [offer["command"] for offer in refused.value.details["offers"]]
    assert any("--version 2.9.0" in each and each.endswith(" --set efa=1.49.0") for each in commands)


@pytest.mark.parametrize(("installer", "hangs"), [("1.47.0", True), ("1.49.0", False)])
def test_the_plugin_that_hangs_is_named(installer, hangs):
    """aws/deep-learning-containers#6668, 2026-08-27."""
    plan = resolve(
        make_request(framework="pytorch", version="2.9.0", base="nvidia", set_=[f"efa={installer}"]), CATALOG
    )
    assert any("1.18.0 hangs in large broadcasts" in notice for notice in plan.notices) == hangs


def test_no_line_has_the_plugin_that_hangs():
    chosen = [each.line.components.get("aws-ofi-nccl") for each in CATALOG.lines]
    assert "1.18.0" not in {each.version for each in chosen if each and each.provider != "base"}


def test_the_twin_s_plugin_says_as_little_as_upstream_s():
    configure = (SHAPE / "configure.ac").read_text()
    assert f"AC_INIT([aws-ofi-nccl], [{UPSTREAM['1.1.3'][2]}])" in configure
    assert "PACKAGE_" not in "".join(path.read_text() for path in (SHAPE / "src").iterdir())
