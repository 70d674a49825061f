"""The manifest of a job for Kubernetes: Kubeflow's PyTorchJob on Amazon EKS, or HyperPod's HyperPodPyTorchJob.

Sources of what is written: kubeflow/training-operator v1.9.0 (CRD, ``pkg/controller.v1/pytorch``, webhook);
aws/sagemaker-hyperpod-cli 011ca92 (``hyperpod_pytorch_job_unified_config.py``, ``command_constants.py``); AWS's
developer guide, "Using the training operator to run jobs"; aws-samples/awsome-distributed-training 7217859
(``3.test_cases/pytorch/FSDP/kubernetes``, ``micro-benchmarks/nccl-tests/kubernetes``).
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Literal

from trainwright.estimator import config_map, volumes
from trainwright.estimator.cluster_job import CODE, ClusterJob, cluster_job, host_names, replica, source_files
from trainwright.estimator.create_training_job import region_of
from trainwright.estimator.not_carried import omissions
from trainwright.estimator.subject import Subject
from trainwright.user.files import FoundFile

Operator = Literal["pytorchjob", "hyperpod"]
HUGE_PAGES = "5120Mi"  # 2 MiB pages for EFA's buffers: AWS's nccl-tests.yaml and the guide of HyperPod's operator
MEMORY = "32000Mi"  # likewise; Kubernetes wants a request for memory or processors beside one for huge pages
AGENT_PORT = 8080  # HyperPod's elastic agent listens there (the guide; hyperpod-elastic-agent 1.1.3, run.py)
HEALTH = "sagemaker.amazonaws.com/node-health-status"
DEEP_HEALTH = "sagemaker.amazonaws.com/deep-health-check-status"
NAME_LABEL = "app.kubernetes.io/name"
_TITLES = {
    "pytorchjob": "a PyTorchJob for Kubeflow's Training Operator 1.9 on Amazon EKS",
    "hyperpod": "a HyperPodPyTorchJob for the training operator of SageMaker HyperPod on Amazon EKS",
}


def manifest(subject: Subject, kind: Operator) -> str:
    """Return the manifest of a checked job as YAML: the resource, and the volumes and the code that it needs.

    Raises:
        OSError: a file of the code cannot be read.
    """
    job = cluster_job(subject)
    files = [] if job.baked else source_files(subject)
    parts = [*volumes.claims(job, region_of(subject))]
    if files:
        parts.append(config_map.config_map(f"{job.name}-code", files))
    parts.append(_hyperpod(subject, job, files) if kind == "hyperpod" else _pytorchjob(subject, job, files))
    return _head(subject, kind, job) + "---\n".join(as_yaml(part) for part in parts)


def _pytorchjob(subject: Subject, job: ClusterJob, files: Sequence[FoundFile]) -> dict[str, Any]:
    retries = subject.job.retries
    policy: dict[str, Any] = {"cleanPodPolicy": "Running", "activeDeadlineSeconds": subject.job.max_run}
    spec: dict[str, Any] = {"runPolicy": policy | ({"backoffLimit": retries} if retries else {})}
    if job.together:
        # The operator makes torchrun's variables of these: PET_NNODES, PET_RDZV_ENDPOINT and so on.
        spec["nprocPerNode"] = str(job.processes)
        spec["elasticPolicy"] = {"rdzvBackend": "c10d", "minReplicas": job.hosts, "maxReplicas": job.hosts}
    pod = _pod(job, "pytorchjob", files, job.command)
    spec["pytorchReplicaSpecs"] = {
        replica(job, "pytorchjob").capitalize(): {
            "replicas": job.hosts,
            "restartPolicy": "OnFailure" if retries else "Never",
            "template": {"metadata": {"labels": {NAME_LABEL: job.name}}, "spec": pod},
        }
    }
    return _resource("kubeflow.org/v1", "PyTorchJob", job, spec)


def _hyperpod(subject: Subject, job: ClusterJob, files: Sequence[FoundFile]) -> dict[str, Any]:
    retries = subject.job.retries
    # Pods stay, as those of HyperPod's CLI do, so that their logs can be read.
    policy: dict[str, Any] = {"cleanPodPolicy": "None", "activeDeadlineSeconds": subject.job.max_run}
    argv = ["hyperpodrun", f"--nnodes={job.hosts}", f"--nproc_per_node={job.processes}", *job.script]
    replicas = {
        "name": replica(job, "hyperpod"),
        "replicas": job.hosts,
        "template": {"metadata": {"labels": {NAME_LABEL: job.name}}, "spec": _pod(job, "hyperpod", files, argv)},
    }
    spec = {
        "nprocPerNode": str(job.processes),
        "runPolicy": policy | ({"jobMaxRetryCount": retries} if retries else {}),
        "replicaSpecs": [replicas],
    }
    return _resource("sagemaker.amazonaws.com/v1", "HyperPodPyTorchJob", job, spec)


def _pod(job: ClusterJob, kind: Operator, files: Sequence[FoundFile], argv: Sequence[str]) -> dict[str, Any]:
    mounted, places = volumes.pod_volumes(job)
    mounted.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    places.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - the pod's, not this machine's
    if files:
        mounted.append(config_map.volume(f"{job.name}-code", files))
        places.append({"name": "code", "mountPath": CODE, "readOnly": True})
    container: dict[str, Any] = {
        "name": "pytorch",  # the operator looks for this name
        "image": job.image,
        "imagePullPolicy": "IfNotPresent",
        "workingDir": CODE,
        "command": [literally(word) for word in argv],
        "env": _environment(job, kind),
        "resources": _resources(job),
        "volumeMounts": places,
    }
    if kind == "hyperpod":
        container["ports"] = [{"containerPort": AGENT_PORT}]
    # EKS labels a node with EC2's name of its type, HyperPod with SageMaker's.
    instance = job.kind.name if kind == "hyperpod" else job.kind.name.removeprefix("ml.")
    pod: dict[str, Any] = {"nodeSelector": {"node.kubernetes.io/instance-type": instance}}
    if kind == "hyperpod":
        pod["affinity"] = _healthy()
    if job.kind.gpus:
        # The taint that EKS's guide and HyperPod's charts expect on nodes with GPUs.
        pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    elif job.hosts > 1:
        # All GPUs of a node keep a second pod away; without GPUs nothing else does.
        selector = {"matchLabels": {NAME_LABEL: job.name}}
        spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
        pod["topologySpreadConstraints"] = [{**spread, "labelSelector": selector}]
    return pod | {"containers": [container], "volumes": mounted}


def _healthy() -> dict[str, Any]:
    """HyperPod's healthy nodes, those that passed deep checks first: as its CLI writes it (NODE_AFFINITY_DICT)."""
    healthy = [{"matchExpressions": [{"key": HEALTH, "operator": "In", "values": ["Schedulable"]}]}]
    passed = {"matchExpressions": [{"key": DEEP_HEALTH, "operator": "In", "values": ["Passed"]}]}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": healthy},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": passed}],
        }
    }


