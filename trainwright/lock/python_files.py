"""Where to find the locked files of Python packages: folders of the site, and addresses that an index lists.

uv is asked, with pip's indexes and credentials. Its answer is used at once and not stored, so no lock and no mirror
contains a host name.
"""

from __future__ import annotations

import contextlib
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainwright.catalog.tools import PLATFORM, load_tools
from trainwright.catalog.wheel_lock import LockedPackage
from trainwright.core.errors import Conflict, SourceError
from trainwright.lock.wheels import compile_pins, file_name
from trainwright.site.site import Site


def addresses(
    packages: Iterable[LockedPackage], python: str, platform: str, site: Site, indexes: Sequence[str] = ()
) -> dict[str, str]:
    """The URL of each file that an index (or a folder of the site) offers with the locked checksum, by file name.

    Args:
        packages: of a lock.
        python: version of the image's Python.
        platform: of the lock.
        site: whose indexes are asked.
        indexes: of the image line, asked only if the site's own do not have everything.

    Raises:
        SourceError: no index answers.
    """
    wanted = {package.file: package for package in packages}
    found = _ask(list(wanted.values()), python, platform, site)
    alone = {"extra_index_urls": (), "local_indexes": (), "find_links": (), "find_links_urls": ()}
    # If several indexes have a version, uv takes the files of one, which may mirror only some.
    for index in dict.fromkeys([site.index_url, *site.extra_index_urls, *indexes]):
        missing = [package for file, package in wanted.items() if file not in found]
        if missing and not site.no_index:
            with contextlib.suppress(SourceError):  # a file that is missing in the end is reported by name
                found |= _ask(missing, python, platform, site.replace(**alone, index_url=index))
    return found


def tool_addresses(packages: Iterable[LockedPackage], python: str, site: Site) -> dict[str, str]:
    """The addresses of the files of build tools; see :func:`addresses`.

    uv runs with any Python, but its metadata requires a newer one than old images have.

    Raises:
        SourceError: no index answers.
    """
    tools = tuple(packages)
    found = addresses(tools, python, PLATFORM, site)
    others = [package for package in tools if package.file not in found]
    return found | (addresses(others, load_tools().uv.python, PLATFORM, site) if others else {})


def _ask(packages: list[LockedPackage], python: str, platform: str, site: Site) -> dict[str, str]:
    """One query; if a package in it is not available at all, it is split into two of half the size."""
    if not packages:
        return {}
    pins = {p.name: p.version for p in packages}
    with tempfile.TemporaryDirectory(prefix="trainwright-lock-") as name:
        folder = Path(name)
        try:
            answer = compile_pins(pins, python, platform, site=site, folder=folder)
        except Conflict:
            if len(packages) == 1:
                return {}
            half = len(packages) // 2
            return _ask(packages[:half], python, platform, site) | _ask(packages[half:], python, platform, site)
        found = {}
        by_file = {p.file: p for p in packages}
        for package in tomllib.loads(answer).get("packages", ()):
            for entry in (*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])):
                wanted = by_file.get(file_name(entry))
                named = entry.get("hashes", {}).get("sha256")
                if wanted is not None and named in (None, wanted.sha256):
                    found[wanted.file] = entry.get("url") or (folder / entry["path"]).resolve().as_uri()
        return found


def local_path(address: str) -> Path | None:
    """The path of a URL that is a file of this machine."""
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
