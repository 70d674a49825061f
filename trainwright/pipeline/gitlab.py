"""A pipeline of GitLab CI/CD: a job for each image, and one that moves their tags, without a stored key.

The commands are those of the buildspec (``templates/pipeline/shell.j2``). A job is named like its image or its group of
shared stages, and says which job it needs, as a batch of CodeBuild does; so no limit of a matrix applies. Nothing is at
the top level but jobs, so that a pipeline of one's own can include the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainwright.pipeline.batch import lines
from trainwright.pipeline.images import ChosenImage
from trainwright.pipeline.matrix import image_rows, levels
from trainwright.pipeline.sharing import Group
from trainwright.pipeline.text import dump, render

# What starts a pipeline (GitLab: "Predefined CI/CD variables reference", CI_PIPELINE_SOURCE).
STARTED_BY = ("schedule", "web", "api", "trigger")


def pipeline_file(images: Sequence[ChosenImage], groups: Sequence[Group], *, command: str, catalog: str) -> str:
    """The text of ``.gitlab-ci.yml``.

    Args:
        images: the images to build, in order.
        groups: their groups of shared stages.
        command: the command that writes the file.
        catalog: folder of the user's own catalog, or nothing.
    """
    jobs = [*_stages(images, groups), *_images(images, groups)]
    values = {
        "command": command,
        "catalog": literal(catalog),
        "started": " || ".join(f'$CI_PIPELINE_SOURCE == "{source}"' for source in STARTED_BY),
        "groups": bool(groups),
        "lines": lines(images),
        "jobs": "\n".join(dump({name: job}) for name, job in jobs).rstrip(),
    }
    return render("gitlab.yml.j2", values)


def literal(value: str) -> str:
    """A value of a variable as YAML, in which GitLab expands nothing ("Use CI/CD variables in other variables")."""
    return dump(value.replace("$", "$$")).partition("\n...")[0].strip() if value else ""


def _stages(images: Sequence[ChosenImage], groups: Sequence[Group]) -> list[tuple[str, dict[str, Any]]]:
    """The jobs of shared stages, outer ones first."""
    rows = [row for level in levels(images, groups) for row in level.rows]
    return [
        (
            row["SHARED"],
            {"extends": ".trainwright-stages", "needs": _needs(row["PARENT"]), "variables": _variables(row)},
        )
        for row in rows
    ]


def _images(images: Sequence[ChosenImage], groups: Sequence[Group]) -> list[tuple[str, dict[str, Any]]]:
    """The jobs of images. Of two pipelines, one at a time has the job of an image: both would push a next revision."""
    rows = image_rows(images, groups, most=len(images))
    return [
        (
            row["NAME"],
            {
                "extends": ".trainwright-image",
                "needs": _needs(row["SHARED"]),
                "resource_group": f"trainwright/{row['NAME']}",
                "variables": _variables(row),
            },
        )
        for row in rows
    ]


def _needs(job: str) -> list[dict[str, Any]]:
    """What a job waits for: without a cache, the jobs of shared stages do not exist."""
    return [{"job": job, "artifacts": False, "optional": True}] if job else []


def _variables(row: dict[str, str]) -> dict[str, str]:
    return {name: value.replace("$", "$$") for name, value in row.items() if name != "NAME"}
