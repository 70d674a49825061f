"""The names of the verbs, and the verb of a name, which loads that one alone."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from trainwright.cli.flags import Verb

# Along the way of an image; what needs none comes last.
NAMES = (
    *("list", "plan", "explain", "sources", "render", "lock", "build", "mirror"),
    *("smoke", "rehearse", "prove", "push", "pipeline"),
    *("estimator", "preflight", "diagnose", "doctor"),
)


def find(name: str) -> Verb[Any] | None:
    """The verb of that name; ``None`` for an unknown name."""
    if name not in NAMES:
        return None
    module = "list_" if name == "list" else name  # a name of Python's own
    found = getattr(import_module(f"trainwright.verbs.{module}"), module)
    assert isinstance(found, Verb)
    return found
