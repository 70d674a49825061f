"""What is left of a build when its machine is gone: the artifacts of the buildspecs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.doubles.codebuild import Build, run_build
from tests.support.pipeline_source import made_source

ROOT = Path(__file__).resolve().parents[3]
RECORD = {"images/0123/record.json", "images/0123/sbom.cdx.json", "images/0123/logs/build.log"}


def ran(tmp_path: Path, buildspec: str, **variables: str) -> Build:
    """A build with a front door that only notes how it is called, and the record that a build leaves."""
    source = made_source(tmp_path / "source")
    shutil.copy(ROOT / buildspec, source)
    for name in RECORD:
        path = source / ".trainwright" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    environment = {"PATH": f"{source}/bin:{os.environ['PATH']}", "CALLED": str(source / "called"), **variables}
    return run_build(source, buildspec, environment=environment, timeout=30)


def test_the_record_and_all_results_are_kept(tmp_path):
    built = ran(tmp_path, "buildspec.yml")
    assert built.succeeded, built.log
    assert {"plan.json", "push.json", *RECORD} <= set(built.artifacts)
    assert built.artifacts["images/0123/record.json"].read_text() == "{}"


@pytest.mark.parametrize("failing", ["smoke", "rehearse", "push"])
def test_so_they_are_of_a_build_that_failed(tmp_path, failing):
    built = ran(tmp_path, "buildspec.yml", FAILING=failing)
    assert not built.succeeded
    assert {"plan.json", *RECORD} <= set(built.artifacts)


@pytest.mark.parametrize(
    ("buildspec", "name"), [("buildspec-stages.yml", "plan.json"), ("buildspec-tags.yml", "tags.txt")]
)
def test_every_job_of_the_project_has_an_artifact(tmp_path, buildspec, name):
    """A project with artifacts uploads those of every build, and a build without one file for them fails."""
    assert name in ran(tmp_path, buildspec, CACHE="", REPOSITORY="").artifacts
