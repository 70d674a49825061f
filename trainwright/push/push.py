"""Pushes images of this machine: all checks first, then layers, then the moving tags.

The order keeps a registry consistent. Nothing is sent before every image has passed its gate and every registry has
answered; an image is sent only under its immutable tag; its digest is read back; its proof is attached. Once all images
are in all places, tags move, by a call that sends no layer. So a moving tag never points to an incomplete image, and a
set of images moves its tags as a whole or not at all, wherever a push stops.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trainwright.build.store import BuildRecord, built_record
from trainwright.catalog.catalog import open_catalog
from trainwright.core.errors import EngineError, Failure, RegistryRefused, RequestError
from trainwright.core.owned import write_atomically
from trainwright.core.say import Say
from trainwright.engine.build_display import Mode
from trainwright.engine.engine import Engine, connect, sdk
from trainwright.plan.plan import Plan
from trainwright.push import history
from trainwright.push.attest import statements
from trainwright.push.documents import PushDocument, PushedImage, PushedTag, TagKind
from trainwright.push.ecr import Ecr, ImageManifest, caller_account
from trainwright.push.moving import Move, move, set_own
from trainwright.push.options import PushOptions, check_options
from trainwright.push.proof import gate, mark_unproven
from trainwright.push.published import Published, moment
from trainwright.push.references import PushPlace, PushTarget
from trainwright.push.refusals import clash
from trainwright.push.registry import Registry
from trainwright.push.replicas import await_replicas
from trainwright.push.repository import RepositoryPolicy, load_policy
from trainwright.push.sbom import FILE as SBOM_FILE
from trainwright.push.sbom import make_sbom
from trainwright.push.settings import filters_lacking, may_move, settle
from trainwright.push.soci import Indexed, with_index
from trainwright.push.tags import Tags, tags_of
from trainwright.push.upload import Uploaded, upload_checked
from trainwright.site.site import Site
from trainwright.soci.checkpoints import need_soci

if TYPE_CHECKING:
    import docker

# Signs an image and the documents that are attached to it (name and digest); returns the digest of the signature.
Sign = Callable[[Ecr, Registry, ImageManifest, Sequence[tuple[str, str]]], str]
_REVISIONS = 100  # that are tried: builds of one plan on one day


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
        """The plan of the image."""
        return self.record.plan


@dataclass
class _Run:
    site: Site
    options: PushOptions
    policy: RepositoryPolicy
    say: Say
    client: docker.DockerClient
    sign: Sign | None = None
    scans: Mapping[str, dict[str, Any] | None] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a notice to the document, and print it; duplicates are ignored."""
        if text not in self.notices:
            self.notices.append(text)
            self.say(f"note: {text}")


