"""The build records of a project: one folder per image under ``.trainwright/images``.

A record contains the plan, what was built from it, what it cost and how it was proven. ``push`` accepts only
images whose record has a passed smoke run.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from trainwright.build.ledger import BuiltLayer, LedgerRow, Timeline
from trainwright.core.data_files import read_state
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.owned import write_atomically
from trainwright.core.paths import state_dir
from trainwright.core.records import Document, Field, MisfitError, Record, read_record
from trainwright.core.runner import run
from trainwright.core.text import fits
from trainwright.engine.engine import Engine
from trainwright.plan.plan import Plan


class EngineUsed(Record):
    """Which engine and client built an image."""

    server: str
    client: str
    buildkit: str


class BuildRecord(Record):
    """One built image. ``seconds`` is wall time of the build that made the record, ``built_at`` UTC in ISO 8601."""

    schema: str = "trainwright/record/1"
    image_id: str
    tags: tuple[str, ...]
    plan: Plan
    size_bytes: int
    seconds: float
    cached: bool
    cached_steps: int
    total_steps: int
    built_at: str
    ledger: tuple[LedgerRow, ...]
    engine: EngineUsed
    source_revision: str
    probe: dict[str, Any]
    pushed: str | None = Field(default=None, description="its address by digest, where a builder pushed it")
    smoke: dict[str, Any] | None = None
    layers: tuple[BuiltLayer, ...] = Field(default=(), description="from below; empty in records of version 0.1")
    timeline: Timeline | None = Field(default=None, description="of the build that made the image, not of the cache")

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.built_at)
        if self.smoke is not None and not isinstance(self.smoke.get("failed"), int):
            raise ValueError("a smoke report says how many tests failed")

    @property
    def component_bytes(self) -> dict[str, int]:
        """Bytes of the image's layers by component or shared stage, of those that have any."""
        return {row.name: row.bytes for row in self.ledger if row.bytes}

    @property
    def folder(self) -> Path:
        """The folder with the record, the Dockerfile and the reports of this image."""
        return image_folder(self.image_id)


class BuiltRow(Document):
    """An image that was built here."""

    image_id: str
    tags: tuple[str, ...]
    plan: str
    size_bytes: int
    seconds: float
    built_at: str
    smoke: Literal["not run", "passed", "failed"]
    record: str


class BuiltDocument(Document):
    """``list --built --json``."""

    schema: Literal["trainwright/built/1"]
    images: tuple[BuiltRow, ...]


def image_folder(image_id: str) -> Path:
    """The folder of an image's record and reports."""
    return state_dir() / "images" / image_id.removeprefix("sha256:")[:16]


def save(record: BuildRecord, dockerfile: str | None = None) -> Path:
    """Write a record (and the Dockerfile it was built from); returns the record's path."""
    path = record.folder / "record.json"
    if dockerfile is not None:
        write_atomically(record.folder / "Dockerfile", dockerfile)
        write_atomically(record.folder / "plan.json", json.dumps(record.plan.as_json(), indent=1) + "\n")
    write_atomically(path, json.dumps(record.as_json(), indent=1, ensure_ascii=False) + "\n")
    return path


def load(image_id: str) -> BuildRecord | None:
    """The record of an image; None if it is missing or unreadable."""
    try:
        return read_record(BuildRecord, read_state(image_folder(image_id) / "record.json"))
    except MisfitError:
        # An older version's record, or a broken one: the image is built again from the cache and gets a new one.
        return None


def all_records(*, mentions: str = "") -> list[BuildRecord]:
    """Every readable record, newest first; with ``mentions``, those whose text has it, as reading all takes time."""
    found = []
    for path in (state_dir() / "images").glob("*/record.json"):
        if mentions and mentions.encode() not in path.read_bytes():
            continue
        try:
            found.append(read_record(BuildRecord, read_state(path)))
        except MisfitError:
            continue
    return sorted(found, key=lambda record: record.built_at, reverse=True)


def built() -> BuiltDocument:
    """A row per image that was built here, newest first."""
    rows = [
        BuiltRow(
            image_id=record.image_id,
            tags=record.tags,
            plan=record.plan.id,
            size_bytes=record.size_bytes,
            seconds=record.seconds,
            built_at=record.built_at,
            smoke="not run" if record.smoke is None else "failed" if record.smoke["failed"] else "passed",
            record=str(record.folder / "record.json"),
        )
        for record in all_records()
    ]
    return BuiltDocument(schema="trainwright/built/1", images=tuple(rows))


def find_record(image: str) -> BuildRecord:
    """The record of an image that was built here, by tag or id; no engine is asked.

    Raises:
        RequestError: no image that was built here has that name.
    """
    records = all_records()
    word = image.removeprefix("sha256:")
    for record in records:
        digest = record.image_id.removeprefix("sha256:")
        if image in record.tags or (fits(r"[0-9a-f]{6,64}", word) and digest.startswith(word)):
            return record
    known = [tag for record in records for tag in record.tags]
    raise RequestError(
        f"{image}: no image that was built here. {did_you_mean(image, known)}",
        remedy="./invoke list --built shows the images that were built here.",
    )


def built_record(image: str, engine: Engine) -> BuildRecord:
    """The record of an image that was built here.

    Args:
        image: tag or id.
        engine: has the image.

    Raises:
        RequestError: no such image, or none that was built here.
    """
    found = run([engine.client.path, "image", "inspect", "--format", "{{.Id}}", image], env=engine.cli_env)
    built = all_records()
    known = [tag for record in built for tag in record.tags]
    if not found.ok:
        raise RequestError(
            f"--image {image}: the engine has no such image. {did_you_mean(image, known)}",
            remedy="./invoke list --built shows the images that were built here.",
        )
    record = load(found.stdout.strip())
    if record is None:
        raise RequestError(
            f"--image {image}: not built here, so there is no plan to compare it with",
            remedy="./invoke build makes the image and its record; ./invoke list --built shows those that exist.",
        )
    return record
