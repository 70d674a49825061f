"""Moving tags: they move only forward, and only to an image that is complete in the registry.

ECR cannot set a tag under a condition. So a pusher first writes into the tag's log what it decides
(:mod:`trainwright.push.tag_log`), and after every time that it has set the tag it reads the log again and sets the tag
anew if it belongs elsewhere. Of any number of pushers, in any order of their calls, the last one that sets the tag
reads a log from which it follows that it stays there; whoever writes a decision later looks at the tag after that. So
once all of them are through, the tag is where the whole log says. Between two calls it can be behind, and stays so only
if a pusher is killed there; the next push repairs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from trainwright.core.errors import RegistryRefused
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.published import Published
from trainwright.push.registry import Registry
from trainwright.push.tag_log import Decision, TagLog, TagStanding, What, held_text, hindrance, next_number, standing

TagState = Literal["moved", "made", "there already", "kept"]
_ROUNDS = 20  # in each, somebody else changes the tag between two of our calls
_FIXED = "the repository does not let this tag move (no filter of its tag mutability matches)"


@dataclass(frozen=True)
class Move:
    """What happened to a moving tag; ``says`` is the reason if it was kept."""

    tag: str
    state: TagState
    says: str = ""


def move(ecr: Ecr, registry: Registry, manifest: ImageManifest, new: Published, tag: str) -> Move:
    """Move a tag to an image in the registry, if that is forward.

    Args:
        ecr: the repository.
        registry: the same, over HTTP.
        manifest: of the image.
        new: what its labels say.
        tag: the tag to move.

    Raises:
        RegistryRefused: a call failed. The tag has moved or not.
    """
    log = TagLog(ecr, registry, tag)
    first = ecr.manifest(tag=tag)
    decisions, foreign = _noted(log, first)
    if foreign:
        return Move(tag, "kept", hindrance(None, new))
    there = alive(log, decisions, first)
    mine = Decision(what="pushed", number=next_number(decisions), at=new.built, digest=manifest.digest, image=new)
    if standing([*there, mine]).digest == manifest.digest != standing(there).digest:
        log.write(decisions, "pushed", manifest.digest, new)
    now, stuck = follow(log)
    if now.digest == manifest.digest and not stuck:
        before = None if first is None else first.digest
        return Move(tag, "made" if first is None else "there already" if before == manifest.digest else "moved")
    return Move(tag, "kept", stuck or held_text(now) or hindrance(now.image, new) or "another push moved it")


def foresee(ecr: Ecr, registry: Registry, digest: str, new: Published, tag: str) -> Move:
    """What :func:`move` would do now; nothing is written.

    Args:
        ecr: the repository.
        registry: the same, over HTTP.
        digest: of the image; for one that is not in the registry yet, any other text.
        new: what its labels say.
        tag: the tag to move.

    Raises:
        RegistryRefused: a call failed.
    """
    log = TagLog(ecr, registry, tag)
    first = ecr.manifest(tag=tag)
    decisions, foreign = _noted(log, first, write=False)
    if foreign:
        return Move(tag, "kept", hindrance(None, new))
    if first is not None and first.digest == digest:
        return Move(tag, "there already")
    there = alive(log, decisions, first)
    mine = Decision(what="pushed", number=next_number(decisions), at=new.built, digest=digest, image=new)
    now = standing([*there, mine])
    if now.digest == digest:
        return Move(tag, "made" if first is None else "moved")
    return Move(tag, "kept", held_text(now) or hindrance(now.image, new))


def decide(log: TagLog, what: What, image: ImageManifest | None = None, reason: str = "") -> Move:
    """Write a decision about a tag, and put the tag where it belongs then.

    Args:
        log: of the tag, which may not exist yet.
        what: is decided.
        image: that the tag is for; ``None`` if it stays where it is.
        reason: for people.

    Raises:
        RegistryRefused: a call failed, or the tag cannot move. The decision is written or not.
    """
    ecr, registry, tag = log.ecr, log.registry, log.tag
    before = ecr.manifest(tag=tag)
    decisions, foreign = _noted(log, before)
    if foreign and image is None and before is not None:
        image = before  # what is held has to be known
    labels = registry.published(image) if image is not None else None
    log.write(decisions, what, image.digest if image is not None else "", labels, reason)
    now, stuck = follow(log)
    if stuck:
        raise RegistryRefused(
            f"{ecr.place.tagged(tag)}: {stuck}",
            remedy="docs/push.md says which tags a repository lets move; aws ecr put-image-tag-mutability changes it.",
            cause="immutable",
        )
    same = before is not None and before.digest == now.digest
    return Move(tag, "there already" if same else "made" if before is None else "moved", held_text(now))


def follow(log: TagLog) -> tuple[TagStanding, str]:
    """Put a tag where its log says, until nobody else has changed either of them.

    Returns:
        Where it belongs, and why it cannot be put there (empty if it is there).

    Raises:
        RegistryRefused: a call failed, or others keep changing the tag.
    """
    ecr = log.ecr
    for _ in range(_ROUNDS):
        # In this order: a pusher writes its decision before it sets the tag, so what the tag points to and the log
        # lacks was set by something else.
        current = ecr.manifest(tag=log.tag)
        decisions, foreign = _noted(log, current)
        now = standing(alive(log, decisions, current))
        if foreign or not now.digest:
            return now, "it points to an image that was not built by Trainwright" if foreign else ""
        current = ecr.manifest(tag=log.tag)
        if current is not None and current.digest == now.digest:
            return now, ""
        image = ecr.manifest(digest=now.digest)
        if image is not None and not ecr.put_tag(image, log.tag):
            return now, _FIXED
    raise RegistryRefused(
        f"{ecr.place.tagged(log.tag)}: others kept moving this tag",
        remedy="Run the same command again; ./invoke tags list shows who moves it.",
        cause="busy",
    )


def set_own(ecr: Ecr, registry: Registry, manifest: ImageManifest, tag: str) -> Move:
    """Set a tag that the user named, wherever it points now.

    Raises:
        RegistryRefused: it is held, it is immutable and belongs to another image, or a call failed.
    """
    current = ecr.digest(tag)
    log = TagLog(ecr, registry, tag)
    decisions = log.read()
    if why := held_text(standing(decisions)):
        raise RegistryRefused(
            f"{ecr.place.tagged(tag)}: {why}",
            remedy=f"./invoke tags release {tag}   # or use another --tag. The image itself is pushed: "
            f"{ecr.place.digested(manifest.digest)}",
            cause="held",
            uri=ecr.place.digested(manifest.digest),
        )
    if decisions:
        return decide(log, "moved", manifest)
    if current == manifest.digest:
        return Move(tag, "there already")
    if not ecr.put_tag(manifest, tag):
        raise RegistryRefused(
            f"{ecr.place.tagged(tag)}: immutable, and it points to {current or 'another image'}",
            remedy=f"Use another --tag. The image itself is pushed: {ecr.place.digested(manifest.digest)}",
            cause="immutable",
            uri=ecr.place.digested(manifest.digest),
        )
    return Move(tag, "made" if current is None else "moved")


def _noted(log: TagLog, current: ImageManifest | None, *, write: bool = True) -> tuple[Sequence[Decision], bool]:
    """The log of a tag, with an entry for what the tag points to if something else set it.

    Args:
        log: of the tag.
        current: what the tag pointed to before this reads the log.
        write: that entry into the log.

    Returns:
        The decisions, and whether the tag points to an image that is not one of Trainwright's and of which the log
        says nothing.
    """
    decisions = log.read()
    if current is None or any(one.digest == current.digest for one in decisions):
        return decisions, False
    image = log.registry.published(current)
    if image is None or not image.plan:
        return decisions, True
    if not write:
        number, now = next_number(decisions), datetime.now(UTC)
        return [*decisions, Decision(what="found", number=number, at=now, digest=current.digest, image=image)], False
    return [*decisions, log.write(decisions, "found", current.digest, image)], False


def alive(log: TagLog, decisions: Sequence[Decision], current: ImageManifest | None) -> Sequence[Decision]:
    """The decisions without those for a deleted image, so that the tag belongs where it did before them.

    Args:
        log: of the tag.
        decisions: of the log.
        current: what the tag points to, which is there.
    """
    while True:
        digest = standing(decisions).digest
        there = current is not None and current.digest == digest
        if not digest or there or log.ecr.manifest(digest=digest) is not None:
            return decisions
        decisions = [one for one in decisions if one.digest != digest]
