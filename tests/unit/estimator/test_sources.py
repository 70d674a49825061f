"""The rules that many cases share name the source of the case that a job shows, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.estimator_jobs import subject
from tests.support.rule_jobs import dist, smp
from trainwright.estimator import rules_options, rules_smp

OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"keep_alive": 60, "spot": True, "max_wait": 90_000}, "managed warm pools"),
    ({"remote_debug": True, "network_isolation": True}, "Systems Manager"),
    ({"output_kms_key": "k", "output": "s3://b--usw2-az1--x-s3/o"}, "S3 Express One Zone"),
    ({"inputs": {"a": {"s3_data": "s3://b/k", "compression": "Gzip"}}}, "Pipe input mode"),
]
PARAMETERS: list[tuple[dict[str, Any], str]] = [
    (smp(partitions=2, pipeline_parallel_degree=4, ddp=True), "the library's schema"),
    (smp(tensor_parallel_degree=2), "the library's schema"),
    (smp(sharded_data_parallel_degree=2, pipeline_parallel_degree=2, ddp=True), "sharded data parallelism"),
]


@pytest.mark.parametrize(("changes", "said"), OPTIONS)
def test_options_that_exclude_each_other(changes: dict[str, Any], said: str) -> None:
    found = [each for each in rules_options.check(subject(**changes)) if each.code == "TW295"]
    assert len(found) == 1
    assert said in found[0].source
    assert len(found[0].source) < 200


@pytest.mark.parametrize(("distribution", "said"), PARAMETERS)
def test_parameters_that_exclude_each_other(distribution: dict[str, Any], said: str) -> None:
    found = [each for each in rules_smp.check(subject(**dist(distribution))) if each.code == "TW297"]
    assert found
    assert all(said in each.source and "context_parallel_degree" not in each.source for each in found)
