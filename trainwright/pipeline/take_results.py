"""Results of jobs that ran elsewhere, in an image by its digest: held against the image, and attached to it.

An image that was built without an engine (``pipeline --format kubernetes``) has no build record. What its builder found
and what a job has found in the pushed image make one, and the image gets its fixed tag. No layer is read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainwright.build.labels import revision
from trainwright.build.store import BuildRecord, EngineUsed
from trainwright.catalog.catalog import Catalog
from trainwright.core.data_files import read_state
from trainwright.core.errors import ProofFailed, RequestError
from trainwright.core.records import Document, MisfitError, read_record
from trainwright.core.say import Say
from trainwright.plan.plan import Plan
from trainwright.prove import probe as probing
from trainwright.prove.in_build import ALL, ASKED, BUILD, read
from trainwright.prove.smoke import CONTRACT, BuiltProof, SmokeReport, SmokeRow
from trainwright.push.attest import attested, proof_documents, statements
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.job_results import JOB, JobResult, check_about, content_of, job_statement, read_result
from trainwright.push.promote import find_image
from trainwright.push.proof import gate
from trainwright.push.published import Published
from trainwright.push.push import Sign
from trainwright.push.refusals import clash
from trainwright.push.registry import Registry
from trainwright.push.sbom import make_sbom
from trainwright.push.tags import is_immutable, tags_of
from trainwright.signing.verify import image_there
from trainwright.site.site import Site

_REVISIONS = 100  # that are tried: images of one plan on one day


class TakenDocument(Document):
    """``smoke --import --json``: what a job has found in an image, and what is attached to that now.

    ``attached``: the documents by name, with the digests of their manifests. ``tag``: the fixed tag that the image got
    here; empty if it has one, or is not proven.
    """

    schema: Literal["trainwright/taken/1"]
    image: str
    plan: str
    gpus: int
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    attached: dict[str, str]
    tag: str


@dataclass(frozen=True)
class _Image:
    """An image in its repository. ``single`` is the one that an index leads to."""

    ecr: Ecr
    registry: Registry
    manifest: ImageManifest
    single: ImageManifest
    published: Published | None

    @property
    def address(self) -> str:
        """By its digest."""
        return self.ecr.place.digested(self.manifest.digest)


def take_results(
    address: str, paths: Sequence[str], site: Site, catalog: Catalog, *, sign: Sign | None = None, say: Say
) -> TakenDocument:
    """Attach the result of a job to the image that it ran in; make its record, if it has none.

    Args:
        address: of the image, by digest.
        paths: the file with the job's result; for an image without a record, the folder of its builder's results, too.
        site: proxies and certificate authorities.
        catalog: has the lines, to which tags belong.
        sign: signs the image with what is attached to it.
        say: progress callback.

    Raises:
        RequestError: a word is invalid, or a file is missing.
        ProofFailed: a result is incomplete, was changed, or is of another image; or the job failed. What it found is
            attached in the last case alone.
        RegistryRefused: the image is not there, or AWS or the registry refused.
    """
    file, folder = _places(paths)
    place, digest = find_image(address, "smoke")
    result = read_result(_text(file), str(file))
    ecr = Ecr(place, site)
    registry = Registry(ecr, site, say=say)
    manifest = image_there(ecr, digest)
    single = registry.single(manifest)
    image = _Image(ecr, registry, manifest, single, registry.published(single))
    check_about(result, digest, image.published, str(file))
    record, made = _attached(image), None
    if record is None and not result.failed:
        made = _made(image, result, folder)
        if made is None:
            say("its builder could run no image tests, so it gets no record: ./invoke build --smoke and push make one")
        else:
            gate(made, address, unproven=False)
    attached = {JOB: job_statement(result, single.digest).attach(registry, single)}
    tag = ""
    if made is not None and image.published is not None:
        sbom = make_sbom(made.plan, made.probe, made.image_id, image.published.built).encode()
        proof = [*statements(made, single.digest, sbom, image.published.built)]
        attached |= {one.name: one.attach(registry, single) for one in proof}
    if sign is not None:
        attached["signature"] = sign(ecr, registry, manifest, proof_documents(ecr, single.digest))
    if (proven := made or record) and not result.failed and not any(map(is_immutable, ecr.tags_of(digest))):
        tag = _tagged(image, proven.plan, catalog)
    if result.failed:
        raise ProofFailed(
            "\n".join([f"{address}: a job in it failed", *(f"  {line}" for line in result.failed)]),
            remedy="This is attached to the image, so promote and tags advance refuse it, until a later job passes.",
            image=address,
            attached=attached,
            failed=list(result.failed),
        )
    return TakenDocument(
        schema="trainwright/taken/1",
        image=address,
        plan=result.plan,
        gpus=result.gpus,
        passed=result.passed,
        failed=result.failed,
        attached=attached,
        tag=tag,
    )


def _places(paths: Sequence[str]) -> tuple[Path, Path | None]:
    """The file with the result, and the folder of the builder's results."""
    found = [Path(path) for path in paths]
    if gone := [path for path in found if not path.exists()]:
        raise RequestError(
            f"--import {gone[0]}: no such file or folder",
            remedy="kubernetes/run.sh leaves them in reports/kubernetes: LINE.smoke.json and LINE.proof.",
        )
    files, folders = [path for path in found if path.is_file()], [path for path in found if path.is_dir()]
    if len(files) != 1 or len(folders) > 1:
        raise RequestError(
            f"--import: {len(files)} files and {len(folders)} folders, but one file with the result of a job is needed",
            remedy="For example: --import reports/kubernetes/LINE.smoke.json --import reports/kubernetes/LINE.proof",
        )
    return files[0], folders[0] if folders else None


