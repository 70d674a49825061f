"""Questions to web servers as a build step would put them: the site's proxies, certificate authorities, credentials."""

from __future__ import annotations

import base64
import http.client
import netrc
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit, urlunsplit

from trainwright.masking import mask
from trainwright.site import Site

NO_ANSWER = "no answer"
# What a server, a proxy or the network can do wrong.
FAILURES = (OSError, ValueError, http.client.HTTPException)


class _NoFtp(urllib.request.FTPHandler):
    """A build step follows redirections to http and https alone."""

    def ftp_open(self, req: urllib.request.Request) -> NoReturn:
        raise urllib.error.URLError(f"leads to {mask(req.full_url)}, which is neither http nor https")


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
    data: bytes | None = None,
) -> http.client.HTTPResponse:
    """The answer to a question; the caller closes it.

    Args:
        url: http or https; a user and a password in it go to that host alone.
        site: whose proxies, authorities and credentials are used.
        headers: of the request.
        seconds: for each wait on the server.
        method: of the request.
        data: its body.

    Raises:
        urllib.error.HTTPError: a status that is no success.
        OSError, ValueError, http.client.HTTPException: there was no answer, or none that is http (:data:`FAILURES`).
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    request = urllib.request.Request(  # noqa: S310
        address, data=data, headers={"User-Agent": "trainwright", **headers}, method=method
    )
    if credentials := _credentials(parts.username, parts.password, host, site):
        # Not sent on to where a redirection leads.
        request.add_unredirected_header("Authorization", f"Basic {credentials}")
    proxies = {kind: url for kind in ("http", "https") if (url := getattr(site.proxies, kind))}
    if site.proxies.no and urllib.request.proxy_bypass(host, {"no": site.proxies.no}):
        proxies = {}
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler(proxies),
        urllib.request.HTTPSHandler(context=_context(site.ca_bundle)),
        _NoFtp,
    )
    answer: http.client.HTTPResponse = opener.open(request, timeout=seconds)
    return answer


def _credentials(user: str | None, password: str | None, host: str, site: Site) -> str:
    if user is None and site.netrc is not None:
        try:
            found = netrc.netrc(site.netrc).authenticators(host)
        except (OSError, netrc.NetrcParseError):
            found = None
        user, password = (found[0], found[2]) if found else (None, None)
    if user is None:
        # Files of an index lie beside it, and their addresses come without its password.
        for index in filter(None, (site.index_url, *site.extra_index_urls, site.artifact_mirror)):
            parts = urlsplit(index)
            if parts.hostname == host and parts.username:
                user, password = parts.username, parts.password
                break
    if user is None:
        return ""
    return base64.b64encode(f"{unquote(user)}:{unquote(password or '')}".encode()).decode()


def ask_size(url: str, site: Site, seconds: float = 10.0) -> int | str | None:
    """How many bytes a URL has (nothing where its server does not say), or why it does not answer.

    One byte is asked for, as some servers refuse HEAD.
    """
    try:
        with open_url(url, site, {"Range": "bytes=0-0"}, seconds) as answer:
            whole = (answer.headers.get("Content-Range") or "").rpartition("/")[2] if answer.status == 206 else ""
            size = whole or answer.headers.get("Content-Length") or ""
            return int(size) if size.isdigit() else None
    except FAILURES as failed:
        return reason(failed)


def reason(failed: Exception) -> str:
    """Why a question got no good answer, in a few words without credentials."""
    if isinstance(failed, urllib.error.HTTPError):
        return f"status {failed.code} {failed.reason}".strip()
    cause = failed.reason if isinstance(failed, urllib.error.URLError) else failed
    if isinstance(cause, TimeoutError):
        return NO_ANSWER
    return mask(str(cause) or type(cause).__name__)
