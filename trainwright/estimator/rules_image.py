"""Check the image against the job: its launchers, libraries, code, processor and CUDA version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from trainwright.catalog.image_line import BASE, version_key
from trainwright.catalog.platforms import ARM64
from trainwright.core.findings import Finding, Rule, Severity
from trainwright.estimator.image import ECR, ImageFacts
from trainwright.estimator.rules_distribution import SDK
from trainwright.estimator.subject import Subject, enabled
from trainwright.plan.destination import CLUSTER
from trainwright.sagemaker.distribution import needs_framework_module
from trainwright.sagemaker.dlc import load_dlc
from trainwright.sagemaker.instances import Instance
from trainwright.sagemaker.toolkit import TOOLKIT

LABELS = "the image's labels, which its build proved; AWS's own Dockerfile, if nobody has looked into the image"
UNKNOWN = Rule(
    code="TW240",
    severity="note",
    title="nothing is known about the image, so it was not checked for what the job needs",
    source="no Trainwright labels, and not one of AWS's images",
    remedy="Use ./invoke rehearse --image …, or `plan:` in the job file.",
)
NOT_IN_ECR = Rule(
    code="TW241",
    severity="error",
    title="the image is neither in Amazon ECR nor in a registry that the job names, so SageMaker cannot pull it",
    source="AWS documentation of training with a custom image, and of images in a private Docker registry; "
    "aws/sagemaker-python-sdk #2174",
    remedy="Run ./invoke push --image … and use the address that it prints.",
)
OTHER_REGION = Rule(
    code="TW242",
    severity="error",
    title="the image is in another region than the job",
    source="AWS documentation of training with a custom image: same region",
    remedy="Run ./invoke push --region …, or use the image's region.",
)
NO_LAUNCHER = Rule(
    code="TW243",
    severity="error",
    title="the image lacks a component that the launcher needs",
    source=f"{LABELS}; {TOOLKIT} and its framework modules",
    remedy="Use an image with it; ./invoke list --json shows the components of each line.",
)
NO_MODULE = Rule(
    code="TW244",
    severity="error",
    title="the launcher needs a framework module of the toolkit, which the image lacks",
    source=f"tried with {SDK}: {TOOLKIT} alone starts one process and reports success",
    remedy="Use an image with sagemaker-pytorch-training (or -tensorflow-), or mpi as launcher.",
)
OPEN_MPI = Rule(
    code="TW245",
    severity="error",
    title="only Open MPI 4 works across several hosts",
    source=f"{TOOLKIT}: workers wait for a process named orted; tried with 5.0.11",
    remedy="Use an image with Open MPI 4.",
)
NOT_FOR_TRAINING = Rule(
    code="TW294",
    severity="error",
    title="an image of AWS that cannot train",
    source="aws/deep-learning-containers, available_images.md: repositories for inference have no training toolkit",
    remedy="Use the repository of the same name that ends in -training.",
)
BAKED = Rule(
    code="TW246",
    severity="error",
    title="the image contains code, so the toolkit ignores the estimator's code",
    source=f"tried with {SDK} and {TOOLKIT}; aws/sagemaker-training-toolkit #222",
    remedy="Remove source_dir and entry_point, or use an image without code.",
)
OTHER_ENTRY = Rule(
    code="TW247",
    severity="error",
    title="entry_point differs from the one built into the image, which wins",
    source=f"tried with {SDK} and {TOOLKIT}: SAGEMAKER_PROGRAM of the image wins over the estimator's",
    remedy="Remove entry_point, or use an image without code.",
)
PROCESSOR = Rule(
    code="TW248",
    severity="error",
    title="the image cannot run on the instance's processor or accelerator",
    source="table of instance types",
    remedy="Use an instance type with that processor.",
)
NO_GPU_CODE = Rule(
    code="TW249",
    severity="warning",
    title="an image without CUDA on GPU instances, or one with CUDA on instances without a GPU",
    source=LABELS,
    remedy="Use a line of the other kind: ./invoke list.",
)
CUDA_VERSION = Rule(
    code="TW250",
    severity="warning",
    title="the image's CUDA version does not support the GPU yet, or no longer",
    source="NVIDIA's release notes of CUDA: the versions that added and dropped each compute capability",
    remedy="Use an image with another CUDA version, or another instance type.",
)
RULES = (
    UNKNOWN,
    NOT_IN_ECR,
    OTHER_REGION,
    NO_LAUNCHER,
    NO_MODULE,
    OPEN_MPI,
    BAKED,
    OTHER_ENTRY,
    PROCESSOR,
    NO_GPU_CODE,
    CUDA_VERSION,
    NOT_FOR_TRAINING,
)
_NO_REGION = re.compile(r"([0-9]{12})\.dkr\.ecr\.amazonaws\.com(?:\.cn)?/")
# Launcher → required components. The toolkit starts sshd on each host of an MPI job.
NEEDS = {
    "mpi": ("sagemaker-toolkit", "openmpi", "ssh", "mpi4py"),
    "smddp": ("sagemaker-toolkit", "openmpi", "ssh", "mpi4py", "smdistributed-dataparallel"),
    "torchrun": ("sagemaker-toolkit", "pytorch"),
}
# SDK 3's drivers take the toolkit's place.
NEEDS_3 = {"mpi": ("openmpi", "ssh", "mpi4py"), "torchrun": ("pytorch",)}
# GPU → the first CUDA version that compiles for it.
FIRST_CUDA = {
    "A100": "11.0",
    "A10G": "11.1",
    "L4": "11.8",
    "L40S": "11.8",
    "H100": "11.8",
    "H200": "11.8",
    "B200": "12.8",
    "RTX PRO Server 6000": "12.8",
    "RTX PRO 4500": "12.8",
    "B300": "12.9",
}
# GPU → the first CUDA version that no longer supports it.
GONE_CUDA = {"K80": "12.0", "V100": "13.0"}


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    yield from _address(subject)
    if subject.image is None:
        if subject.job.image:
            yield UNKNOWN.finding(f"no labels found for {subject.job.image}", path="image")
        return
    where = "plan" if subject.image.origin == "plan" else "image"
    if subject.image.components is not None:
        yield from _components(subject, subject.image, where)
    yield from _code(subject, subject.image)
    for path, kind, _ in subject.instances:
        yield from _hardware(subject.image, kind, path)


def _address(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    registry = _NO_REGION.match(job.image or "")
    found = ECR.fullmatch(job.image or "")
    if registry:
        yield NOT_IN_ECR.finding(
            f"{registry[0].rstrip('/')} is not a registry: it has no region",
            path="image",
            remedy=f"{registry[1]}.dkr.ecr.{job.region or '<region>'}.amazonaws.com/…",
        )
    elif job.image and found is None and not job.image.startswith("public.ecr.aws/"):
        yield from _elsewhere(subject, job.image)
    elif job.image and found is None:
        yield NOT_IN_ECR.finding("the public gallery is not a private Amazon ECR registry", path="image")
    if found and found["repository"].endswith("-inference") and found["account"] in load_dlc().accounts["dlc"].values():
        yield NOT_FOR_TRAINING.finding(f"{found['repository']} is for inference", path="image")
    if found and job.region and found["region"] != job.region:
        yield OTHER_REGION.finding(f"the image is in {found['region']}, the job in {job.region}", path="region")


def _elsewhere(subject: Subject, image: str) -> Iterator[Finding]:
    """An image that is not in ECR: in a registry of its own, or known to this machine's engine alone."""
    host, slash, _ = image.partition("/")
    named = bool(slash and re.search("[.:]", host))  # as Docker tells a host from a folder of its Hub
    registry = subject.job.registry
    if registry and registry.access_mode == "Vpc" and named:
        return
    remedy = f"./invoke push --image {image}"
    if registry and registry.access_mode == "Vpc":
        remedy += ", or name the registry's host in the address: registry.example.com/team/training:1"
    elif named:
        remedy += ", or `registry: {access_mode: Vpc}` for a registry in the job's VPC"
    # A job that is only checked may use a local image.
    severity: Severity = "error" if subject.generates else "note"
    yield NOT_IN_ECR.finding(f"{image} is not an address in Amazon ECR", path="image", severity=severity, remedy=remedy)


