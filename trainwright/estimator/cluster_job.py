"""A job as a cluster of one's own starts it: what SageMaker, its SDK and its training toolkit would have provided.

The names and values of ``SM_*``, the script's arguments and its working folder are those of sagemaker-training 5.1.4
(``environment.py``: ``to_env_vars``; ``mapping.py``: ``to_env_vars``, ``to_cmd_args``), so the same script runs in
either place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainwright.core.errors import RequestError
from trainwright.estimator.create_training_job import MODEL_DIR, base_name, program
from trainwright.estimator.rules_inputs import channel
from trainwright.estimator.subject import Cluster, Subject
from trainwright.sagemaker.instances import Instance
from trainwright.sagemaker.job_parts import FileSystem
from trainwright.user.files import FoundFile, code_files

CODE = "/opt/ml/code"
DATA = "/opt/ml/input/data"
OUTPUT_DATA = "/opt/ml/output/data"
MAX_LABEL = 63  # of a name in DNS, RFC 1035; Kubeflow's webhook wants one (NameIsDNS1035Label)
# What the toolkit sets from files that only the platform writes.
ONLY_SAGEMAKER = frozenset(
    {
        *("SM_RESOURCE_CONFIG", "SM_INPUT_DATA_CONFIG", "SM_TRAINING_ENV", "SM_FRAMEWORK_PARAMS", "SM_TOPOLOGY"),
        *("SM_CURRENT_INSTANCE_GROUP", "SM_CURRENT_INSTANCE_GROUP_HOSTS", "SM_INSTANCE_GROUPS", "SM_FRAMEWORK_MODULE"),
        *("SM_INSTANCE_GROUPS_DICT", "SM_DISTRIBUTION_INSTANCE_GROUPS", "SM_NETWORK_INTERFACE_NAME", "SM_NUM_NEURONS"),
        *("TRAINING_JOB_ARN", "SAGEMAKER_JOB_NAME", "SAGEMAKER_REGION"),
    }
)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # of a variable, for every shell and every Kubernetes
_VARIABLE = re.compile(r"\b(?:SM|SAGEMAKER|TRAINING)_[A-Z0-9_]+\b")


@dataclass(frozen=True)
class Mount:
    """A folder of the container that is kept elsewhere.

    Attributes:
        name: what volumes and variables are named after, such as ``training``.
        path: in the container.
        source: an S3 address, or a file system.
        writable: whether the job writes there.
    """

    name: str
    path: str
    source: str | FileSystem
    writable: bool = False


@dataclass(frozen=True)
class ClusterJob:
    """One job for a cluster.

    Attributes:
        name: a label of DNS.
        image: address, by digest if the job file has one.
        kind: the instance type of every host.
        hosts: number of hosts.
        processes: processes per host.
        together: the processes are torchrun's; else one host runs the script alone.
        script: the words that torchrun, or the shell, is given: the script and its arguments.
        environment: variables of the containers; the current host's name is not among them.
        mounts: folders that are kept elsewhere.
        baked: the image contains the code.
    """

    name: str
    image: str
    kind: Instance
    hosts: int
    processes: int
    together: bool
    script: tuple[str, ...]
    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    baked: bool

    @property
    def efa(self) -> int:
        """EFA interfaces that each host needs; none for a single host."""
        return self.kind.efa if self.hosts > 1 else 0

    @property
    def command(self) -> list[str]:
        """The command of a host: torchrun, whose options are in variables, or the script alone."""
        return ["torchrun", *self.script] if self.together else [*interpreter(self.script[0]), *self.script]


def cluster_job(subject: Subject) -> ClusterJob:
    """Return a checked job for the subject's cluster."""
    job = subject.job
    _, kind, hosts = subject.instances[0]
    entry = entry_point(subject)
    name = job_label(subject)
    return ClusterJob(
        name=name,
        image=str(job.image),
        kind=kind,
        hosts=hosts,
        processes=subject.processes_per_host or 1,
        together=subject.launcher == "torchrun",
        script=(entry, *arguments(_hyperparameters(subject))),
        environment=_environment(subject, kind, hosts, entry, name),
        mounts=tuple(mounts(subject, name)),
        baked=bool(subject.image and subject.image.baked),
    )


def job_label(subject: Subject) -> str:
    """Return the job's name as a label of DNS that leaves room for the suffix of a host's name."""
    label = re.sub(r"[^a-z0-9]+", "-", base_name(subject).lower()).strip("-")
    label = label if label[:1].isalpha() else f"job-{label}"
    return label[: MAX_LABEL - len("-worker-9999")].rstrip("-")


def entry_point(subject: Subject) -> str:
    """Return the script, relative to the folder of the code: the image's own, if it contains code."""
    if subject.image is not None and subject.image.entry_point is not None:
        return subject.image.entry_point
    return program(subject)


def source_folder(subject: Subject) -> Path:
    """Return the folder with the job's code on this machine."""
    job = subject.job
    if job.source_dir:
        return (subject.folder / job.source_dir).absolute()
    return (subject.folder / str(job.entry_point)).absolute().parent


def source_files(subject: Subject) -> list[FoundFile]:
    """Return the files that a job brings along: those that ``--code`` would bake, or the script alone.

    Raises:
        RequestError: a file looks like credentials, or a link leaves the folder.
    """
    folder = source_folder(subject)
    if subject.job.source_dir is None:
        path = folder / program(subject)
        return [FoundFile(path.name, path, path.stat().st_size, executable=False)]
    try:
        return code_files(folder)
    except RequestError as refused:
        raise RequestError(refused.message.replace(f"--code {folder}", f"source_dir {folder}")) from None


