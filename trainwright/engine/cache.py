"""Registry caches: the layers of build stages in a registry, for builds on another machine (``build --cache``).

The first reference is read and written, the others are only read. A reference without a tag gets the image's tag, so
that the image lines of a repository do not overwrite each other's cache.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainwright.core.errors import RequestError
from trainwright.core.say import Say
from trainwright.engine.builders import Builder
from trainwright.plan.plan import Plan, variant

# The grammar of image references (distribution/reference) with a registry and without a digest.
_REFERENCE = re.compile(
    r"(?P<host>[a-z0-9]+(?:[.-][a-z0-9]+)*(?::[0-9]+)?)(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)+"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
)
# ECR accepts a cache only as an image manifest (AWS containers blog, "Remote cache support in Amazon ECR for BuildKit
# clients"), which BuildKit writes since 0.12. It contains every intermediate stage (mode=max). If the cache cannot be
# written, the build does not fail.
EXPORT = "mode=max,image-manifest=true,oci-mediatypes=true,ignore-error=true"


def check_reference(reference: str) -> str:
    """Check a reference of ``--cache``; returns it unchanged.

    Raises:
        RequestError: it does not name a repository of a registry.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None or not ("." in match["host"] or ":" in match["host"] or match["host"] == "localhost"):
        raise RequestError(
            f"--cache {reference}: not a repository of a registry (registry/repository, or registry/repository:tag)",
            remedy="For example: --cache 123456789012.dkr.ecr.us-west-2.amazonaws.com/trainwright/cache",
        )
    return reference


def cache_options(references: Sequence[str], plan: Plan) -> tuple[list[str], list[str]]:
    """The values of ``--cache-from`` and ``--cache-to``.

    Args:
        references: of ``--cache``.
        plan: provides the tag for a reference without one.

    Raises:
        RequestError: a reference does not name a repository of a registry.
    """
    full = [_with_tag(check_reference(reference), plan) for reference in references]
    return [f"type=registry,ref={one}" for one in full], [f"type=registry,ref={one},{EXPORT}" for one in full[:1]]


def _with_tag(reference: str, plan: Plan) -> str:
    match = _REFERENCE.fullmatch(reference)
    if match is None or match["tag"]:
        return reference
    return f"{reference}:{own_tag(plan)}"


def own_tag(plan: Plan) -> str:
    """The tag of an image line's cache in a repository."""
    return f"{plan.framework}-{variant(plan)}"[:128]


def cache_words(references: Sequence[str], plan: Plan, builder: Builder, *, say: Say) -> list[str]:
    """The client's arguments for these caches, without those that the builder does not support.

    Args:
        references: of ``--cache``.
        plan: of the image.
        builder: the builder.
        say: progress callback, for what is not supported.

    Raises:
        RequestError: a reference does not name a repository of a registry.
    """
    imports, exports = cache_options(references, plan)
    if not imports:
        return []
    if builder.driver == "builtin":
        say("--cache is not used: this docker client has no buildx. ./invoke doctor shows how to get it.")
        return []
    words = [word for option in imports for word in ("--cache-from", option)]
    if builder.exports_cache:
        return [*words, *(word for option in exports for word in ("--cache-to", option))]
    say(
        "--cache is read but not written: the engine's own BuildKit cannot export a cache. A separate builder can: "
        "docker buildx create --name trainwright --driver docker-container, then --builder trainwright"
    )
    return words
