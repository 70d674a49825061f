"""The subject of the rules: a job, what is known about its image, and what follows from both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from trainwright.catalog.image_line import version_key
from trainwright.core.errors import RequestError
from trainwright.estimator.image import ECR, ImageFacts
from trainwright.sagemaker.distribution import Launcher
from trainwright.sagemaker.dlc import FRAMEWORKS, SMP
from trainwright.sagemaker.instances import Instance, instance
from trainwright.sagemaker.job import Job

MODEL_PARALLEL = "distribution.smdistributed.modelparallel"
SMP_PARAMETERS = f"{MODEL_PARALLEL}.parameters"
# What starts a job outside of SageMaker's training jobs: a Kubernetes resource, or a script for Slurm.
Cluster = Literal["pytorchjob", "hyperpod", "slurm"]
CLUSTERS: tuple[Cluster, ...] = get_args(Cluster)
SMDDP_TYPES = ("ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge", "ml.p4de.24xlarge")
SMDDP_WITHOUT_P3 = "2.1"  # the first library that no longer supports p3

# Repositories of the built-in algorithms: sagemaker 2.257.7, image_uri_config.
ALGORITHMS = {
    *("blazingtext", "factorization-machines", "forecasting-deepar", "image-classification", "ipinsights", "kmeans"),
    *("knn", "lda", "linear-learner", "ntm", "object-detection", "object2vec", "pca", "randomcutforest"),
    *("sagemaker-xgboost", "semantic-segmentation", "seq2seq", "xgboost"),
}


def part(value: Any, *keys: str) -> Mapping[str, Any]:
    """Return the table at a path of keys; empty if it is missing or not a table."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def enabled(value: Any, *keys: str) -> bool:
    """Return whether the strategy at a path of keys is enabled, as the SDK reads it."""
    return bool(part(value, *keys).get("enabled", False))


@dataclass(frozen=True)
class Subject:
    """One job to check.

    Attributes:
        job: from the file and flags.
        image: what is known about its image; None: nothing.
        sdk: the SDK whose contract applies.
        folder: the base of the job's relative paths.
        generates: what starts the job will be generated, so the job must be complete.
        cluster: what starts the job instead of SageMaker; None: SageMaker.
        packages: normalized names of all Python packages in the image; None: not all are known.
    """

    job: Job
    image: ImageFacts | None = None
    sdk: Literal[2, 3] = 2
    folder: Path = Path()
    generates: bool = False
    cluster: Cluster | None = None
    packages: frozenset[str] | None = None

    @property
    def framework(self) -> Literal["pytorch", "tensorflow"] | None:
        """The framework whose estimator and toolkit module start the script; None if unknown."""
        if self.image is not None and self.image.family is not None:
            return self.image.family
        found = ECR.fullmatch(self.job.image or "")
        if self.image is None and found and (named := FRAMEWORKS.get(found["repository"])):
            return "tensorflow" if "tensorflow" in named else "pytorch"
        strategies = set(self.job.distribution)
        if strategies & {"torch_distributed", "pytorchddp", "pytorchxla"}:
            return "pytorch"
        if strategies & {"parameter_server", "multi_worker_mirrored_strategy"}:
            return "tensorflow"
        return None

    @property
    def algorithm(self) -> str | None:
        """The built-in algorithm that the image is: an image of that name, in another account than the role."""
        found, role = ECR.fullmatch(self.job.image or ""), (self.job.role or "").split(":")
        if found is None or found["repository"] not in ALGORITHMS or found["account"] in role:
            return None
        return found["repository"]

    @property
    def launcher(self) -> Launcher:
        """The launcher that starts the script."""
        return self.job.launcher

    @cached_property
    def types(self) -> tuple[tuple[str, str], ...]:
        """Key path and name of every instance type of the job."""
        groups = self.job.instance_groups
        if groups:
            return tuple((f"instance_groups[{n}].instance_type", g.instance_type) for n, g in enumerate(groups))
        return (("instance_type", self.job.instance_type),) if self.job.instance_type else ()

    @cached_property
    def instances(self) -> tuple[tuple[str, Instance, int], ...]:
        """Key path, instance and count of the hosts that train together.

        With instance groups, the groups in ``distribution.instance_groups``, else all of them. Unknown types (reported
        by TW262) and local mode are omitted.
        """
        found = []
        groups = self.job.instance_groups
        wanted = [name for name in self.listed_groups if isinstance(name, str)]
        for n, (path, name) in enumerate(self.types):
            if groups and wanted and groups[n].name not in wanted:
                continue
            try:
                known = instance(name)
            except RequestError:
                continue
            found.append((path, known, groups[n].instance_count if groups else self.job.instance_count))
        return tuple(found)

    @property
    def listed_groups(self) -> tuple[Any, ...]:
        """The entries of ``distribution.instance_groups``."""
        listed = self.job.distribution.get("instance_groups", ())
        return tuple(listed) if isinstance(listed, list | tuple) else ()

    @property
    def hosts(self) -> int:
        """Number of hosts in the distributed training."""
        return sum(count for _, _, count in self.instances) or self.job.hosts

    @property
    def processes_per_host(self) -> int | None:
        """Processes per host; None if no instance type is known.

        Launchers other than MPI start one process per GPU or NeuronCore, as does MPI without a number.
        """
        if self.launcher in ("process", "parameter-server", "mwms"):
            return 1
        count = part(self.job.distribution, "mpi").get("processes_per_host")
        if self.launcher == "mpi" and isinstance(count, int) and not isinstance(count, bool) and count > 0:
            return count
        return self.instances[0][1].processes_per_host if self.instances else None

    @property
    def world(self) -> int | None:
        """Processes of the whole job; None if unknown."""
        each = self.processes_per_host
        return None if each is None else each * self.hosts

    @property
    def gpus(self) -> int | None:
        """GPUs per host; None if unknown."""
        return self.instances[0][1].gpus if self.instances else None

    @property
    def smp_parameters(self) -> Mapping[str, Any]:
        """Parameters of the model parallel library; empty if it is disabled or they are in a file."""
        model = part(self.job.distribution, "smdistributed", "modelparallel")
        return part(model, "parameters") if model.get("enabled") else {}

    @property
    def smp_version(self) -> str | None:
        """Version of the model parallel library in the image; None if missing or unknown."""
        found = self.image.version_of("smdistributed-modelparallel") if self.image else None
        if found is None and self.image is not None and self.image.framework == FRAMEWORKS[SMP]:
            return "2"  # all that AWS's repository of this name has
        return found if found and found[0].isdigit() else None

    @property
    def compiler(self) -> bool:
        """Whether the Training Compiler is enabled, directly or by pytorchxla."""
        direct = self.job.compiler is not None and self.job.compiler.enabled
        return direct or enabled(self.job.distribution, "pytorchxla")

    def degree(self, name: str) -> int:
        """Return a parallel degree of the model parallel library; 1 if disabled, missing or invalid."""
        parameters = self.smp_parameters
        value = parameters.get(name)
        if name == "pipeline_parallel_degree" and value is None:
            value = parameters.get("partitions")
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1


def smddp_types(subject: Subject) -> tuple[str, ...]:
    """The instance types that the data parallel library supports, as far as the image's own version says."""
    version = subject.image.version_of("smdistributed-dataparallel") if subject.image else None
    newer = bool(version and version[0].isdigit() and version_key(version) >= version_key(SMDDP_WITHOUT_P3))
    return tuple(name for name in SMDDP_TYPES if not (newer and name.startswith("ml.p3")))
