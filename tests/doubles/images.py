"""ECR's rules for images and tags, over moto's records of them.

moto has the records and all other operations. What differs from ECR is done here: the digest is the manifest's, an
immutable tag refuses with ImageTagAlreadyExistsException, the filters of IMMUTABLE_WITH_EXCLUSION are wildcards (moto
5.2 reads them as regular expressions), and a tag that moves leaves its old image untagged, not deleted.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from hashlib import sha256
from time import time
from typing import Any

from moto.ecr.models import Image, ecr_backends


class Refused(Exception):
    """ECR's error ``code`` with its text."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Images:
    """The images of all registries (account and region) that moto holds in this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        # Called after each push, with the repository, the image and its tag: tests/doubles/replication.py.
        self.pushed: Callable[[Any, Any, str | None], None] = lambda *_: None
        # Host, repository and digest -> how far their copies are, as DescribeImageReplicationStatus says it.
        self.copies: dict[tuple[str, str, str], list[dict[str, str]]] = {}
        # The hosts of registries whose account setting BLOB_MOUNTING is ENABLED; as in ECR none is at first.
        self.mounting: set[str] = set()

    def repository(self, account: str, region: str, name: str) -> Any:
        """moto's record of a repository.

        Raises:
            Refused: there is none.
        """
        found = ecr_backends[account][region].repositories.get(name)
        if found is None:
            text = f"The repository with name '{name}' does not exist in the registry with id '{account}'"
            raise Refused("RepositoryNotFoundException", text)
        return found

    def find(self, repository: Any, reference: str) -> Any | None:
        """The image of a tag or a digest."""
        by_digest = reference.startswith("sha256:")
        for image in repository.images:
            if image.image_digest == reference if by_digest else reference in image.image_tags:
                return image
        return None

    def referrers(self, repository: Any, digest: str) -> list[dict[str, Any]]:
        """What is attached to ``digest``, as the registry and the API describe it."""
        found = []
        for image in list(repository.images):
            manifest = json.loads(image.image_manifest)
            if (manifest.get("subject") or {}).get("digest") == digest:
                kind = manifest.get("artifactType") or manifest.get("config", {}).get("mediaType")
                entry = {"mediaType": image.image_manifest_media_type, "digest": image.image_digest}
                entry |= {"size": len(image.image_manifest.encode()), "artifactType": kind}
                found.append(entry | {"annotations": manifest.get("annotations") or {}})
        return found

    def described(self, repository: Any) -> list[dict[str, Any]]:
        """Every image as DescribeImages describes it (botocore's service model, ImageDetail)."""
        found = []
        for image in list(repository.images):
            manifest = json.loads(image.image_manifest)
            known = {
                "imageTags": list(image.image_tags),
                "lastRecordedPullTime": getattr(image, "pulled", None),
                "subjectManifestDigest": (manifest.get("subject") or {}).get("digest"),
            }
            found.append(
                {
                    "imageDigest": image.image_digest,
                    "imagePushedAt": image.image_pushed_at,
                    "imageSizeInBytes": sum(layer.get("size", 0) for layer in manifest.get("layers", ())),
                    "imageManifestMediaType": image.image_manifest_media_type,
                    "imageStatus": getattr(image, "status", "ACTIVE"),
                    **{name: value for name, value in known.items() if value},
                }
            )
        return found

    def pull(self, repository: Any, ids: list[dict[str, str]]) -> None:
        """Note a pull. BatchGetImage counts as one (aws/containers-roadmap#2390)."""
        for one in ids:
            if image := self.find(repository, one.get("imageDigest") or one.get("imageTag", "")):
                image.pulled = time()

    def delete(self, repository: Any, ids: list[dict[str, str]]) -> dict[str, Any]:
        """Remove tags and images as BatchDeleteImage does.

        The service model: a tag is removed, and takes the image with it if it is the last one; a digest takes the image
        with all its tags; there are at most 100; and the code ImageReferencedByManifestList. What an index names is not
        deleted with its last tag either (aws/containers-roadmap#1567). moto deletes what an index names, and any
        number.

        Raises:
            Refused: there are more than 100.
        """
        if len(ids) > 100:
            raise Refused("InvalidParameterException", "Invalid parameter at 'imageIds': at most 100 are allowed")
        answer: dict[str, Any] = {"imageIds": [], "failures": []}
        with self.lock:
            for one in ids:
                tag = one.get("imageTag")
                image = self.find(repository, tag or one["imageDigest"])
                if image is None:
                    failed = {"failureCode": "ImageNotFound", "failureReason": "Requested image not found"}
                    answer["failures"].append({"imageId": one, **failed})
                    continue
                last = tag is None or image.image_tags == [tag]
                if last and self.in_an_index(repository, image.image_digest):
                    why = "Requested image referenced by manifest list"
                    failed = {"failureCode": "ImageReferencedByManifestList", "failureReason": why}
                    answer["failures"].append({"imageId": one, **failed})
                    continue
                if last:
                    repository.images.remove(image)
                else:
                    image.remove_tag(tag)
                answer["imageIds"].append({"imageDigest": image.image_digest} | one)
        return answer

    def in_an_index(self, repository: Any, digest: str) -> bool:
        """Whether an index of the repository names an image."""
        indexes = [json.loads(image.image_manifest).get("manifests") or () for image in repository.images]
        return any(each.get("digest") == digest for index in indexes for each in index)

    def check_tag(self, repository: Any, tag: str | None, digest: str) -> None:
        """Whether ``tag`` may be given to ``digest``.

        Raises:
            Refused: it is there and must not move, or is there with this very digest.
        """
        holder = self.find(repository, tag) if tag is not None else self.find(repository, digest)
        if holder is None:
            return
        if tag is not None and immutable(repository, tag):
            text = (
                f"The image tag '{tag}' already exists in the '{repository.name}' repository and cannot be overwritten"
            )
            raise Refused("ImageTagAlreadyExistsException", f"{text} because the tag is immutable.")
        if holder.image_digest == digest:
            tagged = f" and tag '{tag}'" if tag is not None else ""
            where = f"in the repository with name '{repository.name}' in registry with id '{repository.registry_id}'"
            raise Refused("ImageAlreadyExistsException", f"Image with digest '{digest}'{tagged} already exists {where}")

    def put(
        self,
        repository: Any,
        manifest: str,
        media_type: str | None,
        tag: str | None,
        digest: str,
        *,
        copied: bool = False,
    ) -> Any:
        """Keep an image under a tag, or under its digest alone; ``copied``: from another registry, by ECR.

        Raises:
            Refused: as :meth:`check_tag`; or the digest is not the manifest's.
        """
        if digest != digest_of(manifest.encode()):
            raise Refused("ImageDigestDoesNotMatchException", "The specified image digest does not match the manifest.")
        with self.lock:
            self.check_tag(repository, tag, digest)
            if tag is not None and (holder := self.find(repository, tag)) is not None:
                holder.remove_tag(tag)
            image = self.find(repository, digest)
            if image is None:
                kind = media_type or json.loads(manifest).get("mediaType")
                account = repository.registry_id
                image = Image(account, tag, manifest, repository.name, kind, digest, account)  # type: ignore[arg-type]
                repository.images.append(image)
            elif tag is not None:
                image.update_tag(tag)
            if not copied:
                self.pushed(repository, image, tag)
            return image


def digest_of(manifest: bytes) -> str:
    """The digest by which a registry knows a manifest."""
    return f"sha256:{sha256(manifest).hexdigest()}"


def immutable(repository: Any, tag: str) -> bool:
    """Whether the repository's settings forbid that ``tag`` moves."""
    setting = str(getattr(repository.image_tag_mutability, "value", repository.image_tag_mutability))
    filters = repository.image_tag_mutability_exclusion_filters or []
    excluded = any(_wildcard(each["filter"]).fullmatch(tag) for each in filters)
    return excluded != setting.startswith("IMMUTABLE")


def _wildcard(text: str) -> re.Pattern[str]:
    """A filter: ``*`` stands for any number of characters, all else for itself (ECR's user guide, tag immutability)."""
    return re.compile(".*".join(re.escape(part) for part in text.split("*")))
