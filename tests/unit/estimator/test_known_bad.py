"""Versions in an image that are known to be bad, by templates/rules.yaml: jobs that they affect, and jobs that not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rule_jobs import G5, ON, P4, dist, found, image, source_folder, without
from trainwright.estimator.image import ImageFacts, facts_of_name

folder = pytest.fixture(scope="module")(source_folder)

AWS = "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch"
TORCHRUN = dist({"torch_distributed": ON}, instance_type="ml.p5.48xlarge")
BAD = without(**{"aws-ofi-nccl": "1.18.0 (aws)"})


# aws/deep-learning-containers#6668: "aws-ofi-nccl 1.20.0, which fixes the large inter-node NCCL broadcast hang in
# 1.18.0"; docker/pytorch/Dockerfile.cuda at f1e622e4: EFA 1.47.0 for 2.11 and 2.12.
@pytest.mark.parametrize(
    ("changes", "facts", "source"),
    [
        (TORCHRUN, facts_of_name(f"{AWS}:2.11.0-cu130-amzn2023-sagemaker"), "AWS's Dockerfile of 2026-07-22"),
        (TORCHRUN, BAD, "the image has it"),
        ({**TORCHRUN, "instance_type": P4}, BAD, "the image has it"),
    ],
)
def test_a_job_that_a_known_bad_version_affects(
    folder: Any, changes: dict[str, Any], facts: ImageFacts | None, source: str
) -> None:
    (told,) = [each for each in found(folder, changes, facts) if each.code == "TW328"]
    assert (told.severity, told.path) == ("warning", "image")
    assert "aws-ofi-nccl 1.18.0 hangs in large broadcasts between hosts" in told.message
    assert source in told.message


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        (TORCHRUN, facts_of_name(f"{AWS}:2.13.0-cu133-amzn2023-sagemaker")),
        (TORCHRUN, without(**{"aws-ofi-nccl": "1.20.0 (aws)"})),
        (TORCHRUN, image()),
        ({**TORCHRUN, "instance_count": 1}, BAD),
        ({**TORCHRUN, "instance_type": G5}, BAD),  # without EFA, NCCL does not load the plugin
        (TORCHRUN, None),
        (TORCHRUN, image(components=None)),
    ],
)
def test_a_job_that_it_does_not_affect(folder: Any, changes: dict[str, Any], facts: ImageFacts | None) -> None:
    assert not [each for each in found(folder, changes, facts) if each.code == "TW328"]
