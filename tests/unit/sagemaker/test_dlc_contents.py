"""What AWS's Dockerfiles say of its containers. Expected values were read in aws/deep-learning-containers itself."""

from __future__ import annotations

import pytest

from trainwright.sagemaker.dlc_contents import contents_of, load_contents


@pytest.mark.parametrize(
    ("image", "has"),
    [
        # pytorch/training/docker/1.10/py3/cu113/Dockerfile.{ec2,sagemaker}.gpu at 1bd45be7: EFA_VERSION=1.15.2,
        # OMPI_VERSION=4.1.1, BRANCH_OFI=1.2.0-aws, mpi4py==3.0.3, the two wheels of smdistributed.
        (
            "pytorch-training:1.10.2-gpu-py38-cu113-ubuntu20.04-sagemaker",
            {
                "efa": "1.15.2",
                "openmpi": "4.1.1",
                "aws-ofi-nccl": "1.2.0",
                "mpi4py": "3.0.3",
                "smdistributed-modelparallel": "1.11.2",
                "smdistributed-dataparallel": "1.4.3",
            },
        ),
        # tensorflow/training/docker/2.6/py3/cu112/Dockerfile.gpu at e3e3c6bb
        (
            "tensorflow-training:2.6.3-gpu-py38-cu112-ubuntu20.04",
            {"smdistributed-modelparallel": "1.4.0", "smdistributed-dataparallel": "1.2.1", "nccl": "2.8.4"},
        ),
        # docker/pytorch/2.13/cuda/uv.lock at e0ecedea: sagemaker-training 5.1.1
        ("pytorch:2.13.0-cu133-amzn2023-sagemaker", {"sagemaker-toolkit": "5.1.1"}),
        # docker/pytorch/2.13/cpu/uv.lock at e0ecedea
        ("pytorch:2.13.0-cpu-amzn2023-sagemaker", {"mpi4py": "4.1.1", "sagemaker-toolkit": "5.1.1"}),
        # docker/tensorflow/2.21/cuda/uv.lock at bd790b3b
        ("tensorflow-training:2.21.0-gpu-py312-cu129-amzn2023-sagemaker", {"mpi4py": "4.1.1"}),
    ],
)
def test_what_is_in_an_image(image: str, has: dict[str, str]) -> None:
    found = contents_of(f"763104351884.dkr.ecr.us-west-2.amazonaws.com/{image}")
    assert found is not None
    assert has.items() <= found.components.items()


@pytest.mark.parametrize(
    ("image", "also"),
    [
        # docker/pytorch/2.13/{cuda,cpu}/uv.lock and .github/config/image/pytorch/2.13-sagemaker-cuda.yml at f1e622e4
        (
            "pytorch:2.13.0-cu133-amzn2023-sagemaker",
            {
                "torchvision": "0.28.0",
                "torchaudio": "2.11.0",
                "flash-attn": "2.8.3",
                "transformer-engine": "2.17.0",
                "deepspeed": "0.19.2",
            },
        ),
        (
            "pytorch:2.13.0-cpu-amzn2023-sagemaker",
            {"torchvision": "0.28.0", "torchaudio": "2.11.0", "deepspeed": "0.19.2"},
        ),
        # pytorch/training/docker/2.8/py3/cu129/Dockerfile.gpu at 9efd525e
        (
            "pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker",
            {"torchvision": "0.23.0", "torchaudio": "2.8.0", "flash-attn": "2.8.3", "transformer-engine": "2.5"},
        ),
        ("tensorflow-training:2.21.0-gpu-py312-cu129-amzn2023-sagemaker", {}),
        # pytorch/training/docker/2.4/py3/Dockerfile.cpu at aaec0c0e
        ("pytorch-training:2.4.0-cpu-py311", {"torchvision": "0.19.0", "torchaudio": "2.4.0"}),
        # pytorch/training/docker/1.9/py3/cu111/Dockerfile.gpu at 965040cb
        ("pytorch-training:1.9.0-gpu-py38", {"torchvision": "0.10.0"}),
    ],
)
def test_what_is_quoted_beside_it(image: str, also: dict[str, str]) -> None:
    found = contents_of(image)
    assert found is not None
    assert dict(found.also) == also
    assert all(f"{name} {version}" in found.listed for name, version in also.items())


@pytest.mark.parametrize("version", ["2.11.0-cu130", "2.12.1-cu130", "2.13.0-cu133"])
def test_the_gpu_locks_of_2026_have_no_mpi4py(version: str) -> None:
    # `grep -c mpi4py docker/pytorch/{2.11,2.12,2.13}/cuda/uv.lock` at e0ecedea: 0
    found = contents_of(f"pytorch:{version}-amzn2023-sagemaker")
    assert found is not None
    assert "mpi4py" not in found.components


@pytest.mark.parametrize("name", ["pytorch:2.13.0", "ubuntu:22.04", "pytorch-training:1.10.2-cpu-py38", "x"])
def test_of_other_images_nothing_is_known(name: str) -> None:
    assert contents_of(name) is None


def test_every_row_names_its_file_and_commit() -> None:
    rows = load_contents().images
    assert len({(row.repository, row.version, row.cuda) for row in rows}) == len(rows) > 40
    assert all(row.path.rpartition("/")[2].startswith("Dockerfile") and len(row.commit) >= 10 for row in rows)
