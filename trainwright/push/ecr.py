"""The API of ECR for one repository: who calls, the registry's token, repositories, manifests, tags."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trainwright.core.errors import RegistryRefused
from trainwright.push.references import Place
from trainwright.push.refusals import LOGIN, aws_failure
from trainwright.push.repository import RepositoryPolicy
from trainwright.site.site import Site

TRIES = 5  # of one call, the first included (botocore: backoff with jitter, 20 s at most)
MARGIN = timedelta(minutes=10)  # a token that ends sooner is not begun with
MANIFESTS = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.index.v1+json",
)


@dataclass(frozen=True)
class Token:
    """User and password of a registry. Never written anywhere; ``repr`` does not show the password."""

    user: str
    password: str
    expires: datetime

    def __repr__(self) -> str:
        return f"Token({self.user}, until {self.expires:%Y-%m-%d %H:%M} UTC)"


@dataclass(frozen=True)
class ImageManifest:
    """An image as a registry holds it. ``text`` is the manifest byte for byte: its sha256 is ``digest``."""

    digest: str
    text: str
    media_type: str


def aws_client(service: str, region: str, site: Site, tries: int | None = None) -> Any:
    """A boto3 client with bounded retries, the site's proxies and certificate authorities.

    Args:
        service: of AWS.
        region: of the service.
        site: proxies and authorities.
        tries: of one call (default: ``TRIES``).

    Raises:
        RegistryRefused: the profile that the environment names does not exist.
    """
    import os

    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    proxies = {kind: url for kind in ("http", "https") if (url := getattr(site.proxies, kind))}
    config = Config(
        retries={"mode": "standard", "total_max_attempts": tries or TRIES},
        connect_timeout=10,
        read_timeout=60,
        proxies=None if site.origins.get("proxies") == "environment" or not proxies else proxies,
        user_agent_extra="trainwright",
    )
    # botocore reads the environment's own bundle; the site's is for those who set none for AWS.
    bundle = None if os.environ.get("AWS_CA_BUNDLE") or site.ca_bundle is None else str(site.ca_bundle)
    # botocore looks for a profile, a bundle or an endpoint of the name "" where such a variable is empty.
    for name in [name for name, value in os.environ.items() if name.startswith("AWS_") and not value]:
        del os.environ[name]
    try:
        return boto3.session.Session().client(service, region_name=region, config=config, verify=bundle)
    except BotoCoreError as error:
        raise aws_failure(error, action=service, where=region) from None


def caller_account(region: str, site: Site) -> str:
    """The account that the credentials belong to.

    Raises:
        RegistryRefused: AWS does not know them, or there are none.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    client = aws_client("sts", region, site)
    try:
        return str(client.get_caller_identity()["Account"])
    except (BotoCoreError, ClientError) as error:
        raise aws_failure(error, action="sts:GetCallerIdentity", where=f"AWS in {region}") from None


