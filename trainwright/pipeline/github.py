"""A workflow of GitHub Actions: a job for each image, and one that moves their tags, without a stored key.

The commands are those of the buildspec (``templates/pipeline/shell.j2``); GitHub runs each in a shell of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from trainwright.pipeline.batch import lines
from trainwright.pipeline.images import ChosenImage
from trainwright.pipeline.matrix import image_rows, levels
from trainwright.pipeline.sharing import Group
from trainwright.pipeline.text import dump, render

# The limit of a matrix (GitHub: "Usage limits, billing, and administration").
MOST_JOBS = 256
# By commit: what a tag names can change. The commits are those of the tags in each action's repository, 2026-11-23.
ACTIONS = {
    "actions/checkout": ("3d3c42e5aac5ba805825da76410c181273ba90b1", "v7.0.1"),
    "actions/upload-artifact": ("bbbca2ddaa5d8feaa63e36b76fdaad77386f024f", "v7.0.0"),
    "aws-actions/configure-aws-credentials": ("e6de054238d6b7531b4efff3b6587d9aade6a06c", "v6.2.3"),
}


def workflow(images: Sequence[ChosenImage], groups: Sequence[Group], *, command: str, catalog: str) -> str:
    """The text of a workflow.

    Args:
        images: the images to build, in order.
        groups: their groups of shared stages.
        command: the command that writes the file.
        catalog: folder of the user's own catalog, or nothing.

    Raises:
        RequestError: more images than one workflow can build.
    """
    values = {
        "command": command,
        "catalog": catalog,
        "actions": {name: f"{name}@{commit} # {tag}" for name, (commit, tag) in ACTIONS.items()},
        "levels": [{**asdict(level), "matrix": dump(list(level.rows)).rstrip()} for level in levels(images, groups)],
        "lines": lines(images),
        "images": dump(image_rows(images, groups, most=MOST_JOBS)).rstrip(),
    }
    return render("github.yml.j2", values)
