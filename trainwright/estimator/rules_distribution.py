"""``distribution``: its keys, their values, and combinations of which one would silently win."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainwright.catalog.image_line import version_key
from trainwright.core.errors import did_you_mean
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.subject import MODEL_PARALLEL, Subject, enabled, part
from trainwright.sagemaker.distribution import INNER, MEANT, STRATEGIES, Key
from trainwright.sagemaker.toolkit import PYTORCH_TOOLKIT, TENSORFLOW_TOOLKIT, TOOLKIT

SDK = "sagemaker 2.257.7, estimator.py and fw_utils.py"
TRIED = f"tried with {SDK}: accepted without any effect"
UNKNOWN = Rule(
    code="TW200",
    severity="error",
    title="an unknown key in distribution",
    source=TRIED,
    remedy="Correct or remove the key.",
)
VALUE = Rule(
    code="TW201",
    severity="error",
    title="a value in distribution has the wrong type",
    source=SDK,
    remedy="Write it as described in the message.",
)
FOREIGN = Rule(
    code="TW202",
    severity="error",
    title="a strategy for another framework than the image's",
    source=f"{PYTORCH_TOOLKIT} and {TENSORFLOW_TOOLKIT}, training.py",
    remedy="Use a strategy that the image's framework supports.",
)
SWITCHED_OFF = Rule(
    code="TW203",
    severity="error",
    title="a strategy without enabled: true, which the SDK leaves out of the job",
    source=f'{SDK}: without "enabled": true a strategy is disabled',
    remedy='Add "enabled": true, or remove the strategy.',
)
EXACTLY_ONE = Rule(
    code="TW204",
    severity="error",
    title="smdistributed needs exactly one of dataparallel and modelparallel",
    source=f"{SDK}: rejected; AWS guide for model parallelism: the two libraries cannot be combined",
    remedy="Keep one of them.",
)
TOGETHER = Rule(
    code="TW205",
    severity="error",
    title="two strategies of which one is silently dropped",
    source=f"{TRIED}; {PYTORCH_TOOLKIT} and {TENSORFLOW_TOOLKIT} take the first one they know",
    remedy="Keep one of them.",
)
REFUSED_TOGETHER = Rule(
    code="TW206",
    severity="error",
    title="two strategies that the SDK rejects together",
    source=SDK,
    remedy="Keep one of them.",
)
GROUPS = Rule(
    code="TW207",
    severity="error",
    title="distribution.instance_groups does not match the groups of the job",
    source=SDK,
    remedy="List the name of one group, together with mpi or smdistributed.",
)
TRAINIUM = Rule(
    code="TW208",
    severity="error",
    title="Trainium instances support only torch_distributed",
    source=SDK,
    remedy='distribution: {"torch_distributed": {"enabled": true}}',
)
PYTHON_ONLY = Rule(
    code="TW209",
    severity="error",
    title="torchrun and xla_spawn only start Python files, not packages (a source_dir with setup.py)",
    source=f"{SDK}; {PYTORCH_TOOLKIT}; {TOOLKIT}, _entry_point_type.py: setup.py makes it a package; "
    "torch_distributed.py and pytorch_xla.py: ClientError for packages",
    remedy="Use a .py file as entry_point, and leave setup.py out of source_dir.",
)
P5 = Rule(
    code="TW210",
    severity="error",
    title="smdistributed on ml.p5.48xlarge, or on AWS's PyTorch 2.0.1 image for CUDA 12.1, without torch_distributed",
    source=SDK,
    remedy='Add "torch_distributed": {"enabled": true}.',
)
PARAMETER_SERVER = Rule(
    code="TW211",
    severity="warning",
    title="a parameter server on instances with several GPUs; each host trains with one process",
    source=f"{SDK}, which warns about it",
    remedy="Use mpi with Horovod, or multi_worker_mirrored_strategy.",
)
MWMS = Rule(
    code="TW212",
    severity="error",
    title="multi_worker_mirrored_strategy needs TensorFlow 2.9 or newer",
    source=SDK,
    remedy="Use an image with a newer TensorFlow, or mpi with Horovod.",
)
NO_ACCELERATOR = Rule(
    code="TW213",
    severity="warning",
    title="a strategy for accelerators on an instance type without any; one process per host is started (an error: the "
    "model parallel library, which needs a GPU for each process)",
    source=f"{TRIED}: one process per GPU or NeuronCore is started, or a single one; "
    "aws/sagemaker-python-sdk, smd_model_parallel_general.rst: each process of the library on a GPU of its own",
    remedy="Use a GPU or Trainium type, or remove the strategy.",
)
ONE_HOST = Rule(
    code="TW214",
    severity="warning",
    title="a strategy for several hosts, but the job has one",
    source=f"{TENSORFLOW_TOOLKIT}: parameter servers are started on two or more hosts",
    remedy="Set instance_count to 2 or more.",
)
OLD_CONTAINER = Rule(
    code="TW315",
    severity="error",
    title="a strategy or instance groups for which AWS's own container is too old",
    source=f"{SDK}, and pytorch/estimator.py: torch_distributed on GPUs from PyTorch 1.13.1; AWS's developer guide, "
    "running training jobs on a heterogeneous cluster: PyTorch 1.10, TensorFlow 2.6; "
    "aws/sagemaker-pytorch-training-toolkit, CHANGELOG.md: in 2.7.0 and 2.5.0, of 2022",
    remedy="Use a newer container, or an image of your own: those of Trainwright have the newest toolkit.",
)
REFUSED = Rule(
    code="TW219",
    severity="error",
    title="the distribution is invalid",
    source="Trainwright's own reading of the SDK, shared with rehearse",
    remedy="Correct the key in the message.",
)
RULES = (
    UNKNOWN,
    VALUE,
    FOREIGN,
    SWITCHED_OFF,
    EXACTLY_ONE,
    TOGETHER,
    REFUSED_TOGETHER,
    GROUPS,
    TRAINIUM,
    PYTHON_ONLY,
    P5,
    PARAMETER_SERVER,
    MWMS,
    NO_ACCELERATOR,
    ONE_HOST,
    OLD_CONTAINER,
    REFUSED,
)
FIRST_WITH_GROUPS = {"pytorch": (1, 10), "tensorflow": (2, 6)}
# Tables with a switch of their own; smdistributed's is one level deeper.
_SWITCHES = (
    *(name for name in STRATEGIES if name not in ("smdistributed", "instance_groups")),
    "smdistributed.dataparallel",
    "smdistributed.modelparallel",
)


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    given = subject.job.distribution
    yield from _keys(given, STRATEGIES, "distribution", subject)
    for name, keys in INNER.items():
        yield from _keys(part(given, *name.split(".")), keys, f"distribution.{name}", subject)
    for name in _SWITCHES:
        *above, last = name.split(".")
        table = part(given, *above).get(last)
        if isinstance(table, Mapping) and "enabled" not in table:
            yield SWITCHED_OFF.finding(f'{name} lacks "enabled": true', path=f"distribution.{name}.enabled")
    yield from _together(given, subject.hosts)
    yield from _groups(subject)
    yield from _hardware(subject)
    entry = subject.job.entry_point
    if subject.launcher in ("torchrun", "xla") and entry is not None and not entry.endswith(".py"):
        yield PYTHON_ONLY.finding(f"{entry} is not a .py file", path="entry_point")
    elif subject.launcher in ("torchrun", "xla") and entry is not None and _package(subject):
        yield PYTHON_ONLY.finding("source_dir has a setup.py, so the toolkit takes it for a package", path="source_dir")
    yield from _tensorflow(subject)
    yield from _old_container(subject)


def _package(subject: Subject) -> bool:
    """Whether the toolkit takes the code for a Python package; SDK 3's drivers and clusters do without it."""
    source = subject.job.source_dir  # an address in S3 is not a folder
    if source is None or subject.sdk == 3 or subject.cluster:
        return False
    return (subject.folder / source / "setup.py").is_file()


