"""Processes per host, mpirun's options, and EFA: what the launcher gets and what it does with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainwright.core.findings import Finding, Rule
from trainwright.estimator.rules_distribution import SDK
from trainwright.estimator.subject import Subject, enabled, part
from trainwright.sagemaker.toolkit import TOOLKIT

RUNNERS = f"{TOOLKIT}, mpi.py and smdataparallel.py"
GUIDE = "AWS guide for launching a model-parallel job"
TOO_MANY = Rule(
    code="TW230",
    severity="error",
    title="more processes per host than GPUs or NeuronCores",
    source=f"{GUIDE}: one process per GPU; tried with {SDK}: 16 on 8 GPUs are accepted and only fail at the start",
    remedy="Set processes_per_host to the number of GPUs of the instance type.",
)
TOO_FEW = Rule(
    code="TW231",
    severity="warning",
    title="fewer processes per host than GPUs; the other GPUs are paid for but idle",
    source=f"{GUIDE}: one process per GPU",
    remedy="Set processes_per_host to the number of GPUs of the instance type.",
)
REPEATED = Rule(
    code="TW232",
    severity="error",
    title="an MCA parameter that mpirun gets twice, which Open MPI rejects even with the same value",
    source=f"{RUNNERS}; tried with Open MPI 4.1.4, also on two hosts; aws/amazon-sagemaker-examples #1882",
    remedy="Remove it, as the toolkit sets it. To change the value, use -x OMPI_MCA_<name>=<value>.",
)
QUOTED = Rule(
    code="TW233",
    severity="error",
    title="quotes in custom_mpi_options; the toolkit splits at spaces and passes the quotes on",
    source=f"{RUNNERS}: str.split",
    remedy="Write each option without spaces and quotes; pass values with spaces through `environment`.",
)
NP = Rule(
    code="TW234",
    severity="warning",
    title="custom_mpi_options sets the number of processes, which the toolkit already counts (an error: to more)",
    source="Open MPI 4.1.4, tried: the last -np wins, but the toolkit keeps using its own number; "
    f"{TOOLKIT}, mpi.py: each host has processes_per_host slots; open-mpi/ompi #6020: mpirun stops: too few "
    "slots",
    remedy="Use processes_per_host instead of -np.",
)
NOT_EXPORTED = Rule(
    code="TW324",
    severity="error",
    title="-x in custom_mpi_options without a variable, or with a word behind it, which mpirun takes for the program",
    source="Open MPI 4.1.4, tried: -x takes one word, and mpirun stops: unable to find the specified executable file",
    remedy="Write -x NAME=VALUE, or -x NAME for a variable that has its value already.",
)
NO_EFA = Rule(
    code="TW235",
    severity="error",
    title="FI_PROVIDER=efa on an instance type without EFA: NCCL finds no network (a warning: one host needs none)",
    source="aws/deep-learning-containers #2675 (on one host NCCL goes on without it); table of instance types",
    remedy="Remove FI_PROVIDER, or use an instance type with EFA.",
)
FORGOTTEN = Rule(
    code="TW236",
    severity="warning",
    title="an instance type on which the toolkit does not enable EFA",
    source=f"{TOOLKIT}, params.py: SM_EFA_NCCL_INSTANCES lacks 29 of 38 EFA types",
    remedy="Set FI_PROVIDER=efa yourself.",
)
PAST_EFA = Rule(
    code="TW340",
    severity="warning",
    title="NCCL is told to talk over TCP on instances with EFA",
    source="NVIDIA's documentation of NCCL, environment variables, NCCL_NET: the network module that is used, and no "
    "other; NCCL_NET_PLUGIN: none is no plugin (src/plugin/net.cc)",
    remedy="Remove the variable: NCCL takes the plugin for EFA by itself.",
)
NO_RDMA = Rule(
    code="TW237",
    severity="warning",
    title="FI_EFA_USE_DEVICE_RDMA=1 on a type whose EFA has no GPUDirect RDMA",
    source=f"AWS's EFA documentation; {TOOLKIT}, SM_EFA_RDMA_INSTANCES omits p3dn",
    remedy="Remove the option.",
)
TCP = Rule(
    code="TW238",
    severity="warning",
    title="several hosts with EFA, but the image has no aws-ofi-nccl; NCCL uses TCP between them",
    source="AWS guide for building containers with EFA; the plan's notices",
    remedy="Use an image line with aws-ofi-nccl (./invoke list --json shows which), or a type without EFA.",
)
FORK_SAFE = Rule(
    code="TW239",
    severity="note",
    title="MPI over EFA without RDMAV_FORK_SAFE=1; data loaders that fork may crash",
    source=f"{GUIDE}; {RUNNERS}: only the data parallel library's runner sets it",
    remedy='custom_mpi_options: "-x RDMAV_FORK_SAFE=1"',
)
RULES = (TOO_MANY, TOO_FEW, REPEATED, QUOTED, NP, NOT_EXPORTED, NO_EFA, FORGOTTEN, PAST_EFA, NO_RDMA, TCP, FORK_SAFE)

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
_OF_ALL = ("-np", "--np", "-n", "--n", "-c")
_COUNTS = (*_OF_ALL, "-npernode", "--npernode", "-N")
_OPTIONS = (
    "mpi.custom_mpi_options",
    "smdistributed.dataparallel.custom_mpi_options",
    "pytorchddp.custom_mpi_options",
)


def mca_keys(words: list[str]) -> list[str]:
    """Return the MCA parameters in a list of mpirun's options, in order."""
    return [words[n + 1] for n, word in enumerate(words[:-1]) if word in _MCA_FLAGS]


