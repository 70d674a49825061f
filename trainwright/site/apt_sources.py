"""The mirror of Debian's archive that this machine's apt uses, if it is not the distribution's default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

# The suite of Debian's archive for each base operating system.
DEBIAN_SUITES = {"debian-11": "bullseye", "debian-12": "bookworm", "debian-13": "trixie"}
APT = Path("/etc/apt")
_LINE = re.compile(r"^deb\s+(?:\[[^]]*\]\s*)?(\S+)\s+(\S+)\s+(.+)$", re.MULTILINE)
_OFF = ("no", "false", "without", "off", "disable", "0")  # apt-pkg/contrib/strutl.cc, StringToBool
_RELEASE = re.compile(r"^([a-z]+)(-updates|-security)?$")


def machine_mirrors(folder: Path = APT) -> tuple[str | None, str | None]:
    """The mirrors of the archive and of its security suite; ``None`` if apt uses the distribution's own hosts.

    Only a source with both a release and its ``-updates`` counts as a mirror of the archive: repositories of other
    vendors use the release's name as well.

    Args:
        folder: apt's configuration.
    """
    entries = [entry for entry in _entries(folder) if entry[0].startswith(("http://", "https://"))]
    served: dict[str, set[str]] = {}
    for url, suite, areas in entries:
        if "main" in areas and _RELEASE.match(suite):
            served.setdefault(url.rstrip("/"), set()).add(suite)
    archives = [url for url, suites in served.items() if any(f"{suite}-updates" in suites for suite in suites)]
    if not archives or any(map(_is_default, archives)):
        return None, None
    security = [url for url, suites in served.items() if any(suite.endswith("-security") for suite in suites)]
    return archives[0], next(iter(security), None)


def _is_default(url: str) -> bool:
    """Whether a host belongs to the distribution, including its official mirrors: its domain is ``debian``."""
    labels = (urlsplit(url).hostname or "").split(".")
    return len(labels) > 1 and labels[-2] == "debian"


def _entries(folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """URL, suite and areas of every binary source of this machine."""
    for path in (folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))):
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        yield from read_entries(path.name, text)


def read_entries(name: str, text: str) -> Iterator[tuple[str, str, list[str]]]:
    """URL, suite and areas of every binary source in a file, in the one of apt's formats that its name says."""
    if name.endswith(".list"):
        yield from ((url, suite, areas.split()) for url, suite, areas in _LINE.findall(text))
    elif name.endswith(".sources"):
        # Comments may stand in a field, and a line that begins with a space goes on with it (deb822(5)).
        kept = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        for block in re.split(r"\n\s*\n", kept):
            rows = (line.partition(":") for line in re.sub(r"\n[ \t]+", " ", block).splitlines())
            fields = {key.strip().lower(): value.split() for key, _, value in rows}
            switched = " ".join(fields.get("enabled", [])).lower()
            if "deb" in fields.get("types", []) and switched not in _OFF:
                for url in fields.get("uris", []):
                    yield from ((url, suite, fields.get("components", [])) for suite in fields.get("suites", []))
