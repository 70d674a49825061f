"""Check the image against the job: its launchers, libraries, code, processor and CUDA version."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from trainwright.catalog.image_line import BASE, version_key
from trainwright.catalog.platforms import ARM64
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.image import ECR, ImageFacts
from trainwright.estimator.rules_distribution import SDK
from trainwright.estimator.subject import Subject, enabled
from trainwright.plan.destination import CLUSTER
from trainwright.sagemaker.distribution import needs_framework_module
from trainwright.sagemaker.dlc import FRAMEWORKS, load_dlc
from trainwright.sagemaker.gpus import GPUS, first_of_generation, runs_on
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
    source="aws/deep-learning-containers, available_images.md: repositories for inference and tags for EC2 have no "
    "training toolkit",
    remedy="Use the repository of the same name that ends in -training, and its tag for SageMaker.",
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
    title="an image without CUDA on GPU instances (an error: with smdistributed or torchrun and no requirements.txt) "
    "or one with CUDA on others; machine code for other GPUs than the instance's (--for-gpus; an error for those of "
    "another series)",
    source=LABELS,
    remedy="Use a line of the other kind: ./invoke list.",
)
CUDA_VERSION = Rule(
    code="TW250",
    severity="error",
    title="the image's CUDA version no longer supports the GPU, or not yet (a warning where its code may run)",
    source="NVIDIA's release notes of CUDA: the versions that added and dropped each compute capability; its Hopper "
    "Compatibility Guide: code compiled for 8.x does not run on 9.0; PyTorch's wheels on such GPUs: "
    "HazyResearch/hyena-dna #76, weecology/DeepForest #1090",
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
_WORD = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_WORD}(?:/{_WORD})*")  # botocore's model of ECR, RepositoryName
# Launcher → required components. The toolkit starts sshd on each host of an MPI job.
NEEDS = {
    "mpi": ("sagemaker-toolkit", "openmpi", "ssh", "mpi4py"),
    "smddp": ("sagemaker-toolkit", "openmpi", "ssh", "mpi4py", "smdistributed-dataparallel"),
    "torchrun": ("sagemaker-toolkit", "pytorch"),
}
# SDK 3's drivers take the toolkit's place.
NEEDS_3 = {"mpi": ("openmpi", "ssh", "mpi4py"), "torchrun": ("pytorch",)}
# GPU → the first CUDA version that compiles for a GPU of its generation, whose code it runs. PyTorch's wheels hold no
# PTX of older ones that a newer GPU could compile; TensorFlow's do, and of what AWS compiles it is not known.
FIRST_OF_GENERATION = {name: first for name, gpu in GPUS.items() if (first := first_of_generation(gpu, since=9))}


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    yield from _address(subject)
    if subject.image is None:
        if subject.job.image:
            yield UNKNOWN.finding(f"no labels found for {subject.job.image}", path="image")
        return
    where = "plan" if subject.image.origin == "plan" else "image"
    if subject.image.components is not None:
        yield from _components(subject, subject.image, subject.image.components, where)
    yield from _code(subject, subject.image)
    on_gpus = subject.launcher == "smddp" or bool(subject.smp_parameters) or _torchrun_alone(subject)
    for path, kind, _ in subject.instances:
        yield from _hardware(subject.image, kind, path, on_gpus=on_gpus)


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
    elif job.image and (wrong := _not_of_ecr(job.image, own=_in_vpc(subject))):
        more = ", or `registry: {access_mode: Vpc}` for a registry in the job's VPC" if ".ecr" not in job.image else ""
        yield NOT_IN_ECR.finding(wrong, path="image", remedy=f"./invoke push --image {job.image}{more}")
    elif job.image and found is None and not _host_of(job.image):
        more = ", or name the registry's host in the address: registry.example.com/team/training:1"
        # A job that is only checked may use a local image.
        yield NOT_IN_ECR.finding(
            f"{job.image} is not an address in Amazon ECR",
            path="image",
            severity="error" if subject.generates else "note",
            remedy=f"./invoke push --image {job.image}{more if _in_vpc(subject) else ''}",
        )
    if found and found["account"] in load_dlc().accounts["dlc"].values():
        if "-inference" in found["repository"]:
            yield NOT_FOR_TRAINING.finding(f"{found['repository']} is for inference", path="image")
        elif found["repository"] in FRAMEWORKS and re.search(r"-ec2(-|$)", found["tag"] or ""):
            yield NOT_FOR_TRAINING.finding(f"{found['tag']} is for EC2, ECS and EKS", path="image")
    if found and job.region and found["region"] != job.region:
        yield OTHER_REGION.finding(f"the image is in {found['region']}, the job in {job.region}", path="region")


def _in_vpc(subject: Subject) -> bool:
    """Whether the image is in a registry of the job's VPC."""
    registry = subject.job.registry
    return registry is not None and registry.access_mode == "Vpc"


