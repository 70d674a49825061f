"""From what the observer wrote in a host's ``facts`` folder to :class:`~trainwright.rehearsal.facts.Process`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trainwright.rehearsal.facts import Process

STACKS = 61  # the signal that has the observer write stacks (templates/rehearsal/observer.py)


def processes(folder: Path) -> tuple[Process, ...]:
    """Every Python process of a host, in the order in which they began."""
    found = []
    for path in folder.glob("*.jsonl"):
        # A pid can come round again within a long job; the last process of that number is what stays.
        events = list(_events(path))
        stack = path.with_suffix(".stack")
        found.append(process(int(path.stem), events, _text(stack)))
    return tuple(sorted((one for one in found if one is not None), key=lambda one: one.started))


def process(pid: int, events: Iterable[dict[str, Any]], stack: str = "") -> Process | None:
    """One process from its events; nothing where it never said what it is."""
    facts: dict[str, Any] = {}
    for event in events:
        kind = event.get("e")
        if kind == "start":
            facts = {
                "parent": int(event.get("parent", 0)),
                "argv": tuple(map(str, event.get("argv", ()))),
                "cwd": str(event.get("cwd", "")),
                "started": float(event.get("t", 0)),
                "environment": {str(k): str(v) for k, v in dict(event.get("env", {})).items()},
                "host_name": str(event.get("host", "")),
                "world_sizes": {},
                "reduced": {},
            }
        elif not facts:
            continue
        elif kind == "joined":
            facts["world_sizes"][str(event["library"])] = int(event["size"])
        elif kind == "reduced":
            facts["reduced"][str(event["library"])] = float(event["sum"])
        elif kind == "error":
            facts |= {"error": str(event["text"]), "error_at": float(event["t"])}
        elif kind == "signal":
            facts["signal"] = float(event["t"])
        elif kind == "end":
            facts["ended"] = True
    return Process(pid=pid, stack=stack, **facts) if facts else None


def _events(path: Path) -> Iterator[dict[str, Any]]:
    for line in _text(path).splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # cut off where the process was killed
        if isinstance(event, dict):
            yield event


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
