"""The rule for tags.

An image gets one *immutable* tag, which describes it completely, and *moving* tags, which name the newest of a kind:

    pytorch-2.6.0-cu124-py311-debian12-20261121-1a2b3c4d5e6f     immutable
    pytorch-2.6.0-cu124                                          moving: the newest build of 2.6.0
    pytorch-2.6-cu124                                            moving: the newest build of the newest 2.6.x

The same image with a SOCI index is another one, whose immutable tag ends with ``-soci``.

A moving tag belongs to one image line: the one that a request for this framework, version and CUDA takes. Another line
of the same version and CUDA has its distribution in its tag (``pytorch-2.13.0-amazonlinux2023-cu130``); a line that no
such request takes has no tag for it. So two builds never compete for one tag unless they build the same line.

What distinguishes an image from its image line (``--with compiler``) is part of both, so the plain image and the one
with a compiler never share a name.

ECR distinguishes tags by wildcards. Immutable tags contain Python's version and moving tags never do: ``*-py3*``
protects them in a repository with mutable tags. Moving tags end with the CUDA version and immutable tags never do, so
one filter per CUDA version lets them move in a repository with immutable tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import ImageLine, cuda_tag, version_key
from trainwright.core.errors import RequestError
from trainwright.core.records import Field, Record
from trainwright.plan.plan import Plan, variant
from trainwright.plan.request import Request
from trainwright.plan.resolve import line_taken

LENGTH = 128  # of the grammar of image references (distribution/reference)
PREFIX = "history-"  # of the tags of a log: a lifecycle rule for untagged images must not remove it
PROOF_PREFIX = "sha256-"  # of the tags of documents attached to an image, which name its digest
SOCI = "soci"  # ends the immutable tag of an image with a SOCI index
UNTESTED = "untested"  # ends the immutable tag of an image that did not pass its smoke tests
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_PLAN_DIGITS = 12
_IMMUTABLE = re.compile(rf".+-([0-9]{{8}})(?:\.([0-9]+))?-([0-9a-f]{{{_PLAN_DIGITS}}})(?:-{UNTESTED})?(?:-{SOCI})?")


class Tags(Record):
    """The tags of one image. ``moving`` is ordered from the most to the least specific."""

    immutable: str
    moving: tuple[str, ...]
    filter: str = Field(description="ECR's wildcard that matches every moving tag and no immutable one")


def tags_of(plan: Plan, built: datetime, catalog: Catalog, *, revision: int = 1, untested: bool = False) -> Tags:
    """The tags of an image.

    Args:
        plan: the plan of the image.
        built: time of the build, in any time zone; the tag has the day in UTC.
        catalog: the image lines, of which each moving tag belongs to one.
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
    moving = [_clean(name) for name in _moving(plan, catalog)]
    return Tags(
        immutable=head + tail,
        moving=tuple(tag for tag in moving if len(tag) <= LENGTH),
        filter=wildcard_of(plan),
    )


def _moving(plan: Plan, catalog: Catalog) -> Iterator[str]:
    """The names of the moving tags that belong to an image's line."""
    version = plan.version.split("+", maxsplit=1)[0]
    end = (f"-{plan.flavour}" if plan.flavour else "") + f"-{cuda_tag(plan.cuda)}"
    base = f"{plan.base.os.replace('-', '')}{'-dlc' if plan.base.kind == 'dlc' else ''}"
    for number, name in enumerate(dict.fromkeys([version, ".".join(version.split(".")[:2])])):
        bare = Request(framework=plan.framework, cuda=plan.cuda, version=name)
        owner = line_taken(bare, catalog)
        # A version that no line has (--allow-unproven) takes nothing from any line, except the name of its minor one.
        if _is_of(plan, owner) or (owner is None and number == 0):
            yield f"{plan.framework}-{name}{end}"
        elif number == 0:
            # A request takes it by its base or by its Python alone. Its tag has the base: one with the Python
            # would look like an immutable one to the repository (`immutable_tags`).
            closer = (bare.replace(base=plan.base.kind), bare.replace(python=plan.python))
            if any(_is_of(plan, line_taken(request, catalog)) for request in closer):
                yield f"{plan.framework}-{name}-{base}{end}"


def _is_of(plan: Plan, line: ImageLine | None) -> bool:
    """Whether a plan is one of this image line."""
    return line is not None and (plan.version.split("+", maxsplit=1)[0], plan.python, plan.base.kind, plan.base.os) == (
        line.version.split("+", maxsplit=1)[0],
        line.python,
        line.base.kind,
        line.base.os,
    )


def wildcard_of(plan: Plan) -> str:
    """ECR's wildcard that matches every moving tag of an image and no immutable one."""
    return f"*-{cuda_tag(plan.cuda)}"


def is_immutable(tag: str) -> bool:
    """Whether a tag has the form of an immutable one."""
    return _IMMUTABLE.fullmatch(tag) is not None


def newest_first(tags: Iterable[str]) -> list[str]:
    """The immutable tags among some tags, by day and revision; the one with a SOCI index before that of its image."""
    found = [(match, tag) for tag in tags if (match := _IMMUTABLE.fullmatch(tag))]
    found.sort(key=lambda each: (each[0][1], int(each[0][2] or 1), each[1].endswith(f"-{SOCI}")), reverse=True)
    return [tag for _, tag in found]


def of_plan(tags: Iterable[str], plan: Plan) -> list[str]:
    """The immutable tags of a plan's tested images among some tags, the newest first."""
    own = f"-{plan.id[:_PLAN_DIGITS]}"
    return [tag for tag in newest_first(tags) if tag.removesuffix(f"-{SOCI}").endswith(own)]


def soci_tag(immutable: str) -> str:
    """The immutable tag of an image with a SOCI index, from that of the image without it."""
    match = _IMMUTABLE.fullmatch(immutable)
    tail = f"{immutable[match.start(1) - 1 :] if match else ''}-{SOCI}"
    head = immutable[: match.start(1) - 1] if match else immutable
    return head[: LENGTH - len(tail)].rstrip(".-") + tail


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
    if is_immutable(tag):
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
