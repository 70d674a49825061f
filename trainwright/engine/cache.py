"""Registry caches: the layers of build stages in a registry, for builds on another machine (``build --cache``).

The first reference is read and written, further ones are only read. A reference without a tag gets one of the image's
own, so that the image lines of a repository do not overwrite each other's cache.
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
# ECR takes a cache as an image manifest alone (AWS containers blog, "Remote cache support in Amazon ECR for BuildKit
# clients"); BuildKit writes that from 0.12 on. Every intermediate stage is in it (mode=max). A cache that cannot be
# written is no reason for a build to fail.
_EXPORT = "mode=max,image-manifest=true,oci-mediatypes=true,ignore-error=true"


def check_reference(reference: str) -> str:
    """A reference of ``--cache``, as it is.

    Raises:
        RequestError: it names no repository of a registry.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None or not ("." in match["host"] or ":" in match["host"] or match["host"] == "localhost"):
        raise RequestError(
            f"--cache {reference}: no repository of a registry (registry/repository, or registry/repository:tag)",
            remedy="For example: --cache 123456789012.dkr.ecr.us-west-2.amazonaws.com/trainwright/cache",
        )
    return reference


def cache_options(references: Sequence[str], plan: Plan) -> tuple[list[str], list[str]]:
    """What BuildKit is told to read and to write, in the form of ``--cache-from`` and ``--cache-to``.

    Args:
        references: of ``--cache``.
        plan: gives a reference without a tag its own.

    Raises:
        RequestError: a reference names no repository of a registry.
    """
    full = [_with_tag(check_reference(reference), plan) for reference in references]
    return [f"type=registry,ref={one}" for one in full], [f"type=registry,ref={one},{_EXPORT}" for one in full[:1]]


def _with_tag(reference: str, plan: Plan) -> str:
    match = _REFERENCE.fullmatch(reference)
    if match is None or match["tag"]:
        return reference
    return f"{reference}:{f'{plan.framework}-{variant(plan)}'[:128]}"


def cache_words(references: Sequence[str], plan: Plan, builder: Builder, *, say: Say) -> list[str]:
    """The arguments of the client for these caches; those that the builder cannot use are left out, and that is said.

    Args:
        references: of ``--cache``.
        plan: of the image.
        builder: who builds.
        say: told what cannot be done.

    Raises:
        RequestError: a reference names no repository of a registry.
    """
    imports, exports = cache_options(references, plan)
    if not imports:
        return []
    if builder.driver == "builtin":
        say("--cache is not used: this docker client has no buildx. ./invoke doctor says how to get it.")
        return []
    words = [word for option in imports for word in ("--cache-from", option)]
    if builder.exports_cache:
        return [*words, *(word for option in exports for word in ("--cache-to", option))]
    say(
        "--cache is read and not written: the engine's own BuildKit cannot export a cache. A builder of its own can: "
        "docker buildx create --name trainwright --driver docker-container, then --builder trainwright"
    )
    return words
