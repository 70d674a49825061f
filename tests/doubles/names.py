"""Names of ECR's registries."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HOST = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")


@dataclass(frozen=True)
class Registry:
    """The registry of an account in a region."""

    account: str
    region: str

    @property
    def host(self) -> str:
        """Its DNS name; China's regions have a domain of their own."""
        domain = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        return f"{self.account}.dkr.ecr.{self.region}.{domain}"


def registry_of(host: str) -> Registry | None:
    """The registry that a ``Host`` header names; ``None``: it names none of ECR's."""
    found = _HOST.fullmatch(host.lower().removesuffix(":443"))
    return Registry(found[1], found[2]) if found else None
