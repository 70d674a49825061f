"""The types of text in data files, each with its valid characters.

The values go into Dockerfiles, requirements files, pip.conf, apt's lists and shells. So a version has only the
characters of versions, and a line has nothing that a terminal or a line-based format would interpret. The patterns name
only ASCII characters, and leave one way to match a text, so that none takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, TypeVar
from urllib.parse import unquote, urlsplit

from msgspec import Meta

from trainwright.core.checked import Checked
from trainwright.core.text import LONGEST_VALUE, trouble

# Flags and files alike: 2.6.0, 2.13.0+cpu, 2.8.3-1, a git revision that begins with a digit.
VERSION = r"[0-9][0-9A-Za-z.+_-]{0,63}"
PACKAGE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_EXTRAS = r"(\[[A-Za-z0-9._,-]{0,127}\])?"
_BOUND = r" ?(===?|!=|<=|>=|<|>|~=) ?[0-9A-Za-z.*+!_-]{1,64}"


def url_trouble(text: str) -> str:
    """Why a text is not an http(s) address, in a few words; empty if it is one."""
    if len(text) > LONGEST_VALUE or not text.isprintable():
        return trouble(text) or "contains a character that is not printable"
    if not text.startswith(("http://", "https://")):
        return "is not an http:// or https:// address"
    if not text.isascii() or set(text) & set(" \"'\\`<>"):
        return "contains a character that a URL must escape with %"
    try:
        parts = urlsplit(text)
        return "names no host" if not parts.hostname or parts.port == 0 else ""
    except ValueError as wrong:
        return f"is not a URL: {wrong}"


T = TypeVar("T")


FORMS: dict[str, str] = {}  # what a pattern asks for, in words


def form(pattern: str, words: str = "") -> Meta:
    """What a text must match, from ``^`` to ``$``, which Python takes for the end of a last line, too.

    Args:
        words: what that is, for people: a text that does not match must be this.
    """
    whole = pattern.removesuffix("$") + r"\Z"
    if words:
        FORMS[whole] = words
    return Meta(pattern=whole)


def each_once(key: Callable[[T], Hashable], what: str) -> Callable[[Sequence[T]], Sequence[T]]:
    """A validator that no two rows of a list have the same key; ``what`` names a row in messages."""

    def check(rows: Sequence[T]) -> Sequence[T]:
        seen: set[Hashable] = set()
        for row in rows:
            if key(row) in seen:
                raise ValueError(f"duplicate {what} {key(row)}")
            seen.add(key(row))
        return rows

    return check


def _line(text: str) -> str:
    # Printable text is valid. This fast path matters: every value of the catalog is checked at every start.
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
    """An address for a Dockerfile, where ``$`` starts a variable."""
    if "$" in text:
        raise ValueError("contains a $, which a URL must escape as %24")
    return _url(text)


def local_path(place: str) -> str | None:
    """The path of a place, given as a path or as a ``file:`` address; ``None`` for an http(s) address.

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
    parts = urlsplit(place)  # ValueError: an unclosed [ of an IPv6 address
    if parts.netloc not in ("", "localhost"):
        raise ValueError("names a host: file:///folder has three slashes")
    return unquote(parts.path)


OneLine = Checked[str, _line]  # one line
Prose = Checked[str, _prose]  # lines for people to read
Statement = Checked[Annotated[str, Meta(min_length=1)], _prose]
Url = Checked[str, _inert]
SiteUrl = Checked[str, _url]  # may contain a password; never in Dockerfiles
Name = Annotated[
    str, form(r"^[a-z0-9][a-z0-9_-]{0,63}$", "a name of lower-case letters, digits, - and _")
]  # of a component, framework, provider
VersionText = Annotated[str, form(rf"^{VERSION}$", "a version, such as 2.13.0")]
AnyVersion = Annotated[
    str, form(r"^[0-9A-Za-z][0-9A-Za-z.+!_-]{0,127}$", "a version, such as 2.13.0+cu126")
]  # a wheel's too
OptionalVersion = Annotated[str, form(r"^([0-9A-Za-z][0-9A-Za-z.+!_-]{0,127})?$")]
Python = Annotated[str, form(r"^[0-9]\.[0-9]{1,2}$", "a version of Python in two numbers, such as 3.11")]
Cuda = Annotated[str, form(r"^(cpu|[0-9]{1,2}\.[0-9]{1,2})$", "cpu, or a version of CUDA in two numbers, such as 12.4")]
Capability = Annotated[str, form(r"^[0-9]{1,2}\.[0-9]$", "a compute capability, such as 8.0")]  # of a GPU
Os = Annotated[str, form(r"^[a-z]{1,32}-[0-9.]{1,16}$", "a distribution and its version, such as debian-12")]
Day = Annotated[str, form(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "a day, such as 2026-11-29")]
Stamp = Annotated[str, form(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\+00:00$")]
PackageName = Annotated[str, form(rf"^{PACKAGE}$")]
Pin = Annotated[
    str,
    form(rf"^{PACKAGE}{_EXTRAS}==[0-9A-Za-z.*+!_-]{{1,64}}$", "a package and one version of it, such as torch==2.13.0"),
]
Constraint = Annotated[
    str, form(rf"^{PACKAGE}{_BOUND}(,{_BOUND}){{0,8}}$", "a package and its bounds, such as numpy>=1.26,<3")
]
Requirement = Annotated[
    str, form(rf"^{PACKAGE}({_BOUND}(,{_BOUND}){{0,8}})?$", "a package, with bounds or without, such as numpy<3")
]
Platform = Annotated[
    str, form(r"^[a-z0-9_]{1,32}-manylinux_2_[0-9]{1,3}$", "a platform of wheels, such as x86_64-manylinux_2_28")
]
FileName = Annotated[str, form(r"^[A-Za-z0-9][A-Za-z0-9._+~-]{0,254}$")]
PythonFile = Annotated[str, form(r"^[A-Za-z0-9][A-Za-z0-9._+~-]{0,246}\.(whl|tar\.gz|tar\.bz2|zip)$")]
FilledFileName = Annotated[str, form(r"^[A-Za-z0-9{][A-Za-z0-9._+~{}-]{0,254}$")]  # {version} to be filled in
SystemName = Annotated[str, form(r"^[A-Za-z0-9{][A-Za-z0-9._+{}-]{0,127}$")]  # Debian's, Amazon's
SystemVersion = Annotated[str, form(r"^[0-9A-Za-z][0-9A-Za-z.+:~^_-]{0,127}$")]
VariableName = Annotated[str, form(r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Folder = Annotated[str, form(r"^/[A-Za-z0-9._+/{}-]{0,255}$")]
Reference = Annotated[str, form(r"^[a-z0-9][A-Za-z0-9._/:@-]{0,511}$")]  # of an image
# A registry, or the beginning of the names of its repositories.
HostPort = Annotated[str, form(r"^[a-z0-9][a-z0-9.-]{0,252}(:[0-9]{1,5})?(/[a-z0-9][A-Za-z0-9_.-]{0,254}){0,16}$")]
Sha256 = Annotated[str, form(r"^[0-9a-f]{64}$", "a sha256: 64 digits from 0 to f")]
Digest = Annotated[str, form(r"^sha256:[0-9a-f]{64}$", "a digest: sha256: and 64 digits from 0 to f")]
