"""Servers that lie, drip, loop and never end: each place is given up in time, the next one is asked, and only
files of servers are ever opened."""

from __future__ import annotations

import hashlib
import http.server
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import some
from tests.support.loopback import Loopback, loopback, status
from trainwright.core.errors import SourceError
from trainwright.site.site import Site
from trainwright.site.web import FAILURES, ask_size, open_url
from trainwright.sources import download
from trainwright.sources.download import Clock, Store, Wanted, fetch_all

GOOD = b"the right bytes" * 5000
SHA = hashlib.sha256(GOOD).hexdigest()
FILE = "thing-1.0.tar.gz"
BIG = 50_000_000
Handler = http.server.BaseHTTPRequestHandler
Serve = Callable[[Handler], None]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def hasty() -> Clock:
    """Time that runs three seconds with every look at it, so that nobody has to wait for a slow server."""
    ticks = itertools.count(step=3)
    return Clock(now=lambda: float(next(ticks)), sleep=lambda _: None)


def fetch(store: Store, *urls: str, sha256: str | None = SHA, size: int | None = None) -> bytes:
    wanted = [Wanted("thing", FILE, urls, sha256, size)]
    return fetch_all(wanted, Site(), store, say=lambda _: None, clock=hasty())[0].path.read_bytes()


def head(*lines: str, body: bytes = b"") -> Serve:
    """An answer as it stands, headers and all."""

    def serve(handler: Handler) -> None:
        handler.wfile.write("".join(f"{line}\r\n" for line in ("HTTP/1.1 200 OK", *lines, "")).encode("latin-1") + body)
        handler.close_connection = True

    return serve


def endless(*lines: str, piece: bytes = b"x" * 65536, pause: float = 0.0, first: bytes = b"") -> Serve:
    """The same, and then a piece again and again until the client has gone (or it is more than any client may take)."""

    def serve(handler: Handler) -> None:
        handler.wfile.write("".join(f"{line}\r\n" for line in lines).encode() + first)
        sent = 0
        while sent < BIG and not handler.server.gone.wait(pause) if pause else sent < BIG:  # type: ignore[attr-defined]
            handler.wfile.write(piece)
            handler.wfile.flush()
            sent += len(piece)
        handler.close_connection = True

    return serve


def chunked(*chunks: bytes) -> Serve:
    return head("Transfer-Encoding: chunked", "", body=b"".join(chunks))


