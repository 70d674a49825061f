"""The build graph of a CodeBuild batch: a job per image, before them one per group of shared stages, and a last one.

An image's job depends only on the job of its innermost group (:mod:`trainwright.pipeline.sharing`), which depends on
the job of the group around it. So a common stage is built once, and the others read it from the registry cache.
The last job depends on those of all images, which push without moving a tag, and moves the tags of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from trainwright.catalog.image_line import cuda_tag
from trainwright.pipeline import gpu_smoke
from trainwright.pipeline.images import ChosenImage
from trainwright.pipeline.sharing import Group, group_of
from trainwright.plan.plan import Plan

# The rehearsal of an image, by component: the usual launcher of its framework, on two hosts.
REHEARSALS = {
    "pytorch": {"SOURCE_DIR": "examples/ddp", "DISTRIBUTION": "torch_distributed"},
    "mpi4py": {"SOURCE_DIR": "examples/mpi", "DISTRIBUTION": "mpi"},
    "": {"SOURCE_DIR": "examples/two-frameworks", "DISTRIBUTION": ""},
}
MOST = 100  # builds of one batch (CodeBuild user guide, "Quotas"; MaximumBuildsAllowed)
# Said in every job: what a job says of its environment replaces the project's, and the default is false (CodeBuild user
# guide, "Batch build buildspec reference").
_ENGINE = {"privileged-mode": True}
LAST = "moving_tags"


def batch(
    images: Sequence[ChosenImage],
    groups: Sequence[Group],
    *,
    stages_file: str,
    tags_file: str,
    phases_file: str | None = None,
    gpu_folder: str = "",
) -> dict[str, Any]:
    """The ``batch`` of a buildspec.

    Args:
        images: the images to build, in order.
        groups: their groups.
        stages_file: the buildspec of shared stages, relative to the root of the source.
        tags_file: that of the last job.
        phases_file: the buildspec of an image, if it is not the one that contains the batch.
        gpu_folder: the buildspecs of smoke tests on a GPU, relative to the root of the source; empty if no image is
            tested on one.
    """
    by_name = {image.name: image for image in images}
    nodes = [_shared_node(group, by_name[group.images[0]], stages_file) for group in groups]
    nodes += [_image_node(image, group_of(image.name, groups), phases_file, gpu_folder) for image in images]
    nodes.append(_last_node(images, tags_file))
    # A line that can no longer be built does not stop the others.
    return {"batch": {"fast-fail": False, "build-graph": nodes}}


def split(
    images: Sequence[ChosenImage], groups: Sequence[Group], most: int = MOST
) -> list[tuple[list[ChosenImage], list[Group]]]:
    """Images and their groups in parts that are small enough for one batch, in order.

    Args:
        images: the images to build.
        groups: their groups, each after its parent. One whose images are in two parts is in both: the second finds its
            stages in the cache.
        most: jobs of one batch.
    """
    by_name = {group.name: group for group in groups}
    parts: list[tuple[list[ChosenImage], set[str]]] = [([], set())]
    for image in images:
        needed, group = set[str](), group_of(image.name, groups)
        while group is not None:
            needed.add(group.name)
            group = by_name.get(group.parent) if group.parent else None
        chosen, shared = parts[-1]
        if chosen and jobs_of(len(chosen) + 1, len(shared | needed)) > most:
            parts.append(([], set()))
            chosen, shared = parts[-1]
        chosen.append(image)
        shared |= needed
    return [(chosen, list(_within(groups, shared, {image.name for image in chosen}))) for chosen, shared in parts]


def jobs_of(images: int, groups: int) -> int:
    """How many jobs a batch has: one for each image and group, and the last."""
    return images + groups + 1


def _within(groups: Sequence[Group], wanted: set[str], images: set[str]) -> Iterator[Group]:
    """The groups of a part, each with those of its images that are in it: one of them builds the stages."""
    for group in groups:
        if group.name in wanted:
            yield replace(group, images=tuple(name for name in group.images if name in images))


def proof_batch(lines: Sequence[ChosenImage]) -> dict[str, Any]:
    """The ``batch`` of a buildspec that proves lines: each by itself, whatever becomes of the others."""
    nodes = [
        {
            "identifier": identifier(line.name),
            "env": {**_ENGINE, "variables": {"LINE": line.name, **request_variables(line), **_selecting(line)}},
        }
        for line in lines
    ]
    return {"batch": {"fast-fail": False, "build-graph": nodes}}


def _selecting(line: ChosenImage) -> dict[str, str]:
    """What selects a line among several, behind its base: the phases have no variable for it, and their shell splits
    the request into words."""
    words = line.request
    python = [f"--python {words.python}"] if words.python else []
    more = [*python, *(f"--set {name}={version}" for name, version in words.set_)]
    return {"BASE": " ".join([str(words.base), *more])} if more else {}


def identifier(name: str) -> str:
    """A name as CodeBuild accepts it for a job: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9]+", "_", name)


def request_variables(image: ChosenImage) -> dict[str, str]:
    """The request of an image as the variables that the phases read."""
    words = image.request
    cuda = cuda_tag(image.plan.cuda)
    found = {"FRAMEWORK": words.framework, "CUDA": cuda, "VERSION": words.version, "BASE": words.base}
    return {key: value for key, value in found.items() if value}


def rehearsal(plan: Plan) -> dict[str, str]:
    """The job to rehearse in an image, as variables."""
    names = {component.name for component in plan.components}
    return next(job for component, job in REHEARSALS.items() if component in names or not component)


def _shared_node(group: Group, first: ChosenImage, stages_file: str) -> dict[str, Any]:
    variables = {**request_variables(first), "STAGES": ",".join(group.stages), "SHARED": group.name}
    if group.parent:
        variables["PARENT"] = group.parent
    depends = {"depend-on": [group.parent]} if group.parent else {}
    return {
        "identifier": group.name,
        "buildspec": stages_file,
        **depends,
        # It fills a cache. Its command never fails, and what else does must not fail the batch.
        "ignore-failure": True,
        "env": {**_ENGINE, "variables": variables},
    }


def _image_node(image: ChosenImage, group: Group | None, phases_file: str | None, gpu_folder: str) -> dict[str, Any]:
    variables = {**request_variables(image), **rehearsal(image.plan), "LEAVE_TAGS": "yes"}
    if group:
        variables["SHARED"] = group.name
    if gpu_folder and (path := gpu_smoke.path_of(image, gpu_folder)):
        variables["GPU_SMOKE"] = path
    return {
        "identifier": identifier(image.name),
        **({"buildspec": phases_file} if phases_file else {}),
        **({"depend-on": [group.name]} if group else {}),
        "env": {**_ENGINE, "variables": variables},
    }


def _last_node(images: Sequence[ChosenImage], tags_file: str) -> dict[str, Any]:
    return {
        "identifier": LAST,
        "buildspec": tags_file,
        "depend-on": [identifier(image.name) for image in images],
        "env": {"privileged-mode": False, "variables": {"LINES": lines(images)}},
    }


def lines(images: Sequence[ChosenImage]) -> str:
    """Images as the last job of a pipeline names them."""
    return ",".join(image.name for image in images)
