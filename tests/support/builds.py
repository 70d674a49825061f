"""Builds of tests: the steps of ``build`` from what was gathered to the record, with an engine and no command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trainwright.build.options import BuildOptions
from trainwright.build.store import BuildRecord
from trainwright.engine.buildkit_log import BuildProgress
from trainwright.engine.engine import Engine
from trainwright.plan.request import make_request
from trainwright.sources.inputs import Inputs
from trainwright.verbs import way
from trainwright.verbs.state import State, known, run

Say = Callable[[str], None]


def _start(inputs: Inputs, engine: Engine, options: BuildOptions, say: Say, **more: Any) -> State:
    # Nothing that a flag asks of a base image.
    request = make_request(framework=inputs.resolved.framework)
    own = {"request": request, "plan": inputs.resolved, "inputs": inputs, "engine": engine, "options": options}
    return State(say=say, site=inputs.site, catalog=inputs.catalog, **own, **more)


def build(inputs: Inputs, engine: Engine, *, options: BuildOptions, say: Say) -> BuildRecord:
    """The record of a build, without a smoke run."""
    steps = way.upto("tag_and_record")[len(way.upto("gather")) :]
    return known(run(steps, _start(inputs, engine, options, say)).record)


def build_stages(
    inputs: Inputs, engine: Engine, *, names: Sequence[str], options: BuildOptions, say: Say
) -> BuildProgress:
    """What a build of stages alone did."""
    steps = way.upto("build")[len(way.upto("gather")) :]
    return known(run(steps, _start(inputs, engine, options, say, stages=tuple(names))).built).progress
