"""``build``: builds, probes and tags an image; on request runs its smoke tests and pushes it."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from trainwright.cli.flags import emit, verb
from trainwright.core.errors import RequestError
from trainwright.core.layout import duration, size, table
from trainwright.verbs.build_elsewhere import build_elsewhere, check_place
from trainwright.verbs.build_flags import JOBS, BuildFlags
from trainwright.verbs.build_images import build_images
from trainwright.verbs.push import push_text
from trainwright.verbs.request import begin
from trainwright.verbs.state import known, run
from trainwright.verbs.way import STEPS, upto

if TYPE_CHECKING:
    from concurrent.futures import Future

    from trainwright.build.store import BuildRecord
    from trainwright.core.errors import EngineError
    from trainwright.engine.engine import Engine
    from trainwright.push.documents import PushDocument
    from trainwright.verbs.documents import BuildDocument, DryRunDocument, StagesDocument, StayDocument
    from trainwright.verbs.state import State


_SLOW = 10.0  # seconds


@verb
def build(flags: BuildFlags) -> None:
    """Build an image, check its contents against the plan, tag it."""
    if flags.on is not None:
        build_elsewhere(flags)
        return
    check_place(flags)
    if flags.dry_run and (other := next((name for name in ("images", "resume", "stages") if getattr(flags, name)), "")):
        raise RequestError(f"--dry-run is for one whole image, and --{other} is not", remedy=f"Leave --{other} out.")
    if flags.leave_tags and flags.push is None and flags.resume is None:
        raise RequestError("--leave-tags: only with --push", remedy="Without --push no tag in a registry moves.")
    if flags.stay and (flags.push or flags.tags):
        flag = "--push" if flags.push else "--tag"
        raise RequestError(f"{flag}: not with --stay", remedy="A job in the image gives it its fixed tag.")
    if flags.images is not None or flags.resume is not None:
        build_images(flags)
        return
    if flags.jobs != JOBS or flags.keep_going or flags.stale:
        raise RequestError(
            f"--{'keep-going' if flags.keep_going else 'stale' if flags.stale else 'jobs'}: only with --images"
            f"{'' if flags.stale else ' or --resume'}",
            remedy="For example: ./invoke build --images 'pytorch-*-debian' --jobs 4",
        )
    from trainwright.engine.engine import looking_ahead

    with looking_ahead() as asked:
        _build_one(flags, asked)


def _build_one(flags: BuildFlags, asked: Future[Engine | EngineError]) -> None:
    state = begin(flags, asks="" if flags.json_ else "build", options=flags, locked=flags.locked, smoke=flags.smoke)
    state = replace(state, looked=asked)
    if flags.builder:
        if "," in flags.builder:
            raise RequestError(
                f"--builder {flags.builder}: one image has one builder", remedy="Several are for --images."
            )
        state = replace(state, site=state.site.replace(builder=flags.builder))
    if flags.stages is not None:
        if flags.tags or flags.smoke or flags.registry or flags.push:
            remedy = "Leave --tag, --smoke, --registry and --push out, or build all of it."
            raise RequestError("--stages makes no image", remedy=remedy)
        built = run(upto("build"), replace(state, stages=stage_names(flags.stages)))
        emit(stages_document(built), stages_text, as_json=flags.json_)
        return
    state = replace(state, target=flags.target(state.site), leave_tags=flags.leave_tags)
    if flags.dry_run:
        emit(dry_run_document(run(upto("check"), state)), dry_run_text, as_json=flags.json_)
        return
    if flags.stay:
        emit(stay_document(run(upto("build"), replace(state, smoke=True))), stay_text, as_json=flags.json_)
        return
    done = run(STEPS, state)
    emit(build_document(known(done.record), done.pushed), build_text, as_json=flags.json_)


def stage_names(text: str) -> tuple[str, ...]:
    """The stages of ``--stages``, separated by commas.

    Raises:
        RequestError: none is named.
    """
    names = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    if not names:
        raise RequestError(f"--stages {text!r}: no stage is named", remedy="For example: --stages tools,toolchain")
    return names


def dry_run_document(state: State) -> DryRunDocument:
    """The document of ``build --dry-run --json``, of a state that is checked."""
    from trainwright.verbs.documents import DryRunDocument

    plan, engine, inputs = known(state.plan), known(state.engine), [*known(state.inputs)]
    away = [each for each in inputs if each.path is None]
    target = state.target
    return DryRunDocument(
        schema="trainwright/dry-run/1",
        plan=plan.id,
        tags=(*plan.tags, *known(state.options).tags),
        engine=f"Docker {engine.server_version} at {engine.endpoint}",
        builder=known(state.builder).name or known(state.builder).driver,
        inputs=len(inputs),
        here=len(inputs) - len(away),
        download_bytes=sum(each.source.size or 0 for each in away),
        push=() if target is None else tuple(f"{target.repository} ({region})" for region in target.regions),
    )


def dry_run_text(document: DryRunDocument) -> str:
    """What a build would make, from what, and where it would go."""
    lines = [
        f"plan    {document.plan}",
        *(f"tag     {tag}" for tag in document.tags),
        f"engine  {document.engine}, builder {document.builder}",
        f"inputs  {document.inputs} files: {document.here} are here, {document.inputs - document.here} are fetched "
        f"({size(document.download_bytes)})",
        *(f"push    {where}" for where in document.push),
        "next    the same command without --dry-run; ./invoke render prints the Dockerfile",
    ]
    return "\n".join(lines)


def stay_document(state: State) -> StayDocument:
    """The document of ``build --stay --json``; what the builder was asked is kept with what it found."""
    from trainwright.build.proved import keep_asked
    from trainwright.push.references import parse_host
    from trainwright.verbs.documents import StayDocument

    plan, proof, seconds = known(state.plan), known(state.proven).proof, time.monotonic() - state.started
    builder, image = known(state.builder), known(known(state.built).pushed)
    folder, in_ecr = keep_asked(plan, known(state.folder), builder, seconds), parse_host(image.partition("/")[0])
    return StayDocument(
        schema="trainwright/stay/1",
        plan=plan.id,
        image=image,
        builder=builder.name,
        results=str(folder),
        passed=sum(row.outcome == "passed" for row in proof.rows),
        left=proof.left,
        seconds=round(seconds, 1),
        next=f"./invoke smoke --image {image} --attach --import {shlex.quote(str(folder))}" if in_ecr else "",
    )


def stay_text(document: StayDocument) -> str:
    """Where the image is, what its builder found, and what runs the rest."""
    return "\n".join(
        [
            f"image   {document.image}",
            f"proof   {document.passed} tests passed at {document.builder}, {len(document.left)} are left",
            f"results {document.results}",
            *([f"next    {document.next}"] if document.next else []),
        ]
    )


def stages_document(state: State) -> StagesDocument:
    """The document of ``build --stages --json``."""
    from trainwright.build.build import own_steps
    from trainwright.verbs.documents import StagesDocument

    own = own_steps(known(state.built).progress)
    return StagesDocument(
        schema="trainwright/stages/1",
        plan=known(state.plan).id,
        stages=state.stages,
        steps=len(own),
        cached_steps=sum(vertex.cached for vertex in own),
        seconds=round(time.monotonic() - state.started, 1),
    )


def build_document(record: BuildRecord, pushed: PushDocument | None) -> BuildDocument:
    """The document of ``build --json``."""
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
        smoke=None if smoke is None else SmokeCounts(**{key: smoke[key] for key in SmokeCounts.__struct_fields__}),
        record=str(record.folder / "record.json"),
        push=pushed,
    )


def build_text(document: BuildDocument) -> str:
    """The ledger, the image, what to do next; what was pushed."""
    from trainwright.prove.probe import copies_note

    rows = [("component", "seconds", "bytes", "")]
    rows += [
        (row.name, f"{row.seconds:.1f}", size(row.bytes), "cached" if row.cached else "") for row in document.components
    ]
    smoke = document.smoke
    proof = "probe passed"
    if smoke and not smoke.failed:
        proof += f", {smoke.passed} smoke tests passed" + (f", {smoke.skipped} skipped" if smoke.skipped else "")
    lines = [
        table(rows),
        "",
        *([f"slowest {slow}"] if (slow := _slowest(document)) else []),
        f"image   {document.image_id[7:19]}  {size(document.size_bytes)} in {document.seconds:.0f} s, {proof}",
        *([f"note    {note}"] if (note := copies_note(document.probe)) else []),
        *(f"tag     {tag}" for tag in document.tags),
        *([f"pushed  {document.pushed}"] if document.pushed else []),
        f"record  {document.record}",
    ]
    if smoke is None:
        lines.append(f"next    ./invoke smoke --image {document.tags[0]}")
    if document.push is not None:
        lines += ["", push_text(document.push)]
    return "\n".join(lines)


def _slowest(document: BuildDocument) -> str:
    """The parts that took longest, for a build that made one wait; they ran side by side."""
    slow = sorted((row for row in document.components if row.seconds >= _SLOW), key=lambda row: -row.seconds)
    return ", ".join(f"{row.name} {duration(row.seconds, tenths=False)}" for row in slow[:3])


def stages_text(document: StagesDocument) -> str:
    """What was built of a Dockerfile's stages, and how much of it was cached."""
    done = f"{document.steps} steps, {document.cached_steps} of them from the cache, {document.seconds:.0f} s"
    return f"stages  {', '.join(document.stages)}: {done}"
