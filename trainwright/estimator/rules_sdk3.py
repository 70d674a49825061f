"""SageMaker SDK 3: what ``ModelTrainer`` cannot express, and the MPI driver's number of processes."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.core.errors import RequestError
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.subject import Subject
from trainwright.sagemaker import sdk3

TRAINER = "sagemaker-train 1.27.0, model_trainer.py"
NO_DRIVER = Rule(
    code="TW280",
    severity="error",
    title="SDK 3 has no driver for the distribution; it supports torchrun and MPI",
    source=f"{TRAINER} and distributed.py",
    remedy="Use torch_distributed or mpi, or --sdk 2.",
)
NO_COMPILER = Rule(
    code="TW281",
    severity="error",
    title="SDK 3 does not support the Training Compiler",
    source="sagemaker-train 1.27.0: removed",
    remedy="Use --sdk 2 --format python, which sets raw hyperparameters, or --format request.",
)
SOURCE = Rule(
    code="TW282",
    severity="error",
    title="SDK 3 needs a local source_dir with a .py or .sh file as entry point",
    source=f"{TRAINER}: SourceCode",
    remedy="Set source_dir to a folder, and entry_point relative to it.",
)
RANKS = Rule(
    code="TW283",
    severity="note",
    title="SDK 3's MPI driver starts the processes of one host only; -np is added to fix this",
    source="tried with sagemaker-train 1.27.0 and Open MPI 4.1.4 on two hosts: the last -np wins",
    remedy="Nothing to do; the generated code does this. ./invoke rehearse --sdk 3 shows it.",
)
GROUPS = Rule(
    code="TW284",
    severity="error",
    title="SDK 3's drivers use every host and do not support instance groups",
    source="sagemaker-train 1.27.0, container_drivers",
    remedy="Use --sdk 2 for heterogeneous clusters.",
)
RULES = (NO_DRIVER, NO_COMPILER, SOURCE, RANKS, GROUPS)


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family; SDK 2 has no findings."""
    if subject.sdk != 3:
        return
    job = subject.job
    if subject.compiler:
        yield NO_COMPILER.finding("the Training Compiler is enabled", path="compiler")
    entry = job.entry_point
    if not job.source_dir or job.source_dir.startswith("s3://"):
        yield SOURCE.finding(f"source_dir is {job.source_dir or 'missing'}", path="source_dir")
    if entry is not None and not entry.endswith((".py", ".sh")):
        yield SOURCE.finding(f"SDK 3 does not start {entry}", path="entry_point")
    if "instance_groups" in job.distribution:
        yield GROUPS.finding("distribution.instance_groups is not supported", path="distribution.instance_groups")
    try:
        driver = driver_of(subject)
    except RequestError as error:
        yield NO_DRIVER.finding(error.message, path="distribution")
        return
    if driver.kind == "MPI" and subject.hosts > 1 and subject.world is not None:
        yield RANKS.finding(f"-np {subject.world} is added", path="distribution.mpi")


def driver_of(subject: Subject) -> sdk3.Driver:
    """Return SDK 3's driver for the job's distribution, with the processes of all hosts.

    Raises:
        RequestError: SDK 3 has no driver for it.
    """
    given = {name: value for name, value in subject.job.distribution.items() if name != "instance_groups"}
    driver = sdk3.driver_of(given)
    if driver.kind != "MPI" or subject.hosts == 1 or subject.world is None or driver.ranks_asked is not None:
        return driver
    fields = dict(driver.fields or {})
    fields["mpi_additional_options"] = ["-np", str(subject.world), *(fields.get("mpi_additional_options") or [])]
    return sdk3.Driver("MPI", fields)
