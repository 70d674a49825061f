"""Whom a login is shown: the same scheme, host and port, and nobody a redirection leads to."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit

import pytest

from tests.support.loopback import Loopback, loopback, status
from trainwright.site import web
from trainwright.site.site import Site
from trainwright.site.web import WebOrigin, open_url

LOGIN = "Basic " + base64.b64encode(b"bob:p w").decode()


@pytest.fixture
def other() -> Iterator[Loopback]:
    with loopback() as running:
        yield running


def host(server: Loopback) -> str:
    return server.url.removeprefix("http://")


def ask(url: str, site: Site) -> None:
    open_url(url, site, {}, 5.0).close()


def shown(server: Loopback) -> list[str | None]:
    return [headers.get("Authorization") for headers in server.headers]


@pytest.mark.parametrize("key", ["index_url", "extra_index_urls", "find_links_urls", "artifact_mirror"])
def test_a_password_of_the_site_goes_to_its_own_port_alone(server: Loopback, other: Loopback, key: str) -> None:
    url = f"http://bob:p%20w@{host(server)}/simple"
    site = Site(**{key: (url,) if key.endswith("s") else url})
    server.pages = other.pages = {"/f": b"x"}
    ask(f"{server.url}/f", site)
    ask(f"{other.url}/f", site)
    assert (shown(server), shown(other)) == ([LOGIN], [None])


SECRET = Site(index_url="https://bob:p%20w@host.example/simple", artifact_mirror="http://eve:x@host.example:8080/a")
BOB, EVE = base64.b64encode(b"bob:p w").decode(), base64.b64encode(b"eve:x").decode()


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("https://host.example/x", BOB),
        ("https://HOST.example:443/x", BOB),
        ("http://host.example/x", ""),
        ("http://host.example:443/x", ""),
        ("https://host.example:8443/x", ""),
        ("http://host.example:8080/x", EVE),
        ("https://host.example:8080/x", ""),
        ("https://sub.host.example/x", ""),
        ("https://host.example.evil.example/x", ""),
        ("https://host.example@evil.example/x", base64.b64encode(b"host.example:").decode()),
        ("http://me:own@host.example/x", base64.b64encode(b"me:own").decode()),
    ],
)
def test_scheme_host_and_port_have_to_be_the_same(url: str, login: str) -> None:
    parts = urlsplit(url)
    assert web._credentials(parts, web._origin(parts), SECRET) == login


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("https://host.example/x", True),
        ("https://host.example:8443/x", True),  # a netrc knows no ports
        ("http://host.example/x", False),
        ("http://host.example:3141/x", True),  # the site names this very address
        ("http://host.example:3142/x", False),
        ("https://other.example/x", False),
    ],
)
def test_a_netrc_is_for_https_and_for_the_http_addresses_that_the_site_names(
    tmp_path: Path, url: str, login: bool
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine host.example login bob password pw\n")
    site = Site(netrc=netrc, index_url="http://host.example:3141/root/simple")
    parts = urlsplit(url)
    assert bool(web._credentials(parts, web._origin(parts), site)) is login


@pytest.mark.parametrize("content", [b"", b"machine", b"\xff\xfe", b"machine host.example login"])
def test_a_broken_netrc_is_no_login(tmp_path: Path, content: bytes) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_bytes(content)
    parts = urlsplit("https://host.example/x")
    assert web._credentials(parts, web._origin(parts), Site(netrc=netrc)) == ""


def test_a_login_goes_on_to_the_same_place_and_to_no_other(server: Loopback, other: Loopback) -> None:
    server.pages = {"/here": status(302, Location="/f"), "/away": status(307, Location=f"{other.url}/f"), "/f": b"x"}
    other.pages = {"/f": status(301, Location=f"{server.url}/back")}
    server.pages["/back"] = b"x"
    ask(f"http://bob:p%20w@{host(server)}/here", Site())
    assert shown(server) == [LOGIN, LOGIN]
    ask(f"http://bob:p%20w@{host(server)}/away", Site())
    assert shown(other) == [None]


@pytest.mark.parametrize(
    ("origin", "target", "fine"),
    [
        ("http", "http://a/x", True),
        ("http", "https://a/x", True),
        ("https", "https://a/x", True),
        ("https", "http://a/x", False),
        ("https", "HTTP://a/x", False),
        ("http", "file:///x", False),
        ("https", "ftp://a/x", False),
    ],
)
def test_a_redirection_never_leads_back_from_https(origin: str, target: str, fine: bool) -> None:
    came = WebOrigin(origin, "a", 443)
    if fine:
        web._check_redirect(came, target)
        return
    with pytest.raises(URLError):
        web._check_redirect(came, target)


def test_the_opener_knows_http_and_https_alone() -> None:
    handlers = web._opener("a", Site(), lambda *_: None).handle_open  # type: ignore[arg-type,return-value]
    assert {scheme for scheme in handlers if scheme != "unknown"} <= {"http", "https"}
