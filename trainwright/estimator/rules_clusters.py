"""Check a job against the cluster that is to start it instead of SageMaker: launcher, code, channels, image, EFA."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.catalog.image_line import version_key
from trainwright.core.errors import RequestError
from trainwright.core.findings import Finding, Rule
from trainwright.estimator import cluster_job
from trainwright.estimator.config_map import MAX_BYTES
from trainwright.estimator.create_training_job import program, region_of
from trainwright.estimator.not_carried import omissions
from trainwright.estimator.rules_inputs import channel
from trainwright.estimator.rules_job import INCOMPLETE
from trainwright.estimator.subject import Cluster, Subject
from trainwright.estimator.volumes import OWN_VOLUMES, volume_name
from trainwright.sagemaker.job_parts import Channel

AGENT = "hyperpod-elastic-agent 1.1.3, its metadata and README"
LAUNCHER = Rule(
    code="TW300",
    severity="error",
    title="a launcher that only SageMaker's training toolkit starts",
    source="sagemaker-training 5.1.4: it starts sshd, mpirun and the rest; a manifest has torchrun alone",
    remedy='distribution: {"torch_distributed": {"enabled": true}}, if the script supports it.',
)
NO_COUNTERPART = Rule(
    code="TW301",
    severity="error",
    title="a job that a cluster cannot run as it is",
    source="AWS's API reference of CreateTrainingJob and CreateHyperParameterTuningJob: the service does it",
    remedy="Remove it from the job, or start the job on SageMaker (--format python).",
)
OMITTED = Rule(
    code="TW302",
    severity="warning",
    title="a setting that has no counterpart there; the manifest names it in a comment",
    source="the published schemas of PyTorchJob, HyperPodPyTorchJob and sbatch: they have no such field",
    remedy="Accept it with `silence`, or set up the cluster for it.",
)
CHANNEL_OPTION = Rule(
    code="TW303",
    severity="error",
    title="an option of a channel that only SageMaker carries out",
    source="AWS's API reference, DataSource and InputMode; a mounted bucket or folder shows all of its files",
    remedy="Remove it, and let the script read the files of the folder.",
)
WITHOUT_EFA = Rule(
    code="TW304",
    severity="warning",
    title="several hosts of an instance type without EFA, so NCCL uses TCP between them",
    source="table of instance types; AWS's EKS guide, device management for EFA",
    remedy="Use a type with EFA, such as a larger one of the same family.",
)
VARIABLE = Rule(
    code="TW305",
    severity="warning",
    title="the script names a variable that only SageMaker sets",
    source="sagemaker-training 5.1.4, environment.py: they come from files that the platform writes",
    remedy="Give it a default in the script, or a value in environment.",
)
CODE = Rule(
    code="TW306",
    severity="error",
    title="code that the manifest cannot bring along",
    source="Kubernetes documentation: the data of a ConfigMap cannot exceed 1 MiB; Pyxis splits mounts at , and :",
    remedy="Build it into the image: ./invoke build --code DIR --entry-point FILE",
)
BY_TAG = Rule(
    code="TW307",
    severity="warning",
    title="an image by its tag: nodes that have an older one of that name run it",
    source="Kubernetes documentation, imagePullPolicy: IfNotPresent looks for the name only",
    remedy="Use the address with a digest that ./invoke push prints.",
)
ELASTIC_AGENT = Rule(
    code="TW308",
    severity="warning",
    title="an image that may lack hyperpodrun, with which HyperPod's operator starts jobs",
    source=f"{AGENT}: it must be in the image before jobs run under the operator, and needs torch 2.4 to 2.11",
    remedy="In a Dockerfile FROM the image: RUN pip install hyperpod-elastic-agent. It asks for pip before 25.3, which "
    "--with-requirements cannot change. Accept this with `silence`.",
)
NAMED = Rule(
    code="TW309",
    severity="error",
    title="a name or an address that volumes or variables cannot have",
    source="Kubernetes documentation, object names; kubernetes-sigs/aws-fsx-csi-driver, static provisioning",
    remedy="Rename it, or add region.",
)
RULES = (
    LAUNCHER,
    NO_COUNTERPART,
    OMITTED,
    CHANNEL_OPTION,
    WITHOUT_EFA,
    VARIABLE,
    CODE,
    BY_TAG,
    ELASTIC_AGENT,
    NAMED,
)
# Kubeflow's documentation: TFJob sets TF_CONFIG on each of its pods; a PyTorchJob, torchrun's variables.
_OF_TENSORFLOW: dict[Cluster, str] = {
    "pytorchjob": "This format is for PyTorch; Kubeflow's own kind for TensorFlow is TFJob. Use one host without a "
    "distribution, or SageMaker (--format python).",
    "hyperpod": "This format is for PyTorch; Kubeflow's own kind for TensorFlow is TFJob. Or use SageMaker (--format "
    "python).",
    "slurm": "The script starts torchrun of PyTorch alone, and sets no TF_CONFIG. Use one host without a distribution, "
    "or SageMaker (--format python).",
}
# Of the other families: what concerns SageMaker's service, its registry or its toolkit.
NOT_THERE = frozenset({"TW236", "TW239", "TW241", "TW242", "TW244"})
# Variables that the script for Slurm, or a program in it, reads on the host after it has exported the job's.
OF_THE_SCRIPT = frozenset({"PATH", "IMAGE", "mounts", "hosts", "listed", "resume", "SLURM_JOB_NODELIST"})
_LABEL = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # RFC 1123, as Kubernetes wants it of volumes
_TORCH = ("2.4", "2.12")  # the first version that the agent takes, and the first that it does not


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family; none without a cluster."""
    cluster = subject.cluster
    if cluster is None:
        return
    yield from _refused(subject, cluster)
    yield from _image(subject, cluster)
    yield from _channels(subject)
    yield from _code(subject, cluster)
    for path, kind, count in subject.instances:
        if count > 1 and kind.gpus and not kind.efa:
            yield WITHOUT_EFA.finding(f"{count} hosts of {kind.name}, which has no EFA", path=path)
    for each in omissions(subject, cluster):
        yield OMITTED.finding(f"not carried over: {each.why}", path=each.key, severity=each.severity)


