"""What jobs have found in an image by its digest: read, attached to the image, and asked before it is used.

A job runs where the image is pulled as a training job pulls it: in a cluster, on a GPU in CodeBuild. Its result comes
back as a line of JSON (``templates/pipeline/kubernetes/smoke.py``) and is attached as a statement about the image.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from datetime import datetime
from typing import Any, Literal

from trainwright.build.labels import OCI
from trainwright.build.store import BuildRecord
from trainwright.core.errors import ProofFailed
from trainwright.core.records import MisfitError, Record, read_record
from trainwright.plan.plan import LABEL
from trainwright.push.attest import IN_TOTO, PREDICATE, TEST_RESULT, Attestation, attested, statement
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.proof import gate
from trainwright.push.published import Published
from trainwright.push.registry import Registry

SCHEMA: Literal["trainwright/job-result/1"] = "trainwright/job-result/1"
JOB = "job"  # the name of the attached document, and of the configuration in it


class JobResult(Record):
    """What a job says of the image that it ran in.

    ``image`` is the digest by which the job was started, ``request`` the checksum of what it was asked, ``content``
    that of the packages that it found, ``gpus`` how many it was given, ``finished`` UTC in RFC 3339.
    """

    schema: Literal["trainwright/job-result/1"]
    image: str
    plan: str
    request: str
    content: str
    gpus: int
    finished: str
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    digest: str

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.finished)


def read_result(text: str, where: str) -> JobResult:
    """The result that a job has left.

    Args:
        text: a line of JSON.
        where: it came from, for messages.

    Raises:
        ProofFailed: it is incomplete, or was changed.
    """
    try:
        said = json.loads(text)
        result = read_record(JobResult, said)
        told = {name: value for name, value in said.items() if name != "digest"}
    except (ValueError, AttributeError, MisfitError) as wrong:
        raise _refused(where, f"not the result of a job ({' '.join(str(wrong).split())[:200]})") from None
    if _seal(told) != result.digest:
        raise _refused(where, "it was changed after the job had written it")
    return result


def sealed(result: JobResult) -> JobResult:
    """A result with the checksum of all else in it."""
    return result.replace(digest=_seal({name: value for name, value in result.as_json().items() if name != "digest"}))


def _seal(told: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def check_about(result: JobResult, digest: str, published: Published | None, where: str) -> None:
    """Check that a result is about an image.

    Args:
        result: of a job.
        digest: of the image, as it is named.
        published: what the image's labels say.
        where: the result came from, for messages.

    Raises:
        ProofFailed: it is about another image.
    """
    if result.image != digest:
        raise _refused(where, f"it is about another image, {result.image or 'which it does not name'}")
    if published is None or result.plan != published.plan:
        plan = (published.plan if published is not None else "")[:12] or "none"
        raise _refused(where, f"it is about the plan {result.plan[:12]}, and the image is of {plan}")


def content_of(found: dict[str, Any]) -> str:
    """The checksum of the packages that a probe has found, as a job writes it."""
    content = [found.get(name) for name in ("os", "packages", "distributions")]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def job_statement(result: JobResult, digest: str) -> Attestation:
    """A result as a statement about an image (in-toto's test result)."""
    predicate = {
        "result": "FAILED" if result.failed else "PASSED",
        "configuration": [
            {
                "name": JOB,
                "digest": {"sha256": result.request},
                "annotations": {
                    f"{LABEL}.plan": result.plan,
                    "gpus": str(result.gpus),
                    "finished": result.finished,
                },
            }
        ],
        "passedTests": list(result.passed),
        "warnedTests": [],
        "failedTests": list(result.failed),
    }
    made = statement(JOB, TEST_RESULT, digest, predicate)
    notes = {f"{OCI}.created": result.finished, f"{OCI}.title": f"result of a job with {result.gpus} GPUs"}
    return Attestation(made.name, made.kind, made.content, {**made.notes, **notes})


def job_lacks(ecr: Ecr, registry: Registry, image: ImageManifest, among: Collection[str] | None = None) -> str:
    """What the newest job in an image found wrong; empty if nothing, or if no job has run.

    Jobs with and without GPUs are told apart. A failure counts whoever attached it; what passes after it has to be
    signed where signatures name the documents that count. Of two that finished in the same second, the failure counts.

    Args:
        ecr: the repository.
        registry: the same, over HTTP.
        image: a single one.
        among: the digests of the documents that count, if a signature names some.
    """
    newest: dict[bool, tuple[str, list[str]]] = {}
    for one in ecr.referrers(image.digest, IN_TOTO):
        if one.annotations.get(PREDICATE) != TEST_RESULT:
            continue
        try:
            said = json.loads(registry.document(one.digest))
            about = {f"sha256:{each['digest']['sha256']}" for each in said["subject"]}
            (how,) = said["predicate"]["configuration"]
            failed = [str(line) for line in said["predicate"]["failedTests"]]
            if how["name"] != JOB or image.digest not in about:
                continue
            finished, gpus = str(how["annotations"]["finished"]), how["annotations"]["gpus"] != "0"
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # of somebody else
        before, wrong = newest.get(gpus, ("", []))
        later = (finished, bool(failed)) > (before, bool(wrong))
        if later and (failed or among is None or one.digest in among):
            newest[gpus] = (finished, failed)
    return "; ".join(
        f"a job {'with' if gpus else 'without'} GPUs failed in it on {finished[:10]}: {failed[0]}"
        for gpus, (finished, failed) in sorted(newest.items())
        if failed
    )


def gate_attested(
    ecr: Ecr,
    registry: Registry,
    image: ImageManifest,
    among: Collection[str] | None = None,
) -> BuildRecord:
    """The record that is attached to an image, if the whole proof in the registry lets the image go on.

    Args:
        ecr, registry, image, among: as of :func:`trainwright.push.attest.attested`.

    Raises:
        ProofFailed: it is not proven, or the newest job in it failed.
        RegistryRefused: the registry refused.
    """
    record, address = attested(ecr, registry, image, registry.published(image), among), ecr.place.digested(image.digest)
    gate(record, address, unproven=False)
    if lacking := job_lacks(ecr, registry, image, among):
        raise ProofFailed(
            f"{address}: {lacking}",
            remedy="Run the job again, and attach its result: ./invoke smoke --image ADDRESS@DIGEST --import FILE "
            "(docs/pipeline.md). The newest result counts.",
            image=address,
        )
    return record


def _refused(where: str, why: str) -> ProofFailed:
    return ProofFailed(
        f"{where}: {why}; nothing was attached",
        remedy="Run the job again. Its result is the message of its container, in CodeBuild the variable SMOKE_RESULT.",
    )
