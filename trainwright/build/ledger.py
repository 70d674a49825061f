"""Seconds and bytes of a build by component, layer and step, from the builder's progress and the image's history."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from trainwright.core.records import Field, Record
from trainwright.engine.buildkit_log import Vertex
from trainwright.plan.dockerfile import IMAGE_STAGES, LayerStep, steps
from trainwright.plan.plan import Plan

_NOT_LAYERS = re.compile(r"(/bin/sh -c #\(nop\) +)?(ENV|LABEL|ARG|CMD|ENTRYPOINT|EXPOSE|USER|SHELL|STOPSIGNAL)\b")


class LedgerRow(Record):
    """What one component cost: wall seconds of its steps, bytes of its layers in the image."""

    name: str
    seconds: float
    bytes: int
    cached: bool


class BuiltLayer(Record):
    """A layer of an image. ``bytes`` are unpacked, as the engine counts them."""

    digest: str = Field(description="of its content, not compressed: the diff id")
    component: str
    bytes: int
    step: str = Field(description="the instruction that made it")


class TimedStep(Record):
    """A step of a build. ``start`` is in seconds from the first step."""

    stage: str
    component: str
    text: str
    start: float
    seconds: float
    cached: bool


class Timeline(Record):
    """When the steps of a build ran: those that run side by side overlap."""

    built_at: str
    steps: tuple[TimedStep, ...]


def owner_of(vertex: Vertex, all_steps: Sequence[LayerStep]) -> str | None:
    """The component that a vertex of the build belongs to; nothing for the builder's own work.

    BuildKit numbers a stage's steps from 1 and counts a FROM of a registry image as one, so the numbers are read from
    the end.
    """
    if vertex.stage is None or vertex.step is None or vertex.total is None:
        return None
    own = [step for step in all_steps if step.stage == vertex.stage]
    place = vertex.step - 1 - (vertex.total - len(own))
    if 0 <= place < len(own):
        return own[place].component
    return "base" if vertex.stage == "base" else None


def make_ledger(
    plan: Plan, dockerfile: str, vertices: Iterable[Vertex], history: Sequence[tuple[str, int]]
) -> list[LedgerRow]:
    """A row per component and per shared stage, in the order of the layers.

    Args:
        plan: which components there are.
        dockerfile: the text that was built.
        vertices: the builder's steps with their times and the component each belongs to.
        history: (created by, bytes) of the image's layers, newest first.
    """
    all_steps, ran = steps(dockerfile), list(vertices)
    seconds: dict[str, float] = {}
    cached: dict[str, bool] = {}
    for vertex in ran:
        owner = vertex.component
        if owner is not None:
            seconds[owner] = seconds.get(owner, 0.0) + (vertex.seconds or 0.0)
            cached[owner] = cached.get(owner, True) and vertex.cached
    sizes = _bytes(all_steps, history)
    names = ["base", "os", "tools", "toolchain", "wheels", *(c.name for c in plan.components), "bytecode"]
    return [
        LedgerRow(
            name=name,
            seconds=round(seconds.get(name, 0.0), 1),
            bytes=sizes.get(name, 0),
            # A builder that has the whole image reports no step at all.
            cached=cached.get(name, not ran),
        )
        for name in names
        if name in seconds or name in sizes
    ]


def layers_of(dockerfile: str, history: Sequence[tuple[str, int]], digests: Sequence[str]) -> list[BuiltLayer]:
    """The layers of an image, from below.

    Args:
        dockerfile: the text that was built.
        history: (created by, bytes) of the image's layers, newest first.
        digests: of the layers, from below; an image can have a step in its history that made no layer.
    """
    found = _owned(steps(dockerfile), history)
    surplus = len(found) - len(digests)
    for place in [i for i, (_, text, size) in enumerate(found) if text.startswith("WORKDIR") and not size][:surplus]:
        found[place] = ("", "", 0)
    held = [each for each in found if each[0]]
    return [
        BuiltLayer(digest=digest, component=owner, bytes=size, step=text)
        for digest, (owner, text, size) in zip(digests, reversed(held[: len(digests)]), strict=False)
    ]


def timeline_of(ran: Iterable[Vertex], built_at: str) -> Timeline:
    """When the steps of a build ran. The first one starts at 0."""
    timed = [vertex for vertex in ran if vertex.started is not None and vertex.seconds is not None]
    began = min((vertex.started or 0.0 for vertex in timed), default=0.0)
    return Timeline(
        built_at=built_at,
        steps=tuple(
            TimedStep(
                stage=vertex.stage or "",
                component=vertex.component or "",
                text=vertex.text,
                start=round((vertex.started or 0.0) - began, 2),
                seconds=round(vertex.seconds or 0.0, 2),
                cached=vertex.cached,
            )
            for vertex in timed
        ),
    )


def _owned(all_steps: Sequence[LayerStep], history: Sequence[tuple[str, int]]) -> list[tuple[str, str, int]]:
    """(component, step, bytes) of each layer, newest first."""
    chain = [step.component for step in reversed(all_steps) if step.stage in IMAGE_STAGES]
    layers = [(text, size) for text, size in history if not _NOT_LAYERS.match(text)]
    # What lies below our own steps came with a base image from a registry.
    owners = [*chain, *["base"] * (len(layers) - len(chain))]
    return [(owner, text, size) for owner, (text, size) in zip(owners, layers, strict=False)]


def _bytes(all_steps: Sequence[LayerStep], history: Sequence[tuple[str, int]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for owner, _, size in _owned(all_steps, history):
        sizes[owner] = sizes.get(owner, 0) + size
    return sizes
