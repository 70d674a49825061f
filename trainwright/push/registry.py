"""The registry itself, over HTTP: the configuration of an image, and documents attached to it.

ECR's own API only returns S3 addresses of layers, so the configuration is read as docker reads it.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import time
import urllib.error
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urljoin, urlsplit

from trainwright.core.errors import RegistryRefused
from trainwright.core.say import Say
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.patience import Patience, retry_after
from trainwright.push.published import Published, published_of
from trainwright.push.refusals import LOST, read_refusal
from trainwright.site.site import Site
from trainwright.site.web import FAILURES, LARGEST, content_length, open_url, reason

SECONDS = 60.0  # for each wait on the registry
_PASSING = (408, 429)  # statuses below 500 after which a retry may help
# A stored blob is missing for a moment while a second client stores it: Distribution writes its link in place.
_UNSETTLED = "MANIFEST_BLOB_UNKNOWN"
_PIECE = 1 << 20  # bytes of a blob in memory
T = TypeVar("T")
_EMPTY = b"{}"  # the content of OCI's empty descriptor
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"


class Registry:
    """The registry of one repository. Every call raises :class:`RegistryRefused` if it refuses or does not answer.

    Args:
        ecr: the repository.
        site: proxies and certificate authorities.
        tries: attempts per request (default: those of :class:`Patience`).
        say: progress callback, for pauses before another attempt.
        sleep: waits between two attempts.
    """

    def __init__(
        self,
        ecr: Ecr,
        site: Site,
        *,
        tries: int | None = None,
        say: Say = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ecr = ecr
        self._tries, self._say, self._sleep = tries, say, sleep
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

    def single(self, manifest: ImageManifest) -> ImageManifest:
        """The image for x86-64 Linux that an index leads to; any other manifest is itself.

        An image with an index of its layers (SOCI), and one for several platforms, are indexes.
        """
        # A SOCI index has the platform of its image, and may come before it.
        inside = json.loads(manifest.text).get("manifests") or []
        images = [each for each in inside if not each.get("artifactType")]
        fitting = [each for each in images if (each.get("platform") or {}).get("architecture") == "amd64"]
        for each in fitting or images:
            return self._ecr.manifest(digest=str(each["digest"])) or manifest
        return manifest

    def published(self, manifest: ImageManifest) -> Published | None:
        """The labels of a manifest's image, of an index those of its image for x86-64; ``None`` if it has none."""
        data = self.configuration(self.single(manifest))
        return None if data is None else published_of(data)

    def attach(
        self,
        subject: ImageManifest,
        content: bytes,
        media_type: str,
        annotations: Mapping[str, str],
        *,
        tag: str | None = None,
        artifact: str = "",
    ) -> str:
        """Attach a document to an image, as a manifest that names the image as its subject (OCI 1.1).

        Args:
            subject: the image.
            content: of the document.
            media_type: of the document.
            annotations: of the manifest. Equal documents with equal annotations give an equal digest.
            tag: of the attached manifest; by default it has none.
            artifact: the artifact's type, if that is not the document's.

        Returns:
            The digest of the attached manifest.
        """
        layer = _descriptor(content, media_type)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": artifact or media_type,
            "config": _descriptor(_EMPTY, _EMPTY_TYPE),
            "layers": [layer],
            "subject": {
                "mediaType": subject.media_type,
                "digest": subject.digest,
                "size": len(subject.text.encode()),
            },
            "annotations": dict(sorted(annotations.items())),
        }
        text = json.dumps(manifest, separators=(",", ":"))
        made = ImageManifest(f"sha256:{hashlib.sha256(text.encode()).hexdigest()}", text, MANIFEST)
        if not self.has_manifest(tag or made.digest):
            self.put_blob(content, layer["digest"])
            self.store(made, tag)
        return made.digest

    def document(self, digest: str) -> bytes:
        """The content of an attached document; empty if it is not there, or is not a single one.

        Args:
            digest: of its manifest.
        """
        manifest = self._ecr.manifest(digest=digest)
        layers = json.loads(manifest.text).get("layers") or [] if manifest is not None else []
        return self._read(f"blobs/{layers[0]['digest']}") if len(layers) == 1 else b""

    def store(self, manifest: ImageManifest, tag: str | None = None) -> None:
        """Store the manifest of a document (one without a configuration), under a tag if it has one."""
        self.put_blob(_EMPTY, _descriptor(_EMPTY, _EMPTY_TYPE)["digest"])
        self.put_manifest(manifest, tag)

    def put_manifest(self, manifest: ImageManifest, tag: str | None = None) -> None:
        """Store a manifest whose blobs are there, byte for byte, under a tag if it has one."""
        name = tag or manifest.digest
        if not self.has_manifest(name):
            self._ask(f"manifests/{name}", method="PUT", data=manifest.text.encode(), kind=manifest.media_type)

    def has_manifest(self, name: str) -> bool:
        """Whether the repository has a tag or a digest."""
        return self._ask(f"manifests/{name}", method="HEAD", missing=True) is not None

    def has_blob(self, digest: str) -> bool:
        """Whether the repository has a blob."""
        return self._ask(f"blobs/{digest}", method="HEAD", missing=True) is not None

    def put_blob(self, blob: bytes, digest: str) -> None:
        """Store a small blob, unless the repository has it."""
        if not self.has_blob(digest):
            # Two calls, because ECR accepts no monolithic POST.
            answer = self._ask("blobs/uploads/", method="POST", data=b"") or {}
            self._ask(self._upload(answer, digest), method="PUT", data=blob)

    def copy_blob(
        self,
        source: Registry,
        digest: str,
        size: int,
        *,
        again: bool = False,
        moved: Callable[[int, int], None] = lambda *_: None,
    ) -> int:
        """Copy a blob of any size from another repository, through this machine's memory piece by piece.

        Args:
            source: has it.
            digest: of the blob.
            size: in bytes.
            again: send it even if the registry says that it has it.
            moved: takes the bytes that are there so far, and how many have just been sent.

        Returns:
            The bytes that were sent: 0 if the blob was there, or the registry took it from the other repository.

        Raises:
            RegistryRefused: one of the two refused, or the bytes are not those of the digest.
        """
        if not again and self.has_blob(digest):
            moved(size, 0)
            return 0

        # A repository of the same registry lends it, in ECR if the account has the setting BLOB_MOUNTING.
        near = source._ecr.place.host == self._ecr.place.host
        mount = f"?mount={digest}&from={quote(source._ecr.place.repository, safe='')}" if near and not again else ""

        def attempt(renew: bool) -> int:
            with self._open(f"blobs/uploads/{mount}", renew=renew, method="POST", data=b"") as begun:
                if begun.status == HTTPStatus.CREATED:
                    moved(size, 0)
                    return 0
                location = self._upload(dict(begun.headers))
            with source._open(f"blobs/{digest}", renew=renew, largest=size) as blob:
                kind = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
                pieces = _pieces(blob, size, moved)
                with self._open(location, renew=False, method="PATCH", data=pieces, headers=kind) as sent:
                    location = self._upload(dict(sent.headers), digest)
            # The registry compares the digest.
            self._open(location, renew=False, method="PUT", data=b"").close()
            return size

        return self.tried(f"copy of {digest}", attempt)

    def save_blob(self, digest: str, size: int, path: Path, *, moved: Callable[[int, int], None]) -> None:
        """Write a blob of any size to a file, and compare its checksum; ``moved`` as in :meth:`copy_blob`."""

        def attempt(renew: bool) -> str:
            made = hashlib.sha256()
            with self._open(f"blobs/{digest}", renew=renew, largest=size) as blob, path.open("wb") as file:
                for piece in _pieces(blob, size, moved):
                    made.update(piece)
                    file.write(piece)
            return f"sha256:{made.hexdigest()}"

        if self.tried(f"GET of {digest}", attempt) != digest:
            raise RegistryRefused(f"{self._name}: the blob {digest} has another checksum")

    def _upload(self, headers: Mapping[str, str], digest: str = "") -> str:
        """The address at which an upload goes on, or with a digest, ends."""
        location = urljoin(f"https://{self._ecr.place.host}/", headers.get("Location", ""))
        if urlsplit(location).netloc != self._ecr.place.host:
            # The token must go only to the registry.
            raise RegistryRefused(f"{self._name}: the registry sends uploads to {urlsplit(location).netloc}")
        mark = "&" if "?" in location else "?"
        return f"{location}{mark}digest={quote(digest, safe='')}" if digest else location

    def blob(self, digest: str) -> bytes:
        """The content of a small blob."""
        return self._read(f"blobs/{digest}")

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

        def attempt(renew: bool) -> Mapping[str, str] | None:
            try:
                with self._open(path, renew=renew, method=method, data=data, headers=headers) as answer:
                    if body is not None:
                        body.append(_whole(answer))
                    return dict(answer.headers)
            except urllib.error.HTTPError as error:
                if error.code != 404 or not missing:
                    raise
                error.close()
                return None

        return self.tried(f"{method} {path.partition('?')[0]}", attempt)

    def tried(self, what: str, attempt: Callable[[bool], T]) -> T:
        """The result of an attempt, which is repeated after failures that may pass.

        Args:
            what: is attempted, for messages.
            attempt: does it; its argument says that the token was refused and a new one is needed.

        Raises:
            RegistryRefused: it failed for good.
        """
        patience, renew = Patience(self._tries), False
        while True:
            try:
                return attempt(renew)
            except urllib.error.HTTPError as error:
                why, asked = _text(error), retry_after(error.headers.get("Retry-After"))
                # A new token helps once; a second refusal is not about its age.
                expired = error.code in (401, 403) and not renew
                passing = expired or error.code >= 500 or error.code in _PASSING or _UNSETTLED in why
                pause = patience.pause(asked) if passing else None
            except FAILURES as error:
                why, expired = reason(error), False
                pause = None if _hopeless(error) else patience.pause()
            if pause is None:
                break
            renew = expired
            if not expired:
                again = f"again in {pause:.0f} s (try {patience.failed + 1} of {patience.tries})"
                self._say(f"{self._name}: {what}: {why}; {again}")
                self._sleep(pause)
        kind = read_refusal(why).kind
        raise RegistryRefused(
            f"{self._name}: {what}: {why}",
            remedy=LOST
            if kind == "layer"
            else "Run the same command again; layers already pushed are not sent again. If a certificate is not "
            "trusted, name its authority with ca_bundle in the site file, or SSL_CERT_FILE.",
            cause=kind,
        )

    def _open(
        self,
        path: str,
        *,
        renew: bool,
        method: str = "GET",
        data: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        largest: int = LARGEST,
    ) -> http.client.HTTPResponse:
        token, place = self._ecr.token(renew=renew), self._ecr.place
        url = path if "://" in path else f"https://{place.host}/v2/{place.repository}/{path}"
        url = re.sub(r"^https://", f"https://{token.user}:{quote(token.password, safe='')}@", url)
        return open_url(url, self._site, headers or {}, SECONDS, method=method, data=data, largest=largest)

    @property
    def _name(self) -> str:
        return f"{self._ecr.place.host}/{self._ecr.place.repository}"


def _whole(answer: http.client.HTTPResponse) -> bytes:
    """The content of an answer. One that is cut short within TLS ends without an error, so its length is compared."""
    content = answer.read(LARGEST)
    if len(content) < (content_length(answer.headers) or 0):
        raise http.client.IncompleteRead(content)
    return content


def _pieces(blob: http.client.HTTPResponse, size: int, moved: Callable[[int, int], None]) -> Iterator[bytes]:
    """The content of a blob in pieces; an error if it is cut short, for which the receiver would wait."""
    left = size
    while left and (piece := blob.read(min(_PIECE, left))):
        left -= len(piece)
        yield piece
        moved(size - left, len(piece))
    if left:
        raise http.client.IncompleteRead(b"", left)


def _descriptor(content: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}


def _hopeless(error: Exception) -> bool:
    """Whether another attempt cannot help: the certificate is not trusted, or the address is invalid."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return isinstance(cause, ValueError)  # ssl.SSLCertVerificationError is one


def _text(said: urllib.error.HTTPError) -> str:
    with said:
        body = said.read(500).decode(errors="replace")
    return f"{reason(said)} {body}".strip()
