"""Trainwright for Python programs: a plan, a Dockerfile, a build, a smoke run and a report, as typed records.

Nothing is printed. Every error is a :class:`Failure` with a message, a remedy and the exit code that the command line
would end with. As for the commands, the working folder's ``trainwright.toml`` is the site, ``TRAINWRIGHT_CATALOG``
names a catalog of your own, and records are kept in ``.trainwright/``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from trainwright.build.options import BuildOptions
from trainwright.build.store import BuildRecord
from trainwright.core.errors import Conflict, Failure
from trainwright.core.records import Record
from trainwright.core.say import Say
from trainwright.plan.plan import Plan
from trainwright.plan.request import Request, make_request
from trainwright.prove.smoke import SmokeDocument
from trainwright.report.documents import ReportDocument
from trainwright.verbs.state import State, known, run, start
from trainwright.verbs.way import STEPS, upto

__all__ = ["BuildOptions", "BuildRecord", "Conflict", "Failure", "Plan", "Rendered", "ReportDocument", "Request"]
__all__ += ["SmokeDocument", "build", "plan", "render", "report", "request", "smoke"]


class Rendered(Record):
    """A Dockerfile, and the folder with its build context if one was written."""

    plan: Plan
    dockerfile: str
    folder: Path | None


def _quiet(_: str) -> None:
    """Progress that nobody asked for."""


def request(
    short: str | None = None,
    *,
    framework: str | None = None,
    cuda: str | None = None,
    version: str | None = None,
    python: str | None = None,
    base: str | None = None,
    for_: str | None = None,
    platform: str | None = None,
    with_: Iterable[str] = (),
    without: Iterable[str] = (),
    set_: Mapping[str, str] | None = None,
    for_gpus: Iterable[str] = (),
    requirements: Path | None = None,
    apt: Iterable[str] = (),
    run: Path | None = None,
    code: Path | None = None,
    entry_point: str | None = None,
    allow_unproven: bool = False,
) -> Request:
    """A request that needs more than one word. Each argument is the flag of its name (``./invoke help plan``).

    Args:
        short: as much of it as one word says: ``pytorch:2.6.0-cu124``.
        for_: where its jobs run: ``sagemaker`` (the default), ``hyperpod`` or ``ec2``.
        platform: the processor of its hosts: ``linux/amd64`` (the default) or ``linux/arm64``.
        with_: components to add; ``without``: components to leave out.
        set_: component and version, or component and provider.
        for_gpus: whose machine code is kept: compute capabilities, names of GPUs or instance types (default: all).
        requirements: the file of ``--with-requirements``.
        apt: packages of the distribution; ``run``: the script of ``--with-run``.

    Raises:
        Failure: a value is invalid, or a file does not exist.
    """
    return make_request(
        short=short,
        framework=framework,
        cuda=cuda,
        version=version,
        python=python,
        base=base,
        for_=for_,
        platform=platform,
        with_=",".join(with_) or None,
        without=",".join(without) or None,
        set_=tuple(f"{name}={value}" for name, value in (set_ or {}).items()),
        for_gpus=",".join(for_gpus) or None,
        requirements=None if requirements is None else str(requirements),
        apt=tuple(apt),
        run=None if run is None else str(run),
        code=None if code is None else str(code),
        entry_point=entry_point,
        allow_unproven=allow_unproven,
    )


def plan(request: str | Request, *, site: Path | None = None) -> Plan:
    """What a request resolves to.

    Args:
        request: in one word (``pytorch:cu124``), or made by :func:`request`.
        site: this machine's settings (default: ``trainwright.toml`` of the working folder, if it exists).

    Raises:
        Conflict: nothing fits the request; ``details`` has the reasons and offers.
        Failure: the request, the site or the catalog is invalid.
    """
    return known(run(upto("resolve"), _start(request, site, _quiet, to_build=False)).plan)


def render(
    request: str | Request, *, folder: Path | None = None, site: Path | None = None, say: Say = _quiet
) -> Rendered:
    """The Dockerfile of a request.

    Args:
        request: as of :func:`plan`.
        folder: takes the build context (created if missing); the Dockerfile alone is made without one.
        site: as of :func:`plan`.
        say: takes a line about each long step.

    Raises:
        Failure: as of :func:`plan`; the folder has other content, or what the context needs cannot be fetched.
    """
    from trainwright.build.context import write_context
    from trainwright.core.owned import claim
    from trainwright.plan.rendered import render_dockerfile
    from trainwright.sources.fetch import fetch_base

    inputs = known(run(upto("gather"), _start(request, site, say)).inputs)
    if folder is not None:
        folder = folder.absolute()
        claim(folder, "context", str(folder))  # before the base is made
        write_context(fetch_base(inputs, say=say), folder, say=say, named=str(folder))
    return Rendered(plan=inputs.plan, dockerfile=render_dockerfile(inputs.plan, inputs.catalog), folder=folder)


def build(
    request: str | Request,
    *,
    options: BuildOptions | None = None,
    locked: bool = False,
    smoke: bool = False,
    site: Path | None = None,
    say: Say = _quiet,
) -> BuildRecord:
    """Build an image, check its contents against the plan, tag it.

    The engine has to run already; none is installed or started. Where the base is made here, ``mmdebstrap`` is
    installed if it is missing and ``TRAINWRIGHT_ENGINE_SETUP`` allows it.

    Args:
        request: as of :func:`plan`.
        options: how to build; its ``progress`` is not used.
        locked: use only what the lock of the plan names.
        smoke: run the smoke tests, too, unless this image has passed them.
        site: as of :func:`plan`.
        say: takes a line about each long step.

    Raises:
        Failure: as of :func:`plan`; no engine answers, a source is unreachable, a step failed, the image is not what
            the plan says, or a smoke test failed.
    """
    from trainwright.engine.engine import connect

    options = (options or BuildOptions()).replace(progress="none")
    gathered = run(upto("gather"), _start(request, site, say, options=options, locked=locked, smoke=smoke))
    engine = connect(setup=False, say=say)
    return known(run(STEPS[len(upto("gather")) :], replace(gathered, engine=engine)).record)


def smoke(image: str, *, select: str | None = None, say: Say = _quiet) -> SmokeDocument:
    """Run the tests of every component inside an image that was built here.

    Args:
        image: tag or id.
        select: only checks whose name contains this word; such a run is not recorded as proof.
        say: takes a line about each long step.

    Raises:
        Failure: no engine answers, no such image was built here, or a check failed.
    """
    from trainwright.build.smoke import smoke_record
    from trainwright.build.store import built_record
    from trainwright.engine.engine import connect

    engine = connect(setup=False, say=say)
    return smoke_record(built_record(image, engine), image, engine, select=select, say=say, bar=False)[1]


def report(image: str, *, against: str | None = None, files: bool = False, say: Say = _quiet) -> ReportDocument:
    """What is known of an image that was built here; no engine is asked, unless files are compared.

    Args:
        image: tag or id.
        against: another image, a request, an image line or a lock to compare it with.
        files: compare every file of the two images as well.
        say: takes a line about each long step.

    Raises:
        Failure: no such image was built here, or there is nothing of the name of the other.
    """
    from trainwright.report.image import report_on

    return report_on(image, against, files=files, say=say)


def _start(request: str | Request, site: Path | None, say: Say, **asked: object) -> State:
    return start(make_request(short=request) if isinstance(request, str) else request, site, say, **asked)
