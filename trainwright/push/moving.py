"""Tags that move: forward only, and only to what the registry holds whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainwright.core.errors import RegistryRefused
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.registry import Published, Registry
from trainwright.push.tags import order

TagState = Literal["moved", "made", "there already", "kept"]


@dataclass(frozen=True)
class Move:
    """What became of a moving tag; ``says`` why it was kept where it is."""

    tag: str
    state: TagState
    says: str = ""


def hindrance(current: Published | None, new: Published) -> str:
    """Why a tag that points to one image may not move to another; empty where it may.

    Args:
        current: what the tag points to; nothing where that is no single image.
        new: what was pushed.
    """
    if current is None or not current.plan:
        return "it points to something that was not built by Trainwright"
    if current.framework != new.framework:
        return f"it points to an image with {current.framework}"
    if new.unproven and not current.unproven:
        return "it points to an image that passed its smoke tests, and this one did not"
    if current.unproven and not new.unproven:
        return ""
    if order(new.version, new.built) < order(current.version, current.built):
        return f"it points to a newer image: {current.version}, built {current.built:%Y-%m-%d %H:%M} UTC"
    return ""


def move(ecr: Ecr, registry: Registry, manifest: ImageManifest, new: Published, tag: str) -> Move:
    """Move a tag to an image that the registry holds, where that is forward.

    Args:
        ecr: the repository.
        registry: the same, over HTTP.
        manifest: of the image.
        new: what it says of itself.
        tag: to be moved.

    Raises:
        RegistryRefused: a call failed. The tag is where it was, or moved.
    """
    current = ecr.manifest(tag=tag)
    if current is not None and current.digest == manifest.digest:
        return Move(tag, "there already")
    if current is not None and (why := hindrance(registry.published(current), new)):
        return Move(tag, "kept", why)
    if not ecr.put_tag(manifest, tag):
        return Move(tag, "kept", "the repository lets no such tag move (its tag mutability has no filter for it)")
    return Move(tag, "made" if current is None else "moved")


def set_own(ecr: Ecr, manifest: ImageManifest, tag: str) -> Move:
    """Set a tag of the user's own, wherever it points: it was asked for by name.

    Raises:
        RegistryRefused: it is immutable and belongs to another image, or a call failed.
    """
    current = ecr.digest(tag)
    if current == manifest.digest:
        return Move(tag, "there already")
    if not ecr.put_tag(manifest, tag):
        raise RegistryRefused(
            f"{ecr.place.tagged(tag)}: immutable, and it points to {current or 'another image'}",
            remedy=f"Take another --tag. The image itself is pushed: {ecr.place.digested(manifest.digest)}",
            cause="immutable",
            uri=ecr.place.digested(manifest.digest),
        )
    return Move(tag, "made" if current is None else "moved")
