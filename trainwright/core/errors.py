"""One class per kind of failure, each with its exit code, a message and a remedy.

The exit codes are part of the command line's contract. ``docs/exit-codes.md`` is made from the classes and their first
paragraphs (``devtools/reference.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from trainwright.core.masking import mask, masked
from trainwright.core.text import for_people

_LISTED = 400  # characters of known names; nobody reads more


class Failure(Exception):
    """A failure that a user can act on.

    Args:
        message: what is wrong and where, in one or a few lines. It may quote input unchanged: long text is shortened,
            control characters are escaped, and secrets are masked (also in remedy and details).
        remedy: what to do next, preferably a command line. May be empty.
        details: further facts for ``--json`` (JSON-serialisable values only).
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "failure"

    def __init__(self, message: str, *, remedy: str = "", **details: Any) -> None:
        self.message = for_people(mask(message)).rstrip()
        super().__init__(self.message)
        self.remedy = mask(remedy)
        self.details: Mapping[str, Any] = masked(details)

    def as_json(self) -> dict[str, Any]:
        """The document of ``--json`` for this failure."""
        return {
            "schema": "trainwright/failure/1",
            "error": self.kind,
            "message": self.message,
            "remedy": self.remedy,
            "exit_code": self.exit_code,
            **self.details,
        }


class RequestError(Failure):
    """The request or a data file is invalid, a path does not exist or cannot be read, or the lock for ``--locked`` is
    incomplete.
    """

    exit_code = 2
    kind = "request"


class Conflict(Failure):
    """The request is valid, but no compatible set exists."""

    exit_code = 3
    kind = "conflict"

    def as_json(self) -> dict[str, Any]:
        """The document of a conflict; its ``schema`` differs from other failures'."""
        return super().as_json() | {"schema": "trainwright/conflict/1"}


class EngineError(Failure):
    """No usable container engine, or it stopped answering, and none may be set up here."""

    exit_code = 4
    kind = "engine"


class BuildFailed(Failure):
    """A build step failed, or the build was interrupted; ``build --images``: lines failed with different codes."""

    exit_code = 5
    kind = "build"


class ProofFailed(Failure):
    """The image differs from the plan or is too big for its ``budget``, an image test failed, or the gate for
    vulnerabilities refused it; ``prove``: a line failed (then the document is ``trainwright/prove/1``).
    """

    exit_code = 6
    kind = "proof"


class RegistryRefused(Failure):
    """A registry or AWS refused, or did not answer; no moving tag points to an incomplete image. ``gc``: an image could
    not be deleted (then the document is ``trainwright/gc/1``).
    """

    exit_code = 7
    kind = "registry"


class SourceError(Failure):
    """A source is unreachable, or its checksum differs; no tag was moved. ``sources`` found one missing (then the
    document is ``trainwright/sources/1``).
    """

    exit_code = 8
    kind = "source"


class RehearsalFailed(Failure):
    """The rehearsal of a training job failed."""

    exit_code = 9
    kind = "rehearsal"


class InternalError(Failure):
    """A bug in Trainwright; please report it.

    The number is EX_SOFTWARE of sysexits.h. The traceback is in a file.
    """

    exit_code = 70
    kind = "internal"


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most similar to ``word``, best first; may be empty."""
    import difflib  # only mistakes need it

    # A YAML key need not be text: `on` is read as true.
    # The comparison takes time in proportion to both lengths; none of our names is longer. What begins every flag makes
    # none of them similar.
    names = {name.removeprefix("--"): name for name in known}
    asked = str(word)[:100].removeprefix("--")
    found = difflib.get_close_matches(asked, list(names), n=count, cutoff=0.5)
    if not found:
        return []
    # Beside a much better one a name only distracts: of "framwork", "for" has half of the letters, too.
    alike = {name: difflib.SequenceMatcher(None, name, asked).ratio() for name in found}
    return [names[name] for name in found if alike[name] >= alike[found[0]] - 0.35]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence with the nearest known names, or with all if none is near and they are few enough to be read."""
    names = sorted(set(known))
    near = nearest(word, names)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    listed = ", ".join(names)
    return f"Known: {listed}." if 0 < len(listed) <= _LISTED else ""