def _host_of(image: str) -> str | None:
    """The host that an address names, as Docker tells it from a folder of its Hub; None for a local tag."""
    host, slash, _ = image.partition("/")
    return host if slash and set(".:") & set(host) and not host.startswith("localhost:") else None


def _not_of_ecr(image: str, *, own: bool) -> str | None:
    """Why an address that names a registry leads neither to ECR nor to the job's own; None if it does."""
    host, found = _host_of(image), ECR.fullmatch(image)
    if image.startswith("public.ecr.aws/"):
        return "the public gallery is not a private Amazon ECR registry"
    if host is None or (own and ".ecr" not in host):
        return None
    if found is None:
        return f"{image} is {'not an address of an image in Amazon ECR' if '.ecr' in host else 'in another registry'}"
    suffix, repository = load_dlc().domains.get(found["region"]), found["repository"]
    if ".dkr.ecr" in host and suffix and found["domain"] != suffix:
        return f"{host} is not a registry: in {found['region']} its name ends in {suffix}"
    if not _REPOSITORY.fullmatch(repository):
        return f"{repository} is not a repository: its name has lower-case letters, digits and . _ - / alone"
    return None


def _components(subject: Subject, image: ImageFacts, components: Mapping[str, str], where: str) -> Iterator[Finding]:
    launcher = subject.launcher
    if subject.cluster is None and image.has(CLUSTER):
        place = components[CLUSTER].partition("(")[2].rstrip(")")
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
        there = components.get("smdistributed-modelparallel", "")
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


def _torchrun_alone(subject: Subject) -> bool:
    """Whether torchrun starts a script to which no requirements.txt brings another PyTorch."""
    source = subject.job.source_dir
    if subject.launcher != "torchrun" or source is None:
        return False
    folder = subject.folder / source  # an address in S3 is not a folder
    return folder.is_dir() and not (folder / "requirements.txt").exists()


def _hardware(image: ImageFacts, kind: Instance, path: str, *, on_gpus: bool) -> Iterator[Finding]:
    """Check one instance type; ``on_gpus``: what starts the job does so for GPUs alone."""
    if (kind.architecture == "arm64") != (image.platform == ARM64):
        there = f"{kind.name} has {'an ARM' if kind.architecture == 'arm64' else 'an x86-64'} processor"
        yield PROCESSOR.finding(f"{there}, but the image is for {image.platform}", path=path)
    if kind.neuron_devices:
        yield PROCESSOR.finding(f"{kind.name} has Trainium devices, but the image has no Neuron SDK", path=path)
        return
    if image.cuda == "cpu" and kind.gpus:
        yield NO_GPU_CODE.finding(
            f"a CPU image on {kind.name}, whose GPUs remain unused",
            path=path,
            severity="error" if on_gpus else "warning",
        )
    elif image.cuda not in (None, "cpu") and not kind.gpus:
        yield NO_GPU_CODE.finding(
            f"an image with CUDA {image.cuda} on {kind.name}, which has no GPU", path=path, severity="note"
        )
    if image.cuda in (None, "cpu"):
        return
    has = version_key(str(image.cuda))
    gpu = GPUS.get(kind.gpu or "")
    if gpu is None:
        return
    first, gone = gpu.first, gpu.gone
    if first and has < version_key(first):
        yield CUDA_VERSION.finding(
            f"{kind.gpu} ({kind.name}) is supported from CUDA {first}; the image has {image.cuda}",
            path=path,
            severity="error" if _without_code(image, kind.gpu or "", has) else "warning",
        )
    if gone and has >= version_key(gone):
        yield CUDA_VERSION.finding(
            f"{kind.gpu} ({kind.name}) is no longer supported from CUDA {gone}; the image has {image.cuda}", path=path
        )
    if image.gpus and gpu.capability not in image.gpus:
        near = any(runs_on(each, gpu.capability) for each in image.gpus)  # but for code that only this GPU had
        yield NO_GPU_CODE.finding(
            f"{kind.gpu} ({kind.name}) has compute capability {gpu.capability}, the image is for "
            f"{', '.join(image.gpus)} alone (--for-gpus)",
            path=path,
            severity="warning" if near else "error",
            remedy="Build the image for that GPU, too, or without --for-gpus.",
        )


def _without_code(image: ImageFacts, gpu: str, has: tuple[int, ...]) -> bool:
    """Whether the image's framework surely holds no code that a GPU newer than its CUDA runs."""
    wheel = (image.components or {}).get("pytorch", "").endswith("(wheel)")
    return wheel and gpu in FIRST_OF_GENERATION and has < version_key(FIRST_OF_GENERATION[gpu])
