"""CodeBuild as far as a buildspec 0.2 sees it: a runner for phases, and one for the graph of a batch.

Written from the user guide (build-spec-ref, view-build-details#view-build-details-phases, batch-build-buildspec). What
it does as the real one: all phases in one shell, each command evaluated in turn until one fails, ``finally`` in any
case; install and pre_build end the build where they fail, a failed build phase is followed by post_build with
``CODEBUILD_BUILD_SUCCEEDING=0``; variables of the project stand above those of the buildspec; reports are collected and
exported variables read after post_build; artifacts too, also of a failed build (view-build-details-phases: the upload
"is always attempted"). What it does not know: ``run-as``, secondary artifacts, caches, ``runtime-versions``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from trainwright.pipeline.buildspec import order_of, parse

PHASES = ("install", "pre_build", "build", "post_build")
DEFAULT_ON_FAILURE = {"install": "ABORT", "pre_build": "ABORT", "build": "CONTINUE", "post_build": "ABORT"}
_RETRY = re.compile(r"RETRY(?:-(\d+))?(?:-(.+))?")
DEFAULT_RETRIES = 3  # of RETRY without a number, as the guide has it
MARK = "=== "  # before the lines by which the shell tells of phases, commands and variables


@dataclass(frozen=True)
class Build:
    """A finished build.

    Attributes:
        succeeded: whether every phase that counts ended well.
        phases: the phases that ran, with how they ended.
        commands: every command that was started, with its exit status.
        exported: the exported variables that had a value in the end.
        reports: files by name of the report, each a JUnit file that could be read.
        log: what the build said.
        seconds: wall time.
        artifacts: the files that are uploaded, by their names there.
    """

    succeeded: bool
    phases: dict[str, str]
    commands: tuple[tuple[str, int], ...]
    exported: dict[str, str]
    reports: dict[str, tuple[Path, ...]]
    log: str
    seconds: float
    artifacts: dict[str, Path] = field(default_factory=dict)


def run_build(
    source: Path,
    buildspec: str = "buildspec.yml",
    *,
    environment: Mapping[str, str] = {},
    phases: Sequence[str] = PHASES,
    timeout: float = 1800,
) -> Build:
    """Run a buildspec in a source folder.

    Args:
        source: a checkout; the build works in it, as in ``CODEBUILD_SRC_DIR``.
        buildspec: the file, seen from there.
        environment: variables of the project; they stand above those of the buildspec.
        phases: leave out the others, as if they had ended well before.
        timeout: seconds for everything.

    Raises:
        RequestError: the file is no buildspec.
        subprocess.TimeoutExpired: it took longer; the shell and its children are ended.
    """
    document = parse((source / buildspec).read_text(), buildspec)
    env = document.get("env", {})
    variables = {**env.get("variables", {}), **environment}
    exported = env.get("exported-variables", [])
    started = time.monotonic()
    code, log = _shell(env.get("shell", "sh"), script(document, phases), source, variables, timeout)
    return Build(
        succeeded=code == 0,
        phases=dict(re.findall(rf"(?m)^{MARK}phase (\w+) (\w+)$", log)),
        commands=tuple(
            (document["phases"][phase]["commands"][int(number)], int(code))
            for phase, number, code in re.findall(rf"(?m)^{MARK}command (\w+) (\d+) (\d+)$", log)
        ),
        exported={k: v for k, v in _exported(log) if k in exported and v},
        reports={name: _reports(source, report) for name, report in document.get("reports", {}).items()},
        log=log,
        seconds=time.monotonic() - started,
        artifacts=_artifacts(source, document.get("artifacts", {"files": []})),
    )


def script(document: Mapping[str, Any], phases: Sequence[str] = PHASES) -> str:
    """The phases of a buildspec as one shell program; its exit status is that of the build."""
    lines = [
        "CODEBUILD_BUILD_SUCCEEDING=1; export CODEBUILD_BUILD_SUCCEEDING; _abort=",
        *(_phase(name, document["phases"][name]) for name in PHASES if name in document["phases"] and name in phases),
    ]
    # printenv sees what was exported and nothing else.
    lines += [
        f'printenv {name} > /dev/null && echo {shlex.quote(MARK)}variable {name}="$(printenv {name})"'
        for name in document.get("env", {}).get("exported-variables", ())
    ]
    return "\n".join([*lines, '[ "$CODEBUILD_BUILD_SUCCEEDING" = 1 ]', ""])


def _phase(name: str, phase: Mapping[str, Any]) -> str:
    on_failure = phase.get("on-failure", DEFAULT_ON_FAILURE[name])
    retry = _RETRY.fullmatch(on_failure)
    attempts = 1 + (int(retry[1] or DEFAULT_RETRIES) if retry else 0)
    commands = "\n".join(_command(name, number, text) for number, text in enumerate(phase.get("commands", ())))
    always = "\n".join(f"  eval {shlex.quote(text)}" for text in phase.get("finally", ()))
    # Where a phase that may go on fails, the build has failed all the same; post_build is told so.
    abort = "" if on_failure == "CONTINUE" else "  _abort=yes"
    return f"""
