"""``smoke --attach``: the image tests of an image in a registry, on any machine with an engine; the result is attached.

The image comes by its digest, and what it is held to from the build record that is attached to it. A machine with GPUs
so tests what the one that built it had to skip.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from trainwright.build import store
from trainwright.build.smoke import smoke_record
from trainwright.build.store import BuildRecord
from trainwright.catalog.catalog import Catalog
from trainwright.core.errors import EngineError, ProofFailed
from trainwright.core.junit import check_junit
from trainwright.core.records import read_record
from trainwright.core.say import Say
from trainwright.engine.engine import Engine, connect, sdk
from trainwright.pipeline.take_results import record_of_builder, take_results
from trainwright.prove import probe as probing
from trainwright.prove.smoke import SmokeDocument
from trainwright.push.attest import attested, proof_documents
from trainwright.push.ecr import Ecr
from trainwright.push.job_results import SCHEMA, JobResult, content_of, job_statement, sealed
from trainwright.push.promote import find_image
from trainwright.push.push import Sign
from trainwright.push.registry import Registry
from trainwright.signing.verify import image_there
from trainwright.site.site import Site


def smoke_by_digest(
    address: str,
    site: Site,
    folder: Path | None,
    catalog: Catalog,
    *,
    sign: Sign | None = None,
    junit: Path | None = None,
    say: Say,
) -> SmokeDocument:
    """Pull an image, run its tests, and attach what they found to it, failures as well.

    Its build record is kept here, as if it had been built on this machine: ``rehearse`` and ``push`` find it.

    Args:
        address: of the image in Amazon ECR, by digest.
        site: proxies and certificate authorities.
        folder: of the builder's results, for an image without a build record: one is made, and it gets its fixed tag.
        catalog: has the lines, to which tags belong.
        sign: signs the image with what is attached to it.
        junit: takes the checks as a JUnit report, failed or not.
        say: progress callback.

    Raises:
        RequestError: it is not such an address.
        ProofFailed: no build record is attached to the image, or a check failed. Then that is attached.
        RegistryRefused: the image is not there, or AWS or the registry refused.
        EngineError: no engine answers, or it cannot pull the image.
    """
    if junit is not None:
        check_junit(junit)
    place, digest = find_image(address, "smoke")
    ecr = Ecr(place, site)
    registry = Registry(ecr, site, say=say)
    manifest = image_there(ecr, digest)
    single = registry.single(manifest)
    published, begun = registry.published(single), None
    try:
        record = attested(ecr, registry, single, published)
    except ProofFailed:
        if folder is None:
            raise
        record = begun = record_of_builder(address, folder, site, say=say)
    engine = connect(say=say)
    image_id = _pull(engine, ecr, place.digested(single.digest), say)
    if begun is not None:
        # Its builder has looked into it; that it is the one that was pushed is seen here.
        probed = probing.probe(engine.client.path, image_id, begun.plan.as_json(), env=engine.cli_env)
        probing.check(begun.plan.as_json(), probed)
        record = begun.replace(probe=probed)
    # Without an earlier run: what is in the record afterwards is of this one.
    kept = store.load(image_id) if begun is None else None
    record = (kept or record).replace(image_id=image_id, smoke=None)
    store.save(record)
    failed: ProofFailed | None = None
    try:
        record = smoke_record(record, address, engine, say=say, junit=junit)[0]
    except ProofFailed as failure:
        found = store.load(image_id)
        if found is None or found.smoke is None:  # they did not come to an end
            raise
        record, failed = found, failure
    result = _result(record, digest, gpus=engine.gpus)
    if begun is not None and folder is not None:
        with tempfile.TemporaryDirectory(prefix="trainwright-") as scratch:
            file = Path(scratch, "job.json")
            file.write_text(json.dumps(result.as_json()))
            taken = take_results(address, [str(file), str(folder)], site, catalog, sign=sign, say=say)
        say(f"attached to {address}: {', '.join(taken.attached)}; tag {taken.tag}")
        return read_record(SmokeDocument, record.smoke)
    made = job_statement(result, single.digest).attach(registry, single)
    say(f"attached to {address}: {made}")
    if sign is not None:
        sign(ecr, registry, manifest, proof_documents(ecr, single.digest))
    if failed is not None:
        raise failed
    return read_record(SmokeDocument, record.smoke)


def _pull(engine: Engine, ecr: Ecr, address: str, say: Say) -> str:
    """Have the engine pull an image; its id there."""
    from docker.errors import DockerException

    say(f"pulling {address}")
    token, client = ecr.token(), sdk(engine)
    try:
        found = client.images.pull(address, auth_config={"username": token.user, "password": token.password})
        return str(found.id)
    except DockerException as refused:
        raise EngineError(
            f"the engine cannot pull {address}: {' '.join(str(refused).split())[:300]}",
            remedy="./invoke doctor shows what is wrong with the engine; df -h, whether its disk is full.",
        ) from None
    finally:
        client.close()


def _result(record: BuildRecord, digest: str, *, gpus: bool) -> JobResult:
    """What the tests found, as the result of a job."""
    smoke = read_record(SmokeDocument, record.smoke)
    by_outcome = {
        outcome: tuple(f"{row.component}: {row.check}" for row in smoke.rows if row.outcome == outcome)
        for outcome in ("passed", "failed")
    }
    asked = json.dumps(sorted(f"{row.component}: {row.check}" for row in smoke.rows))
    made = JobResult(
        schema=SCHEMA,
        image=digest,
        plan=record.plan.id,
        request=hashlib.sha256(asked.encode()).hexdigest(),
        content=content_of(record.probe),
        gpus=int(gpus),
        finished=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        passed=by_outcome["passed"],
        failed=by_outcome["failed"],
        digest="",
    )
    return sealed(made)