def exported(words: list[str]) -> dict[str, str]:
    """Return the variables that ``-x NAME=VALUE`` sets."""
    pairs = (words[n + 1].partition("=") for n, word in enumerate(words[:-1]) if word == "-x")
    return {name: value for name, _, value in pairs}


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    yield from _counts(subject)
    options: dict[str, list[str]] = {}
    for path in _OPTIONS:
        *table, key = path.split(".")
        text = part(subject.job.distribution, *table).get(key)
        if isinstance(text, str):
            options[f"distribution.{path}"] = text.split()
            more = subject.sdk == 3 or not path.startswith("mpi")
            yield from _words(
                text, f"distribution.{path}", subject.sdk, MCA_MORE if more else MCA_DEFAULTS, subject.world
            )
    yield from _efa(subject, options)


def _counts(subject: Subject) -> Iterator[Finding]:
    mpi = part(subject.job.distribution, "mpi")
    count = mpi.get("processes_per_host")
    if not mpi.get("enabled") or not isinstance(count, int) or isinstance(count, bool):
        return
    path = "distribution.mpi.processes_per_host"
    if count < 1:
        yield TOO_MANY.finding(f"{count} processes; at least one is needed", path=path, remedy="Use 1 or more.")
        return
    for _, kind, _ in subject.instances:
        most = kind.processes_per_host
        if kind.accelerator is None:
            continue
        what = "GPU" if kind.gpus else "NeuronCore"
        if count > most:
            yield TOO_MANY.finding(
                f"{count} processes per host, but {kind.name} has {most} {what}{'s' * (most > 1)}",
                path=path,
                remedy=f"processes_per_host: {most}",
            )
        elif count < most:
            yield TOO_FEW.finding(
                f"{count} process{'es' * (count > 1)} per host, but {kind.name} has {most} {what}s",
                path=path,
                remedy=f"processes_per_host: {most}",
            )


