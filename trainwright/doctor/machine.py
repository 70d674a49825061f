"""The machine that ``doctor`` checks, and the result of a check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from trainwright.core.errors import EngineError
from trainwright.core.records import Document
from trainwright.core.say import Say
from trainwright.engine.engine import Engine, connect

MachineSeverity = Literal["ok", "warning", "error"]


class MachineFinding(Document):
    """What a check found; ``remedy`` is a command line where there is one."""

    check: str
    severity: MachineSeverity
    message: str
    remedy: str


def finding(check: str, severity: MachineSeverity, message: str, remedy: str = "") -> MachineFinding:
    """A finding, of its parts in the order in which they are read."""
    return MachineFinding(check=check, severity=severity, message=message, remedy=remedy)


@dataclass(frozen=True)
class Check:
    """One thing to look at; ``fix`` repairs it, saying each step before it does it."""

    name: str
    run: Callable[[Machine], MachineFinding]
    fix: Callable[[Machine, Say], None] | None = None


class Machine:
    """What several checks look at; asked once, at the first need.

    Args:
        registries: the registries that the site names for base images.
    """

    def __init__(self, registries: Sequence[str] = ()) -> None:
        self.registries = tuple(registries)

    @cached_property
    def engine(self) -> Engine | EngineError:
        """The engine that answers, or why none does. Nothing is set up."""
        try:
            return connect(setup=False)
        except EngineError as error:
            return error
