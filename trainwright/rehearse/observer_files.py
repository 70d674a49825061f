"""From what the observer wrote in a host's ``facts`` folder to :class:`~trainwright.rehearse.observed.Process`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trainwright.rehearse.observed import Process

STACKS = 61  # the signal that has the observer write stacks (templates/rehearsal/observer.py)


def processes(folder: Path) -> tuple[Process, ...]:
    """Every Python process of a host, in the order in which they began."""
    found = []
    for path in folder.glob("*.jsonl"):
        events = list(_events(path))
        stack = path.with_suffix(".stack")
        found.append(process(int(path.stem), events, _text(stack)))
    return tuple(sorted((one for one in found if one is not None), key=lambda one: one.started))


def process(pid: int, events: Iterable[dict[str, Any]], stack: str = "") -> Process | None:
    """One process from its events; nothing where it never said what it is."""
    facts: dict[str, Any] = {}
    for event in events:
        with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
            _take(facts, event)
    return Process(pid=pid, stack=stack, **facts) if facts else None


def _take(facts: dict[str, Any], event: dict[str, Any]) -> None:
    """Take one event in; raises what a value of the wrong kind raises."""
    kind = event.get("e")
    if kind == "start":
        begun = {
            "parent": int(event["parent"]),
            "argv": tuple(map(str, event["argv"])),
            "cwd": str(event.get("cwd", "")),
            "started": float(event["t"]),
            "environment": {str(name): str(value) for name, value in dict(event.get("env", {})).items()},
            "host_name": str(event.get("host", "")),
            "world_sizes": {},
            "reduced": {},
            "reached": (),
        }
        # A pid comes round again in a long job: what is told from here on is of another process.
        facts.clear()
        facts.update(begun)
    elif not facts:
        return
    elif kind == "joined":
        facts["world_sizes"][str(event["library"])] = int(event["size"])
    elif kind == "reduced":
        facts["reduced"][str(event["library"])] = float(event["sum"])
    elif kind == "reached":
        facts["reached"] = tuple(map(str, event["tasks"]))
    elif kind == "error":
        facts.update(error=str(event["text"]), error_line=str(event.get("line", "")), error_at=float(event["t"]))
    elif kind == "handler":
        facts["handles"] = True
    elif kind == "signal":
        facts["signal"] = float(event["t"])
    elif kind == "end":
        facts["ended"] = True


def _events(path: Path) -> Iterator[dict[str, Any]]:
    for line in _text(path).splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue  # cut off where the process was killed
        if isinstance(event, dict):
            yield event


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
