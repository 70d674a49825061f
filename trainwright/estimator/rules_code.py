"""The code that is uploaded: whether the image's Python can read it, and pip its requirements.txt."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from trainwright.core.errors import RequestError
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.subject import Subject
from trainwright.preflight import requirements
from trainwright.sagemaker.toolkit import TOOLKIT
from trainwright.user.requirements import logical_lines, requirements_text

NEWER_SYNTAX = Rule(
    code="TW326",
    severity="error",
    title="a script, or what it imports, uses syntax that the image's Python does not support",
    source="Python's reference, ast.parse: feature_version; What's New in Python 3.8 to 3.13",
    remedy="Use an image with a newer Python, or the older syntax.",
)
NOT_A_REQUIREMENT = Rule(
    code="TW327",
    severity="error",
    title="pip refuses a line of requirements.txt, so the script is never started",
    source=f"{TOOLKIT}, modules.py: pip install -r requirements.txt comes first; PEP 508: behind a name and its extras "
    "only a comparison, a marker or an address; pip's requirements file format",
    remedy="Write NAME==VERSION, with two equals signs.",
)
NOT_OF_THE_IMAGE = Rule(
    code="TW329",
    severity="error",
    title="requirements.txt needs another version of a package than the image carries (a warning or a note: a package "
    "that goes with one torch only, and that the image lacks; nothing is known of the image)",
    source=f"TW199, TW475 and TW476 of preflight; {requirements.CHANGES.source}",
    remedy=requirements.CHANGES.remedy,
)
RULES = (NEWER_SYNTAX, NOT_A_REQUIREMENT, NOT_OF_THE_IMAGE)
# In every version of PEP 508's grammar: a name, extras, and how what follows begins.
_NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*[ \t]*(?:\[[^]]*\][ \t]*)?(?:===|[<>!=~]=|[<>;@(]|\Z)")
# Paths, addresses and variables, of which pip does not ask an index.
_ELSEWHERE = re.compile(r"[/\\$]|^\.|\.(?:whl|zip|tgz|tar\.[a-z0-9]+)$")
_MINOR = re.compile(r"3\.([0-9]+)(?:\.[0-9]+)?")


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    entry, source = subject.job.entry_point, subject.job.source_dir
    # Code in the image is not uploaded, and an address in S3 is not a folder.
    if entry is None or not entry.endswith(".py") or (subject.image is not None and subject.image.baked):
        return
    folder = subject.folder if source is None else subject.folder / source
    if (folder / entry).is_file():
        yield from _syntax(subject, folder / entry, folder)
    if source is not None:
        file, shown = folder / "requirements.txt", f"{PurePosixPath(source) / 'requirements.txt'}"
        yield from _requirements(file, shown)
        yield from _against_the_image(subject, file, shown)


def _syntax(subject: Subject, entry: Path, folder: Path) -> Iterator[Finding]:
    from trainwright.script.reader import Reader

    found = _MINOR.fullmatch((subject.image and subject.image.python) or "")
    if found is None:
        return
    has = (3, int(found[1]))
    try:
        modules = Reader().script(entry, folder).modules
    except RequestError:
        return  # preflight says why it cannot be read
    for module in modules:
        if module.certain and (wrong := _not_in(module.text, has)):
            yield NEWER_SYNTAX.finding(
                f"{module.name}, line {wrong.lineno}: {wrong.msg}; the image has {has[0]}.{has[1]}", path="entry_point"
            )


def _not_in(text: str, version: tuple[int, int]) -> SyntaxError | None:
    """Why a text that this Python can read is not in the syntax of an older one; None if it is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text, feature_version=version)
    except SyntaxError as wrong:
        return wrong
    return None


def _requirements(file: Path, shown: str) -> Iterator[Finding]:
    if not file.is_file():
        return
    try:
        text = requirements_text(file, file.name)
    except RequestError:
        return  # pip guesses other encodings
    for number, line in logical_lines(text):
        asked = re.split(r"\s-", line)[0].strip()
        if asked and not line.startswith("-") and not _ELSEWHERE.search(asked) and not _NAMED.match(asked):
            yield NOT_A_REQUIREMENT.finding(f"{shown}, line {number}: {asked!r}", path="source_dir")


def _against_the_image(subject: Subject, file: Path, shown: str) -> Iterator[Finding]:
    """What preflight finds in the file, at the job's key."""
    if not file.is_file():
        return
    try:
        found = requirements.check_for(subject.job, file, shown)
    except RequestError:
        return  # pip guesses other encodings
    for each in found:
        line = f", line {each.line}" if each.line else ""
        yield NOT_OF_THE_IMAGE.finding(
            f"{shown}{line}: {each.message}", path="source_dir", severity=each.severity, remedy=each.remedy
        )
