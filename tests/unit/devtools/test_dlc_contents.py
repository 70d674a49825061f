"""How the table of what AWS's Dockerfiles install is made from a facts file."""

from __future__ import annotations

import json
from typing import Any

import pytest

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


# Forms in which AWS's Dockerfiles name packages: those of 2.13, 2.7, 2.0, 1.13 and 1.12 in the facts.
@pytest.mark.parametrize(
    ("changes", "also"),
    [
        ({}, {}),
        (
            {
                "torch": {
                    "pip_specs": ["torch==2.13.0", "torchvision==0.28.0", "torchaudio==2.11.0"],
                    "torchvision_wheel": {
                        "url": "https://x.org/whl/cu130/torchvision-0.28.0%2Bcu130-cp312-cp312-l.whl"
                    },
                },
                "flash_attn": "2.8.3",
                "transformer_engine": "2.17.0",
                "deepspeed": "0.19.2",
            },
            {
                "torchvision": "0.28.0",
                "torchaudio": "2.11.0",
                "flash-attn": "2.8.3",
                "transformer-engine": "2.17.0",
                "deepspeed": "0.19.2",
            },
        ),
        (
            {
                "torch": {"pip_specs": ["torchdata==0.11.0", "flash-attn==2.7.4.post1"]},
                "flash_attn": "flash-attn==2.7.4.post1",
                "transformer_engine": "git+https://github.com/NVIDIA/TransformerEngine.git@release_v2.3",
            },
            {"flash-attn": "2.7.4.post1", "transformer-engine": "2.3"},
        ),
        ({"torch": {"conda_specs": ["pytorch=2.0.1", "torchvision", "torchtext"]}}, {"torchvision": ""}),
        (
            {
                "torch": {
                    "torchvision_wheel": "https://torchvision-build.s3.x/gpu/torchvision-0.7.0a0%2B78-cp36-cp36m.whl"
                }
            },
            {"torchvision": "0.7.0a0"},
        ),
        ({"flash_attn": "flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-l.whl"}, {"flash-attn": "2.8.3"}),
        (
            {
                "flash_attn": "https://github.com/HazyResearch/flash-attention.git@1d0b41be3b0f",
                "other_wheels": ["https://aws-deepspeed-zero-2d-binaries.s3.x/r1.12.1/deepspeed-0.6.1%2Bb3-py3.whl"],
            },
            {"flash-attn": "", "deepspeed": "0.6.1"},
        ),
    ],
)
def test_what_else_an_entry_names_is_only_quoted(changes: dict[str, Any], also: dict[str, str]) -> None:
    found = row(**changes)
    assert dict(found.also) == also
    assert found.components == row().components


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
