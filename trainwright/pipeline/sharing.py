"""Which build stages several image lines have in common, to the byte.

Two stages are one and the same where their instructions are equal, what they start from is, every stage that they take
files from is, and so is every file of the build context that they read. That is what BuildKit's cache goes by, so the
second of two builds takes such a stage from the cache of the first.

A *group* is a set of image lines with the stages that all of them have in common. Groups form a tree: of two that
overlap, one lies within the other, so that each line takes the cache of one group, and a group that of one more.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainwright.build.dockerfile import Stage, stages
from trainwright.catalog.tools import tools_lock
from trainwright.plan.plan import Plan

# The image itself: its layers are installed from what other stages made, and nobody shares the whole of it.
FINAL = "final"
_ARGUMENT = re.compile(r"^ARG\s+(\w+)=(\S+)", re.MULTILINE)
_BOUND = re.compile(r"--mount=type=bind,source=([^\s,]+)")  # from= would stand before source=
_COPIED = re.compile(r"^(?:COPY|ADD)\s+(?!--from=)(.+)$", re.DOTALL)


@dataclass(frozen=True)
class SharedImage:
    """An image of a pipeline: its name, its plan and the Dockerfile that follows from it."""

    name: str
    plan: Plan
    dockerfile: str


@dataclass(frozen=True)
class Group:
    """Images that have stages in common.

    Attributes:
        name: of the group within its pipeline.
        images: names of the images, in the order of the pipeline; the first stands for all where one has to be built.
        stages: the common stages, in the order of the Dockerfile, those of ``parent`` among them.
        parent: the name of the group that this one lies within.
    """

    name: str
    images: tuple[str, ...]
    stages: tuple[str, ...]
    parent: str | None = None


def groups(images: Sequence[SharedImage]) -> list[Group]:
    """The groups of a pipeline, outer ones before those within them.

    A group has to save work: there is a stage with a RUN that the group around it does not have. Of two groups that
    overlap without one lying within the other, the larger is kept, and the common stages of the other are built by each
    of its images.
    """
    keys = {image.name: stage_keys(image) for image in images}
    having: dict[str, list[str]] = {}
    for name, of_image in keys.items():
        for key in of_image.values():
            having.setdefault(key, []).append(name)
    order = {image.name: number for number, image in enumerate(images)}
    sets = {frozenset(names) for names in having.values() if len(names) > 1}
    kept: list[Group] = []
    for members in sorted(sets, key=lambda names: (-len(names), sorted(order[name] for name in names))):
        names = tuple(sorted(members, key=order.__getitem__))
        outer = [group for group in kept if members & set(group.images)]
        if any(not members < set(group.images) for group in outer):
            continue
        first = next(image for image in images if image.name == names[0])
        common = tuple(stage for stage, key in keys[first.name].items() if members <= set(having[key]))
        parent = outer[-1] if outer else None
        new = set(common) - set(parent.stages if parent else ())
        if any(stage.name in new and _works(stage) for stage in stages(first.dockerfile)):
            kept.append(Group(f"shared_{len(kept) + 1}", names, common, parent.name if parent else None))
    return kept


def group_of(image: str, found: Sequence[Group]) -> Group | None:
    """The innermost group of an image, whose cache holds most of it."""
    return next((group for group in reversed(found) if image in group.images), None)


def stage_keys(image: SharedImage) -> dict[str, str]:
    """A digest per stage, in the order of the Dockerfile and without the image itself; equal for equal stages."""
    arguments = dict(_ARGUMENT.findall(image.dockerfile.partition("\nFROM ")[0]))
    keys: dict[str, str] = {}
    for stage in stages(image.dockerfile):
        if stage.name == FINAL:
            continue
        parent = re.sub(r"\$\{(\w+)\}", lambda name: arguments[name[1]], stage.parent)
        body = {
            "parent": keys.get(parent, parent),
            "takes": {name: keys[name] for name in stage.needs},
            "instructions": stage.instructions,
            "files": {path: _content(path, image.plan) for path in _context_paths(stage)},
        }
        keys[stage.name] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return keys


def _works(stage: Stage) -> bool:
    return any(text.startswith("RUN") for text in stage.instructions)


def _context_paths(stage: Stage) -> list[str]:
    """Every path of the build context that the instructions of a stage read."""
    found: list[str] = []
    for text in stage.instructions:
        found += _BOUND.findall(text)
        copied = _COPIED.match(text)
        if copied:
            words = [word for word in copied[1].split() if not word.startswith("--")]
            found += words[:-1]
    return sorted(set(found))


def _content(path: str, plan: Plan) -> str:
    """What decides about a file or folder of the context, as :func:`trainwright.build.context.write_context` fills it.

    A path that is not known here belongs to this plan alone: nothing is called equal that may not be.
    """
    folder, _, rest = path.partition("/")
    name = rest.partition("/")[0].partition(".")[0]
    # The same for all images of a site: a base is the same to the byte when it is made again from the same archive,
    # what apt reads comes from the site, and the helpers under tools/ are Trainwright's own.
    same = {"base": plan.base.os, "apt": "site", "tools": plan.skeleton}
    if folder in same:
        return same[folder]
    if folder in ("requirements", "wheels"):
        return _digest(_python_packages(name, plan))
    component = plan.component(name)
    if component is not None and folder == "components":
        return component.recipe
    if component is not None and folder == "archives":
        return _digest([source.model_dump(mode="json") for source in component.sources])
    return plan.id


def _python_packages(name: str, plan: Plan) -> object:
    """The pins behind ``requirements/<name>.txt`` and ``wheels/<name>``."""
    if name == "tools":
        return [(package.name, package.version, package.sha256) for package in tools_lock(plan.python).packages]
    chosen = plan.components if name == "constraints" else [c for c in plan.components if c.name == name]
    pins = [(c.name, c.index, s.package, s.file, s.sha256) for c in chosen for s in c.sources if s.package]
    return pins or plan.id


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def as_rows(found: Sequence[Group]) -> list[Mapping[str, object]]:
    """The groups as they stand in the document of ``pipeline --json``."""
    return [
        {"name": group.name, "images": list(group.images), "stages": list(group.stages), "parent": group.parent}
        for group in found
    ]
