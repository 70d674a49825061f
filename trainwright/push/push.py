"""From images of this machine to addresses by digest: every check first, then layers, then the tags that move.

The order is what keeps a registry sound. Nothing is sent before every image has passed its gate and every registry has
answered; an image is sent under its immutable tag alone; its digest is read back; then tags move, by a call that sends
no layer. So a moving tag never points to what is not there whole, wherever a push ends.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from trainwright.build.store import BuildRecord, built_record
from trainwright.core.errors import EngineError, Failure, RegistryRefused, RequestError, did_you_mean
from trainwright.core.owned import write_atomically
from trainwright.core.say import Say
from trainwright.engine.build_display import Mode
from trainwright.engine.engine import connect, sdk
from trainwright.plan.plan import Plan
from trainwright.push import history
from trainwright.push.ecr import Ecr, ImageManifest, caller_account
from trainwright.push.moving import Move, move, set_own
from trainwright.push.proof import gate, mark_unproven
from trainwright.push.references import Place, PushTarget
from trainwright.push.registry import Published, Registry, moment
from trainwright.push.repository import RepositoryPolicy, load_policy
from trainwright.push.sbom import FILE as SBOM_FILE
from trainwright.push.sbom import MEDIA_TYPE as SBOM_TYPE
from trainwright.push.sbom import make_sbom
from trainwright.push.settings import filters_lacking, may_move, settle
from trainwright.push.tags import Tags, check_tag, tags_of
from trainwright.push.upload import STALL, Uploaded, upload
from trainwright.site.site import Site

if TYPE_CHECKING:
    import docker

_READS = 5  # of a digest that a registry has just taken; ECR may take a moment to know it


@dataclass(frozen=True)
class PushOptions:
    """How to push. ``stall`` in seconds, ``policy`` for repositories that are made."""

    policy: RepositoryPolicy
    tags: tuple[str, ...] = ()
    create: bool = False
    unproven: bool = False
    revision: int = 1
    attach_sbom: bool = False
    progress: Mode = "auto"
    stall: float = STALL


def push_options(
    *,
    policy: Path | None = None,
    tags: tuple[str, ...] = (),
    create: bool = False,
    unproven: bool = False,
    revision: int = 1,
    attach_sbom: bool = False,
    progress: str = "auto",
    stall: float = STALL,
) -> PushOptions:
    """The options of a push from the words of the command line.

    Raises:
        RequestError: the policy's file, a tag, the kind of progress or a number is none.
    """
    if progress not in get_args(Mode):
        raise RequestError(f"--progress {progress}: no such kind. {did_you_mean(progress, get_args(Mode))}")
    if stall <= 0:
        raise RequestError(f"--stall {stall:g}: a number of seconds over 0")
    if revision < 1:
        raise RequestError(f"--revision {revision}: counts from 1")
    mode: Any = progress
    return PushOptions(
        policy=load_policy(policy),
        tags=tuple(check_tag(tag) for tag in dict.fromkeys(tags)),
        create=create,
        unproven=unproven,
        revision=revision,
        attach_sbom=attach_sbom,
        progress=mode,
        stall=stall,
    )


@dataclass(frozen=True)
class Parcel:
    """An image that passed the gate. ``image_id`` is what is sent: the record's, or one marked as unproven."""

    image: str
    record: BuildRecord
    image_id: str
    tags: Tags
    published: Published
    sbom: Path
    lacking: str

    @property
    def plan(self) -> Plan:
        """What it was built from."""
        return self.record.plan


