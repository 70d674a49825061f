"""The image held against the job: its launchers, libraries, code, processor and CUDA version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from trainwright.catalog.image_line import version_key
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.image import ECR, ImageFacts
from trainwright.estimator.rules_distribution import TRIED
from trainwright.estimator.subject import Subject, enabled
from trainwright.sagemaker.distribution import needs_framework_module
from trainwright.sagemaker.instances import Instance

LABELS = "the image's labels, which its build proved"
TOOLKIT = "sagemaker-training 5.1.4"
UNKNOWN = Rule(
    code="TW240",
    severity="note",
    title="nothing is known of the image, so whether it holds what the job needs was not checked",
    source="no label of Trainwright's, and no image of AWS's",
    remedy="./invoke rehearse --image …, or `plan:` in the job file.",
)
NOT_IN_ECR = Rule(
    code="TW241",
    severity="error",
    title="the image is not in Amazon ECR, and SageMaker pulls from nowhere else",
    source="AWS documentation of training with an own image; aws/sagemaker-python-sdk #2174",
    remedy="./invoke push --image …, then the address that it prints.",
)
OTHER_REGION = Rule(
    code="TW242",
    severity="error",
    title="the image lies in another region than the job runs in",
    source="AWS documentation of training with an own image: same region",
    remedy="./invoke push --region …, or the region of the image.",
)
NO_LAUNCHER = Rule(
    code="TW243",
    severity="error",
    title="the image does not hold what the launcher needs",
    source=f"{LABELS}; {TOOLKIT} and its framework modules",
    remedy="An image with it: ./invoke list --json shows the components of each line.",
)
NO_MODULE = Rule(
    code="TW244",
    severity="error",
    title="the launcher is one that only a framework's module of the toolkit knows, and the image has no such module",
    source=f"{TRIED}: {TOOLKIT} alone starts one process and says SUCCESS",
    remedy="An image with sagemaker-pytorch-training (or -tensorflow-), or mpi as launcher.",
)
OPEN_MPI = Rule(
    code="TW245",
    severity="error",
    title="Open MPI other than 4 cannot be used over several hosts",
    source=f"{TOOLKIT}: workers wait for a process called orted; tried with 5.0.11",
    remedy="An image with Open MPI 4.",
)
BAKED = Rule(
    code="TW246",
    severity="error",
    title="the image holds code, so the toolkit ignores the code of the estimator",
    source=f"{TRIED} with {TOOLKIT}; aws/sagemaker-training-toolkit #222",
    remedy="Leave out source_dir and entry_point, or take an image without code.",
)
OTHER_ENTRY = Rule(
    code="TW247",
    severity="error",
    title="entry_point is not the one that is baked into the image, which wins",
    source=f"{TRIED} with {TOOLKIT}: SAGEMAKER_PROGRAM of the image wins over the estimator's",
    remedy="Leave entry_point out, or take an image without code.",
)
PROCESSOR = Rule(
    code="TW248",
    severity="error",
    title="the image cannot run on the instance's processor or accelerator",
    source="table of instance types",
    remedy="Take an instance type with that processor.",
)
NO_GPU_CODE = Rule(
    code="TW249",
    severity="warning",
    title="an image without CUDA on GPU instances, or one with CUDA where there is no GPU",
    source=LABELS,
    remedy="./invoke list shows the lines of the other kind.",
)
CUDA_VERSION = Rule(
    code="TW250",
    severity="warning",
    title="the image's CUDA version does not know the GPU yet, or no longer",
    source="NVIDIA's release notes of CUDA: with which version a compute capability came, and went",
    remedy="An image with another CUDA version, or another instance type.",
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
)
# launcher: components that must be there. The toolkit starts sshd on each host of an MPI job.
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
# GPU → the first CUDA version that no longer does.
GONE_CUDA = {"K80": "12.0", "V100": "13.0"}


def check(subject: Subject) -> Iterator[Finding]:
    """The rules of this family."""
    yield from _address(subject)
    if subject.image is None:
        if subject.job.image:
            yield UNKNOWN.finding(f"{subject.job.image} has no labels that were found", path="image")
        return
    where = "plan" if subject.image.origin == "plan" else "image"
    if subject.image.components is not None:
        yield from _components(subject, subject.image, where)
    yield from _code(subject, subject.image)
    for path, kind, _ in subject.instances:
        yield from _hardware(subject.image, kind, path)


def _address(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    found = ECR.fullmatch(job.image) if job.image else None
    if job.image and found is None and not job.image.startswith("public.ecr.aws/"):
        # What is only checked may lie here still.
        severity = "error" if subject.generates else "note"
        yield NOT_IN_ECR.finding(
            f"{job.image} is no address in Amazon ECR",
            path="image",
            severity=severity,  # type: ignore[arg-type]
            remedy=f"./invoke push --image {job.image}",
        )
    elif job.image and found is None:
        yield NOT_IN_ECR.finding("the public gallery is not Amazon ECR's private registry", path="image")
    if found and job.region and found["region"] != job.region:
        yield OTHER_REGION.finding(f"the image is in {found['region']}, the job in {job.region}", path="region")


def _components(subject: Subject, image: ImageFacts, where: str) -> Iterator[Finding]:
    launcher = subject.launcher
    needs = list((NEEDS_3 if subject.sdk == 3 else NEEDS).get(launcher, ()))
    if enabled(subject.job.distribution, "smdistributed", "modelparallel"):
        needs.append("smdistributed-modelparallel")
        if image.family == "tensorflow":
            yield NO_LAUNCHER.finding(
                "the model parallel library comes for PyTorch alone in an image of one's own", path=where
            )
    missing = [name for name in needs if not image.has(name)]
    for name in missing:
        yield NO_LAUNCHER.finding(f"{launcher} needs {name}, which the image does not hold", path=where)
    module = subject.sdk == 2 and needs_framework_module(launcher)
    if module and image.has("sagemaker-toolkit") and image.family is None:
        yield NO_MODULE.finding(f"{launcher} with an image of {image.framework}", path=where)
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
            f"the image runs {image.entry_point}, the job asks for {job.entry_point}", path="entry_point"
        )
    elif job.entry_point:
        yield BAKED.finding(f"{job.entry_point} is in the image already", path="entry_point", severity="warning")
    if subject.sdk == 3:
        yield BAKED.finding(
            "SDK 3 replaces `train` by its own script and knows nothing of code in the image",
            path="entry_point",
            remedy="--sdk 2, or an image without code.",
        )


def _hardware(image: ImageFacts, kind: Instance, path: str) -> Iterator[Finding]:
    if kind.architecture == "arm64":
        yield PROCESSOR.finding(f"{kind.name} has an ARM processor, the image is for x86-64", path=path)
    if kind.neuron_devices:
        yield PROCESSOR.finding(f"{kind.name} has Trainium devices, and the image no Neuron SDK", path=path)
        return
    if image.cuda == "cpu" and kind.gpus:
        yield NO_GPU_CODE.finding(f"a CPU image on {kind.name}, whose GPUs stay unused", path=path)
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
            f"{kind.gpu} ({kind.name}) came with CUDA {first}; the image has {image.cuda}", path=path
        )
    if gone and has >= version_key(gone):
        yield CUDA_VERSION.finding(
            f"{kind.gpu} ({kind.name}) went with CUDA {gone}; the image has {image.cuda}", path=path
        )
