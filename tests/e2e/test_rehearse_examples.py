"""The examples: each is rehearsed on one and on two hosts, in an image that was built here."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
JOBS = {
    "plain": ("--hyperparameters", '{"epochs": 20}', "--input", f"training={EXAMPLES}/plain/data"),
    "mpi": ("--processes-per-host", "2", "--distribution", "mpi", "--hyperparameters", '{"epochs": 60}'),
    "ddp": ("--processes-per-host", "2", "--distribution", "torch_distributed"),
    "two-frameworks": (),
}
ELSEWHERE = {"tensorflow-multi-worker", "tensorflow-parameter-server"}  # test_rehearse_tensorflow: in another image
LEFT = {"plain": "model.pt", "mpi": "model.json", "ddp": "model.pt", "two-frameworks": "model.json"}


def test_every_example_is_rehearsed():
    assert {path.parent.name for path in EXAMPLES.glob("*/train.py")} == set(JOBS) | ELSEWHERE


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("example", list(JOBS))
def test_an_example_trains(program, cpu_image, example, hosts):
    words = ("--entry-point", "train.py", "--source-dir", str(EXAMPLES / example), *JOBS[example])
    done = program("rehearse", "--image", cpu_image, "--hosts", str(hosts), "--json", *words)
    assert done.code == 0, done.err[-3000:]
    ranks = done.json["ranks"]
    assert len(ranks) == hosts * (2 if "--processes-per-host" in words else 1)
    model = done.json["artifacts"]["model"]
    assert model["files"] == [LEFT[example]]
    if example in ("mpi", "two-frameworks"):
        with tarfile.open(model["path"]) as archive:
            file = archive.extractfile("model.json")
            assert file is not None
            told = json.load(file)
        # The rows lie on y = 2 x + 1.
        assert told["slope"] == pytest.approx(2, abs=0.1)
        assert told["offset"] == pytest.approx(1, abs=0.1)