LONG = ("HTTP/1.1 200 OK", "Content-Length: 1000000000", "")
FAULTS: dict[str, Serve | bytes] = {
    "no status line": lambda handler: handler.wfile.write(b"hello\r\n\r\n"),
    "not http at all": lambda handler: handler.wfile.write(b"\x00\xff" * 5000),
    "silent end": lambda handler: handler.wfile.flush(),
    "status of letters": lambda handler: handler.wfile.write(b"HTTP/1.1 abc OK\r\n\r\n"),
    "terminal escapes in the reason": lambda handler: handler.send_error(500, "\x1b]0;owned\x07"),
    "404": status(404),
    "204": status(204),
    "304": status(304),
    "416 without a part": status(416),
    "206 that nobody asked for": lambda handler: (
        handler.wfile.write(b"HTTP/1.1 206 OK\r\nContent-Range: bytes 5-9/10\r\nContent-Length: 5\r\n\r\n56789"),
        None,
    )[1],
    "length of letters": head("Content-Length: abc", body=GOOD),
    "length of 5000 digits": head(f"Content-Length: {'9' * 5000}", body=GOOD),
    "negative length": head("Content-Length: -5", body=GOOD),
    "length with a sign": head(f"Content-Length: +{len(GOOD)}", body=GOOD),
    "length with an exponent": head("Content-Length: 1e3", body=GOOD),
    "length of superscripts": head("Content-Length: \xb2\xb3", body=GOOD),
    "empty length": head("Content-Length:", body=GOOD),
    "no length": head(body=GOOD),
    "length too short": head("Content-Length: 10", body=GOOD),
    "length too long": head(f"Content-Length: {len(GOOD) + 1}", body=GOOD),
    "a petabyte": head("Content-Length: 1000000000000000", body=GOOD),
    "more than any disk": head(f"Content-Length: {'9' * 18}", body=GOOD),
    "chunk of letters": chunked(b"zz\r\nabc\r\n0\r\n\r\n"),
    "chunk of -1": chunked(b"-1\r\n" + GOOD),
    "chunk of -5": chunked(b"-5\r\n" + GOOD),
    "chunk that is cut": chunked(b"ffff\r\nabc"),
    "chunk size without end": chunked(b"f" * 100_000),
    "other bytes": b"other bytes",
    "loop of redirections": status(302, Location="/bad"),
    "loop of redirections over two": status(307, Location="/bad?x"),
    "redirection to a file": status(302, Location="file:///etc/passwd"),
    "redirection to data": status(302, Location="data:text/plain,hello"),
    "redirection to ftp": status(302, Location="ftp://127.0.0.1/x"),
    "redirection to nowhere": status(302, Location="http://[x"),
    "redirection to no port": status(302, Location="http://127.0.0.1:99999999/x"),
    "redirection to no host": status(302, Location="http:///x"),
    "redirection without a place": status(302),
    "redirection with an endless body": endless("HTTP/1.1 302 Found", "Location: /gone", ""),
    "endless interim answers": endless(piece=b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "endless headers": endless("HTTP/1.1 200 OK", piece=b"X-Y: z\r\n" * 1000),
    "endless header line": endless("HTTP/1.1 200 OK", piece=b"X" * 60_000),
    "drip of a head": endless("HTTP/1.1 200 OK", piece=b"X", pause=0.002),
    "drip of a body": endless(*LONG, piece=b"x", pause=0.002),
    "drip of chunks": endless("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "", piece=b"1\r\nx\r\n", pause=0.002),
}


@pytest.fixture
def bad() -> Iterator[Loopback]:
    with loopback() as running:
        yield running


def serve(running: Loopback, what: Serve | bytes) -> str:
    """The address of a fault; servers that drip end with the test."""

    def answer(handler: Handler) -> None:
        handler.server.gone = running.closing  # type: ignore[attr-defined]
        if isinstance(what, bytes):
            head(f"Content-Length: {len(what)}", body=what)(handler)
        else:
            what(handler)

    running.pages = {"/bad": answer, "/bad?x": answer}
    return f"{running.url}/bad"


# Without a checksum nothing tells some bytes from the right ones.
UNNOTICED = {(fault, None) for fault in ("length too short", "other bytes")}
WITH_AND_WITHOUT = [(fault, sha256) for fault in FAULTS for sha256 in (SHA, None)]


@pytest.mark.parametrize(("fault", "sha256"), [each for each in WITH_AND_WITHOUT if each not in UNNOTICED])
def test_the_next_place_is_asked_after_every_fault(
    server: Loopback, bad: Loopback, store: Store, fault: str, sha256: str | None
) -> None:
    server.pages = {"/good": GOOD}
    url = serve(bad, FAULTS[fault])
    assert fetch(store, url, f"{server.url}/good", sha256=sha256) == GOOD
    # And where there is no other place, it is said in words that no terminal obeys.
    with pytest.raises(SourceError) as failed:
        fetch(Store(store.folder / "two"), url, sha256=sha256)
    assert failed.value.details["tried"][0]["url"] == url
    why = failed.value.details["tried"][0]["why"]
    assert why and why.isprintable()
    assert "root:" not in str(failed.value.as_json())


@pytest.mark.parametrize("sha256", [SHA, None])
@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "file://localhost/etc/passwd",
        "data:text/plain,hello",
        "ftp://127.0.0.1/etc/passwd",
        "local_file:///etc/passwd",
        "jar:file:///x",
        "/etc/passwd",
        "//127.0.0.1/x",
        "http:/etc/passwd",
        "http://",
        "http://[::1",
        "http://127.0.0.1:port/",
        "http://127.0.0.1:0/",
        "http://user@:80/",
        "http://127.0.0.1/\r\nX: y",
        "http://127.0.0.1 /",
        "http://" + "a" * 70 + ".invalid/",
        "http://\u2024\u2024/",
        "",
    ],
)
def test_only_addresses_of_servers_are_opened(store: Store, url: str, sha256: str | None) -> None:
    with pytest.raises(FAILURES):
        open_url(url, Site(), {}, 2.0)
    assert isinstance(ask_size(url, Site(), 2.0), str)
    with pytest.raises(SourceError) as failed:
        fetch(store, url, sha256=sha256)
    assert "root:" not in str(failed.value.as_json())
    assert hashlib.sha256(Path("/etc/passwd").read_bytes()).hexdigest() not in str(failed.value.as_json())


def test_a_drip_is_given_up_by_the_clock_alone(bad: Loopback, store: Store) -> None:
    """The same server, the same bytes: enough of them a second, and the download goes on."""
    slow = endless("HTTP/1.1 200 OK", f"Content-Length: {len(GOOD)}", "", piece=GOOD[:1500], pause=0.001)

    def serve_all(handler: Handler) -> None:
        handler.server.gone = bad.closing  # type: ignore[attr-defined]
        slow(handler)

    bad.pages = {"/bad": serve_all}
    with pytest.raises(SourceError, match="slower than 1024 bytes/s for 30 s"):
        fetch(store, f"{bad.url}/bad")
    assert len(bad.asked) == 1
    calm = Clock(now=itertools.count(step=0.1).__next__)
    wanted = [Wanted("thing", FILE, (f"{bad.url}/bad",), SHA)]
    assert fetch_all(wanted, Site(), Store(store.folder / "two"), say=lambda _: None, clock=calm)[0].sha256 == SHA


