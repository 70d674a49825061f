"""The labels of an image in Amazon ECR: its configuration is read as docker reads it, nothing is pulled."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from trainwright.site import Site, load_site
from trainwright.web import FAILURES, open_url

SECONDS = 20.0
ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    )
)


def ecr_labels(host: str, region: str, repository: str, which: str) -> Mapping[str, str] | None:
    """The labels of an image in ECR; nothing without credentials, without the image, or without an answer.

    Args:
        host: of the registry; its first part is the account.
        region: of the registry.
        repository: its name.
        which: a tag or a digest.
    """
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    config = Config(connect_timeout=5, read_timeout=SECONDS, retries={"mode": "standard", "total_max_attempts": 2})
    try:
        client = boto3.session.Session().client("ecr", region_name=region, config=config)
        answer = client.get_authorization_token(registryIds=[host.partition(".")[0]])
        token = base64.b64decode(answer["authorizationData"][0]["authorizationToken"]).decode()
    except (BotoCoreError, ClientError, LookupError, ValueError):
        return None
    user, _, password = token.partition(":")
    return read_labels(f"https://{user}:{quote(password, safe='')}@{host}", repository, which, load_site())


def read_labels(registry: str, repository: str, which: str, site: Site) -> Mapping[str, str] | None:
    """The labels of an image in a registry; of several platforms that for x86-64.

    Args:
        registry: its address, with user and password where it wants them.
        repository: the image's name there.
        which: a tag or a digest.
        site: proxies and authorities.

    Returns:
        The labels; nothing where the registry does not have the image, or gives something else.
    """
    root = f"{registry}/v2/{repository}"
    try:
        manifest = json.loads(_read(f"{root}/manifests/{which}", site))
        if "manifests" in manifest:
            manifest = json.loads(_read(f"{root}/manifests/{_platform(manifest)['digest']}", site))
        digest = manifest["config"]["digest"]
        content = _read(f"{root}/blobs/{digest}", site)
        if f"sha256:{sha256(content).hexdigest()}" != digest:
            return None
        labels = (json.loads(content).get("config") or {}).get("Labels")
    except (*FAILURES, LookupError, TypeError, AttributeError):
        return None
    return labels if isinstance(labels, dict) else None


def _platform(index: Mapping[str, Any]) -> Mapping[str, Any]:
    wanted = [each for each in index["manifests"] if each.get("platform", {}).get("architecture") == "amd64"]
    first: Mapping[str, Any] = (wanted or index["manifests"])[0]
    return first


def _read(url: str, site: Site) -> bytes:
    with open_url(url, site, {"Accept": ACCEPT}, SECONDS) as answer:
        return answer.read()
