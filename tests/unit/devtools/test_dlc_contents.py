"""How the table of what AWS's Dockerfiles install is made from a facts file."""

from __future__ import annotations

import json
from typing import Any

from devtools.dlc_contents import contents_of_facts, contents_text

ENTRY: dict[str, Any] = {
    "id": "one",
    "framework": "pytorch",
    "framework_version": "1.10.2",
    "cuda_tag": "cu113",
    "source": {"branch": "master", "path": "a/Dockerfile.gpu", "commit": "0" * 40, "date": "2022-03-04"},
    "efa": {"version": "1.12.1"},
    "openmpi": {"version": "4.1.7 and 5.0.8 (carried forward)"},
    "aws_ofi_nccl": {"version": "1.1.3-aws"},
    "nccl": "unpinned (apt latest)",
    "mpi4py": "mpi4py>=3.1.4,<3.2",
    "smdistributed": {"modelparallel": {"version": "1.7.0"}},
}


def row(**changes: Any) -> Any:
    facts = {"pytorch_sagemaker_gpu": [ENTRY | changes]}
    return next(each for each in contents_of_facts(facts) if each.version == "1.10.2")


def test_names_and_versions_are_ours() -> None:
    assert row().repository == "pytorch-training"
    assert row(source=ENTRY["source"] | {"branch": "main"}).repository == "pytorch"
    assert dict(row().components) == {
        "efa": "1.12.1",
        "openmpi": "4.1.7",
        "nccl": "",
        "aws-ofi-nccl": "1.1.3",
        "mpi4py": "",
        "ssh": "",
        "sagemaker-toolkit": "",
        "smdistributed-modelparallel": "1.7.0",
    }
    assert row(mpi4py="mpi4py==3.0.3").components["mpi4py"] == "3.0.3"
    assert row(locked={"sagemaker-training": "5.1.1"}).components["sagemaker-toolkit"] == "5.1.1"


def test_the_latest_dockerfile_of_an_image_counts() -> None:
    later = ENTRY | {"source": ENTRY["source"] | {"date": "2022-09-20"}, "efa": {"version": "1.15.2"}}
    for entries in ([ENTRY, later], [later, ENTRY]):
        rows = contents_of_facts({"pytorch_sagemaker_gpu": entries})
        (found,) = [each for each in rows if each.version == "1.10.2"]
        assert (found.date.isoformat(), found.components["efa"]) == ("2022-09-20", "1.15.2")


def test_a_line_of_the_file_is_an_image() -> None:
    rows = contents_of_facts({"pytorch_sagemaker_gpu": [ENTRY]})
    text = contents_text(rows)
    assert len(text.splitlines()) == len(rows) + 2
    assert len(json.loads(text)["images"]) == len(rows)
