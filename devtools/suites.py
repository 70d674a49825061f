"""Other people's test suites against any image: what fails there, and whether that is how AWS arranges its own images.

Nothing is fetched: the suite is a checkout on this machine, and pytest comes from a folder that
``pip install --target FOLDER pytest`` made. ``suites.yaml`` says how a suite is run and which failures are explained.
"""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from devtools.checks import ChecksFailed
from trainwright.core.data_files import read_yaml
from trainwright.core.errors import EngineError, RequestError, did_you_mean
from trainwright.core.layout import table
from trainwright.core.records import Record, parse_record
from trainwright.core.runner import run
from trainwright.core.say import Say

TABLE = Path(__file__).with_name("suites.yaml")
SUITE, PACKAGES = "/mnt/suite", "/mnt/packages"
_MARK = "=== report ==="
# The image's own packages come first: they are what is tested.
_PYTEST = f"import sys; sys.path.append('{PACKAGES}'); import pytest; sys.exit(pytest.main(sys.argv[1:]))"


class Expected(Record):
    """A failure that is explained: ``test`` is a pattern of ``CLASS::NAME``."""

    test: str
    whose: Literal["layout", "packages", "upstream", "choice"]
    why: str
    evidence: str


class Suite(Record):
    """How a suite is run: one of ``pytest`` and ``commands``; ``before`` is shell in front of pytest."""

    about: str
    root: str
    before: str = ""
    pytest: tuple[str, ...] = ()
    commands: dict[str, str] = {}
    environment: dict[str, str] = {}
    expected: tuple[Expected, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.pytest) == bool(self.commands):
            raise ValueError("a suite has either pytest or commands")


class Outcome(Record):
    """A test of a suite; a failure has a reason, and if it is explained, whose it is."""

    test: str
    outcome: Literal["passed", "failed", "skipped"]
    reason: str = ""
    whose: str = ""


def suites() -> dict[str, Suite]:
    """The known suites by name."""
    return {name: parse_record(Suite, each, f"{TABLE.name}: {name}") for name, each in read_yaml(TABLE).items()}


def run_suites(
    image: str, named: Iterable[str], packages_folder: str | None, variables: Iterable[str], *, say: Say
) -> str:
    """Run suites in an image; a table of what failed, for people.

    Args:
        image: tag or id, in the engine.
        named: ``NAME=FOLDER``: a suite and its checkout.
        packages_folder: has pytest.
        variables: of the container, ``NAME=VALUE``, in addition to those of the suites.
        say: progress callback.

    Raises:
        RequestError: a suite is unknown, or a folder is missing.
        EngineError: the suite could not be run.
        ChecksFailed: a failure is not explained.
    """
    from trainwright.engine.engine import connect

    known, asked = suites(), dict(_pair(text) for text in named)
    packages = Path(packages_folder).absolute() if packages_folder else None
    if not asked:
        raise RequestError("suites needs --suite NAME=FOLDER", remedy=f"Known: {', '.join(known)}")
    for name, folder in asked.items():
        if name not in known:
            raise RequestError(f"--suite {name}: no such suite. {did_you_mean(name, known)}")
        if not (folder / known[name].root).is_dir():
            raise RequestError(f"--suite {name}={folder}: has no folder {known[name].root}", remedy=known[name].about)
        if known[name].pytest and (packages is None or not (packages / "pytest").is_dir()):
            raise RequestError(
                f"--suite {name} needs pytest: --packages FOLDER",
                remedy="pip install --target FOLDER pytest makes one.",
            )
    client = connect(setup=False).client.path
    texts, unexplained = [], 0
    for name, folder in asked.items():
        say(f"{name}: {known[name].about}")
        done = run(argv(client, image, known[name], folder, packages, variables=variables), timeout=3600)
        rows = judged(outcomes(done.stdout, known[name]), known[name])
        if not rows:
            raise EngineError(f"{name}: nothing was run: {done.tail(5)}", remedy="./invoke doctor checks the engine.")
        texts.append(summary(name, rows))
        unexplained += sum(row.outcome == "failed" and not row.whose for row in rows)
    text = "\n\n".join(texts)
    if unexplained:
        raise ChecksFailed(f"{text}\n\n{unexplained} failures are not explained", remedy=f"{TABLE} has the table.")
    return text


