"""ECR's API for one repository: the caller's account, the registry's token, the repository, manifests and tags."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from trainwright.core.errors import RegistryRefused
from trainwright.push.references import PushPlace
from trainwright.push.refusals import LOGIN, aws_failure
from trainwright.push.repository import RepositoryPolicy
from trainwright.site.site import Site

TRIES = 5  # attempts per call (botocore: backoff with jitter, at most 20 s)
DELETED_AT_ONCE = 100  # names in one BatchDeleteImage: ECR's service model, ImageIdentifierList
MARGIN = timedelta(minutes=10)  # a token that expires sooner is not used
MANIFESTS = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.index.v1+json",
)


@dataclass(frozen=True)
class Token:
    """User and password of a registry. Never written to disk; ``repr`` hides the password."""

    user: str
    password: str
    expires: datetime

    def __repr__(self) -> str:
        return f"Token({self.user}, until {self.expires:%Y-%m-%d %H:%M} UTC)"


@dataclass(frozen=True)
class ImageManifest:
    """An image in a registry. ``text`` is the manifest byte for byte; its sha256 is ``digest``."""

    digest: str
    text: str
    media_type: str

    def holds(self, image_id: str) -> bool:
        """Whether it is an image of an engine, whose ids are digests of configurations or of manifests."""
        config = (json.loads(self.text).get("config") or {}).get("digest")
        return image_id in (config, self.digest)


@dataclass(frozen=True)
class StoredImage:
    """What ECR says of an image without reading it. ``subject`` is the digest that a document is attached to."""

    digest: str
    tags: tuple[str, ...]
    pushed: datetime
    pulled: datetime | None
    size_bytes: int
    media_type: str
    subject: str
    archived: bool


@dataclass(frozen=True)
class Replication:
    """How far ECR is with a copy of an image: ``IN_PROGRESS``, ``COMPLETE`` or ``FAILED``, then with a code."""

    account: str
    region: str
    status: str
    code: str

    @property
    def place(self) -> str:
        """Where it goes, for people."""
        return f"{self.account}/{self.region}"


@dataclass(frozen=True)
class Referrer:
    """A document attached to an image: the digest of its manifest, its artifact type, the manifest's annotations."""

    digest: str
    kind: str
    annotations: Mapping[str, str]


@cache
def _models(data_path: str | None) -> Any:
    """The reader of AWS's service models, shared by all clients: it lists them once, and keeps what it has read."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


def aws_client(service: str, region: str, site: Site, tries: int | None = None) -> Any:
    """A client of botocore with bounded retries, the site's proxies and certificate authorities.

    Args:
        service: of AWS.
        region: of the service.
        site: proxies and authorities.
        tries: attempts per call (default: ``TRIES``).

    Raises:
        RegistryRefused: the profile in the environment does not exist.
    """
    import os

    import botocore.session
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
    # botocore reads AWS_CA_BUNDLE itself; the site's bundle applies if that is not set.
    bundle = None if os.environ.get("AWS_CA_BUNDLE") or site.ca_bundle is None else str(site.ca_bundle)
    # If such a variable is empty, botocore looks for a profile, a bundle or an endpoint named "".
    for name in [name for name, value in os.environ.items() if name.startswith("AWS_") and not value]:
        del os.environ[name]
    session = botocore.session.Session()
    try:
        session.register_component("data_loader", _models(session.get_config_variable("data_path")))
        return session.create_client(service, region_name=region, config=config, verify=bundle)
    except BotoCoreError as error:
        raise aws_failure(error, action=service, where=region) from None


def caller_account(region: str, site: Site) -> str:
    """The account that the credentials belong to.

    Raises:
        RegistryRefused: the credentials are invalid or missing.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    client = aws_client("sts", region, site)
    try:
        return str(client.get_caller_identity()["Account"])
    except (BotoCoreError, ClientError) as error:
        raise aws_failure(error, action="sts:GetCallerIdentity", where=f"AWS in {region}") from None


