"""Jobs on AWS's containers: the same verdict for a container's address and for a plan that extends it.

What each container holds was read in aws/deep-learning-containers: docker/pytorch/2.13/cuda/uv.lock at e0ecedea has no
mpi4py; the Dockerfiles of PyTorch 1.10.2 at 1bd45be7 install SMP 1.11.2, those of TensorFlow 2.6.3 at e3e3c6bb 1.4.0.
"""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.estimator.check import check
from trainwright.estimator.image import ImageFacts, facts_of_name, facts_of_plan
from trainwright.estimator.subject import Subject
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.sagemaker.job import Job

CATALOG = load_catalog()
ECR = "763104351884.dkr.ecr.us-west-2.amazonaws.com"
MPI = {"mpi": {"enabled": True, "processes_per_host": 8}}


def smp(**parameters: Any) -> dict[str, Any]:
    return {"smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}}, **MPI}


CASES = [
    (
        {"framework": "pytorch", "version": "2.13.0"},
        "pytorch:2.13.0-cu133-amzn2023-sagemaker",
        MPI,
        {"TW243"},
    ),
    (
        {"framework": "pytorch", "version": "1.10.2", "cuda": "cu113"},
        "pytorch-training:1.10.2-gpu-py38-cu113-ubuntu20.04-sagemaker",
        smp(ddp=True, sharded_data_parallel_degree=2),
        set(),
    ),
    (
        {"framework": "tensorflow", "version": "2.6.3"},
        "tensorflow-training:2.6.3-gpu-py38-cu112-ubuntu20.04",
        smp(partitions=2),
        set(),
    ),
]


def both(words: dict[str, str], address: str) -> list[ImageFacts]:
    named = facts_of_name(f"{ECR}/{address}")
    assert named is not None
    return [named, facts_of_plan(resolve(make_request(**words, base="dlc"), CATALOG))]


@pytest.mark.parametrize(("words", "address", "distribution", "codes"), CASES)
def test_one_verdict(words: dict[str, str], address: str, distribution: dict[str, Any], codes: set[str]) -> None:
    job = Job(
        image=f"{ECR}/{address}",
        instance_type="ml.p4d.24xlarge",
        instance_count=2,
        entry_point="train.py",
        distribution=distribution,
    )
    for facts in both(words, address):
        found = [each for each in check(Subject(job, facts)) if each.code in ("TW225", "TW243")]
        assert {each.code for each in found} == codes
        # Nothing is called proven that nobody looked at.
        assert all("AWS's Dockerfile of 2026-07-22 (f1e622e4) does not install" in each.message for each in found)


def test_of_a_container_without_a_known_dockerfile_nothing_is_said() -> None:
    facts = facts_of_plan(resolve(make_request(framework="pytorch-smp", version="2.5.1"), CATALOG))
    assert facts.components is None
    assert facts.has("mpi4py") is None
