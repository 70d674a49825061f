"""The folder of a run over many image lines (``.trainwright/fleet/<run>/``): what was asked for, and how far each is.

``run.json`` says what was asked for and never changes. Each unit has a file of its own, written atomically whenever its
state changes, so whatever ends the run, the next one knows what is left.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from trainwright.core.data_files import read_state
from trainwright.core.errors import RequestError, nearest
from trainwright.core.owned import claim, write_atomically
from trainwright.core.paths import state_dir
from trainwright.core.records import Document, Field, MisfitError, Record, read_record
from trainwright.core.text import fits

KIND = "fleet run"  # of folder, as its manifest says
RUN_FILE = "run.json"
_LOCK = "lock"

UnitState = Literal["pending", "running", "built", "failed", "skipped"]
UnitKind = Literal["line", "stages"]
_FOLDERS: dict[UnitKind, str] = {"line": "lines", "stages": "stages"}


class UnitError(Document):
    """Why a unit failed; ``exit_code`` and ``error`` as of the command that builds it alone."""

    exit_code: int
    error: str
    message: str
    remedy: str = ""


class UnitProgress(Document):
    """How far a unit is: an image line, or build stages that lines share. Times are UTC in ISO 8601."""

    schema: Literal["trainwright/fleet-unit/1"] = "trainwright/fleet-unit/1"
    name: str
    kind: UnitKind
    plan: str = Field(
        description="the id of the plan; of stages, that of the line whose Dockerfile they are built from"
    )
    request: str = Field(description="the flags with which ./invoke build builds it alone")
    stages: tuple[str, ...] = ()
    state: UnitState = "pending"
    process: str = Field(default="", description="what builds it, or built it last")
    builder: str = Field(default="", description="the builder of buildx that it was given to; empty: the engine's own")
    started_at: str | None = None
    ended_at: str | None = None
    seconds: float = 0.0
    log: str = ""
    image: str | None = None
    tags: tuple[str, ...] = ()
    size_bytes: int = 0
    error: UnitError | None = None


class RunFile(Record):
    """What a run was asked for.

    Attributes:
        id: the name of its folder.
        created_at: UTC in ISO 8601.
        images: the words of ``--images``.
        lines: the names of the image lines that these were, in order.
        options: how every line is built: flags and their values, by the fields of the command line.
    """

    schema: Literal["trainwright/fleet-run/1"] = "trainwright/fleet-run/1"
    id: str
    created_at: str
    images: str
    lines: tuple[str, ...]
    options: dict[str, str | bool | tuple[str, ...]] = {}


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run."""

    path: Path
    run: RunFile

    def progress(self, kind: UnitKind, name: str) -> UnitProgress | None:
        """How far a unit was when its file was written last; ``None`` if it has no readable file."""
        try:
            return read_record(UnitProgress, read_state(self._file(kind, name)))
        except MisfitError:
            return None

    def keep(self, progress: UnitProgress) -> None:
        """Write down how far a unit is."""
        write_atomically(self._file(progress.kind, progress.name), json.dumps(progress.as_json(), indent=1) + "\n")

    def units(self) -> list[UnitProgress]:
        """How far every unit is that has a file, those of earlier commands of the run among them."""
        found = [(kind, path.stem) for kind in _FOLDERS for path in sorted((self.path / _FOLDERS[kind]).glob("*.json"))]
        return [progress for kind, name in found if (progress := self.progress(kind, name)) is not None]

    def forget_stages(self) -> None:
        """Remove what is said of shared stages: which ones there are follows from the lines that are left."""
        for path in (self.path / _FOLDERS["stages"]).glob("*.json"):
            path.unlink()

    def log(self, kind: UnitKind, name: str) -> Path:
        """The log of a unit."""
        return self._file(kind, name).with_suffix(".log")

    def answer(self, kind: UnitKind, name: str) -> Path:
        """The file that gets the document of the command that builds a unit."""
        return self._file(kind, name).with_suffix(".out")

    def _file(self, kind: UnitKind, name: str) -> Path:
        return self.path / _FOLDERS[kind] / f"{name}.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Work on the run alone; the lock ends with its process, however that ends.

        Raises:
            RequestError: another process works on it.
        """
        with (self.path / _LOCK).open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                who = file.read(20).strip()
                raise RequestError(
                    f"--resume {self.run.id}: process {who or '(unknown)'} works on this run",
                    remedy="Wait until it has ended, or end it and run the command again.",
                ) from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield


def runs() -> list[str]:
    """The runs of this project, newest first."""
    found = [run.run for path in _home().glob(f"*/{RUN_FILE}") if (run := _read(path.parent)) is not None]
    return [run.id for run in sorted(found, key=lambda run: (run.created_at, run.id), reverse=True)]


def create(images: str, lines: tuple[str, ...], options: dict[str, str | bool | tuple[str, ...]]) -> RunFolder:
    """A new run; the arguments are fields of :class:`RunFile`."""
    now = datetime.now(UTC)
    stem, number = now.strftime("%Y%m%d-%H%M%S"), 1
    path = _home() / stem
    while True:
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:  # two in one second
            number += 1
            path = _home() / f"{stem}-{number}"
    claim(path, KIND, str(path), whole=True)
    run = RunFile(
        id=path.name,
        created_at=now.isoformat(timespec="microseconds"),
        images=images,
        lines=lines,
        options=options,
    )
    for folder in _FOLDERS.values():
        (path / folder).mkdir()
    write_atomically(path / RUN_FILE, json.dumps(run.as_json(), indent=1) + "\n")
    return RunFolder(path, run)


def find(word: str, verb: str = "build --resume") -> RunFolder:
    """The run that a flag names, by its id or its folder.

    Args:
        word: id or folder.
        verb: what needs it, up to the flag, for messages.

    Raises:
        RequestError: there is no such run, or the folder is not that of a run; the message names those that exist.
    """
    path = _home() / word if fits(r"[0-9A-Za-z][0-9A-Za-z-]*", word) else Path(word)
    if (found := _read(path)) is not None:
        return found
    what = "the folder is not that of a run" if word and path.is_dir() else "no such run"
    known, flag = runs(), verb.rpartition(" ")[2]
    if not known:
        raise RequestError(
            f"{flag} {word}: {what}, and this project has none", remedy="./invoke build --images PATTERN begins one."
        )
    shown = ", ".join(known[:10]) + (", …" if len(known) > 10 else "")
    # All are dates and times: of those that are equally near, the newest.
    near = nearest(Path(word).name, known, count=1) or known
    raise RequestError(f"{flag} {word}: {what}. Runs here, newest first: {shown}", remedy=f"./invoke {verb} {near[0]}")


def _home() -> Path:
    return state_dir() / "fleet"


def _read(path: Path) -> RunFolder | None:
    try:
        claim(path, KIND, str(path))
        return RunFolder(path, read_record(RunFile, read_state(path / RUN_FILE)))
    except (RequestError, MisfitError):
        return None
