"""SageMaker's training instance types: GPUs, Neuron devices, EFA interfaces, vCPUs, memory.

The facts are in ``instances.json``, which ``devtools/refresh_instances.py`` writes from published packages; its
``provenance`` names the packages, their versions and every corrected value. It is read at first use, not at import.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta

from trainwright.core.data_files import read_json
from trainwright.core.errors import RequestError, nearest
from trainwright.core.fields import Sha256
from trainwright.core.records import Field, Record, parse_record

PATH = Path(__file__).with_name("instances.json")
SCHEMA = "trainwright/instances/1"

# Trainium 2 groups its NeuronCores in pairs. The toolkit does not run neuron-ls there but has this number in its code
# (sagemaker-training 5.1.4, environment.num_neurons).
LOGICAL_CORES = {"ml.trn2.48xlarge": 64}


class Instance(Record):
    """A training instance type. Counts are per instance, that is, per host of a job."""

    name: str = Field(description="as SageMaker writes it: ml.p4d.24xlarge")
    gpus: Annotated[int, Meta(ge=0)]
    gpu: str | None = Field(description="EC2's name of the GPU, such as A100; null: none or unknown")
    gpu_memory_gib: float | None = Field(description="GiB of one GPU, two decimals; null: no GPU, or unknown")
    neuron_devices: Annotated[int, Meta(ge=0)] = Field(description="Trainium devices")
    neuron_cores: Annotated[int, Meta(ge=0)] = Field(description="physical NeuronCores of all devices")
    efa: Annotated[int, Meta(ge=0)] = Field(description="maximum number of EFA interfaces")
    vcpus: Annotated[int, Meta(gt=0)]
    memory_gib: Annotated[float, Meta(gt=0)] = Field(description="GiB of main memory")
    architecture: Literal["x86_64", "arm64"] = Field(description="architecture of the image")
    # The toolkit sets FI_PROVIDER=efa (mpirun and torchrun; SMDDP's runner always sets it) for a list of types in its
    # code, and FI_EFA_USE_DEVICE_RDMA=1 for a shorter list. Users must set them for other EFA types.
    toolkit_efa: bool = Field(description="sagemaker-training sets FI_PROVIDER=efa for this type")
    toolkit_rdma: bool = Field(description="sagemaker-training sets FI_EFA_USE_DEVICE_RDMA=1 for this type")
    sources: tuple[str, ...] = Field(description="keys of provenance.sources with facts about this type")

    @property
    def family(self) -> str:
        """``p4d`` of ``ml.p4d.24xlarge``."""
        return self.name.split(".")[1]

    @property
    def accelerator(self) -> Literal["gpu", "neuron"] | None:
        """The kind of accelerator; None: CPUs only."""
        if self.gpus:
            return "gpu"
        return "neuron" if self.neuron_devices else None

    @property
    def processes_per_host(self) -> int:
        """The training toolkit's default: one process per GPU, else per NeuronCore, else one.

        Source: sagemaker-training 5.1.4, ``runner.py`` and ``environment.py`` (which run nvidia-smi and neuron-ls).
        """
        return self.gpus or LOGICAL_CORES.get(self.name) or self.neuron_cores or 1


class PublishedFile(Record):
    """A published file that facts were read from."""

    package: str
    version: str
    file: str = Field(description="the wheel or source archive on the package index")
    sha256: Sha256
    member: str = Field(description="the file in it")
    gives: tuple[str, ...] = Field(description="the fields that it has; name: the valid types")


class InstanceCorrection(Record):
    """A value in a source that is known to be wrong or missing, and its replacement."""

    source: str
    instances: tuple[str, ...] = Field(description="as named in the source")
    field: str
    says: str | int | float | None = Field(description="what the source says; null: nothing")
    taken: str | int | float
    why: str


class InstanceProvenance(Record):
    """The sources of the facts. If several have the same fact, they agree after the ``corrections``."""

    made_by: str
    sources: Mapping[str, PublishedFile]
    corrections: tuple[InstanceCorrection, ...]


class InstanceTable(Record):
    """The content of ``instances.json``."""

    schema: Literal["trainwright/instances/1"]
    provenance: InstanceProvenance
    instances: Mapping[str, Instance]


def read_table(path: Path) -> InstanceTable:
    """Read the table in a file.

    Raises:
        RequestError: the file is missing or invalid.
    """
    data = read_json(path, remedy="Run ./invoke refresh-instances to create it.")
    try:
        named = {name: {"name": name, **facts} for name, facts in data["instances"].items()}
    except (KeyError, TypeError, AttributeError) as broken:
        raise RequestError(f"{path}: invalid table of instances: {type(broken).__name__}: {broken}") from None
    return parse_record(InstanceTable, {**data, "instances": named}, path.name)


@cache
def shipped_table() -> InstanceTable:
    """Return the shipped table with its provenance; it is read once.

    Raises:
        RequestError: the installation is damaged.
    """
    return read_table(PATH)


def load_instances() -> Mapping[str, Instance]:
    """Return every instance type that SageMaker accepts for training, by name.

    Raises:
        RequestError: the installation is damaged.
    """
    return MappingProxyType(dict(shipped_table().instances))


def instance(name: str) -> Instance:
    """Return the instance type ``name``, such as ``ml.p4d.24xlarge``.

    Raises:
        RequestError: the training instance type is unknown; ``details["nearest"]`` has the most similar names.
    """
    known = shipped_table().instances
    if name in known:
        return known[name]
    # EC2's name of a type and the toolkit's spelling (ml_p3_8xlarge) mean the same type.
    meant = name.strip().lower().replace("_", ".")
    meant = meant if meant.startswith("ml.") else f"ml.{meant}"
    similar = [meant] if meant in known else nearest(meant, known)
    families = sorted({each.family for each in known.values()})
    hint = f"Did you mean {' or '.join(similar)}?" if similar else f"The families are {', '.join(families)}."
    raise RequestError(
        f"{name!r} is not a training instance type of SageMaker. {hint}",
        remedy="Use one of the valid types. For a type that AWS added recently, run ./invoke refresh-instances.",
        nearest=similar,
    )
