"""Seconds and bytes per component of a build, from the builder's progress and the image's history."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from trainwright.core.records import Record
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


def _bytes(all_steps: Sequence[LayerStep], history: Sequence[tuple[str, int]]) -> dict[str, int]:
    chain = [step for step in all_steps if step.stage in IMAGE_STAGES]
    layers = [(text, size) for text, size in history if not _NOT_LAYERS.match(text)]
    sizes: dict[str, int] = {}
    for step, (_, size) in zip(reversed(chain), layers, strict=False):
        sizes[step.component] = sizes.get(step.component, 0) + size
    # What lies below our own steps came with a base image from a registry.
    below = sum(size for _, size in layers[len(chain) :])
    if below:
        sizes["base"] = sizes.get("base", 0) + below
    return sizes