@dataclass
class _Run:
    site: Site
    options: PushOptions
    say: Say
    client: docker.DockerClient
    notices: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Something to know, once: said at once, and in the document."""
        if text not in self.notices:
            self.notices.append(text)
            self.say(f"note: {text}")


def push_images(
    images: Sequence[str], target: PushTarget, site: Site, options: PushOptions, *, say: Say
) -> dict[str, Any]:
    """Push images into a repository of one or more regions; returns the document of ``push --json``.

    Args:
        images: tags or ids of images that were built here.
        target: where to.
        site: proxies and certificate authorities.
        options: how.
        say: told of long steps and notices.

    Raises:
        RequestError: an image is unknown, or a tag is none.
        ProofFailed: an image is not proven; nothing was sent.
        RegistryRefused: AWS or a registry refused or did not answer. ``pushed`` has what was finished before.
        EngineError: there is no engine, or it went away.
    """
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    if not images:
        raise RequestError("--image is missing", remedy="./invoke list --built shows the images that were built here.")
    if options.tags and len(set(images)) > 1:
        raise RequestError("--tag names one image, and several are to be pushed", remedy="Push them one by one.")
    engine = connect(say=say)
    named = {record.image_id: (image, record) for image in reversed(images) for record in [built_record(image, engine)]}
    found = [*reversed(named.values())]
    proofs = [gate(record, image, unproven=options.unproven) for image, record in found]
    run = _Run(site, options, say, sdk(engine))
    rows: list[dict[str, Any]] = []
    try:
        parcels = [
            _pack(run, image, record, proof.lacking) for (image, record), proof in zip(found, proofs, strict=True)
        ]
        _check_apart(parcels)
        account = target.account or caller_account(target.regions[0], site)
        places = [Place(account, region, target.repository) for region in target.regions]
        shelves = [_open(run, place, parcels) for place in places]
        for shelf in shelves:
            for parcel in parcels:
                rows.append(_ship(run, shelf, parcel))  # noqa: PERF401 - what was finished counts after a failure
    except Failure as failed:
        failed.details = {**failed.details, "pushed": rows}
        raise
    except (DockerException, RequestException) as broken:
        raise EngineError(
            f"the engine refused or went away: {' '.join(str(broken).split())}; no tag moved since",
            remedy="./invoke doctor says what is wrong with it; then run the same command again.",
            pushed=rows,
        ) from None
    except OSError as refused:
        if refused.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise RegistryRefused(
            f"the disk of this machine is full ({refused.filename or refused.strerror}); no tag moved since",
            remedy="df -h shows which; make room and run the same command again: what is there is not sent again.",
            cause="disk",
            pushed=rows,
        ) from None
    finally:
        run.client.close()
    return {"schema": "trainwright/push/1", "images": rows, "notices": run.notices}


@dataclass(frozen=True)
class _Shelf:
    """An open repository, and what it holds of the images already."""

    ecr: Ecr
    registry: Registry
    description: Mapping[str, Any]
    there: Mapping[str, ImageManifest]


def _pack(run: _Run, image: str, record: BuildRecord, lacking: str) -> Parcel:
    """What is sent of an image: its tags, its bill of materials, labels where it is not proven."""
    attributes = run.client.images.get(record.image_id).attrs
    built = moment(attributes["Created"])
    if built.year < 2000:
        # A builder that stamps no time: then the record's.
        built = moment(record.built_at)
    sent = record.image_id
    if lacking:
        run.note(f"UNPROVEN: {image}: {lacking}; its labels and its tag say so")
        sent = mark_unproven(run.client, record, built.isoformat(), lacking)
    plan = record.plan
    path = record.folder / SBOM_FILE
    write_atomically(path, make_sbom(plan, record.probe, record.image_id, built))
    said = Published(built=built, plan=plan.id, framework=plan.framework, version=plan.version, unproven=bool(lacking))
    tags = tags_of(plan, built, revision=run.options.revision, untested=bool(lacking))
    return Parcel(image, record, sent, tags, said, path, lacking)


def _check_apart(parcels: Sequence[Parcel]) -> None:
    """Two builds of one plan on one day would get one tag."""
    seen: dict[str, str] = {}
    for parcel in parcels:
        if (other := seen.setdefault(parcel.tags.immutable, parcel.image)) != parcel.image:
            raise RequestError(
                f"--image {other} and --image {parcel.image} would both get the tag {parcel.tags.immutable}",
                remedy="Push them one by one, the second with --revision 2.",
            )


def _open(run: _Run, place: Place, parcels: Sequence[Parcel]) -> _Shelf:
    """The repository, made where that was asked for, after a look at whether every image has room in it."""
    ecr = Ecr(place, run.site)
    wanted = list(dict.fromkeys(parcel.tags.filter for parcel in parcels))
    description = settle(ecr, run.options.policy, wanted, create=run.options.create, say=run.say)
    there: dict[str, ImageManifest] = {}
    for parcel in parcels:
        tag = parcel.tags.immutable
        if (manifest := ecr.manifest(tag=tag)) is None:
            continue
        if not _is_same(manifest, parcel.image_id):
            raise _clash(place, tag, manifest.digest)
        there[tag] = manifest
    if description.get("imageTagMutability") == "MUTABLE":
        run.note(f"{place.host}/{place.repository} is MUTABLE: anybody who may push can overwrite every tag of it")
    if lacking := filters_lacking(description, wanted):
        run.note(
            f"{place.host}/{place.repository} lets no tag move that fits {', '.join(lacking)}, so moving tags are left "
            f"out; --create adds the filter{'s' * (len(lacking) > 1)} where the repository is IMMUTABLE_WITH_EXCLUSION"
        )
    return _Shelf(ecr, Registry(ecr, run.site), description, there)


def _ship(run: _Run, shelf: _Shelf, parcel: Parcel) -> dict[str, Any]:
    """Send one image into one repository and set its tags; returns its row of the document."""
    started = time.monotonic()
    ecr, place, tag = shelf.ecr, shelf.ecr.place, parcel.tags.immutable
    manifest = shelf.there.get(tag)
    sent: Uploaded | None = None
    if manifest is None:
        run.say(f"pushing {parcel.image} to {place.tagged(tag)}")
        sent, manifest = _send(run, ecr, parcel)
    else:
        run.say(f"{place.tagged(tag)} is there already")
    row: dict[str, Any] = {
        "image": parcel.image,
        "image_id": parcel.image_id,
        "plan": parcel.plan.id,
        "uri": place.digested(manifest.digest),
        "digest": manifest.digest,
        "account": place.account,
        "region": place.region,
        "repository": place.repository,
        "proven": not parcel.lacking,
        "cuda": parcel.plan.cuda,
        "entry_point": parcel.plan.user.entry_point,
        "sent_bytes": sent.sent if sent else 0,
        "layers_sent": sent.pushed if sent else 0,
        "layers_present": sent.present if sent else None,
    }
    first = Move(tag, "made" if sent else "there already")
    try:
        moves = [first, *(set_own(ecr, manifest, own) for own in run.options.tags)]
        moves += [
            move(ecr, shelf.registry, manifest, parcel.published, moving)
            for moving in parcel.tags.moving
            if may_move(shelf.description, moving)
        ]
        attached = None
        if run.options.attach_sbom:
            notes = {"org.opencontainers.image.created": parcel.published.built.isoformat()}
            attached = shelf.registry.attach(manifest, parcel.sbom.read_bytes(), SBOM_TYPE, notes)
    except Failure as failed:
        # The image is whole, whatever became of what comes after it.
        failed.details = {**failed.details, "uri": row["uri"]}
        raise
    kinds = ["immutable", *("own" for _ in run.options.tags), *("moving" for _ in parcel.tags.moving)]
    row["tags"] = [
        {"tag": one.tag, "kind": kind, "state": one.state, "says": one.says}
        for one, kind in zip(moves, kinds, strict=False)
    ]
    row |= {"sbom": str(parcel.sbom), "sbom_digest": attached, "seconds": round(time.monotonic() - started, 1)}
    row["record"] = str(history.remember(parcel.record, {**row, "pushed_at": datetime.now(UTC).isoformat()}))
    return row


def _send(run: _Run, ecr: Ecr, parcel: Parcel) -> tuple[Uploaded | None, ImageManifest]:
    """The layers and the manifest of an image, under its immutable tag; the manifest as the registry holds it."""
    tag, options = parcel.tags.immutable, run.options
    try:
        sent = upload(
            run.client, ecr, parcel.image_id, tag, progress=options.progress, stall=options.stall, say=run.say
        )
    except RegistryRefused as refused:
        if refused.details.get("cause") != "immutable":
            raise
        # Somebody else was quicker: the same image is as good, another one is not.
        manifest = ecr.manifest(tag=tag)
        if manifest is None:
            raise
        if not _is_same(manifest, parcel.image_id):
            raise _clash(ecr.place, tag, manifest.digest) from None
        return None, manifest
    for attempt in range(_READS):
        manifest = ecr.manifest(tag=tag)
        if manifest is not None and manifest.digest == sent.digest:
            return sent, manifest
        time.sleep(0.5 * attempt)
    raise RegistryRefused(
        f"{ecr.place.tagged(tag)}: pushed as {sent.digest}, but ECR says {manifest.digest if manifest else 'no image'}"
        "; no moving tag was moved",
        remedy="Run the same command again; what is there is not sent again.",
        cause="digest",
        place=ecr.place.tagged(tag),
    )


def _is_same(manifest: ImageManifest, image_id: str) -> bool:
    """Whether a registry's image is one of the engine's, whose ids are digests of configurations or of manifests."""
    import json

    config = (json.loads(manifest.text).get("config") or {}).get("digest")
    return image_id in (config, manifest.digest)


def _clash(place: Place, tag: str, digest: str) -> RegistryRefused:
    return RegistryRefused(
        f"{place.tagged(tag)}: the tag is there and belongs to another image, {digest}; nothing was sent",
        remedy="The same plan was built twice on one day, with other packages of the distribution. Use that image: "
        f"{place.digested(digest)}\nor give this one a tag of its own: --revision 2",
        cause="immutable",
        place=place.tagged(tag),
        uri=place.digested(digest),
    )
