"""Processes per host, mpirun's options, and EFA: what reaches the launcher, and what it does with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainwright.core.findings import Finding, Rule
from trainwright.estimator.rules_distribution import TRIED
from trainwright.estimator.subject import Subject, enabled, part

TOOLKIT = "sagemaker-training 5.1.4, mpi.py and smdataparallel.py"
GUIDE = "AWS guide for launching a model-parallel job"
TOO_MANY = Rule(
    code="TW230",
    severity="error",
    title="more processes per host than GPUs or NeuronCores",
    source=f"{GUIDE}: one process per GPU; {TRIED} on the check: 16 on 8 GPUs is accepted, and fails when it starts",
    remedy="processes_per_host: the number of GPUs of the instance type.",
)
TOO_FEW = Rule(
    code="TW231",
    severity="warning",
    title="fewer processes per host than GPUs: the others are paid for and idle",
    source=f"{GUIDE}: one process per GPU",
    remedy="processes_per_host: the number of GPUs of the instance type.",
)
REPEATED = Rule(
    code="TW232",
    severity="error",
    title="an MCA parameter that mpirun gets twice, which Open MPI refuses even with the same value",
    source=f"{TOOLKIT}; tried with Open MPI 4.1.4, also over two hosts",
    remedy="Take it out: the toolkit sets it. Another value goes by the environment: -x OMPI_MCA_<name>=<value>.",
)
QUOTED = Rule(
    code="TW233",
    severity="error",
    title="quotes in custom_mpi_options: the toolkit splits the text at blanks and hands the quotes on",
    source=f"{TOOLKIT}: str.split",
    remedy="Write each option without blanks and quotes; pass texts with blanks through `environment`.",
)
NP = Rule(
    code="TW234",
    severity="warning",
    title="custom_mpi_options sets the number of processes, and the toolkit has counted them already",
    source="Open MPI 4.1.4, tried: the last -np wins; the toolkit goes on with its own number",
    remedy="processes_per_host in place of -np.",
)
NO_EFA = Rule(
    code="TW235",
    severity="error",
    title="FI_PROVIDER=efa on an instance type without EFA: NCCL finds no network",
    source="aws/deep-learning-containers #2675; table of instance types",
    remedy="Take FI_PROVIDER out, or an instance type with EFA.",
)
FORGOTTEN = Rule(
    code="TW236",
    severity="warning",
    title="an EFA type for which the toolkit does not switch EFA on",
    source="sagemaker-training 5.1.4, params.py: SM_EFA_NCCL_INSTANCES lacks 29 of 38 EFA types",
    remedy="Give the options yourself, as the message has them.",
)
NO_RDMA = Rule(
    code="TW237",
    severity="warning",
    title="FI_EFA_USE_DEVICE_RDMA=1 on a type whose EFA has no GPUDirect RDMA",
    source="AWS's EFA documentation; sagemaker-training 5.1.4, SM_EFA_RDMA_INSTANCES leaves p3dn out",
    remedy="Take the option out.",
)
TCP = Rule(
    code="TW238",
    severity="warning",
    title="several hosts with EFA, and the image has no aws-ofi-nccl: NCCL uses TCP between them",
    source="AWS guide for building containers with EFA; notices of the plan",
    remedy="An image line with aws-ofi-nccl (./invoke list --json shows which), or a type without EFA.",
)
FORK_SAFE = Rule(
    code="TW239",
    severity="note",
    title="MPI over EFA without RDMAV_FORK_SAFE=1: data loaders that fork may crash",
    source=f"{GUIDE}; {TOOLKIT}: only the data parallel library's runner sets it",
    remedy='custom_mpi_options: "-x RDMAV_FORK_SAFE=1"',
)
RULES = (TOO_MANY, TOO_FEW, REPEATED, QUOTED, NP, NO_EFA, FORGOTTEN, NO_RDMA, TCP, FORK_SAFE)

# What the toolkit passes with -mca itself; the data parallel library's runner and SDK 3's MPI driver pass one more.
MCA_DEFAULTS = (
    "btl_tcp_if_include",
    "oob_tcp_if_include",
    "plm_rsh_no_tree_spawn",
    "pml",
    "btl",
    "orte_abort_on_non_zero_status",
    "btl_vader_single_copy_mechanism",
)
MCA_MORE = (*MCA_DEFAULTS, "plm_rsh_num_concurrent")
_MCA_FLAGS = ("-mca", "--mca", "-gmca", "--gmca")
_COUNTS = ("-np", "--np", "-n", "--n", "-c", "-npernode", "--npernode", "-N")
_OPTIONS = (
    "mpi.custom_mpi_options",
    "smdistributed.dataparallel.custom_mpi_options",
    "pytorchddp.custom_mpi_options",
)


def mca_keys(words: list[str]) -> list[str]:
    """The MCA parameters in a list of mpirun's options, in their order."""
    return [words[n + 1] for n, word in enumerate(words[:-1]) if word in _MCA_FLAGS]


