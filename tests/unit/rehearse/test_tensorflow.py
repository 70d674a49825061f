"""TensorFlow's strategies in a rehearsal: ranks by TF_CONFIG, what proves them, and how they fail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.observer import observed
from trainwright.rehearse.causes import explain
from trainwright.rehearse.hosts import JobImage
from trainwright.rehearse.launch_only import LaunchLine, find_cause
from trainwright.rehearse.observed import HostFacts, JobFacts, Process
from trainwright.rehearse.observer_files import process
from trainwright.rehearse.rehearsal import of_image
from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.rehearse.verdict import judge
from trainwright.sagemaker.distribution import framework_of

# As sagemaker-tensorflow-training 20.4.1 writes it on two hosts.
SERVERS = {"master": ["algo-1:2222"], "ps": ["algo-1:2223", "algo-2:2223"], "worker": ["algo-2:2222"]}
WORKERS = {"worker": ["algo-1:8890", "algo-2:8890"]}
DOWN = "sagemaker_tensorflow_container.training INFO     master algo-1 is down, stopping parameter server"


def config(cluster: dict[str, list[str]], kind: str, index: int) -> dict[str, str]:
    return {
        "TF_CONFIG": json.dumps({"cluster": cluster, "environment": "cloud", "task": {"type": kind, "index": index}})
    }


def script(environment: dict[str, str], **more: Any) -> Process:
    return Process(29, 1, ("/opt/venv/bin/python", "--", "train.py"), environment=environment, ended=True, **more)


def host(number: int, *processes: Process, **more: Any) -> HostFacts:
    seen = [replace(one, host_name=f"ip-10-77-0-{number}") for one in processes]
    facts: dict[str, Any] = {"exit_code": 0, "success": True, "processes": tuple(seen), "ended_at": 10.0 + number}
    return HostFacts(f"algo-{number}", **(facts | more))


def facts(launcher: Any, *hosts: HostFacts, **more: Any) -> JobFacts:
    return JobFacts(
        RehearsedJob("image", "train.py", framework="tensorflow", hosts=len(hosts)), launcher, 1, hosts, **more
    )


def outcomes(seen: JobFacts) -> dict[str, str]:
    return {check.name: check.outcome for check in judge(seen).checks}


def worker(index: int, size: int = 2, total: float = 3.0) -> Process:
    return script(config(WORKERS, "worker", index), world_sizes={"tensorflow": size}, reduced={"tensorflow": total})


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "rank", "size"),
    [
        (WORKERS, "worker", 1, 1, 2),
        (SERVERS, "master", 0, 0, 2),
        (SERVERS, "worker", 0, 1, 2),
        ({"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "worker", 1, 2, 3),
        # Parameter servers and evaluators train nothing.
        (SERVERS, "ps", 1, None, None),
        (WORKERS, "evaluator", 0, None, None),
        (WORKERS, "worker", 2, None, None),
    ],
)
def test_tasks_that_run_the_script_are_ranks(
    cluster: dict[str, list[str]], kind: str, index: int, rank: int | None, size: int | None
) -> None:
    one = script(config(cluster, kind, index))
    assert (one.rank, one.world_size) == (rank, size)


def test_the_launchers_own_numbers_come_first() -> None:
    one = script({**config(WORKERS, "worker", 1), "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"})
    assert (one.rank, one.world_size) == (3, 4)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["cluster", "task", "type", "index", "worker", "ps"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.one_of(st.text(), _JSON.map(json.dumps)))
def test_any_text_can_be_a_tf_config(text: str) -> None:
    one = script({"TF_CONFIG": text})
    assert (one.rank is None) == (one.world_size is None)


def test_workers_that_add_up_pass() -> None:
    verdict = judge(facts("mwms", host(1, worker(0)), host(2, worker(1))))
    assert verdict.passed
    assert [one.rank for one in verdict.ranks] == [0, 1]
    assert not verdict.notes


@pytest.mark.parametrize(
    ("second", "check"),
    [
        (host(2, worker(1, size=1)), "world size"),
        (host(2, worker(0)), "world size"),
        (host(2, worker(1, total=1.0)), "all-reduce"),
        (host(2), "script"),
    ],
)
def test_workers_that_train_alone_do_not_pass(second: HostFacts, check: str) -> None:
    seen = facts("mwms", host(1, worker(0)), second)
    assert not judge(seen).passed
    assert outcomes(seen)[check] == "failed"


def test_a_script_without_a_strategy_is_a_note() -> None:
    alone = [script(config(WORKERS, "worker", index)) for index in range(2)]
    verdict = judge(facts("mwms", host(1, alone[0]), host(2, alone[1])))
    assert verdict.passed
    assert "MultiWorkerMirroredStrategy" in verdict.notes[0]


@pytest.mark.parametrize(
    ("reached", "outcome"),
    [(("worker:0", "ps:0", "ps:1"), "passed"), (("ps:0", "ps:1"), "failed"), (("worker:0",), "failed"), ((), "failed")],
)
def test_the_coordinator_has_to_reach_its_cluster(reached: tuple[str, ...], outcome: str) -> None:
    chief = script(config(SERVERS, "master", 0), world_sizes={"tensorflow": 2}, reached=reached)
    seen = facts("parameter-server", host(1, chief), host(2, script(config(SERVERS, "worker", 0))))
    assert outcomes(seen)["cluster"] == outcome
    assert judge(seen).passed == (outcome == "passed")


def test_parameter_servers_without_a_coordinator_prove_nothing() -> None:
    two = [script(config(SERVERS, kind, 0)) for kind in ("master", "worker")]
    seen = facts("parameter-server", host(1, two[0]), host(2, two[1]))
    assert outcomes(seen)["cluster"] == "skipped"
    # Sessions of TensorFlow 1 share variables without a strategy.
    assert not judge(seen).notes


def test_what_the_observer_tells_of_a_cluster_is_read() -> None:
    start = {"e": "start", "t": 1.0, "parent": 1, "argv": ["x"], "env": config(SERVERS, "master", 0)}
    told = {"e": "reached", "library": "tensorflow", "tasks": ["worker:0", "ps:0"]}
    one = process(7, [start, told, {"e": "reached", "tasks": None}])
    assert one is not None
    assert one.reached == ("worker:0", "ps:0")


def test_a_worker_that_ends_too_early_takes_its_parameter_server_along() -> None:
    early = host(2, script(config(SERVERS, "worker", 0)), log=(DOWN,))
    waiting = host(1, script(config(SERVERS, "master", 0)), exit_code=137, success=False, end="timeout")
    cause = explain(facts("parameter-server", waiting, early, timed_out=True))
    assert cause is not None
    assert (cause.id, cause.host) == ("parameter-server-gone", "algo-2")
    # The same line ends every job that is well.
    done = host(1, script(config(SERVERS, "master", 0)))
    assert explain(facts("parameter-server", done, early)) is None
    # Nor did it keep a coordinator waiting that has ended, whatever happened to a third host.
    cause = explain(facts("parameter-server", done, early, host(3, exit_code=137, success=False)))
    assert cause is not None
    assert (cause.id, cause.host) == ("killed", "algo-3")


def test_the_first_line_of_a_long_message_is_what_is_shown() -> None:
    error = 'Traceback (most recent call last):\n  File "train.py", line 1\nValueError: cannot\n[[0.5]\n[0.7]]\n'
    broken = script(config(WORKERS, "worker", 1), error=error, error_line="ValueError: cannot", error_at=5.0)
    cause = explain(facts("mwms", host(1, worker(0)), host(2, broken, exit_code=1, success=False, failure="x")))
    assert cause is not None
    assert cause.text.endswith("ValueError: cannot")
    assert (cause.host, cause.rank) == ("algo-2", 1)


def test_fit_of_keras_3_is_known_by_what_it_says() -> None:
    # Keras 3.15.1 on TensorFlow 2.21.0.
    said = 'ErrorMessage "ValueError: Attempt to convert a value (PerReplica:{\n 0: <tf.Tensor: shape=(32, 1)'
    wrong = host(1, worker(0), exit_code=1, success=False, failure=said)
    cause = explain(facts("mwms", wrong, host(2, worker(1), end="taken down", exit_code=137, success=False)))
    assert cause is not None
    assert cause.id == "keras-3-fit"


@pytest.mark.parametrize("launcher", ["mwms", "parameter-server"])
def test_a_launch_without_tf_config_is_one_of_the_plain_toolkit(launcher: Any) -> None:
    def lines(environment: dict[str, str]) -> tuple[LaunchLine, ...]:
        return (
            LaunchLine(
                "algo-1", ("/opt/venv/bin/python", "train.py"), "/opt/ml/code", environment, "/opt/ml/code/train.py"
            ),
        )

    cause = find_cause(launcher, lines({}), ("algo-1",))
    assert cause is not None
    assert cause.id == "plain-toolkit"
    assert "sagemaker-tensorflow-training" in cause.remedy
    assert find_cause(launcher, lines(config(WORKERS, "worker", 0)), ("algo-1",)) is None


@pytest.mark.parametrize(
    ("label", "module", "asked", "framework"),
    [
        ("huggingface-tensorflow", "", None, "tensorflow"),
        ("pytorch-trcomp", "", None, "pytorch"),
        ("", "sagemaker_tensorflow_container.training:main", None, "tensorflow"),
        # What the image does not say, the strategy does where one framework alone knows it.
        ("", "", "multi_worker_mirrored_strategy", "tensorflow"),
        ("", "", "mpi", "pytorch"),
        ("pytorch", "", "parameter_server", "pytorch"),
    ],
)
def test_the_framework_of_an_image(label: str, module: str, asked: str | None, framework: str) -> None:
    image = JobImage(
        reference="x",
        id="sha256:0",
        labels={"io.trainwright.framework": label} if label else {},
        path="/bin",
        environment={"SAGEMAKER_TRAINING_MODULE": module} if module else {},
        entrypoint=(),
        site=(),
        code=(),
        user=0,
    )
    job = RehearsedJob("x", "train.py", distribution={asked: {"enabled": True}} if asked else None)
    assert of_image(job, image).framework == framework


def test_a_strategy_names_its_framework() -> None:
    assert framework_of({"torch_distributed": {"enabled": True}}) == "pytorch"
    assert framework_of({"parameter_server": {"enabled": True}}) == "tensorflow"
    assert framework_of({"mpi": {"enabled": True}}) is framework_of(None) is framework_of({"mpy": {}}) is None


STRATEGY = """
class Resolver:
    task_type, task_id = "worker", 1
    def cluster_spec(self):
        return self
    def as_dict(self):
        return {"worker": ["a:1", "b:1"]}