def push_images(
    images: Sequence[str],
    target: PushTarget,
    site: Site,
    options: PushOptions,
    *,
    say: Say,
    scan: Callable[[BuildRecord, str], dict[str, Any] | None] = lambda *_: None,
    sign: Sign | None = None,
) -> PushDocument:
    """Push images into a repository of one or more regions.

    Args:
        images: tags or ids of images that were built here.
        target: the repository and its regions.
        site: proxies and certificate authorities.
        options: how to push.
        say: progress callback.
        scan: looks for vulnerabilities in an image of this record and name, and raises if it may not leave; returns
            what is attached to the image.
        sign: signs an image once its proof is attached, and before any tag moves to it.

    Raises:
        RequestError: an image is unknown, or an option is invalid.
        ProofFailed: an image is not proven; nothing was sent.
        RegistryRefused: AWS or a registry refused or did not answer. ``pushed`` has what was finished before.
        EngineError: no engine answers, or it stopped answering.
    """
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    if options.soci:
        need_soci()
    policy = load_policy(Path(options.policy) if options.policy else None)
    engine, found = chosen(images, options, say=say)
    proofs = [gate(record, image, unproven=options.unproven) for image, record in found]
    scans = {record.image_id: scan(record, image) for image, record in found}
    run = _Run(site, options, policy, say, sdk(engine), sign, scans)
    arrivals: list[_Arrival] = []
    rows: list[PushedImage] = []
    try:
        parcels = [
            _pack(run, image, record, proof.lacking) for (image, record), proof in zip(found, proofs, strict=True)
        ]
        _check_apart(parcels)
        places = places_of(target, site)
        if options.next_revision:
            parcels = [_renumbered(run, places, parcel) for parcel in parcels]
        shelves = [_open(run, place, parcels) for place in places]
        for shelf in shelves:
            for parcel in parcels:
                arrivals.append(_ship(run, shelf, parcel))  # noqa: PERF401 - a failure reports what has arrived
        for arrival in arrivals:
            rows.append(_move_tags(run, arrival))  # noqa: PERF401 - a failure reports the finished rows
    except Failure as failed:
        waiting = [one.uri for one in arrivals[len(rows) :]]
        if waiting:
            run.note(f"there without moving tags: {', '.join(waiting)}; the same command goes on from there")
        failed.details = {**failed.details, "pushed": _finished(rows), "arrived": waiting}
        raise
    except (DockerException, RequestException) as broken:
        raise EngineError(
            f"the engine refused or stopped answering: {' '.join(str(broken).split())}; no tag moved since",
            remedy="./invoke doctor shows what is wrong with it; then run the same command again.",
            pushed=_finished(rows),
        ) from None
    except OSError as refused:
        if refused.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise RegistryRefused(
            f"the disk of this machine is full ({refused.filename or refused.strerror}); no tag moved since",
            remedy="df -h shows which disk; free space and run the same command again: layers already "
            "pushed are not sent again.",
            cause="disk",
            pushed=_finished(rows),
        ) from None
    finally:
        run.client.close()
    return PushDocument(schema="trainwright/push/1", images=tuple(rows), notices=tuple(run.notices))


def chosen(images: Sequence[str], options: PushOptions, *, say: Say) -> tuple[Engine, list[tuple[str, BuildRecord]]]:
    """The engine, and each image once with its record, as it was named last.

    Raises:
        RequestError: an image is unknown, none is named, or an option is invalid.
        EngineError: no engine answers.
    """
    check_options(options)
    if not images:
        raise RequestError("--image is missing", remedy="./invoke list --built shows the images that were built here.")
    if options.tags and len(set(images)) > 1:
        raise RequestError("--tag is for one image, but several are to be pushed", remedy="Push them one by one.")
    engine = connect(say=say)
    named = {record.image_id: (image, record) for image in reversed(images) for record in [built_record(image, engine)]}
    return engine, [*reversed(named.values())]


def places_of(target: PushTarget, site: Site) -> list[PushPlace]:
    """The repository in each region, of the caller's account if none is named."""
    account = target.account or caller_account(target.regions[0], site)
    return [PushPlace(account, region, target.repository) for region in target.regions]


def built_at(client: docker.DockerClient, record: BuildRecord) -> datetime:
    """When an image was built, as the engine says; the record's time where the builder set none."""
    built = moment(client.images.get(record.image_id).attrs["Created"])
    return built if built.year >= 2000 else moment(record.built_at)


def _finished(rows: Sequence[PushedImage]) -> list[dict[str, Any]]:
    return [row.as_json() for row in rows]


@dataclass(frozen=True)
class _Shelf:
    """A repository, and the manifests of the images that it already has."""

    ecr: Ecr
    registry: Registry
    description: Mapping[str, Any]
    there: Mapping[str, ImageManifest]


def _pack(run: _Run, image: str, record: BuildRecord, lacking: str) -> Parcel:
    """Prepare an image: tags, bill of materials, and labels if it is not proven."""
    built = built_at(run.client, record)
    sent = record.image_id
    if lacking:
        run.note(f"UNPROVEN: {image}: {lacking}; its labels and its tag say so")
        sent = mark_unproven(run.client, record, built.isoformat(), lacking)
    plan = record.plan
    path = record.folder / SBOM_FILE
    write_atomically(path, make_sbom(plan, record.probe, record.image_id, built))
    said = Published(built=built, plan=plan.id, framework=plan.framework, version=plan.version, unproven=bool(lacking))
    tags = tags_of(plan, built, open_catalog(), revision=run.options.revision, untested=bool(lacking))
    return Parcel(image, record, sent, tags, said, path, lacking)


