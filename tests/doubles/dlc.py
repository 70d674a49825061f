"""Stand-ins with the shape of AWS's Deep Learning Containers for SageMaker training, one of each generation.

Their shape is that of AWS's own files in aws/deep-learning-containers; the lines are ours, and small packages stand for
large ones (PyTorch for CPUs, the distribution's Open MPI; no CUDA, EFA or smdistributed library).

- ``conda``: ``pytorch/training/docker/1.10/py3/cu113/Dockerfile.ec2.gpu`` and ``Dockerfile.sagemaker.gpu`` at 1bd45be7
  (2023-08-10). Python and every package in ``/opt/conda``, ``pip3`` as a link in ``/usr/local/bin``.
- ``system``: ``pytorch/training/docker/2.9/py3/cu130/Dockerfile.gpu`` at 959ce8a4 (2026-07-30). Packages of the
  system's Python, below ``/usr/local``.
- ``uv``: ``docker/pytorch/Dockerfile.cuda`` and ``scripts/docker/common/install_efa_amzn2023.sh`` at e0ecedea
  (2026-08-21). ``/opt/venv``, no mpi4py, ``WORKDIR /workspace``.

All of them: ``ENTRYPOINT ["bash", "-m", "start_with_right_hostname.sh"]``, a script that evaluates its arguments;
``mpirun`` is a script around ``mpirun.real`` that allows root; ``/etc/nccl.conf``; host keys in a layer, which
openssh-server's postinst or ``ssh-keygen -A`` made; one key pair of root that trusts itself;
``StrictHostKeyChecking no``.

What is not as there: the distribution (Debian), the compiled shim of host names, telemetry, CUDA's compatibility.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import docker

GENERATIONS = ("conda", "system", "uv")
PYTHON = "python3.11"
# A command that is not `train` is evaluated; `train` is a child of bash, which hands no signal on.
START = """\
#!/usr/bin/env bash
python -c 'import torch' > /dev/null
if [[ $1 = train ]]; then
    train
else
    eval "$@"
fi
"""
MPIRUN = """\
#!/bin/bash
/opt/amazon/openmpi/bin/mpirun.real --allow-run-as-root "$@"
"""
# Everything that Trainwright's image has and AWS's have not goes; what AWS's have comes.
SHAPE = """\
rm -rf /opt/metis /etc/trainwright /usr/local/bin/training-init /opt/ml /etc/ssh/ssh_config.d/sagemaker.conf \
    /etc/ssh/sshd_config.d/sagemaker.conf /usr/lib/openssh/job-hosts /usr/lib/openssh/root-key /usr/sbin/sshd \
    /opt/venv/lib/*/site-packages/gpu_num_devices*
dpkg-divert --quiet --rename --remove /usr/sbin/sshd
mkdir -p /run/sshd /root/.ssh /opt/amazon/openmpi/bin /opt/amazon/openmpi/etc /opt/ml/code /opt/ml/model
ssh-keygen -A > /dev/null
ssh-keygen -q -t rsa -N '' -f /root/.ssh/id_rsa
cp /root/.ssh/id_rsa.pub /root/.ssh/authorized_keys
printf 'Host *\\n    StrictHostKeyChecking no\\n' > /root/.ssh/config
ln -s /usr/bin/orterun /opt/amazon/openmpi/bin/mpirun.real
rm -f /usr/bin/mpirun /usr/bin/mpiexec
install -m 755 /shape/mpirun /opt/amazon/openmpi/bin/mpirun
printf 'NCCL_DEBUG=INFO\\nNCCL_SOCKET_IFNAME=^docker0\\n' > /etc/nccl.conf
install -m 755 /shape/start /usr/local/bin/start_with_right_hostname.sh
rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
"""
PLACES = {
    "conda": f"""\
mv /opt/venv /opt/conda
mkdir -p /opt/conda/conda-meta
touch /opt/conda/conda-meta/history
sed -i '1s|^#!/opt/venv/|#!/opt/conda/|' $(grep -lI '^#!/opt/venv/' /opt/conda/bin/*)
ln -s /opt/conda/bin/pip /usr/local/bin/pip3
/opt/conda/bin/{PYTHON} -c 'import torch'
""",
    "system": f"""\
mkdir -p /usr/local/lib/{PYTHON}/dist-packages
cp -a /opt/venv/lib/{PYTHON}/site-packages/. /usr/local/lib/{PYTHON}/dist-packages/
sed -i '1s|^#!/opt/venv/bin/python.*|#!/usr/bin/python3|' $(grep -lI '^#!/opt/venv/' /opt/venv/bin/*)
cp $(grep -lI '^#!/usr/bin/python3' /opt/venv/bin/*) /usr/local/bin/
ln -s /usr/bin/python3 /usr/local/bin/python
rm -rf /opt/venv
/usr/bin/python3 -c 'import torch'
""",
    "uv": f"rm -rf /opt/venv/lib/{PYTHON}/site-packages/mpi4py*\nmkdir -p /workspace\n",
}
ROOT_PATH = "/opt/amazon/openmpi/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FIRST = {"conda": "/opt/conda/bin:", "system": "", "uv": "/opt/venv/bin:"}


def make_dlc(generation: str, image: str, tag: str, folder: Path, client: str = "docker") -> None:
    """Build a stand-in.

    Args:
        generation: one of :data:`GENERATIONS`.
        image: Trainwright's CPU image, which has the packages.
        tag: of the stand-in.
        folder: for the build context.
        client: the engine's command line client.

    Raises:
        subprocess.CalledProcessError: the build failed.
        docker.errors.APIError: the engine does not take the image's other configuration.
    """
    files = {"mpirun": MPIRUN, "start": START, "shape.sh": f"set -eux\n{SHAPE}{PLACES[generation]}"}
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "Dockerfile").write_text(f"FROM {image}\nCOPY . /shape/\nRUN sh /shape/shape.sh && rm -r /shape\n")
    made = f"{tag.rpartition(':')[0]}:made"
    build = [client, "build", "--quiet", "--tag", made, str(folder)]
    subprocess.run(build, check=True, env={**os.environ, "DOCKER_BUILDKIT": "1"})
    engine = docker.from_env(timeout=300)
    try:
        engine.images.load(_reconfigured(engine.api.inspect_image(made), tag, generation))
        engine.images.remove(made)
    finally:
        engine.close()


def _reconfigured(made: dict[str, Any], tag: str, generation: str) -> bytes:
    """What `docker load` reads: the layers of an image, by their digests, without its labels and variables."""
    variables = {
        "PATH": FIRST[generation] + ROOT_PATH,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "DLC_CONTAINER_TYPE": "training",
        "SAGEMAKER_TRAINING_MODULE": "sagemaker_pytorch_container.training:main",
    }
    layers = made["RootFS"]["Layers"]
    config = {
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "Labels": {"maintainer": "Amazon AI", "framework": "pytorch"},
        "WorkingDir": "/workspace" if generation == "uv" else "/",
        "Entrypoint": ["bash", "-m", "start_with_right_hostname.sh"],
        "Cmd": ["/bin/bash"],
    }
    kept = {"architecture": made["Architecture"], "os": made["Os"], "created": made["Created"]}
    documents = {
        "config.json": {**kept, "config": config, "rootfs": {"type": "layers", "diff_ids": layers}},
        # The engine has these layers, so it does not ask for the files.
        "manifest.json": [{"Config": "config.json", "RepoTags": [tag], "Layers": [f"{each}.tar" for each in layers]}],
    }
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as packed:
        for name, document in documents.items():
            data = json.dumps(document).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    return archive.getvalue()
