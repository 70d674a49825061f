"""Downloads of this machine: from the first source that has the right bytes, atomically.

The sources and their order are those of a build step (``templates/tools/build/fetch``). Bytes go to a part file first,
so a download that is truncated, killed or fills the disk never leaves a file under its final name. If the checksum is
known in advance, the next run resumes where the part file ends.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.core.errors import SourceError
from trainwright.core.heartbeat import Transfer, heartbeat
from trainwright.core.masking import mask
from trainwright.core.paths import locked
from trainwright.core.say import Say
from trainwright.site.site import Site
from trainwright.site.web import FAILURES, Pace, TooLarge, TooSlow, content_length, open_url, reason
from trainwright.sources.locations import Store, remedy

AT_ONCE = 4
SECONDS = 30.0  # of silence before giving up on a server
ATTEMPTS = 3  # per source, if the connection breaks
CHUNK = 1 << 20
LARGEST = 16 << 30  # bytes of a file of unknown size; the largest archives have 5 GB


@dataclass(frozen=True)
class Wanted:
    """A file to fetch: who needs it, its name, its sources (with credentials), its checksum and size."""

    component: str
    file: str
    urls: tuple[str, ...]
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class Fetched:
    """A file that was fetched or existed already: its path, checksum, size and source."""

    wanted: Wanted
    path: Path
    sha256: str
    size: int
    place: str


@dataclass(frozen=True)
class Clock:
    """The clock of downloads; tests replace it."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class _Broken(Exception):
    """A source did not deliver the whole file; the message says why, ``again`` whether to retry, ``full`` whether the
    disk has no room for it."""

    def __init__(self, why: str, *, again: bool = False, full: bool = False) -> None:
        super().__init__(why)
        self.again = again
        self.full = full


def fetch_all(
    wanted: Sequence[Wanted], site: Site, store: Store, *, say: Say, clock: Clock | None = None
) -> list[Fetched]:
    """Fetch files, several at a time.

    Args:
        wanted: what is needed.
        site: proxies, authorities and credentials.
        store: where they go; files in it with the right checksum are not fetched again.
        say: progress callback, called before each file.
        clock: measures how long servers are silent.

    Raises:
        SourceError: no source has the right bytes of a file; details name component, file, URLs and checksums.
        OSError: the disk is full, or a folder cannot be written; the part file is removed then.
    """
    # Two components may need the same file: it is fetched once, from the sources of the first.
    keys = [(each.file, each.sha256 or each.urls) for each in wanted]
    once: dict[object, Wanted] = {}
    for key, each in zip(keys, wanted, strict=True):
        once.setdefault(key, each)
    sizes = [each.size for each in once.values()]
    total = None if None in sizes else sum(filter(None, sizes))
    transfer = Transfer(len(once), total)
    fetcher = _Fetcher(site, store, say, clock or Clock(), transfer)
    # One run at a time, so that two do not write the same part file.
    store.parts.mkdir(parents=True, exist_ok=True)
    with locked(store.parts), heartbeat(say, transfer.text), ThreadPoolExecutor(AT_ONCE) as pool:
        running = {key: pool.submit(fetcher.fetch, each) for key, each in once.items()}
        try:
            done = {key: each.result() for key, each in running.items()}
            return [replace(done[key], wanted=each) for key, each in zip(keys, wanted, strict=True)]
        except BaseException:
            # A failure or Ctrl-C stops the others at their next bytes.
            fetcher.stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def no_place(wanted: Wanted, tried: Sequence[tuple[str, str]], found: str | None) -> SourceError:
    """The failure of a file that cannot be fetched: every source that was tried, and why it failed."""
    what = f"with the sha256 {wanted.sha256}" if wanted.sha256 else "whole"
    rows = [f"  {place}: {why}" for place, why in tried] or ["  it has no source"]
    return SourceError(
        "\n".join([f"{wanted.component}: no source has {wanted.file} {what}", *rows]),
        remedy=remedy((wanted.file, wanted.sha256)),
        component=wanted.component,
        file=wanted.file,
        urls=[place for place, _ in tried],
        tried=[{"url": place, "why": why} for place, why in tried],
        expected=wanted.sha256,
        found=found,
    )


