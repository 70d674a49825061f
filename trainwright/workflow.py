"""Whole jobs, as the verbs start them: engine, build, proof, record, and the document that tells of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args

from trainwright import build as building
from trainwright import smoke as smoking
from trainwright import store
from trainwright.build import BuildOptions
from trainwright.catalog import Catalog, load_catalog
from trainwright.engine import Engine, connect
from trainwright.engine_setup import ensure_tool
from trainwright.errors import RequestError, did_you_mean
from trainwright.paths import write_atomically
from trainwright.plan import Plan
from trainwright.runner import run
from trainwright.site import Site
from trainwright.store import BuildRecord
from trainwright.view import Mode


def build_options(
    tags: tuple[str, ...], progress: str, *, no_cache: bool, fresh_base: bool, skip_source_check: bool = False
) -> BuildOptions:
    """The options of a build from the words of the command line.

    Raises:
        RequestError: a tag or the kind of progress is none.
    """
    if progress not in get_args(Mode):
        raise RequestError(f"--progress {progress}: no such kind. {did_you_mean(progress, get_args(Mode))}")
    for tag in tags:
        if not building.TAG.fullmatch(tag):
            raise RequestError(f"--tag {tag}: not an image name", remedy="For example: --tag team/trainer:nightly")
    mode: Any = progress
    return BuildOptions(
        tags=tags, progress=mode, no_cache=no_cache, fresh_base=fresh_base, skip_source_check=skip_source_check
    )


def build_image(
    plan: Plan,
    catalog: Catalog,
    site: Site,
    options: BuildOptions,
    *,
    smoke: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Build and prove an image; returns the document of ``build --json``.

    Raises:
        Failure: as :func:`trainwright.build.build`, and ``ProofFailed`` where a smoke test fails.
    """
    for notice in plan.notices:
        say(f"note: {notice}")
    engine = connect(say=say)
    if plan.base.image is None:
        ensure_tool("mmdebstrap", say=say)
    record = building.build(plan, catalog, site, engine, options=options, say=say)
    if smoke and not (record.smoke and record.smoke["failed"] == 0):
        record = _smoke(record, record.tags[0], engine, None, say)
    return _document(record)


def smoke_image(image: str, *, select: str | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the image tests of an image that was built here; returns the document of ``smoke --json``.

    Args:
        image: tag or id.
        select: only checks whose name holds this word; the result is then not recorded as proof.
        say: told of long steps.

    Raises:
        RequestError: no such image, or none that was built here.
        ProofFailed: a check failed.
    """
    engine = connect(say=say)
    found = run([engine.client.path, "image", "inspect", "--format", "{{.Id}}", image], env=engine.cli_env)
    built = store.all_records()
    known = [tag for record in built for tag in record.tags]
    if not image or not found.ok:
        raise RequestError(
            f"--image {image or '(none)'}: the engine has no such image. {did_you_mean(image, known)}".strip(),
            remedy="./invoke list --built shows the images that were built here.",
        )
    record = store.load(found.stdout.strip())
    if record is None:
        raise RequestError(
            f"--image {image}: not built here, so there is no plan to hold it to",
            remedy="./invoke build makes the image and its record; ./invoke list --built shows what there is.",
        )
    done = _smoke(record, image, engine, select, say)
    assert done.smoke is not None
    return done.smoke


def _smoke(
    record: BuildRecord, image: str, engine: Engine, select: str | None, say: Callable[[str], None]
) -> BuildRecord:
    say("smoke tests: every component of the image, and the container contract")
    report = smoking.smoke(
        engine.client.path,
        record.image_id,
        record.plan.as_json(),
        record.probe,
        record.folder,
        gpus=engine.gpus,
        select=select,
        folders={name: folder.path for name, folder in load_catalog().components.items()},
    )
    document = {**report.as_json(), "image": image, "image_id": record.image_id, "plan": record.plan.id}
    write_atomically(record.folder / "smoke.json", json.dumps(document, indent=1) + "\n")
    finished = record.model_copy(update={"smoke": document})
    if select is None:
        store.save(finished)
    report.raise_for_failures()
    return finished


def _document(record: BuildRecord) -> dict[str, Any]:
    return {
        "schema": "trainwright/build/1",
        "plan": record.plan.id,
        "image_id": record.image_id,
        "tags": list(record.tags),
        "size_bytes": record.size_bytes,
        "seconds": record.seconds,
        "cached": record.cached,
        "components": [row.model_dump(mode="json") for row in record.ledger],
        "probe": record.probe,
        "smoke": None if record.smoke is None else {k: record.smoke[k] for k in ("passed", "failed", "skipped")},
        "record": str(record.folder / "record.json"),
    }