def _launcher(subject: Subject, cluster: Cluster) -> Iterator[Finding]:
    launcher = subject.launcher
    remedy = _OF_TENSORFLOW[cluster] if subject.framework == "tensorflow" else None
    if launcher not in ("torchrun", "process"):
        yield LAUNCHER.finding(f"{launcher} cannot be started there", path="distribution", remedy=remedy)
    elif launcher == "process" and subject.hosts > 1:
        lacking = "something that sets TF_CONFIG" if remedy else "torch_distributed"
        what = f"{subject.hosts} hosts without {lacking} would not find each other"
        yield LAUNCHER.finding(what, path="distribution", remedy=remedy)
    elif cluster == "hyperpod" and remedy:
        yield LAUNCHER.finding("hyperpodrun starts PyTorch only", path="image", remedy=remedy)
    elif cluster == "hyperpod" and not cluster_job.entry_point(subject).endswith(".py"):
        yield LAUNCHER.finding("hyperpodrun starts scripts of Python only", path="entry_point")


def _refused(subject: Subject, cluster: Cluster) -> Iterator[Finding]:
    job = subject.job
    yield from _launcher(subject, cluster)
    if job.tuner:
        yield NO_COUNTERPART.finding("a tuning job starts many training jobs", path="tuner")
    if job.instance_groups:
        yield NO_COUNTERPART.finding("a heterogeneous cluster", path="instance_groups")
    if subject.compiler:
        yield NO_COUNTERPART.finding("the Training Compiler", path="compiler")
    if job.model_parallel:
        yield NO_COUNTERPART.finding(
            "the model parallel library reads what SageMaker's toolkit sets",
            path="distribution.smdistributed.modelparallel",
        )
    for path, kind, _ in subject.instances:
        if kind.neuron_devices:
            yield NO_COUNTERPART.finding(f"{kind.name} has Trainium devices", path=path)


