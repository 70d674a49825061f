"""What holds the images of a repository: tags, decisions about tags, training jobs, indexes, and their age."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal

from trainwright.core.records import Document
from trainwright.push.attest import subject_of
from trainwright.push.ecr import StoredImage
from trainwright.push.references import PushPlace
from trainwright.push.tag_log import Decision, history_tag, places_before, standing
from trainwright.push.tags import is_immutable

HoldKind = Literal["moving", "tag", "held", "rollback", "job", "index", "pushed", "pulled", "archived", "image"]


class Hold(Document):
    """Why an image stays: ``by`` what kind of thing, and its ``name`` (a tag, a job, a digest, a day)."""

    by: HoldKind
    name: str


@dataclass(frozen=True)
class Stock:
    """A repository as it was at one time.

    ``children`` has the images of each index, ``logs`` the decisions about each tag that has a log, ``jobs`` the
    address of the image of each training job.
    """

    place: PushPlace
    images: Mapping[str, StoredImage]
    children: Mapping[str, Sequence[str]]
    logs: Mapping[str, Sequence[Decision]]
    jobs: Mapping[str, str]

    @cached_property
    def tags(self) -> dict[str, str]:
        """The digest of every tag."""
        return {tag: image.digest for image in self.images.values() for tag in image.tags}

    def subject(self, image: StoredImage) -> str:
        """The digest of what this is attached to; empty if it is an image of its own."""
        return image.subject or next(filter(None, map(subject_of, image.tags)), "")

    def documents(self, digest: str) -> list[str]:
        """What is attached to a digest, and to that."""
        found = self._attached.get(digest, ())
        return [*found, *(each for one in found for each in self.documents(one))]

    @cached_property
    def _attached(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for one in self.images.values():
            found[self.subject(one)].append(one.digest)
        return found


def named_digests(jobs: Mapping[str, str], place: PushPlace, tags: Mapping[str, str]) -> dict[str, str]:
    """The digests in a repository that training jobs name, each with the name of a job.

    Args:
        jobs: the address of the image of each job.
        place: the repository.
        tags: the digest of every tag; a job that names a tag names what it points to now.
    """
    found: dict[str, str] = {}
    for job, address in jobs.items():
        name, at, digest = address.partition("@")
        host, _, repository = name.partition("/")
        repository, _, tag = repository.partition(":")
        if (host, repository) == (place.host, place.repository):
            found.setdefault(digest if at else tags.get(tag or "latest", ""), job)
    return found


def holds(stock: Stock, since: datetime) -> dict[str, list[Hold]]:
    """What holds each image and each log of a repository; documents are held by what they are attached to.

    Args:
        stock: the repository.
        since: what was pushed or pulled later is held.
    """
    found: dict[str, list[Hold]] = defaultdict(list)
    tags = stock.tags
    logs = {tags[history_tag(tag)]: tag for tag in stock.logs if history_tag(tag) in tags}
    for image in stock.images.values():
        if not stock.subject(image) and image.digest not in logs:
            found[image.digest] += _own(stock, image, since)
    for digest, job in named_digests(stock.jobs, stock.place, tags).items():
        found[digest].append(Hold(by="job", name=job))
    for tag, decisions in stock.logs.items():
        for digest, hold in _logged(stock, tag, decisions, tags.get(tag)):
            if hold not in found[digest]:
                found[digest].append(hold)
    for index in from_the_top(stock):
        pulls = [hold for child in stock.children[index] for hold in found[child] if hold.by == "pulled"]
        found[index] += pulls[:1]
        if found[index]:
            for child in stock.children[index]:
                found[child].append(Hold(by="index", name=index))
    for digest, tag in logs.items():
        found[digest] += _of_log(stock, tag, found, since)
    return {digest: found[digest] for digest in stock.images if not stock.subject(stock.images[digest])}


def _own(stock: Stock, image: StoredImage, since: datetime) -> Iterable[Hold]:
    for tag in image.tags:
        if not is_immutable(tag):
            yield Hold(by="moving" if tag in stock.logs else "tag", name=tag)
    if image.archived:
        yield Hold(by="archived", name="")
    if image.pushed > since:
        yield Hold(by="pushed", name=f"{image.pushed:%Y-%m-%d}")
    # An index is read to see what it holds, which ECR counts as a pull (aws/containers-roadmap#2390); whoever really
    # pulls it, pulls one of its images.
    if image.pulled is not None and image.pulled > since and image.digest not in stock.children:
        yield Hold(by="pulled", name=f"{image.pulled:%Y-%m-%d}")


def _logged(stock: Stock, tag: str, decisions: Sequence[Decision], current: str | None) -> Iterable[tuple[str, Hold]]:
    """What the log of a tag holds: where the tag belongs, and where a rollback would go."""
    left = list(decisions)
    while (digest := standing(left).digest) and digest not in stock.images:
        left = [one for one in left if one.digest != digest]
    now = standing(left)
    if now.digest:
        yield now.digest, Hold(by="held" if now.held else "moving", name=tag)
    for digest in places_before(decisions):
        if digest not in (now.digest, current) and digest in stock.images:
            yield digest, Hold(by="rollback", name=tag)
            return


def _of_log(stock: Stock, tag: str, found: Mapping[str, Sequence[Hold]], since: datetime) -> Iterable[Hold]:
    """What holds a log: its tag, an image that it speaks of and that stays, a recent decision."""
    if tag in stock.tags:
        yield Hold(by="tag", name=tag)
    for one in stock.logs[tag]:
        if one.digest in stock.images and found.get(one.digest):
            yield Hold(by="image", name=one.digest)
            return
        if one.at > since:
            yield Hold(by="pushed", name=f"{one.at:%Y-%m-%d}")
            return


def from_the_top(stock: Stock) -> list[str]:
    """The indexes, each before those that it has in it."""
    inner = {child for children in stock.children.values() for child in children}
    return sorted(stock.children, key=lambda index: index in inner)