class Extended:
    worker_devices = ("/gpu:0", "/gpu:1")
class CollectiveAllReduceStrategy:
    def __init__(self, word):
        self.word, self.cluster_resolver, self.extended = word, Resolver(), Extended()
    def experimental_distribute_values_from_function(self, make):
        return [make(None), make(None)]
    def reduce(self, how, values, axis):
        if self.word == "broken":
            raise RuntimeError("no peer")
        return sum(values) + 1.0
"""


@pytest.mark.parametrize(("word", "reduced"), [("well", {"tensorflow": 3.0}), ("broken", {})])
def test_the_observer_proves_a_strategy_and_harms_none(tmp_path: Path, word: str, reduced: dict[str, float]) -> None:
    """Stand-ins with the names of the real modules: the other worker brings 1, the two replicas of this one 2."""
    texts = {
        "tensorflow/__init__.py": "float64 = 0\ndef executing_eagerly():\n    return True\n"
        "def constant(value, kind):\n    return value\n",
        "tensorflow/python/__init__.py": "",
        "tensorflow/python/distribute/__init__.py": "",
        "tensorflow/python/distribute/collective_all_reduce_strategy.py": STRATEGY,
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    wanted = (
        "from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceStrategy as S\n"
    )
    (one,) = observed(tmp_path, f"{wanted}assert S({word!r}).word == {word!r}\n", **config(WORKERS, "worker", 1))
    assert one.ended
    assert not one.error
    assert one.world_sizes == {"tensorflow": 2}
    assert one.reduced == reduced
    assert one.rank == 1
