"""Removes secrets from every text that people or logs see.

Passwords are known by their place in an address. A token in the path of an index or a mirror looks like any other
path, so the addresses that this machine is configured with are remembered (:func:`remember`), and what is secret in
them is masked wherever it appears: in our own messages, in the output of uv, pip, apt, curl and BuildKit, raw or
percent-encoded. Addresses of the catalog are public and stay as they are.
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlsplit

T = TypeVar("T")
STARS = "***"
CUT = "/…"  # stands for the path of an address of the site
SHORTEST = 6  # characters; a shorter word is masked inside of addresses alone, as it may be part of any text

# Words that paths of indexes and mirrors are made of; a path of nothing else is shown.
_USUAL = frozenset(
    """
    +simple api apt archive archives artifactory artifacts content data debian debian-security dists dl
    files group home index local main mirror mirrors mnt nexus opt packages pip pool public pypi python
    remote repo repository root security service simple srv stable tmp ubuntu usr v1 v2 var wheels whl
    work
    """.split()  # noqa: SIM905 - as words it can be read
)
_CREDENTIALS = re.compile(r"(?<=://)[^/\s\"']*@")
# user:password@host without a scheme, as curl takes a proxy; a digest of an image (name:tag@sha256:…) is not a host.
_BARE_CREDENTIALS = re.compile(
    r"(?<![\w/.@%+~:-])[\w.%+~!$&*-]{1,128}:[^\s/@\"']{1,256}(?:@[^\s/@\"']{1,64})?@(?!sha\d+:)(?=[\w\[])"
)
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,20}://)([^\s\"'<>`\\/?#]*)([^\s\"'<>`\\?#]*)(\?[^\s\"'<>`\\#]*)?")
_PARAMETER = re.compile(
    r"([?&;][\w.%-]{0,40}(?:sig|token|secret|passw|pwd|key|auth|credential)[\w.%-]{0,40}=)[^\s\"'<>`\\&#]+",
    re.IGNORECASE,
)
_AUTHORIZATION = re.compile(
    r"(authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:(?:basic|bearer|token)\s+)?)[^\s\"',]+", re.IGNORECASE
)
_TRAILING = re.compile(r"[),.;:\]}]*\Z")


class _Place(NamedTuple):
    """An address of the site whose path is not shown: host (with its port), path, and the words of the path that may
    be secret."""

    host: str
    path: str
    words: frozenset[str]


_places: set[_Place] = set()
_logins: set[str] = set()
_words: set[str] = set()


def remember(*addresses: str | None) -> None:
    """Take note of addresses of this machine's configuration: indexes, mirrors, proxies (with or without a scheme).

    Args:
        addresses: as they were configured, credentials included; nothing is passed over.
    """
    for address in filter(None, addresses):
        _remember(address)
    _literals.cache_clear()
    _paths.cache_clear()


def forget() -> None:
    """Know no address any more; for tests."""
    for known in (_places, _logins, _words):
        known.clear()
    remember()


def mask(text: str) -> str:
    """``text`` without secrets: every user and password of an address, every query, the paths of remembered addresses
    (``https://host/…``), and whatever else is secret in those."""
    text = without_credentials(text)
    text = _ADDRESS.sub(_shown, text)
    text = _AUTHORIZATION.sub(rf"\1{STARS}", _PARAMETER.sub(rf"\1{STARS}", text))
    if (paths := _paths()) is not None:
        text = paths.sub(CUT, text)
    if (literals := _literals()) is not None:
        text = literals.sub(STARS, text)
    return text


def masked(value: T) -> T:
    """The same for every text in a value of JSON: mappings, lists, tuples."""
    return _masked(value)  # type: ignore[no-any-return]


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {_masked(key): _masked(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_masked(each) for each in value) if type(value) in (list, tuple) else value
    return value


def without_credentials(text: str) -> str:
    """``text`` with user and password of every address replaced by stars, and nothing else: it stays an address, and
    the same one in every process."""
    return _BARE_CREDENTIALS.sub(f"{STARS}@", _CREDENTIALS.sub(f"{STARS}@", text))


def _remember(address: str) -> None:
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        port = parts.port
    except ValueError:  # no address; whoever uses it says so
        return
    login, _, _ = parts.netloc.rpartition("@")
    if login:
        for whole in (login, unquote(login)):
            _logins.add(whole)
            _words.update(_forms(base64.b64encode(whole.encode(errors="replace")).decode()))
        _words.update(_forms(parts.password or parts.username or ""))
    for pair in parts.query.split("&"):
        _words.update(_forms(pair.partition("=")[2] or pair))
    words = frozenset(word for word in parts.path.split("/") if word and unquote(word).lower() not in _USUAL)
    for word in words:
        if _looks_secret(word):
            _words.update(_forms(word))
    if words and parts.hostname:
        _places.add(_Place(_host(parts.hostname, port, parts.scheme), parts.path.rstrip("/"), words))


def _looks_secret(word: str) -> bool:
    """Whether a word of a path is hidden even where it stands alone: long, of mixed characters, not a name with a
    version."""
    if len(word) < 8 or re.fullmatch(r"[A-Za-z]+[-_.]?v?[0-9]{1,4}(?:[-_.][0-9]{1,4})*", word, re.ASCII):
        return False
    kinds = (r"[a-z]", r"[A-Z]", r"[0-9]")
    return sum(re.search(kind, word) is not None for kind in kinds) >= 2


def _forms(word: str) -> set[str]:
    """How a secret may be written: as it is, percent-encoded or not, escaped as in JSON; nothing of a short one."""
    plain = unquote(word)
    if len(plain) < SHORTEST or plain.lower() in _USUAL:
        return set()
    encoded = quote(plain, safe="", errors="replace")
    lower = re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), encoded)
    return {word, plain, encoded, lower, plain.replace("\\", "\\\\").replace('"', '\\"'), quote(encoded, safe="")}


