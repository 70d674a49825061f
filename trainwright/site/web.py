"""HTTP requests as a build step makes them: with the site's proxies, certificate authorities and credentials.

Only http and https: the opener has no handler for anything else, and a redirect follows the same rules as the first
address.
"""

from __future__ import annotations

import base64
import http.client
import io
import netrc
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urljoin, urlsplit, urlunsplit

from trainwright.core.masking import mask
from trainwright.core.text import printable, shortened
from trainwright.site.site import Site

NO_ANSWER = "no answer"
# The exceptions that a server, a proxy or the network can cause.
FAILURES = (OSError, ValueError, http.client.HTTPException)
# The numbers of curl's --speed-limit and --speed-time in templates/tools/build/fetch.
LEAST_SPEED, LEAST_SECONDS = 1024, 30.0
LARGEST_HEAD = 1 << 20  # bytes before the content: http.client limits lines and headers, but not interim answers
LARGEST = 64 << 20  # bytes of an answer that is not a download
_REDIRECTS = 10
_REDIRECT_CODES = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}


class TooSlow(OSError):
    """A server sends too slowly."""


class TooLarge(OSError):
    """A server sends more than allowed."""


@dataclass
class Pace:
    """Ends an answer with fewer than ``least`` bytes per second, on average over ``seconds``, as curl does.

    The time counts from the first byte; before that, the timeout of the connection applies.
    """

    clock: Callable[[], float] = time.monotonic
    least: int = LEAST_SPEED
    seconds: float = LEAST_SECONDS
    _begun: float | None = None
    _count: int = 0

    def __call__(self, count: int) -> None:
        """Count received bytes.

        Raises:
            TooSlow: there are too few.
        """
        now = self.clock()
        if self._begun is None:
            self._begun = now
        self._count += count
        if (passed := now - self._begun) < self.seconds:
            return
        if self._count < self.least * passed:
            raise TooSlow(f"slower than {self.least} bytes/s for {self.seconds:.0f} s")
        self._begun, self._count = now, 0


