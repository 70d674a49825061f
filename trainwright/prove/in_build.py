"""Proofs that the builder makes: the probe and image tests as a build step of the image that they are about.

The stages ``proving``, ``proof`` and ``proved`` of every rendered Dockerfile (``templates/proof/``) need what
:func:`proof_files` puts into the build context. Their results are a few hundred kilobytes, which :func:`read` holds
against what was asked for. What they say is read by the same functions as what a container says.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from trainwright.catalog.image_line import BASE
from trainwright.core.errors import EngineError, ProofFailed
from trainwright.core.paths import cache_dir, import_root, locked, templates_dir
from trainwright.plan.plan import Plan
from trainwright.prove import probe as probing
from trainwright.prove.smoke import (
    CONTRACT,
    PYTEST_INI,
    PYTEST_VARIABLES,
    SECONDS,
    BuiltProof,
    SmokeRow,
    collect,
    parse_junit,
    pytest_words,
)

SCHEMA = "trainwright/built-proof/1"
FOLDER = "proof"  # of the build context
ASKED = "asked"  # in a folder of results that is taken elsewhere: what the builder was asked, as a build context has it
BUILD = "build.json"  # there: who built, and how long it took
ALL, PROBE = "all", "probe"  # values of the build argument PROVE
FIRST_PYTHON = (3, 11)  # of the image: what pytest and this program need
OF_AWS = "what the image extends is looked at first, in a container"
# Python alone, without parts of other languages: one archive for every processor.
PACKAGES = ("iniconfig", "packaging", "pluggy", "Pygments", "pytest", "pytest-testinfra")
_MODULES = ("__init__", "prove/__init__", "prove/differences", "prove/image_testing", "prove/job_files", "prove/shells")
_LEXERS = ("__init__", "_mapping", "diff", "python")  # of the hundreds that Pygments has
_USER = ("requirements", "run", "code")  # paths on this machine
_FILES = ("probe.json", "smoke.xml")


def proof_files(plan: Plan, folders: Mapping[str, Path]) -> dict[str, str | Path]:
    """The files of the build context that the stages of the proof take, by name.

    Args:
        plan: of the image.
        folders: of the components, with their tests.
    """
    own, data = templates_dir() / "proof", plan.as_json()
    data["user"] = {name: value for name, value in (data.get("user") or {}).items() if name not in _USER}
    files: dict[str, str | Path] = {name: (own / name).read_text() for name in ("hosts", "prove", "prove.py")}
    files["probe.py"] = probing.program_text()
    files["plan.json"] = json.dumps(data, sort_keys=True)
    files["runner.zip"] = runner_archive()
    present = [c.name for c in plan.components if c.provider != BASE or c.version]
    tests = {_place(file): file.read_text() for file in collect(templates_dir(), present, folders)[0]}
    request = {
        "plan": plan.id,
        "python": list(FIRST_PYTHON),
        "why": OF_AWS if plan.base.kind == "dlc" else "",
        **probing.request_of(data),
        "probe_seconds": probing.SECONDS,
        "tests_seconds": SECONDS,
        "pytest_ini": PYTEST_INI,
        "pytest": pytest_words(Path("pytest.ini"), Path("tests")),
        "variables": PYTEST_VARIABLES,
        "tests": list(tests),
    }
    files |= tests
    bytes_of = {name: c.read_bytes() if isinstance(c, Path) else c.encode() for name, c in files.items()}
    digests = {name: _sha256(data) for name, data in bytes_of.items()}
    request["digest"] = _sha256(json.dumps([request, digests], sort_keys=True).encode())
    files["request.json"] = json.dumps(request, indent=1, sort_keys=True)
    return {f"{FOLDER}/{name}": content for name, content in files.items()}


def _place(file: Path) -> str:
    """Where a test is below the tests' root: the name of its folder is that of its component."""
    above = "" if file.parent.name == CONTRACT else "components/"
    return f"tests/{above}{file.parent.name}/{file.name}"


def runner_archive() -> Path:
    """The archive with pytest and what image tests need of this program, made once for each version of them.

    Its bytes follow from the files in it, so that a builder takes a step that reads it from its cache.

    Raises:
        EngineError: this environment lacks a package.
    """
    files = {f"trainwright/{name}.py": import_root() / "trainwright" / f"{name}.py" for name in _MODULES}
    digests = [*(_sha256(path.read_bytes()) for path in files.values()), *map(_record, PACKAGES)]
    digest = _sha256(json.dumps(digests).encode())
    made = cache_dir() / "proof-runner" / f"{digest[:32]}.zip"
    with locked(made):
        if not made.is_file():
            for name in PACKAGES:
                files |= _package(name)
            part = made.with_suffix(".part")
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, path in sorted(files.items()):
                    archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
            part.replace(made)
    return made