class Ecr:
    """One repository. Every call raises :class:`RegistryRefused` if AWS refuses or does not answer."""

    def __init__(self, place: PushPlace, site: Site, tries: int | None = None) -> None:
        self.place = place
        self._client = aws_client("ecr", place.region, site, tries)
        self._token: Token | None = None
        self._used = False

    def token(self, *, renew: bool = False) -> Token:
        """A valid token: the current one, or a new one if that is about to expire.

        A token that is already expired when AWS issues it is used all the same (clocks differ, and an emulator may know
        only one date), so this never requests two tokens for one use.

        Args:
            renew: the registry refused the current one.
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
        """ECR's description of the repository; ``None`` if it does not exist."""
        found = self._call("describe_repositories", ("RepositoryNotFoundException",), repositoryNames=[self._name])
        return None if found is None else dict(found["repositories"][0])

    def create(self, policy: RepositoryPolicy, filters: list[str]) -> bool:
        """Create the repository; returns whether this call created it, rather than a concurrent one.

        Args:
            policy: its settings.
            filters: wildcards of tags that may move.
        """
        made = self._call("create_repository", ("RepositoryAlreadyExistsException",), **policy.arguments(filters))
        if made is not None and (lifecycle := policy.lifecycle_text()):
            self._call("put_lifecycle_policy", repositoryName=self._name, lifecyclePolicyText=lifecycle)
        return made is not None

    def set_filters(self, filters: list[str]) -> None:
        """Set which tags of a repository with immutable tags may move."""
        self._call(
            "put_image_tag_mutability",
            repositoryName=self._name,
            imageTagMutability="IMMUTABLE_WITH_EXCLUSION",
            imageTagMutabilityExclusionFilters=[{"filterType": "WILDCARD", "filter": one} for one in filters],
        )

    def manifest(self, *, tag: str | None = None, digest: str | None = None) -> ImageManifest | None:
        """The manifest of a tag or digest in the registry; ``None`` if it does not exist."""
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
        """The digest that a tag points to now; ``None`` if the tag does not exist."""
        found = self._call(
            "describe_images",
            ("ImageNotFoundException",),
            repositoryName=self._name,
            imageIds=[{"imageTag": tag}],
        )
        return None if found is None or not found["imageDetails"] else str(found["imageDetails"][0]["imageDigest"])

    def tags(self) -> dict[str, str]:
        """The digest of every tag of the repository."""
        found: dict[str, str] = {}
        more: dict[str, Any] = {}
        while True:
            answer = self._call(
                "list_images", repositoryName=self._name, filter={"tagStatus": "TAGGED"}, maxResults=1000, **more
            )
            found |= {one["imageTag"]: one["imageDigest"] for one in answer["imageIds"] if one.get("imageTag")}
            if not answer.get("nextToken"):
                return found
            more = {"nextToken": answer["nextToken"]}

    def tags_of(self, digest: str) -> list[str]:
        """The tags of one image; none if it does not exist."""
        found = self._call(
            "describe_images",
            ("ImageNotFoundException",),
            repositoryName=self._name,
            imageIds=[{"imageDigest": digest}],
        )
        return [] if found is None else [tag for one in found["imageDetails"] for tag in one.get("imageTags", [])]

    def images(self) -> list[StoredImage]:
        """Everything in the repository: images, indexes and documents, archived ones as well."""
        found: list[StoredImage] = []
        more: dict[str, Any] = {}
        while True:
            answer = self._call(
                "describe_images",
                repositoryName=self._name,
                filter={"imageStatus": "ANY"},
                maxResults=1000,
                **more,
            )
            found += map(_stored, answer["imageDetails"])
            if not answer.get("nextToken"):
                return found
            more = {"nextToken": answer["nextToken"]}

    def delete(self, names: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Remove tags and images; returns code and text of ECR's refusal for each name that was refused.

        Args:
            names: at most :data:`DELETED_AT_ONCE` tags or digests. The last tag of an image takes the image with it; a
                digest takes the image with all its tags.
        """
        ids = [{"imageDigest" if ":" in name else "imageTag": name} for name in names]
        answer = self._call("batch_delete_image", repositoryName=self._name, imageIds=ids)
        return {
            each["imageId"].get("imageTag") or each["imageId"]["imageDigest"]: (
                str(each.get("failureCode", "")),
                str(each.get("failureReason", "")),
            )
            for each in answer.get("failures") or ()
        }

    def put_tag(self, manifest: ImageManifest, tag: str) -> bool:
        """Point a tag to an image in the registry; returns whether it does now.

        It does not if the tag is immutable and belongs to another image.
        """
        arguments = {"imageManifestMediaType": manifest.media_type} if manifest.media_type else {}
        try:
            # With the digest, AWS refuses anything but exactly this manifest. "Image already exists" means that the tag
            # is there; "tag already exists", that it is immutable.
            self._call(
                "put_image",
                ("ImageAlreadyExistsException",),
                repositoryName=self._name,
                imageManifest=manifest.text,
                imageDigest=manifest.digest,
                imageTag=tag,
                **arguments,
            )
        except RegistryRefused as refused:
            if refused.details.get("cause") != "ImageTagAlreadyExistsException":
                raise
            return self.digest(tag) == manifest.digest
        return True

    def referrers(self, digest: str, kind: str | None = None) -> list[Referrer]:
        """The documents that are attached to a manifest.

        Args:
            digest: of the manifest.
            kind: the artifact type of the documents; by default, all.
        """
        found: list[Referrer] = []
        more: dict[str, Any] = {"filter": {"artifactTypes": [kind]}} if kind else {}
        while True:
            answer = self._call(
                "list_image_referrers", repositoryName=self._name, subjectId={"imageDigest": digest}, **more
            )
            found += [
                Referrer(one["digest"], one.get("artifactType", ""), one.get("annotations") or {})
                for one in answer["referrers"]
            ]
            if not answer.get("nextToken"):
                return found
            more["nextToken"] = answer["nextToken"]

    def replication(self, digest: str) -> list[Replication]:
        """How far ECR is with the copies of an image that its registry's rules demand."""
        answer = self._call(
            "describe_image_replication_status", repositoryName=self._name, imageId={"imageDigest": digest}
        )
        return [
            Replication(one["registryId"], one["region"], one["status"], one.get("failureCode", ""))
            for one in answer["replicationStatuses"]
        ]

    @property
    def _name(self) -> str:
        return self.place.repository

    def _call(self, operation: str, expected: tuple[str, ...] = (), **arguments: Any) -> Any:
        """One call; ``None`` if AWS answers with an expected error code."""
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


def _stored(said: Mapping[str, Any]) -> StoredImage:
    pulled = said.get("lastRecordedPullTime")
    return StoredImage(
        digest=str(said["imageDigest"]),
        tags=tuple(sorted(said.get("imageTags") or ())),
        pushed=said["imagePushedAt"].astimezone(UTC),
        pulled=None if pulled is None else pulled.astimezone(UTC),
        size_bytes=int(said.get("imageSizeInBytes") or 0),
        media_type=str(said.get("imageManifestMediaType", "")),
        subject=str(said.get("subjectManifestDigest") or ""),
        archived=said.get("imageStatus", "ACTIVE") != "ACTIVE",
    )
