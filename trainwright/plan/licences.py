"""Licences: what a plan says about passing an image on, and which registries everybody can read."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.core.errors import RequestError
from trainwright.plan.plan import Plan, PlannedComponent

# Registries whose repositories are public unless they are made private.
PUBLIC = ("docker.io", "index.docker.io", "public.ecr.aws", "ghcr.io", "quay.io", "registry.gitlab.com")


def redistribution(components: Sequence[PlannedComponent]) -> list[str]:
    """The notice about components that may not be passed on, or only under conditions."""
    told = []
    for word, says in (
        ("no", "must not be redistributed"),
        ("conditions", "only under the conditions of their licences"),
    ):
        names = [c.name for c in components if c.licence is not None and c.licence.redistribute == word]
        told += [f"{', '.join(names)} {says}"] if names else []
    return [f"licences (/licenses in the image): {'; '.join(told)}"] if told else []


def check_public(plan: Plan, repository: str, *, allowed: bool) -> None:
    """Check that an image may go to a repository.

    Args:
        plan: of the image.
        repository: host and path.
        allowed: whether the caller says that it may.

    Raises:
        RequestError: the registry is a public one, and components must not be redistributed.
    """
    host = repository.partition("/")[0]
    host = host if "." in host or ":" in host or host == "localhost" else PUBLIC[0]
    held = (*plan.restricted("no"), *plan.restricted("conditions"))
    if host in PUBLIC and held and not allowed:
        raise RequestError(
            f"--registry {repository}: {host} is a public registry, and the licences of {', '.join(held)} do not allow "
            "redistribution, or only under conditions",
            remedy="Push to a private registry, or, if the repository is private or you have the permission: "
            "--allow-redistribution. `./invoke plan --json` has the licences.",
        )
