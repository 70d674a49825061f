"""The proof of an image line (``proofs/<framework>/<line>.json``): what was built of which plan, and how it was tested.

A proof is made on one machine and read on others, so it says nothing of the machine: no account, host or path. Its
first value is a digest of all other text, so that an edited proof is not taken for one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from trainwright.core.data_files import parse_json, read_text
from trainwright.core.errors import RequestError
from trainwright.core.fields import Digest, Name, OneLine, Sha256, Stamp, form
from trainwright.core.layout import json_lines
from trainwright.core.records import Field, Record, parse_record
from trainwright.proofs.runs import StepName

SCHEMA: Literal["trainwright/proof/1"] = "trainwright/proof/1"
_REMEDY = (
    "Take the file as it was written (git checkout, or the artifact of the build), or ./invoke prove the line again."
)

LineName = Annotated[str, form(r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$")]
_Count = Annotated[int, Meta(ge=0)]


class ProvenBase(Record):
    """What the image starts from, as its publisher names it; a root file system made locally has a checksum instead."""

    os: str
    image: str | None = None
    digest: Digest | None = None
    sha256: Sha256 | None = None


class Outcomes(Record):
    """Checks by name: those of a rehearsal, or image tests, each as ``component::test``."""

    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


class Rehearsed(Record):
    """The rehearsal: the job, on how many simulated hosts, and its checks by outcome."""

    outcome: Literal["passed", "failed"]
    job: str
    launcher: str
    network: str
    hosts: _Count
    processes_per_host: _Count
    checks: Outcomes
    cause: str | None = Field(default=None, description="what it failed of, by the name of the cause")


class EngineVersions(Record):
    """The engine that built and ran the image."""

    server: OneLine
    client: OneLine
    buildkit: OneLine


class ProofHead(Record, forbid_unknown_fields=False):
    """The part of a proof that says of which plan it is, and when it was made."""

    framework: Name
    line: LineName
    plan: Sha256
    stands_for: Sha256 | None = Field(
        default=None, description="of a twin: the plan that its plan stands for; stand-ins replace what was unreachable"
    )
    outcome: Literal["proven", "failed"]
    failed_step: StepName | None = Field(default=None, description="the first that failed; no key if it is proven")
    date: Stamp

    @property
    def proves(self) -> str:
        """The id of the plan that it is about: its own, or of a twin that of the shipped line."""
        return self.stands_for or self.plan

    @property
    def path(self) -> Path:
        """Its place in a folder of proofs."""
        return Path(self.framework, f"{self.line}.json")


class LineProof(ProofHead, forbid_unknown_fields=True):
    """A proof; :func:`dump` makes its text.

    Attributes:
        image: its id; ``None`` if a step before it failed, and then nothing is known of what is in it.
        sources: checksums of what the build took in, by kind and file; of distribution packages by name and version.
        facts: by component, what the probe found in the image.
        gpu: whether the engine could give containers a GPU; without one the tests that need it are skipped.
        efa: whether the machine has an EFA device.
    """

    schema: Literal["trainwright/proof/1"] = SCHEMA
    version: str
    cuda: str
    python: str
    base: ProvenBase
    flavour: str = ""
    image: Digest | None
    size_bytes: _Count | None
    components: dict[str, _Count] = Field(default={}, description="of these bytes by component; empty in older proofs")
    sources: dict[str, dict[str, str]]
    facts: dict[str, dict[str, str]]
    tests: Outcomes
    rehearsal: Rehearsed | None
    gpu: bool
    efa: bool
    engine: EngineVersions
    revision: str = Field(default="unknown", description="of the source that Trainwright ran from")


def dump(proof: LineProof) -> str:
    """The text of a proof's file: equal proofs give equal text."""
    data = proof.as_json()
    for key in ("failed_step", "components"):
        if not data[key]:
            del data[key]  # proofs from before there was this key keep their text
    body = json_lines(data).removeprefix("{\n") + "\n"
    return f'{{\n "digest": "{_digest(body)}",\n{body}'


def read(path: Path) -> LineProof:
    """The proof in a file.

    Raises:
        RequestError: the file is missing, is not a proof, or was edited.
    """
    return parse(read_text(path), str(path))


def parse(text: str, where: str) -> LineProof:
    """The proof in a text; ``where`` is its file. Raises as :func:`read` does."""
    check(text, where)
    data = parse_json(text, where)
    return parse_record(LineProof, {key: value for key, value in data.items() if key != "digest"}, where)


def check(text: str, where: str) -> None:
    """Compare a proof's text with the digest in it.

    Raises:
        RequestError: there is no digest, or it is another text's.
    """
    head, _, body = text.removeprefix("{\n").partition("\n")
    if not head.startswith(' "digest": "'):
        raise RequestError(f"{where}: not a proof: it does not begin with a digest", remedy=_REMEDY)
    if head != f' "digest": "{_digest(body)}",':
        raise RequestError(f"{where}: was edited: its digest does not fit its text", remedy=_REMEDY)


def _digest(body: str) -> str:
    return f"sha256:{hashlib.sha256(body.encode()).hexdigest()}"
