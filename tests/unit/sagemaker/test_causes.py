"""The catalogue of causes: what it refuses, and how launchers report signals."""

from __future__ import annotations

import re

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RequestError
from trainwright.sagemaker.causes import load_causes, reports_of
from trainwright.sagemaker.diagnosis import diagnose

# The number, the name, and what mpirun calls it.
SIGNALS = [(4, "SIGILL", "Illegal instruction"), (7, "SIGBUS", "Bus error"), (9, "SIGKILL", "Killed")]
REPORTS = [
    "algo-1 exited with code {shell}",
    "Exit Code: {shell}",
    "command terminated with exit code {shell}",
    "ExitCode -{number}",
    "failed (exitcode: -{number}) local_rank: 2 (pid: 3767) of binary: /usr/bin/python3",
    "  exitcode  : -{number} (pid: 467397)",
    "  traceback : Signal {number} ({name}) received by PID 467397",
    "mpirun noticed that process rank 3 with PID 0 on node algo-1 exited on signal {number} ({said}).",
    "[algo-1:00077] Signal: {said} ({number})",
    "Process 4711 exits with return code = -{number}",
    "Process 0 exit with status code {shell}.",
    "Exception: process 0 terminated with signal {name}",
    "subprocess.CalledProcessError: Command '['python']' died with <Signals.{name}: {number}>.",
]
NO_REPORTS = [
    "Sending process 3765 closing signal {name}",
    "Unable to shutdown process 3765 via Signals.SIGTERM, forcefully exiting via Signals.{name}",
    "exit code: 0 after {number} epochs",
    "exitcode  : 1 (pid: {number})",
    "exit code {number}",
]


@pytest.mark.parametrize(("number", "name", "said"), SIGNALS)
@pytest.mark.parametrize("report", REPORTS)
def test_a_signal_is_known_from_every_launcher(report, number, name, said):
    line = report.format(number=number, name=name, said=said, shell=128 + number)
    (cause,) = [cause for cause in load_causes() if cause.signal == number]
    assert [found.id for found in diagnose([line]).causes if found.certainty != "consequence"] == [cause.id]


@pytest.mark.parametrize(("number", "name", "said"), SIGNALS)
@pytest.mark.parametrize("line", NO_REPORTS)
def test_a_signal_that_a_launcher_sends_is_no_report(line, number, name, said):
    line = line.format(number=number, name=name, said=said)
    assert not any(re.search(pattern, line) for pattern in reports_of(number))


def test_each_signal_has_one_cause():
    signals = [cause.signal for cause in load_causes() if cause.signal]
    assert len(signals) == len(set(signals))


def test_a_cause_without_patterns_needs_a_signal(tmp_path):
    book = tmp_path / "causes.yaml"
    book.write_text("causes: [{id: a, rank: 3, cause: c, remedy: r, source: s}]")
    with pytest.raises(RequestError, match="a: it has neither"):
        load_causes(book)
    book.write_text("causes: [{id: a, rank: 3, signal: 9, cause: c, remedy: r, source: s}]")
    assert load_causes(book)[0].patterns == reports_of(9)


def test_what_is_said_to_be_compiled_for_the_image_s_torch_is() -> None:
    """Lines name what the ``setup.py`` of such packages imports (``needs``)."""
    remedy = next(cause.remedy for cause in load_causes() if cause.id == "build-isolation")
    (said,) = re.findall(r"--with ([\w-]+) or ([\w-]+) compiles it for the image's torch", remedy)
    options = [each for entry in load_catalog().lines for each in entry.line.options.items()]
    assert {*said} == {name for name, chosen in options if any("torch" in needs for needs in chosen.needs.values())}