def _host(name: str, port: int | None, scheme: str) -> str:
    return f"{name.lower()}:{port or (80 if scheme == 'http' else 443)}"


def _shown(found: re.Match[str]) -> str:
    scheme, authority, path, query = found.groups()
    end = "" if query else _TRAILING.search(path)[0]  # type: ignore[index]
    shown = scheme + authority + _shown_path(scheme, authority, path.removesuffix(end) if end else path) + end
    return f"{shown}?{STARS}" if query and len(query) > 1 else shown + (query or "")


def _shown_path(scheme: str, authority: str, path: str) -> str:
    if not path.strip("/") or path.startswith(CUT):
        return path
    named = re.match(r"\[?([^\]]*?)\]?(?::([0-9]{1,5}))?\Z", authority.rpartition("@")[2], re.ASCII)
    if named is None:
        return path
    host = _host(named[1], int(named[2]) if named[2] else None, scheme.partition(":")[0])
    here = [place for place in _places if place.host == host]
    if not here:
        return path
    # What comes behind the address itself is ours: a project, a checksum, a file.
    for place in sorted(here, key=lambda each: -len(each.path)):
        if unquote(path) == unquote(place.path) or unquote(path).startswith(f"{unquote(place.path)}/"):
            depth = place.path.count("/") + 1
            return "/".join([CUT, *path.split("/")[depth:]])
    words = {unquote(word) for place in here for word in place.words}
    last = path.rpartition("/")[2]
    return f"{CUT}/{last}" if "." in last and unquote(last) not in words else CUT


@lru_cache(maxsize=1)
def _literals() -> re.Pattern[str] | None:
    either = [rf"(?<!\w)(?:{_any_of(_logins)})(?=@)"] if _logins else []
    return re.compile("|".join([*either, _any_of(_words)] if _words else either)) if either or _words else None


def _any_of(words: set[str]) -> str:
    # Longest first: of two that begin alike, the whole has to go.
    return "|".join(map(re.escape, sorted(words, key=lambda word: (-len(word), word))))


@lru_cache(maxsize=1)
def _paths() -> re.Pattern[str] | None:
    """Paths without their host, as urllib3 writes them: ``Max retries exceeded with url: /TOKEN/simple/name/``."""
    paths = set()
    for place in _places:
        parts = place.path.split("/")
        depth = max(number for number, word in enumerate(parts) if word in place.words)
        paths.add("/".join(parts[: depth + 1]))
    forms = paths | {unquote(path) for path in paths}
    return re.compile(rf"(?<![\w./…-])(?:{_any_of(forms)})(?![\w-])") if forms else None
