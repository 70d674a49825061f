"""AWS Deep Learning Containers: the table of the SageMaker training images that AWS publishes, and of their regions.

The facts are in ``dlc.json``, which ``devtools/refresh_dlc.py`` writes; its ``provenance`` names the package and
version, or the repository, commit and date, of each table. It is read at first use, not at import. An image in the
table may no longer be in the registry: nothing here contacts a registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from trainwright.core.checked import Checked
from trainwright.core.data_files import read_json
from trainwright.core.fields import form
from trainwright.core.records import Field, Record, parse_record, read_record
from trainwright.sagemaker.instances import PublishedFile

PATH = Path(__file__).with_name("dlc.json")
GALLERY = "public.ecr.aws/deep-learning-containers"
SMP = "smdistributed-modelparallel"
# Repository in AWS's registry → framework. PyTorch changed its repository with 2.11.
FRAMEWORKS = {
    "pytorch-training": "pytorch",
    "pytorch": "pytorch",
    "tensorflow-training": "tensorflow",
    "pytorch-trcomp-training": "pytorch-trcomp",
    "huggingface-pytorch-training": "huggingface-pytorch",
    "huggingface-tensorflow-training": "huggingface-tensorflow",
    "huggingface-pytorch-trcomp-training": "huggingface-pytorch-trcomp",
    "huggingface-tensorflow-trcomp-training": "huggingface-tensorflow-trcomp",
    SMP: "pytorch-smp",
}


class PublishedImage(Record):
    """A published training image. A field is null if no source gives it."""

    repository: str
    version: str = Field(description="of the framework")
    transformers: str | None = Field(description="of the Hugging Face library; null in other images")
    device: Literal["gpu", "cpu"]
    cuda: Annotated[str, form(r"^cu[0-9]{3}$")] | None = Field(description="null: a CPU image, or unknown")
    python: Annotated[str, form(r"^py[23][0-9]*$")] | None = Field(
        description="py2 and py3: the minor version is unknown"
    )
    os: str | None
    tag: str
    gallery: bool = Field(description="also in the public gallery, which needs no account")
    released: date | None
    end_of_patch: date | None = Field(description="the last day on which AWS patches it")
    regions: str | None = Field(description="key of the table region_sets; null: unknown")
    evidence: Annotated[tuple[str, ...], Meta(min_length=1)]

    @property
    def framework(self) -> str:
        """The name under which :func:`~trainwright.sagemaker.dlc_lookup.dlc_image` finds it."""
        return FRAMEWORKS[self.repository]


class Unpublished(Record):
    """An image with a Dockerfile in AWS's repository that no source lists as published for SageMaker."""

    repository: str
    version: str
    cuda: str | None
    evidence: tuple[str, ...]


class Claim(Record):
    """What one source says about one image; ``source`` is ``documents``, ``facts`` or ``sagemaker-core``."""

    source: str
    repository: str
    version: str
    transformers: str | None = None
    device: Literal["gpu", "cpu"]
    cuda: str | None = None
    python: str | None = None
    os: str | None = None
    tag: str | None = None
    gallery: bool | None = None
    released: date | None = None
    end_of_patch: date | None = None
    evidence: str


class Support(Record):
    """The period in which AWS patches the images of a framework's minor version."""

    repository: str
    version: Annotated[str, form(r"^[0-9]+\.[0-9]+$")]
    released: date
    end_of_patch: date
    evidence: str


class Snapshot(Record):
    """The state of a repository that entries were read from."""

    repository: str
    branch: str | None = None
    commit: str | None = Field(default=None, description="null: the evidence of each entry names its own")
    date: date
    content: str = ""


class DlcCorrection(Record):
    """A value in a source that is known to be wrong, and its replacement."""

    source: str
    repository: str
    tag: str = Field(description="the image, as named in the source")
    field: str
    says: str
    taken: str | None
    why: str


def _origin(given: Any) -> PublishedFile | Snapshot:
    """A file of a package, or the state of a repository: msgspec tells records apart only by a tag."""
    if isinstance(given, PublishedFile | Snapshot):
        return given
    return read_record(Snapshot, given) if "repository" in given else read_record(PublishedFile, given)


class DlcProvenance(Record):
    """Where the tables come from."""

    made_by: str
    accounts: tuple[PublishedFile, ...]
    domains: tuple[PublishedFile, ...]
    images: tuple[Checked[Any, _origin], ...]
    corrections: tuple[DlcCorrection, ...]


class Recorded(Record):
    """What was read from documents that no package contains; a refresh keeps it."""

    claims: tuple[Claim, ...]
    support: tuple[Support, ...]


class DlcTable(Record):
    """The content of ``dlc.json``."""

    schema: Literal["trainwright/dlc/1"]
    provenance: DlcProvenance
    domains: Mapping[str, str] = Field(description="region → DNS suffix of its registry")
    accounts: Mapping[str, Mapping[str, str]] = Field(description="dlc or smp → region → account")
    region_sets: Mapping[str, tuple[str, ...]]
    images: tuple[PublishedImage, ...]
    unpublished: tuple[Unpublished, ...]
    recorded: Recorded


def registry_of(repository: str) -> Literal["dlc", "smp"]:
    """Return the table of accounts for a repository: SMP v2 has its own."""
    return "smp" if repository == SMP else "dlc"


def read_table(path: Path) -> DlcTable:
    """Read the table in a file.

    Raises:
        RequestError: the file is missing or invalid.
    """
    return parse_record(DlcTable, read_json(path, remedy="Run ./invoke refresh-dlc to create it."), path.name)


@cache
def load_dlc() -> DlcTable:
    """Return the shipped table with its provenance; it is read once.

    Raises:
        RequestError: the installation is damaged.
    """
    return read_table(PATH)


def accounts_of_aws() -> frozenset[str]:
    """Return the accounts whose registries have AWS's own containers, in any region."""
    return frozenset(account for regions in load_dlc().accounts.values() for account in regions.values())
