"""What ``estimator`` knows of an image: by its labels, its plan, its name, the registry."""

from __future__ import annotations

import os

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.estimator.image import facts_of_labels, facts_of_name, facts_of_plan
from trainwright.estimator.image_labels import ecr_labels
from trainwright.plan.request import make_request as image_request
from trainwright.plan.resolve import resolve
from trainwright.preflight.carried import resolve_plan
from trainwright.push.references import PushPlace
from trainwright.sagemaker.job_parts import PlanRequest
from trainwright.site.site import Site


def test_a_plan_says_of_its_image_what_the_labels_of_the_image_say():
    plan = resolve(image_request(framework="pytorch", cuda="cu113", version="1.10.2"), load_catalog())
    of_plan = facts_of_plan(plan)
    assert of_plan.version_of("smdistributed-modelparallel") == "1.7.0"
    assert of_plan.family == "pytorch"
    assert not of_plan.baked
    of_labels = facts_of_labels("x", plan.labels)
    assert of_labels is not None
    assert of_labels.replace(reference=of_plan.reference, origin="plan") == of_plan


def test_the_gpus_that_a_job_file_names_are_those_of_its_image():
    plan = resolve_plan(PlanRequest(framework="pytorch", cuda="cu124", version="2.6.0", for_gpus=("ml.p4d", "H100")))
    of_labels = facts_of_labels("x", plan.labels)
    assert facts_of_plan(plan).gpus == ("8.0", "9.0")
    assert of_labels is not None and of_labels.gpus == ("8.0", "9.0")


def test_a_short_tag_says_what_its_images_have_in_common():
    """sagemaker's image_uris.py makes 2.0.1-gpu-py310; AWS has Dockerfiles of it for CUDA 11.8 and 12.1.

    That for 12.1 installs neither of SageMaker's libraries, so that an error about a missing one could be wrong.
    """
    registry = "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training"
    found = facts_of_name(f"{registry}:2.0.1-gpu-py310")
    assert found is not None
    assert (found.framework, found.version, found.cuda, found.python) == ("pytorch", "2.0.1", None, "3.10")
    assert found.has("sagemaker-toolkit") and found.has("smdistributed-dataparallel")
    assert found.version_of("openmpi") == "4.1.5"
    assert not found.version_of("nccl")
    assert facts_of_name(f"{registry}:2.0") is None


@pytest.mark.parametrize(
    ("name", "version", "cuda"),
    [
        ("tensorflow-training:2.14-gpu-py310", "2.14.1", "11.8"),
        ("pytorch-training:1.13-gpu-py39", "1.13.1", "11.7"),
        ("huggingface-pytorch-training:1.13-transformers4.26-gpu-py39-cu117-ubuntu20.04", "1.13.1", "11.7"),
        ("pytorch-training:1.8-cpu-py36", "1.8.1", "cpu"),
    ],
)
def test_a_tag_without_a_patch_is_the_newest_one(name, version, cuda):
    """sagemaker's image_uris.py makes 2.14-gpu-py310 of framework_version="2.14"."""
    found = facts_of_name(f"763104351884.dkr.ecr.us-west-2.amazonaws.com/{name}")
    assert found is not None
    assert (found.version, found.cuda) == (version, cuda)


def test_labels_of_others_say_nothing():
    assert facts_of_labels("x", {"maintainer": "somebody"}) is None
    assert facts_of_name("somebody/pytorch-training:2.8.0-gpu-py312") is None
    assert facts_of_name("123456789012.dkr.ecr.us-west-2.amazonaws.com/team/training:1") is None


@pytest.mark.parametrize(
    ("reference", "framework", "version", "cuda"),
    [
        (
            "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.13.1-gpu-py39-cu117-ubuntu20.04-sagemaker",
            "pytorch",
            "1.13.1",
            "11.7",
        ),
        (
            "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-trcomp-training:1.13.1-gpu-py39-cu117-ubuntu20.04",
            "pytorch-trcomp",
            "1.13.1",
            "11.7",
        ),
        (
            "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.11.0-cpu-py39",
            "tensorflow",
            "2.11.0",
            "cpu",
        ),
    ],
)
def test_images_of_aws_are_known_by_their_names(reference, framework, version, cuda):
    found = facts_of_name(reference)
    assert found is not None
    assert (found.framework, found.version, found.cuda) == (framework, version, cuda)
    # pytorch/training/docker/1.13/py3/cu117/Dockerfile.gpu at fbd46a1e: OMPI_VERSION=4.1.1
    # tensorflow/training/docker/2.11/py3/Dockerfile.cpu at 6448d6a9: OMPI_VERSION=4.0.4
    known = {"pytorch": "4.1.1", "tensorflow": "4.0.4"}.get(framework)
    assert (found.version_of("openmpi"), found.has("openmpi")) == (known, True if known else None)
    assert (found.evidence is not None) == bool(known)


def test_without_credentials_nothing_is_known_of_a_private_registry(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    assert ecr_labels(PushPlace("123456789012", "us-west-2", "team/training"), Site(), tag="1") is None