if [ -z "$_abort" ]; then
  _left={attempts}
  while :; do
    _rc=0 _left=$((_left - 1))
{commands}
    [ "$_rc" != 0 ] && [ "$_left" -gt 0 ] || break
  done
{always or "  :"}
  if [ "$_rc" = 0 ]; then echo "{MARK}phase {name} succeeded"; else
  echo "{MARK}phase {name} failed"
  CODEBUILD_BUILD_SUCCEEDING=0
{abort or "  :"}
  fi
fi"""


def _command(phase: str, number: int, text: str) -> str:
    """A command in the shell of the build, unless one before it failed."""
    told = f'echo "{MARK}command {phase} {number} $_rc"'
    return f'    if [ "$_rc" = 0 ]; then eval {shlex.quote(text)}\n_rc=$?; {told}; fi'


def _shell(shell: str, program: str, source: Path, variables: Mapping[str, str], timeout: float) -> tuple[int, str]:
    environment = {
        **os.environ,
        **variables,
        "CI": "true",
        "CODEBUILD_SRC_DIR": str(source),
        "CODEBUILD_BUILD_ID": "trainwright:00000000-0000-0000-0000-000000000000",
        "CODEBUILD_BUILD_NUMBER": "1",
        "CODEBUILD_RESOLVED_SOURCE_VERSION": _head(source),
    }
    process = subprocess.Popen(
        [shell, "-c", program],
        cwd=source,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        log, _ = process.communicate(timeout=timeout)
    except BaseException:
        os.killpg(process.pid, 9)
        process.wait()
        raise
    return process.returncode, log


def _head(source: Path) -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=source, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _exported(log: str) -> list[tuple[str, str]]:
    return re.findall(rf"(?m)^{MARK}variable (\w+)=(.*)$", log)


def _reports(source: Path, report: Mapping[str, Any]) -> tuple[Path, ...]:
    """The files of a report; where they are JUnit, only what can be read as such counts."""
    base = source / report.get("base-directory", ".")
    found = [p for p in sorted(base.rglob("*")) if any(fnmatch(str(p.relative_to(base)), f) for f in report["files"])]
    if report.get("file-format") == "JUNITXML":
        return tuple(path for path in found if ET.parse(path).getroot().tag in ("testsuite", "testsuites"))
    return tuple(found)


def _artifacts(source: Path, said: Mapping[str, Any]) -> dict[str, Path]:
    """The files of the primary artifact by their place in it; ``**/`` may stand for no folder."""
    base = source / said.get("base-directory", ".")
    found = {str(path.relative_to(base)): path for path in sorted(base.rglob("*")) if path.is_file()}
    patterns = [text for each in said["files"] for text in (each, each.replace("**/", ""))]
    return {name: path for name, path in found.items() if any(fnmatch(name, text) for text in patterns)}


@dataclass(frozen=True)
class Job:
    """A job of a batch graph as it is started: what to run with which variables."""

    identifier: str
    buildspec: str
    variables: dict[str, str] = field(default_factory=dict)


def run_batch(
    source: Path, run: Callable[[Job], bool], buildspec: str = "buildspec.yml", *, environment: Mapping[str, str] = {}
) -> dict[str, str]:
    """Run the build graph of a buildspec, one job after the other.

    Args:
        source: a checkout.
        run: runs a job and tells whether it succeeded; :func:`job_runner` makes one that really builds.
        buildspec: the file that holds the batch.
        environment: variables of the project; a job's own stand above them.

    Returns:
        ``succeeded``, ``failed`` or ``skipped`` by identifier, and for the whole by ``batch``. A job is skipped where
        one that it depends on did not succeed, and with ``fast-fail`` after a failure that is not to be ignored.
    """
    document = parse((source / buildspec).read_text(), buildspec)
    batch = document["batch"]
    nodes: Sequence[Mapping[str, Any]] = batch["build-graph"]
    by_name = {node["identifier"]: node for node in nodes}
    ended: dict[str, str] = {}
    failed = False
    for name in order_of(nodes, buildspec):
        node = by_name[name]
        waited_for = [ended[other] for other in node.get("depend-on", ())]
        if (failed and batch.get("fast-fail")) or any(end != "succeeded" for end in waited_for):
            ended[name] = "skipped"
            continue
        variables = {**environment, **node.get("env", {}).get("variables", {})}
        good = run(Job(name, node.get("buildspec", buildspec), variables))
        ended[name] = "succeeded" if good else "failed"
        failed = failed or not (good or node.get("ignore-failure"))
    return {**ended, "batch": "failed" if failed else "succeeded"}


def job_runner(source: Path, builds: dict[str, Build]) -> Callable[[Job], bool]:
    """A runner for :func:`run_batch` that runs each job's buildspec in the source folder, and keeps what came of it."""

    def run(job: Job) -> bool:
        builds[job.identifier] = run_build(source, job.buildspec, environment=job.variables)
        return builds[job.identifier].succeeded

    return run
