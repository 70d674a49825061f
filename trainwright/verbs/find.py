"""The verbs by family, and the verb of a name, which loads that one alone."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from trainwright.cli.flags import Family, Shelf, Verb

# Each along the way of an image.
FAMILIES = (
    Family("Every day", ("init", "plan", "build", "smoke", "rehearse", "push", "estimator", "report")),
    Family("In an image", ("shell", "run")),
    Family("Catalog", ("list", "explain", "diff", "sources", "prove", "fresh")),
    Family("Registry", ("scan", "sign", "verify", "promote", "tags", "gc")),
    Family("Files", ("render", "lock", "mirror", "pipeline")),
    Family("Jobs", ("preflight", "diagnose")),
    Family("This machine", ("doctor", "completion")),
)
NAMES = tuple(name for family in FAMILIES for name in family.names)


def find(name: str) -> Verb[Any] | None:
    """The verb of that name; ``None`` for an unknown name."""
    if name not in NAMES:
        return None
    module = "list_" if name == "list" else name  # a name of Python's own
    found = getattr(import_module(f"trainwright.verbs.{module}"), module)
    assert isinstance(found, Verb)
    return found


SHELF = Shelf(FAMILIES, find)