def variables_of_sagemaker(files: Sequence[FoundFile]) -> Iterator[tuple[str, list[str]]]:
    """Yield each Python file that names variables which only the platform sets, with their names."""
    for file in files:
        if file.name.endswith(".py"):
            named = set(_VARIABLE.findall(file.path.read_text(errors="replace")))
            if found := sorted(named & ONLY_SAGEMAKER):
                yield file.name, found


def arguments(values: Mapping[str, Any]) -> list[str]:
    """Return hyperparameters as the toolkit passes them to the script: sorted, a mapping as ``a=1,b=2``."""

    def text(value: Any) -> str:
        if isinstance(value, Mapping):
            return ",".join(f"{key}={each}" for key, each in sorted(value.items()))
        return "" if value is None else str(value)

    return [
        word
        for name, value in sorted(values.items())
        for word in (f"--{name}" if len(name) > 1 else f"-{name}", text(value))
    ]


def mounts(subject: Subject, name: str) -> Iterator[Mount]:
    """Yield the folders that are kept elsewhere: channels, checkpoints, model and output."""
    job = subject.job
    for key, given in job.inputs.items():
        found = channel(key, given)
        if isinstance(found, FileSystem):
            yield Mount(key, f"{DATA}/{key}", found, found.file_system_access_mode == "rw")
        else:
            yield Mount(key, f"{DATA}/{key}", found.s3_data)
    if job.checkpoint:
        yield Mount("checkpoints", job.checkpoint.local_path, job.checkpoint.s3_uri, True)
    if job.output:
        root = f"{job.output.rstrip('/')}/{name}"
        yield Mount("model", MODEL_DIR, f"{root}/model/", True)
        yield Mount("output", OUTPUT_DATA, f"{root}/output/", True)


def host_names(job: ClusterJob, cluster: Literal["pytorchjob", "hyperpod"]) -> list[str]:
    """Return the names of a job's pods, which are those of its hosts.

    Source: kubeflow/training-operator v1.9.0 (``GenGeneralName``); the walk-through of aws/sagemaker-hyperpod-cli.
    """
    return [f"{job.name}-{replica(job, cluster)}-{number}" for number in range(job.hosts)]


def replica(job: ClusterJob, cluster: Cluster) -> str:
    """Return what the pods of a job are called in their names."""
    if cluster == "hyperpod":
        return "pods"
    return "worker" if job.together else "master"


def interpreter(entry: str) -> list[str]:
    """Return the program that runs a script."""
    # The toolkit would make a script of the shell executable; here nothing does.
    return ["python"] if entry.endswith(".py") else ["/bin/bash"]


def _hyperparameters(subject: Subject) -> dict[str, Any]:
    values = dict(subject.job.hyperparameters)
    if subject.framework == "tensorflow":
        values.setdefault("model_dir", MODEL_DIR)
    return values


def _environment(subject: Subject, kind: Instance, hosts: int, entry: str, name: str) -> dict[str, str]:
    job = subject.job
    made = toolkit_variables(entry, _hyperparameters(subject), list(job.inputs), kind)
    return {"TRAINING_JOB_NAME": name, **made, **_network(kind, hosts), **job.environment}


def toolkit_variables(entry: str, values: Mapping[str, Any], channels: Sequence[str], kind: Instance) -> dict[str, str]:
    """Return the toolkit's variables that are the same on every host.

    Args:
        entry: the script.
        values: its hyperparameters.
        channels: their names.
        kind: the instance type.
    """
    toolkit: dict[str, Any] = {
        "hps": values,
        "user_args": arguments(values),
        "user_entry_point": entry,
        "module_name": entry.removesuffix(".py"),
        "module_dir": CODE,
        "channels": sorted(channels),
        "model_dir": MODEL_DIR,
        "output_dir": "/opt/ml/output",
        "output_data_dir": OUTPUT_DATA,
        "output_intermediate_dir": "/opt/ml/output/intermediate",
        "input_dir": "/opt/ml/input",
        "input_config_dir": "/opt/ml/input/config",
        "current_instance_type": kind.name,
        "num_gpus": kind.gpus,
        "num_cpus": kind.vcpus,
        "log_level": 20,
        "is_hetero": False,
    }
    toolkit |= {f"channel_{key}": f"{DATA}/{key}" for key in channels}
    toolkit |= {f"hp_{key}": value for key, value in values.items()}
    return {variable(key): sm_text(value) for key, value in toolkit.items() if NAME.fullmatch(key)}


def variable(name: str) -> str:
    """Return the toolkit's name of a variable."""
    return f"SM_{name.upper()}"


def _network(kind: Instance, hosts: int) -> dict[str, str]:
    """NCCL over EFA, as the toolkit sets it (sagemaker-training 5.1.4, torch_distributed.py)."""
    if hosts == 1 or not kind.efa:
        return {}
    return {"FI_PROVIDER": "efa"} | ({"FI_EFA_USE_DEVICE_RDMA": "1"} if kind.toolkit_rdma else {})


def sm_text(value: Any) -> str:
    """Return the value of a variable as the toolkit writes it: text as it is, anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
