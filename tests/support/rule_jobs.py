"""Good jobs, and what every rule says of one after a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainwright.core.findings import Finding
from trainwright.estimator.check import check
from trainwright.estimator.image import ImageFacts, facts_of_name
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.job import Job

REFERENCE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/team/training:1"
ON = {"enabled": True}
P3, P4, G5 = "ml.p3.16xlarge", "ml.p4d.24xlarge", "ml.g5.xlarge"
MPI = {"enabled": True, "processes_per_host": 8}
DATA = {"smdistributed": {"dataparallel": ON}}
TWO = {"instance_type": P4, "instance_count": 2}
PARTS = ("sagemaker-toolkit", "ssh", "mpi4py", "pytorch", "aws-ofi-nccl", "smdistributed-dataparallel")
GROUPS = [
    {"name": "gpu", "instance_type": P3, "instance_count": 2},
    {"name": "data", "instance_type": "ml.m5.xlarge", "instance_count": 1},
]
FSX = {"file_system_id": "fs-0123456789abcdef0", "file_system_type": "FSxLustre", "directory_path": "/abcd1234/train"}
# As in AWS's guide, "Adapt your training job to access images in a private Docker registry".
OWN = {
    "image": "registry.example.com/team/training:1",
    "region": "us-west-2",
    "registry": {"credentials_provider": "arn:aws:lambda:us-west-2:123456789012:function:credentials"},
    "subnets": ["subnet-1"],
    "security_group_ids": ["sg-1"],
}
KEY_ID = "ASIAIOSFODNN7EXAMPLE"
ISOLATED = {"network_isolation": True}
IN_S3 = {"model_dir": "s3://bucket/models"}


def image(**changes: Any) -> ImageFacts:
    components = {**dict.fromkeys(PARTS, "1 (test)"), "openmpi": "4.1.4 (debian)"}
    components["smdistributed-modelparallel"] = "1.7.0 (aws)"
    facts = {
        "reference": REFERENCE,
        "origin": "labels",
        "framework": "pytorch",
        "version": "1.10.2",
        "cuda": "11.3",
        "python": "3.8",
        "components": components,
    }
    return ImageFacts(**{**facts, **changes})


def without(*names: str, **versions: str) -> ImageFacts:
    components = {k: v for k, v in (image().components or {}).items() if k not in names}
    return image(components={**components, **versions})


def tensorflow(version: str) -> ImageFacts:
    return image(framework="tensorflow", version=version)


def old(framework: str, version: str) -> ImageFacts:
    """One of AWS's own containers."""
    return image(framework=framework, version=version, origin="name")


def wheel(cuda: str) -> ImageFacts:
    """PyTorch from the wheel for a version of CUDA."""
    return without(pytorch="2 (wheel)").replace(cuda=cuda)


TENSORFLOW = tensorflow("2.8.4")
COMPILER = image(framework="pytorch-trcomp", version="1.13.1", cuda="11.7")
BAKED = image(entry_point="train.py")
# Images by the version of the model parallel library in them; image() has 1.7.0.
OLDER, NEWER, SECOND = (
    without(**{"smdistributed-modelparallel": f"{version} (aws)"}) for version in ("1.5.0", "1.15.0", "2.4.0")
)
DLC = "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.6.0-gpu-py312"


def smp(launcher: dict[str, Any] | None = None, **parameters: Any) -> dict[str, Any]:
    launch = {"mpi": MPI} if launcher is None else launcher
    return {"smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}}, **launch}


def tuned(**changes: Any) -> dict[str, Any]:
    tuner = {"metric": "loss", "goal": "Minimize", "ranges": {"lr": {"min": 0.001, "max": 0.1}}}
    return {"metrics": {"loss": "loss=([0-9.]+)"}, "tuner": {**tuner, **changes}}


def ranged(**lr: Any) -> dict[str, Any]:
    return tuned(ranges={"lr": lr})


def dist(value: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**TWO, "distribution": value, **more}


def grouped(distribution: dict[str, Any]) -> dict[str, Any]:
    return {"instance_type": None, "instance_groups": GROUPS, "distribution": distribution}


def source_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the entry points of the jobs."""
    made = tmp_path_factory.mktemp("job")
    (made / "src").mkdir()
    (made / "src" / "train.py").touch()
    (made / "src" / "run.sh").touch()
    (made / "more").mkdir()
    (made / "more" / "train.py").touch()
    (made / "more" / "requirements.txt").write_text("torch\n")
    return made


LABELS = {
    "s3_data": "s3://b/labels.manifest",
    "s3_data_type": "AugmentedManifestFile",
    "input_mode": "Pipe",
    "attribute_names": ["source-ref", "class"],
}
# AWS's image of the second model parallel library: its components are not known.
SECOND_OF_AWS = facts_of_name(
    "658645717510.dkr.ecr.us-west-2.amazonaws.com/smdistributed-modelparallel:2.4.1-gpu-py311-cu121"
)


def found(folder: Path, changes: dict[str, Any], facts: ImageFacts | None, sdk: int = 2) -> list[Finding]:
    given = {
        "image": REFERENCE,
        "role": "arn:aws:iam::123456789012:role/training",
        "entry_point": "train.py",
        "source_dir": "src",
        "instance_type": G5,
        **changes,
    }
    job = Job(**{key: value for key, value in given.items() if value is not None})
    return check(Subject(job, facts, 3 if sdk == 3 else 2, folder, True))


def spoken_at(folder: Path, code: str, path: str, changes: dict[str, Any], facts: ImageFacts | None, sdk: int) -> None:
    """See that a rule speaks of a job, at the key of the job file that is wrong."""
    findings = found(folder, changes, facts, sdk)
    assert (code, path) in {(each.code, each.path) for each in findings}, findings
    assert all(each.remedy and each.source for each in findings)