def _old_container(subject: Subject) -> Iterator[Finding]:
    image = subject.image
    if image is None or image.origin != "name" or image.family is None:
        return
    has, what = version_key(image.version), f"{image.framework} {image.version}"
    if subject.launcher == "torchrun" and subject.gpus and image.family == "pytorch" and has < (1, 13, 1):
        yield OLD_CONTAINER.finding(
            f"AWS's container has {what}; torch_distributed needs 1.13.1", path="distribution.torch_distributed"
        )
    first = FIRST_WITH_GROUPS[image.family]
    if len(subject.job.instance_groups) > 1 and has < first:
        needs = ".".join(map(str, first))
        yield OLD_CONTAINER.finding(f"AWS's container has {what}; instance groups need {needs}", path="instance_groups")


def _tensorflow(subject: Subject) -> Iterator[Finding]:
    requested = "multi_worker_mirrored_strategy" in subject.job.distribution
    image = subject.image
    if requested and image and image.family == "tensorflow" and version_key(image.version) < (2, 9):
        where = "distribution.multi_worker_mirrored_strategy"
        yield MWMS.finding(f"the image has TensorFlow {image.version}", path=where)


def _keys(table: Mapping[str, Any], keys: Mapping[str, Key], where: str, subject: Subject) -> Iterator[Finding]:
    framework = subject.framework
    known = {name: key for name, key in keys.items() if framework is None or framework in key.frameworks}
    for key, value in table.items():
        name = str(key)  # YAML does not read `on` and `8` as strings
        path = f"{where}.{name}"
        if name not in keys:
            meant = MEANT.get(name)
            hint = f"Did you mean {meant}?" if meant in keys else did_you_mean(name, known)
            yield UNKNOWN.finding(f"unknown key {name!r} in {where}; the SDK silently drops it. {hint}", path=path)
        elif name not in known:
            yield FOREIGN.finding(
                f"{name} is for {' and '.join(keys[name].frameworks)}; the image has {framework}", path=path
            )
        elif not keys[name].takes(value):
            # "enabled": "true" is a string, and every non-empty string enables, even "false".
            yield VALUE.finding(f"{name} must be {keys[name].words}, not {json.dumps(value, default=str)}", path=path)


