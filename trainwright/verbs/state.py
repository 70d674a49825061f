"""What is known of one image on its way from a request to its registry, and what runs steps over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from concurrent.futures import Future

    from trainwright.build.build import Built
    from trainwright.build.options import BuildOptions
    from trainwright.build.proved import ProofRun
    from trainwright.build.store import BuildRecord
    from trainwright.build.wheel_cache import WheelCache
    from trainwright.catalog.budget import Budget
    from trainwright.catalog.catalog import Catalog
    from trainwright.core.errors import EngineError
    from trainwright.core.say import Say
    from trainwright.engine.builders import Builder
    from trainwright.engine.engine import Engine
    from trainwright.plan.plan import Plan
    from trainwright.plan.request import Request
    from trainwright.push.documents import PushDocument
    from trainwright.push.references import PushTarget
    from trainwright.site.site import Site
    from trainwright.sources.inputs import Inputs

T = TypeVar("T")


class State(Struct, frozen=True):
    """What is known of one image on its way; the first block is what was asked for, the rest what steps found.

    Attributes:
        say: progress callback.
        flags: the request as the command line spells it.
        to_build: an unproven plan gets its lock made where it has none.
        locked: use nothing that the plan's lock does not name.
        stages: build these alone, for the builder's cache.
        smoke: run the smoke tests, too.
        target: where the image is pushed; nowhere without it.
        leave_tags: push without moving tags.
        soci: push a SOCI index, too.
        budget: the size budget of the project, in place of the line's.
        looked: the answer of the engine, if it was asked for ahead.
        arguments: of the build: what its base images are called in the engine.
        folder: the build context.
        wheels: that were compiled before, and that are kept for later builds.
        base: what was found in the image that is extended.
        proven: what the builder found in the image, where it proves what it builds.
        history: (created by, bytes) of the steps of the built image, newest first.
        held: what is let go of when the context is built, or at the end.
    """

    say: Say
    site: Site
    catalog: Catalog
    request: Request | None = None
    flags: str = ""
    to_build: bool = True
    options: BuildOptions | None = None
    locked: bool = False
    stages: tuple[str, ...] = ()
    smoke: bool = False
    target: PushTarget | None = None
    leave_tags: bool = False
    soci: bool = False
    budget: Budget | None = None
    looked: Future[Engine | EngineError] | None = None

    plan: Plan | None = None
    inputs: Inputs | None = None
    started: float = 0.0
    engine: Engine | None = None
    builder: Builder | None = None
    arguments: dict[str, str] = {}
    folder: Path | None = None
    wheels: WheelCache | None = None
    dockerfile: str = ""
    base: dict[str, Any] = {}
    proven: ProofRun | None = None
    built: Built | None = None
    history: tuple[tuple[str, int], ...] = ()
    probe: dict[str, Any] = {}
    record: BuildRecord | None = None
    pushed: PushDocument | None = None
    held: ExitStack = msgspec.field(default_factory=ExitStack)


Step = Callable[[State], State]


def run(steps: Iterable[Step], state: State) -> State:
    """The state after these steps.

    Raises:
        Failure: of the step that failed; none after it has run.
    """
    with ExitStack() as held:
        state = replace(state, held=held)
        for step in steps:
            state = step(state)
    return state


def known(value: T | None) -> T:
    """What an earlier step found."""
    assert value is not None, "a step that finds it comes before"
    return value


def start(request: Request, site: Path | None, say: Say, **asked: Any) -> State:
    """The first state: of a request, with what is read of this machine and the catalog.

    Args:
        request: what is asked for.
        site: this machine's settings (default: ``trainwright.toml`` of the working folder, if it exists).
        say: progress callback.
        asked: further fields of the state: what is to be done.

    Raises:
        RequestError: the site or the user's catalog is invalid.
    """
    from trainwright.catalog.catalog import open_catalog
    from trainwright.site.site import load_site

    first = State(say=say, site=load_site(site), catalog=open_catalog(), request=request, flags=request.flags())
    return replace(first, **asked)