def _components(subject: Subject, image: ImageFacts, where: str) -> Iterator[Finding]:
    launcher = subject.launcher
    if subject.cluster is None and image.has(CLUSTER):
        place = str((image.components or {})[CLUSTER]).partition("(")[2].rstrip(")")
        yield NO_LAUNCHER.finding(
            f"SageMaker starts every job by `train`, and the image is for {place}",
            path=where,
            remedy="Build it without --for, or write a manifest: --format pytorchjob, hyperpod or slurm.",
        )
        return
    # On a cluster torchrun is started without the toolkit, as by SDK 3's drivers.
    needs = list((NEEDS_3 if subject.sdk == 3 or subject.cluster else NEEDS).get(launcher, ()))
    if enabled(subject.job.distribution, "smdistributed", "modelparallel"):
        needs.append("smdistributed-modelparallel")
        there = (image.components or {}).get("smdistributed-modelparallel", "")
        if image.family == "tensorflow" and not there.endswith(f"({BASE})"):
            yield NO_LAUNCHER.finding(
                "custom images can contain the model parallel library for PyTorch only", path=where
            )
    missing = [name for name in needs if not image.has(name)]
    for name in missing:
        lacks = f"which {image.evidence} does not install" if image.evidence else "which is not in the image"
        what = "model parallelism" if name == "smdistributed-modelparallel" else launcher
        yield NO_LAUNCHER.finding(f"{what} needs {name}, {lacks}", path=where)
    module = subject.sdk == 2 and needs_framework_module(launcher)
    if module and image.has("sagemaker-toolkit") and image.family is None:
        yield NO_MODULE.finding(f"{launcher} with a {image.framework} image", path=where)
    mpi = image.version_of("openmpi")
    if mpi and launcher in ("mpi", "smddp") and subject.hosts > 1 and version_key(mpi)[:1] != (4,):
        yield OPEN_MPI.finding(f"the image has Open MPI {mpi}", path=where)


