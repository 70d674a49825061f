"""The requirements file of ``--with-requirements``, read before anything is built.

Only requirements enter the image. The site decides where packages come from, and other files are not in the build
context; so options that refer to either are refused, with the line and a remedy. The build context gets the parsed
requirements, without comments.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from trainwright.core.errors import RequestError
from trainwright.core.text import trouble

_MOST_BYTES = 5_000_000
_FLAT = "Put its packages into this file: `uv pip compile FILE` or `pip freeze` writes a file that needs no other."
_SITE = "Name the index in the site file (trainwright.toml: index_url, extra_index_urls) and its password in ~/.netrc."
_NETRC = "Move the password to ~/.netrc: builds get that as a secret, so it is not stored in a layer."
_LINKS = "Name the folder in the site file (trainwright.toml: find_links), or the page (find_links_urls)."
_WHEEL = "Build a wheel of it, and name the wheel's folder in the site file (trainwright.toml: find_links)."
# Options of pip (reference, "Requirements File Format") by what to do instead.
_REFUSED = {
    ("-r", "--requirement"): ("reads another file, which a build cannot do", _FLAT),
    ("-c", "--constraint"): ("reads another file, which a build cannot do", _FLAT),
    ("-e", "--editable"): ("installs a folder of this machine, which a build cannot read", _WHEEL),
    ("-i", "--index-url", "--extra-index-url"): ("says where packages come from", _SITE),
    ("--pypi-url", "--no-index"): ("says where packages come from", _SITE),
    ("-f", "--find-links"): (
        "says where packages come from",
        _LINKS,
    ),
    ("--trusted-host",): ("disables certificate checks", "Name the authority in the site file (ca_bundle)."),
    ("--pre",): ("is not supported by uv here", "Ask for the pre-release by its version: NAME>=2.0rc1."),
}
# uv reads these in a file. `--prefer-binary` is what it does anyway, and `--require-hashes` follows from the hashes.
_PASSED = ("--no-binary", "--only-binary")
_IDLE = ("--prefer-binary", "--require-hashes")
_HASH = re.compile(r"\s--hash(?:=|\s+)(\S+)")
_DIGEST = re.compile(r"(?:sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}|md5:[0-9a-f]{32})", re.I)
_SIGNED = re.compile(r"token|secret|passw|credential|api_?key|^sig$|signature|^auth$", re.I)
_USER = re.compile(r"://[^/\s]*@")
_VCS = re.compile(r"(?:git|hg|svn|bzr)(?:\+|:)", re.I)


def read_requirements(path: Path, what: str, *, git: bool = False) -> list[str]:
    """The requirements of a file, each on one line, as uv reads them, without comments.

    Args:
        path: the file.
        what: how messages name it.
        git: whether the image has git to fetch a requirement with.

    Raises:
        RequestError: the file cannot be read, or a line is not allowed in an image; the message has its number.
    """
    text = requirements_text(path, what)
    found = []
    for number, line in logical_lines(text):
        found += read_line(line, f"{what}:{number}", git=git)
    return found


def read_line(line: str, where: str, *, git: bool) -> list[str]:
    """The requirements of one line; ``where`` is what an error names.

    Raises:
        RequestError: it is not allowed in an image.
    """
    try:
        return _requirement(line, git=git)
    except _Refused as refused:
        raise RequestError(f"{where}: {_USER.sub('://…@', refused.why)}", remedy=refused.remedy) from None


def required_names(lines: Iterable[str]) -> list[str]:
    """The normalised names of packages that an index is asked for, in order: of requirements without an address.

    Args:
        lines: as :func:`read_requirements` returns them.
    """
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    found: list[str] = []
    for line in lines:
        with suppress(InvalidRequirement):  # an option, or the URL of an archive
            asked = Requirement(_HASH.sub("", line))
            found += [canonicalize_name(asked.name)] if asked.url is None else []
    return found


def required_pins(lines: Iterable[str], python: str, machine: str = "x86_64") -> dict[str, str]:
    """The versions that lines pin for an image, by normalised name.

    Args:
        lines: as :func:`read_requirements` returns them.
        python: the image's version, such as 3.11: markers are evaluated for it, on Linux.
        machine: the image's processor, as Python names it.
    """
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    platform = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": machine}
    runs = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    environment = {**platform, **runs, "python_version": python, "python_full_version": f"{python}.99"}
    found: dict[str, str] = {}
    for line in lines:
        with suppress(InvalidRequirement):
            asked = Requirement(_HASH.sub("", line))
            exact = [each.version for each in asked.specifier if each.operator in ("==", "===")]
            if exact and (asked.marker is None or asked.marker.evaluate(environment)):
                found[canonicalize_name(asked.name)] = exact[0]
    return found


class _Refused(Exception):
    """A line that is not allowed in an image."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.why, self.remedy = why, remedy


