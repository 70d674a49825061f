"""The documents of ``build``, which combine parts from several packages, and of failures."""

from __future__ import annotations

from typing import Any, Literal

from trainwright.build.ledger import LedgerRow
from trainwright.core.records import Document, Field
from trainwright.prove.smoke import SmokeCounts
from trainwright.push.documents import PushDocument


class BuildDocument(Document):
    """``build --json``."""

    schema: Literal["trainwright/build/1"]
    plan: str
    image_id: str
    tags: tuple[str, ...]
    pushed: str | None
    size_bytes: int
    seconds: float
    cached: bool
    components: tuple[LedgerRow, ...]
    probe: dict[str, Any]
    smoke: SmokeCounts | None
    record: str
    push: PushDocument | None


class StagesDocument(Document):
    """``build --stages --json``."""

    schema: Literal["trainwright/stages/1"]
    plan: str
    stages: tuple[str, ...]
    steps: int
    cached_steps: int
    seconds: float


class StayDocument(Document):
    """``build --stay --json``: an image that stays where its builder pushed it.

    ``image`` is its address by digest, ``results`` the folder of what its builder found, ``left`` the tests that the
    builder could not run, each with the reason, and ``next`` the command that runs all of them in the image.
    """

    schema: Literal["trainwright/stay/1"]
    plan: str
    image: str
    builder: str
    results: str
    passed: int
    left: dict[str, str]
    seconds: float
    next: str


class DryRunDocument(Document):
    """``build --dry-run --json``: what a build would take in, once an engine and every source have answered.

    ``inputs`` counts files; ``here`` are those of them that are on this machine. ``download_bytes`` is what is left, as
    far as sizes are known. ``push`` is the repository of ``--push``, with a region each.
    """

    schema: Literal["trainwright/dry-run/1"]
    plan: str
    tags: tuple[str, ...]
    engine: str
    builder: str
    inputs: int
    here: int
    download_bytes: int
    push: tuple[str, ...]


class RenderDocument(Document, omit_defaults=True):
    """``render --json``: the Dockerfile, or with ``--output`` the folder that has it.

    With ``--devcontainer`` or ``--compose``: the text of a file, and where it belongs.
    """

    schema: Literal["trainwright/render/1"]
    plan: str
    dockerfile: str | None = None
    output: str | None = None
    file: str | None = None
    text: str | None = None


class FailureDocument(Document, forbid_unknown_fields=False):
    """Any failure; what else there is to know of it stands beside (``component``, ``last_lines``, ``log``, …)."""

    # Failure.as_json makes it without this class: reporting a failure must not fail.
    schema: Literal["trainwright/failure/1"]
    error: Literal[
        "failure", "request", "engine", "build", "proof", "registry", "source", "rehearsal", "tests", "internal"
    ]
    message: str
    remedy: str
    exit_code: int


class ConflictRow(Document):
    """A constraint that cannot be met, and how that is known."""

    constraint: str
    evidence: str


class Offer(Document):
    """A command line that does resolve, and the id of its plan."""

    command: str
    plan_id: str = Field(alias="plan id")


class ConflictDocument(Document):
    """A request whose words are known but do not hold together."""

    schema: Literal["trainwright/conflict/1"]
    error: Literal["conflict"]
    message: str
    remedy: str
    exit_code: Literal[3]
    rows: tuple[ConflictRow, ...]
    offers: tuple[Offer, ...]
