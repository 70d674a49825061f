"""OSV's files at an address: copied once, asked for changes, and never used half."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import call
from tests.support.loopback import Answer, Loopback, status, truncated
from tests.support.osv import database, record
from trainwright.core.errors import SourceError
from trainwright.core.paths import cache_dir
from trainwright.scan.remote_database import RemoteDatabase
from trainwright.site.site import Site

pytestmark = pytest.mark.usefixtures("own_places")
PATH = "/osv/Debian:12/all.zip"


def published(content: bytes, mark: str = "one") -> Answer:
    """The file as a server has it that answers to ``If-None-Match``."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.headers.get("If-None-Match") == mark:
            handler.send_response(304)
            handler.end_headers()
            return
        handler.send_response(200)
        handler.send_header("ETag", mark)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def remote(server: Loopback) -> RemoteDatabase:
    return RemoteDatabase(f"{server.url}/osv/", Site(), say=lambda _: None)


def content(place: Path) -> bytes:
    return (place / "Debian:12" / "all.zip").read_bytes()


def test_a_file_is_fetched_once_and_again_when_it_has_changed(server: Loopback) -> None:
    server.pages = {PATH: published(b"first")}
    asked = remote(server)
    assert [content(asked.folder("Debian:12")) for _ in range(2)] == [b"first"] * 2
    assert len(server.asked) == 1
    assert content(remote(server).folder("Debian:12")) == b"first"
    assert server.headers[-1]["If-None-Match"] == "one"
    server.pages = {PATH: published(b"second", "two")}
    assert content(remote(server).folder("Debian:12")) == b"second"


@pytest.mark.parametrize("page", [status(404), status(503), truncated(b"x" * 1000)])
def test_what_does_not_come_whole_is_an_error_and_no_copy_from_before_stands_in(server: Loopback, page: Any) -> None:
    server.pages = {PATH: published(b"first")}
    remote(server).folder("Debian:12")
    server.pages = {PATH: page}
    with pytest.raises(SourceError, match="vulnerability database: http"):
        remote(server).folder("Debian:12")
    assert not list(cache_dir().glob("osv/*/*/part"))


def test_a_scan_takes_an_address(server: Loopback, tmp_path: Path) -> None:
    made = database(tmp_path / "osv", record("X-1", "glibc", {"introduced": "0"}), packed=["PyPI"])
    server.pages = {"/osv/PyPI/all.zip": (made / "PyPI" / "all.zip").read_bytes()}
    (tmp_path / "sbom.json").write_text(
        '{"bomFormat": "CycloneDX", "components": [{"purl": "pkg:pypi/requests@2.30.0"}]}'
    )
    done = call("scan", "sbom.json", "--database", f"{server.url}/osv", cwd=tmp_path)
    assert done.returncode == 1 and "CVE-2023-32681" in done.stdout, done.stderr
    failed = call("scan", "sbom.json", "--database", f"{server.url}/none", cwd=tmp_path)
    assert failed.returncode == 8 and "status 404" in failed.stderr
