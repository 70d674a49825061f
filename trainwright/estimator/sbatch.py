"""A job as a script for Slurm, whose containers Pyxis and Enroot start.

Sources: aws-samples/awsome-distributed-training 7217859 (``3.test_cases/pytorch/FSDP/slurm``, ``ddp/slurm``);
NVIDIA/pyxis 1075199 (README: mounts, which variables win); NVIDIA/enroot 8ea147d (``docker.sh``: forms of addresses;
``98-nvidia.sh``).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from trainwright.estimator.cluster_job import CODE, OUTPUT_DATA, ClusterJob, Mount, cluster_job, source_folder
from trainwright.estimator.create_training_job import MODEL_DIR, program
from trainwright.estimator.manifest import comments
from trainwright.estimator.subject import Subject
from trainwright.estimator.volumes import OWN_VOLUMES
from trainwright.sagemaker.job_parts import FileSystem

PORT = 29400  # torchrun's own default for a rendezvous (torch.distributed.run)
# Interfaces between containers and a host, as AWS's examples leave them out.
INTERFACES = "^docker,lo,veth"


def script(subject: Subject) -> str:
    """Return the script of a checked job, for sbatch."""
    job = cluster_job(subject)
    lines = [
        "#!/bin/bash",
        f"# The training job {job.name} for Slurm with Pyxis and Enroot. Written by Trainwright.",
        "# Start it: sbatch FILE. Folders must be the same on every host; IMAGE may be a squashfs file.",
        f"# Each host must be {job.kind.name.removeprefix('ml.')}, or have {job.kind.gpus} GPUs as well: "
        "choose a partition or a --constraint.",
        *(f"# {line}" for line in comments(subject, "slurm")),
        f"#SBATCH --job-name={job.name}",
        f"#SBATCH --nodes={job.hosts}",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --exclusive",
        "#SBATCH --wait-all-nodes=1",
        f"#SBATCH --time={duration(subject.job.max_run)}",
        "#SBATCH --output=%x-%j.log",
        "set -euo pipefail",
        "",
        *_defaults(subject, job),
        "",
        *_mounts(subject, job),
        "",
        *(f"export {name}={shlex.quote(value)}" for name, value in _environment(job).items()),
        'mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        'printf -v listed \'"%s",\' "${hosts[@]}"',
        'export SM_HOSTS="[${listed%,}]"',
        "",
        "# HyperPod replaces a host that failed and starts the step again.",
        "resume=()",
        "if [ -d /opt/sagemaker_cluster ]; then resume=(--auto-resume=1); fi",
        "",
        *_start(job),
    ]
    return "\n".join(lines) + "\n"


def duration(seconds: int) -> str:
    """Return seconds as sbatch reads a time: days-hours:minutes:seconds."""
    minutes, left = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{left:02}"


def image_address(reference: str) -> str:
    """Return an image's address as Enroot reads it: a # behind the registry; a digest needs Enroot 4."""
    registry, slash, rest = reference.partition("/")
    return f"{registry}#{rest}" if slash and re.search("[.:]", registry) else reference


def channel_variable(mount: Mount) -> str:
    """Return the name of the shell's variable with the folder of a channel."""
    return "CHANNEL_" + re.sub("[^A-Z0-9]", "_", mount.name.upper())


def _defaults(subject: Subject, job: ClusterJob) -> Iterator[str]:
    yield _default("IMAGE", image_address(job.image))
    if not job.baked:
        yield _default("CODE", str(source_folder(subject)))
    yield 'OUTPUT="${OUTPUT:-$PWD/$SLURM_JOB_NAME-$SLURM_JOB_ID}"'
    if subject.job.checkpoint:
        yield 'CHECKPOINTS="${CHECKPOINTS:-$PWD/$SLURM_JOB_NAME-checkpoints}"'
    for mount in _channels(job):
        name, source = channel_variable(mount), mount.source
        if isinstance(source, FileSystem):
            what = f"the folder {source.directory_path} of {source.file_system_id}"
        else:
            what = f"the folder with a copy of {source}, as aws s3 sync makes it"
        complaint = shlex.quote(f"{name} must be {what}")
        yield f'[ -n "${{{name}:-}}" ] || {{ echo {complaint} >&2; exit 2; }}'


def _mounts(subject: Subject, job: ClusterJob) -> Iterator[str]:
    pairs = [("$OUTPUT/model", MODEL_DIR, ""), ("$OUTPUT/data", OUTPUT_DATA, "")]
    made = ['"$OUTPUT/model"', '"$OUTPUT/data"']
    if subject.job.checkpoint:
        pairs.append(("$CHECKPOINTS", subject.job.checkpoint.local_path, ""))
        made.append('"$CHECKPOINTS"')
    if not job.baked:
        file = "" if subject.job.source_dir else f"/{program(subject)}"
        pairs.append((f"$CODE{file}", f"{CODE}{file}", ""))
    pairs += [(f"${channel_variable(each)}", each.path, "" if each.writable else ":ro") for each in _channels(job)]
    yield f"mkdir -p {' '.join(made)}"
    yield f'mounts="{",".join(f"{source}:{target}{flags}" for source, target, flags in pairs)}"'


def _environment(job: ClusterJob) -> dict[str, str]:
    # Enroot gives a container the GPUs that this variable names.
    made = {"NVIDIA_VISIBLE_DEVICES": "all" if job.kind.gpus else "void"}
    made |= {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"} if job.kind.gpus else {}
    return made | ({"NCCL_SOCKET_IFNAME": INTERFACES} if job.hosts > 1 else {}) | dict(job.environment)


def _start(job: ClusterJob) -> Iterator[str]:
    names = ",".join([*_environment(job), "SM_HOSTS"])
    words = [shlex.quote(word) for word in (job.script if job.together else job.command)]
    if job.together:
        where = f'--rdzv_endpoint="${{hosts[0]}}:{PORT}"'
        words = [
            f'torchrun --nnodes="$SLURM_JOB_NUM_NODES" --nproc_per_node={job.processes}',
            f'--rdzv_backend=c10d --rdzv_id="$SLURM_JOB_ID" {where}',
            *words,
        ]
    # What the image sets wins over exported variables, except for those of --container-env.
    yield 'srun "${resume[@]}" --label --kill-on-bad-exit=1 \\'
    yield '    --container-image="$IMAGE" --container-mounts="$mounts" --container-workdir=/opt/ml/code \\'
    yield f"    --container-writable --no-container-entrypoint --container-env={names} \\"
    yield '    sh -c \'export SM_CURRENT_HOST="$SLURMD_NODENAME"; exec "$@"\' start \\'
    yield "    " + " ".join(words)


def _channels(job: ClusterJob) -> list[Mount]:
    return [each for each in job.mounts if each.name not in OWN_VOLUMES]


def _default(name: str, value: str) -> str:
    return f'[ -n "${{{name}:-}}" ] || {name}={shlex.quote(value)}'
