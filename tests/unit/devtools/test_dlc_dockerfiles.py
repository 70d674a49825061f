"""AWS's Dockerfiles are read from the history of a clone: here one made by this test, in the shape of AWS's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from devtools.dlc_contents import filled
from devtools.dlc_dockerfiles import Dockerfiles, contents_of
from trainwright.sagemaker.dlc import PublishedImage, load_dlc
from trainwright.sagemaker.dlc_contents import load_contents

# The shape of pytorch/training/docker/2.0/py3/cu118/Dockerfile.gpu at 614c621f.
GPU = """\
ARG PYTORCH_VERSION_EC2=2.0.1
ARG PYTORCH_VERSION_SM={version}
ARG SMD_MODEL_PARALLEL_URL=https://bucket.example/smdistributed_modelparallel-1.15.0-cp310-cp310-linux_x86_64.whl
FROM nvidia/cuda:11.8.0-base-ubuntu20.04 AS base_image
ENV EFA_VERSION={efa}
ENV OMPI_VERSION=4.1.5
FROM base_image AS common
# mpi4py==1.0
RUN apt-get install -y openssh-server
FROM common AS ec2
RUN pip install torchvision==0.1.0 rapids && curl -O https://boost.example/boost_1_60_0.tar.gz
FROM common AS sagemaker
RUN mamba install -y torchvision torchtext aws-ofi-nccl \\
 && pip install mpi4py==3.1.4 sagemaker-pytorch-training
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with one Dockerfile at three commits; the second has the image's version, and so has the first."""

    def git(*words: str, day: str = "2023-01-01") -> None:
        own = {"GIT_AUTHOR_DATE": f"{day}T00:00:00", "GIT_COMMITTER_DATE": f"{day}T00:00:00"}
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        argv = ["git", "-C", str(tmp_path), *who, *words]
        subprocess.run(argv, check=True, capture_output=True, env={**os.environ, **own})

    file = tmp_path / "pytorch/training/docker/2.0/py3/cu118/Dockerfile.gpu"
    file.parent.mkdir(parents=True)
    git("init", "--initial-branch=master")
    for version, efa, day in (
        ("2.0.0", "1.20.0", "2023-03-01"),
        ("2.0.0", "1.21.0", "2023-04-01"),
        ("2.0.1", "1.22.0", "2024-01-01"),
    ):
        file.write_text(GPU.format(version=version, efa=efa))
        git("add", ".")
        git("commit", "-m", day, day=day)
    git("branch", "main")
    return tmp_path


def image(tag: str = "2.0.0-gpu-py310") -> PublishedImage:
    return next(each for each in load_dlc().images if each.tag == tag and each.repository == "pytorch-training")


def test_the_last_dockerfile_of_a_version_counts(clone):
    found = Dockerfiles(clone).of(image())
    assert found
    assert (found.path, str(found.date)) == ("pytorch/training/docker/2.0/py3/cu118/Dockerfile.gpu", "2023-04-01")
    assert dict(found.components) == {
        "openmpi": "4.1.5",
        "efa": "1.21.0",
        "aws-ofi-nccl": "",
        "mpi4py": "3.1.4",
        "smdistributed-modelparallel": "1.15.0",
        "ssh": "",
        "sagemaker-toolkit": "",
    }
    assert dict(found.also) == {"torchvision": ""}
    assert Dockerfiles(clone).of(image("2.1.0-gpu-py310-cu121-ubuntu20.04-sagemaker")) is None


def test_what_is_known_stays(clone):
    known = load_contents().images
    other = next(row for row in known if row.version == "2.0.1")
    rows = filled([other], [image(), image("2.0.1-gpu-py310-cu118-ubuntu20.04-sagemaker")], Dockerfiles(clone))
    assert [row.version for row in rows] == ["2.0.0", "2.0.1"]
    assert rows[1] is other


@pytest.mark.parametrize(
    ("text", "says"),
    [
        # As pytorch/training/docker/1.10/py3/Dockerfile.sagemaker.cpu: an image of AWS's own, which has the rest.
        ("ARG E3\nFROM $E3 AS sagemaker\nRUN pip install sagemaker-training\n", None),
        ("FROM ubuntu:20.04\nARG METIS=metis-5.1.0\n", {"metis": "5.1.0"}),
        ("FROM ubuntu:20.04 AS base\nFROM base AS sagemaker\nRUN git clone https://x/METIS.git\n", {"metis": ""}),
        ("FROM ubuntu:18.04\nRUN wget https://x/boost_1_73_0.tar.gz\n", {"boost": "1.73.0"}),
        ("FROM ubuntu:18.04\nARG BRANCH_OFI=1.1.3-aws\nRUN cd aws-ofi-nccl \n", {"aws-ofi-nccl": "1.1.3"}),
    ],
)
def test_what_a_dockerfile_says(text: str, says: dict[str, str] | None) -> None:
    found = contents_of(text)
    components = None if found is None else dict(found["components"])
    assert components == says