def _check_apart(parcels: Sequence[Parcel]) -> None:
    """Refuse two builds of one plan on one day: they would get the same tag."""
    seen: dict[str, str] = {}
    for parcel in parcels:
        if (other := seen.setdefault(parcel.tags.immutable, parcel.image)) != parcel.image:
            raise RequestError(
                f"--image {other} and --image {parcel.image} would both get the tag {parcel.tags.immutable}",
                remedy="Push them one by one, the second with --revision 2.",
            )


def _renumbered(run: _Run, places: Sequence[PushPlace], parcel: Parcel) -> Parcel:
    """The image under the first revision that no other image has in any of the places."""
    shelves = [Ecr(place, run.site) for place in places]
    for ecr in shelves:
        settle(ecr, run.policy, [parcel.tags.filter], create=run.options.create, say=run.say)
    plan, said, first = parcel.plan, parcel.published, run.options.revision
    for revision in range(first, first + _REVISIONS):
        tags = tags_of(plan, said.built, open_catalog(), revision=revision, untested=said.unproven)
        found = [ecr.manifest(tag=tags.immutable) for ecr in shelves]
        if all(one is None or one.holds(parcel.image_id) for one in found):
            return replace(parcel, tags=tags)
    raise clash(places[0], tags.immutable, "one of many")


def _open(run: _Run, place: PushPlace, parcels: Sequence[Parcel]) -> _Shelf:
    """Open the repository, creating it if requested, and check that no tag belongs to another image."""
    ecr = Ecr(place, run.site)
    wanted = list(dict.fromkeys(parcel.tags.filter for parcel in parcels))
    description = settle(ecr, run.policy, wanted, create=run.options.create, say=run.say)
    there: dict[str, ImageManifest] = {}
    for parcel in parcels:
        tag = parcel.tags.immutable
        if (manifest := ecr.manifest(tag=tag)) is None:
            continue
        if not manifest.holds(parcel.image_id):
            raise clash(place, tag, manifest.digest)
        there[tag] = manifest
    if description.get("imageTagMutability") == "MUTABLE":
        run.note(f"{place.host}/{place.repository} is MUTABLE: anyone who may push can overwrite all of its tags")
    if lacking := filters_lacking(description, wanted):
        run.note(
            f"{place.host}/{place.repository} does not let tags move that match {', '.join(lacking)}, so these are "
            f"omitted; --create adds the filter{'s' * (len(lacking) > 1)} if the repository is IMMUTABLE_WITH_EXCLUSION"
        )
    return _Shelf(ecr, Registry(ecr, run.site, say=run.say), description, there)


@dataclass(frozen=True)
class _Arrival:
    """An image in a repository, with its proof, before any of its other tags is set."""

    shelf: _Shelf
    parcel: Parcel
    image: ImageManifest
    sent: Uploaded | None
    soci: Indexed | None
    attached: Mapping[str, str]
    seconds: float

    @property
    def manifest(self) -> ImageManifest:
        """What tags point to: the image, or the index that it is in."""
        return self.soci.index if self.soci else self.image

    @property
    def uri(self) -> str:
        """The image by its digest."""
        return self.shelf.ecr.place.digested(self.manifest.digest)


