"""The kinds of text that data files hold, each with what it may be made of.

What they hold goes on into Dockerfiles, requirements files, pip.conf, apt's lists and shells. So a version is made of
the characters of versions, and a line holds nothing that a terminal or a line-based format takes for more than text.
pydantic matches these patterns in linear time; they name ASCII characters alone all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Annotated, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field

from trainwright.core.text import LONGEST_VALUE, trouble

# Flags and files alike: 2.6.0, 2.13.0+cpu, 2.8.3-1, a git revision that begins with a digit.
VERSION = r"[0-9][0-9A-Za-z.+_-]{0,63}"
_PACKAGE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_EXTRAS = r"(\[[A-Za-z0-9._,-]{0,127}\])?"
_BOUND = r" ?(===?|!=|<=|>=|<|>|~=) ?[0-9A-Za-z.*+!_-]{1,64}"


def url_trouble(text: str) -> str:
    """Why a text is not the address of something on the web, in a few words; empty where it is one."""
    if len(text) > LONGEST_VALUE or not text.isprintable():
        return trouble(text) or "holds a character that is not printed"
    if not text.startswith(("http://", "https://")):
        return "is not an http:// or https:// address"
    if not text.isascii() or set(text) & set(" \"'\\`<>"):
        return "holds a character that a URL spells with %"
    try:
        parts = urlsplit(text)
        return "names no host" if not parts.hostname or parts.port == 0 else ""
    except ValueError as wrong:
        return f"is not a URL: {wrong}"


T = TypeVar("T")


def each_once(key: Callable[[T], Hashable], what: str) -> Callable[[Iterable[T] | None], Iterable[T] | None]:
    """A check that no two rows of a list have the same key; ``what`` is what a row is called."""

    def check(rows: Iterable[T] | None) -> Iterable[T] | None:
        seen: set[Hashable] = set()
        for row in rows or ():
            if key(row) in seen:
                raise ValueError(f"{what} {key(row)} is there twice")
            seen.add(key(row))
        return rows

    return check


def _line(text: str) -> str:
    # What is printable is no trouble; this is asked of every value of the catalog at every start.
    if (len(text) > LONGEST_VALUE or not text.isprintable()) and (found := trouble(text)):
        raise ValueError(found)
    return text


def _prose(text: str) -> str:
    if not text.isprintable() and (found := trouble(text, lines=True, limit=20_000)):
        raise ValueError(found)
    return text


def _url(text: str) -> str:
    if found := url_trouble(text):
        raise ValueError(found)
    return text


def _inert(text: str) -> str:
    """An address that stands in a Dockerfile: ``$`` is a variable there."""
    if "$" in text:
        raise ValueError("holds a $, which a URL spells %24")
    return _url(text)


def local_path(place: str) -> str | None:
    """The path that a place names by itself or in a ``file:`` address; ``None`` for an address on the web.

    Raises:
        ValueError: it is neither.
    """
    if place.startswith(("http://", "https://")):
        return None
    if found := trouble(place):
        raise ValueError(found)
    if not place.startswith("file:"):
        if "://" in place:
            raise ValueError("is neither an http:// or https:// address nor a folder")
        return place
    parts = urlsplit(place)  # ValueError: [ opens an IPv6 address that nothing closes
    if parts.netloc not in ("", "localhost"):
        raise ValueError("names a host: file:///folder has three slashes")
    return unquote(parts.path)


OneLine = Annotated[str, AfterValidator(_line)]  # one line
Prose = Annotated[str, AfterValidator(_prose)]  # lines for people to read
Url = Annotated[str, AfterValidator(_inert)]
SiteUrl = Annotated[str, AfterValidator(_url)]  # may hold a password, stays out of Dockerfiles
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]  # of a component, framework, provider
VersionText = Annotated[str, Field(pattern=rf"^{VERSION}$")]
AnyVersion = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+!_-]{0,127}$")]  # a wheel's too
Python = Annotated[str, Field(pattern=r"^[0-9]\.[0-9]{1,2}$")]
Cuda = Annotated[str, Field(pattern=r"^(cpu|[0-9]{1,2}\.[0-9]{1,2})$")]
Capability = Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]$")]  # of a GPU
Os = Annotated[str, Field(pattern=r"^[a-z]{1,32}-[0-9.]{1,16}$")]
Day = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
PackageName = Annotated[str, Field(pattern=rf"^{_PACKAGE}$")]
Pin = Annotated[str, Field(pattern=rf"^{_PACKAGE}{_EXTRAS}==[0-9A-Za-z.*+!_-]{{1,64}}$")]
Constraint = Annotated[str, Field(pattern=rf"^{_PACKAGE}{_BOUND}(,{_BOUND}){{0,8}}$")]
Platform = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,32}-manylinux_2_[0-9]{1,3}$")]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+~-]{0,254}$")]
PythonFile = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+~-]{0,246}\.(whl|tar\.gz|tar\.bz2|zip)$")]
FilledFileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9{][A-Za-z0-9._+~{}-]{0,254}$")]  # {version} to be filled in
SystemName = Annotated[str, Field(pattern=r"^[A-Za-z0-9{][A-Za-z0-9._+{}-]{0,127}$")]  # Debian's, Amazon's
SystemVersion = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+:~^_-]{0,127}$")]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Folder = Annotated[str, Field(pattern=r"^/[A-Za-z0-9._+/{}-]{0,255}$")]
Reference = Annotated[str, Field(pattern=r"^[a-z0-9][A-Za-z0-9._/:@-]{0,511}$")]  # of an image
# A registry, or the beginning of the names of its repositories.
HostPort = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,252}(:[0-9]{1,5})?(/[a-z0-9][A-Za-z0-9_.-]{0,254}){0,16}$")
]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
