"""The text of a check: the findings, and the job in numbers."""

from __future__ import annotations

from trainwright.core.findings import finding_lines, silenced_line, tally
from trainwright.estimator.estimate import EstimatorDocument, in_file
from trainwright.estimator.figures import Figures


def estimator_text(document: EstimatorDocument) -> str:
    """Return the findings in the style of compilers, then the numbers of the job."""
    placed = (in_file(each, document.job) if each.line else each for each in document.findings)
    lines = [line for finding in placed for line in finding_lines(finding)]
    lines += [silenced_line(each) for each in document.silenced]
    lines += [f"{each.path}: no longer there: {each.code}: {each.message}" for each in document.gone]
    lines += ["", *figures_lines(document.figures), ""] if document.figures.hosts else []
    known = f", {len(document.known)} known" if document.known else ""
    lines.append(f"{document.job}: {tally(document.errors, document.warnings, document.notes)}{known}")
    return "\n".join(lines).lstrip("\n")


def figures_lines(figures: Figures) -> list[str]:
    """Return the numbers of a job with their formulas, one per line; unknown numbers are omitted."""
    rows: list[tuple[str, str]] = []
    if figures.instance_type:
        rows.append(("instances", f"{figures.hosts} x {figures.instance_type}"))
    if figures.cluster_size:
        gpus = f"{figures.cluster_size} GPU{'s' if figures.cluster_size != 1 else ''}"
        rows.append(("cluster size", f"{gpus} = {figures.hosts} x {figures.gpus_per_host}"))
    if figures.processes:
        rows.append(("processes", f"{figures.processes} = {figures.hosts} x {figures.processes_per_host}"))
    if figures.vcpus_per_process:
        rows.append(("vCPUs", f"{figures.vcpus_per_process} per process"))
    if figures.replicas:
        share = figures.pipeline_parallel_degree * figures.tensor_parallel_degree
        how = f" = {figures.processes} / ({figures.pipeline_parallel_degree} x {figures.tensor_parallel_degree})"
        rows.append(("replicas", f"{figures.replicas}{how if share > 1 else ''}"))
    if figures.replica_ranks:
        first = [
            " ".join(str(rank) for rank in ranks[:8]) + " …" * (len(ranks) > 8) for ranks in figures.replica_ranks[:3]
        ]
        rows.append(("ranks", " | ".join(first) + " | …" * (len(figures.replica_ranks) > 3)))
    if figures.global_batch and figures.per_replica_batch:
        parts = f" = {figures.replicas} x {figures.per_replica_batch}" if figures.replicas else ""
        rows.append(("global batch", f"{figures.global_batch}{parts}"))
    if figures.microbatches and figures.microbatch:
        rows.append(("microbatches", f"{figures.microbatches} of {figures.microbatch}"))
    if figures.iterations_per_epoch:
        rows.append(
            ("iterations", f"{figures.iterations_per_epoch} per epoch = {figures.samples} / {figures.global_batch}")
        )
    rate = figures.learning_rate
    if rate and rate.factor != 1:
        rows.append(("learning rate", f"{rate.linear:g} (linear), {rate.square_root:.4g} (square root)"))
        rows.append(("", f"for {rate.factor:g} x the batch of {rate.tuned_for} that {rate.base:g} was found for"))
    memory = figures.memory
    if memory:
        has = f" of {memory.gpu_memory_gib:g}" if memory.gpu_memory_gib else ""
        rows.append(("GPU memory", f"{memory.gib_per_gpu:g}{has} GiB for weights, gradients and optimizer"))
    rows += [("instead", f"{each.instance_count} x {each.instance_type}") for each in figures.alternatives[:2]]
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{name:<{width}}  {text}" for name, text in rows]
