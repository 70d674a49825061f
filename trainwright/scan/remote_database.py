"""OSV's files at a web address: those of its export, or of a mirror with the same layout."""

from __future__ import annotations

import hashlib
import urllib.error
from pathlib import Path
from urllib.parse import quote

from trainwright.core.errors import SourceError
from trainwright.core.masking import mask
from trainwright.core.owned import write_atomically
from trainwright.core.paths import cache_dir, locked
from trainwright.core.say import Say
from trainwright.site.site import Site
from trainwright.site.web import FAILURES, content_length, open_url, reason

SECONDS = 30.0  # timeout of each wait on the server
LARGEST = 2 << 30  # bytes of an ecosystem's zip
_PIECE = 1 << 20
_UNCHANGED = 304


class RemoteDatabase:
    """The files of each ecosystem, copied into this user's cache when they are asked for, once in a process.

    Args:
        url: ``<url>/<ecosystem>/all.zip`` are the files.
        site: proxies, authorities and credentials.
        say: progress callback.
    """

    def __init__(self, url: str, site: Site, *, say: Say) -> None:
        self._url, self._site, self._say = url.rstrip("/"), site, say
        # The address may hold a password.
        self._folder = cache_dir() / "osv" / hashlib.sha256(self._url.encode()).hexdigest()[:16]
        self._there: set[str] = set()

    def folder(self, ecosystem: str) -> Path:
        """A database on this machine that has an ecosystem as it is at the address now.

        Raises:
            SourceError: the address does not answer, or the file is cut off. A copy from before is not used instead.
        """
        if ecosystem not in self._there:
            path = self._folder / ecosystem / "all.zip"
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.with_name("lock")):
                self._fetch(f"{self._url}/{quote(ecosystem, safe=':')}/all.zip", path)
            self._there.add(ecosystem)
        return self._folder

    def _fetch(self, url: str, path: Path) -> None:
        noted, part = path.with_name("etag"), path.with_name("part")
        mark = noted.read_text() if noted.is_file() and path.is_file() else ""
        try:
            with open_url(url, self._site, {"If-None-Match": mark} if mark else {}, SECONDS, largest=LARGEST) as answer:
                self._say(f"fetching {mask(url)}")
                with part.open("wb") as file:
                    while piece := answer.read(_PIECE):
                        file.write(piece)
                if part.stat().st_size < (content_length(answer.headers) or 0):
                    raise OSError("its answer is cut off")
                noted.unlink(missing_ok=True)  # it is not that of the file until the file is there
                part.replace(path)
                write_atomically(noted, answer.headers.get("ETag") or "")
        except FAILURES as failed:
            if isinstance(failed, urllib.error.HTTPError):
                failed.close()
                if failed.code == _UNCHANGED:
                    return
            part.unlink(missing_ok=True)
            raise SourceError(
                f"vulnerability database: {mask(url)}: {reason(failed)}",
                remedy="Name a mirror of OSV's files that answers, or a folder with them: --database (docs/scan.md)",
                file=path.name,
                urls=[mask(url)],
            ) from None
