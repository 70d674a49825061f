"""What the rules look at: a job, what is known of its image, and what follows from both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from trainwright.core.errors import RequestError
from trainwright.estimator.image import ImageFacts
from trainwright.sagemaker.distribution import Launcher
from trainwright.sagemaker.instances import Instance, instance
from trainwright.sagemaker.job import Job

MODEL_PARALLEL = "distribution.smdistributed.modelparallel"
SMP_PARAMETERS = f"{MODEL_PARALLEL}.parameters"


def part(value: Any, *keys: str) -> Mapping[str, Any]:
    """The table under a path of keys; an empty one where there is none, or something else stands there."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def enabled(value: Any, *keys: str) -> bool:
    """Whether the strategy under a path of keys is switched on, as the SDK understands it."""
    return bool(part(value, *keys).get("enabled", False))


@dataclass(frozen=True)
class Subject:
    """One job to check.

    Attributes:
        job: as the file and the flags say.
        image: what is known of its image; ``None``: nothing.
        sdk: whose contract starts it.
        folder: what relative paths of the job are relative to.
        generates: something that starts the job is to be written, so it has to be complete.
    """

    job: Job
    image: ImageFacts | None = None
    sdk: Literal[2, 3] = 2
    folder: Path = Path()
    generates: bool = False

    @property
    def framework(self) -> Literal["pytorch", "tensorflow"] | None:
        """Whose estimator and whose module of the toolkit start the script; ``None``: the image does not say."""
        if self.image is not None and self.image.family is not None:
            return self.image.family
        said = set(self.job.distribution)
        if said & {"torch_distributed", "pytorchddp", "pytorchxla"}:
            return "pytorch"
        if said & {"parameter_server", "multi_worker_mirrored_strategy"}:
            return "tensorflow"
        return None

    @property
    def launcher(self) -> Launcher:
        """What starts the script."""
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
        """Key path, instance and count of the hosts on which the script is launched together.

        With instance groups these are the groups that ``distribution.instance_groups`` names, else all of them. Types
        that SageMaker does not have are left out (TW262 says so), as are those of local mode.
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
        """What ``distribution.instance_groups`` lists."""
        listed = self.job.distribution.get("instance_groups", ())
        return tuple(listed) if isinstance(listed, list | tuple) else ()

    @property
    def hosts(self) -> int:
        """Hosts that take part in the distributed training."""
        return sum(count for _, _, count in self.instances) or self.job.hosts

    @property
    def processes_per_host(self) -> int | None:
        """Processes on each host; ``None``: nobody knows, as no instance type is known.

        A launcher that is not MPI starts one process per GPU or NeuronCore, as does MPI without a number.
        """
        if self.launcher in ("process", "parameter-server", "mwms"):
            return 1
        said = part(self.job.distribution, "mpi").get("processes_per_host")
        if self.launcher == "mpi" and isinstance(said, int) and not isinstance(said, bool) and said > 0:
            return said
        return self.instances[0][1].processes_per_host if self.instances else None

    @property
    def world(self) -> int | None:
        """Processes of the whole job."""
        each = self.processes_per_host
        return None if each is None else each * self.hosts

    @property
    def gpus(self) -> int | None:
        """GPUs of one host."""
        return self.instances[0][1].gpus if self.instances else None

    @property
    def smp_parameters(self) -> Mapping[str, Any]:
        """Parameters of the model parallel library; empty where it is off or they are in a file."""
        model = part(self.job.distribution, "smdistributed", "modelparallel")
        return part(model, "parameters") if model.get("enabled") else {}

    @property
    def smp_version(self) -> str | None:
        """Version of the model parallel library in the image."""
        found = self.image.version_of("smdistributed-modelparallel") if self.image else None
        return found if found and found[0].isdigit() else None

    @property
    def compiler(self) -> bool:
        """The Training Compiler is asked for, in whichever words."""
        asked = self.job.compiler is not None and self.job.compiler.enabled
        return asked or enabled(self.job.distribution, "pytorchxla")

    def degree(self, name: str) -> int:
        """A parallel degree of the model parallel library; 1 where it is off, not given or no number."""
        parameters = self.smp_parameters
        value = parameters.get(name)
        if name == "pipeline_parallel_degree" and value is None:
            value = parameters.get("partitions")
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1
