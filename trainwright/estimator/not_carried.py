"""What a job file can say that has no counterpart on a cluster of one's own, key by key; nothing falls away in silence.

Every key of the job file stands in exactly one of the tables here (the tests hold this against the schema).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.core.findings import Severity
from trainwright.estimator.cluster_job import NAME, variable
from trainwright.estimator.subject import Cluster, Subject

# In the manifest, or checked before it is written.
CARRIED = frozenset(
    {
        *("image", "entry_point", "source_dir", "instance_type", "instance_count", "distribution", "hyperparameters"),
        *("environment", "inputs", "checkpoint", "output", "name", "region", "max_run", "retries"),
    }
)
# For the checks of this program alone.
CHECKED = frozenset({"plan", "batch", "model", "silence"})
# rules_clusters refuses a job that has one of them.
REFUSED = frozenset({"instance_groups", "tuner", "compiler"})
# Key → how much it matters that it is missing, and why or what takes its place.
NOT_CARRIED: dict[str, tuple[Severity, str]] = {
    "spot": ("warning", "the nodes decide: choose spot nodes by a label or a partition of the cluster"),
    "max_wait": ("warning", "a job waits in the cluster's queue without a limit"),
    "keep_alive": ("warning", "warm pools are SageMaker's; the nodes of a cluster stay until they are removed"),
    "encrypt_traffic": ("warning", "nothing encrypts the traffic between the containers"),
    "network_isolation": ("warning", "the containers reach whatever the cluster's network lets them"),
    "tensorboard": ("warning", "nothing copies its folder to S3"),
    "debugger": ("warning", "SageMaker Debugger is part of training jobs"),
    "profiler": ("warning", "SageMaker's monitoring is part of training jobs"),
    "registry": ("note", "the cluster has credentials of its own for registries: imagePullSecrets, or Enroot's file"),
    "role": ("note", "the cluster gives the job its permissions: a service account, or the nodes' role"),
    "subnets": ("note", "the nodes are in the cluster's network"),
    "security_group_ids": ("note", "the nodes are in the cluster's network"),
    "volume_gb": ("note", "the disks are those of the nodes"),
    "volume_kms_key": ("note", "the disks are those of the nodes"),
    "output_kms_key": ("note", "the bucket's own encryption applies"),
    "disable_output_compression": ("note", "nothing packs the model"),
    "training_plan": ("note", "it reserves instances of training jobs"),
    "placement": ("note", "it places instances of training jobs"),
    "remote_debug": ("note", "the cluster gives a shell: kubectl exec, or srun --overlap"),
    "session_tags": ("note", "they are tags of training jobs"),
    "tags": ("note", "they are tags of training jobs"),
    "metrics": ("note", "CloudWatch does not read the log"),
}
_SLURM: dict[str, tuple[Severity, str]] = {
    "retries": ("warning", "sbatch --requeue starts a job again after a node has failed, without counting"),
    "output": ("warning", "the files stay in $OUTPUT; copy them with aws s3 sync"),
    "region": ("note", "the cluster is where it is"),
}
_SLURM_CHECKPOINT = "the files stay in $CHECKPOINTS; copy them with aws s3 sync"


@dataclass(frozen=True)
class Omission:
    """A setting of the job file that the manifest lacks."""

    key: str
    severity: Severity
    why: str


def omissions(subject: Subject, cluster: Cluster) -> Iterator[Omission]:
    """Yield the settings of a job that its manifest lacks, in the order of the job file's schema."""
    table = NOT_CARRIED | (_SLURM if cluster == "slurm" else {})
    for key in subject.job.unusual():
        if key in table:
            yield Omission(key, *table[key])
        elif key == "checkpoint" and cluster == "slurm":
            yield Omission("checkpoint.s3_uri", "warning", _SLURM_CHECKPOINT)
    if cluster != "slurm" and subject.job.output is None:
        yield Omission("output", "warning", "without it nothing keeps /opt/ml/model: it ends with the pod")
    job = subject.job
    for path, prefix, names in (("hyperparameters", "hp", job.hyperparameters), ("inputs", "channel", job.inputs)):
        for name in names:
            if not NAME.fullmatch(f"{prefix}_{name}"):
                unset = variable(f"{prefix}_{name}")
                said = f"{unset} is not set: it is not a valid variable name elsewhere"
                yield Omission(f"{path}.{name}", "note", said)
    if job.source_dir and (subject.folder / job.source_dir / "requirements.txt").is_file():
        yield Omission(
            "source_dir",
            "warning",
            "requirements.txt: the toolkit would install it; build the image --with-requirements",
        )
