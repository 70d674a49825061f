"""SageMaker Training Compiler: what it needs, on what it runs, and the one way to drive an own image with it."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.catalog.image_line import version_key
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.rules_distribution import SDK
from trainwright.estimator.subject import Subject, enabled

GUIDE = "AWS guide for the SageMaker Training Compiler"
ENDED = Rule(
    code="TW251",
    severity="note",
    title="AWS has ended the Training Compiler: no new versions, and its images are patched no more",
    source=f"{GUIDE}; AWS's policy for Deep Learning Containers",
    remedy="New code takes torch.compile; ./invoke estimator --compare shows what the compiler brings.",
)
INSTANCE = Rule(
    code="TW252",
    severity="error",
    title="an instance type on which the Training Compiler does not run",
    source=f"{SDK}: p3, p3dn, g4dn, p4d and g5, and nothing else",
    remedy="Take a type of one of these classes.",
)
NOT_THERE = Rule(
    code="TW253",
    severity="error",
    title="the image does not hold the Training Compiler",
    source="the image's labels; AWS's Dockerfiles: PyTorch 1.12 and 1.13 in pytorch-trcomp images, TensorFlow 2.9 to "
    "2.11 in the ordinary ones",
    remedy="An image line that has it: ./invoke list --framework pytorch-trcomp",
)
TOGETHER = Rule(
    code="TW254",
    severity="error",
    title="a strategy that the Training Compiler does not go with",
    source=f"{SDK}, which refuses it",
    remedy="pytorchxla is the strategy for several GPUs; or leave the compiler out.",
)
PLAIN_HYPERPARAMETERS = Rule(
    code="TW255",
    severity="note",
    title="the SDK refuses the Training Compiler for an own image, so the hyperparameters are given in full",
    source=f"{SDK}: compiler_config and image_uri exclude each other, for PyTorch and Hugging Face",
    remedy="Nothing to do: what is generated does it.",
)
XLA_ALONE = Rule(
    code="TW256",
    severity="error",
    title="pytorchxla without the Training Compiler",
    source=f"{SDK}, which refuses it",
    remedy="compiler: {enabled: true}",
)
SEVERAL_GPUS = Rule(
    code="TW257",
    severity="warning",
    title="the Training Compiler on several GPUs without pytorchxla: one process per host",
    source=f"{GUIDE}: distributed training with the compiler; {SDK}: PyTorch 1.12 and newer with pytorchxla alone",
    remedy='distribution: {"pytorchxla": {"enabled": true}}',
)
GPU_NUM_DEVICES = Rule(
    code="TW258",
    severity="warning",
    title="GPU_NUM_DEVICES is not what the instance type has",
    source=f'{GUIDE}, troubleshooting: "Missing XLA configuration"',
    remedy="environment: {GPU_NUM_DEVICES: <GPUs of the type, as text>}",
)
SLOW_TYPE = Rule(
    code="TW259",
    severity="note",
    title="several hosts without EFA under the Training Compiler",
    source=f"{GUIDE}, best practices: p3dn and p4d, whose hosts are joined by EFA",
    remedy="ml.p4d.24xlarge or ml.p3dn.24xlarge.",
)
RULES = (
    ENDED,
    INSTANCE,
    NOT_THERE,
    TOGETHER,
    PLAIN_HYPERPARAMETERS,
    XLA_ALONE,
    SEVERAL_GPUS,
    GPU_NUM_DEVICES,
    SLOW_TYPE,
)
CLASSES = ("p3", "p3dn", "g4dn", "p4d", "g5")


def check(subject: Subject) -> Iterator[Finding]:
    """The rules of this family."""
    job = subject.job
    given = job.distribution
    if not subject.compiler:
        return
    xla = enabled(given, "pytorchxla")
    yield ENDED.finding("the Training Compiler is on", path="compiler")
    if not (job.compiler and job.compiler.enabled):
        yield XLA_ALONE.finding("pytorchxla is on, and the compiler is not", path="distribution.pytorchxla")
    if subject.sdk == 2:
        yield PLAIN_HYPERPARAMETERS.finding("raw hyperparameters drive the image", path="compiler")
    yield from _image(subject)
    yield from _strategies(subject)
    said = job.environment.get("GPU_NUM_DEVICES")
    for path, kind, _ in subject.instances:
        if kind.family not in CLASSES:
            yield INSTANCE.finding(f"{kind.name} is none of {', '.join(CLASSES)}", path=path)
            continue
        if kind.gpus > 1 and not xla and subject.framework != "tensorflow" and subject.launcher == "process":
            yield SEVERAL_GPUS.finding(f"{kind.name} has {kind.gpus} GPUs", path="distribution")
        if said is not None and said != str(kind.gpus):
            yield GPU_NUM_DEVICES.finding(
                f"GPU_NUM_DEVICES is {said}, and {kind.name} has {kind.gpus} GPUs",
                path="environment.GPU_NUM_DEVICES",
                remedy=f'GPU_NUM_DEVICES: "{kind.gpus}"',
            )
        elif said is None and not xla and subject.framework == "pytorch":
            yield GPU_NUM_DEVICES.finding(
                "GPU_NUM_DEVICES is set by the launcher of pytorchxla alone",
                path="environment",
                severity="note",
                remedy=f'environment: {{GPU_NUM_DEVICES: "{kind.gpus}"}}',
            )
        if subject.hosts > 1 and not kind.efa:
            yield SLOW_TYPE.finding(f"{subject.hosts} hosts of {kind.name}", path=path)


def _strategies(subject: Subject) -> Iterator[Finding]:
    """With PyTorch pytorchxla alone goes with it; with TensorFlow what TensorFlow starts by itself."""
    given = subject.job.distribution
    if subject.job.instance_groups or "instance_groups" in given:
        yield TOGETHER.finding("instance groups with the Training Compiler", path="instance_groups")
    for name in given:
        refused = name in ("smdistributed", "multi_worker_mirrored_strategy")
        if subject.framework != "tensorflow":
            refused = name not in ("pytorchxla", "instance_groups")
        if refused:
            yield TOGETHER.finding(f"{name} with the Training Compiler", path=f"distribution.{name}")


def _image(subject: Subject) -> Iterator[Finding]:
    image = subject.image
    if image is None:
        return
    path = "plan" if image.origin == "plan" else "image"
    if image.family == "tensorflow":
        there = "trcomp" in image.framework or (2, 9) <= version_key(image.version)[:2] <= (2, 11)
    else:
        there = "trcomp" in image.framework or bool(image.has("torch-xla"))
    if not there:
        yield NOT_THERE.finding(f"it is an image of {image.framework} {image.version}", path=path)
