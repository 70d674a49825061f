"""Runs the image tests of every component in an image, and of the container contract, inside one container.

The tests are ``templates/contract/test_*.py`` and ``templates/components/<name>/test_*.py``; they run in a
separate pytest, isolated from the user's configuration and plugins.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from trainwright.catalog.image_line import BASE
from trainwright.core.errors import EngineError, ProofFailed, RequestError
from trainwright.core.junit import Outcome
from trainwright.core.paths import data_root, state_dir, templates_dir
from trainwright.core.records import Document
from trainwright.core.runner import Completed, run
from trainwright.prove import smoke_view
from trainwright.prove.probe import SESSION_LABEL

REST = "rest"  # as in trainwright.prove.image_testing, which loads pytest
CONTRACT = "contract"
HOST_NAME = "smoke.internal"
PLUGIN = "trainwright.prove.image_testing"
PROGRESS_PLUGIN = "trainwright.prove.image_progress"
REASON_CHARACTERS = 2000
PYTEST_INI = "[pytest]\njunit_family = xunit1\n"
PYTEST_VARIABLES = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_ADDOPTS": "",
    "PYTEST_PLUGINS": "",
}
SECONDS = 1800.0  # for all tests of an image
_RAN = (0, 1)  # pytest: all passed, some failed
_NONE_COLLECTED = 5


class SmokeCounts(Document):
    """The number of image tests by outcome."""

    passed: int
    failed: int
    skipped: int


class SmokeRow(Document):
    """One check. ``component`` is ``contract`` for the checks of the image as a whole."""

    component: str
    check: str
    outcome: Outcome
    reason: str
    seconds: float


class SmokeDocument(SmokeCounts):
    """``smoke --json``."""

    schema: Literal["trainwright/smoke/1"]
    image: str
    image_id: str
    plan: str
    seconds: float
    rows: tuple[SmokeRow, ...]


@dataclass(frozen=True)
class SmokeReport:
    """The checks of one run."""

    image: str
    rows: tuple[SmokeRow, ...]
    seconds: float

    def count(self, outcome: Outcome) -> int:
        """The number of checks with this outcome."""
        return sum(row.outcome == outcome for row in self.rows)

    def document(self, *, image: str, image_id: str, plan: str) -> SmokeDocument:
        """The document of ``smoke --json``.

        Args:
            image: as the user named it.
            image_id: its id.
            plan: the id of its plan.
        """
        return SmokeDocument(
            schema="trainwright/smoke/1",
            image=image,
            image_id=image_id,
            plan=plan,
            passed=self.count("passed"),
            failed=self.count("failed"),
            skipped=self.count("skipped"),
            seconds=round(self.seconds, 1),
            rows=self.rows,
        )

    def raise_for_failures(self) -> None:
        """Raise if a check failed.

        Raises:
            ProofFailed: naming every failed check with its reason.
        """
        failed = [row for row in self.rows if row.outcome == "failed"]
        if not failed:
            return
        noun = "check" if len(failed) == 1 else "checks"
        lines = [f"  {row.component}: {row.check}: {_headline(row.reason)}" for row in failed]
        components = " ".join(dict.fromkeys(row.component for row in failed))
        raise ProofFailed(
            "\n".join([f"{len(failed)} image {noun} failed in {self.image}", *lines]),
            remedy=f"The checks are files of templates/ ({components}); smoke.xml in the report folder has more.",
            image=self.image,
            failed=[row.as_json() for row in failed],
        )


@dataclass(frozen=True)
class BuiltProof:
    """What a builder found in the image that it built.

    Attributes:
        found: by the probe, without ``image``: that comes from the engine or the registry.
        rows: of the tests that ran; none if tests were not asked for, or could not run in the build.
        left: the tests that need a container (``component::test``), with the reason.
        tested: whether tests ran.
    """

    found: dict[str, Any]
    rows: tuple[SmokeRow, ...]
    left: dict[str, str]
    tested: bool


def smoke(
    client_path: str,
    image: str,
    plan: Mapping[str, Any],
    probe: Mapping[str, Any],
    report_dir: Path,
    *,
    gpus: bool = False,
    select: str | None = None,
    only: Collection[str] = (),
    folders: Mapping[str, Path] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = SECONDS,
    bar: bool = True,
    before: BuiltProof | None = None,
) -> SmokeReport:
    """Run the image tests in one container of the image; the container is always removed afterwards.

    Args:
        client_path: the docker command line client.
        image: id or reference of an image in the engine.
        plan: the plan's JSON; its components determine which tests run.
        probe: what the probe found in the image.
        report_dir: where ``smoke.xml`` (JUnit) is written.
        gpus: give the container all GPUs; otherwise the checks that need one are skipped.
        select: run only checks whose name (``components/metis/test_metis.py::test_...``) contains this word.
        only: run only these checks (``component::check``), and none that is marked ``ours``.
        folders: the folder of each component, if it is not the shipped one of that name.
        env: variables for the client (``DOCKER_HOST`` and the like).
        timeout: seconds for all checks together.
        bar: show on a terminal how far the tests are.
        before: what the builder has found: only the tests that it left are run, and those that need GPUs if there are
            any.

    Returns:
        A row per check; a component without tests is a failed row.

    Raises:
        EngineError: the container could not be started.
        ProofFailed: the tests could not be run at all.
        RequestError: no check's name contains ``select``.
    """
    started = time.monotonic()
    every = plan.get("components", ())
    absent = [c["name"] for c in every if c.get("provider") == BASE and not c["version"]]
    names = [component["name"] for component in every if component["name"] not in absent]
    files, untested = collect(templates_dir(), names, folders)
    report_dir.mkdir(parents=True, exist_ok=True)
    junit = report_dir.absolute() / "smoke.xml"
    junit.unlink(missing_ok=True)
    built = before.rows if before is not None else ()
    with _container(client_path, image, gpus, env) as container:
        data = {
            "docker": client_path,
            "container": container,
            "image": image,
            "gpus": gpus,
            "select": select or "",
            "only": sorted(only),
            "plan": dict(plan),
            "probe": dict(probe),
            "place": REST if built else "",
        }
        done = _pytest(files, junit, data, env, timeout, bar=bar)
    if done.returncode == _NONE_COLLECTED and select:
        raise RequestError(
            f"--select {select}: no check of this image matches",
            remedy=f"Use a component ({', '.join([CONTRACT, *names])}) or part of a test's name.",
        )
    if done.returncode == _NONE_COLLECTED and only:
        return SmokeReport(image=image, rows=(), seconds=time.monotonic() - started)
    if done.returncode not in _RAN or not junit.is_file():
        raise ProofFailed(
            f"the image tests were not completed (pytest's exit status {done.returncode}): {done.tail(10)}",
            remedy="A file of templates/contract or templates/components is broken, or the engine stopped.",
            output=(done.stdout + done.stderr)[-4000:],
        )
    rows = parse_junit(junit.read_text())
    if before is not None and built:
        rows = _together(before, rows)
    rows += [] if select or only else map(_no_tests, untested)
    rows += [] if select or only else [_absent(name) for name in absent]
    return SmokeReport(image=image, rows=tuple(rows), seconds=time.monotonic() - started)


def _together(before: BuiltProof, rows: Sequence[SmokeRow]) -> list[SmokeRow]:
    """The rows of a builder and those of a container that ran what the builder had left.

    Raises:
        ProofFailed: a test was left and did not run here.
    """
    here = {f"{row.component}::{row.check}": row for row in rows}
    if lacking := sorted(before.left.keys() - here.keys()):
        raise ProofFailed(
            f"the builder left out tests that this version does not have: {', '.join(lacking)}",
            remedy="Build again: the tests in the build context are those of another version.",
            lacking=lacking,
        )
    return [*(row for row in before.rows if f"{row.component}::{row.check}" not in here), *rows]


def collect(
    templates: Path, components: list[str], folders: Mapping[str, Path] | None = None
) -> tuple[list[Path], list[str]]:
    """The test files for an image with these components, and the components without tests."""
    places = {name: (folders or {}).get(name, templates / "components" / name) for name in components}
    own = {name: sorted(place.glob("test_*.py")) for name, place in places.items()}
    files = [*sorted((templates / CONTRACT).glob("test_*.py")), *(file for tests in own.values() for file in tests)]
    return files, [name for name, tests in own.items() if not tests]


def parse_junit(text: str) -> list[SmokeRow]:
    """The rows of pytest's JUnit file (family xunit1, which includes the file of a test)."""
    rows = []
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314 - our own pytest wrote it
        outcome: Outcome = "passed"
        reason = ""
        for bad in (*case.findall("failure"), *case.findall("error")):
            outcome = "failed"
            reason = _reason(bad)
        skipped = case.find("skipped")
        if outcome == "passed" and skipped is not None:
            outcome, reason = "skipped", skipped.get("message") or ""
        folder = Path(case.get("file") or case.get("classname") or "").parent
        name = folder.name if folder.name else CONTRACT
        rows.append(
            SmokeRow(
                component=name,
                check=case.get("name") or "",
                outcome=outcome,
                reason=reason,
                seconds=round(float(case.get("time") or 0), 3),
            )
        )
    return rows


