"""The door of the emulated CodeBuild: HTTP on loopback, in the protocols of CodeBuild, CloudWatch Logs and S3."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.doubles.bodies import Body
from tests.doubles.codebuild_service import BUCKET, CodeBuildService, Refused

_TARGETS = {"CodeBuild_20161006": "codebuild", "Logs_20140328": "logs"}


def _handler(service: CodeBuildService) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet; otherwise each answer waits 40 ms for an acknowledgement

        def handle_expect_100(self) -> bool:
            """Whether the client may send its body, for which it waits a second if it is not told at once."""
            may = super().handle_expect_100()
            self.wfile.flush()
            return may

        def do_POST(self) -> None:
            """CodeBuild and CloudWatch Logs: JSON."""
            owner, _, operation = self.headers["X-Amz-Target"].rpartition(".")
            name, asked = _TARGETS[owner], json.loads(Body(self).whole(1_000_000) or b"{}")
            service.check(name, operation, asked, "input")

            def answer() -> None:
                service.before_call(operation, asked)
                method = "".join(f"_{each.lower()}" if each.isupper() else each for each in operation).lstrip("_")
                document = getattr(service, method)(asked)
                service.check(name, operation, document, "output")
                self._send(200, json.dumps(document).encode(), {"Content-Type": "application/x-amz-json-1.1"})

            self._guarded(answer, as_json=True)

        def do_PUT(self) -> None:
            """S3's PutObject."""
            bucket, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
            if self.headers.get("Expect") == "100-continue":
                self.send_response_only(100)
                self.end_headers()
            content = Body(self).whole(2_000_000_000)

            def answer() -> None:
                service.before_call("PutObject", {"Bucket": bucket, "Key": key})
                headers = {name.lower(): value for name, value in self.headers.items()}
                version = service.put_object(bucket, key, content, headers)
                self._send(200, b"", {"x-amz-version-id": version, "ETag": '"0"'})

            self._guarded(answer, as_json=False)

        def do_GET(self) -> None:
            """S3's GetObject."""
            parts = urlsplit(self.path)
            bucket, _, key = unquote(parts.path).lstrip("/").partition("/")

            def answer() -> None:
                service.before_call("GetObject", {"Bucket": bucket, "Key": key})
                version = parse_qs(parts.query).get("versionId", [""])[0]
                self._send(200, service.get_object(bucket, key, version), {"ETag": '"0"'})

            self._guarded(answer, as_json=False)

        def _guarded(self, answer: Callable[[], None], *, as_json: bool) -> None:
            try:
                answer()
            except Refused as refused:
                if as_json:
                    body = json.dumps({"__type": refused.code, "message": refused.message}).encode()
                    self._send(refused.status, body, {"Content-Type": "application/x-amz-json-1.1"})
                    return
                said = f"<Code>{escape(refused.code)}</Code><Message>{escape(refused.message)}</Message>"
                self._send(refused.status, f"<Error>{said}</Error>".encode(), {"Content-Type": "application/xml"})
            except ConnectionAbortedError:
                self.close_connection = True

        def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Calls are kept by the service."""

    return Handler


@contextmanager
def codebuild_service(**more: Any) -> Iterator[CodeBuildService]:
    """A running service with the project of the stack in it.

    Raises:
        AssertionError: at the end: a request or an answer did not keep to the service's model.
    """
    service = CodeBuildService(**more)
    if not service.projects:
        repository = {"REPOSITORY": "trainwright-upload/images"}
        service.projects["trainwright-upload"] = {"UPLOAD_BUCKET": BUCKET, **repository}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(service))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="codebuild")
    thread.start()
    service.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield service
    finally:
        service.finish()
        server.shutdown()
        thread.join()
        server.server_close()
    assert not service.wrong, service.wrong