def _ship(run: _Run, shelf: _Shelf, parcel: Parcel) -> _Arrival:
    """Send one image into one repository, and attach its proof."""
    started = time.monotonic()
    place, tag = shelf.ecr.place, parcel.tags.immutable
    manifest = shelf.there.get(tag)
    sent: Uploaded | None = None
    if manifest is None:
        run.say(f"pushing {parcel.image} to {place.tagged(tag)}")
        mode, stall = cast(Mode, run.options.progress), run.options.stall
        sent, manifest = upload_checked(
            run.client, shelf.ecr, parcel.image_id, tag, progress=mode, stall=stall, say=run.say
        )
    else:
        run.say(f"{place.tagged(tag)} already exists")
    try:
        # Before the tags, so that what they point to has its proof.
        attached = _prove(run, shelf, parcel, manifest, manifest)
        # Without --soci, the index that is there stays: the tags that point to it would go back otherwise.
        make = run.options.soci
        if soci := with_index(shelf.ecr, shelf.registry, manifest, tag, make=make, say=run.say, note=run.note):
            attached = _prove(run, shelf, parcel, soci.image, soci.index)
    except Failure as failed:
        failed.details = {**failed.details, "uri": place.digested(manifest.digest)}
        raise
    return _Arrival(shelf, parcel, manifest, sent, soci, attached, time.monotonic() - started)


def _prove(run: _Run, shelf: _Shelf, parcel: Parcel, image: ImageManifest, named: ImageManifest) -> dict[str, str]:
    """Attach the proof to an image, and sign what jobs name: the image, or the index that it is in."""
    sbom, built = parcel.sbom.read_bytes(), parcel.published.built
    scan = run.scans.get(parcel.record.image_id)
    proof = [*statements(parcel.record, image.digest, sbom, built, scan=scan)]
    attached = {one.name: one.attach(shelf.registry, image) for one in proof}
    if run.sign is not None:
        attached["signature"] = run.sign(shelf.ecr, shelf.registry, named, [*attached.items()])
    return attached


def _move_tags(run: _Run, arrival: _Arrival) -> PushedImage:
    """Set the tags of an image that is there."""
    started = time.monotonic()
    shelf, parcel, manifest, sent = arrival.shelf, arrival.parcel, arrival.manifest, arrival.sent
    ecr, place, attached = shelf.ecr, shelf.ecr.place, arrival.attached
    own = tuple(dict.fromkeys(run.options.tags))
    moves = [Move(parcel.tags.immutable, "made" if sent else "there already")]
    if soci := arrival.soci:
        moves.append(Move(soci.tag, "made" if soci.made else "there already"))
    immutable = len(moves)
    try:
        moves += [*(set_own(ecr, shelf.registry, manifest, each) for each in own)]
        moves += [
            move(ecr, shelf.registry, manifest, parcel.published, moving)
            for moving in (() if run.options.leave_tags else parcel.tags.moving)
            if may_move(shelf.description, moving)
        ]
        replicas = await_replicas(ecr, manifest.digest, say=run.say) if run.options.wait_for_replicas else ()
    except Failure as failed:
        # The image is whole, whatever became of what comes after it.
        failed.details = {**failed.details, "uri": arrival.uri}
        raise
    kinds = chain(repeat("immutable", immutable), repeat("own", len(own)), repeat("moving"))
    row = PushedImage(
        image=parcel.image,
        image_id=parcel.image_id,
        plan=parcel.plan.id,
        uri=arrival.uri,
        digest=manifest.digest,
        account=place.account,
        region=place.region,
        repository=place.repository,
        proven=not parcel.lacking,
        cuda=parcel.plan.cuda,
        entry_point=parcel.plan.user.entry_point,
        tags=tuple(
            PushedTag(tag=one.tag, kind=cast(TagKind, kind), state=one.state, says=one.says)
            for one, kind in zip(moves, kinds, strict=False)
        ),
        sent_bytes=sent.sent if sent else 0,
        layers_sent=sent.pushed if sent else 0,
        layers_present=sent.present if sent else None,
        seconds=round(arrival.seconds + time.monotonic() - started, 1),
        sbom=str(parcel.sbom),
        sbom_digest=attached["sbom"],
        proof=dict(attached),
        soci=soci.row(arrival.image) if soci else None,
        record=str(parcel.record.folder / history.FILE),
        replicas=replicas,
    )
    pushed = row.as_json() | {"pushed_at": datetime.now(UTC).isoformat()}
    del pushed["record"]
    history.remember(parcel.record, pushed)
    return row
