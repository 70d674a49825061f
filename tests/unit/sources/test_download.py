"""Downloads of this machine: places in their order, and nothing half-made under a good name, whatever goes wrong."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.loopback import Loopback, dead_url, status, truncated
from trainwright.core.errors import SourceError
from trainwright.site.site import Proxies, Site
from trainwright.sources.download import Clock, Fetched, Store, Wanted, fetch_all

ROOT = Path(__file__).resolve().parents[3]
GOOD = b"the right bytes" * 5000
SHA = hashlib.sha256(GOOD).hexdigest()
FILE = "thing-1.0.tar.gz"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def fetch(store: Store, *urls: str, sha256: str | None = SHA, site: Site | None = None) -> Fetched:
    (one,) = fetch_all([Wanted("thing", FILE, urls, sha256)], site or Site(), store, say=lambda _: None)
    return one


def refused(store: Store, *urls: str, sha256: str | None = SHA) -> SourceError:
    with pytest.raises(SourceError) as failed:
        fetch(store, *urls, sha256=sha256)
    assert failed.value.exit_code == 8
    assert failed.value.details["component"] == "thing"
    assert failed.value.details["file"] == FILE
    assert kept(store) == [], "nothing half-made has a good name"
    return failed.value


def kept(store: Store) -> list[Path]:
    return [p for p in store.folder.rglob("*") if p.is_file() and not p.is_relative_to(store.parts)]


def ranged(handler) -> None:
    """A server that knows ranges."""
    begin = int((handler.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
    handler.send_response(206 if begin else 200)
    handler.send_header("Content-Length", str(len(GOOD) - begin))
    if begin:
        handler.send_header("Content-Range", f"bytes {begin}-{len(GOOD) - 1}/{len(GOOD)}")
    handler.end_headers()
    handler.wfile.write(GOOD[begin:])


def test_a_file_is_kept_by_its_checksum_and_not_fetched_twice(server, store):
    server.pages = {"/t": GOOD}
    for sha256 in (None, SHA):
        got = fetch(store, f"{server.url}/t", sha256=sha256)
        assert got.path == store.folder / SHA[:2] / SHA / FILE
        assert (got.path.read_bytes(), got.sha256, got.size) == (GOOD, SHA, len(GOOD))
    assert server.asked == ["/t"]
    flat = Store(store.folder / "flat", flat=True)
    assert fetch(flat, f"{server.url}/t").path == flat.folder / FILE


def test_a_kept_file_that_was_changed_is_fetched_again(server, store):
    server.pages = {"/t": GOOD}
    path = fetch(store, f"{server.url}/t").path
    path.write_bytes(b"else")
    assert fetch(store, f"{server.url}/t").path.read_bytes() == GOOD
    path.write_bytes(b"else")
    refused(store, f"{server.url}/gone")


@pytest.mark.parametrize("kind", ["dead", "missing", "truncated", "changed", "no length"])
def test_a_mirror_stands_in(server, store, kind):
    def endless(handler) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + GOOD[:10])

    pages = {"missing": status(404), "truncated": truncated(GOOD), "changed": b"other", "no length": endless}
    server.pages = {"/up": pages.get(kind, b""), "/mirror": GOOD}
    up = dead_url() if kind == "dead" else f"{server.url}/up"
    got = fetch(store, up, f"{server.url}/mirror")
    assert got.path.read_bytes() == GOOD
    assert got.place == f"{server.url}/mirror"


def test_where_no_place_has_it_each_is_named_with_its_reason(server, store):
    server.pages = {"/cut": truncated(GOOD), "/changed": b"other"}
    urls = [dead_url(), f"{server.url}/missing", f"{server.url}/cut", f"{server.url}/changed"]
    failure = refused(store, *urls)
    assert failure.details["urls"] == urls
    assert failure.details["expected"] == SHA
    assert failure.details["found"] == hashlib.sha256(b"other").hexdigest()
    assert [row["url"] for row in failure.details["tried"]] == urls
    reasons = [row["why"] for row in failure.details["tried"]]
    for reason, words in zip(reasons, ["refused", "status 404", "ended after", "has the sha256"], strict=True):
        assert words in reason
    assert "artifact_mirror" in failure.remedy


def test_a_file_without_any_place_says_so(store):
    assert refused(store).message.endswith("\n  it has no source")


@pytest.mark.parametrize("sha256", [None, SHA])
def test_a_truncated_download_is_noticed_with_and_without_a_checksum(server, store, sha256):
    server.pages = {"/t": truncated(GOOD)}
    failure = refused(store, f"{server.url}/t", sha256=sha256)
    assert f"ended after {len(GOOD) // 2} of {len(GOOD)} bytes" in failure.message
    # Without a checksum the two halves could be of two files.
    assert [p.name for p in store.parts.glob(f"*{FILE}")] == ([f"{SHA[:16]}.{FILE}"] if sha256 else [])


def test_the_next_run_goes_on_where_the_last_one_was_cut(server, store):
    server.pages = {"/t": truncated(GOOD)}
    refused(store, f"{server.url}/t")
    server.pages["/t"] = ranged
    assert fetch(store, f"{server.url}/t").path.read_bytes() == GOOD
    assert server.headers[-1]["Range"] == f"bytes={len(GOOD) // 2}-"


def test_a_part_of_another_file_is_not_gone_on_with(server, store):
    store.parts.mkdir(parents=True)
    (store.parts / f"{SHA[:16]}.{FILE}").write_bytes(b"x" * 100)
    server.pages = {"/t": ranged}
    assert fetch(store, f"{server.url}/t").path.read_bytes() == GOOD


def part_of(store: Store, content: bytes, sha256: str | None = SHA, *urls: str) -> Path:
    """What an earlier run left of the file."""
    name = sha256 or hashlib.sha256("\n".join([FILE, *urls]).encode()).hexdigest()
    store.parts.mkdir(parents=True, exist_ok=True)
    part = store.parts / f"{name[:16]}.{FILE}"
    part.write_bytes(content)
    return part


def of_size(store: Store, size: int | None, *urls: str, clock: Clock | None = None) -> Fetched:
    wanted = Wanted("thing", FILE, urls, SHA, size)
    (one,) = fetch_all([wanted], Site(), store, say=lambda _: None, clock=clock)
    return one


def chunked(content: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer that does not say how long it is."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        handler.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content))

    return answer


@pytest.mark.parametrize("page", [GOOD, chunked(GOOD)], ids=["length", "chunked"])
def test_a_file_of_exactly_its_size_is_taken(server: Loopback, store: Store, page: Any) -> None:
    server.pages = {"/t": page}
    assert of_size(store, len(GOOD), f"{server.url}/t").size == len(GOOD)


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (GOOD, f"has {len(GOOD)} bytes, expected {len(GOOD) - 1}"),
        (chunked(GOOD), f"sends more than {len(GOOD) - 1} bytes"),
    ],
    ids=["length", "chunked"],
)
def test_a_file_of_another_size_is_not_read(server: Loopback, store: Store, page: Any, says: str) -> None:
    server.pages = {"/t": page}
    with pytest.raises(SourceError, match=says):
        of_size(store, len(GOOD) - 1, f"{server.url}/t")
    assert kept(store) == []


def test_a_part_that_is_whole_needs_no_more_bytes(server: Loopback, store: Store) -> None:
    """Killed between the last byte and the good name; RFC 9110, 14.4: nothing after the end is a 416."""
    part_of(store, GOOD)
    server.pages = {"/t": status(416)}
    assert fetch(store, f"{server.url}/t").size == len(GOOD)
    assert [each["Range"] for each in server.headers] == [f"bytes={len(GOOD)}-"]


def test_a_416_for_a_whole_file_is_a_failure(server: Loopback, store: Store) -> None:
    server.pages = {"/t": status(416)}
    assert "status 416" in refused(store, f"{server.url}/t").message


def test_a_part_that_is_too_long_is_begun_anew(server: Loopback, store: Store) -> None:
    part_of(store, b"x" * (len(GOOD) + 1))
    server.pages = {"/t": ranged}
    assert of_size(store, len(GOOD), f"{server.url}/t").size == len(GOOD)
    assert [each.get("Range") for each in server.headers] == [None]


def test_without_a_checksum_a_part_may_be_of_another_file(server: Loopback, store: Store) -> None:
    url = f"{server.url}/t"
    part_of(store, b"else", None, url)
    server.pages = {"/t": ranged}
    assert fetch(store, url, sha256=None).sha256 == SHA
    assert [each.get("Range") for each in server.headers] == [None]


def test_a_server_that_ignores_ranges_sends_all_of_it(server: Loopback, store: Store) -> None:
    part_of(store, GOOD[:100])
    server.pages = {"/t": GOOD}
    assert fetch(store, f"{server.url}/t").size == len(GOOD)
    assert [each.get("Range") for each in server.headers] == ["bytes=100-"]


@pytest.mark.parametrize("header", [None, f"bytes 10-{len(GOOD) - 1}/{len(GOOD)}"])
def test_another_part_than_asked_for_is_refused(server: Loopback, store: Store, header: str | None) -> None:
    part_of(store, GOOD[:100])
    server.pages = {"/t": status(206, **({"Content_Range": header} if header else {}))}
    assert "a different part of the file" in refused(store, f"{server.url}/t").message


def test_only_a_broken_connection_is_tried_again(server: Loopback, store: Store) -> None:
    sleeps: list[float] = []
    server.pages = {"/cut": truncated(GOOD), "/none": status(503)}
    for page, asked in (("/cut", 3), ("/none", 1)):
        server.asked.clear()
        with pytest.raises(SourceError):
            of_size(store, None, f"{server.url}{page}", clock=Clock(sleep=sleeps.append))
        assert server.asked == [page] * asked
    assert sleeps == [0.0, 0.5]


@pytest.mark.parametrize("page", [GOOD, chunked(GOOD)], ids=["length", "chunked"])
def test_a_disk_without_room_ends_it_before_it_is_full(
    server: Loopback, store: Store, monkeypatch: pytest.MonkeyPatch, page: Any
) -> None:
    part_of(store, GOOD[:10])  # it goes, too, so that the disk has its room again
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=len(GOOD) - 20))
    server.pages = {"/t": page}
    with pytest.raises(OSError, match=f"{len(GOOD) - 10}") as full:
        fetch(store, f"{server.url}/t")
    assert full.value.errno == errno.ENOSPC
    assert not list(store.folder.rglob(f"*{FILE}"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=len(GOOD)))
    assert fetch(store, f"{server.url}/t").size == len(GOOD)


def test_a_download_that_was_killed_leaves_no_file_and_goes_on(server, store):
    def slow(handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(GOOD)))
        handler.end_headers()
        handler.wfile.write(GOOD[:3000])
        server.closing.wait(30)

    server.pages = {"/t": slow}
    code = (
        "from pathlib import Path; from trainwright.sources.download import *; from trainwright.site.site import Site\n"
        f"fetch_all([Wanted('thing', {FILE!r}, ({server.url + '/t'!r},), {SHA!r})], Site(), "
        f"Store(Path({str(store.folder)!r})), say=print)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    for _ in range(100):
        if server.asked:
            break
        time.sleep(0.1)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert server.asked and kept(store) == []
    server.pages["/t"] = ranged
    assert fetch(store, f"{server.url}/t").path.read_bytes() == GOOD


def test_a_full_disk_is_said_and_leaves_nothing(server, small_disk):
    server.pages = {"/t": GOOD}
    small = Store(small_disk / "store")
    with pytest.raises(OSError) as full:
        fetch(small, f"{server.url}/t")
    assert full.value.errno == errno.ENOSPC
    assert not list(small.folder.rglob(f"*{FILE}"))


def test_proxy_and_credentials_of_the_site_are_used_and_not_shown(server, store, tmp_path):
    server.pages = {"http://far.invalid/t": GOOD, "/t": GOOD}
    fetch(store, "http://far.invalid/t", site=Site(proxies=Proxies(http=server.url)))
    host = server.url.removeprefix("http://")
    # The files of an index come without its password, and need it all the same.
    index = Site(index_url=f"http://me:s3cret@{host}/simple")
    fetch(Store(tmp_path / "two"), f"{server.url}/t", site=index)
    assert server.headers[-1]["Authorization"].startswith("Basic ")
    failure = refused(Store(tmp_path / "three"), f"http://me:s3cret@{host}/gone")
    assert "s3cret" not in str(failure.as_json())


def test_a_file_that_two_need_is_fetched_once(server, store):
    server.pages = {"/t": GOOD}
    wanted = [Wanted(name, FILE, (f"{server.url}/t",), SHA) for name in ("one", "two")]
    found = fetch_all(wanted, Site(), store, say=lambda _: None)
    assert [each.wanted.component for each in found] == ["one", "two"]
    assert server.asked == ["/t"]


def test_one_failure_ends_the_others(server, store):
    wanted = [Wanted("bad", "bad.tar", (f"{server.url}/gone",), SHA)]
    wanted += [Wanted("good", f"{n}.tar", (dead_url(),), SHA) for n in range(20)]
    started = time.monotonic()
    with pytest.raises(SourceError, match="bad"):
        fetch_all(wanted, Site(), store, say=lambda _: None)
    assert time.monotonic() - started < 5
