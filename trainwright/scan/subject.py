"""What a word of ``scan`` means: an image built here or in a registry, an image line, a bill of materials."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from trainwright.build.store import BuildRecord, find_record
from trainwright.catalog.catalog import Catalog, open_catalog
from trainwright.catalog.listing import named
from trainwright.core.data_files import read_text
from trainwright.core.errors import ProofFailed, RegistryRefused, RequestError
from trainwright.core.say import Say
from trainwright.plan.of_line import plan_of
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import find_lock
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push.ecr import Ecr
from trainwright.push.promote import find_image
from trainwright.push.references import parse_host
from trainwright.push.registry import Registry
from trainwright.push.sbom import MEDIA_TYPE, make_sbom
from trainwright.scan.allow import Allowance, read_allowances
from trainwright.scan.database import EXPORT
from trainwright.scan.inventory import Inventory, of_plan, of_sbom
from trainwright.scan.remote_database import RemoteDatabase
from trainwright.site.site import Site


def settings_of(
    database: str | None, allow: str | None, site: Site, *, say: Say
) -> tuple[Path | RemoteDatabase, tuple[Allowance, ...]]:
    """The database, and what is allowed: of the command line, otherwise the site's.

    Raises:
        RequestError: neither names a database, or the file of allowances is invalid.
    """
    if database and database.startswith(("https://", "http://")):
        return RemoteDatabase(database, site, say=say), allowed(allow, site)
    root = Path(database) if database else site.vulnerabilities
    if root is None:
        raise RequestError(
            "no vulnerability database is named",
            remedy=f'--database DIR or {EXPORT}, or vulnerabilities = "DIR" in trainwright.toml (docs/scan.md)',
        )
    return root, allowed(allow, site)


def allowed(allow: str | None, site: Site) -> tuple[Allowance, ...]:
    """The vulnerabilities that are accepted: of the command line's file, otherwise of the site's.

    Raises:
        RequestError: the file is missing or invalid.
    """
    file = Path(allow) if allow else site.allowed_vulnerabilities
    return read_allowances(file) if file is not None else ()


def find(word: str, site: Site, *, say: Say) -> Inventory:
    """What is in the image or line that a word names.

    Args:
        word: tag or id of an image built here, an address in ECR by digest, an image line, a request, or a file.
        site: where locks and registries are.
        say: progress callback.

    Raises:
        RequestError: nothing has that name.
        Conflict: the request has no plan.
        ProofFailed: the image in the registry has no bill of materials.
        RegistryRefused: the registry refused.
    """
    if parse_host(word.partition("/")[0]):
        return _in_registry(word, site, say)
    if word.endswith(".json"):
        return of_sbom(read_text(Path(word)), word)
    try:
        return of_record(find_record(word), word)
    except RequestError as unbuilt:
        try:
            plan = _planned(word, open_catalog())
        except RequestError as unknown:
            # A tag of ours is looked for among images; anything else reads as a request.
            raise (unbuilt if not word or word.startswith("trainwright/") else unknown) from None
    return of_plan(plan, find_lock(plan, site), word)


def of_record(record: BuildRecord, name: str) -> Inventory:
    """What is in an image that was built here."""
    sbom = make_sbom(record.plan, record.probe, record.image_id, datetime.fromisoformat(record.built_at))
    return of_sbom(sbom, name, record.image_id)


def _planned(word: str, catalog: Catalog) -> Plan:
    if "/" not in word or ":" in word:
        return resolve(make_request(short=word), catalog)
    entries = named(catalog, [word])
    if len(entries) > 1:
        raise RequestError(
            f"{word}: {len(entries)} image lines; name a single one", remedy="For example: pytorch/cu126"
        )
    return plan_of(entries[0], catalog)


def _in_registry(address: str, site: Site, say: Say) -> Inventory:
    """What the bill of materials lists that is attached to an image in a registry."""
    place, digest = find_image(address, "scan")
    ecr = Ecr(place, site)
    manifest = None if ecr.repository() is None else ecr.manifest(digest=digest)
    if manifest is None:
        raise RegistryRefused(f"{address}: no such image", remedy="./invoke tags list", cause="missing", place=address)
    registry = Registry(ecr, site, say=say)
    single = registry.single(manifest)
    attached = ecr.referrers(single.digest, MEDIA_TYPE)
    if not attached:
        raise ProofFailed(
            f"{address}: no bill of materials is attached to it",
            remedy="./invoke push attaches one; ./invoke scan sbom.cdx.json scans one that another program made.",
            image=digest,
        )
    # There are several if the image was pushed again by a version that knows more of it: the longest says most.
    return of_sbom(max((registry.document(one.digest).decode() for one in attached), key=len), address, digest)
