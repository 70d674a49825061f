"""Gymnasium environments: each process has its own, so what it observes differs from the others."""

from __future__ import annotations

from trainwright.script.events import Event
from trainwright.script.values import IDENTITY, NONE, Marks, Value

# Of an environment whose seed the other processes have as well.
_ALIKE = "seeded"
_LIBRARIES = ("gymnasium.", "gym.", "gymnasium_robotics.", "pufferlib.")


def method(event: Event, base: Value, name: str) -> Value | None:
    """Return what an environment's method returns; None for anything else.

    Without a seed, or with one of the process's own, the first ``reset`` makes another course of events in each process
    (Gymnasium, core.py, Env.reset: "a seed will be chosen from some source of entropy"); a common seed makes the same
    one in all of them, also after later resets.
    """
    if name not in ("reset", "step", "seed") or not any(made.startswith(_LIBRARIES) for made in base.made):
        return None
    if name != "step":
        _seeded(base, event.arg("seed", 0))
    return Value(made=frozenset({f"{min(base.made)}.{name}"}), tags=base.tags & {"played"})


def _seeded(base: Value, seed: Value | None) -> None:
    if base.tags & {_ALIKE, "played"}:
        return
    own = seed is None or bool(seed.tags & IDENTITY)
    base.tags |= {"played" if own else _ALIKE}


def kept(value: Value) -> Marks:
    """Return the fact of a list that keeps what a process saw: it may be as long as those of the others."""
    return frozenset({"filled"}) if "played" in value.tags else NONE


def plays(event: Event) -> bool:
    """Return whether a call is one of such a library."""
    return event.name.startswith(_LIBRARIES)
