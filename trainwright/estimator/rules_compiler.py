"""SageMaker Training Compiler: its requirements, its instance types, and how to use it with a custom image."""

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
    title="AWS has discontinued the Training Compiler: no new versions, and no patches for its images",
    source=f"{GUIDE}; AWS's policy for Deep Learning Containers",
    remedy="Use torch.compile for new code; ./invoke estimator --compare shows what the compiler gains.",
)
INSTANCE = Rule(
    code="TW252",
    severity="error",
    title="an instance type that the Training Compiler does not support",
    source=f"{SDK}: p3, p3dn, g4dn, p4d and g5 only",
    remedy="Use a type of one of these families.",
)
NOT_THERE = Rule(
    code="TW253",
    severity="error",
    title="the image does not contain the Training Compiler",
    source="the image's labels; AWS's Dockerfiles: PyTorch 1.12 and 1.13 in pytorch-trcomp images, TensorFlow 2.9 to "
    "2.11 in the ordinary ones",
    remedy="Use an image line with it: ./invoke list --framework pytorch-trcomp",
)
TOGETHER = Rule(
    code="TW254",
    severity="error",
    title="a strategy that cannot be combined with the Training Compiler",
    source=f"{SDK}, which rejects it",
    remedy="Use pytorchxla for several GPUs, or disable the compiler.",
)
PLAIN_HYPERPARAMETERS = Rule(
    code="TW255",
    severity="note",
    title="the SDK rejects the Training Compiler for a custom image, so raw hyperparameters are generated",
    source=f"{SDK}: compiler_config and image_uri exclude each other, for PyTorch and Hugging Face; {GUIDE}: extending "
    "AWS's containers, by hyperparameters of the generic estimator",
    remedy="Nothing to do; the generated code does this.",
)
XLA_ALONE = Rule(
    code="TW256",
    severity="error",
    title="pytorchxla without the Training Compiler",
    source=f"{SDK}, which rejects it",
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
    title="GPU_NUM_DEVICES is not the number of GPUs of the instance type",
    source=f'{GUIDE}, troubleshooting: "Missing XLA configuration"',
    remedy='environment: {GPU_NUM_DEVICES: "<GPUs of the type>"}',
)
SLOW_TYPE = Rule(
    code="TW259",
    severity="note",
    title="the Training Compiler on several hosts without EFA",
    source=f"{GUIDE}, best practices: p3dn and p4d, which have EFA",
    remedy="Use ml.p4d.24xlarge or ml.p3dn.24xlarge.",
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
    """Check the rules of this family."""
    job = subject.job
    given = job.distribution
    if not subject.compiler:
        return
    xla = enabled(given, "pytorchxla")
    yield ENDED.finding("the Training Compiler is enabled", path="compiler")
    if not (job.compiler and job.compiler.enabled):
        yield XLA_ALONE.finding("pytorchxla is enabled, but the compiler is not", path="distribution.pytorchxla")
    if subject.sdk == 2:
        yield PLAIN_HYPERPARAMETERS.finding("raw hyperparameters enable it in the image", path="compiler")
    yield from _image(subject)
    yield from _strategies(subject)
    devices = job.environment.get("GPU_NUM_DEVICES")
    for path, kind, _ in subject.instances:
        if kind.family not in CLASSES:
            yield INSTANCE.finding(f"{kind.name} is not one of {', '.join(CLASSES)}", path=path)
            continue
        if kind.gpus > 1 and not xla and subject.framework != "tensorflow" and subject.launcher == "process":
            yield SEVERAL_GPUS.finding(f"{kind.name} has {kind.gpus} GPUs", path="distribution")
        if devices is not None and devices != str(kind.gpus):
            yield GPU_NUM_DEVICES.finding(
                f"GPU_NUM_DEVICES is {devices}, but {kind.name} has {kind.gpus} GPUs",
                path="environment.GPU_NUM_DEVICES",
                remedy=f'GPU_NUM_DEVICES: "{kind.gpus}"',
            )
        elif devices is None and not xla and subject.framework == "pytorch":
            yield GPU_NUM_DEVICES.finding(
                "GPU_NUM_DEVICES is only set by pytorchxla's launcher",
                path="environment",
                severity="note",
                remedy=f'environment: {{GPU_NUM_DEVICES: "{kind.gpus}"}}',
            )
        if subject.hosts > 1 and not kind.efa:
            yield SLOW_TYPE.finding(f"{subject.hosts} hosts of {kind.name}", path=path)


def _strategies(subject: Subject) -> Iterator[Finding]:
    """Check the strategy: only pytorchxla for PyTorch, or one that TensorFlow starts itself."""
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
        if subject.job.image:
            unknown = "nothing is known about the image; only AWS's containers, and images that extend them, have it"
            yield NOT_THERE.finding(unknown, path="image", severity="warning")
        return
    path = "plan" if image.origin == "plan" else "image"
    if image.family == "tensorflow":
        included = "trcomp" in image.framework or (2, 9) <= version_key(image.version)[:2] <= (2, 11)
    else:
        included = "trcomp" in image.framework or bool(image.has("torch-xla"))
    if not included:
        yield NOT_THERE.finding(f"the image has {image.framework} {image.version} without the compiler", path=path)