def _together(given: Mapping[str, Any], hosts: int) -> Iterator[Finding]:
    libraries = [name for name in part(given, "smdistributed") if name in ("dataparallel", "modelparallel")]
    if "smdistributed" in given and len(libraries) != 1:
        both = "both dataparallel and modelparallel" if libraries else "neither dataparallel nor modelparallel"
        yield EXACTLY_ONE.finding(f"smdistributed has {both}", path="distribution.smdistributed")
    torchrun, mpi = enabled(given, "torch_distributed"), enabled(given, "mpi")
    smddp = enabled(given, "smdistributed", "dataparallel") or enabled(given, "pytorchddp")
    named = "smdistributed" if "smdistributed" in given else "pytorchddp"
    # On a single host no parameter server is started (TW214), so the other one is not dropped.
    servers = enabled(given, "parameter_server") and hosts > 1
    mirrored = enabled(given, "multi_worker_mirrored_strategy")
    for a, b, names, winner, path in (
        (mirrored, mpi, "multi_worker_mirrored_strategy and mpi", "the container takes the strategy", "mpi"),
        (servers, mpi, "parameter_server and mpi", "the container takes parameter_server", "mpi"),
        (servers, smddp, "parameter_server and dataparallel", "the container takes it", named),
        (torchrun, mpi, "torch_distributed and mpi", "the SDK drops mpi", "mpi"),
        (mpi, smddp, "mpi and smdistributed.dataparallel", "the container takes mpi", named),
        (torchrun, smddp, "torch_distributed and dataparallel", "the container takes torchrun", named),
    ):
        if a and b:
            yield TOGETHER.finding(f"{names} are both enabled, and {winner} silently", path=f"distribution.{path}")
    if "pytorchddp" in given and "smdistributed" in given:
        yield REFUSED_TOGETHER.finding("pytorchddp is another name for dataparallel", path="distribution.pytorchddp")
    others = [name for name in ("smdistributed", "parameter_server") if name in given]
    if mirrored and others:
        yield REFUSED_TOGETHER.finding(
            f"multi_worker_mirrored_strategy with {' and '.join(others)}",
            path="distribution.multi_worker_mirrored_strategy",
        )


def _groups(subject: Subject) -> Iterator[Finding]:
    job, path = subject.job, "distribution.instance_groups"
    names = [group.name for group in job.instance_groups]
    given = job.distribution
    if "instance_groups" not in given:
        if len(names) > 1 and given.keys() & STRATEGIES.keys():
            yield GROUPS.finding(f"the job has {len(names)} groups, but distribution names none of them", path=path)
        return
    listed = [name for name in subject.listed_groups if isinstance(name, str)]
    if len(listed) != len(subject.listed_groups):
        yield VALUE.finding("instance_groups must be a list of names", path=path)
    for name in listed:
        if name not in names:
            hint = did_you_mean(name, names) if names else "The job has an instance_type and no groups."
            yield GROUPS.finding(f"unknown instance group {name!r}. {hint}", path=path, remedy=hint)
    if len(names) > 1 and len(listed) != 1:
        yield GROUPS.finding(f"{len(listed)} groups are listed; name exactly one", path=path)
    mpi = enabled(given, "mpi") or enabled(given, "smdistributed", "dataparallel") or enabled(given, "pytorchddp")
    if not mpi:
        yield GROUPS.finding("only mpi and dataparallel use the list, and neither is enabled", path=path)


def _hardware(subject: Subject) -> Iterator[Finding]:
    given = subject.job.distribution
    strategies = [name for name in given if name != "instance_groups"]
    smdistributed = "smdistributed" in given and not enabled(given, "torch_distributed")
    for path, name in subject.types:
        if name.startswith("ml.trn") and strategies not in ([], ["torch_distributed"]):
            yield TRAINIUM.finding(f"{name} with {', '.join(strategies)}", path="distribution")
        if smdistributed and "p5.48xlarge" in name:
            yield P5.finding(f"the SDK rejects {name} with smdistributed alone", path=path)
    if smdistributed and "2.0.1-gpu-py310-cu121" in (subject.job.image or ""):
        yield P5.finding("the SDK rejects this image with smdistributed alone", path="image")
    for path, kind, count in subject.instances:
        if enabled(given, "parameter_server"):
            if kind.gpus > 1:
                yield PARAMETER_SERVER.finding(f"{kind.name} has {kind.gpus} GPUs", path=path)
            if count == 1 and not subject.job.instance_groups:
                yield ONE_HOST.finding("parameter_server starts none on a single host", path="instance_count")
        parallel = enabled(given, *MODEL_PARALLEL.split(".")[1:])
        if (parallel or subject.launcher in ("torchrun", "smddp", "xla")) and kind.accelerator is None:
            yield NO_ACCELERATOR.finding(
                f"{kind.name} has neither GPU nor NeuronCore", path=path, severity="error" if parallel else "warning"
            )
