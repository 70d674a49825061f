"""Shares of a list of files: every n-th one, of which some processes have more than others."""

from __future__ import annotations

from trainwright.preflight.events import Event
from trainwright.preflight.values import NONE, Marks, Value

# What returns the names of files.
_LISTS = ("glob", "iglob", "rglob", "listdir", "iterdir", "list_directory", "scandir")


def shared(first: Value | None, step: Value | None) -> Marks:
    """Return what a slice is that begins with the rank and goes on by the number of processes."""
    by_rank = first is not None and step is not None and "rank" in first.tags and "world" in step.tags
    return frozenset({"unequal"}) if by_rank else NONE


def shares(base: Value, sliced: Marks) -> Marks:
    """Return what a slice of a list is: of files, a share that may have more of them than others."""
    if "unequal" in sliced:
        return frozenset({"unequal"}) if "files" in base.tags and "trimmed" not in base.tags else NONE
    return sliced & {"trimmed"}


def returned(event: Event) -> None:
    """Note that a call of a library returns names of files, a share of them, or so many items."""
    if event.last in _LISTS and not event.name.startswith("script."):
        event.result.tags |= {"files"}
    if event.name == "itertools.islice" and event.args:
        begin = event.args[1] if len(event.args) > 3 else None
        step = event.args[3] if len(event.args) > 3 else None
        event.result.tags = event.result.tags - {"unequal"} | shares(event.args[0], shared(begin, step))