def _record(name: str) -> str:
    """The checksums of an installed package's files: as its installer recorded them, or else computed."""
    try:
        recorded = importlib.metadata.distribution(name).read_text("RECORD")
    except importlib.metadata.PackageNotFoundError:
        recorded = None
    return recorded or "".join(f"{path} {_sha256(path.read_bytes())}\n" for path in _package(name).values())


def _package(name: str) -> dict[str, Path]:
    """The modules of an installed package, by their names in its archive."""
    try:
        found = importlib.metadata.distribution(name).files or []
    except importlib.metadata.PackageNotFoundError:
        found = []
    modules = {str(f): Path(str(f.locate())) for f in found if f.suffix == ".py" and ".." not in f.parts}
    modules = {name: path for name, path in modules.items() if "lexers/" not in name or path.stem in _LEXERS}
    if not modules:
        raise EngineError(
            f"{name} is not installed beside this program ({sys.executable}), and proofs in a build need it",
            remedy="Install Trainwright again with its requirements (in a checkout: remove .venv).",
        )
    return modules


def read(folder: Path, context: Path, *, asked: str) -> BuiltProof:
    """The results that a builder has sent, held against what it was asked.

    Args:
        folder: the results.
        context: the build context that they were made with.
        asked: :data:`ALL` or :data:`PROBE`.

    Raises:
        ProofFailed: something is wrong in the image; or the results are incomplete, damaged, or of something else.
    """
    try:
        request = json.loads((context / FOLDER / "request.json").read_text())
        said: dict[str, Any] = json.loads((folder / "results.json").read_bytes())
        sent = {name: (folder / name).read_bytes() for name in _FILES if name in said["files"]}
        found: dict[str, Any] = json.loads(sent["probe.json"])
        rows = tuple(parse_junit(sent["smoke.xml"].decode())) if "smoke.xml" in sent else ()
        wrong, left, files = list(said["wrong"]), dict(said["left"]), dict(said["files"])
        about = (said["schema"], said["request"], said["plan"], said["asked"])
        passed = (folder / "passed").exists()
    except (OSError, ValueError, KeyError, TypeError, ET.ParseError) as missing:
        told = (folder / "said").read_text(errors="replace").strip() if (folder / "said").is_file() else ""
        _refuse(folder, f"they are incomplete ({missing}){': ' + told[-500:] if told else ''}")
    if about != (SCHEMA, request["digest"], request["plan"], asked):
        _refuse(folder, f"they are of another build (of plan {str(about[2])[:12]})")
    if {name: _sha256(data) for name, data in sent.items()} != files:
        _refuse(folder, "their checksums differ")
    failed = [row for row in rows if row.outcome == "failed"]
    if passed is bool(wrong) or (failed and not wrong):
        _refuse(folder, "they contradict each other")
    if asked == ALL and not (wrong or said["why"]):
        _check_complete(folder, request["tests"], rows, left)
    if wrong:
        raise ProofFailed(
            "\n".join(["the builder's proof of the image failed, so it gets no tag", *(f"  {w}" for w in wrong)]),
            remedy=f"The results are in {folder}. The image is in the builder's cache alone, where a build goes on.",
            failed=[row.as_json() for row in failed],
            wrong=wrong,
            results=str(folder),
        )
    return BuiltProof(found, rows, left, tested="smoke.xml" in sent)


def _check_complete(folder: Path, tests: Sequence[str], rows: Sequence[SmokeRow], left: Mapping[str, str]) -> None:
    """Every file of tests has said something: a test of it ran, or was left."""
    told = {row.component for row in rows} | {name.partition("::")[0] for name in left}
    silent = sorted({Path(name).parent.name for name in tests} - told)
    if silent:
        _refuse(folder, f"nothing is said of {', '.join(silent)}")


def _refuse(folder: Path, why: str) -> NoReturn:
    raise ProofFailed(
        f"the proof that the builder sent is not accepted, so no tag was moved: {why}",
        remedy=f"What came is in {folder}. Build again; --no-cache makes every step and the proof again.",
        results=str(folder),
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