def _code(subject: Subject, image: ImageFacts) -> Iterator[Finding]:
    job = subject.job
    if not image.baked:
        return
    if job.source_dir:
        yield BAKED.finding(f"{job.source_dir} would never be unpacked", path="source_dir")
    elif job.entry_point and PurePosixPath(job.entry_point) != PurePosixPath(str(image.entry_point)):
        yield OTHER_ENTRY.finding(
            f"the image runs {image.entry_point}, the job names {job.entry_point}", path="entry_point"
        )
    elif job.entry_point:
        yield BAKED.finding(f"{job.entry_point} is already in the image", path="entry_point", severity="warning")
    if subject.sdk == 3:
        yield BAKED.finding(
            "SDK 3 replaces `train` with its own script and ignores code in the image",
            path="entry_point",
            remedy="Use --sdk 2, or an image without code.",
        )


def _hardware(image: ImageFacts, kind: Instance, path: str) -> Iterator[Finding]:
    if (kind.architecture == "arm64") != (image.platform == ARM64):
        there = f"{kind.name} has {'an ARM' if kind.architecture == 'arm64' else 'an x86-64'} processor"
        yield PROCESSOR.finding(f"{there}, but the image is for {image.platform}", path=path)
    if kind.neuron_devices:
        yield PROCESSOR.finding(f"{kind.name} has Trainium devices, but the image has no Neuron SDK", path=path)
        return
    if image.cuda == "cpu" and kind.gpus:
        yield NO_GPU_CODE.finding(f"a CPU image on {kind.name}, whose GPUs remain unused", path=path)
    elif image.cuda not in (None, "cpu") and not kind.gpus:
        yield NO_GPU_CODE.finding(
            f"an image with CUDA {image.cuda} on {kind.name}, which has no GPU", path=path, severity="note"
        )
    if image.cuda in (None, "cpu"):
        return
    has = version_key(str(image.cuda))
    first, gone = FIRST_CUDA.get(kind.gpu or ""), GONE_CUDA.get(kind.gpu or "")
    if first and has < version_key(first):
        yield CUDA_VERSION.finding(
            f"{kind.gpu} ({kind.name}) is supported from CUDA {first}; the image has {image.cuda}", path=path
        )
    if gone and has >= version_key(gone):
        yield CUDA_VERSION.finding(
            f"{kind.gpu} ({kind.name}) is no longer supported from CUDA {gone}; the image has {image.cuda}", path=path
        )