class Ecr:
    """One repository. Every call raises :class:`RegistryRefused` where AWS refuses or does not answer."""

    def __init__(self, place: Place, site: Site, tries: int | None = None) -> None:
        self.place = place
        self._client = aws_client("ecr", place.region, site, tries)
        self._token: Token | None = None
        self._used = False

    def token(self, *, renew: bool = False) -> Token:
        """A token that the registry should take: the one at hand, or a new one where that is about to end.

        A token that claims to be expired the moment that AWS gives it is used nevertheless (clocks differ, and an
        emulator may know one date alone); so this never asks twice for one use.

        Args:
            renew: the registry refused the one at hand.
        """
        ends = self._token is None or datetime.now(UTC) > self._token.expires - MARGIN
        if self._token is None or renew or (ends and self._used):
            data = self._call("get_authorization_token")["authorizationData"]
            try:
                user, _, password = base64.b64decode(data[0]["authorizationToken"]).decode().partition(":")
            except (IndexError, KeyError, ValueError, binascii.Error):
                raise RegistryRefused(f"{self.place.host}: AWS gave no usable token", remedy=LOGIN) from None
            self._token = Token(user, password, data[0]["expiresAt"].astimezone(UTC))
        self._used = True
        return self._token

    def repository(self) -> Mapping[str, Any] | None:
        """How ECR describes the repository; nothing where it does not exist."""
        found = self._call("describe_repositories", ("RepositoryNotFoundException",), repositoryNames=[self._name])
        return None if found is None else dict(found["repositories"][0])

    def create(self, policy: RepositoryPolicy, filters: list[str]) -> bool:
        """Make the repository; whether it was this call that made it (somebody else may just have done so).

        Args:
            policy: how it is to be.
            filters: wildcards of tags that may move.
        """
        made = self._call("create_repository", ("RepositoryAlreadyExistsException",), **policy.arguments(filters))
        if made is not None and (lifecycle := policy.lifecycle_text()):
            self._call("put_lifecycle_policy", repositoryName=self._name, lifecyclePolicyText=lifecycle)
        return made is not None

    def set_filters(self, filters: list[str]) -> None:
        """Say which tags of a repository with immutable tags may move."""
        self._call(
            "put_image_tag_mutability",
            repositoryName=self._name,
            imageTagMutability="IMMUTABLE_WITH_EXCLUSION",
            imageTagMutabilityExclusionFilters=[{"filterType": "WILDCARD", "filter": one} for one in filters],
        )

    def manifest(self, *, tag: str | None = None, digest: str | None = None) -> ImageManifest | None:
        """The manifest of a tag or digest as the registry holds it; nothing where it has none."""
        which = {"imageTag": tag} if tag is not None else {"imageDigest": digest}
        answer = self._call(
            "batch_get_image", repositoryName=self._name, imageIds=[which], acceptedMediaTypes=list(MANIFESTS)
        )
        if not answer["images"]:
            return None
        image = answer["images"][0]
        return ImageManifest(
            image["imageId"]["imageDigest"], image["imageManifest"], image.get("imageManifestMediaType", "")
        )

    def digest(self, tag: str) -> str | None:
        """The digest that a tag points to now; nothing where there is no such tag."""
        found = self._call(
            "describe_images",
            ("ImageNotFoundException",),
            repositoryName=self._name,
            imageIds=[{"imageTag": tag}],
        )
        return None if found is None or not found["imageDetails"] else str(found["imageDetails"][0]["imageDigest"])

    def put_tag(self, manifest: ImageManifest, tag: str) -> bool:
        """Point a tag to an image that the registry holds; whether it does now.

        False: the tag is immutable and belongs to another image.
        """
        arguments = {"imageManifestMediaType": manifest.media_type} if manifest.media_type else {}
        # The digest is named, so that AWS refuses what is not this very manifest.
        put = self._call(
            "put_image",
            ("ImageAlreadyExistsException", "ImageTagAlreadyExistsException"),
            repositoryName=self._name,
            imageManifest=manifest.text,
            imageDigest=manifest.digest,
            imageTag=tag,
            **arguments,
        )
        # "Already exists" is said of the same image and of another one behind an immutable tag.
        return put is not None or self.digest(tag) == manifest.digest

    @property
    def _name(self) -> str:
        return self.place.repository

    def _call(self, operation: str, expected: tuple[str, ...] = (), **arguments: Any) -> Any:
        """One call; nothing where AWS answers with an expected error code."""
        from botocore.exceptions import BotoCoreError, ClientError

        if operation != "get_authorization_token":
            arguments["registryId"] = self.place.account
        if operation == "create_repository":
            arguments |= {"repositoryName": self._name}
        try:
            return getattr(self._client, operation)(**arguments)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in expected:
                return None
            raise self._failure(error, operation) from None
        except BotoCoreError as error:
            raise self._failure(error, operation) from None

    def _failure(self, error: Exception, operation: str) -> Exception:
        action = "ecr:" + "".join(word.capitalize() for word in operation.split("_"))
        create = f"--repository {self._name} --region {self.place.region}"
        where = f"{self.place.host}/{self._name}"
        return aws_failure(error, action=action, where=where, create=create)
