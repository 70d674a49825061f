"""Jobs for clusters: what a manifest holds, and programs of Slurm that run a script's steps on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.estimator_jobs import ON, facts
from trainwright.core.records import parse_record
from trainwright.estimator.image import ImageFacts
from trainwright.estimator.manifest import Operator, manifest
from trainwright.estimator.subject import Cluster, Subject
from trainwright.sagemaker.job import Job

IMAGE = f"123456789012.dkr.ecr.us-west-2.amazonaws.com/team/training@sha256:{'a' * 64}"
FSX = {"file_system_id": "fs-0123456789abcdef0", "file_system_type": "FSxLustre", "directory_path": "/abcd1234/train"}
EFS = {"file_system_id": "fs-0123456789abcdef1", "file_system_type": "EFS", "directory_path": "/train"}
TORCH = {"torch_distributed": ON}
P5 = {"instance_type": "ml.p5.48xlarge", "instance_count": 2}

# Of Slurm and Pyxis: a step's command runs once for each host, in the folder that is mounted at its working folder.
SRUN = """\
import json, os, subprocess, sys
words = sys.argv[1:]
options = {}
while words[0].startswith("--"):
    name, _, value = words.pop(0).partition("=")
    options[name] = value
mounts = [each.split(":") for each in options["--container-mounts"].split(",")]
inside = options["--container-workdir"]
source = next((m[0] for m in mounts if m[1] == inside), None) or next(
    os.path.dirname(m[0]) for m in mounts if m[1].startswith(inside)
)
assert all(os.path.exists(m[0]) for m in mounts), mounts
with open(os.path.join(os.environ["RECORD"], "srun.json"), "w") as file:
    json.dump(options, file)
codes = [
    subprocess.run(words, cwd=source, env={**os.environ, "SLURMD_NODENAME": host}).returncode
    for host in os.environ["SLURM_JOB_NODELIST"].split(",")
]
sys.exit(max(codes))
"""
SCONTROL = 'import os, sys\nassert sys.argv[1:3] == ["show", "hostnames"]\nprint(*sys.argv[3].split(","), sep="\\n")\n'
# Notes what arrives at a host.
NOTE = """\
import json, os, sys
record = {"argv": sys.argv[1:], "folder": sorted(os.listdir()), "environment": dict(os.environ)}
with open(os.path.join(os.environ["RECORD"], os.environ["SLURMD_NODENAME"] + ".json"), "w") as file:
    json.dump(record, file)
"""


def cluster_subject(folder: Path, cluster: Cluster, known: ImageFacts | None = None, **given: Any) -> Subject:
    """A good job for a cluster, whose code is a script in ``folder/src``, with changes."""
    (folder / "src").mkdir(exist_ok=True)
    if not (folder / "src" / "train.py").exists():
        (folder / "src" / "train.py").write_text("print('trained')\n")
    good = {"image": IMAGE, "entry_point": "train.py", "source_dir": "src", "distribution": TORCH, **P5}
    good |= {"output": "s3://bucket/out"}
    usual = facts(components={"pytorch": "2.6.0 (wheel)", "aws-ofi-nccl": "1.16 (source)"})
    job = parse_record(Job, good | given, "job")
    return Subject(job, known or usual, folder=folder, generates=True, cluster=cluster)


def documents(folder: Path, kind: Operator, **given: Any) -> list[dict[str, Any]]:
    """The resources of a job's manifest."""
    return list(yaml.safe_load_all(manifest(cluster_subject(folder, kind, **given), kind)))


def pod_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The pod of a manifest's job."""
    spec = documents[-1]["spec"]
    replicas = spec["replicaSpecs"][0] if "replicaSpecs" in spec else next(iter(spec["pytorchReplicaSpecs"].values()))
    pod: dict[str, Any] = replicas["template"]["spec"]
    return pod


def variables(pod: Mapping[str, Any]) -> dict[str, str]:
    """The variables of a pod's container that have a value of their own, as the container sees them."""
    return {each["name"]: expanded(each["value"]) for each in pod["containers"][0]["env"] if "value" in each}


def expanded(text: str, known: Mapping[str, str] | None = None) -> str:
    """What Kubernetes makes of a text in a command or a variable.

    By kubernetes/kubernetes, third_party/forked/golang/expansion/expand.go: ``$$`` is one ``$``, ``$(NAME)`` the value
    of a variable, or the reference itself if the variable is not set; any other ``$`` stays.
    """
    made, rest = "", text
    while rest:
        if rest.startswith("$$"):
            made, rest = f"{made}$", rest[2:]
        elif rest.startswith("$(") and ")" in rest:
            name, _, rest = rest[2:].partition(")")
            made += (known or {}).get(name, f"$({name})")
        else:
            made, rest = made + rest[0], rest[1:]
    return made


def run_script(text: str, folder: Path, hosts: tuple[str, ...], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as sbatch would on its first host; what each host got is in ``folder/record``."""
    programs = folder / "bin"
    for made in (programs, folder / "record"):
        made.mkdir(exist_ok=True)
    for name, source in (("srun", SRUN), ("scontrol", SCONTROL), ("torchrun", NOTE), ("python", NOTE)):
        (programs / name).write_text(f"#!{sys.executable}\n{source}")
        (programs / name).chmod(0o755)
    (folder / "job.sbatch").write_text(text)
    variables = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "RECORD": str(folder / "record"),
        "SLURM_JOB_NODELIST": ",".join(hosts),
        "SLURM_JOB_NUM_NODES": str(len(hosts)),
        "SLURM_JOB_ID": "42",
        "SLURM_JOB_NAME": "training",
    }
    return subprocess.run(
        ["bash", "job.sbatch"], cwd=folder, env=variables | environment, capture_output=True, text=True, check=False
    )


def noted(folder: Path, name: str) -> dict[str, Any]:
    """What a host, or srun, noted of itself."""
    made: dict[str, Any] = json.loads((folder / "record" / f"{name}.json").read_text())
    return made
