"""Bodies of requests to the emulated registry, and how requests end that are refused or cut off."""

from __future__ import annotations

import http.server
import json
from collections.abc import Iterator

PIECE = 256 * 1024  # bytes that are passed on at a time


class Answered(Exception):
    """The request ends with this error."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
        self.headers = headers


class Cut(Exception):
    """The connection ends here, in the middle of whatever it carries."""


class Body:
    """The body of a request, read once, as it came: by its length or in chunks."""

    def __init__(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        self._file = handler.rfile
        self.chunked = "chunked" in handler.headers.get("Transfer-Encoding", "").lower()
        self.length = int(handler.headers.get("Content-Length") or 0)
        self.received = 0
        self._left = 0 if self.chunked else self.length
        self._ended = not self.chunked and not self.length

    def pieces(self) -> Iterator[bytes]:
        """The rest of the body."""
        while piece := self.piece():
            yield piece

    def piece(self) -> bytes:
        """The next bytes; none at the end."""
        if self.chunked and not self._left and not self._ended:
            self._left = int(self._line().split(b";")[0], 16)
            if not self._left:
                while self._line():  # trailers
                    pass
                self._ended = True
        if self._ended:
            return b""
        read = self._file.read(min(self._left, PIECE))
        if not read:
            raise Cut
        self.received += len(read)
        self._left -= len(read)
        if not self._left:
            if self.chunked:
                self._line()
            else:
                self._ended = True
        return read

    def whole(self, limit: int) -> bytes:
        """All of it, where it may not be large."""
        content = b""
        for piece in self.pieces():
            content += piece
            if len(content) > limit:
                raise Answered(413, "SIZE_INVALID", f"more than {limit} bytes")
        return content

    def _line(self) -> bytes:
        line = self._file.readline(1000)
        if not line.endswith(b"\n"):
            raise Cut
        return line.strip()
