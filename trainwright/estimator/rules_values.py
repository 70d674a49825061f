"""Values that take something away: variables that hide GPUs or hosts, keys of AWS, names that no script reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainwright.core.findings import Finding, Rule
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.toolkit import TOOLKIT

HIDDEN = Rule(
    code="TW318",
    severity="error",
    title="a variable that hides GPUs from processes, or hosts from each other",
    source="NVIDIA's CUDA programming guide, CUDA_VISIBLE_DEVICES: others than those listed, and all behind an invalid "
    f"index, are not visible; {TOOLKIT}, torch_distributed.py and mpi.py: a process for each GPU all the same, and "
    "NCCL_SOCKET_IFNAME is set; NVIDIA's NCCL guide, NCCL_SOCKET_IFNAME",
    remedy="Remove it; the launcher gives every process its GPU, and the service names the interface.",
)
CREDENTIALS = Rule(
    code="TW319",
    severity="error",
    title="an access key of AWS in a hyperparameter (a warning: in a variable)",
    source="AWS's API reference, CreateTrainingJob: no access IDs, secrets or tokens in these fields, which "
    "DescribeTrainingJob returns; in its text of 2023, the service rejects hyperparameters in which it finds them; AWS "
    "STS, GetAccessKeyInfo: such keys begin with AKIA or ASIA",
    remedy="Give the job's role what the script needs; keep other secrets in AWS Secrets Manager. Revoke this key.",
)
DASHES = Rule(
    code="TW321",
    severity="error",
    title="a hyperparameter whose name begins with a dash",
    source=f"{TOOLKIT}, mapping.py: the script gets --NAME VALUE, with two dashes before the name as it is",
    remedy="Remove the dashes: epochs, not --epochs.",
)
UNEXPANDED = Rule(
    code="TW325",
    severity="error",
    title="a PATH that refers to a variable (a warning: another list of folders)",
    source="AWS's API reference, CreateTrainingJob: the variables are set in the container, where no shell reads them; "
    "aws/sagemaker-python-sdk #222: the container does not start if PATH lacks the folder of its program",
    remedy="Write the folders out, or set the variable in the image or the script.",
)
REPLACED = Rule(
    code="TW336",
    severity="warning",
    title="a variable that the training toolkit replaces",
    source="aws/sagemaker-pytorch-training-toolkit, training.py: _set_nccl_environment sets NCCL_DEBUG, "
    "NCCL_IB_DISABLE and NCCL_SOCKET_IFNAME before it starts the script; sagemaker-training 5.1.4, environment.py and "
    "entry_point.py: to_env_vars is written over the environment",
    remedy='At the top of the script: os.environ["NCCL_DEBUG"] = "INFO". With mpi: custom_mpi_options with -x.',
)
ALLOCATOR = Rule(
    code="TW337",
    severity="error",
    title="options of PyTorch's memory allocator that it does not read",
    source="PyTorch's documentation of CUDA semantics, PYTORCH_CUDA_ALLOC_CONF: <option>:<value>,<option2>:<value2>; "
    "c10/cuda/CUDAAllocatorConfig.cpp: an unrecognized option ends the process",
    remedy="For example: max_split_size_mb:128,expandable_segments:True",
)
FLAGS = Rule(
    code="TW343",
    severity="error",
    title="flags of XLA in the wrong variable, which end the process",
    source="tensorflow/compiler/xla/parse_flags_from_env.cc: Unknown flags in XLA_FLAGS, perhaps you meant to specify "
    "these on the TF_XLA_FLAGS envvar (google-research/proteinfer #87); tensorflow/compiler/jit/flags.cc: all flags of "
    "TF_XLA_FLAGS begin with tf_",
    remedy="--tf_xla_… belongs in TF_XLA_FLAGS, --xla_… in XLA_FLAGS.",
)
RULES = (HIDDEN, CREDENTIALS, DASHES, UNEXPANDED, REPLACED, ALLOCATOR, FLAGS)
# Variables of flags, and how a flag begins that belongs in the other one.
_FLAGS = {"XLA_FLAGS": "--tf_", "TF_XLA_FLAGS": "--xla_"}
# What the toolkit sets, and to what; the interface is the one that the service names, eth0 in AWS's guide.
_SET = {"NCCL_DEBUG": "WARN", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth0"}
_OF_THE_SERVICE = "NCCL_SOCKET_IFNAME"
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_VARIABLE = re.compile(r"[$][{]?[A-Za-z_]")
_KEY = re.compile(r"(?:AKIA|ASIA)[A-Z0-9]{16}")
_INDEX = re.compile(r"-?[0-9]{1,9}")
# Launchers that start a process for each GPU, and set NCCL_SOCKET_IFNAME themselves.
_FOR_EACH_GPU = ("torchrun", "mpi", "smddp", "xla")
_LOOPBACK = ("lo", "=lo")


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    yield from _devices(subject)
    yield from _interfaces(subject)
    job = subject.job
    ranges = job.tuner.ranges if job.tuner else ()
    for key, names in (("hyperparameters", job.hyperparameters), ("tuner.ranges", ranges)):
        for name in names if job.entry_point else ():
            if name.startswith("-"):
                yield DASHES.finding(f"the script gets --{name}", path=f"{key}.{name}")
    for name, value in job.environment.items():
        if name.endswith("PATH") and _VARIABLE.search(value):
            yield UNEXPANDED.finding(
                f"{name} is {value} as it is written",
                path=f"environment.{name}",
                severity="error" if name == "PATH" else "warning",
            )
    yield from _replaced(subject)
    yield from _flags(job.environment)
    for name in _ALLOCATOR:
        for option in filter(None, re.split(r",(?![^\[]*\])", job.environment.get(name, ""))):
            if ":" not in option:
                told = f"{name}: {option!r} is not of the form option:value"
                yield ALLOCATOR.finding(told, path=f"environment.{name}")
    for name in (each for each, value in job.hyperparameters.items() if _is_key(value)):
        yield CREDENTIALS.finding(f"{name} is an access key", path=f"hyperparameters.{name}")
    for name in (each for each, value in job.environment.items() if _is_key(value)):
        yield CREDENTIALS.finding(f"{name} is an access key", path=f"environment.{name}", severity="warning")


def _is_key(value: object) -> bool:
    return isinstance(value, str) and _KEY.fullmatch(value) is not None


def _devices(subject: Subject) -> Iterator[Finding]:
    given, gpus, each = subject.job.environment.get("CUDA_VISIBLE_DEVICES"), subject.gpus, subject.processes_per_host
    if given is None or not gpus or each is None or subject.launcher not in _FOR_EACH_GPU:
        return
    count = visible(given, gpus)
    if count is not None and count < each:
        yield HIDDEN.finding(
            f"{each} processes per host, but CUDA_VISIBLE_DEVICES={given} shows {count} of {gpus} GPUs",
            path="environment.CUDA_VISIBLE_DEVICES",
        )


def visible(given: str, gpus: int) -> int | None:
    """Return how many GPUs a value of CUDA_VISIBLE_DEVICES shows; None: it names some by anything but their index.

    Args:
        given: the value, such as 0,1.
        gpus: the GPUs of the host.
    """
    count = 0
    for entry in given.split(",") if given.strip() else ():
        if not _INDEX.fullmatch(entry.strip()):
            return None
        if not 0 <= int(entry) < gpus:
            break
        count += 1
    return count


# What the toolkit says of a job; of channels and hyperparameters, of those that it has.
_OF_TOOLKIT = re.compile(
    r"SM_(MODEL_DIR|OUTPUT_(DATA_|INTERMEDIATE_)?DIR|INPUT_(CONFIG_)?DIR|CHANNELS|HOSTS|CURRENT_HOST|NUM_[GC]PUS|HPS|"
    r"USER_ARGS|MODULE_(NAME|DIR)|NETWORK_INTERFACE_NAME|TRAINING_ENV|RESOURCE_CONFIG|INPUT_DATA_CONFIG)"
)


def _flags(environment: Mapping[str, str]) -> Iterator[Finding]:
    for name, other in _FLAGS.items():
        for flag in environment.get(name, "").split():
            if flag.startswith(other):
                yield FLAGS.finding(f"{name} does not take {flag.partition('=')[0]}", path=f"environment.{name}")


def _replaced(subject: Subject) -> Iterator[Finding]:
    """Check variables that the toolkit sets when it starts the script."""
    job = subject.job
    own = {f"SM_CHANNEL_{name.upper()}" for name in job.inputs} | {f"SM_HP_{n.upper()}" for n in job.hyperparameters}
    for name in job.environment if job.entry_point and subject.cluster is None else ():
        if _OF_TOOLKIT.fullmatch(name) or name in own:
            remedy = "Use another name, and read it in the script."
            yield REPLACED.finding(f"the script gets the job's own {name}", path=f"environment.{name}", remedy=remedy)
    if subject.framework != "pytorch" or subject.cluster is not None or not subject.gpus:
        return
    for name, value in _SET.items():
        given = subject.job.environment.get(name, value)
        if given.upper() != value.upper():
            told = "the interface that the service names" if name == _OF_THE_SERVICE else value
            yield REPLACED.finding(f"the script gets {name}={told}, not {given}", path=f"environment.{name}")


def _interfaces(subject: Subject) -> Iterator[Finding]:
    if subject.hosts < 2:
        return
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        given = subject.job.environment.get(name)
        if given in _LOOPBACK and (name.startswith("GLOO") or subject.launcher not in _FOR_EACH_GPU):
            yield HIDDEN.finding(f"{name}={given}: {subject.hosts} hosts cannot meet there", path=f"environment.{name}")
