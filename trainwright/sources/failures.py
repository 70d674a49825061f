"""Finds unreachable sources and wrong checksums in the output of a failed build step."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainwright.core.errors import SourceError
from trainwright.core.masking import mask
from trainwright.sources.inputs import Input, Materials
from trainwright.sources.locations import remedy

FETCH_EXIT = 88  # templates/tools/build/fetch: no source had the right bytes
# "-": nobody publishes the checksum of that file.
_NO_PLACE = re.compile(r"fetch: no place has (\S+) with the sha256 ([0-9a-f]{64}|-)")
# templates/components/efa/verify.sh
_UNSIGNED = re.compile(r"verify: (\S+) is not signed by the key (\S+)")
_TRIED = re.compile(r"fetch: tried (\S+|archives/\S+ of the build context): (.*)")
_FOUND = re.compile(r"has the sha256 ([0-9a-f]{64})")
# uv: "Hash mismatch for `name==1`", "Expected:", "sha256:…", "Computed:", "sha256:…".
_UV = re.compile(r"hash mismatch for `?([^`\s]+)", re.IGNORECASE)
# pip: "THESE PACKAGES DO NOT MATCH THE HASHES …", "    name==1 from URL (from …):", "Expected sha256 …", "Got …".
_PIP = re.compile(r"THESE PACKAGES DO NOT MATCH")
_PIP_PACKAGE = re.compile(r"^ +(\S+)(?: from \S+)?(?: \(from .*\))?:$", re.MULTILINE)
_SHA256SUM = re.compile(r"sha256sum: WARNING: .* NOT match")
_SUM_FAILED = re.compile(r"^(.+): FAILED$", re.MULTILINE)
_EXPECTED = re.compile(r"Expected:?\s+(?:sha256[:\s]\s*)?([0-9a-f]{64})")
_GOT = re.compile(r"(?:Computed:|Got)\s+(?:sha256:)?([0-9a-f]{64})")


def source_failure(
    taken: Materials, component: str | None, exit_code: int | None, lines: Sequence[str], log: str
) -> SourceError | None:
    """The failure of a build step as one of its sources, if its output says so.

    Args:
        taken: the inputs of the build; they name the component of a file.
        component: the component of the step, if known.
        exit_code: of the step's command.
        lines: the last lines of its output.
        log: the path of the whole log.
    """
    text = "\n".join(lines)
    missing = _NO_PLACE.search(text)
    if exit_code == FETCH_EXIT and missing:
        return _not_fetched(taken, component, text, missing, log)
    unsigned = _UNSIGNED.search(text)
    if exit_code == FETCH_EXIT and unsigned:
        return _not_signed(taken, component, unsigned, log)
    return _wrong_checksum(taken, component, text, list(lines), log)


def _not_fetched(taken: Materials, component: str | None, text: str, missing: re.Match[str], log: str) -> SourceError:
    file, sha256 = missing[1], None if missing[2] == "-" else missing[2]
    tried = [(mask(place), why.strip()) for place, why in _TRIED.findall(text)]
    found = _FOUND.search(text)
    owner = _owner(taken, file, component)
    return SourceError(
        "\n".join(
            [
                f"{owner or 'the build'}: no source has {file}{f' with the sha256 {sha256}' if sha256 else ''}; "
                "no tag was moved",
                *(f"  {place}: {why}" for place, why in tried),
            ]
        ),
        remedy=f"{remedy((file, sha256))}\nThe whole log: {log}",
        component=owner,
        file=file,
        urls=[place for place, _ in tried],
        tried=[{"url": place, "why": why} for place, why in tried],
        expected=sha256,
        found=found[1] if found else None,
        log=log,
    )


def _not_signed(taken: Materials, component: str | None, unsigned: re.Match[str], log: str) -> SourceError:
    file, key = unsigned.groups()
    owner = _owner(taken, file, component)
    return SourceError(
        f"{owner or 'the build'}: {file} is not signed by the key {key}; no tag was moved",
        remedy="A mirror has a different file, signature or key of this name: get all three from upstream again, and "
        f"do not use this one.\nThe whole log: {log}",
        component=owner,
        file=file,
        key=key,
        log=log,
    )


def _wrong_checksum(
    taken: Materials, component: str | None, text: str, lines: list[str], log: str
) -> SourceError | None:
    subject = _subject(text)
    if subject is None:
        return None
    owner = _owner(taken, subject, component)
    expected = _EXPECTED.search(text)
    found = _GOT.search(text)
    named = _named(taken, subject)
    wanted = expected[1] if expected else named and named.sha256
    digests = "".join(
        f", {word} {digest}" for word, digest in (("expected", wanted), ("found", found and found[1])) if digest
    )
    return SourceError(
        f"{owner or 'the build'}: {subject or 'a file'} has the wrong checksum{digests}; no tag was moved",
        remedy="A mirror or an index has a different file of this name: get it corrected, or pin the new one "
        f"after reviewing it (./invoke lock … --upgrade NAME).\nThe whole log: {log}",
        component=owner,
        file=subject or None,
        expected=wanted,
        found=found[1] if found else None,
        last_lines=lines,
        log=log,
    )


def _subject(text: str) -> str | None:
    """The file or package with a wrong checksum; empty if it is not named, ``None`` if all checksums are right."""
    if match := _UV.search(text):
        return match[1]
    if match := _PIP.search(text):
        package = _PIP_PACKAGE.search(text, match.end())
        return package[1] if package else ""
    if _SHA256SUM.search(text):
        failed = _SUM_FAILED.search(text)
        return failed[1] if failed else ""
    return None


def _owner(taken: Materials, subject: str, component: str | None) -> str | None:
    """The component of a file or package; otherwise that of the step."""
    named = _named(taken, subject)
    return named.owner if named is not None else component


def _named(taken: Materials, subject: str) -> Input | None:
    """The archive or Python package of that name."""
    candidates = (*taken.archives, *taken.python)
    return next((each for each in candidates if subject and subject in (each.file, each.source.package)), None)