def argv(
    client: str, image: str, suite: Suite, folder: Path, packages: Path | None, *, variables: Iterable[str] = ()
) -> list[str]:
    """The command line of a suite in a container without a network; its standard output ends with the report."""
    words = [client, "run", "--rm", "--init", "--network", "none", "--shm-size", "1g", "--add-host", "algo-1:127.0.0.1"]
    words += ["-v", f"{folder.absolute()}:{SUITE}:ro", *(["-v", f"{packages}:{PACKAGES}:ro"] if packages else [])]
    words += [word for key, value in suite.environment.items() for word in ("-e", f"{key}={value}")]
    words += [word for each in variables for word in ("-e", each)]
    if suite.pytest:
        own = ["-p", "no:cacheprovider", "-q", "--junitxml=/tmp/report.xml", *suite.pytest]
        # What fails before the tests leaves no report.
        first = f"{{\n{suite.before.strip()}\n}} >&2 || exit 1\n" if suite.before else ""
        tests = f"python3 -B -c {shlex.quote(_PYTEST)} {shlex.join(own)} >&2"
        script = f"{first}{tests}; echo '{_MARK}'; cat /tmp/report.xml"
    else:
        each = [f"({line}) >&2; echo {name} $?" for name, line in suite.commands.items()]
        script = "; ".join([f"echo '{_MARK}'", *each])
    return [*words, "-w", f"{SUITE}/{suite.root}", "--entrypoint", "sh", image, "-c", script]


def outcomes(output: str, suite: Suite) -> list[Outcome]:
    """The outcomes in what a suite printed; none if it did not come to its report."""
    _, mark, report = output.rpartition(f"{_MARK}\n")
    if not mark or not report.strip():
        return []
    if suite.commands:
        rows = (line.rpartition(" ") for line in report.splitlines())
        return [_command(name, status) for name, _, status in rows if name in suite.commands]
    return [_case(case) for case in ET.fromstring(report).iter("testcase")]  # noqa: S314 - pytest wrote it


def _command(name: str, status: str) -> Outcome:
    good = status == "0"
    return Outcome(test=name, outcome="passed" if good else "failed", reason="" if good else f"exit status {status}")


def _case(case: ET.Element) -> Outcome:
    """A case of pytest's JUnit report."""
    name = f"{(case.get('classname') or '').rpartition('.')[2]}::{case.get('name')}"
    for bad in (*case.findall("failure"), *case.findall("error")):
        return Outcome(test=name, outcome="failed", reason=(bad.get("message") or "").partition("\n")[0])
    return Outcome(test=name, outcome="passed" if case.find("skipped") is None else "skipped")


def judged(rows: Iterable[Outcome], suite: Suite) -> list[Outcome]:
    """The outcomes, explained failures with whose they are and why."""
    return [_judged(row, suite.expected) if row.outcome == "failed" else row for row in rows]


def _judged(row: Outcome, expected: Iterable[Expected]) -> Outcome:
    found = next((each for each in expected if fnmatchcase(row.test, each.test)), None)
    return row if found is None else row.replace(whose=found.whose, reason=found.why)


def summary(name: str, rows: list[Outcome]) -> str:
    """How many tests ended how, and a line per failure: those that nothing explains come last."""
    count: Mapping[str, int] = {
        word: sum(row.outcome == word for row in rows) for word in ("passed", "failed", "skipped")
    }
    failed = sorted((row for row in rows if row.outcome == "failed"), key=lambda row: (not row.whose, row.whose))
    head = f"{name}: " + ", ".join(f"{number} {word}" for word, number in count.items())
    return "\n".join([head, table([(row.whose or "UNEXPLAINED", row.test, row.reason) for row in failed])]).rstrip()


def _pair(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not equals or not folder:
        raise RequestError(f"--suite {text}: not NAME=FOLDER", remedy="For example: --suite metis=~/METIS")
    return name, Path(folder).expanduser()
