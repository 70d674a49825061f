"""Server answers and disk errors that yield no file, and what is kept of a file that was downloaded."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.loopback import Loopback, status
from tests.unit.sources.test_download import (
    FILE,
    GOOD,
    SHA,
    chunked,
    fetch,
    kept,
    of_size,
    part_of,
    ranged,
    refused,
)
from trainwright.core.errors import SourceError
from trainwright.site.site import Site
from trainwright.sources.download import Clock, Wanted, fetch_all
from trainwright.sources.locations import Store

Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def answer(line: str, *headers: str, content: bytes = GOOD) -> Answer:
    """An answer as it stands in the connection."""
    head = "\r\n".join([f"HTTP/1.1 {line}", *headers, "", ""]).encode()

    def written(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(head + content)

    return written


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (answer("200 OK"), "does not state its length"),
        (answer("200 OK", "Content-Length: ten"), "says that its length is ten"),
        (answer("203 Elsewhere", f"Content-Length: {len(GOOD)}"), "status 203 Elsewhere"),
        (answer("200 OK", f"Content-Length: {17 << 30}"), "more than any file of an image"),
    ],
    ids=["no length", "no number", "not the file", "too large"],
)
def test_without_a_checksum_an_answer_must_be_beyond_doubt(
    server: Loopback, store: Store, monkeypatch: pytest.MonkeyPatch, page: Answer, says: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 40))
    server.pages = {"/t": page}
    failure = refused(store, f"{server.url}/t", sha256=None)
    assert says in failure.message
    assert f"no source has {FILE} whole" in failure.message


def test_with_a_checksum_the_failure_names_it(server: Loopback, store: Store) -> None:
    assert f"no source has {FILE} with the sha256 {SHA}" in refused(store, f"{server.url}/t").message


def test_a_part_of_another_file_is_not_gone_on_with_for_ever(server: Loopback, store: Store) -> None:
    """The connection breaks at every try, so the wrong part is only known for one at the last."""
    begun: list[int] = []

    def breaking(handler: BaseHTTPRequestHandler) -> None:
        begin = int(str(handler.headers["Range"]).removeprefix("bytes=").rstrip("-"))
        begun.append(begin)
        handler.send_response(206)
        handler.send_header("Content-Length", str(len(GOOD) - begin))
        handler.send_header("Content-Range", f"bytes {begin}-{len(GOOD) - 1}/{len(GOOD)}")
        handler.end_headers()
        handler.wfile.write(GOOD[begin : begin + 10] if len(begun) < 3 else GOOD[begin:])

    part_of(store, b"x" * 100)
    server.pages = {"/t": breaking}
    wanted = Wanted("thing", FILE, (f"{server.url}/t",), SHA)
    with pytest.raises(SourceError, match="has the sha256"):
        fetch_all([wanted], Site(), store, say=lambda _: None, clock=Clock(sleep=lambda _: None))
    assert begun == [100, 110, 120]
    assert kept(store) == []


def test_a_disk_that_is_full_is_not_the_fault_of_the_last_source(
    server: Loopback, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    server.pages = {"/t": GOOD}
    with pytest.raises(OSError, match=f"has {len(GOOD)} bytes, and the disk has room for 10; status 404") as full:
        fetch(store, f"{server.url}/t", f"{server.url}/gone")
    assert full.value.errno == errno.ENOSPC


def test_a_folder_in_the_place_of_a_part_is_said_and_stays(server: Loopback, store: Store) -> None:
    part = part_of(store, b"")
    part.unlink()
    part.mkdir()
    server.pages = {"/t": GOOD}
    with pytest.raises(IsADirectoryError) as refused:
        fetch(store, f"{server.url}/t")
    assert refused.value.filename == str(part)
    assert part.is_dir()


@pytest.mark.parametrize("page", [GOOD, chunked(GOOD)], ids=["length", "chunked"])
def test_a_disk_that_others_fill_meanwhile(server: Loopback, store: Store, page: bytes | Answer) -> None:
    part = part_of(store, b"")
    part.unlink()
    part.symlink_to("/dev/full")
    server.pages = {"/t": page}
    with pytest.raises(OSError, match="No space left") as full:
        fetch(store, f"{server.url}/t")
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, str(part))
    assert not part.is_symlink(), "what is half there makes room"


def test_what_is_kept_can_be_read_by_everyone(server: Loopback, store: Store) -> None:
    """The store may be shared, and build steps read it as another user."""
    server.pages = {"/t": GOOD}
    before = os.umask(0o077)
    try:
        path = fetch(store, f"{server.url}/t").path
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("sizes", "told"),
    [((5, 2), "7 B of 7 B, 2 of 2 files"), ((5, None), "7 B, 2 of 2 files")],
)
def test_how_far_all_is_can_be_told_if_every_size_is_known(
    server: Loopback, store: Store, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int | None, ...], told: str
) -> None:
    said: list[str] = []

    @contextlib.contextmanager
    def beating(_: object, text: Callable[[float], str]) -> Iterator[None]:
        yield
        said.append(text(1.0))

    monkeypatch.setattr("trainwright.sources.download.heartbeat", beating)
    server.pages = {"/0": b"12345", "/1": b"12"}
    wanted = [Wanted("x", f"{n}", (f"{server.url}/{n}",), None, size) for n, size in enumerate(sizes)]
    fetch_all(wanted, Site(), store, say=lambda _: None)
    assert said[0].startswith(f"{told}, 1s so far")


def test_a_file_that_two_get_elsewhere_is_fetched_from_the_firsts_place(server: Loopback, store: Store) -> None:
    server.pages = {"/a": GOOD, "/b": GOOD}
    wanted = [Wanted(name, FILE, (f"{server.url}/{name}",), SHA) for name in "ab"]
    assert [each.place for each in fetch_all(wanted, Site(), store, say=lambda _: None)] == [f"{server.url}/a"] * 2
    assert server.asked == ["/a"]


def test_a_failure_stops_the_others_at_their_next_bytes(server: Loopback, store: Store) -> None:
    sent: list[int] = []

    def slow(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "10000")
        handler.end_headers()
        for number in range(100):
            handler.wfile.write(b"x" * 100)
            sent.append(number)
            server.closing.wait(0.1)

    def gone(handler: BaseHTTPRequestHandler) -> None:
        while not sent and not server.closing.wait(0.01):
            pass
        handler.send_error(404)

    names = ["gone", *(f"slow{n}" for n in range(20))]
    server.pages = {f"/{name}": gone if name == "gone" else slow for name in names}
    wanted = [Wanted(name, name, (f"{server.url}/{name}",), SHA) for name in names]
    with pytest.raises(SourceError, match="gone: no source has gone"):
        fetch_all(wanted, Site(), store, say=lambda _: None)
    assert len(sent) < 100
    assert len(server.asked) < 15, "four at a time; those that had not begun do not begin"


@pytest.mark.parametrize(
    ("page", "seconds", "asked"),
    [
        # The time between two readings of the clock is long enough to give up on the server.
        (chunked(GOOD), 1e6, 1),
        (answer("200 OK", "Transfer-Encoding: chunked", content=b"10\r\nabc"), 0, 3),
    ],
    ids=["slow", "cut"],
)
def test_an_answer_in_pieces_that_does_not_end(
    server: Loopback, store: Store, page: Answer, seconds: float, asked: int
) -> None:
    """It states no length, so nothing else tells that bytes are missing. Only what was cut is asked for again."""
    times = itertools.count(0.0, seconds)
    clock = Clock(now=lambda: next(times), sleep=lambda _: None)
    server.pages = {"/t": page}
    with pytest.raises(SourceError, match=r"after \d+ bytes"):
        fetch_all([Wanted("x", FILE, (f"{server.url}/t",))], Site(), store, say=lambda _: None, clock=clock)
    assert server.asked == ["/t"] * asked
    assert kept(store) == []


@pytest.mark.parametrize("size", [None, len(GOOD)])
@pytest.mark.parametrize(("there", "page"), [(100, ranged), (len(GOOD), status(416))], ids=["begun", "whole"])
def test_a_part_is_gone_on_with_whether_or_not_the_size_is_known(
    server: Loopback, store: Store, size: int | None, there: int, page: Answer
) -> None:
    part_of(store, GOOD[:there])
    server.pages = {"/t": page}
    assert of_size(store, size, f"{server.url}/t").size == len(GOOD)
    assert [each.get("Range") for each in server.headers] == [f"bytes={there}-"]


def test_files_of_one_name_without_checksums_are_told_apart_by_their_places(server: Loopback, store: Store) -> None:
    server.pages = {"/a": b"one", "/b": b"two"}
    wanted = [Wanted(name, FILE, (f"{server.url}/{name}",)) for name in "ab"]
    found = fetch_all(wanted, Site(), store, say=lambda _: None)
    assert [each.path.read_bytes() for each in found] == [b"one", b"two"]
