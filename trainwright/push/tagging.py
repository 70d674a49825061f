"""``tags``: what the moving tags of a repository point to and why, and what people decide about them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, get_args

from trainwright.core.errors import RegistryRefused, RequestError, did_you_mean
from trainwright.core.records import Document
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.moving import alive, decide
from trainwright.push.references import PushPlace, PushTarget
from trainwright.push.registry import Registry
from trainwright.push.tag_log import (
    Decision,
    TagLog,
    What,
    held_text,
    places_before,
    standing,
    tag_of_log,
)
from trainwright.push.tags import PREFIX, check_tag
from trainwright.site.site import Site

Done = Literal["made", "moved", "there already", "kept"]
Action = Literal["list", "advance", "move", "hold", "release", "rollback"]
ACTIONS: tuple[str, ...] = get_args(Action)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DECISION = re.compile(r"\.[0-9]+\.[0-9a-f]{8}$")  # ends the tag of a decision
_EXAMPLE = "For example: ./invoke tags {} pytorch-2.6-cu124 --repository team/training"


class TagDecision(Document):
    """A decision about a tag. ``found``: something else had set it there."""

    what: What
    at: datetime
    digest: str
    version: str
    reason: str


class TagRow(Document):
    """A tag in one repository.

    ``digest`` is what it points to now, ``belongs`` where its log says it does (they differ only after a push that was
    killed); ``state`` is what this command did, ``kept`` if the tag points to a newer image or is held. ``history`` has
    the newest decision last.
    """

    tag: str
    account: str
    region: str
    repository: str
    digest: str | None
    belongs: str
    version: str
    built: datetime | None
    held: str
    state: Done | None
    history: tuple[TagDecision, ...]


class TagsDocument(Document):
    """``tags --json``: a row per tag and region."""

    schema: Literal["trainwright/tags/1"]
    tags: tuple[TagRow, ...]


def manage_tags(
    action: str, tags: Sequence[str], target: PushTarget, site: Site, *, account: str, to: str = "", reason: str = ""
) -> TagsDocument:
    """Show the moving tags of a repository, or decide about some of them.

    Args:
        action: one of :data:`ACTIONS`, except ``advance``, which :mod:`trainwright.fresh.advance` does.
        tags: of the repository; for ``list``, none means all that have a log.
        target: the repository and its regions.
        site: proxies and certificate authorities.
        account: the registry's, twelve digits.
        to: for ``move`` and ``hold``: a digest, or a tag whose image it is.
        reason: for people, in the log.

    Raises:
        RequestError: the action is unknown, or lacks a tag or an image.
        RegistryRefused: a tag or an image does not exist, or AWS or a registry refused. Decisions before it stay.
    """
    check_action(action, tags, to)
    rows = []
    for region in target.regions:
        ecr = Ecr(PushPlace(account, region, target.repository), site)
        registry = Registry(ecr, site)
        for tag in dict.fromkeys(tags) or logged_tags(ecr):
            log = TagLog(ecr, registry, tag)
            rows.append(row(log, None if action == "list" else _decide(log, action, to, reason)))
    return TagsDocument(schema="trainwright/tags/1", tags=tuple(rows))


def check_action(action: str, tags: Sequence[str], to: str) -> None:
    """Look at what is to be done, before anybody is asked.

    Raises:
        RequestError: the action is unknown, or lacks a tag or an image.
    """
    if action not in ACTIONS:
        hint = did_you_mean(action, ACTIONS) if action else f"One of {', '.join(ACTIONS)}"
        raise RequestError(f"tags {action}: no such action. {hint}".replace("  ", " "), remedy=_EXAMPLE.format("hold"))
    if action not in ("list", "advance") and not tags:
        raise RequestError(f"tags {action}: the tag is missing", remedy=_EXAMPLE.format(action))
    if action == "move" and not to:
        raise RequestError("tags move: --to is missing", remedy=_EXAMPLE.format("move") + " --to sha256:…")
    if to and action not in ("move", "hold"):
        raise RequestError(f"tags {action}: --to is for move and hold", remedy=_EXAMPLE.format(action))
    for tag in () if action == "advance" else tags:
        check_tag(tag)
        if tag.startswith(PREFIX):
            raise RequestError(f"{tag}: the log of a tag", remedy=_EXAMPLE.format(action))


def _decide(log: TagLog, action: str, to: str, reason: str) -> Done:
    if action == "release":
        if standing(log.read()).held is None:
            return "there already"
        return _state(log, "released", None, reason)
    if action == "rollback":
        image = _before(log)
        return _state(log, "held", image, reason or "rolled back")
    current = _image(log, to) if to else log.ecr.manifest(tag=log.tag)
    if current is None:
        raise RegistryRefused(
            f"{log.ecr.place.tagged(log.tag)}: no such tag",
            remedy=f"./invoke tags list --repository {log.ecr.place.repository}   # or --to says which image gets it",
            cause="missing",
        )
    return _state(log, "moved" if action == "move" else "held", current, reason)


def _state(log: TagLog, what: What, image: ImageManifest | None, reason: str) -> Done:
    state = decide(log, what, image, reason).state
    assert state != "kept", "a decision is followed, or refused"
    return state


def _image(log: TagLog, name: str) -> ImageManifest:
    """The image of a digest or a tag."""
    by_digest = _DIGEST.fullmatch(name) is not None
    found = log.ecr.manifest(digest=name) if by_digest else log.ecr.manifest(tag=name)
    if found is None:
        raise RegistryRefused(
            f"{log.ecr.place.host}/{log.ecr.place.repository} has no image {name}",
            remedy=f"./invoke tags list {log.tag} --repository {log.ecr.place.repository}   # the images it had",
            cause="missing",
        )
    return found


def _before(log: TagLog) -> ImageManifest:
    """The image that a tag had before the one that it belongs to now, and that is still there."""
    decisions = log.read()
    now = standing(alive(log, decisions, None)).digest
    for digest in places_before(decisions):
        if digest != now and (image := log.ecr.manifest(digest=digest)) is not None:
            return image
    raise RegistryRefused(
        f"{log.ecr.place.tagged(log.tag)}: its log has no earlier image that is still there",
        remedy=f"./invoke tags move {log.tag} --to sha256:… --repository {log.ecr.place.repository}",
        cause="missing",
    )


def logged_tags(ecr: Ecr) -> list[str]:
    """The tags of a repository that have a log."""
    logs = [tag for tag in ecr.tags() if tag.startswith(PREFIX) and not _DECISION.search(tag)]
    found = [ecr.manifest(tag=log) for log in logs]
    return sorted(name for log in found if log is not None and (name := tag_of_log(log)))


def row(log: TagLog, state: Done | None) -> TagRow:
    """A tag, after a command that left it in this state (``None`` if it only looked)."""
    place, current = log.ecr.place, log.ecr.manifest(tag=log.tag)
    decisions = log.read()
    now = standing(alive(log, decisions, current))
    image = log.registry.published(current) if current is not None else None
    return TagRow(
        tag=log.tag,
        account=place.account,
        region=place.region,
        repository=place.repository,
        digest=None if current is None else current.digest,
        belongs=now.digest,
        version=image.version if image is not None else "",
        built=image.built if image is not None else None,
        held=held_text(now),
        state=state,
        history=tuple(map(_told, decisions)),
    )


def _told(one: Decision) -> TagDecision:
    version = one.image.version if one.image is not None else ""
    return TagDecision(what=one.what, at=one.at, digest=one.digest, version=version, reason=one.reason)
