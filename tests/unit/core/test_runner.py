"""An interrupted command: one that makes something is waited for, any other is cut short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.runner import run

PROGRAM = """
import sys
from trainwright.core.runner import run
run(["sh", "-c", "echo begun > begun; sleep 1.5; echo made > made"], finish=sys.argv[1] == "finish")
"""


@pytest.mark.parametrize("word", ["finish", "cut"])
def test_an_interruption_waits_for_a_command_that_makes_something(tmp_path: Path, word: str) -> None:
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, word],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not (tmp_path / "begun").exists():
            assert running.poll() is None, "the command never began"
            time.sleep(0.02)
        # As a terminal does it: every process of the group gets it.
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(30) != 0
    finally:
        running.kill()
        running.wait()
    assert (tmp_path / "made").exists() == (word == "finish")


def test_an_interruption_while_a_command_is_started_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Ctrl-C inside Popen, after the child was started, used to leave the child running."""

    class Interrupted(subprocess.Popen[str]):
        def __init__(self, *words: Any, **more: Any) -> None:
            super().__init__(*words, **more)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(["sh", "-c", f"sleep 0.3; touch {tmp_path}/made"], finish=True)
    assert (tmp_path / "made").exists()
    assert signal.getsignal(signal.SIGINT) is before