def _environment(job: ClusterJob, kind: Operator) -> list[dict[str, Any]]:
    made: dict[str, Any] = {"NCCL_SOCKET_IFNAME": "^lo"} if job.hosts > 1 else {}
    hosts = '["' + '","'.join(host_names(job, kind)) + '"]'
    values = {**made, "SM_HOSTS": hosts, **job.environment}
    own = {"name": "SM_CURRENT_HOST", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    return [own, *({"name": name, "value": literally(value)} for name, value in values.items())]


def _resources(job: ClusterJob) -> dict[str, Any]:
    # A device can only be asked for as a limit; a limit on memory would end the job that passes it.
    limits: dict[str, Any] = {"nvidia.com/gpu": job.kind.gpus} if job.kind.gpus else {}
    if job.efa:
        limits |= {"vpc.amazonaws.com/efa": job.efa, "hugepages-2Mi": HUGE_PAGES}
    return {"requests": limits | ({"memory": MEMORY} if job.efa else {}), "limits": limits}


def _resource(version: str, kind: str, job: ClusterJob, spec: dict[str, Any]) -> dict[str, Any]:
    labels = {NAME_LABEL: job.name, "app.kubernetes.io/managed-by": "trainwright"}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": job.name, "labels": labels}, "spec": spec}


def literally(text: str) -> str:
    """Return a text that Kubernetes does not expand: ``$(NAME)`` in commands and variables, and ``$$`` for ``$``.

    Source: kubernetes/kubernetes, ``third_party/forked/golang/expansion/expand.go``.
    """
    return text.replace("$", "$$")


def as_yaml(document: dict[str, Any]) -> str:
    """Return a document as YAML in the given order; a text of several lines as a block."""
    import yaml

    class Readable(yaml.SafeDumper):
        ignore_aliases = staticmethod(lambda _: True)  # type: ignore[assignment]  # &id001 would be another's name

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Readable.add_representer(str, text)
    made: str = yaml.dump(document, Dumper=Readable, sort_keys=False, default_flow_style=False, width=120)
    return made


def _head(subject: Subject, kind: Operator, job: ClusterJob) -> str:
    lines = [
        f"The training job {job.name}: {_TITLES[kind]}. Written by Trainwright.",
        "Start it: kubectl apply --server-side -f FILE. A job that ended must be deleted first.",
    ]
    if job.mounts:
        lines.append("The cluster needs AWS's CSI drivers for its volumes: S3 (Mountpoint), FSx for Lustre, EFS.")
    lines += comments(subject, kind)
    return "".join(
        f"{line}\n"
        for text in lines
        for line in textwrap.wrap(text, 118, initial_indent="# ", subsequent_indent="#   ")
    )


def comments(subject: Subject, cluster: Literal["pytorchjob", "hyperpod", "slurm"]) -> list[str]:
    """Return the lines of a manifest that say what the job file has and the manifest lacks."""
    found = [f"Not carried over: {each.key}: {each.why}." for each in omissions(subject, cluster)]
    return [*found, "Not set: SM_RESOURCE_CONFIG, SM_INPUT_DATA_CONFIG, /opt/ml/input/config and what is made of them."]
