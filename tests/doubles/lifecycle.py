"""What ECR demands of a lifecycle policy, and what one does; moto knows neither pulls nor the archive.

By its user guide: "Lifecycle policy properties", "Automate the cleanup of images", "Archiving an image".
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.doubles.images import Images

DAY = 86400  # seconds
_AGES = {"sinceImagePushed", "sinceImagePulled", "sinceImageTransitioned"}
_SELECTION = {"tagStatus", "tagPatternList", "tagPrefixList", "storageClass", "countType", "countUnit", "countNumber"}


@dataclass
class Kept:
    """An image: its tags, and the days on which it was pushed, pulled and archived."""

    tags: tuple[str, ...] = ()
    pushed: float = 0
    pulled: float | None = None
    archived: float | None = None


def faults(text: str) -> list[str]:
    """Why ECR refuses a policy; none if it takes it."""
    rules = json.loads(text)["rules"]
    found = [fault for rule in rules for fault in _of_rule(rule)]
    if sorted({rule["rulePriority"] for rule in rules}) != sorted(rule["rulePriority"] for rule in rules):
        found.append("two rules have one priority")
    last = max(rules, key=lambda rule: rule["rulePriority"])
    any_image = [rule for rule in rules if rule["selection"]["tagStatus"] == "any"]
    if any_image and any_image[-1] is not last:
        found.append("the rule about any image is not the last")
    return found


class Validator:
    """In place of moto's, which lags behind."""

    def __init__(self, text: str) -> None:
        self.text = text

    def validate(self) -> None:
        assert not faults(self.text), faults(self.text)


def _of_rule(rule: dict[str, Any]) -> Iterator[str]:
    what, action = rule["selection"], rule["action"]
    kind, archived = what["countType"], what.get("storageClass", "standard") == "archive"
    if unknown := set(what) - _SELECTION:
        yield f"unknown: {unknown}"
    if what["tagStatus"] not in ("tagged", "untagged", "any"):
        yield "tagStatus"
    if (what["tagStatus"] == "tagged") != bool(what.get("tagPatternList") or what.get("tagPrefixList")):
        yield "patterns are of tagged images"
    if (kind in _AGES) != (what.get("countUnit") == "days") or kind not in {*_AGES, "imageCountMoreThan"}:
        yield "countUnit"
    if not isinstance(what["countNumber"], int) or what["countNumber"] < 1:
        yield "countNumber"
    if (kind == "sinceImageTransitioned") != archived:
        yield "storageClass"
    if action["type"] == "transition":
        if action.get("targetStorageClass") != "archive" or archived:
            yield "targetStorageClass"
    elif action["type"] != "expire" or kind == "sinceImagePulled":
        yield "what was not pulled can only be archived"
    if kind == "sinceImageTransitioned" and (action["type"] != "expire" or what["countNumber"] < 90):
        yield "an image stays in the archive for 90 days"


def applied(text: str, images: dict[str, Kept], day: float) -> dict[str, str]:
    """What a policy does on a day: ``expire`` or ``transition`` for each image that it takes.

    An image that fits a rule by its tags and its storage is out of reach of the rules below it; all patterns of a rule
    have to fit one of the image's tags each. Images are counted from the newest on.
    """
    done: dict[str, str] = {}
    taken: set[str] = set()
    for rule in sorted(json.loads(text)["rules"], key=lambda rule: rule["rulePriority"]):
        what = rule["selection"]
        fit = {name for name, image in images.items() if name not in taken and _fits(what, image)}
        if what["countType"] == "imageCountMoreThan":
            newest = sorted(fit, key=lambda name: images[name].pushed, reverse=True)
            found = set(newest[what["countNumber"] :])
        else:
            found = {name for name in fit if day - _since(what["countType"], images[name]) > what["countNumber"]}
        done |= dict.fromkeys(found, rule["action"]["type"])
        taken |= fit
    return done


def _fits(what: dict[str, Any], image: Kept) -> bool:
    if (what.get("storageClass", "standard") == "archive") != (image.archived is not None):
        return False
    patterns = what.get("tagPatternList", [])
    tagged = bool(image.tags) and all(any(fnmatch.fnmatchcase(tag, one) for tag in image.tags) for one in patterns)
    return {"any": True, "untagged": not image.tags, "tagged": tagged}[what["tagStatus"]]


def _since(kind: str, image: Kept) -> float:
    """The day from which a rule counts; an image that was never pulled counts from its push."""
    if kind == "sinceImagePulled" and image.pulled is not None:
        return image.pulled
    return image.archived or 0 if kind == "sinceImageTransitioned" else image.pushed


def age(images: Images, repository: Any, now: float) -> dict[str, str]:
    """Let a repository's own policy do to its images what it does at a time; what became of each, by its digest.

    What is attached to an image that is deleted goes with it (ECR user guide, "Deleting an image").

    Args:
        images: of all registries.
        repository: moto's record of it, with a policy.
        now: in seconds since 1970.
    """
    kept = {
        one.image_digest: Kept(
            tuple(one.image_tags),
            one.image_pushed_at / DAY,
            found / DAY if (found := getattr(one, "pulled", None)) else None,
            getattr(one, "archived", None),
        )
        for one in repository.images
    }
    done = applied(repository.lifecycle_policy, kept, now / DAY)
    for digest, what in done.items():
        (image,) = (one for one in repository.images if one.image_digest == digest)
        if what == "transition":
            image.archived, image.status = now / DAY, "ARCHIVED"
            continue
        gone = {digest, *(one["digest"] for one in images.referrers(repository, digest))}
        repository.images[:] = [one for one in repository.images if one.image_digest not in gone]
    return done
