"""The shapes of the JSON documents that verbs print; the schemas in ``schemas/`` are made from them.

The plan and the build record are records of their own (:mod:`trainwright.plan.plan`, :mod:`trainwright.build.store`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from trainwright.build.ledger import LedgerRow
from trainwright.build.store import BuildRecord
from trainwright.catalog.image_line import Evidence
from trainwright.core.findings import FindingsDocument
from trainwright.core.records import Record
from trainwright.estimator.estimate import EstimatorDocument
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import PlanLock
from trainwright.push.documents import PushDocument
from trainwright.rehearse.documents import RehearsalDocument
from trainwright.sagemaker.diagnosis import DiagnosisDocument
from trainwright.sagemaker.job import Job


class FailureDocument(Record):
    """Any failure; what else there is to know of it stands beside (``component``, ``last_lines``, ``log``, …)."""

    model_config = ConfigDict(extra="allow")

    schema_: Literal["trainwright/failure/1"] = Field(alias="schema")
    error: Literal["failure", "request", "engine", "build", "proof", "registry", "source", "rehearsal", "tests"]
    message: str
    remedy: str
    exit_code: int


class ConflictRow(Record):
    """A constraint that cannot be met, and how that is known."""

    constraint: str
    evidence: str


class Offer(Record):
    """A command line that does resolve, and the id of its plan."""

    command: str
    plan_id: str = Field(alias="plan id")


class ConflictDocument(Record):
    """A request whose words are known but do not hold together."""

    schema_: Literal["trainwright/conflict/1"] = Field(alias="schema")
    error: Literal["conflict"]
    message: str
    remedy: str
    exit_code: Literal[3]
    rows: tuple[ConflictRow, ...]
    offers: tuple[Offer, ...]


class LineRow(Record):
    """An image line of the catalog."""

    framework: str
    version: str
    cuda: str
    python: str
    base: str
    kind: Literal["debian", "nvidia", "dlc"]
    status: Literal["supported", "unmaintained", "end-of-support", "unreleased"]
    needs: Literal["packages", "network"]
    components: tuple[str, ...]
    options: tuple[str, ...]


class ListDocument(Record):
    """``list --json``."""

    schema_: Literal["trainwright/list/1"] = Field(alias="schema")
    lines: tuple[LineRow, ...]


class BuiltRow(Record):
    """An image that was built here."""

    image_id: str
    tags: tuple[str, ...]
    plan: str
    size_bytes: int
    seconds: float
    built_at: str
    smoke: Literal["not run", "passed", "failed"]
    record: str


class BuiltDocument(Record):
    """``list --built --json``."""

    schema_: Literal["trainwright/built/1"] = Field(alias="schema")
    images: tuple[BuiltRow, ...]


class ExplainRow(Record):
    """Why a component is in the plan as it is."""

    name: str
    version: str
    provider: str
    why: str
    packages: tuple[str, ...]
    download_bytes: int
    evidence: tuple[Evidence, ...]
    rebuilds: tuple[str, ...]


class ExplainDocument(Record):
    """``explain --json``."""

    schema_: Literal["trainwright/explain/1"] = Field(alias="schema")
    plan: str
    components: tuple[ExplainRow, ...]
    notices: tuple[str, ...]
    site: dict[str, Any]


class SmokeCounts(Record):
    """How many image tests ended how."""

    passed: int
    failed: int
    skipped: int


class BuildDocument(Record):
    """``build --json``."""

    schema_: Literal["trainwright/build/1"] = Field(alias="schema")
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


class StagesDocument(Record):
    """``build --stages --json``."""

    schema_: Literal["trainwright/stages/1"] = Field(alias="schema")
    plan: str
    stages: tuple[str, ...]
    steps: int
    cached_steps: int
    seconds: float


class PipelineImage(Record):
    """An image of a pipeline, and the request that it stands for."""

    name: str
    request: str
    plan: str


class PipelineGroup(Record):
    """Build stages that several images have in common; those of ``parent`` are among them."""

    name: str
    images: tuple[str, ...]
    stages: tuple[str, ...]
    parent: str | None


class PipelineDocument(Record):
    """``pipeline --json``."""

    schema_: Literal["trainwright/pipeline/1"] = Field(alias="schema")
    format: Literal["buildspec", "batch", "bake"]
    files: tuple[str, ...]
    images: tuple[PipelineImage, ...]
    groups: tuple[PipelineGroup, ...]


class SmokeDocumentRow(Record):
    """One image test."""

    component: str
    check: str
    outcome: Literal["passed", "failed", "skipped"]
    reason: str
    seconds: float


class SmokeDocument(SmokeCounts):
    """``smoke --json``."""

    schema_: Literal["trainwright/smoke/1"] = Field(alias="schema")
    image: str
    image_id: str
    plan: str
    seconds: float
    rows: tuple[SmokeDocumentRow, ...]


class FindingRow(Record):
    """One check of the machine."""

    check: str
    severity: Literal["ok", "warning", "error"]
    message: str
    remedy: str


class DoctorDocument(Record):
    """``doctor --json``."""

    schema_: Literal["trainwright/doctor/1"] = Field(alias="schema")
    findings: tuple[FindingRow, ...]


class LockRow(Record):
    """One entry of a lock that is new, or differs. ``locked`` and ``now`` are versions, checksums or digests."""

    kind: Literal["lock", "base", "archive", "package", "python", "tool", "insecure host"]
    name: str
    locked: str | None
    now: str | None
    state: Literal["new", "changed", "removed", "missing", "gone", "differs", "newer", "unknown"]


class LockDocument(Record):
    """``lock --json``: what changed in the lock, or with ``--check`` how it differs from what there is.

    ``faults`` counts what keeps the lock from being built from: what is missing, gone or different.
    """

    schema_: Literal["trainwright/locked/1"] = Field(alias="schema")
    plan: str
    path: str
    rows: tuple[LockRow, ...]
    faults: int


class MirrorDocument(Record):
    """``mirror pull --json``. ``kinds``: how many files of the lock there are of each kind."""

    schema_: Literal["trainwright/mirror/1"] = Field(alias="schema")
    plan: str
    folder: str
    site: str
    files: int
    bytes: int
    kinds: dict[str, int]


DOCUMENTS: dict[str, type[Record]] = {
    "plan": Plan,
    "plan-lock": PlanLock,
    "locked": LockDocument,
    "mirror": MirrorDocument,
    "record": BuildRecord,
    "failure": FailureDocument,
    "conflict": ConflictDocument,
    "list": ListDocument,
    "built": BuiltDocument,
    "explain": ExplainDocument,
    "build": BuildDocument,
    "stages": StagesDocument,
    "pipeline": PipelineDocument,
    "smoke": SmokeDocument,
    "push": PushDocument,
    "rehearsal": RehearsalDocument,
    "doctor": DoctorDocument,
    "findings": FindingsDocument,
    "estimator": EstimatorDocument,
    "diagnosis": DiagnosisDocument,
    "job": Job,  # not printed but read: the job file
}
