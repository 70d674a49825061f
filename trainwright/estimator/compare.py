"""The same job with and without the Training Compiler, for the comparison at the start of AWS's guide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainwright.catalog.image_line import version_key
from trainwright.core.errors import RequestError
from trainwright.estimator.create_training_job import base_name
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.job_parts import Compiler

TORCHRUN_SINCE = (1, 13)  # the first PyTorch for which the SDK offers torch_distributed on GPUs


def twins(subject: Subject) -> dict[str, Subject]:
    """Return ``baseline`` and ``compiled``: two jobs that differ in the compiler, its launcher and their names.

    On several GPUs, each job uses its launcher: pytorchxla with the compiler, torchrun (before PyTorch 1.13: MPI)
    without. Batch size and learning rate stay the same for comparison; the guide tunes the compiled job afterwards.

    Raises:
        RequestError: the compiler does not support the job's distribution.
    """
    job, gpus = subject.job, subject.gpus or 1
    others = set(job.distribution) - {"pytorchxla", "torch_distributed", "mpi"}
    if others:
        raise RequestError(
            f"--compare: {', '.join(sorted(others))} cannot be combined with the Training Compiler",
            remedy="Use pytorchxla, torch_distributed, mpi, or no distribution.",
        )
    several = gpus * subject.hosts > 1 and subject.framework != "tensorflow"
    plain: dict[str, Any] = {key: value for key, value in job.distribution.items() if key != "pytorchxla"}
    if several and not plain:
        version = version_key(subject.image.version)[:2] if subject.image else TORCHRUN_SINCE
        plain = (
            {"torch_distributed": {"enabled": True}}
            if version >= TORCHRUN_SINCE
            else {"mpi": {"enabled": True, "processes_per_host": gpus}}
        )
    name = base_name(subject)
    environment = {key: value for key, value in job.environment.items() if key != "GPU_NUM_DEVICES"}
    baseline = {
        "name": f"{name}-baseline",
        "compiler": None,
        "distribution": plain,
        "environment": environment,
    }
    compiled: dict[str, Any] = {
        "name": f"{name}-compiled",
        "compiler": job.compiler if job.compiler and job.compiler.enabled else Compiler(),
        "distribution": {"pytorchxla": {"enabled": True}} if several else {},
    }
    if subject.framework == "tensorflow":
        compiled["distribution"] = dict(plain)
    return {
        "baseline": replace(subject, job=job.replace(**baseline)),
        "compiled": replace(subject, job=job.replace(**compiled)),
    }
