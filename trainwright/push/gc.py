"""``gc``: what holds each image of a repository, and the removal of those that nothing holds.

ECR cannot delete an image under a condition. But it deletes an image with its last tag, so an image is deleted by the
tags that it had when it was looked at: one that got another tag since then stays, and gets the removed ones back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Literal

from trainwright.core.errors import Failure, RegistryRefused
from trainwright.core.records import Document
from trainwright.core.say import Say
from trainwright.push.attest import IN_TOTO, PREDICATE, RECORD, subject_of
from trainwright.push.ecr import DELETED_AT_ONCE, Ecr, StoredImage
from trainwright.push.holds import Hold, Stock, from_the_top, holds, named_digests
from trainwright.push.job_images import LONGEST, TrainingJobs
from trainwright.push.references import PushPlace, PushTarget
from trainwright.push.registry import Registry
from trainwright.push.tag_log import TagLog, history_tag
from trainwright.push.tagging import logged_tags
from trainwright.push.tags import PREFIX
from trainwright.site.site import Site

_AT_ONCE = 4
_SLACK = timedelta(minutes=10)  # between the clocks of this machine and of AWS
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
StoredKind = Literal["image", "index", "log", "document"]
GcState = Literal["held", "unused", "foreign", "deleted", "failed"]
_ORDER: tuple[StoredKind, ...] = ("index", "image", "log", "document")


class GcRow(Document):
    """An image, an index, the log of a tag, or a document whose image is gone.

    ``documents`` counts what is attached to it, which is deleted with it. ``foreign``: nothing holds it, but
    Trainwright did not build it. ``says`` is why it could not be deleted, or was not.
    """

    region: str
    digest: str
    kind: StoredKind
    tags: tuple[str, ...]
    pushed: datetime
    pulled: datetime | None
    size_bytes: int
    documents: int
    holds: tuple[Hold, ...]
    state: GcState
    says: str


class GcDocument(Document):
    """``gc --json``: a row per image and region. ``jobs`` counts the training jobs that were looked at."""

    schema: Literal["trainwright/gc/1"]
    account: str
    repository: str
    keep_days: int
    delete: bool
    jobs: int
    images: tuple[GcRow, ...]


def collect(
    target: PushTarget, site: Site, *, account: str, keep_days: int, delete: bool = False, say: Say
) -> GcDocument:
    """Find what holds each image of a repository, and delete those that nothing holds.

    Args:
        target: the repository and its regions.
        site: proxies and certificate authorities.
        account: the registry's, twelve digits.
        keep_days: an image that was pushed, pulled, or named by a training job in these days is held.
        delete: delete what nothing holds; otherwise nothing is changed.
        say: progress callback.

    Raises:
        RegistryRefused: AWS refused or did not answer; ``deleted`` has the digests that were deleted before.
    """
    # All regions are looked at before anything is deleted in one of them.
    places = [PushPlace(account, region, target.repository) for region in target.regions]
    found = [_Collection(place, site, keep_days, say) for place in places]
    try:
        for one in found if delete else ():
            one.delete()
    except Failure as failed:
        gone = [row.digest for one in found for row in one.rows if row.state == "deleted"]
        failed.details = {**failed.details, "deleted": gone}
        raise
    return GcDocument(
        schema="trainwright/gc/1",
        account=account,
        repository=target.repository,
        keep_days=keep_days,
        delete=delete,
        jobs=sum(len(one.stock.jobs) for one in found),
        images=tuple(row for one in found for row in one.rows),
    )


class _Collection:
    """The images of one repository; ``rows`` say what became of each."""

    def __init__(self, place: PushPlace, site: Site, keep_days: int, say: Say) -> None:
        self._say = say
        self._jobs = TrainingJobs(place.region, site)
        self._ecr = Ecr(place, site)
        self._registry = Registry(self._ecr, site, say=say)
        self._looked = datetime.now(UTC)
        self._since = self._looked - timedelta(days=keep_days)
        if self._ecr.repository() is None:
            raise RegistryRefused(
                f"{place.host} has no repository {place.repository}",
                remedy=f"aws ecr describe-repositories --region {place.region}   # lists those that there are",
                cause="repository",
            )
        self.stock = self._look()
        self._rows = {row.digest: row for row in self._judged()}

    @property
    def rows(self) -> list[GcRow]:
        """The oldest first."""
        return sorted(self._rows.values(), key=lambda row: (row.pushed, row.digest))

    def _look(self) -> Stock:
        ecr, place = self._ecr, self._ecr.place
        self._say(f"looking at {place.host}/{place.repository} and the training jobs in {place.region}")
        images = {one.digest: one for one in ecr.images()}
        indexes = [one.digest for one in images.values() if one.media_type in _INDEXES]
        found = [(digest, ecr.manifest(digest=digest)) for digest in indexes]
        # Last, so that a job that starts meanwhile is seen.
        logs = {tag: TagLog(ecr, self._registry, tag).read() for tag in logged_tags(ecr)}
        jobs = self._jobs.images(min(self._since, self._looked - LONGEST))
        children = {
            digest: [str(one["digest"]) for one in json.loads(index.text).get("manifests") or ()]
            for digest, index in found
            if index is not None
        }
        return Stock(place, images, children, logs, jobs)

    def _judged(self) -> Iterator[GcRow]:
        """A row for everything that is not attached to something in the repository."""
        stock = self.stock
        held = holds(stock, self._since)
        idle = [digest for digest, why in held.items() if not why]
        inside = (child for digest in idle for child in stock.children.get(digest, ()))
        asked = [stock.images[digest] for digest in dict.fromkeys((*idle, *inside)) if digest in stock.images]
        logs = {stock.tags[history_tag(tag)] for tag in stock.logs if history_tag(tag) in stock.tags}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            checked = pool.map(lambda one: one.digest in logs or self._is_ours(one), asked)
            ours = {one.digest for one, is_ours in zip(asked, checked, strict=True) if is_ours}
        for index in reversed(from_the_top(stock)):
            # What an index has beside its image (a SOCI index, an attestation) was made for that one.
            if not held[index] and ours.intersection(stock.children[index]):
                ours |= {index, *stock.children[index]}
        for digest, why in held.items():
            kind: StoredKind = "index" if digest in stock.children else "log" if digest in logs else "image"
            yield self._row(digest, kind, why, "held" if why else "unused" if digest in ours else "foreign")
        for one in stock.images.values():
            if (subject := stock.subject(one)) and subject not in stock.images:
                why = [Hold(by="pushed", name=f"{one.pushed:%Y-%m-%d}")] if one.pushed > self._since else []
                ours_too = any(subject_of(tag) or tag.startswith(PREFIX) for tag in one.tags)
                state: GcState = "held" if why else "unused" if ours_too else "foreign"
                yield self._row(one.digest, "document", why, state)

    def _row(self, digest: str, kind: StoredKind, why: Sequence[Hold], state: GcState) -> GcRow:
        image = self.stock.images[digest]
        return GcRow(
            region=self._ecr.place.region,
            digest=digest,
            kind=kind,
            tags=image.tags,
            pushed=image.pushed,
            pulled=image.pulled,
            size_bytes=image.size_bytes,
            documents=len(self.stock.documents(digest)),
            holds=tuple(why),
            state=state,
            says="",
        )

    def _is_ours(self, image: StoredImage) -> bool:
        """Whether an image has a build record, or the label of a plan.

        The record is asked for first, because ECR counts reading an image as a pull.
        """
        if image.media_type in _INDEXES:
            return False  # its images say so
        if any(one.annotations.get(PREDICATE) == RECORD for one in self._ecr.referrers(image.digest, IN_TOTO)):
            return True
        manifest = self._ecr.manifest(digest=image.digest)
        labels = self._registry.published(manifest) if manifest is not None else None
        return labels is not None and bool(labels.plan)

    def delete(self) -> None:
        """Delete what nothing holds. See :func:`collect`.

        An index goes before its images, as ECR does not delete what an index names; an image goes before its proof, so
        that no image is left without it.
        """
        inner = {child for children in self.stock.children.values() for child in children}
        unused = [row for row in self.rows if row.state == "unused"]

        def rank(row: GcRow) -> tuple[int, bool]:
            return _ORDER.index(row.kind), row.digest in inner

        for _, rows in groupby(sorted(unused, key=rank), key=rank):
            for batch in _batches([*rows]):
                self._delete(batch)
        gone = [row.digest for row in unused if self._rows[row.digest].state == "deleted"]
        documents = [each for digest in gone for each in self.stock.documents(digest)]
        for begin in range(0, len(documents), DELETED_AT_ONCE):
            for name, (code, text) in self._ecr.delete(documents[begin : begin + DELETED_AT_ONCE]).items():
                if code != _GONE:
                    self._set(self._row(name, "document", (), "failed"), says=f"{code}: {text}")

    def _delete(self, rows: Sequence[GcRow]) -> None:
        """Delete one batch, after another look at what may hold it by now."""
        place = self._ecr.place
        tags = self._ecr.tags()
        jobs = named_digests(self._jobs.images(self._looked - _SLACK), place, tags)
        ready = []
        for row in rows:
            now = {tag for tag, digest in tags.items() if digest == row.digest}
            above = [index for index, children in self.stock.children.items() if row.digest in children]
            if kept := [index for index in above if self._rows[index].state != "deleted"]:
                self._keep(row, Hold(by="index", name=kept[0]))
            elif row.digest in jobs:
                self._keep(row, Hold(by="job", name=jobs[row.digest]))
            elif changed := sorted(now.symmetric_difference(row.tags)):
                self._keep(row, Hold(by="tag", name=changed[0]))
            else:
                ready.append(row)
        if not ready:
            return
        self._say(f"deleting {len(ready)} of {place.host}/{place.repository}")
        names = {name: row for row in ready for name in _names(row)}
        refused = self._ecr.delete([*names])
        after = self._ecr.tags()
        for row in ready:
            said = [refused[name] for name in _names(row) if name in refused and refused[name][0] != _GONE]
            new = sorted(tag for tag, digest in after.items() if digest == row.digest and tag not in row.tags)
            if said:
                self._set(row, state="failed", says=": ".join(said[0]))
            elif new:
                self._keep(row, Hold(by="tag", name=new[0]))
                self._restore(row)
            else:
                self._set(row, state="deleted")

    def _restore(self, row: GcRow) -> None:
        manifest = self._ecr.manifest(digest=row.digest)
        if manifest is not None:
            for tag in row.tags:
                self._ecr.put_tag(manifest, tag)

    def _keep(self, row: GcRow, hold: Hold) -> None:
        self._set(row, state="held", holds=(hold,), says="changed since it was looked at")

    def _set(self, row: GcRow, **more: object) -> None:
        self._rows[row.digest] = row.replace(**more)


_GONE = "ImageNotFound"  # somebody else deleted it


def _names(row: GcRow) -> tuple[str, ...]:
    """What names an image for its deletion."""
    return row.tags or (row.digest,)


def _batches(rows: Sequence[GcRow]) -> Iterator[list[GcRow]]:
    """Rows whose names fit into one call."""
    batch: list[GcRow] = []
    for row in rows:
        if batch and sum(len(_names(one)) for one in (*batch, row)) > DELETED_AT_ONCE:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
