"""The one rule of tags.

An image gets one *immutable* tag, which names all that it is, and *moving* ones, which name the newest of a kind:

    pytorch-2.6.0-cu124-py311-debian12-20261121-1a2b3c4d5e6f     immutable
    pytorch-2.6.0-cu124                                          moving: the newest build of 2.6.0
    pytorch-2.6-cu124                                            moving: the newest build of the newest 2.6.x

What sets an image apart from its image line (``--with compiler``) is part of both, so the plain image and the one with
a compiler do not take turns under one name.

ECR tells tags apart by wildcards. Immutable tags name Python's version and moving ones never do: ``*-py3*`` protects
them in a repository whose tags may move. Moving tags end with the CUDA version and immutable ones never do, so one
filter per CUDA version lets them move where tags are immutable.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from pydantic import Field

from trainwright.catalog.image_line import cuda_tag, version_key
from trainwright.core.errors import RequestError
from trainwright.core.records import Record
from trainwright.plan.plan import Plan, variant

LENGTH = 128  # of the grammar of image references (distribution/reference)
UNTESTED = "untested"  # ends the immutable tag of an image that did not pass its smoke tests
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_PLAN_DIGITS = 12
_IMMUTABLE = re.compile(rf".+-([0-9]{{8}})(?:\.([0-9]+))?-([0-9a-f]{{{_PLAN_DIGITS}}})(?:-{UNTESTED})?")


class Tags(Record):
    """The tags of one image. ``moving`` goes from the most to the least specific."""

    immutable: str
    moving: tuple[str, ...]
    filter: str = Field(description="ECR's wildcard that every moving tag fits and no immutable one")


def tags_of(plan: Plan, built: datetime, *, revision: int = 1, untested: bool = False) -> Tags:
    """The tags of an image.

    Args:
        plan: what it was built from.
        built: when, in any time zone; the tag has the day in UTC.
        revision: tells several builds of one plan on one day apart.
        untested: it did not pass its smoke tests.

    Raises:
        RequestError: ``revision`` is less than 1.
    """
    if revision < 1:
        raise RequestError(f"--revision {revision}: counts from 1")
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
    """A tag of the user's own.

    Raises:
        RequestError: it is no tag, or has the form of an immutable tag, which only the rule gives.
    """
    if not _TAG.fullmatch(tag):
        near = _clean(tag)[:LENGTH].lstrip(".-")
        raise RequestError(
            f"--tag {tag}: no tag (1 to {LENGTH} of letters, digits, _ . -, the first no . or -)",
            remedy=f"For example: --tag {near or 'nightly'}",
        )
    if _IMMUTABLE.fullmatch(tag):
        raise RequestError(
            f"--tag {tag}: has the form of an immutable tag, which says of itself what image it is",
            remedy="Take another name; the image gets its immutable tag by itself.",
        )
    return tag


def order(version: str, built: datetime) -> tuple[tuple[int, ...], datetime]:
    """What a moving tag never goes back in: the framework's version first, then the moment of the build."""
    return version_key(version.split("+", maxsplit=1)[0]), built


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", ".", text)
