"""The jobs of a pipeline as tables of variables: a row for each image, and one for each group of shared stages.

Services that know no dependency between the rows of two tables (GitHub, GitLab) get a table for each level of groups:
those of the first level depend on nothing, those of the second only on groups of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.core.errors import RequestError
from trainwright.pipeline.batch import rehearsal
from trainwright.pipeline.images import ChosenImage
from trainwright.pipeline.sharing import Group, group_of

Row = dict[str, str]


@dataclass(frozen=True)
class Level:
    """A table of groups that do not depend on each other.

    Attributes:
        name: of the job.
        needs: the job of the level before; empty for the first one.
        rows: the variables of each group.
    """

    name: str
    needs: str
    rows: tuple[Row, ...]


def image_rows(images: Sequence[ChosenImage], groups: Sequence[Group], *, most: int) -> list[Row]:
    """The variables of each image, which the phases read.

    Args:
        images: the images to build, in order.
        groups: their groups.
        most: the rows that the service accepts.

    Raises:
        RequestError: there are more images than that.
    """
    if len(images) > most:
        raise RequestError(
            f"--images: {len(images)} images, and the service runs at most {most} jobs of one matrix",
            remedy="Write two files, each with some of them: --images 'pytorch-*' --output FILE",
        )
    return [
        {
            "NAME": image.name,
            "REQUEST": image.request.flags(),
            "FRAMEWORK": image.plan.framework,
            **rehearsal(image.plan),
            "SHARED": group.name if (group := group_of(image.name, groups)) else "",
        }
        for image in images
    ]


def levels(images: Sequence[ChosenImage], groups: Sequence[Group]) -> list[Level]:
    """The groups by depth, outer ones first."""
    requests = {image.name: image.request.flags() for image in images}
    depth: dict[str, int] = {}
    found: list[list[Row]] = []
    for group in groups:  # each after its parent
        depth[group.name] = depth[group.parent] + 1 if group.parent else 0
        if depth[group.name] == len(found):
            found.append([])
        found[depth[group.name]].append(
            {
                "SHARED": group.name,
                "PARENT": group.parent or "",
                "REQUEST": requests[group.images[0]],
                "STAGES": ",".join(group.stages),
            }
        )
    names = [f"stages-{number}" for number in range(1, len(found) + 1)]
    return [Level(name, needs, tuple(rows)) for name, needs, rows in zip(names, ["", *names], found, strict=False)]