def digest(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Fetcher:
    """One run of downloads, and whether it was stopped."""

    def __init__(self, site: Site, store: Store, say: Say, clock: Clock, transfer: Transfer) -> None:
        self._site = site
        self._store = store
        self._say = say
        self._clock = clock
        self._transfer = transfer
        self.stop = threading.Event()

    def fetch(self, wanted: Wanted) -> Fetched:
        """A file of the store, or from the first source that has it."""
        found = self._fetch(wanted)
        self._transfer.at(wanted, found.size)
        self._transfer.finish()
        return found

    def _fetch(self, wanted: Wanted) -> Fetched:
        if wanted.sha256 is not None and (there := self._store.path(wanted.file, wanted.sha256)).is_file():
            found = digest(there)
            if found == wanted.sha256:
                return Fetched(wanted, there, found, there.stat().st_size, str(there))
            there.unlink()  # it was changed: a file in the store must match its name
        tried: list[tuple[str, str]] = []
        wrong = None
        full = False
        name = wanted.sha256 or hashlib.sha256("\n".join([wanted.file, *wanted.urls]).encode()).hexdigest()
        part = self._store.parts / f"{name[:16]}.{wanted.file}"
        for url in wanted.urls:
            self._say(f"fetching {wanted.file} for {wanted.component}")
            try:
                found, size = self._from_one_place(url, wanted, part)
            except _Broken as broken:
                tried.append((mask(url), str(broken)))
                full = full or broken.full
                continue
            if wanted.sha256 in (None, found):
                path = self._store.path(wanted.file, found)
                path.parent.mkdir(parents=True, exist_ok=True)
                part.chmod(0o644)
                part.replace(path)
                return Fetched(wanted, path, found, size, mask(url))
            wrong = found
            part.unlink(missing_ok=True)
            tried.append((mask(url), f"has the sha256 {found}"))
        if wanted.sha256 is None or full:
            part.unlink(missing_ok=True)  # nothing can resume from it
        if full:
            raise OSError(errno.ENOSPC, "; ".join(why for _, why in tried), str(part))
        raise no_place(wanted, tried, wrong)

    def _from_one_place(self, url: str, wanted: Wanted, part: Path) -> tuple[str, int]:
        """All bytes of a URL in the part file; returns their sha256 and number."""
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            # Without a checksum a change between the two halves would go unnoticed.
            begin = part.stat().st_size if wanted.sha256 is not None and part.is_file() else 0
            if wanted.size is not None and begin > wanted.size:
                begin = 0
            try:
                size = self._download(url, wanted, part, begin)
            except _Broken as broken:
                if not broken.again or last:
                    raise
                self._clock.sleep(0.5 * attempt)
                continue
            found = digest(part)
            if wanted.sha256 in (None, found) or not begin or last:
                return found, size
            part.unlink()  # an earlier run left part of another file
        raise AssertionError("the last attempt returns or raises")

    def _download(self, url: str, wanted: Wanted, part: Path, begin: int) -> int:
        """Append a URL's content after the first ``begin`` bytes to the part file; returns the total size.

        Raises:
            _Broken: the source did not deliver all of it.
            OSError: the file cannot be written.
        """
        room = begin + shutil.disk_usage(part.parent).free
        most = wanted.size if wanted.size is not None else min(LARGEST, room)
        headers = {"Range": f"bytes={begin}-"} if begin else {}
        try:
            answer = open_url(url, self._site, headers, SECONDS, largest=most, watch=self._watch)
        except FAILURES as failed:
            if begin and getattr(failed, "code", None) == 416:  # nothing after it: complete, or another file
                return begin
            raise _Broken(reason(failed)) from None
        with answer:
            begin, length = _extent(answer, begin)
            _check_size(None if length is None else begin + length, wanted, room)
            size = begin
            self._transfer.at(wanted, size)
            with _writing(part, append=bool(begin)) as write:
                while chunk := _chunk(answer, size):
                    size += len(chunk)
                    if size > most:
                        part.unlink(missing_ok=True)
                        raise _Broken(f"sends more than {most} bytes", full=most == room)
                    write(chunk)
                    self._transfer.at(wanted, size, len(chunk))
        if length is not None and size - begin != length:
            raise _Broken(f"ended after {size - begin} of {length} bytes", again=True)
        return size

    def _watch(self) -> Callable[[int], None]:
        pace = Pace(clock=self._clock.now)

        def watch(count: int) -> None:
            if self.stop.is_set():
                raise _Broken("stopped")
            pace(count)

        return watch


def _extent(answer: http.client.HTTPResponse, begin: int) -> tuple[int, int | None]:
    """The offset of a response in the file, and its length (None if it is chunked).

    Raises:
        _Broken: it is not what was requested, or a truncation could not be detected.
    """
    try:
        length = content_length(answer.headers)
    except ValueError as wrong:
        raise _Broken(str(wrong)) from None
    if length is None and not answer.chunked:
        raise _Broken("does not state its length, so truncation would go unnoticed")
    if answer.status == 206:
        ranged = answer.headers.get("Content-Range") or ""
        if not re.match(rf"bytes {begin}-", ranged, re.ASCII):
            raise _Broken("responds with a different part of the file than requested")
        return begin, length
    if answer.status != 200:
        raise _Broken(f"status {answer.status} {answer.reason}")
    return 0, length


def _check_size(size: int | None, wanted: Wanted, room: int) -> None:
    """Refuse a response that cannot be the file before it is read."""
    if size is None:
        return
    if wanted.size is not None and size != wanted.size:
        raise _Broken(f"has {size} bytes, expected {wanted.size}")
    if size > LARGEST:
        raise _Broken(f"claims {size} bytes, more than any file of an image")
    if size > room:
        raise _Broken(f"has {size} bytes, and the disk has room for {room}", full=True)


def _chunk(answer: http.client.HTTPResponse, size: int) -> bytes:
    try:
        return answer.read(CHUNK)
    except (TooLarge, TooSlow) as hopeless:
        raise _Broken(f"{hopeless}, after {size} bytes") from None
    except FAILURES as failed:
        raise _Broken(f"{reason(failed)} after {size} bytes", again=True) from None


@contextlib.contextmanager
def _writing(part: Path, *, append: bool) -> Iterator[Callable[[bytes], object]]:
    """A part file open for writing; removed if the disk is full, to free the space."""
    try:
        with part.open("ab" if append else "wb") as out:
            yield out.write
    except OSError as refused:
        if refused.errno in (errno.ENOSPC, errno.EDQUOT):
            part.unlink(missing_ok=True)
            # Errors of buffered writes have no file name, but users need to know which disk is full.
            raise OSError(refused.errno, refused.strerror, str(part)) from None
        raise
