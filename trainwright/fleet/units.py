"""The units of a run: its image lines that are still to be built, and the stages that several of them share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from trainwright.fleet.fleet import Work
from trainwright.fleet.run_folder import RunFolder, UnitProgress
from trainwright.pipeline.images import ChosenImage
from trainwright.pipeline.sharing import Group, group_of


def works(
    images: Sequence[ChosenImage],
    groups: Sequence[Group],
    program: Sequence[str],
    options: Sequence[str],
    stage_options: Sequence[str],
) -> list[Work]:
    """What is built: each group of shared stages, then each image line.

    Args:
        images: the lines to build.
        groups: what they share; each after its parent.
        program: begins the command line of a build, up to and with the verb.
        options: the flags that each build of a line gets.
        stage_options: the flags that each build of stages gets.
    """
    by_name = {image.name: image for image in images}
    found = []
    for group in groups:
        first = by_name[group.images[0]]
        progress = UnitProgress(
            name=group.name, kind="stages", plan=first.plan.id, request=first.request.flags(), stages=group.stages
        )
        words = ("--stages", ",".join(group.stages), *stage_options)
        needs = (group.parent,) if group.parent else ()
        found.append(Work(progress, _argv(program, first, words), needs, wanted=len(group.images)))
    for image in images:
        inner = group_of(image.name, groups)
        found.append(Work(untouched(image), _argv(program, image, options), (inner.name,) if inner else ()))
    return found


def _argv(program: Sequence[str], image: ChosenImage, words: Sequence[str]) -> tuple[str, ...]:
    return (*program, *shlex.split(image.request.flags()), *words, "--progress", "plain", "--json")


def untouched(image: ChosenImage) -> UnitProgress:
    """The progress of a line of which nothing has been built."""
    return UnitProgress(name=image.name, kind="line", plan=image.plan.id, request=image.request.flags())


def split(
    folder: RunFolder, images: Sequence[ChosenImage], there: Callable[[str], bool]
) -> tuple[list[UnitProgress], list[ChosenImage]]:
    """The lines of a run that are built, and those that are still to be built.

    Args:
        folder: of the run.
        images: its lines, with the plans that they have today.
        there: whether the engine still has an image, with its build record.
    """
    built, left = [], []
    for image in images:
        before = folder.progress("line", image.name)
        if (
            before is not None
            and before.state == "built"
            and before.plan == image.plan.id
            and before.image is not None
            and there(before.image)
        ):
            built.append(before)
        else:
            left.append(image)
    return built, left
