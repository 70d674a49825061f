"""Leftovers of killed rehearsals: found by label and owner, and removed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwright.core import runner
from trainwright.core.paths import state_dir
from trainwright.core.processes import lives
from trainwright.engine.engine import Engine
from trainwright.rehearse.owner import LABEL, OWNER_LABEL

WORK = "work"
OWNER_FILE = "owner"
FOREIGN_AGE = 6 * 3600.0  # seconds after which one whose owner cannot be checked counts as left over
SECONDS = 60


@dataclass(frozen=True)
class Leftover:
    """A container, a network or a folder; ``name`` is its id, or its path."""

    kind: str
    name: str


def reports_dir() -> Path:
    """The folder of reports, one subfolder per rehearsal."""
    return state_dir() / "rehearsals"


def find(engine: Engine | None) -> list[Leftover]:
    """Everything left over from rehearsals that no longer run, containers first."""
    engines = [] if engine is None else [*_in_engine(engine, "container"), *_in_engine(engine, "network")]
    return [*engines, *_folders()]


def clear(engine: Engine, found: list[Leftover] | None = None) -> None:
    """Remove the leftovers that :func:`find` returns.

    Raises:
        EngineError: files in a folder belong to another user, and the engine cannot change that.
    """
    for left in find(engine) if found is None else found:
        if left.kind == "folder":
            remove_work(engine, Path(left.name))
        elif left.kind == "container":
            runner.run([engine.client.path, "rm", "-f", "-v", left.name], env=engine.cli_env, timeout=SECONDS)
        else:
            runner.run([engine.client.path, "network", "rm", left.name], env=engine.cli_env, timeout=SECONDS)


def remove_work(engine: Engine, folder: Path) -> None:
    """Remove the files of the hosts, after giving those that containers wrote as root to the caller."""
    from trainwright.rehearse.artifacts import hand_over

    if not folder.exists():
        return
    note = folder / "image"
    if note.is_file():
        hand_over(engine, note.read_text().strip(), folder)
    shutil.rmtree(folder, ignore_errors=True)


def _in_engine(engine: Engine, kind: str) -> Iterator[Leftover]:
    words = ["ps", "-a"] if kind == "container" else ["network", "ls"]
    argv = [engine.client.path, *words, "--filter", f"label={LABEL}", "--format", "{{.ID}}"]
    found = runner.run(argv, env=engine.cli_env, timeout=SECONDS).stdout.split()
    if not found:
        return
    # The labels come from inspect: `ls` prints them joined by commas.
    said = runner.run([engine.client.path, kind, "inspect", *found], env=engine.cli_env, timeout=SECONDS)
    for one in json.loads(said.stdout or "[]"):
        labels = (one.get("Config") or one).get("Labels") or {}
        if _is_left(str(labels.get(OWNER_LABEL, "")), str(one.get("Created", ""))):
            yield Leftover(kind, str(one["Id"]))


def _folders() -> Iterator[Leftover]:
    for work in sorted(reports_dir().glob(f"*/{WORK}")):
        try:
            owner = (work / OWNER_FILE).read_text()
        except OSError:
            owner = ""
        alive = lives(owner)
        if alive is False or (alive is None and time.time() - work.stat().st_mtime > FOREIGN_AGE):
            yield Leftover("folder", str(work))


def _is_left(owner: str, created: str) -> bool:
    alive = lives(owner)
    if alive is not None:
        return not alive
    return _age(created) > FOREIGN_AGE


def _age(created: str) -> float:
    """Seconds since a time as the engine gives it: ``2026-11-21T06:30:38.893123456Z`` or with ``+02:00``."""
    from datetime import UTC, datetime

    text = created[:19]
    try:
        moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return 0.0
    return time.time() - moment.timestamp()
