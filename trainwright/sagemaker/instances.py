"""What SageMaker's training instance types hold: GPUs, Neuron devices, EFA interfaces, vCPUs, memory.

The facts lie in ``instances.json``, which ``devtools/refresh_instances.py`` makes from published packages; its
``provenance`` names the packages, their versions and every value that was corrected. Read at first use, not at import.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from trainwright.core.errors import RequestError, nearest
from trainwright.core.records import Record, parse_record, read_json

PATH = Path(__file__).with_name("instances.json")
SCHEMA = "trainwright/instances/1"

# Trainium 2 offers its NeuronCores in pairs. The toolkit does not ask neuron-ls there, but has this number in its code
# (sagemaker-training 5.1.4, environment.num_neurons).
LOGICAL_CORES = {"ml.trn2.48xlarge": 64}


class Instance(Record):
    """A training instance type. Counts are per instance (= per host of a job)."""

    name: str = Field(description="as SageMaker writes it: ml.p4d.24xlarge")
    gpus: int = Field(ge=0)
    gpu: str | None = Field(
        description="the GPU's name as EC2 gives it, such as A100; null: none, or no source names it"
    )
    gpu_memory_gib: float | None = Field(description="GiB of one GPU, two decimals; null: no GPU, or no source says")
    neuron_devices: int = Field(ge=0, description="Trainium devices")
    neuron_cores: int = Field(ge=0, description="physical NeuronCores of all devices together")
    efa: int = Field(ge=0, description="the most EFA interfaces that the instance can have")
    vcpus: int = Field(gt=0)
    memory_gib: float = Field(gt=0, description="GiB of main memory")
    architecture: Literal["x86_64", "arm64"] = Field(description="what the image must be built for")
    # The toolkit sets FI_PROVIDER=efa (mpirun and torchrun; SMDDP's runner sets it on every type) for a list of types
    # in its code, and FI_EFA_USE_DEVICE_RDMA=1 for a shorter one. EFA types outside of it need the user's own setting.
    toolkit_efa: bool = Field(description="sagemaker-training sets FI_PROVIDER=efa for this type by itself")
    toolkit_rdma: bool = Field(description="sagemaker-training sets FI_EFA_USE_DEVICE_RDMA=1 for this type by itself")
    sources: tuple[str, ...] = Field(description="keys of provenance.sources that have facts about this type")

    @property
    def family(self) -> str:
        """``p4d`` of ``ml.p4d.24xlarge``."""
        return self.name.split(".")[1]

    @property
    def accelerator(self) -> Literal["gpu", "neuron"] | None:
        """What kind of accelerator it has; ``None``: CPUs alone."""
        if self.gpus:
            return "gpu"
        return "neuron" if self.neuron_devices else None

    @property
    def processes_per_host(self) -> int:
        """What the training toolkit starts per host unless told: one process per GPU, else per NeuronCore, else one.

        Source: sagemaker-training 5.1.4, ``runner.py`` and ``environment.py`` (which ask nvidia-smi and neuron-ls).
        """
        return self.gpus or LOGICAL_CORES.get(self.name) or self.neuron_cores or 1


class PublishedFile(Record):
    """A published file that facts were read from."""

    package: str
    version: str
    file: str = Field(description="the wheel or source archive on the package index")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    member: str = Field(description="the file in it that was read")
    gives: tuple[str, ...] = Field(
        description="the fields of an instance that it speaks of; name: which types are valid"
    )


class InstanceCorrection(Record):
    """A value of a source that is known to be wrong or missing, and what stands in its place."""

    source: str
    instances: tuple[str, ...] = Field(description="as the source writes them")
    field: str
    says: str | int | float | None = Field(description="what the source says; null: nothing")
    taken: str | int | float
    why: str


class InstanceProvenance(Record):
    """Where the facts come from. Where several sources have a fact, they agree once ``corrections`` are made."""

    made_by: str
    sources: Mapping[str, PublishedFile]
    corrections: tuple[InstanceCorrection, ...]


class InstanceTable(Record):
    """The content of ``instances.json``."""

    schema_: Literal["trainwright/instances/1"] = Field(alias="schema")
    provenance: InstanceProvenance
    instances: Mapping[str, Instance]


def read_table(path: Path) -> InstanceTable:
    """The table in a file.

    Raises:
        RequestError: the file is missing or no table of instances.
    """
    data = read_json(path, remedy="./invoke refresh-instances makes it.")
    try:
        named = {name: {"name": name, **facts} for name, facts in data["instances"].items()}
    except (KeyError, TypeError, AttributeError) as broken:
        raise RequestError(f"{path}: no table of instances: {type(broken).__name__}: {broken}") from None
    return parse_record(InstanceTable, {**data, "instances": named}, path.name)


@cache
def shipped_table() -> InstanceTable:
    """The shipped table with its provenance, read once.

    Raises:
        RequestError: the installation is damaged.
    """
    return read_table(PATH)


def load_instances() -> Mapping[str, Instance]:
    """Every instance type that SageMaker accepts for training, by name; read once.

    Raises:
        RequestError: the installation is damaged.
    """
    return MappingProxyType(dict(shipped_table().instances))


def instance(name: str) -> Instance:
    """The instance type ``name``, such as ``ml.p4d.24xlarge``.

    Raises:
        RequestError: SageMaker has no such training instance type; ``details["nearest"]`` holds the most similar names.
    """
    known = shipped_table().instances
    if name in known:
        return known[name]
    # EC2's name of a type and the toolkit's own spelling (ml_p3_8xlarge) mean one type, not three similar ones.
    meant = name.strip().lower().replace("_", ".")
    meant = meant if meant.startswith("ml.") else f"ml.{meant}"
    near = [meant] if meant in known else nearest(meant, known)
    families = sorted({each.family for each in known.values()})
    hint = f"Did you mean {' or '.join(near)}?" if near else f"The families are {', '.join(families)}."
    raise RequestError(
        f"{name!r} is not a training instance type of SageMaker. {hint}",
        remedy="Name one of the valid types. If AWS has added it lately: ./invoke refresh-instances",
        nearest=near,
    )
