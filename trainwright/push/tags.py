"""The rule for tags.

An image gets one *immutable* tag, which describes it completely, and *moving* tags, which name the newest of a kind:

    pytorch-2.6.0-cu124-py311-debian12-20261121-1a2b3c4d5e6f     immutable
    pytorch-2.6.0-cu124                                          moving: the newest build of 2.6.0
    pytorch-2.6-cu124                                            moving: the newest build of the newest 2.6.x

What distinguishes an image from its image line (``--with compiler``) is part of both, so the plain image and the one
with a compiler never share a name.

ECR distinguishes tags by wildcards. Immutable tags contain Python's version and moving tags never do: ``*-py3*``
protects them in a repository with mutable tags. Moving tags end with the CUDA version and immutable tags never do, so
one filter per CUDA version lets them move in a repository with immutable tags.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from trainwright.catalog.image_line import cuda_tag, version_key
from trainwright.core.errors import RequestError
from trainwright.core.records import Field, Record
from trainwright.plan.plan import Plan, variant

LENGTH = 128  # of the grammar of image references (distribution/reference)
UNTESTED = "untested"  # ends the immutable tag of an image that did not pass its smoke tests
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_PLAN_DIGITS = 12
_IMMUTABLE = re.compile(rf".+-([0-9]{{8}})(?:\.([0-9]+))?-([0-9a-f]{{{_PLAN_DIGITS}}})(?:-{UNTESTED})?")


class Tags(Record):
    """The tags of one image. ``moving`` is ordered from the most to the least specific."""

    immutable: str
    moving: tuple[str, ...]
    filter: str = Field(description="ECR's wildcard that matches every moving tag and no immutable one")


def tags_of(plan: Plan, built: datetime, *, revision: int = 1, untested: bool = False) -> Tags:
    """The tags of an image.

    Args:
        plan: the plan of the image.
        built: time of the build, in any time zone; the tag has the day in UTC.
        revision: distinguishes several builds of one plan on one day.
        untested: whether it did not pass its smoke tests.

    Raises:
        RequestError: ``revision`` is less than 1.
    """
    if revision < 1:
        raise RequestError(f"--revision {revision}: must be at least 1")
    day = f"{built.astimezone(UTC):%Y%m%d}" + (f".{revision}" if revision > 1 else "")
    tail = f"-{day}-{plan.id[:_PLAN_DIGITS]}" + (f"-{UNTESTED}" if untested else "")
    # The plan's id makes the tag unique, so a long list of additions may be cut.
    head = _clean(f"{plan.framework}-{variant(plan)}")[: LENGTH - len(tail)].rstrip(".-")
    cuda = cuda_tag(plan.cuda)
    version = plan.version.split("+", maxsplit=1)[0]
    names = [version, ".".join(version.split(".")[:2])]
    flavour = f"-{plan.flavour}" if plan.flavour else ""
    moving = [_clean(f"{plan.framework}-{name}{flavour}-{cuda}") for name in dict.fromkeys(names)]
    return Tags(
        immutable=head + tail,
        moving=tuple(tag for tag in moving if len(tag) <= LENGTH),
        filter=f"*-{cuda}",
    )


def check_tag(tag: str) -> str:
    """Check a tag of the user's own.

    Raises:
        RequestError: it is invalid, or has the form of an immutable tag, which only the rule sets.
    """
    if not _TAG.fullmatch(tag):
        near = _clean(tag)[:LENGTH].lstrip(".-")
        raise RequestError(
            f"--tag {tag}: invalid tag (1 to {LENGTH} letters, digits, _ . -; not starting with . or -)",
            remedy=f"For example: --tag {near or 'nightly'}",
        )
    if _IMMUTABLE.fullmatch(tag):
        raise RequestError(
            f"--tag {tag}: has the form of an immutable tag, which only Trainwright sets",
            remedy="Use another name; the image gets its immutable tag automatically.",
        )
    return tag


def order(version: str, built: datetime) -> tuple[tuple[int, ...], datetime]:
    """The order in which a moving tag moves forward: the framework's version, then the time of the build."""
    return version_key(version.split("+", maxsplit=1)[0]), built


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", ".", text)
