"""One class per kind of failure, each with its exit code, a message and a remedy.

The exit codes are part of the command line's contract (see ``docs/exit-codes.md``):
0 fine, 2 request, 3 conflict, 4 engine, 5 build, 6 proof, 7 registry, 8 source, 9 rehearsal, 70 a fault of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from trainwright.core.masking import mask, masked
from trainwright.core.text import for_people


class Failure(Exception):
    """A failure that a user can act on.

    Args:
        message: what is wrong and where, in one or a few lines. Input may be quoted in it as it is: what is endless
            is shortened, control characters are shown in backslash form, and secrets are masked (in the rest, too).
        remedy: what to do next, preferably a command line. May be empty.
        details: further facts for ``--json`` (JSON-serialisable values only).
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "failure"

    def __init__(self, message: str, *, remedy: str = "", **details: Any) -> None:
        self.message = for_people(mask(message))
        super().__init__(self.message)
        self.remedy = mask(remedy)
        self.details: Mapping[str, Any] = masked(details)

    def as_json(self) -> dict[str, Any]:
        """The document that ``--json`` prints for this failure."""
        return {
            "schema": "trainwright/failure/1",
            "error": self.kind,
            "message": self.message,
            "remedy": self.remedy,
            "exit_code": self.exit_code,
            **self.details,
        }


class RequestError(Failure):
    """The request or a data file is wrong: an unknown key, flag, version or file."""

    exit_code = 2
    kind = "request"


class Conflict(Failure):
    """No compatible set: ``rows`` say why, ``offers`` say what does hold together."""

    exit_code = 3
    kind = "conflict"

    def as_json(self) -> dict[str, Any]:
        """The document of a conflict; its ``schema`` differs from other failures'."""
        return super().as_json() | {"schema": "trainwright/conflict/1"}


class EngineError(Failure):
    """There is no container engine that can do the job."""

    exit_code = 4
    kind = "engine"


class BuildFailed(Failure):
    """A build step failed: details name the component, the step and its last lines."""

    exit_code = 5
    kind = "build"


class ProofFailed(Failure):
    """Plan and image differ, or an image test failed."""

    exit_code = 6
    kind = "proof"


class RegistryRefused(Failure):
    """A registry or AWS refused."""

    exit_code = 7
    kind = "registry"


class SourceError(Failure):
    """A source is unreachable or its checksum differs."""

    exit_code = 8
    kind = "source"


class RehearsalFailed(Failure):
    """The rehearsal of a training job failed."""

    exit_code = 9
    kind = "rehearsal"


class InternalError(Failure):
    """A fault of Trainwright itself; the number is EX_SOFTWARE of sysexits.h. The traceback is in a file."""

    exit_code = 70
    kind = "internal"


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like ``word``, best first (possibly none)."""
    # A key of YAML need not be a text: `on` is read as true.
    # The comparison takes the product of both lengths; no name of ours is longer.
    return difflib.get_close_matches(str(word)[:100], list(known), n=count, cutoff=0.5)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence that offers the nearest known names, or lists all where none is near."""
    names = sorted(set(known))
    near = nearest(word, names)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"Known: {', '.join(names)}." if names else ""
