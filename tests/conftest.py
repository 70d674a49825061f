"""Rules for all tests."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import shared_image, skips
from tests.support.examples import some
from trainwright.core.errors import EngineError
from trainwright.core.masking import forget
from trainwright.engine.engine import find_client

# A shell starts what it runs in the background with SIGINT ignored, and every child would inherit that: the tests that
# press Ctrl-C would wait for nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Speed belongs in bench/: an example that is slow on a busy machine is no failure.
settings.register_profile(
    "trainwright", deadline=None, max_examples=some(160), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("trainwright")

# Collecting makes a million objects that stay; looking through them over and over takes a fifth of its time.
gc.disable()

# Image tests of the example: they run inside an image.
collect_ignore = ["example"]

# Modules that one worker runs: those that push share an emulated AWS, so the layers of the CPU image are compressed and
# sent once; two make an image under the name of one container of AWS; two look at what rehearsals leave in the engine,
# and one of these kills some.
PUSHING = ("test_pipeline", "test_estimator_proof", "test_push", "test_push_failures", "test_doubles")
TOGETHER = {
    **dict.fromkeys(PUSHING, "pushing"),
    **dict.fromkeys(("test_extend", "test_ssh"), "containers of AWS"),
    **dict.fromkeys(("test_rehearse", "test_rehearse_stopped"), "rehearsals"),
}


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For ``--dist loadfile``: the tests of a module stay together, and those of some modules as if they were one."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler.loadfile import LoadFileScheduling

    class ByModule(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return TOGETHER.get(Path(file).stem, file)

    return ByModule(config, log)


def pytest_collection_finish() -> None:
    """From here on garbage is collected again, but not among what stays to the end."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove the image that the workers of a run share (``proven``), once the last of them has ended."""
    config = session.config
    if hasattr(config, "workerinput") or "not engine" in config.getoption("markexpr"):
        return
    with suppress(EngineError, OSError):
        argv = [find_client().path, "rmi", shared_image.name(os.getpid())]
        subprocess.run(argv, capture_output=True, check=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """A test that skips for a reason that does not hold here has failed."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        wrong = skips.objection(skips.reason_of(report.longrepr), everything=skips.required())
        if wrong:
            report.outcome, report.longrepr = "failed", wrong
    return report


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_AtOnce(config), "failures at once")


class _AtOnce:
    """Reports each failed test and its reason immediately: a run that is cut off prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None and terminal.verbosity <= 0:
            terminal.ensure_newline()
            crash = getattr(report.longrepr, "reprcrash", None)
            why = " ".join((crash.message if crash else str(report.longrepr)).split())
            # The end of a command's output says most.
            terminal.write_line(f"FAILED {report.nodeid} ({report.when}): {why[:300]}{why[300:][-600:]}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if lines := skips.by_reason(terminalreporter.stats.get("skipped", [])):
        terminalreporter.section("skipped, by reason")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(autouse=True)
def _no_site_of_another_test() -> None:
    """Addresses that another test configured are no secrets of this one."""
    forget()
