"""The build stages that several image lines share, to the byte.

Two stages are the same if their instructions, what they start from, every stage that they copy files from, and every
file of the build context that they read are the same. BuildKit's cache uses the same criteria, so the second of two
builds takes such a stage from the cache of the first.

A *group* is a set of image lines and the stages that all of them share. Groups form a tree: if two overlap, one
contains the other, so each line reads the cache of one group, and each group that of its parent.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.catalog.tools import tools_lock
from trainwright.plan.dockerfile import LAYER, OWN_STAGES, Stage, stages
from trainwright.plan.identity import tool_files
from trainwright.plan.plan import Plan

_ARGUMENT = re.compile(r"^ARG\s+(\w+)=(\S+)", re.MULTILINE)
_BOUND = re.compile(r"--mount=type=bind,source=([^\s,]+)")  # from= would stand before source=
_COPIED = re.compile(r"^(?:COPY|ADD)\s+(?!--from=)(.+)$", re.DOTALL)


@dataclass(frozen=True)
class SharedImage:
    """An image of a pipeline: its name, plan and Dockerfile."""

    name: str
    plan: Plan
    dockerfile: str


@dataclass(frozen=True)
class Group:
    """Images that share stages.

    Attributes:
        name: of the group, the same in every pipeline: it follows from the keys of the stages.
        images: names of the images, in the order of the pipeline; the stages are built from the first one.
        stages: the shared stages, in the order of the Dockerfile, including those of ``parent``.
        parent: name of the group that contains this one.
    """

    name: str
    images: tuple[str, ...]
    stages: tuple[str, ...]
    parent: str | None = None


def groups(images: Sequence[SharedImage]) -> list[Group]:
    """The groups of a pipeline, outer ones first.

    A group must save work: it has a stage with a RUN that its parent does not have. If two groups overlap and neither
    contains the other, the larger one is kept, and the shared stages of the other are built by each of its images.
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
            # Two pipelines share a cache: equal stages have one name in it, and no others have it.
            name = f"shared_{_digest([keys[first.name][stage] for stage in common])[:12]}"
            kept.append(Group(name, names, common, parent.name if parent else None))
    return kept


def group_of(image: str, found: Sequence[Group]) -> Group | None:
    """The innermost group of an image, whose cache has most of its stages."""
    return next((group for group in reversed(found) if image in group.images), None)


def stage_keys(image: SharedImage) -> dict[str, str]:
    """A digest for each stage that images can share, in the order of the Dockerfile; equal for equal stages."""
    arguments = dict(_ARGUMENT.findall(image.dockerfile.partition("\nFROM ")[0]))
    keys: dict[str, str] = {}
    for stage in stages(image.dockerfile):
        # To unpack wheels takes no longer than to fetch what was unpacked from a cache.
        if stage.name in OWN_STAGES or stage.name.endswith(LAYER):
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
    """What determines a file or folder of the context, as :func:`trainwright.build.context.write_context` fills it.

    A path that is unknown here counts as specific to the plan, so that nothing different counts as equal.
    """
    folder, _, rest = path.partition("/")
    name = rest.partition("/")[0].partition(".")[0]
    # The same for all images of a site: a base is the same to the byte when it is made again from the same archive,
    # what apt reads comes from the site, and the helpers under tools/ are Trainwright's own.
    same = {"base": plan.base.os, "apt": "site", "tools": _digest(tool_files())}
    if folder in same:
        return same[folder]
    if folder in ("requirements", "wheels"):
        return _digest(_python_packages(name, plan))
    component = plan.component(name)
    if component is not None and folder == "components":
        return _digest(component.files)
    if component is not None and folder == "archives":
        return _digest([source.as_json() for source in component.sources])
    return plan.id


def _python_packages(name: str, plan: Plan) -> object:
    """The pins behind ``requirements/<name>.txt`` and ``wheels/<name>``."""
    if name == "tools":
        return [
            (package.name, package.version, package.sha256)
            for package in tools_lock(plan.python, plan.platform).packages
        ]
    chosen = plan.components if name == "constraints" else [c for c in plan.components if c.name == name]
    pins = [(c.name, c.index, s.package, s.file, s.sha256) for c in chosen for s in c.sources if s.package]
    return pins or plan.id


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