def requirements_text(path: Path, what: str) -> str:
    """The file as text, in any of the encodings that pip reads.

    Raises:
        RequestError: it is missing, not a regular file, too large or not text.
    """
    try:
        if not path.is_file():
            exists = path.exists()
            raise RequestError(
                f"{what}: {'is not a regular file' if exists else 'no such file'}", remedy="Name a requirements file."
            )
        if path.stat().st_size > _MOST_BYTES:
            raise RequestError(f"{what}: is too large for a requirements file", remedy="Name a requirements file.")
        data = path.read_bytes()
    except OSError as refused:
        raise RequestError(f"{what}: cannot be read: {refused.strerror}", remedy="Make it readable for you.") from None
    marks = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
    encoding = next((name for mark, name in marks if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as wrong:
        number = data[: wrong.start].count(b"\n") + 1
        raise RequestError(f"{what}:{number}: is not text in UTF-8", remedy="Save the file as UTF-8.") from None


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, continued ones joined, as pip reads them: each with the number of its first line."""
    begun, parts = 0, list[str]()
    for number, line in enumerate([*text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""], 1):
        comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not comment:
            begun = begun or number
            parts.append(line[:-1])
            continue
        parts.append("" if comment else line)
        joined = re.sub(r"(^|\s)#.*", "", "".join(parts)).strip()
        if joined:
            yield begun or number, joined
        begun, parts = 0, []


def _requirement(line: str, *, git: bool) -> list[str]:
    if wrong := trouble(line.replace("\t", " "), limit=100_000):
        raise _Refused(f"{wrong}; this is not a requirements file", "Name a file that `pip install -r` takes.")
    if line.startswith("-"):
        return _option(line)
    hashes = _HASH.findall(line)
    if bad := next((each for each in hashes if not _DIGEST.fullmatch(each)), None):
        raise _Refused(f"--hash={bad} is not a checksum", "Write --hash=sha256: and its 64 hexadecimal digits.")
    text = _HASH.sub("", line).strip()
    if option := re.search(r"\s(--?[a-z][\w-]*)", text):
        raise _Refused(f"{option[1]} is not supported by uv", "Remove it; only --hash may follow a requirement.")
    text = re.sub(r"\s+", " ", text)
    _check(text, git=git)
    return [" ".join([text, *(f"--hash={each}" for each in hashes)])]


def _option(line: str) -> list[str]:
    """The requirements after an option of pip."""
    word = re.split(r"[\s=]", line, maxsplit=1)[0]
    if word in _IDLE:
        return []
    if word in _PASSED:
        values = line[len(word) :].lstrip(" \t=")
        if not re.fullmatch(r"[\w.:, -]{1,4000}", values, re.ASCII):
            raise _Refused(f"{word} needs the names of packages", f"For example: {word} numpy")
        return [f"{word} {value}" for value in re.split(r"[ ,]+", values) if value]
    for names, (why, remedy) in _REFUSED.items():
        short = len(word) > 2 and not word.startswith("--") and word[:2] in names  # -rother.txt
        if word in names or short:
            raise _Refused(f"{word[:2] if short else word} {why}", remedy)
    raise _Refused(f"{word} is not supported in a build", "Remove the line.")


def _check(text: str, *, git: bool) -> None:
    """Refuse a line that is neither a requirement by name nor a public URL."""
    from packaging.requirements import InvalidRequirement, Requirement

    # A URL may follow a name with extras, or stand alone.
    name, at, address = text.partition("@")
    named = bool(at) and re.fullmatch(r"[\w.-]+\s*(?:\[[^\]]*\])?\s*", name, re.ASCII)
    target = (address if named else text).strip()
    if re.match(r"[A-Za-z][\w+.-]*:", target) or _VCS.match(target):
        _check_address(target.split(" ;", maxsplit=1)[0].strip(), git=git)
        if not named:
            return
    elif re.match(r"[./~\\]|[\w.-]+/\S*$|\S+(?:\.whl|\.zip|\.t[a-z.]*[gbx]z2?)\s*(?:;|$)", target):
        raise _Refused(f"a path on this machine, which a build cannot read: {text}", _WHEEL)
    try:
        Requirement(text)
    except (InvalidRequirement, RecursionError, ValueError) as wrong:
        reason = str(wrong).splitlines()[0] if str(wrong) else "too deep"
        raise _Refused(f"not a requirement ({reason}): {text}", "Write NAME==VERSION, one package per line.") from None


def _check_address(address: str, *, git: bool) -> None:
    try:
        parts = urlsplit(address)
        scheme, query = parts.scheme.lower(), parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as wrong:
        raise _Refused(f"an invalid URL ({wrong})", "Correct it.") from None
    if "@" in parts.netloc and not scheme.endswith("ssh"):
        raise _Refused("the URL contains a user name or a password", _NETRC)
    if any(_SIGNED.search(key) for key, _ in query):
        raise _Refused("the URL contains a token or a signature", _NETRC)
    if "${" in address:
        raise _Refused("the URL contains a variable, which a build cannot expand", _NETRC)
    if git and scheme.startswith("git+http"):
        return
    if _VCS.match(address):
        remedy = "Name the archive of a commit, as NAME @ https://github.com/OWNER/REPOSITORY/archive/COMMIT.zip"
        raise _Refused("this URL needs git, which the image does not have", remedy)
    if scheme == "file":
        raise _Refused("a path on this machine, which a build cannot read", _WHEEL)
    if scheme not in ("http", "https") or not parts.hostname:
        raise _Refused(f"a URL with an unsupported scheme ({scheme}:)", "Use an https:// URL.")