def _image(subject: Subject, cluster: Cluster) -> Iterator[Finding]:
    job = subject.job
    if job.image is None and subject.generates:
        yield INCOMPLETE.finding("image is missing", path="image", remedy="Add --image <address>.")
    elif job.image and "@sha256:" not in job.image:
        yield BY_TAG.finding(f"{job.image} has no digest", path="image")
    if cluster != "hyperpod":
        return
    found = subject.image
    version = found.version if found is not None and found.framework == "pytorch" else ""
    if version[:1].isdigit() and not version_key(_TORCH[0]) <= version_key(version) < version_key(_TORCH[1]):
        yield ELASTIC_AGENT.finding(f"hyperpod-elastic-agent does not take PyTorch {version}", path="image")
    else:
        yield ELASTIC_AGENT.finding("the image needs hyperpod-elastic-agent", path="image")


def _channels(subject: Subject) -> Iterator[Finding]:
    for name, given in subject.job.inputs.items():
        path = f"inputs.{name}"
        try:
            found = channel(name, given)
        except RequestError:
            continue  # rules_job reports it
        if isinstance(found, Channel):
            for key, value, usual in (
                ("input_mode", found.input_mode, (None, "File", "FastFile")),
                ("s3_data_type", found.s3_data_type, ("S3Prefix",)),
                ("distribution", found.distribution, ("FullyReplicated",)),
                ("compression", found.compression, (None, "None")),
            ):
                if value not in usual:
                    yield CHANNEL_OPTION.finding(f"{key}: {value}", path=f"{path}.{key}")
        elif found.file_system_type == "FSxLustre" and subject.cluster != "slurm" and region_of(subject) is None:
            yield NAMED.finding("the address of an FSx file system has its region, which is missing", path="region")
    yield from _names(subject)


def _names(subject: Subject) -> Iterator[Finding]:
    """Check the names that volumes, and the shell's and Kubernetes' variables, get from the job's."""
    seen = dict.fromkeys(OWN_VOLUMES, "the job")
    for name in subject.job.inputs:
        label = volume_name(name)
        if label in seen:
            yield NAMED.finding(f"{label} is already a volume of {seen[label]}", path=f"inputs.{name}")
        elif not _LABEL.fullmatch(label):
            yield NAMED.finding(f"{label} cannot be the name of a volume", path=f"inputs.{name}")
        seen[label] = f"the channel {name}"
    for name in subject.job.environment:
        if not cluster_job.NAME.fullmatch(name):
            yield NAMED.finding(f"{name} cannot be the name of a variable", path=f"environment.{name}")
        elif subject.cluster == "slurm" and name in OF_THE_SCRIPT:
            yield NAMED.finding(f"{name} is a variable of the script itself", path=f"environment.{name}")


def _code(subject: Subject, cluster: Cluster) -> Iterator[Finding]:
    job = subject.job
    if job.entry_point is None or (subject.image is not None and subject.image.baked):
        return
    if (job.source_dir or "").startswith("s3://"):
        yield CODE.finding("nothing unpacks an archive in S3", path="source_dir")
        return
    folder = cluster_job.source_folder(subject)
    if not (folder / program(subject)).is_file():
        return  # rules_job reports it
    if cluster == "slurm" and set(str(folder)) & set(",:"):
        yield CODE.finding(f"{folder} has a comma or a colon in its name", path="source_dir")
    try:
        files = cluster_job.source_files(subject)
    except RequestError as refused:
        yield CODE.finding(refused.message, path="source_dir", remedy="Leave it out with a .dockerignore.")
        return
    size = sum(file.size for file in files)
    if cluster != "slurm" and size > MAX_BYTES:
        yield CODE.finding(f"{len(files)} files of {size:,} bytes; a ConfigMap has 1 MiB", path="source_dir")
    for name, variables in cluster_job.variables_of_sagemaker(files):
        if missing := [each for each in variables if each not in job.environment]:
            yield VARIABLE.finding(f"{name} names {', '.join(missing)}", path="entry_point")
