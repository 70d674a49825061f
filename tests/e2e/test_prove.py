"""The CPU line proven with the image that the suite has built: a run that had come as far as the build goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.proofs import line_of
from trainwright.proofs import runs
from trainwright.proofs.proof import read
from trainwright.proofs.runs import LineRun, StepRun

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def begun(proven, state: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """The state of a run whose build is done, as a killed `prove` leaves it."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(state))
    built = proven["build"]
    done = tuple(StepRun(step=step, outcome="passed", seconds=1.0) for step in runs.STEPS[:3])
    entry = line_of("pytorch/cpu")
    shutil.rmtree(runs.folder_of(entry), ignore_errors=True)
    runs.keep(entry, LineRun(plan=built["plan"], steps=done, image=built["image_id"]))
    return dict(built)


def test_the_cpu_line_is_proven(program, begun, tmp_path):
    words = ("prove", "pytorch/cpu", "--output", str(tmp_path), "--json")
    done = program(*words)
    assert done.code == 0, done.err[-4000:]
    (row,) = done.json["lines"]
    assert (row["outcome"], row["new"]) == ("proven", True)
    assert [step["outcome"] for step in row["steps"]] == ["passed"] * 5
    proof = read(tmp_path / "pytorch/cpu.json")
    assert (proof.image, proof.plan) == (begun["image_id"], begun["plan"])
    assert len(proof.tests.passed) > 50 and not proof.tests.failed
    assert proof.rehearsal is not None
    assert (proof.rehearsal.outcome, proof.rehearsal.hosts) == ("passed", 2)
    assert proof.facts["pytorch"]["version"].startswith(proof.version.partition("+")[0])
    text = json.dumps(proof.as_json())
    for own in (str(tmp_path), str(ROOT)):
        assert own not in text, own
    again = program(*words)
    assert [row["new"] for row in again.json["lines"]] == [False]
