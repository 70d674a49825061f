"""TensorFlow's strategies on simulated hosts: by the examples, and by a job that fails."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.rehearsals import checks

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MWMS = ("--distribution", "multi_worker_mirrored_strategy")
RAISES_ON_WORKER_1 = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
if strategy.cluster_resolver.task_id == 1:
    raise ValueError("the rows of worker 1 are broken")
one = strategy.experimental_distribute_values_from_function(lambda context: tf.constant(1.0))
print(strategy.reduce("SUM", one, axis=None), flush=True)
"""


@pytest.fixture(scope="module")
def tensorflow_image(program: Callable[..., Any]) -> str:
    """The CPU image of TensorFlow."""
    done = program("build", "--framework", "tensorflow", "--cuda", "cpu", "--json", "--progress", "plain")
    assert done.code == 0, done.err[-4000:]
    return str(done.json["image_id"])


@pytest.fixture(scope="module")
def example(program: Callable[..., Any], tensorflow_image: str) -> Callable[..., dict[str, Any]]:
    """Rehearse an example, which has to pass: ``example("plain", "--hosts", "2", ...)`` gives the document."""

    def run(name: str, *words: str) -> dict[str, Any]:
        where = ("--entry-point", "train.py", "--source-dir", str(EXAMPLES / name))
        done = program("rehearse", "--image", tensorflow_image, *where, "--json", *words)
        assert done.code == 0, done.err[-3000:]
        document: dict[str, Any] = done.json
        return document

    return run


def line_of(document: dict[str, Any]) -> tuple[float, float]:
    """Slope and offset that an example left in ``model.json``; its rows lie on y = 2 x + 1."""
    with tarfile.open(document["artifacts"]["model"]["path"]) as archive:
        file = archive.extractfile("model.json")
        assert file is not None
        told = json.load(file)
    return told["slope"], told["offset"]


@pytest.mark.parametrize("hosts", [1, 2])
def test_workers_add_up_their_gradients(example, hosts):
    document = example("tensorflow-multi-worker", "--hosts", str(hosts), *MWMS)
    assert checks(document)["world size"] == checks(document)["all-reduce"] == "passed"
    assert [(rank["rank"], rank["host"]) for rank in document["ranks"]] == [(n, f"algo-{n + 1}") for n in range(hosts)]
    assert all(rank["world_sizes"] == {"tensorflow": hosts} for rank in document["ranks"])
    assert {rank["reduced"]["tensorflow"] for rank in document["ranks"]} == {hosts * (hosts + 1) / 2}
    assert "1/saved_model.pb" in document["artifacts"]["model"]["files"]


def test_a_coordinator_reaches_workers_and_parameter_servers(example):
    document = example("tensorflow-parameter-server", "--hosts", "2", "--distribution", "parameter_server")
    assert checks(document)["world size"] == checks(document)["cluster"] == "passed"
    # Parameter servers run inside of the toolkit's own process, on every host.
    assert sorted(document["ranks"][0]["reached"]) == ["ps:0", "ps:1", "worker:0"]
    assert line_of(document) == pytest.approx((2, 1), abs=0.1)


def test_the_script_for_two_frameworks(example):
    assert line_of(example("two-frameworks")) == pytest.approx((2, 1), abs=0.1)


def test_one_worker_raises_while_the_other_waits(program, tensorflow_image, tmp_path):
    (tmp_path / "train.py").write_text(RAISES_ON_WORKER_1)
    where = ("--image", tensorflow_image, "--entry-point", str(tmp_path / "train.py"))
    done = program("rehearse", *where, "--hosts", "2", *MWMS, "--json")
    assert done.code == 9, done.err[-3000:]
    told = done.json
    assert (told["cause"], told["host"], told["rank"]) == ("script-raised", "algo-2", 1)
    assert "ValueError: the rows of worker 1 are broken" in told["message"]
    assert any("raise ValueError" in line for line in told["last_lines"])
