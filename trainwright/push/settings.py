"""Checks whether a repository exists and which of its tags may move; ``--create`` fixes both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from trainwright.core.errors import RegistryRefused
from trainwright.core.say import Say
from trainwright.push.ecr import Ecr
from trainwright.push.repository import FILTERS, RepositoryPolicy


def settle(ecr: Ecr, policy: RepositoryPolicy, filters: Sequence[str], *, create: bool, say: Say) -> Mapping[str, Any]:
    """Make sure that a repository can be pushed to.

    Args:
        ecr: the repository.
        policy: for creating it.
        filters: wildcards of the tags that must be able to move.
        create: create it if it is missing, and add missing filters.
        say: progress callback.

    Returns:
        ECR's description of the repository.

    Raises:
        RegistryRefused: it is missing and ``create`` is not set, or ECR refused.
    """
    place = ecr.place
    found = ecr.repository()
    if found is None:
        if not create:
            raise RegistryRefused(
                f"{place.host} has no repository {place.repository}",
                remedy="Run the same command with --create: it creates the repository with immutable tags, scan on "
                "push, encryption and a lifecycle policy (docs/push.md).",
                cause="repository",
                place=f"{place.host}/{place.repository}",
            )
        if ecr.create(policy, list(filters)[:FILTERS]):
            say(f"created the repository {place.host}/{place.repository}")
        found = ecr.repository()
        if found is None:
            raise RegistryRefused(
                f"{place.host}/{place.repository}: created, but not found", remedy="Run the same command again."
            )
    lacking = filters_lacking(found, filters)
    if not (create and lacking and found.get("imageTagMutability") == "IMMUTABLE_WITH_EXCLUSION"):
        return found
    known = _filters(found)
    if len(known) + len(lacking) > FILTERS:
        say(f"{place.repository} has {len(known)} filters for moving tags, and ECR accepts {FILTERS}, so none is added")
        return found
    ecr.set_filters([*known, *lacking])
    say(f"tags of {place.repository} that match {', '.join(lacking)} can move now")
    return ecr.repository() or found


def filters_lacking(description: Mapping[str, Any], filters: Sequence[str]) -> list[str]:
    """The wildcards whose tags a repository does not let move."""
    return [one for one in filters if not may_move(description, one.replace("*", "x"))]


def may_move(description: Mapping[str, Any], tag: str) -> bool:
    """Whether a repository lets a tag move once it exists."""
    excluded = any(fnmatchcase(tag, one) for one in _filters(description))
    return {
        "MUTABLE": True,
        "MUTABLE_WITH_EXCLUSION": not excluded,
        "IMMUTABLE_WITH_EXCLUSION": excluded,
    }.get(str(description.get("imageTagMutability", "MUTABLE")), False)


def _filters(description: Mapping[str, Any]) -> list[str]:
    return [str(one["filter"]) for one in description.get("imageTagMutabilityExclusionFilters") or ()]