def _words(text: str, path: str, sdk: int, defaults: tuple[str, ...], slots: int | None) -> Iterator[Finding]:
    words = text.split()
    quoted = '"' in text or "'" in text
    if sdk == 2 and quoted:
        yield QUOTED.finding("it contains quotes", path=path)
    keys = mca_keys(words)
    for key in dict.fromkeys(keys):
        if key in defaults:
            yield REPEATED.finding(f"the toolkit already passes {key}", path=path, remedy=f"Remove --mca {key} …")
        elif keys.count(key) > 1:
            yield REPEATED.finding(f"{key} is given {keys.count(key)} times", path=path, remedy="Keep one of them.")
    for n, word in enumerate(words):
        options = [each.startswith("-") for each in words[n + 1 : n + 3]]
        if word == "-x" and not quoted and options not in ([False], [False, True]):
            shown = " ".join(words[n : n + 3])
            yield NOT_EXPORTED.finding(f"{shown!r} does not name one variable", path=path)
        if word in _COUNTS:
            given = words[n + 1] if n + 1 < len(words) else ""
            more = word in _OF_ALL and given.isdecimal() and slots is not None and int(given[:9]) > slots
            yield NP.finding(
                f"the options contain {word} {given}{f', but there are {slots} slots' if more else ''}",
                path=path,
                severity="error" if more and "oversubscribe" not in text.lower() else "warning",
            )


def _efa(subject: Subject, options: Mapping[str, list[str]]) -> Iterator[Finding]:
    job = subject.job
    variables: dict[str, tuple[str, str]] = {
        name: (value, f"environment.{name}") for name, value in job.environment.items()
    }
    for path, words in options.items():
        variables |= {name: (value, path) for name, value in exported(words).items()}
    provider, provider_path = variables.get("FI_PROVIDER", ("", ""))
    rdma, rdma_path = variables.get("FI_EFA_USE_DEVICE_RDMA", ("", ""))
    several = subject.hosts > 1
    together = subject.launcher in ("mpi", "torchrun", "smddp", "xla")
    ofi = subject.image.has("aws-ofi-nccl") if subject.image else None
    for path, kind, _ in subject.instances:
        if not kind.efa:
            if provider == "efa":
                message = f"{kind.name} has no EFA"
                yield NO_EFA.finding(message, path=provider_path, severity=None if several else "warning")
            continue
        if rdma == "1" and kind.family in ("p3dn", "g4dn"):
            yield NO_RDMA.finding(f"EFA on {kind.name} has no GPUDirect RDMA", path=rdma_path)
        if not several or not together or kind.accelerator is None:
            continue
        for name, values in (("NCCL_NET", ("socket",)), ("NCCL_NET_PLUGIN", ("none",))):
            chosen, where = variables.get(name, ("", ""))
            if chosen.lower() in values and kind.gpus:
                yield PAST_EFA.finding(f"{name}={chosen} on {subject.hosts} hosts of {kind.name}", path=where)
        if ofi is False and kind.gpus:
            yield TCP.finding(f"{subject.hosts} hosts of {kind.name}", path=path)
            continue
        if not kind.toolkit_efa and provider != "efa" and subject.launcher != "smddp":
            yield FORGOTTEN.finding(
                f"FI_PROVIDER is not set for {kind.name}", path=path, remedy=_efa_options(subject.launcher)
            )
        mpi = enabled(job.distribution, "mpi")
        if mpi and provider != "efa" and "RDMAV_FORK_SAFE" not in variables and kind.toolkit_efa:
            yield FORK_SAFE.finding(f"mpi on {kind.name}", path="distribution.mpi.custom_mpi_options")


def _efa_options(launcher: Any) -> str:
    """Return how to set EFA's variables: mpirun passes on what -x names, torchrun's processes inherit them."""
    if launcher == "mpi":
        return 'custom_mpi_options: "-x FI_PROVIDER=efa -x NCCL_PROTO=simple -x RDMAV_FORK_SAFE=1"'
    return 'environment: {"FI_PROVIDER": "efa", "NCCL_PROTO": "simple"}'
