"""What AWS's own Dockerfiles and locks say is in its containers: evidence, not proof.

A container is only known once somebody has looked into it. Before that, the latest Dockerfile of an image in AWS's
repository is the best that can be said, and it is always quoted with its date and commit. ``dlc_contents.json`` has a
row per image; ``devtools/dlc_contents.py`` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Literal

from trainwright.core.data_files import read_json
from trainwright.core.records import Field, Record, parse_record
from trainwright.sagemaker.dlc import load_dlc

PATH = Path(__file__).with_name("dlc_contents.json")
REPOSITORY = "aws/deep-learning-containers"


class DlcContents(Record):
    """What AWS's Dockerfile, and its lock if it has one, install in one image.

    ``components`` maps Trainwright's name of a component to its version; the version is empty if AWS pins none.
    ``also`` does so for Python packages that are only quoted: they are no part of a plan, and so not of its id.
    """

    repository: str
    version: str = Field(description="of the framework")
    cuda: str | None = Field(description="as in AWS's tag; null: a CPU image")
    path: str
    commit: str
    date: date
    components: Mapping[str, str]
    also: Mapping[str, str] = {}

    @property
    def source(self) -> str:
        """Where this was read, in a few words."""
        return f"AWS's Dockerfile of {self.date} ({self.commit[:8]})"

    @property
    def listed(self) -> str:
        """The components with their versions, for people."""
        return ", ".join(" ".join(filter(None, pair)) for pair in {**self.components, **self.also}.items())


class DlcContentsTable(Record):
    """The content of ``dlc_contents.json``."""

    schema: Literal["trainwright/dlc-contents/1"]
    images: tuple[DlcContents, ...]

    @property
    def looked_for(self) -> frozenset[str]:
        """The components that Dockerfiles were read for: one that an image's own does not name is not installed."""
        return frozenset(name for image in self.images for name in (*image.components, *image.also))


@cache
def load_contents() -> DlcContentsTable:
    """Return the shipped table; it is read once.

    Raises:
        RequestError: the installation is damaged.
    """
    return parse_record(DlcContentsTable, read_json(PATH, remedy="Run ./invoke refresh-dlc."), PATH.name)


def contents_of(reference: str) -> DlcContents | None:
    """Return what AWS's repository says about the image of a reference; None if it is not known.

    Args:
        reference: a name of one of AWS's images: registry and digest are ignored, the tag must be AWS's.
    """
    name = reference.partition("@")[0].rpartition("/")[2]
    image = next((each for each in load_dlc().images if f"{each.repository}:{each.tag}" == name), None)
    if image is None:
        return None
    key = (image.repository, image.version, image.cuda)
    if image.device == "gpu" and image.cuda is None:
        return None
    return next((e for e in load_contents().images if (e.repository, e.version, e.cuda) == key), None)
