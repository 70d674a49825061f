"""The places that a site names, on the web or on this machine; checks those on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainwright.core.data_files import read_bytes
from trainwright.core.errors import RequestError
from trainwright.core.fields import local_path

FOLDERS = {"local_indexes", "find_links", "artifact_folder", "image_folder", "apt_folder", "locks", "vulnerabilities"}
FILES = {"ca_bundle", "netrc", "allowed_vulnerabilities"}


def expanded(folder: Path, place: str) -> Path:
    """A path relative to a folder, with ``~`` expanded; an unknown ``~user`` stays as it is."""
    return folder / os.path.expanduser(place)  # noqa: PTH111 - pathlib raises RuntimeError for an unknown user


def sort_places(data: Mapping[str, Any], where: Callable[[str], str]) -> dict[str, Any]:
    """Move the local places of ``index_url``, ``extra_index_urls``, ``find_links`` and ``artifact_mirror`` to separate
    keys.

    Args:
        data: by the keys of a site file.
        where: returns where a key was set.

    Raises:
        RequestError: a place is neither local nor on the web.
    """
    paths: dict[str, list[str | None]] = {}
    for key in ("index_url", "extra_index_urls", "find_links", "artifact_mirror"):
        try:
            paths[key] = [local_path(one) for one in many(data.get(key))]
        except ValueError as wrong:
            raise RequestError(f"{where(key)}: {key}: {wrong}", remedy="See docs/site.md.") from None
    placed = dict(data)
    local = list(data.get("local_indexes", []))
    if here := [path for path in paths["index_url"] if path is not None]:
        placed |= {"index_url": None, "no_index": not data.get("extra_index_urls")}  # pip uses no default index either
        local += here
    for key, urls in (("extra_index_urls", "extra_index_urls"), ("find_links", "find_links_urls")):
        if key in data:
            remote = [one for one, path in zip(data[key], paths[key], strict=True) if path is None]
            here = [path for path in paths[key] if path is not None]
            placed |= {key: here, urls: remote + data.get(urls, [])} if key == "find_links" else {key: remote}
            local += here if key == "extra_index_urls" else []
    if here := [path for path in paths["artifact_mirror"] if path is not None]:
        placed |= {"artifact_mirror": None, "artifact_folder": here[0]}
    return placed | ({"local_indexes": local} if local else {})


def many(value: Any) -> list[str]:
    """The entries of a key that has one value or a list."""
    return list(value) if isinstance(value, list) else [value] if value else []


def on_the_web(value: object) -> object:
    """The value of a key without its local places, for validation."""
    if isinstance(value, list):
        return [one for one in value if on_the_web(one) is not None]
    return None if isinstance(value, str) and value and not value.startswith(("http://", "https://")) else value


def check_place(key: str, path: Path, where: str) -> None:
    """Check a folder or file that a site file names."""
    if not path.exists():
        if key != "locks":  # created with the first lock
            raise RequestError(f"{where}: {path} does not exist")
    elif key in FOLDERS and not path.is_dir():
        raise RequestError(f"{where}: {path} is not a directory")
    elif key in FILES and not path.is_file():
        raise RequestError(f"{where}: {path} is not a file")
    elif key == "ca_bundle":
        check_bundle(path, where)


def check_bundle(path: Path, where: str) -> None:
    """Refuse a file without certificates, which curl, pip and uv would each report later in their own words."""
    if not re.search(rb"-----BEGIN (TRUSTED )?CERTIFICATE-----", read_bytes(path)):
        raise RequestError(
            f"{where}: {path} contains no certificate",
            remedy="Name a file of certificates in PEM format (BEGIN CERTIFICATE).",
        )


def where_of(path: Path, text: str, *keys: str) -> str:
    """``file:line`` of a key; of nested keys, the last one counts."""
    for key in reversed(keys):
        line = rf"^[ \t\[]*([A-Za-z0-9_.-]+\.)?[\"']?{re.escape(key)}[\"']?\s*[\].=]"
        if match := re.search(line, text, re.MULTILINE):
            return f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
    return str(path)
