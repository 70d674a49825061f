"""Every rule about what a job's image holds, and about the compiler: a job that it speaks of."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rule_jobs import (
    BAKED,
    COMPILER,
    DATA,
    DLC,
    GROUPS,
    MPI,
    ON,
    OWN,
    P3,
    REFERENCE,
    TENSORFLOW,
    dist,
    found,
    image,
    smp,
    source_folder,
    spoken_at,
    tensorflow,
    without,
)
from trainwright.estimator.image import ImageFacts

folder = pytest.fixture(scope="module")(source_folder)


# code, path, what is changed in a good job, image, SDK
CASES: list[tuple[str, str, dict[str, Any], ImageFacts | None, int]] = [
    ("TW240", "image", {}, None, 2),
    ("TW241", "image", {"image": "team/training:1"}, image(), 2),
    ("TW241", "image", {"image": "public.ecr.aws/deep-learning-containers/pytorch:2"}, image(), 2),
    ("TW241", "image", {"image": "123456789012.dkr.ecr.amazonaws.com/team/training:1"}, image(), 2),
    ("TW241", "image", {"image": "registry.example.com/team/training:1"}, image(), 2),
    ("TW241", "image", {**OWN, "image": "team/training:1"}, image(), 2),
    ("TW241", "image", {**OWN, "registry": {"access_mode": "Platform"}}, image(), 2),
    ("TW242", "region", {"region": "eu-central-1"}, image(), 2),
    ("TW243", "image", dist({"mpi": MPI}), without("mpi4py"), 2),
    ("TW243", "image", dist({"smdistributed": {"dataparallel": ON}}), without("smdistributed-dataparallel"), 2),
    ("TW243", "image", dist(smp(pipeline_parallel_degree=2)), without("smdistributed-modelparallel"), 2),
    ("TW243", "image", dist(smp(pipeline_parallel_degree=2)), TENSORFLOW, 2),
    ("TW243", "image", {}, without("sagemaker-toolkit", cluster="1 (ec2)"), 2),
    ("TW244", "image", dist({"torch_distributed": ON}), image(framework="jax"), 2),
    ("TW245", "image", dist({"mpi": MPI}), without("openmpi", openmpi="5.0.11 (source)"), 2),
    ("TW246", "source_dir", {}, BAKED, 2),
    ("TW246", "entry_point", {"source_dir": None, "entry_point": "src/train.py"}, image(entry_point="src/train.py"), 2),
    ("TW247", "entry_point", {"source_dir": None, "entry_point": "src/train.py"}, BAKED, 2),
    ("TW248", "instance_type", {"instance_type": "ml.trn1.2xlarge"}, image(), 2),
    ("TW248", "instance_type", {"instance_type": "ml.p6e-gb200.36xlarge"}, image(), 2),
    ("TW249", "instance_type", {}, image(cuda="cpu"), 2),
    ("TW249", "instance_type", {"instance_type": "ml.m5.xlarge"}, image(), 2),
    ("TW249", "instance_type", {"instance_type": "ml.g4dn.xlarge"}, image(cuda="12.4", gpus=("8.0", "9.0")), 2),
    ("TW250", "instance_type", {"instance_type": "ml.p5.48xlarge"}, image(), 2),
    ("TW250", "instance_type", {"instance_type": P3}, image(cuda="13.0"), 2),
    ("TW251", "compiler", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, COMPILER, 2),
    ("TW252", "instance_type", {"instance_type": "ml.g6.xlarge", "compiler": ON}, COMPILER, 2),
    ("TW253", "image", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, image(), 2),
    ("TW253", "image", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, None, 2),
    ("TW253", "plan", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, image(origin="plan"), 2),
    ("TW253", "image", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, TENSORFLOW, 2),
    ("TW253", "image", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, tensorflow("2.12.0"), 2),
    ("TW254", "distribution.smdistributed", dist({"smdistributed": {"dataparallel": ON}}, compiler=ON), COMPILER, 2),
    ("TW254", "distribution.mpi", dist({"mpi": MPI}, compiler=ON), COMPILER, 2),
    ("TW254", "distribution.smdistributed", dist(DATA, compiler=ON), tensorflow("2.9.1"), 2),
    (
        "TW254",
        "distribution.multi_worker_mirrored_strategy",
        dist({"multi_worker_mirrored_strategy": ON}, compiler=ON),
        tensorflow("2.9.1"),
        2,
    ),
    ("TW254", "instance_groups", {"instance_type": None, "instance_groups": GROUPS[:1], "compiler": ON}, COMPILER, 2),
    ("TW255", "compiler", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, COMPILER, 2),
    ("TW256", "distribution.pytorchxla", dist({"pytorchxla": ON}), COMPILER, 2),
    ("TW257", "distribution", {"instance_type": "ml.p3.8xlarge", "compiler": ON}, COMPILER, 2),
    (
        "TW258",
        "environment.GPU_NUM_DEVICES",
        {"instance_type": "ml.p3.8xlarge", "compiler": ON, "environment": {"GPU_NUM_DEVICES": "8"}},
        COMPILER,
        2,
    ),
    (
        "TW259",
        "instance_type",
        {"instance_type": P3, "instance_count": 2, "compiler": ON, "distribution": {"pytorchxla": ON}},
        COMPILER,
        2,
    ),
    ("TW294", "image", {"image": DLC.replace("-training", "-inference")}, image(), 2),
    ("TW241", "image", {"image": "ghcr.io/team/training:1"}, image(), 2),
    ("TW241", "image", {"image": "123456789012.dkr.ecr.cn-north-1.amazonaws.com/team/training:1"}, image(), 2),
    ("TW241", "image", {"image": REFERENCE.replace("team", "Team")}, image(), 2),
    ("TW241", "image", {"image": REFERENCE.replace(":1", "@sha256:abc")}, image(), 2),
    ("TW294", "image", {"image": f"{DLC}-cu126-ubuntu22.04-ec2"}, image(), 2),
    ("TW294", "image", {"image": DLC.replace("-training", "-inference-graviton")}, image(), 2),
    ("TW241", "image", {"image": REFERENCE.replace(":1", ":my tag")}, image(), 2),
    ("TW241", "image", {"image": REFERENCE.replace(":1", ":feature/x")}, image(), 2),
    ("TW241", "image", {"image": REFERENCE.replace(":1", f":{'a' * 129}")}, image(), 2),
]


def test_an_unknown_image_may_extend_one_with_the_compiler(folder):
    """AWS's guide for the Training Compiler describes images that extend its containers."""
    findings = found(folder, {"instance_type": "ml.p3.2xlarge", "compiler": ON}, None)
    assert [each.severity for each in findings if each.code == "TW253"] == ["warning"]
    assert not [each for each in findings if each.severity == "error"]


@pytest.mark.parametrize(("code", "path", "changes", "facts", "sdk"), CASES)
def test_a_rule_speaks_at_the_key(folder, code, path, changes, facts, sdk):
    spoken_at(folder, code, path, changes, facts, sdk)
