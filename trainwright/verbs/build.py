"""``build``: an image made, probed, tagged; on request smoked and pushed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from pydantic import Field

from trainwright.cli.flags import emit, verb
from trainwright.cli.program import say
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.layout import size, table
from trainwright.verbs.push import push_text
from trainwright.verbs.request import RequestFlags, ask

if TYPE_CHECKING:
    from trainwright.build.build import BuildOptions
    from trainwright.build.store import BuildRecord
    from trainwright.catalog.catalog import Catalog
    from trainwright.plan.plan import Plan
    from trainwright.push.references import PushTarget
    from trainwright.site.site import Site
    from trainwright.verbs.documents import BuildDocument, StagesDocument


class BuildFlags(RequestFlags):
    """The flags of ``build``."""

    tags: tuple[str, ...] = Field(default=(), alias="tag", description="a further tag for the image (may be repeated)")
    progress: str = Field(default="auto", description="auto, live, plain, json or none")
    no_cache: bool = Field(default=False, description="build every step anew")
    fresh_base: bool = Field(default=False, description="make the Debian base anew, from today's packages")
    locked: bool = Field(
        default=False, description="use only what the lock of the plan names; refuse to build without a whole one"
    )
    skip_source_check: bool = Field(
        default=False, description="build without asking first whether every source answers"
    )
    smoke: bool = Field(default=False, description="run the smoke tests, too, unless this image has passed them")
    builder: str | None = Field(
        default=None, description="the buildx builder to build with (default: the engine's own)"
    )
    cache: tuple[str, ...] = Field(
        default=(), description="a registry cache, read and written; further ones are only read (may be repeated)"
    )
    registry: str | None = Field(
        default=None,
        description="the builder pushes the image to this repository, without a tag; it is pulled and proven here",
    )
    stages: str | None = Field(
        default=None, description="build only these stages of the Dockerfile, for the builder's cache: no image, no tag"
    )
    push: str | None = Field(
        default=None,
        description="push the image to this ECR repository, once it has passed its smoke tests "
        "(more flags: ./invoke push)",
    )


@verb
def build(flags: BuildFlags) -> None:
    """Build the image through BuildKit, probe it against the plan, tag it."""
    asked = ask(flags, to_build=True)
    plan, catalog, site = asked.plan, asked.catalog, asked.site
    site = site.model_copy(update={"builder": flags.builder}) if flags.builder else site
    options = build_options(flags)
    if flags.stages is not None:
        from trainwright.verbs.documents import StagesDocument

        if flags.tags or flags.smoke or flags.registry or flags.push:
            remedy = "Leave --tag, --smoke, --registry and --push out, or build all of it."
            raise RequestError("--stages makes no image", remedy=remedy)
        stages = build_stages(
            plan, catalog, site, options, names=flags.stages, flags=asked.flags, locked=flags.locked, say=say
        )
        emit(StagesDocument.model_validate(stages), stages_text, as_json=flags.json_)
        return
    target = _push_target(flags.push, site)
    smoke = flags.smoke or target is not None
    document = build_image(plan, catalog, site, options, flags=asked.flags, locked=flags.locked, smoke=smoke, say=say)
    if target is not None:
        document = _pushed(document, target, site, flags.progress)
    emit(document, build_text, as_json=flags.json_)


def _push_target(repository: str | None, site: Site) -> PushTarget | None:
    """Where ``--push`` leads to: known before a build begins, as a mistake in it would come out at its end."""
    if repository is None:
        return None
    from trainwright.push.references import find_target

    return find_target(repository, (), None, site.aws)


def _pushed(document: BuildDocument, target: PushTarget, site: Site, progress: str) -> BuildDocument:
    """Push what was just built; its document with that of the push."""
    from trainwright.push.options import PushOptions
    from trainwright.push.push import push_images

    done = push_images([document.image_id], target, site, PushOptions(progress=progress), say=say)
    return document.model_copy(update={"push": done})


def build_options(flags: BuildFlags) -> BuildOptions:
    """The options of a build from the words of the command line.

    Raises:
        RequestError: a tag, the kind of progress, a cache or the registry is invalid.
    """
    from trainwright.build import build as building
    from trainwright.build.build import BuildOptions
    from trainwright.engine.build_display import Mode
    from trainwright.engine.builders import check_registry
    from trainwright.engine.cache import check_reference

    if flags.progress not in get_args(Mode):
        raise RequestError(f"--progress {flags.progress}: no such kind. {did_you_mean(flags.progress, get_args(Mode))}")
    for tag in flags.tags:
        if not building.TAG.fullmatch(tag):
            raise RequestError(f"--tag {tag}: not an image name", remedy="For example: --tag team/trainer:nightly")
    mode: Any = flags.progress
    return BuildOptions(
        tags=flags.tags,
        progress=mode,
        no_cache=flags.no_cache,
        fresh_base=flags.fresh_base,
        skip_source_check=flags.skip_source_check,
        cache=tuple(check_reference(reference) for reference in flags.cache),
        registry=check_registry(flags.registry) if flags.registry is not None else None,
    )


def build_image(
    plan: Plan,
    catalog: Catalog,
    site: Site,
    options: BuildOptions,
    *,
    flags: str,
    locked: bool,
    smoke: bool,
    say: Callable[[str], None],
) -> BuildDocument:
    """Build and prove an image.

    Args:
        flags: the request as the command line spells it.
        locked: use nothing that the plan's lock does not name.
        smoke: run the smoke tests, too.

    Raises:
        Failure: as :func:`trainwright.build.build.build`, ``ProofFailed`` where a smoke test fails, and
            ``RequestError`` where ``locked`` is asked for and there is no whole lock.
    """
    from trainwright.build import build as building
    from trainwright.build.smoke import smoke_record
    from trainwright.engine.engine import connect
    from trainwright.engine.setup import ensure_tool
    from trainwright.plan.plan_lock import lock_path
    from trainwright.sources.fetch import first_use, unpublished
    from trainwright.sources.gather import gather_locked
    from trainwright.sources.reachability import check_sources

    inputs = gather_locked(plan, catalog, site, flags, strict=locked)
    if inputs.lock is not None:
        say(f"with the lock {lock_path(plan, site)}")
    for notice in plan.notices:
        say(f"note: {notice}")
    engine = connect(say=say)
    if plan.base.image is None and (inputs.lock is None or inputs.lock.base is None):
        ensure_tool("mmdebstrap", say=say)
    if not options.skip_source_check and unpublished(inputs):
        # Before gigabytes are fetched for their checksums: is everything else to be had as well?
        check_sources(inputs, engine)
        options = replace(options, skip_source_check=True)
    inputs = first_use(inputs, say=say)
    record = building.build(inputs, engine, options=options, say=say)
    if smoke and not (record.smoke and record.smoke["failed"] == 0):
        record, _ = smoke_record(record, record.tags[0], engine, say=say)
    return _document(record)


def build_stages(
    plan: Plan,
    catalog: Catalog,
    site: Site,
    options: BuildOptions,
    *,
    names: str,
    flags: str,
    locked: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Build some stages of a plan for the builder's cache; the document of ``build --stages --json``.

    Args:
        names: of the stages, separated by commas.
        flags: the request as the command line spells it.
        locked: use nothing that the plan's lock does not name.

    Raises:
        Failure: as :func:`trainwright.build.build.build_stages`.
    """
    from trainwright.build import build as building
    from trainwright.engine.engine import connect
    from trainwright.engine.setup import ensure_tool
    from trainwright.sources.fetch import first_use
    from trainwright.sources.gather import gather_locked

    started = time.monotonic()
    asked = tuple(dict.fromkeys(filter(None, (name.strip() for name in names.split(",")))))
    if not asked:
        raise RequestError(f"--stages {names!r}: no stage is named", remedy="For example: --stages tools,toolchain")
    inputs = gather_locked(plan, catalog, site, flags, strict=locked)
    engine = connect(say=say)
    if plan.base.image is None and (inputs.lock is None or inputs.lock.base is None):
        ensure_tool("mmdebstrap", say=say)
    inputs = first_use(inputs, say=say)
    progress = building.build_stages(inputs, engine, names=asked, options=options, say=say)
    own = [v for v in progress.steps if v.component is not None and not v.text.startswith("FROM ")]
    return {
        "schema": "trainwright/stages/1",
        "plan": plan.id,
        "stages": list(asked),
        "steps": len(own),
        "cached_steps": sum(vertex.cached for vertex in own),
        "seconds": round(time.monotonic() - started, 1),
    }


