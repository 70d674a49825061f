"""What a distribution's archive has today of the packages of an image: read from its indexes, without an engine.

An index over http is not checked against a signature, as it only decides whether a line is built again; the build
itself lets apt check what it installs.
"""

from __future__ import annotations

import gzip
import io
import lzma
import urllib.error
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from trainwright.build.store import BuildRecord
from trainwright.catalog.platforms import PLATFORMS
from trainwright.core.masking import mask
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import PlanLock
from trainwright.plan.render import system_packages
from trainwright.scan.debian_version import debian_key
from trainwright.site.apt_sources import read_entries
from trainwright.site.site import Site
from trainwright.site.web import FAILURES, open_url, reason

SECONDS = 30.0  # timeout of each wait on an archive
LARGEST = 256 << 20  # bytes of an index; that of a release's main area has some 10 MB
_BACKPORTS = "-backports"  # suites from which apt takes only what is asked for by name
_NOT_FOUND = 404


@dataclass(frozen=True)
class NewerPackage:
    """A package of an image of which the archive has a newer version."""

    name: str
    held: str
    now: str

    def __str__(self) -> str:
        return f"{self.name} {self.held} → {self.now}"


def renewed(plan: Plan, lock: PlanLock | None, record: BuildRecord) -> Mapping[str, str]:
    """The packages of an image, with versions, of which another build of its line installs the newest version.

    Args:
        plan: that the line has today.
        lock: of the plan; if it has the distribution's packages, a build installs those.
        record: of the image.
    """
    if plan.base.family != "apt" or (lock is not None and lock.system is not None):
        return {}
    held: Mapping[str, str] = record.probe.get("packages", {})
    if plan.base.image is None:
        return held
    # A build leaves the other packages of a base image as they are.
    return {name: held[name] for name in system_packages(plan, "run") if name in held}


class Archives:
    """Indexes of distributions, each of which is read once.

    Args:
        site: its mirror, proxies, authorities and credentials.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._known: dict[str, Mapping[str, str] | str] = {}

    def newer(self, record: BuildRecord, packages: Mapping[str, str]) -> tuple[list[NewerPackage], list[str]]:
        """The packages of which the archive of an image has newer versions, and in words what could not be asked.

        Args:
            record: of the image; it names the archive's addresses, unless the site has a mirror.
            packages: versions by name.
        """
        if self._site.apt_folder is not None:  # it has what a build installs, and nothing newer
            return [], []
        places = list(self._places(record))
        if not places:
            return [], [f"the record of this image does not name the archive of {record.plan.base.os}: build it again"]
        newest: dict[str, str] = {}
        unknown = []
        for url in places:
            found = self._index(url)
            if isinstance(found, str):
                unknown.append(found)
                continue
            for name in packages:
                if name in found and (name not in newest or _is_newer(found[name], newest[name])):
                    newest[name] = found[name]
        rows = [NewerPackage(name, held, newest[name]) for name, held in packages.items() if name in newest]
        return [row for row in rows if _is_newer(row.now, row.held)], unknown

    def _places(self, record: BuildRecord) -> Iterator[str]:
        """The addresses of the indexes that a build of the image reads, without what follows the name ``Packages``."""
        plan = record.plan
        if own := self._site.image_sources(plan.base.os):
            files: Mapping[str, str] = {"site.list": own}
        else:
            files = record.probe.get("apt_sources", {})
        architecture = PLATFORMS[plan.platform].debian
        for name, text in files.items():
            for url, suite, areas in read_entries(name, text):
                if url.startswith(("http://", "https://")) and not suite.endswith((_BACKPORTS, "/")):
                    for area in areas:
                        yield f"{url.rstrip('/')}/dists/{suite}/{area}/binary-{architecture}/Packages"

    def _index(self, url: str) -> Mapping[str, str] | str:
        if url not in self._known:
            try:
                self._known[url] = _newest(self._lines(url))
            except (*FAILURES, EOFError, lzma.LZMAError) as failed:
                self._known[url] = f"{mask(url)}: {reason(failed)}"
        return self._known[url]

    def _lines(self, url: str) -> Iterator[str]:
        try:
            content, zipped = self._read(f"{url}.xz"), False
        except urllib.error.HTTPError as refused:
            refused.close()
            if refused.code != _NOT_FOUND:
                raise
            content, zipped = self._read(f"{url}.gz"), True
        file = io.BytesIO(content)
        with (
            gzip.GzipFile(fileobj=file) if zipped else lzma.LZMAFile(file) as packed,
            io.TextIOWrapper(packed, encoding="utf-8", errors="replace") as text,
        ):
            yield from text

    def _read(self, url: str) -> bytes:
        with open_url(url, self._site, {}, SECONDS, largest=LARGEST) as answer:
            return answer.read()


def _newest(lines: Iterable[str]) -> dict[str, str]:
    """The newest version of each package of an index."""
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        if line.startswith("Package:"):
            name = line.partition(":")[2].strip()
        elif line.startswith("Version:"):
            version = line.partition(":")[2].strip()
            if name not in found or _is_newer(version, found[name]):
                found[name] = version
    return found


def _is_newer(one: str, other: str) -> bool:
    """Whether a version comes after another; not if either is not one of Debian's."""
    try:
        return debian_key(one) > debian_key(other)
    except ValueError:
        return False