def _text(file: Path) -> str:
    return file.read_bytes().decode(errors="replace")


def _attached(image: _Image) -> BuildRecord | None:
    """The record that is attached to an image."""
    try:
        return attested(image.ecr, image.registry, image.single, image.published)
    except ProofFailed:
        return None


def _made(image: _Image, result: JobResult, folder: Path | None) -> BuildRecord | None:
    """The record of an image that no engine has, of what its builder and a job have found.

    ``None`` if the builder could run no image tests, as in images with an old Python and those of AWS. The record's
    size is that of the files that the probe counted; it knows nothing of layers and steps.

    Raises:
        ProofFailed: the builder's results are missing, incomplete or of another image.
    """
    if folder is None:
        raise ProofFailed(
            f"{image.address}: no build record is attached to it, and a job alone does not prove an image",
            remedy="Add what its builder found: --import reports/kubernetes/LINE.proof. For an image of this "
            "engine, ./invoke push attaches the record.",
            image=image.address,
        )
    before, plan = _before(image, folder)
    if not before.tested:
        return None
    if content_of(before.found) != result.content:
        raise ProofFailed(
            f"{folder}: the builder tested an image with other packages than the job found; nothing was attached",
            remedy="Build again: the image that was pushed is not the one that was tested.",
        )
    record = _record(image, folder, before, plan)
    smoke = SmokeReport(image.address, tuple(_rows(before, result)), sum(row.seconds for row in before.rows))
    return record.replace(smoke=smoke.document(image=image.address, image_id=record.image_id, plan=plan.id).as_json())


def record_of_builder(address: str, folder: Path, site: Site, *, say: Say) -> BuildRecord:
    """The record of an image in a registry that only a builder has seen, without tests.

    Args:
        address: of the image, by digest.
        folder: of the builder's results.
        site: proxies and certificate authorities.
        say: progress callback.

    Raises:
        ProofFailed: the results are incomplete or of another image.
        RegistryRefused: the image is not there, or AWS or the registry refused.
    """
    place, digest = find_image(address, "smoke")
    ecr = Ecr(place, site)
    registry = Registry(ecr, site, say=say)
    manifest = image_there(ecr, digest)
    single = registry.single(manifest)
    image = _Image(ecr, registry, manifest, single, registry.published(single))
    return _record(image, folder, *_before(image, folder))


def _before(image: _Image, folder: Path) -> tuple[BuiltProof, Plan]:
    """What a builder found in an image, and its plan."""
    before, plan = read(folder, folder / ASKED, asked=ALL), _plan(folder)
    if image.published is None or plan.id != image.published.plan:
        raise ProofFailed(
            f"{folder}: of the plan {plan.id[:12]}, and the image is of another; nothing was attached",
            remedy="Name the folder of the same line and run.",
        )
    return before, plan


def _record(image: _Image, folder: Path, before: BuiltProof, plan: Plan) -> BuildRecord:
    assert image.published is not None, "it is of the plan"
    data = read_state(folder / BUILD)
    how: dict[str, Any] = data if isinstance(data, dict) else {}
    image_id = str(json.loads(image.single.text)["config"]["digest"])
    config = probing.registry_config(
        image_id, image.registry.configuration(image.single) or {}, int(before.found.get("bytes") or 0)
    )
    return BuildRecord(
        image_id=image_id,
        tags=plan.tags,
        plan=plan,
        size_bytes=int(before.found.get("bytes") or 0),
        seconds=float(how.get("seconds") or 0),
        cached=False,
        cached_steps=0,
        total_steps=0,
        built_at=image.published.built.isoformat(timespec="seconds"),
        ledger=(),
        engine=EngineUsed(
            server="none", client=str(how.get("client") or "buildctl"), buildkit=str(how.get("buildkit") or "unknown")
        ),
        source_revision=revision(),
        probe={**before.found, "image": config},
        pushed=image.address,
    )


def _plan(folder: Path) -> Plan:
    """The plan that a builder was asked to build."""
    try:
        return read_record(Plan, read_state(folder / ASKED / "proof" / "plan.json"))
    except MisfitError as wrong:
        raise ProofFailed(
            f"{folder}: not the results of a builder ({wrong}); nothing was attached",
            remedy="kubernetes/run.sh leaves them in reports/kubernetes/LINE.proof.",
        ) from None


def _rows(before: BuiltProof, result: JobResult) -> list[SmokeRow]:
    """A row for each test of the builder, for each that it left, and for what the job has found."""
    left = [(*name.partition("::")[::2], reason) for name, reason in before.left.items()]
    return [
        *before.rows,
        *(
            SmokeRow(component=component, check=check, outcome="skipped", reason=f"not run: {reason}", seconds=0.0)
            for component, check, reason in left
        ),
        *(
            SmokeRow(component=CONTRACT, check=f"job: {line}", outcome="passed", reason="", seconds=0.0)
            for line in result.passed
        ),
    ]


def _tagged(image: _Image, plan: Plan, catalog: Catalog) -> str:
    """Give a proven image its fixed tag, under the first revision that no other image has."""
    assert image.published is not None, "a record says what it is"
    first = ""
    for number in range(1, _REVISIONS + 1):
        tag = tags_of(plan, image.published.built, catalog, revision=number).immutable
        first = first or tag
        if image.ecr.digest(tag) in (None, image.manifest.digest) and image.ecr.put_tag(image.manifest, tag):
            return tag
    raise clash(image.ecr.place, first, "one of many")
