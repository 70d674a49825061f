"""ECR's registry endpoint before a plain registry: TLS under ECR's host names, its login, repositories and tag rules.

Blobs and manifests lie in the registry behind it, under ``<account>/<region>/<repository>``, so that two regions share
nothing. Repositories and tags are moto's records: what the API changes is what the next pull sees, and vice versa.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.client
import http.server
import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from tests.doubles.bodies import PIECE, Answered, Body, Cut
from tests.doubles.certificates import Certificates
from tests.doubles.faults import Asked, Faults
from tests.doubles.images import Images, Refused, digest_of
from tests.doubles.names import Registry, registry_of
from tests.doubles.tokens import Standing, Tokens

LARGEST_MANIFEST = 4 * 1024 * 1024  # bytes, of the distribution specification
IDLE_SECONDS = 300.0
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "authorization", "te", "upgrade"}
PATH = re.compile(r"/v2/(?P<name>.+?)/(?P<kind>blobs|manifests|tags|referrers)/(?P<rest>.+)")
EXPIRED = "Your authorization token has expired. Reauthenticate and try again."
# What ECR calls an answer that a test asks for by its status alone.
CODES = {401: "UNAUTHORIZED", 403: "DENIED", 404: "NAME_UNKNOWN", 405: "UNSUPPORTED", 429: "TOOMANYREQUESTS"}


@dataclass(frozen=True)
class Backing:
    """What the front stands before."""

    registry_port: int
    images: Images
    tokens: Tokens
    faults: Faults


@contextmanager
def ecr_front(certificates: Certificates, backing: Backing) -> Iterator[str]:
    """Serve on port 443 of the first address of 127.0.0.0/24 that is free; yields the address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.key)
    server = _bind(backing)
    # The handshake is left to the thread of the connection: who connects and says nothing must not stop the others.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="ecr-front")
    thread.start()
    try:
        yield str(server.server_address[0])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a connection that hangs must not hold up the end of a test
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], backing: Backing) -> None:
        super().__init__(address, type("Handler", (_Handler,), {"backing": backing}))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no news."""

    def server_bind(self) -> None:
        # As http.server, without asking DNS for the name of the address.
        socket_server_bind = super(http.server.HTTPServer, self).server_bind
        socket_server_bind()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


def _bind(backing: Backing) -> _Server:
    for last in range(2, 255):
        try:
            return _Server((f"127.0.0.{last}", 443), backing)
        except PermissionError:
            raise
        except OSError:
            continue
    raise OSError("port 443 is taken on every address of 127.0.0.0/24")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    backing: Backing

    def handle_request(self) -> None:
        """Answer one request, whatever its method."""
        self.body = Body(self)
        self.status = self.sent = 0
        self.cut_answer = self.noted = False
        host = self.headers.get("Host", "")
        path = urlsplit(self.path).path
        try:
            try:
                self._answer(host, path)
            except Answered as error:
                for _ in self.body.pieces():
                    pass
                self._send(error.status, {"Content-Type": "application/json", **error.headers}, error.body)
        except (Cut, OSError, ValueError, http.client.HTTPException):
            self.status = 0
            self._cut()
        finally:
            self._note()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_request

    def _note(self) -> None:
        """Log the request, once: before its answer is whole, or a client that goes on finds a log without it."""
        if not self.noted:
            self.noted = True
            host, path = self.headers.get("Host", ""), urlsplit(self.path).path
            self.backing.faults.log(Asked(host, self.command, path, self.status, self.body.received, self.sent))

    def _answer(self, host: str, path: str) -> None:
        registry = registry_of(host)
        if registry is None:
            raise Answered(421, "UNSUPPORTED", f"{host} is no registry")
        self._go_wrong(path)
        self._authorize(registry)
        if path == "/v2/":
            self._send(200, {"Content-Type": "application/json"}, b"{}")
            return
        parts = PATH.fullmatch(path)
        if parts is None:
            raise Answered(405, "UNSUPPORTED", "The operation is unsupported.")
        name, kind, rest = parts["name"], parts["kind"], parts["rest"]
        try:
            repository = self.backing.images.repository(registry.account, registry.region, name)
        except Refused as unknown:
            raise Answered(404, "NAME_UNKNOWN", unknown.message) from unknown
        if kind == "blobs":
            self._blob(registry, name, rest)
        elif kind == "manifests" and self.command == "PUT":
            self._put_manifest(registry, repository, rest)
        elif kind == "manifests" and self.command in ("GET", "HEAD"):
            self._get_manifest(registry, repository, rest)
        elif kind == "tags" and rest == "list":
            tags = sorted(tag for image in repository.images for tag in image.image_tags)
            self._send(200, {"Content-Type": "application/json"}, json.dumps({"name": name, "tags": tags}).encode())
        elif kind == "referrers":
            self._referrers(repository, rest)
        else:
            raise Answered(405, "UNSUPPORTED", "The operation is unsupported.")

    def _go_wrong(self, path: str) -> None:
        what = self.backing.faults.of_registry(self.command, path)
        if what == "hang":
            self.backing.faults.released.wait()
            raise Cut
        if what == "reset":
            if self.command in ("GET", "HEAD"):
                self.cut_answer = True
            else:
                self.body.piece()
                raise Cut
        elif what == "expire-token":
            self.backing.tokens.expire(self._password() or "")
        elif isinstance(what, int):
            code = CODES.get(what, "UNKNOWN")
            raise Answered(what, code, "Rate exceeded" if what == 429 else http.client.responses.get(what, "failed"))

    def _password(self) -> str | None:
        """The password of the request; ``None``: it has no credentials."""
        scheme, _, encoded = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return ""
        return password if user == "AWS" else ""

    def _authorize(self, registry: Registry) -> None:
        password = self._password()
        if password is None:
            challenge = f'Basic realm="https://{registry.host}/",service="ecr.amazonaws.com"'
            raise Answered(401, "UNAUTHORIZED", "Not Authorized", **{"WWW-Authenticate": challenge})
        standing = self.backing.tokens.standing(password)
        if standing is Standing.EXPIRED:
            raise Answered(403, "DENIED", EXPIRED)
        if standing is Standing.UNKNOWN:
            raise Answered(400, "DENIED", "Your Authorization Token is invalid.")

    def _blob(self, registry: Registry, name: str, rest: str) -> None:
        query = urlsplit(self.path).query
        if self.command == "POST" and "mount=" in query:
            query = self._mount(registry, parse_qs(query))
        self._pass_on(registry, name, f"blobs/{rest}" + (f"?{query}" if query else ""))

    def _mount(self, registry: Registry, asked: dict[str, list[str]]) -> str:
        """The query of a mount, where ECR makes one; empty where the client has to upload.

        User guide, "Blob mounting": the account turned it on, and both repositories are of one registry.
        """
        digest, source = asked["mount"][0], asked.get("from", [""])[0]
        lent = registry.host in self.backing.images.mounting and source
        return f"mount={digest}&from={quote(f'{registry.account}/{registry.region}/{source}', safe='')}" if lent else ""

    def _put_manifest(self, registry: Registry, repository: Any, reference: str) -> None:
        content = self.body.whole(LARGEST_MANIFEST)
        digest = digest_of(content)
        tag = None if reference.startswith("sha256:") else reference
        if tag is None and reference != digest:
            raise Answered(400, "DIGEST_INVALID", "provided digest did not match uploaded content")
        images = self.backing.images
        with images.lock:  # what is checked is what is kept
            try:
                images.check_tag(repository, tag, digest)
            except Refused as refused:
                if refused.code != "ImageAlreadyExistsException":  # that is what a repeated push may be
                    raise Answered(400, "TAG_INVALID", refused.message) from refused
            # The registry knows no tags: they are moto's.
            answer = self._ask(registry, repository.name, f"manifests/{digest}", content)
            told = answer.read()
            if answer.status == 201:
                with contextlib.suppress(Refused):
                    images.put(repository, content.decode(), self.headers.get("Content-Type"), tag, digest)
        self._send(answer.status, self._headers(answer, registry, repository.name), told)

    def _get_manifest(self, registry: Registry, repository: Any, reference: str) -> None:
        image = self.backing.images.find(repository, reference)
        if image is None:
            raise Answered(404, "MANIFEST_UNKNOWN", "Requested image not found")
        answer = self._ask(registry, repository.name, f"manifests/{image.image_digest}")
        if answer.status == 404:  # put by the API
            answer.read()
            headers = {"Content-Type": image.image_manifest_media_type, "Docker-Content-Digest": image.image_digest}
            self._send(200, headers, image.image_manifest.encode())
            return
        self._stream(answer, registry, repository.name)

    def _referrers(self, repository: Any, digest: str) -> None:
        """The index of the images whose ``subject`` is ``digest`` (OCI distribution specification 1.1)."""
        found = self.backing.images.referrers(repository, digest)
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": found}
        self._send(200, {"Content-Type": str(index["mediaType"])}, json.dumps(index).encode())

    def _pass_on(self, registry: Registry, name: str, rest: str) -> None:
        self._stream(self._ask(registry, name, rest), registry, name)

    def _ask(self, registry: Registry, name: str, rest: str, content: bytes | None = None) -> http.client.HTTPResponse:
        """The answer of the registry behind to this request, whose body is passed on as it comes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.backing.registry_port, timeout=IDLE_SECONDS)
        self.upstream = connection
        connection.putrequest(
            self.command,
            f"/v2/{registry.account}/{registry.region}/{name}/{rest}",
            skip_host=True,
            skip_accept_encoding=True,
        )
        for header, value in self.headers.items():
            if header.lower() not in HOP_BY_HOP:
                connection.putheader(header, value)
        connection.putheader("X-Forwarded-Proto", "https")
        connection.putheader("Connection", "close")
        if content is not None:
            connection.putheader("Content-Length", str(len(content)))
            connection.endheaders(content)
        elif self.body.chunked:
            connection.putheader("Transfer-Encoding", "chunked")
            connection.endheaders()
            for piece in self.body.pieces():
                connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            connection.send(b"0\r\n\r\n")
        else:
            connection.putheader("Content-Length", str(self.body.length))
            connection.endheaders()
            for piece in self.body.pieces():
                connection.send(piece)
        return connection.getresponse()

    def _headers(self, answer: http.client.HTTPResponse, registry: Registry, name: str) -> dict[str, str]:
        headers = {key: value for key, value in answer.getheaders() if key.lower() not in HOP_BY_HOP}
        if location := headers.get("Location"):
            inner = f"/v2/{registry.account}/{registry.region}/{name}/"
            headers["Location"] = location.replace(inner, f"/v2/{name}/", 1)
        return headers

    def _stream(self, answer: http.client.HTTPResponse, registry: Registry, name: str) -> None:
        headers = self._headers(answer, registry, name)
        length = answer.getheader("Content-Length")
        if length is None or self.command == "HEAD":
            self._send(answer.status, headers | ({"Content-Length": length} if length else {}), answer.read())
            return
        if not int(length) and not self.cut_answer:
            self.status = answer.status
            self._note()
        self._start(answer.status, headers | {"Content-Length": length})
        end = int(length) // 2 if self.cut_answer else int(length)
        while self.sent < end and (piece := answer.read(min(PIECE, end - self.sent))):
            self.wfile.write(piece)
            self.sent += len(piece)
        if self.sent < int(length):
            raise Cut

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        if not self.cut_answer:
            self.status, self.sent = status, 0 if self.command == "HEAD" else len(content)
            self._note()
        self._start(status, {"Content-Length": str(len(content)), **headers})
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if self.cut_answer else content)
            self.sent = len(content)
        if self.cut_answer:
            raise Cut

    def _start(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.send_response(status)
        for header, value in {"Docker-Distribution-Api-Version": "registry/2.0", **headers}.items():
            self.send_header(header, value)
        self.end_headers()

    def _cut(self) -> None:
        """End the connection at once, with a reset and without TLS's farewell."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):
            socket.close(self.connection.detach())

    def version_string(self) -> str:
        return "emulated ECR"

    def log_message(self, *_: Any) -> None:
        """Requests are in the log of the faults."""