def _reason(failure: ET.Element) -> str:
    """The message of a failed check, without the source code that pytest shows around it."""
    shown = [line[1:].strip() for line in (failure.text or "").splitlines() if line.startswith("E  ")]
    message = failure.get("message") or ""
    return ("\n".join(shown) or message)[:REASON_CHARACTERS]


def _headline(reason: str) -> str:
    """The first line of a reason, short enough for a terminal."""
    return reason.strip().splitlines()[0][:200] if reason.strip() else "no reason given"


def _no_tests(component: str) -> SmokeRow:
    reason = f"templates/components/{component} has no test_*.py"
    return SmokeRow(component=component, check="no tests", outcome="failed", reason=reason, seconds=0.0)


def excused(report: SmokeReport, base: SmokeReport) -> SmokeReport:
    """A report in which the checks that fail in the base image as well are skipped, with that as the reason."""
    also = {(row.component, row.check) for row in base.rows if row.outcome == "failed"}
    rows = [
        row.replace(outcome="skipped", reason=f"of the base image, where it fails, too: {_headline(row.reason)}")
        if row.outcome == "failed" and (row.component, row.check) in also
        else row
        for row in report.rows
    ]
    return replace(report, rows=tuple(rows), seconds=report.seconds + base.seconds)


def _absent(component: str) -> SmokeRow:
    return SmokeRow(component=component, check="all", outcome="skipped", reason="not in the base image", seconds=0.0)