def exported(words: list[str]) -> dict[str, str]:
    """The variables that ``-x NAME=VALUE`` sets."""
    pairs = (words[n + 1].partition("=") for n, word in enumerate(words[:-1]) if word == "-x")
    return {name: value for name, _, value in pairs}


def check(subject: Subject) -> Iterator[Finding]:
    """The rules of this family."""
    yield from _counts(subject)
    options: dict[str, list[str]] = {}
    for path in _OPTIONS:
        *table, key = path.split(".")
        text = part(subject.job.distribution, *table).get(key)
        if isinstance(text, str) and text:
            options[f"distribution.{path}"] = text.split()
            more = subject.sdk == 3 or not path.startswith("mpi")
            yield from _words(text, f"distribution.{path}", subject.sdk, MCA_MORE if more else MCA_DEFAULTS)
    yield from _efa(subject, options)


def _counts(subject: Subject) -> Iterator[Finding]:
    mpi = part(subject.job.distribution, "mpi")
    count = mpi.get("processes_per_host")
    if not mpi.get("enabled") or not isinstance(count, int) or isinstance(count, bool):
        return
    path = "distribution.mpi.processes_per_host"
    if count < 1:
        yield TOO_MANY.finding(f"{count} processes; at least one is started", path=path, remedy="A number from 1 on.")
        return
    for _, kind, _ in subject.instances:
        most = kind.processes_per_host
        if kind.accelerator is None:
            continue
        what = "GPU" if kind.gpus else "NeuronCore"
        if count > most:
            yield TOO_MANY.finding(
                f"{count} processes on each host, and {kind.name} has {most} {what}{'s' * (most > 1)}",
                path=path,
                remedy=f"processes_per_host: {most}",
            )
        elif count < most:
            yield TOO_FEW.finding(
                f"{count} process{'es' * (count > 1)} on each host; {kind.name} has {most} {what}s",
                path=path,
                remedy=f"processes_per_host: {most}",
            )


def _words(text: str, path: str, sdk: int, defaults: tuple[str, ...]) -> Iterator[Finding]:
    words = text.split()
    if sdk == 2 and ('"' in text or "'" in text):
        yield QUOTED.finding("there are quotes in it", path=path)
    keys = mca_keys(words)
    for key in dict.fromkeys(keys):
        if key in defaults:
            yield REPEATED.finding(
                f"{key} is among what the toolkit passes itself", path=path, remedy=f"Take out: --mca {key} …"
            )
        elif keys.count(key) > 1:
            yield REPEATED.finding(f"{key} is there {keys.count(key)} times", path=path, remedy="Keep one of them.")
    for word in words:
        if word in _COUNTS:
            yield NP.finding(f"{word} is among the options", path=path)


def _efa(subject: Subject, options: Mapping[str, list[str]]) -> Iterator[Finding]:
    job = subject.job
    said: dict[str, tuple[str, str]] = {name: (value, f"environment.{name}") for name, value in job.environment.items()}
    for path, words in options.items():
        said |= {name: (value, path) for name, value in exported(words).items()}
    provider, provider_path = said.get("FI_PROVIDER", ("", ""))
    rdma, rdma_path = said.get("FI_EFA_USE_DEVICE_RDMA", ("", ""))
    several = subject.hosts > 1
    together = subject.launcher in ("mpi", "torchrun", "smddp", "xla")
    ofi = subject.image.has("aws-ofi-nccl") if subject.image else None
    for path, kind, _ in subject.instances:
        if not kind.efa:
            if provider == "efa":
                yield NO_EFA.finding(f"{kind.name} has no EFA", path=provider_path)
            continue
        if rdma == "1" and not kind.toolkit_rdma and kind.family in ("p3dn", "g4dn"):
            yield NO_RDMA.finding(f"EFA on {kind.name} has no GPUDirect RDMA", path=rdma_path)
        if not several or not together or kind.accelerator is None:
            continue
        if ofi is False and kind.gpus:
            yield TCP.finding(f"{subject.hosts} hosts of {kind.name}", path=path)
            continue
        if not kind.toolkit_efa and provider != "efa" and subject.launcher != "smddp":
            yield FORGOTTEN.finding(
                f"FI_PROVIDER is not set for {kind.name}", path=path, remedy=_efa_options(subject.launcher)
            )
        mpi = enabled(job.distribution, "mpi")
        if mpi and provider != "efa" and "RDMAV_FORK_SAFE" not in said and kind.toolkit_efa:
            yield FORK_SAFE.finding(f"mpi on {kind.name}", path="distribution.mpi.custom_mpi_options")


def _efa_options(launcher: Any) -> str:
    """How a launcher's processes get the variables: mpirun hands on what -x names, torchrun's inherit."""
    if launcher == "mpi":
        return 'custom_mpi_options: "-x FI_PROVIDER=efa -x NCCL_PROTO=simple -x RDMAV_FORK_SAFE=1"'
    return 'environment: {"FI_PROVIDER": "efa", "NCCL_PROTO": "simple"}'
