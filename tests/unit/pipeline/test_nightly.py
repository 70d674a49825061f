"""The nightly build: it asks which lines are stale, and starts a batch of these alone."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.doubles.codebuild import Build, run_build
from trainwright.catalog.catalog import load_catalog
from trainwright.pipeline.batch import MOST
from trainwright.pipeline.images import choose
from trainwright.pipeline.pipeline import contents
from trainwright.scan.database import EXPORT
from trainwright.site.site import Site

ROOT = Path(__file__).resolve().parents[3]
NOTES = """#!/bin/sh
printf '%s' "{name}" >> calls; for word in "$@"; do printf ' %s' "$word" >> calls; done; echo >> calls
"""
BATCH = "trainwright:0aee3b32"
AWS = f"""
for word in "$@"; do case "$word" in file://*) part=${{word#file://}};; esac; done
[ -f "$part" ] && [ "$part" != buildspec-stale-13.yml ] || exit 255
number=${{part#buildspec-stale}}; echo "{BATCH}${{number%.yml}}"
"""


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def night(
    tmp_path: Path, *, stale: str = "", code: int = 0, parts: str = "buildspec-stale.yml", **variables: str
) -> tuple[Build, list[str]]:
    """A night on which ``fresh`` ends like that, and the pipeline is written in these files; the build, and its calls.

    CodeBuild starts no batch of a part with the number 13.
    """
    (tmp_path / "buildspec-nightly.yml").write_text((ROOT / "buildspec-nightly.yml").read_text())
    programs = {
        "invoke": f'[ "$1" = fresh ] && {{ echo "{stale}"; exit {code}; }}\ntouch {parts}\n',
        "aws": AWS,
    }
    (tmp_path / "bin").mkdir()
    git(tmp_path, "init", "-q")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-q", "--allow-empty", "-m", "a")
    for name, body in programs.items():
        path = tmp_path / ("invoke" if name == "invoke" else f"bin/{name}")
        path.write_text(NOTES.format(name=name) + body)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    build = run_build(tmp_path, "buildspec-nightly.yml", environment=environment | variables, timeout=60)
    return build, (tmp_path / "calls").read_text().splitlines()


def test_what_is_stale_is_built_and_nothing_else(tmp_path: Path) -> None:
    names = "pytorch-2.6.0-cu124-debian,pytorch-2.13.0-cpu-debian"
    build, calls = night(tmp_path, stale=names, code=1, LINES="pytorch-*", DATABASE="/srv/osv")
    assert build.succeeded, build.log
    fresh, pipeline, batch = calls
    assert fresh == (
        "invoke fresh --images pytorch-* --repository-prefix trainwright --max-age 30d --database /srv/osv --names"
    )
    assert pipeline == f"invoke pipeline --format batch --images {names} --output buildspec-stale.yml"
    assert batch.startswith(
        "aws codebuild start-build-batch --project-name trainwright "
        f"--source-version {git(tmp_path, 'rev-parse', 'HEAD')} "
        "--buildspec-override file://buildspec-stale.yml --environment-variables-override name=TAG,value=nightly "
        "name=EACH,value=yes name=REFRESH,value=2"
    )
    assert build.exported == {"STALE": names, "BATCH_ID": BATCH}


def test_known_vulnerabilities_are_looked_for_unless_the_project_says_otherwise(tmp_path: Path) -> None:
    for name, variables, words in (("yes", {}, f" --database {EXPORT}"), ("no", {"DATABASE": ""}, "")):
        (tmp_path / name).mkdir()
        _, (fresh,) = night(tmp_path / name, **variables)
        assert fresh == f"invoke fresh --repository-prefix trainwright --max-age 30d{words} --names"


def test_more_than_one_batch_holds_are_several_and_each_is_started(tmp_path: Path) -> None:
    images = choose("pytorch-2.6.0-cu124-debian", load_catalog(), Site())
    many = [dataclasses.replace(images[0], name=f"line-{number}") for number in range(2 * MOST + 1)]
    written = contents(many, [], kind="batch", target="buildspec-stale.yml", command="")
    assert len(written) > 2
    # Parts of an earlier night, which somebody ran by hand in this folder.
    (tmp_path / "buildspec-stale.yml").touch()
    (tmp_path / "buildspec-stale-12.yml").touch()
    build, calls = night(tmp_path, stale="pytorch-*", code=1, parts=" ".join(written))
    assert build.succeeded, build.log
    started = [word for call in calls for word in call.split() if word.startswith("file://")]
    assert sorted(started) == sorted(f"file://{name}" for name in written)
    ids = [f"{BATCH}-{number}" for number in range(1, len(written) + 1)]
    assert build.exported == {"STALE": "pytorch-*", "BATCH_ID": " ".join(ids)}


def test_a_part_that_cannot_be_started_keeps_no_other_back_and_fails_the_build(tmp_path: Path) -> None:
    parts = [f"buildspec-stale-{number}.yml" for number in (12, 13, 14)]
    build, calls = night(tmp_path, stale="pytorch-*", code=1, parts=" ".join(parts))
    assert not build.succeeded
    assert [call.split()[1] for call in calls] == ["fresh", "pipeline", *["codebuild"] * 3]
    assert f"they are built by {BATCH}-12 {BATCH}-14; not started: buildspec-stale-13.yml" in build.log


def test_if_nothing_is_stale_nothing_is_built_or_pushed(tmp_path: Path) -> None:
    build, calls = night(tmp_path)
    assert build.succeeded, build.log
    assert [call.split()[1] for call in calls] == ["fresh"]
    assert build.exported == {}


@pytest.mark.parametrize("code", [2, 7, 70])
def test_if_it_cannot_be_known_the_build_fails(tmp_path: Path, code: int) -> None:
    build, calls = night(tmp_path, code=code)
    assert not build.succeeded
    assert [call.split()[1] for call in calls] == ["fresh"]
