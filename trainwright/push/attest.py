"""The proof of an image as statements about its digest (in-toto), attached to the image in its registry.

They go where the image goes, so that another machine, account or year can ask what was built, from what, and how it was
tested. Whoever may push to the repository can attach others: without a signature of them (:mod:`trainwright.signing`)
they are as trustworthy as the repository's permissions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trainwright.build.labels import OCI
from trainwright.build.store import BuildRecord
from trainwright.core.data_files import read_state
from trainwright.core.errors import ProofFailed
from trainwright.core.masking import masked
from trainwright.core.paths import state_dir
from trainwright.core.records import MisfitError, read_record
from trainwright.plan.plan import LABEL, Plan
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.proof import smoke_lacks
from trainwright.push.published import Published
from trainwright.push.registry import Registry
from trainwright.push.sbom import MEDIA_TYPE as SBOM
from trainwright.push.tags import PROOF_PREFIX
from trainwright.soci.manifests import ORIGINAL
from trainwright.user.files import UserFiles

IN_TOTO = "application/vnd.in-toto+json"
PREDICATE = "in-toto.io/predicate-type"  # the annotation by which BuildKit and others tell statements apart
PROVENANCE = "https://slsa.dev/provenance/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
# Our own: the whole build record, with the probe and the smoke run.
RECORD = "urn:trainwright:build-record:1"
SCAN = "urn:trainwright:scan:1"  # the document of `scan`: vulnerabilities, and the databases with checksum and date
_BUILD_TYPE, _BUILDER = "urn:trainwright:build:1", "urn:trainwright:builder:"
_REHEARSALS = 200  # of the newest, those of the image are attached


@dataclass(frozen=True)
class Attestation:
    """A document about an image.

    ``name`` tells it from others of the same kind; ``notes`` are its annotations; ``artifact`` is the type of its
    manifest, if that is not the document's.
    """

    name: str
    kind: str
    content: bytes
    notes: Mapping[str, str]
    artifact: str = ""

    def attach(self, registry: Registry, image: ImageManifest) -> str:
        """Attach it to an image, unless it is; returns the digest of its manifest.

        It gets a tag, so that no lifecycle rule for untagged images removes it.
        """
        mark = hashlib.sha256(self.content).hexdigest()[:8]
        tag = f"{PROOF_PREFIX}{image.digest.removeprefix('sha256:')}.{self.name}.{mark}"
        return registry.attach(image, self.content, self.kind, self.notes, tag=tag, artifact=self.artifact)


def subject_of(tag: str) -> str:
    """The digest of the image whose document has this tag; empty if it is not such a tag."""
    # Others have tags of the form sha256-DIGEST.sig.
    match = re.fullmatch(rf"{PROOF_PREFIX}([0-9a-f]{{64}})\.[a-z]+(?:\.[0-9]+)?\.[0-9a-f]{{8}}", tag)
    return f"sha256:{match[1]}" if match else ""


def proof_documents(ecr: Ecr, digest: str) -> list[tuple[str, str]]:
    """The documents of the proof that are attached to an image: what each is, and the digest of its manifest."""
    found = [(one.annotations.get(PREDICATE, one.kind), one) for one in ecr.referrers(digest)]
    return sorted((name, one.digest) for name, one in found if one.kind in (IN_TOTO, SBOM))


def statements(
    record: BuildRecord, digest: str, sbom: bytes, built: datetime, *, scan: Mapping[str, Any] | None = None
) -> Iterator[Attestation]:
    """What is known of an image: bill of materials, record, provenance, smoke run, scan, its rehearsals here.

    Args:
        record: of the image. Its file paths stay here, and secrets are masked.
        digest: of the image's manifest, ``sha256:…``.
        sbom: the bill of materials (CycloneDX).
        built: time of the build.
        scan: the document of a scan for vulnerabilities, if there was one.
    """
    found = [
        Attestation("sbom", SBOM, sbom, {}),
        statement("record", RECORD, digest, _travelling(record).as_json()),
        statement("provenance", PROVENANCE, digest, _provenance(record)),
    ]
    if record.smoke is not None:
        found.append(statement("smoke", TEST_RESULT, digest, _smoke(record)))
    if scan is not None:
        found.append(statement("scan", SCAN, digest, scan))
    found += [
        statement(f"rehearsal.{number}", TEST_RESULT, digest, _rehearsal(report))
        for number, report in enumerate(_rehearsals(record.image_id), 1)
    ]
    for each in found:
        title = f"{each.name} of {record.plan.framework}-training {record.plan.version}"
        told = {"created": built.isoformat(), "title": title, "version": record.plan.version}
        yield replace(each, notes={**each.notes, **{f"{OCI}.{key}": value for key, value in told.items()}})


def attested(
    ecr: Ecr,
    registry: Registry,
    image: ImageManifest,
    published: Published | None,
    among: Collection[str] | None = None,
) -> BuildRecord:
    """The build record that is attached to an image.

    Args:
        ecr: the repository.
        registry: the same, over HTTP.
        image: a single one.
        published: what its labels say.
        among: the digests of the documents that count, if a signature names some.

    Raises:
        ProofFailed: none is attached, or it is not about this image.
        RegistryRefused: the registry refused.
    """
    found: list[BuildRecord] = []
    text = json.loads(image.text)
    # With a SOCI index, an image has another digest than in the engine, and its manifest says which that was.
    ids = ((text.get("config") or {}).get("digest"), image.digest, (text.get("annotations") or {}).get(ORIGINAL))
    for one in ecr.referrers(image.digest, IN_TOTO):
        if one.annotations.get(PREDICATE) != RECORD or (among is not None and one.digest not in among):
            continue
        try:
            said = json.loads(registry.document(one.digest))
            record = read_record(BuildRecord, said["predicate"])
            about = {f"sha256:{each['digest']['sha256']}" for each in said["subject"]}
        except (ValueError, KeyError, TypeError, AttributeError, MisfitError):
            continue  # of a later version, or of somebody else
        # An image without a passed smoke run is sent with labels of its own, so its id is another.
        same = record.image_id in ids or (published is not None and published.unproven)
        if image.digest in about and same and published is not None and record.plan.id == published.plan:
            found.append(record)
    if found:
        # An image may have been tested, or built again with the same content, since it was pushed first.
        found.sort(key=lambda record: record.built_at, reverse=True)
        return next((record for record in found if not smoke_lacks(record)), found[0])
    raise ProofFailed(
        f"{image.digest}: no build record of this image is attached to it in its registry",
        remedy="./invoke push of the image, from the machine that built it, attaches its proof: --image IMAGE "
        "--repository REPOSITORY sends nothing else again.",
        image=image.digest,
    )


def statement(name: str, kind: str, digest: str, predicate: Mapping[str, Any]) -> Attestation:
    """A statement of in-toto about an image; secrets in it are masked.

    Args:
        name: of the document.
        kind: the type of the predicate.
        digest: of the image's manifest, ``sha256:…``.
        predicate: what is said.
    """
    body = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"digest": {"sha256": digest.removeprefix("sha256:")}}],
        "predicateType": kind,
        "predicate": masked(dict(predicate)),
    }
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return Attestation(name, IN_TOTO, text.encode(), {PREDICATE: kind})


def _travelling(record: BuildRecord) -> BuildRecord:
    """The record without the paths of this machine, which say nothing elsewhere."""
    user = UserFiles(**{**record.plan.user.as_json(), "requirements": None, "code": None})
    return record.replace(plan=record.plan.replace(user=user))


def _provenance(record: BuildRecord) -> Mapping[str, Any]:
    """How the image was built (SLSA provenance 1): the request, and every archive and package with its checksum."""
    plan = record.plan
    asked = {"framework": plan.framework, "version": plan.version, "cuda": plan.cuda, "python": plan.python}
    return {
        "buildDefinition": {
            "buildType": _BUILD_TYPE,
            "externalParameters": asked | {"base": plan.base.os, "flavour": plan.flavour, "plan": plan.id},
            "internalParameters": {"components": {c.name: f"{c.version} ({c.provider})" for c in plan.components}},
            "resolvedDependencies": list(_dependencies(plan, record.source_revision)),
        },
        "runDetails": {
            "builder": {
                "id": f"{_BUILDER}{record.engine.buildkit}",
                "version": {"engine": record.engine.server, "client": record.engine.client},
            },
            "metadata": {"invocationId": record.image_id, "finishedOn": record.built_at},
        },
    }


def _dependencies(plan: Plan, revision: str) -> Iterator[Mapping[str, Any]]:
    if revision not in ("", "unknown"):
        yield {"name": "trainwright", "digest": {"gitCommit": revision}}
    if plan.base.image:
        digest = plan.base.digest or plan.base.image.rpartition("@")[2]
        known = {"digest": {"sha256": digest.removeprefix("sha256:")}} if digest.startswith("sha256:") else {}
        yield {"name": "base", "uri": f"docker://{plan.base.image}", **known}
    for component in plan.components:
        for source in component.sources:
            if source.sha256 is not None:
                name = source.file or source.package or source.url or component.name
                where = {"uri": source.url} if source.url else {}
                yield {"name": name, **where, "digest": {"sha256": source.sha256}}


def _smoke(record: BuildRecord) -> Mapping[str, Any]:
    smoke = record.smoke or {}
    rows: list[Mapping[str, Any]] = [row for row in smoke.get("rows", ()) if isinstance(row, Mapping)]
    named = {
        outcome: [f"{r.get('component')}: {r.get('check')}" for r in rows if r.get("outcome") == outcome]
        for outcome in ("passed", "failed", "skipped")
    }
    return {
        "result": "FAILED" if smoke.get("failed") else "PASSED" if smoke.get("passed") else "WARNED",
        "configuration": [{"name": "smoke", "annotations": {f"{LABEL}.plan": record.plan.id}}],
        "passedTests": named["passed"],
        "warnedTests": named["skipped"],
        "failedTests": named["failed"],
    }


def _rehearsals(image_id: str) -> Iterator[Mapping[str, Any]]:
    """The reports of an image's rehearsals on this machine, the newest first."""
    reports = sorted((state_dir() / "rehearsals").glob("*/report.json"), key=lambda path: path.parent.name)
    for path in reversed(reports[-_REHEARSALS:]):
        report = read_state(path)
        if isinstance(report, dict) and report.get("image_id") == image_id and isinstance(report.get("checks"), list):
            yield report


def _rehearsal(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """A rehearsal without its logs, which may quote anything."""
    rows = [row for row in report["checks"] if isinstance(row, Mapping)]
    named = {
        outcome: [str(r.get("check")) for r in rows if r.get("outcome") == outcome]
        for outcome in ("passed", "failed", "skipped")
    }
    hosts = len(report.get("hosts") or ())
    return {
        "result": "FAILED" if named["failed"] else "PASSED",
        "configuration": [{"name": "rehearsal", "annotations": {"hosts": str(hosts)}}],
        "passedTests": named["passed"],
        "warnedTests": named["skipped"],
        "failedTests": named["failed"],
    }
