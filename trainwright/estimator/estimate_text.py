"""What a person sees of a check: the findings, and the plan of the job."""

from __future__ import annotations

from trainwright.core.findings import finding_lines, tally
from trainwright.estimator.estimate import EstimatorDocument
from trainwright.estimator.figures import Figures


def estimator_text(document: EstimatorDocument) -> str:
    """The findings as compilers write them, then the numbers of the job."""
    lines = [line for finding in document.findings for line in finding_lines(finding)]
    lines += ["", *figures_lines(document.figures), ""] if document.figures.hosts else []
    lines.append(f"{document.job}: {tally(document.errors, document.warnings, document.notes)}")
    return "\n".join(lines).lstrip("\n")


def figures_lines(told: Figures) -> list[str]:
    """The plan of a job, a number and where it comes from per line; what nobody knows is left out."""
    rows: list[tuple[str, str]] = []
    if told.instance_type:
        rows.append(("instances", f"{told.hosts} x {told.instance_type}"))
    if told.cluster_size:
        rows.append(("cluster size", f"{told.cluster_size} GPUs = {told.hosts} x {told.gpus_per_host}"))
    if told.processes:
        rows.append(("processes", f"{told.processes} = {told.hosts} x {told.processes_per_host}"))
    if told.vcpus_per_process:
        rows.append(("vCPUs", f"{told.vcpus_per_process} per process"))
    if told.replicas:
        share = told.pipeline_parallel_degree * told.tensor_parallel_degree
        how = f" = {told.processes} / ({told.pipeline_parallel_degree} x {told.tensor_parallel_degree})"
        rows.append(("replicas", f"{told.replicas}{how if share > 1 else ''}"))
    if told.replica_ranks:
        first = [
            " ".join(str(rank) for rank in ranks[:8]) + " …" * (len(ranks) > 8) for ranks in told.replica_ranks[:3]
        ]
        rows.append(("ranks", " | ".join(first) + " | …" * (len(told.replica_ranks) > 3)))
    if told.global_batch and told.per_replica_batch:
        parts = f" = {told.replicas} x {told.per_replica_batch}" if told.replicas else ""
        rows.append(("global batch", f"{told.global_batch}{parts}"))
    if told.microbatches and told.microbatch:
        rows.append(("microbatches", f"{told.microbatches} of {told.microbatch}"))
    if told.iterations_per_epoch:
        rows.append(("iterations", f"{told.iterations_per_epoch} per epoch = {told.samples} / {told.global_batch}"))
    rate = told.learning_rate
    if rate and rate.factor != 1:
        rows.append(("learning rate", f"{rate.linear:g} (linear), {rate.square_root:.4g} (square root)"))
        rows.append(("", f"for {rate.factor:g} x the batch of {rate.tuned_for} that {rate.base:g} was found for"))
    memory = told.memory
    if memory:
        has = f" of {memory.gpu_memory_gib:g}" if memory.gpu_memory_gib else ""
        rows.append(("GPU memory", f"{memory.gib_per_gpu:g}{has} GiB for weights, gradients and optimizer"))
    rows += [("instead", f"{each.instance_count} x {each.instance_type}") for each in told.alternatives[:2]]
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{name:<{width}}  {text}" for name, text in rows]
