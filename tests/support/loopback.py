"""A web server on loopback that misbehaves as a test asks: what the tests of downloads share."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Answer = bytes | Callable[[http.server.BaseHTTPRequestHandler], None]


@dataclass
class Loopback:
    """A running server: its base URL, what it answers by path (404 for the rest), what it was asked."""

    url: str
    pages: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def silent(self, _: http.server.BaseHTTPRequestHandler) -> None:
        """Accept and never answer (until the test ends)."""
        self.closing.wait(60)


def truncated(content: bytes) -> Answer:
    """Half of the bytes that were promised, then the end of the connection."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])

    return answer


def status(code: int, **headers: str) -> Answer:
    """An answer without content."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for key, value in {"Content_Length": "0", **headers}.items():
            handler.send_header(key.replace("_", "-"), value)
        handler.end_headers()

    return answer


@contextmanager
def loopback() -> Iterator[Loopback]:
    """A server on a free port of 127.0.0.1, gone on the way out."""
    made: list[Loopback] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server = made[0]
            server.asked.append(self.path)
            server.headers.append(dict(self.headers))
            page = server.pages.get(self.path, status(404))
            if not isinstance(page, bytes):
                page(self)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that leaves is no news
        made.append(Loopback(f"http://127.0.0.1:{server.server_address[1]}"))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield made[0]
        finally:
            made[0].closing.set()
            server.shutdown()
            thread.join()


def dead_url() -> str:
    """A URL of loopback at which nobody listens."""
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        return f"http://127.0.0.1:{server.server_address[1]}"
