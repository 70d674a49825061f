"""What interrupted commands left behind: containers, networks, build contexts, rehearsals."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from trainwright.core import runner
from trainwright.core.errors import EngineError
from trainwright.core.paths import state_dir
from trainwright.core.say import Say
from trainwright.doctor.machine import Machine, MachineFinding, finding
from trainwright.engine.engine import Engine
from trainwright.rehearse import leftovers

SESSION_LABEL = "io.trainwright.session"
STOPPED_AGE, RUNNING_AGE = 600.0, 6 * 3600.0  # seconds; younger ones may belong to a command that is at work
CONTEXT_AGE = 14 * 86_400.0


def check_leftovers(machine: Machine) -> MachineFinding:
    commands = list(_stale(machine.engine))
    contexts = list(_stale_contexts())
    rehearsed = [left.kind for left in leftovers.find(_answering(machine))]
    if not commands and not contexts and not rehearsed:
        return finding("leftovers", "ok", "none")
    kinds = [row[1] for row in commands] + rehearsed
    counts = {kind: kinds.count(kind) for kind in ("container", "network")}
    counts |= {"build context": len(contexts), "rehearsal folder": kinds.count("folder")}
    told = ", ".join(f"{number} {kind}{'s' * (number > 1)}" for kind, number in counts.items() if number)
    return finding("leftovers", "warning", f"left by interrupted commands: {told}", "./invoke doctor --fix")


def fix_leftovers(machine: Machine, say: Say) -> None:
    for argv in _stale(machine.engine):
        say(f"removing the {argv[1]} {argv[-1]}")
        runner.run(argv, timeout=60)
    for folder in _stale_contexts():
        say(f"removing the build context {folder.name}")
        shutil.rmtree(folder, ignore_errors=True)
    if (engine := _answering(machine)) is not None:
        for left in leftovers.find(engine):
            say(f"removing the {left.kind} {left.name} of a rehearsal")
            leftovers.clear(engine, [left])


def _answering(machine: Machine) -> Engine | None:
    return None if isinstance(machine.engine, EngineError) else machine.engine


def _stale(engine: Engine | EngineError) -> Iterator[list[str]]:
    """The commands that remove what commands of this project left in the engine, containers first."""
    if isinstance(engine, EngineError):
        return
    docker = engine.client.path
    label = ["--filter", f"label={SESSION_LABEL}", "--format"]
    row = f'{{{{.ID}}}}|{{{{.CreatedAt}}}}|{{{{.Label "{SESSION_LABEL}"}}}}'
    living = set()
    for line in runner.run([docker, "ps", "-a", *label, f"{row}|{{{{.State}}}}"]).stdout.splitlines():
        ident, created, session, state = line.split("|")
        if _age(created) > (RUNNING_AGE if state in ("running", "restarting", "paused") else STOPPED_AGE):
            yield [docker, "container", "rm", "-f", "-v", ident]
        else:
            living.add(session)
    for line in runner.run([docker, "network", "ls", *label, row]).stdout.splitlines():
        ident, created, session = line.split("|")
        if session not in living and _age(created) > STOPPED_AGE:
            yield [docker, "network", "rm", ident]


def _age(created: str) -> float:
    """Seconds since a time as the docker client prints it: ``2026-11-21 06:30:38.893 +0000 UTC``."""
    day, clock, zone = created.split()[:3]
    return time.time() - datetime.strptime(f"{day} {clock[:8]} {zone}", "%Y-%m-%d %H:%M:%S %z").timestamp()


def _stale_contexts() -> Iterator[Path]:
    for folder in sorted((state_dir() / "contexts").glob("*")):
        if folder.is_dir() and time.time() - folder.stat().st_mtime > CONTEXT_AGE:
            yield folder