@pytest.mark.parametrize("lines", [("Content-Length: 1000000000",), ("Transfer-Encoding: chunked",)])
def test_more_bytes_than_the_lock_knows_are_not_read(bad: Loopback, store: Store, lines: tuple[str, ...]) -> None:
    sent = []

    def count(handler: Handler) -> None:
        piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        handler.wfile.write(("HTTP/1.1 200 OK\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode())
        while len(sent) * 65536 < BIG:
            handler.wfile.write(piece)
            sent.append(1)

    bad.pages = {"/bad": count}
    with pytest.raises(SourceError):
        fetch(store, f"{bad.url}/bad", size=len(GOOD))
    assert bad.asked == ["/bad"], "asked once, not three times"
    assert len(sent) * 65536 < BIG // 2, "what the sockets hold, not all that there is"
    assert not list(store.parts.glob("*")) or sum(p.stat().st_size for p in store.parts.glob("*")) <= len(GOOD)


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        (b"HTTP/1.1 302 Found\r\nLocation: /gone\r\n\r\n", b"x" * 65536),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", b"x" * 65536),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 5000),
    ],
    ids=["interim answers", "redirection", "chunk below zero", "trailers"],
)
def test_what_never_ends_is_not_read_to_its_end(bad: Loopback, store: Store, first: bytes, piece: bytes) -> None:
    sent = []

    def count(handler: Handler) -> None:
        handler.wfile.write(first)
        while sum(sent) < BIG:
            handler.wfile.write(piece)
            sent.append(len(piece))

    bad.pages = {"/bad": count}
    # Where the size is not known it must not be its limit that ends them.
    size = None if b"302" in first or b"-1" in first else len(GOOD)
    with pytest.raises(SourceError):
        fetch(store, f"{bad.url}/bad", size=size)
    assert sum(sent) < BIG


def test_an_endless_file_of_unknown_size_is_read_once(
    bad: Loopback, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "LARGEST", 1_000_000)
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    url = serve(bad, endless("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "", piece=piece))
    with pytest.raises(SourceError, match="sends more than 1000000 bytes"):
        fetch(store, url)
    assert bad.asked == ["/bad"]
    assert not list(store.parts.glob("*"))


def test_a_file_of_another_size_than_the_locks_is_refused_unread(server: Loopback, store: Store) -> None:
    server.pages = {"/t": GOOD}
    with pytest.raises(SourceError, match=f"has {len(GOOD)} bytes, expected 7"):
        fetch(store, f"{server.url}/t", size=7)
    assert fetch(store, f"{server.url}/t", size=len(GOOD)) == GOOD


def test_a_file_for_which_the_disk_has_no_room_is_the_disks_fault(
    server: Loopback, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = download.shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
    server.pages = {"/t": GOOD}
    with pytest.raises(OSError, match="room for 1000") as full:
        fetch(store, f"{server.url}/gone", f"{server.url}/t")
    assert full.value.errno == 28


def test_416_means_that_the_part_is_whole_or_of_another_file(server: Loopback, store: Store) -> None:
    store.parts.mkdir(parents=True)
    part = store.parts / f"{SHA[:16]}.{FILE}"
    server.pages = {"/t": status(416)}
    part.write_bytes(GOOD)
    assert fetch(store, f"{server.url}/t") == GOOD
    other = Store(store.folder / "two")
    other.parts.mkdir(parents=True)
    (other.parts / part.name).write_bytes(GOOD[:-1])
    with pytest.raises(SourceError, match="status 416"):
        fetch(other, f"{server.url}/t")


WORDS = [b"HTTP/1.1 ", b"200", b"302", b" OK", b"\r\n", b"\n", b"-", b"12", b"\x80", b"a" * 99]
WORDS += [b"Content-Length: ", b"Location: /", b"Transfer-Encoding: chunked"]


@settings(max_examples=some(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(WORDS) | st.binary(max_size=9)))
def test_whatever_a_server_says_is_an_answer_or_a_reason(bad: Loopback, pieces: list[bytes]) -> None:
    bad.pages = {"/bad": lambda handler: handler.wfile.write(b"".join(pieces))}
    said = ask_size(f"{bad.url}/bad", Site(), 5.0)
    assert said is None or isinstance(said, int) or (said and said.isprintable())


def test_long_texts_are_masked_at_once() -> None:
    """In a process of its own with a limit of processor time, which a pattern that is not linear would use up."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"
        "from trainwright.core.masking import mask, remember\n"
        "remember('https://u:secret1@h/TOKEN99x/simple')\n"
        "for piece in ('a:', 'a:,', '://', 'x://', '@', 'a:b@', '?a=', '/TOKEN', '?sig=', 'authorization:', '%'):\n"
        "    mask(piece * 30_000)\n"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, env={"PYTHONPATH": str(root)}, check=False)
    assert done.returncode == 0
