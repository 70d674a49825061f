"""The registry itself, over HTTP: the configuration of an image, and documents attached to it.

ECR's own API only returns S3 addresses of layers, so the configuration is read as docker reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import urllib.error
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from trainwright.core.errors import RegistryRefused
from trainwright.core.records import Field, Record
from trainwright.plan.plan import LABEL
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.proof import BUILT_LABEL, UNPROVEN_LABEL
from trainwright.push.refusals import read_refusal
from trainwright.site.site import Site
from trainwright.site.web import FAILURES, LARGEST, open_url, reason

SECONDS = 60.0  # for each wait on the registry
_TRIES = 3
_EMPTY = b"{}"  # the content of OCI's empty descriptor
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"


class Published(Record):
    """The labels of an image in a registry. ``built`` is in UTC; ``plan`` is empty if Trainwright did not build it."""

    built: datetime
    plan: str
    framework: str
    version: str
    unproven: bool = Field(description="pushed without a passed smoke run")


class Registry:
    """The registry of one repository. Every call raises :class:`RegistryRefused` if it refuses or does not answer."""

    def __init__(self, ecr: Ecr, site: Site) -> None:
        self._ecr = ecr
        # A bundle for AWS applies to its registry as well.
        bundle = os.environ.get("AWS_CA_BUNDLE")
        self._site = site.replace(ca_bundle=Path(bundle)) if bundle else site

    def configuration(self, manifest: ImageManifest) -> Mapping[str, Any] | None:
        """The configuration of a manifest's image; ``None`` if it is not a single image (an index, an artifact)."""
        digest = (json.loads(manifest.text).get("config") or {}).get("digest")
        if digest is None:
            return None
        config = self._read(f"blobs/{digest}")
        if f"sha256:{hashlib.sha256(config).hexdigest()}" != digest:
            raise RegistryRefused(f"{self._name}: the configuration {digest} has another checksum")
        try:
            data = json.loads(config)
        except ValueError:
            return None
        return data if isinstance(data, dict) else None

    def published(self, manifest: ImageManifest) -> Published | None:
        """The labels of a manifest's image; ``None`` if it is not a single image."""
        data = self.configuration(manifest)
        if data is None:
            return None
        try:
            labels = labels_of(data)
            return Published(
                built=moment(labels.get(BUILT_LABEL) or data["created"]),
                plan=labels.get(f"{LABEL}.plan", ""),
                framework=labels.get(f"{LABEL}.framework", ""),
                version=labels.get(f"{LABEL}.framework-version", ""),
                unproven=UNPROVEN_LABEL in labels,
            )
        except (ValueError, KeyError, AttributeError):
            return None

    def attach(self, subject: ImageManifest, content: bytes, media_type: str, annotations: Mapping[str, str]) -> str:
        """Attach a document to an image, as a manifest that names the image as its subject (OCI 1.1).

        Args:
            subject: the image.
            content: of the document.
            media_type: of the document; the artifact's type as well.
            annotations: of the manifest. Equal documents with equal annotations give an equal digest.

        Returns:
            The digest of the attached manifest.
        """
        empty, layer = _descriptor(_EMPTY, _EMPTY_TYPE), _descriptor(content, media_type)
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "artifactType": media_type,
            "config": empty,
            "layers": [layer],
            "subject": {
                "mediaType": subject.media_type,
                "digest": subject.digest,
                "size": len(subject.text.encode()),
            },
            "annotations": dict(sorted(annotations.items())),
        }
        for blob, descriptor in ((_EMPTY, empty), (content, layer)):
            self._put_blob(blob, descriptor["digest"])
        text = json.dumps(manifest, separators=(",", ":")).encode()
        digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
        if self._ask(f"manifests/{digest}", method="HEAD", missing=True) is None:
            self._ask(f"manifests/{digest}", method="PUT", data=text, kind=_MANIFEST)
        return digest

    def _put_blob(self, blob: bytes, digest: str) -> None:
        if self._ask(f"blobs/{digest}", method="HEAD", missing=True) is not None:
            return
        # Two calls, because ECR accepts no monolithic POST.
        answer = self._ask("blobs/uploads/", method="POST", data=b"")
        location = urljoin(f"https://{self._ecr.place.host}/", (answer or {}).get("Location", ""))
        if urlsplit(location).netloc != self._ecr.place.host:
            # The token must go only to the registry.
            raise RegistryRefused(f"{self._name}: the registry sends uploads to {urlsplit(location).netloc}")
        mark = "&" if "?" in location else "?"
        self._ask(f"{location}{mark}digest={quote(digest, safe='')}", method="PUT", data=blob)

    def _read(self, path: str) -> bytes:
        found: list[bytes] = []
        self._ask(path, body=found)
        return found[0]

    def _ask(
        self,
        path: str,
        *,
        method: str = "GET",
        data: bytes | None = None,
        kind: str = "application/octet-stream",
        missing: bool = False,
        body: list[bytes] | None = None,
    ) -> Mapping[str, str] | None:
        """The headers of an answer; ``None`` for 404 if ``missing`` allows it. ``body`` takes the content."""
        headers = {"Content-Type": kind} if data is not None else {}
        said: Exception | None = None
        for attempt in range(_TRIES):
            token = self._ecr.token(renew=attempt > 0 and _is_token(said))
            url = path if "://" in path else f"https://{self._ecr.place.host}/v2/{self._ecr.place.repository}/{path}"
            url = re.sub(r"^https://", f"https://{token.user}:{quote(token.password, safe='')}@", url)
            try:
                with open_url(url, self._site, headers, SECONDS, method=method, data=data) as answer:
                    if body is not None:
                        body.append(answer.read(LARGEST))
                    return dict(answer.headers)
            except urllib.error.HTTPError as error:
                said = error
                if error.code == 404 and missing:
                    error.close()
                    return None
                if error.code < 500 and error.code not in (401, 403, 429):
                    break
            except FAILURES as error:
                said = error
        assert said is not None
        why = _text(said)
        raise RegistryRefused(
            f"{self._name}: {method} {path.partition('?')[0]}: {why}",
            remedy="Run the same command again; layers already pushed are not sent again. If a certificate is not "
            "trusted, name its authority with ca_bundle in the site file, or SSL_CERT_FILE.",
            cause=read_refusal(why).kind,
        )

    @property
    def _name(self) -> str:
        return f"{self._ecr.place.host}/{self._ecr.place.repository}"


def labels_of(configuration: Mapping[str, Any]) -> Mapping[str, str]:
    """The labels of an image's configuration."""
    labels: Mapping[str, str] = (configuration.get("config") or {}).get("Labels") or {}
    return labels


def moment(text: str) -> datetime:
    """Parse a time as engines and registries write it (RFC 3339, nanoseconds), in UTC.

    Raises:
        ValueError: the text is not a time.
    """
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).astimezone(UTC)


def _descriptor(content: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}


def _is_token(said: Exception | None) -> bool:
    return isinstance(said, urllib.error.HTTPError) and said.code in (401, 403)


def _text(said: Exception) -> str:
    if isinstance(said, urllib.error.HTTPError):
        with said:
            body = said.read(500).decode(errors="replace")
        return f"{reason(said)} {body}".strip()
    return reason(said)