@contextmanager
def _container(client: str, image: str, gpus: bool, env: Mapping[str, str] | None) -> Iterator[str]:
    """An idle container of the image; removed at the end."""
    session = uuid.uuid4().hex[:12]
    name = f"trainwright-smoke-{session}"
    argv = [client, "run", "-d", "--init", "--name", name, "--label", f"{SESSION_LABEL}={session}"]
    # As on the platform: the host's own name resolves (or torchrun waits for minutes) and is not algo-1.
    names = ["--hostname", HOST_NAME, "--add-host", f"{HOST_NAME}:127.0.0.1", "--add-host", "algo-1:127.0.0.1"]
    argv += ["--network", "none", *names, "--shm-size", "1g"]
    argv += ["--gpus", "all"] if gpus else []
    try:
        done = run([*argv, "--entrypoint", "sleep", image, "infinity"], env=env, timeout=300, finish=True)
        if not done.ok:
            raise EngineError(
                f"the engine could not start a container of {image}: {done.tail(3)}",
                remedy="./invoke doctor checks the engine.",
            )
        yield done.stdout.strip()
    finally:
        # By name: the id of a container that failed to start is unknown.
        run([client, "rm", "-f", name], env=env, timeout=120)


def _pytest(
    files: list[Path], junit: Path, data: Mapping[str, Any], env: Mapping[str, str] | None, timeout: float, *, bar: bool
) -> Completed:
    """Run pytest on the files, isolated from any other configuration."""
    templates = templates_dir()
    with tempfile.TemporaryDirectory(prefix="trainwright-smoke-") as scratch:
        data_file = Path(scratch, "data.json")
        data_file.write_text(json.dumps(data))
        config = Path(scratch, "pytest.ini")
        config.write_text(PYTEST_INI)
        progress = Path(scratch, "progress")
        argv = [sys.executable, "-m", "pytest", *pytest_words(config, templates)]
        argv += ["-p", PROGRESS_PLUGIN, f"--junitxml={junit}"]
        python_path = os.pathsep.join(p for p in (_package_root(), os.environ.get("PYTHONPATH", "")) if p)
        variables = {
            **(env or {}),
            "TRAINWRIGHT_IMAGE_TEST": str(data_file),
            smoke_view.VARIABLE: str(progress),
            "TRAINWRIGHT_STATE": str(state_dir()),
            "PYTHONPATH": python_path,
            **PYTEST_VARIABLES,
        }
        with smoke_view.shown(progress) if bar else nullcontext():
            return run([*argv, *map(str, files)], env=variables, cwd=data_root(), timeout=timeout)


def pytest_words(config: Path, root: Path) -> list[str]:
    """How pytest is called for image tests, wherever it runs: nothing but what is named here decides about them.

    Args:
        config: the file with :data:`PYTEST_INI`.
        root: the folder that the names of tests are told from.
    """
    words = ["-c", str(config), "--rootdir", str(root), "--confcutdir", str(root), "--import-mode=importlib"]
    words += ["-o", "addopts=", "-o", "strict_config=true"]
    return [*words, "-p", PLUGIN, "-p", "no:cacheprovider", "-q", "--tb=short"]


def _package_root() -> str:
    """The folder from which ``import trainwright`` loads this package."""
    spec = importlib.util.find_spec("trainwright")
    assert spec is not None and spec.submodule_search_locations
    return str(Path(next(iter(spec.submodule_search_locations))).parent)