class _Watched(io.RawIOBase):
    """The bytes of a connection, counted as they come."""

    def __init__(self, raw: io.RawIOBase, watch: Callable[[int], None]) -> None:
        self._raw = raw
        self._watch = watch
        self.left = LARGEST_HEAD

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        count = self._raw.readinto(buffer)
        if count:
            self.left -= count
            if self.left < 0:
                raise TooLarge("sends more than it may")
            self._watch(count)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Reader(io.BufferedReader):
    """Refuses a negative size, which a chunk may claim and which would read everything."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            raise http.client.HTTPException("its answer has no length")
        return super().read(size)


class _Answer(http.client.HTTPResponse):
    def __init__(
        self, sock: Any, *words: Any, watch: Callable[[], Callable[[int], None]], largest: int, **options: Any
    ) -> None:
        super().__init__(sock, *words, **options)
        self._watched = _Watched(self.fp.detach(), watch())
        self._largest = largest
        self.fp = _Reader(self._watched)

    def begin(self) -> None:
        super().begin()
        # Chunked content has some overhead.
        self._watched.left = self._largest + self._largest // 8 + LARGEST_HEAD


@lru_cache(maxsize=4)
def _context(bundle: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=bundle)


def open_url(
    url: str,
    site: Site,
    headers: Mapping[str, str],
    seconds: float,
    *,
    method: str = "GET",
    data: bytes | Iterable[bytes] | None = None,
    largest: int = LARGEST,
    watch: Callable[[], Callable[[int], None]] = Pace,
    bearer: str = "",
) -> http.client.HTTPResponse:
    """Send a request; the caller closes the answer.

    Args:
        url: http or https; a user and a password in it go only to that scheme, host and port.
        site: provides proxies, authorities and credentials.
        headers: of the request.
        seconds: timeout of each wait on the server.
        method: of the request.
        data: its body; pieces need the header Content-Length, and are sent once.
        largest: maximum bytes of the content (slightly more if it is sent in chunks).
        watch: returns a callback for the number of bytes of each read; its exceptions end the answer.
        bearer: a token that goes to the scheme, host and port of ``url`` alone, instead of a user and a password.

    Raises:
        urllib.error.HTTPError: the status is not a success.
        OSError, ValueError, http.client.HTTPException: no answer, or an invalid one (:data:`FAILURES`).
    """
    login: tuple[WebOrigin, str] | None = (_origin(urlsplit(url)), f"Bearer {bearer}") if bearer else None
    for _ in range(_REDIRECTS + 1):
        parts = urlsplit(url)
        origin = _origin(parts)
        if not bearer and (found := _credentials(parts, origin, site)):
            login = (origin, f"Basic {found}")
        address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        request = urllib.request.Request(  # noqa: S310
            address, data=data, headers={"User-Agent": "trainwright", **headers}, method=method
        )
        if login is not None and login[0] == origin:
            request.add_unredirected_header("Authorization", login[1])
        answer = _opener(origin.host, site, partial(_Answer, watch=watch, largest=largest)).open(
            request, timeout=seconds
        )
        if 200 <= answer.status < 300:
            return answer  # type: ignore[no-any-return]
        target = answer.headers.get("Location")
        if answer.status not in _REDIRECT_CODES or target is None or method not in ("GET", "HEAD"):
            raise urllib.error.HTTPError(address, answer.status, answer.reason, answer.headers, answer)
        answer.close()
        url = urljoin(address, target)
        _check_redirect(origin, url)
    raise urllib.error.URLError(f"more than {_REDIRECTS} redirections")


class WebOrigin(NamedTuple):
    """The scope of a password: scheme, host and port together."""

    scheme: str
    host: str
    port: int


def _origin(parts: SplitResult) -> WebOrigin:
    """The origin of an address.

    Raises:
        ValueError: the address is not http or https, or has no host or an invalid port.
    """
    if parts.scheme not in _PORTS:
        raise ValueError(f"{mask(urlunsplit(parts))} is neither http nor https")
    if not parts.hostname:
        raise ValueError(f"{mask(urlunsplit(parts))} has no host")
    return WebOrigin(parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme])


def _check_redirect(origin: WebOrigin, url: str) -> None:
    """As in a build step: only to http and https, and never from https to http."""
    scheme = urlsplit(url).scheme
    if scheme not in _PORTS:
        raise urllib.error.URLError(f"leads to {mask(url)}, which is neither http nor https")
    if (origin.scheme, scheme) == ("https", "http"):
        raise urllib.error.URLError(f"leads from https to {mask(url)}, which is not encrypted")


def _opener(host: str, site: Site, answers: Callable[..., http.client.HTTPResponse]) -> urllib.request.OpenerDirector:
    """An opener for http and https only: urllib's own also opens file:, ftp: and data:."""

    def connect(kind: type[http.client.HTTPConnection], host: str, **options: Any) -> http.client.HTTPConnection:
        connection = kind(host, **options)
        connection.response_class = answers  # type: ignore[assignment]
        return connection

    class Http(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(partial(connect, http.client.HTTPConnection), req)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            kind = partial(connect, http.client.HTTPSConnection)
            return self.do_open(kind, req, context=_context(site.ca_bundle))

    proxies = {kind: url for kind in _PORTS if (url := getattr(site.proxies, kind))}
    if site.proxies.no and urllib.request.proxy_bypass(host, {"no": site.proxies.no}):
        proxies = {}
    opener = urllib.request.OpenerDirector()
    for handler in (urllib.request.ProxyHandler(proxies), Http(), Https(), urllib.request.UnknownHandler()):
        opener.add_handler(handler)
    return opener


def _credentials(parts: SplitResult, origin: WebOrigin, site: Site) -> str:
    """The credentials for ``Authorization``; empty if there are none for this scheme, host and port."""
    user, password = parts.username, parts.password
    own = [split for address in site.addresses if (split := _split(address)) is not None]
    # A netrc only names hosts. Over plain http its passwords go only to an http address that the site names.
    if user is None and (origin.scheme == "https" or any(place == origin for place, _ in own)):
        user, password = _netrc_login(site.netrc, origin.host)
    if user is None:
        # The files of an index have the same origin, but their addresses lack its password.
        for place, index in own:
            if place == origin and index.username:
                user, password = index.username, index.password
                break
    if user is None:
        return ""
    return base64.b64encode(f"{unquote(user)}:{unquote(password or '')}".encode()).decode()


def _split(address: str) -> tuple[WebOrigin, SplitResult] | None:
    try:
        parts = urlsplit(address)
        return _origin(parts), parts
    except ValueError:
        return None


def _netrc_login(file: Path | None, host: str) -> tuple[str | None, str | None]:
    if file is None:
        return None, None
    try:
        found = netrc.netrc(file).authenticators(host)
    except (OSError, ValueError, netrc.NetrcParseError):
        return None, None
    return (found[0], found[2]) if found and (found[0] or found[2]) else (None, None)


def content_length(headers: Message) -> int | None:
    """The length that an answer declares; ``None`` if it declares none.

    Raises:
        ValueError: the length is invalid.
    """
    text = headers.get("Content-Length")
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text.strip(), re.ASCII):
        raise ValueError(f"says that its length is {shortened(printable(text), 40)}")
    return int(text)


def ask_size(url: str, site: Site, seconds: float = 10.0) -> int | str | None:
    """The size of a URL in bytes (``None`` if its server does not say), or why it does not answer.

    Requests one byte, because some servers refuse HEAD.
    """
    try:
        with open_url(url, site, {"Range": "bytes=0-0"}, seconds) as answer:
            whole = (answer.headers.get("Content-Range") or "").rpartition("/")[2] if answer.status == 206 else ""
            size = whole or answer.headers.get("Content-Length") or ""
            return int(size) if re.fullmatch(r"[0-9]{1,18}", size, re.ASCII) else None
    except FAILURES as failed:
        return reason(failed)


def reason(failed: Exception) -> str:
    """Why a request failed, in a few words, printable and without secrets."""
    if isinstance(failed, urllib.error.HTTPError):
        return _harmless(f"status {failed.code} {failed.reason}")
    cause = failed.reason if isinstance(failed, urllib.error.URLError) else failed
    if isinstance(cause, TimeoutError):
        return NO_ANSWER
    # The text of a server may consist of a line end.
    return _harmless(str(cause)) or type(cause).__name__


def _harmless(text: str) -> str:
    return shortened(printable(" ".join(mask(text).split()), allowed=""), 300)
