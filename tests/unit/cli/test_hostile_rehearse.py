"""``rehearse`` holds every word of its command line against what the service, the engine and one machine take."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from docker.errors import DockerException
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import some
from tests.support.rehearsal_jobs import job
from tests.support.tries import Try
from trainwright.core.errors import RequestError
from trainwright.core.text import fits
from trainwright.rehearse import job_limits
from trainwright.rehearse.job_limits import check_job, read_memory

BASE = ["rehearse", "--image", "trainwright/x:1", "--entry-point", "train.py"]
FILES = {"train.py": "", "data": None, "d.json": "{}"}
DIGEST = f"sha256:{'a' * 64}"
GROUP = {"name": "a", "instance_type": "ml.m5.xlarge", "instance_count": 1}


def refused(says: str, *words: str) -> Try:
    return Try([*BASE, *words], 2, says, files=FILES)


def taken(*words: str) -> Try:
    """Everything is right: there is only no engine."""
    return Try([*BASE, *words], 4, "nowhere", files=FILES)


def pairs(flag: str, names: list[str], value: str) -> list[str]:
    return [word for name in names for word in (flag, f"{name}={value}")]


def groups(*changes: dict[str, Any]) -> str:
    return json.dumps([{**GROUP, "name": f"g{number}", **change} for number, change in enumerate(changes)])


ROWS = (
    # hosts and processes
    refused("--hosts 17", "--hosts", "17"),
    refused("--hosts 999999999", "--hosts", "999999999"),
    refused("--hosts -5", "--hosts", "-5"),
    refused("--processes-per-host 257", "--processes-per-host", "257"),
    refused("--processes-per-host -1", "--processes-per-host", "-1"),
    taken("--hosts", "16"),
    taken("--processes-per-host", "256"),
    # seconds
    *(refused("--timeout", "--timeout", text) for text in ("0", "0.0", "-1", "nan", "inf", "1e9", "2419201", "5m")),
    *(taken("--timeout", text) for text in ("0.5", "2419200", "300")),
    *(refused("--stop-after", "--stop-after", text) for text in ("nan", "inf", "-1", "300", "20s", "9" * 5000)),
    *(taken("--stop-after", text) for text in ("0", "20.5", "299")),
    # memory
    *(
        refused("--memory", "--memory", text)
        for text in ("--privileged=1", "2g;id", "2g; id", "-1g", "0", "5m", "2x", "33t", "2gg", "g", "9" * 400, "1e3m")
    ),
    refused("--memory", "--memory=--privileged"),
    *(taken("--memory", text) for text in ("6m", "2g", "512M", "1.5g", "2gb", "2GiB", "8388608", "32t")),
    # channels
    *(
        refused("--input", "--input", f"{name}=data")
        for name in ("../../x", "/etc", "..", ".", "a b", "a:b", "a,b", "ä", "a" * 65, "$(id)")
    ),
    refused("--input", "--input", "=data"),
    refused("--input", "--input", "training"),
    refused("no such folder", "--input", "training=nothing"),
    refused("twice", "--input", "training=data", "--input", "training=data"),
    refused("21 channels", *pairs("--input", [f"c{n}" for n in range(21)], "data")),
    taken("--input", "a.b-c_D9=data"),
    taken("--input", f"{'a' * 64}=data"),
    taken(*pairs("--input", [f"c{n}" for n in range(20)], "data")),
    # variables
    *(refused("--env", "--env", f"{name}=1") for name in ("1A", "A B", "A-B", "ä", "A\nB", "", "A" * 513, "A.B")),
    refused("--env", "--env", "A"),
    refused("twice", "--env", "A=1", "--env", "A=2"),
    refused("513 characters", "--env", f"A={'x' * 513}"),
    refused("101 variables", *pairs("--env", [f"A{n}" for n in range(101)], "1")),
    taken("--env", "_A9=a=b", "--env", "B=", "--env", "C=a\nb"),
    taken("--env", f"{'A' * 512}={'x' * 512}"),
    # image
    *(
        Try(["rehearse", f"--image={name}", "--entry-point", "train.py"], 2, "--image", files=FILES)
        for name in ("--privileged", "A", "a b", "a;id", "a/", "/a", "a:", "a@sha256:b", "a" * 600, "a:" + "b" * 129)
    ),
    *(
        Try(["rehearse", f"--image={name}", "--entry-point", "train.py"], 4, "nowhere", files=FILES)
        for name in ("a", "a__b--c/d.e:T_1-x", DIGEST, f"a@{DIGEST}", "localhost:5000/a:b", "a" * 12, "Reg.io/a")
    ),
    # instances
    *(refused("ml.p4d.24xlarge", "--instance-type", n) for n in ("ml.p4d.24xlrge", "p4d.24xlarge", "ml_p4d_24xlarge")),
    refused("training instance type", "--instance-type", "ml.x; id"),
    refused("--instance-groups", "--instance-groups", "[]"),
    refused("6 groups", "--instance-groups", groups(*[{}] * 6)),
    refused("from 1 to 16", "--instance-groups", groups({"instance_count": 17})),
    refused("instance_count", "--instance-groups", groups({"instance_count": 10**26})),
    refused("--instance-groups", "--instance-groups", groups({"name": ""})),
    refused("--instance-groups", "--instance-groups", groups({"name": "a" * 65})),
    refused("training instance type", "--instance-groups", groups({}, {"instance_type": "ml.x"})),
    refused("nested", "--instance-groups", "[" * 100_000),
    taken("--instance-groups", groups(*[{}] * 5)),
    # documents
    refused("--hyperparameters", "--hyperparameters", "[1]"),
    refused("nested", "--hyperparameters", '{"a":' * 20_000),
    refused("JSON", "--hyperparameters", "{"),
    refused("--hyperparameters", "--hyperparameters", "/dev/zero"),
    refused("2500", "--hyperparameters", json.dumps({"a": "x" * 2499})),
    refused("101 of them", "--hyperparameters", json.dumps({f"a{n}": 1 for n in range(101)})),
    refused("256", "--hyperparameters", json.dumps({"a" * 257: 1})),
    taken("--hyperparameters", json.dumps({"a" * 256: "x" * 2498, "b": {"c": [1, None]}})),
    taken("--hyperparameters", "d.json"),
    refused("torch_distributed", "--distribution", "torchdistributed"),
    refused("--sdk", "--sdk", "4"),
    refused("--requirements", "--requirements", "nothing.txt"),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_hostile(row, attempt):
    attempt(row)


@pytest.mark.parametrize(
    "change",
    [
        {"hosts": 0},
        {"hosts": 10**9},
        {"processes_per_host": 0},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"stop_after": float("nan")},
        {"memory": ""},
        {"environment": {"A\nB": "1"}},
        {"image": "--privileged"},
        {"instance_type": "ml.x; id"},
    ],
    ids=str,
)
def test_a_job_that_no_command_line_made_is_checked_as_well(change):
    with pytest.raises(RequestError):
        check_job(replace(job(), **change))


def test_the_limits_are_those_of_the_service():
    import botocore.session

    shape = botocore.session.Session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    members = shape.members
    channels, variables, parameters = (members[n] for n in ("InputDataConfig", "Environment", "HyperParameters"))
    instance_groups = members["ResourceConfig"].members["InstanceGroups"]
    channel = channels.member.members["ChannelName"].metadata
    assert (channel["pattern"], channel["max"]) == (job_limits.CHANNEL, job_limits.LONGEST_CHANNEL)
    assert channels.metadata["max"] == job_limits.MOST_CHANNELS
    assert (variables.key.metadata["pattern"], variables.key.metadata["max"]) == (
        job_limits.VARIABLE,
        job_limits.LONGEST_VARIABLE,
    )
    assert (variables.value.metadata["max"], variables.metadata["max"]) == (
        job_limits.LONGEST_VALUE,
        job_limits.MOST_VARIABLES,
    )
    assert parameters.key.metadata["max"] == job_limits.LONGEST_HYPERPARAMETER
    assert parameters.value.metadata["max"] == job_limits.LONGEST_HYPERPARAMETER_VALUE
    assert parameters.metadata["max"] == job_limits.MOST_HYPERPARAMETERS
    assert instance_groups.metadata["max"] == job_limits.MOST_GROUPS
    assert instance_groups.member.members["InstanceGroupName"].metadata["max"] == job_limits.LONGEST_GROUP


@settings(max_examples=some(200), deadline=None)
@given(st.text(max_size=80))
def test_the_engine_s_own_parser_takes_every_image_that_is_taken(text):
    """docker-py's split of a reference loses nothing of what the pattern takes, and none begins like an option."""
    from docker.utils import parse_repository_tag

    if fits(job_limits.IMAGE, text, limit=512):
        repository, tag = parse_repository_tag(text)
        assert repository
        assert not text.startswith("-")
        assert text in (repository, f"{repository}:{tag}", f"{repository}@{tag}")


@settings(max_examples=some(100), deadline=None)
@given(st.from_regex(job_limits.IMAGE, fullmatch=True))
def test_what_the_pattern_makes_is_what_docker_py_splits(text):
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(text)
    assert text in (repository, f"{repository}:{tag}", f"{repository}@{tag}")


@settings(max_examples=some(200), deadline=None)
@given(st.from_regex(r"[0-9]{1,9}[bkmg]?b?", fullmatch=True))
def test_the_engine_reads_a_size_as_the_same_bytes(text):
    from docker.utils import parse_bytes

    try:
        expected = parse_bytes(text)
    except DockerException:
        return
    assert read_memory(text) == expected
