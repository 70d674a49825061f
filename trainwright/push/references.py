"""The target of a push: account, region and repository of an ECR registry, and their addresses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.site.site import Aws

# The service model of ECR: lower case, digits, single separators (hyphens may repeat) between them, folders by slashes.
_NAME = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_NAME_LENGTH = range(2, 257)
_HOST = re.compile(r"(?P<account>[0-9]{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.(?P<suffix>[a-z0-9.-]+)")
_ACCOUNT = re.compile(r"[0-9]{12}")


@dataclass(frozen=True)
class PushPlace:
    """A repository in one registry. ``account`` is twelve digits."""

    account: str
    region: str
    repository: str

    @property
    def host(self) -> str:
        """The registry's host name."""
        return registry_host(self.account, self.region)

    def tagged(self, tag: str) -> str:
        """The address of a tag."""
        return f"{self.host}/{self.repository}:{tag}"

    def digested(self, digest: str) -> str:
        """The address of a digest (``sha256:…``), which nothing can move."""
        return f"{self.host}/{self.repository}@{digest}"


@dataclass(frozen=True)
class PushTarget:
    """The target on the command line; an account of ``None`` stands for the caller's."""

    repository: str
    regions: tuple[str, ...]
    account: str | None


def registry_host(account: str, region: str) -> str:
    """The host name of an account's registry in a region; China and the isolated partitions have other suffixes.

    Raises:
        RequestError: AWS has no such region.
    """
    for partition in _partitions():
        if region in partition["regions"] or re.fullmatch(partition["regionRegex"], region):
            return f"{account}.dkr.ecr.{region}.{partition['outputs']['dnsSuffix']}"
    known = [name for partition in _partitions() for name in partition["regions"]]
    raise RequestError(f"--region {region}: AWS has no such region. {did_you_mean(region, known)}")


@cache
def _partitions() -> list[dict[str, Any]]:
    """AWS's partitions with their regions and DNS suffixes, as botocore ships them."""
    from botocore.loaders import create_loader

    return list(create_loader().load_data("partitions")["partitions"])


def parse_host(host: str) -> tuple[str, str] | None:
    """Account and region of an ECR registry's host name; ``None`` for another registry."""
    match = _HOST.fullmatch(host)
    return (match["account"], match["region"]) if match else None


def check_repository(name: str) -> str:
    """Check the name of a repository.

    Raises:
        RequestError: ECR would refuse it; the remedy has the nearest valid name.
    """
    if _is_name(name):
        return name
    near = re.sub(r"[^a-z0-9._/-]+", "-", name.rpartition(":")[0].lower() or name.lower())
    near = "/".join(re.sub(r"[._-]{2,}", "-", part).strip("._-") for part in near.split("/") if part.strip("._-"))
    raise RequestError(
        f"--repository {name}: invalid repository name (2 to 256 of a-z, 0-9, with . _ - / between them)"
        if name
        else "--repository is missing",
        remedy=f"For example: --repository {near if _is_name(near) else 'team/training'}",
    )


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and len(text) in _NAME_LENGTH


def find_target(repository: str, regions: Sequence[str], account: str | None, site: Aws) -> PushTarget:
    """The target of a push; the site provides what the command line omits.

    Args:
        repository: a name, or the whole address ``ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME``.
        regions: of the command line, in its order.
        account: twelve digits.
        site: the site's account and region.

    Raises:
        RequestError: a value is malformed, two of them contradict each other, or no region is known.
    """
    host, slash, name = repository.partition("/")
    if slash and (parsed := parse_host(host)):
        for flag, value, other in (("--account", account, parsed[0]), ("--region", (*regions, None)[0], parsed[1])):
            if value and value != other:
                raise RequestError(
                    f"{flag} {value} contradicts --repository {repository}", remedy=f"Leave out one of them: {name}"
                )
        account, regions = parsed[0], (parsed[1],)
    elif slash and re.search(r"[.:]", host):
        raise RequestError(
            f"--repository {repository}: {host} is not an ECR registry",
            remedy=f"Only ECR is supported: --repository {name} --region REGION; for other registries use docker push.",
        )
    else:
        name = repository
    check_repository(name)
    account = account or site.account
    if account is not None and not _ACCOUNT.fullmatch(account):
        raise RequestError(f"--account {account}: not twelve digits", remedy="For example: --account 123456789012")
    found = tuple(dict.fromkeys(regions)) or ((site.region,) if site.region else ())
    if not found:
        raise RequestError(
            "no region is known", remedy="Add --region us-west-2, or set AWS_REGION, or [aws] region in the site file."
        )
    for region in found:
        registry_host(account or "0" * 12, region)
    return PushTarget(name, found, account)