def _document(record: BuildRecord) -> BuildDocument:
    from trainwright.prove.smoke import SmokeCounts
    from trainwright.verbs.documents import BuildDocument

    smoke = record.smoke
    return BuildDocument(
        schema="trainwright/build/1",
        plan=record.plan.id,
        image_id=record.image_id,
        tags=record.tags,
        pushed=record.pushed,
        size_bytes=record.size_bytes,
        seconds=record.seconds,
        cached=record.cached,
        components=record.ledger,
        probe=record.probe,
        smoke=None if smoke is None else SmokeCounts(**{key: smoke[key] for key in SmokeCounts.model_fields}),
        record=str(record.folder / "record.json"),
        push=None,
    )


def build_text(document: BuildDocument) -> str:
    """The ledger, the image, what to do next; what was pushed."""
    rows = [("component", "seconds", "bytes", "")]
    rows += [
        (row.name, f"{row.seconds:.1f}", size(row.bytes), "cached" if row.cached else "") for row in document.components
    ]
    smoke = document.smoke
    proof = "probe passed" + (f", {smoke.passed} smoke tests passed" if smoke and not smoke.failed else "")
    lines = [
        table(rows),
        "",
        f"image   {document.image_id[7:19]}  {size(document.size_bytes)} in {document.seconds:.0f} s, {proof}",
        *(f"tag     {tag}" for tag in document.tags),
        *([f"pushed  {document.pushed}"] if document.pushed else []),
        f"record  {document.record}",
    ]
    if smoke is None:
        lines.append(f"next    ./invoke smoke --image {document.tags[0]}")
    if document.push is not None:
        lines += ["", push_text(document.push)]
    return "\n".join(lines)


def stages_text(document: StagesDocument) -> str:
    """What was built of a Dockerfile's stages, and how much of it was cached."""
    done = f"{document.steps} steps, {document.cached_steps} of them from the cache, {document.seconds:.0f} s"
    return f"stages  {', '.join(document.stages)}: {done}"
