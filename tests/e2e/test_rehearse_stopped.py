"""What a rehearsal that hangs, is stopped or is killed says, and what it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.rehearsals import checks, files_of, ip_is_there, left, nothing_is_left  # noqa: F401 - fixtures

ROOT = Path(__file__).resolve().parents[2]
TWO_BY_TWO = ("--hosts", "2", "--processes-per-host", "2")


def test_a_hang_ends_with_the_stacks_of_every_process(rehearse):
    script = """
import os, socket, time
def waits_for_a_call():
    socket.create_server(("", 5555)).accept()
def sleeps():
    time.sleep(1000)
sleeps() if os.environ["SM_CURRENT_HOST"] == "algo-2" else waits_for_a_call()
"""
    done = rehearse(script, "--hosts", "2", "--timeout", "60")
    assert done.code == 9, done.err[-3000:]
    failure = done.json
    assert failure["cause"] == "timeout"
    assert "algo-1 in accept (socket.py:" in failure["message"]
    assert "called at train.py:4" in failure["message"]
    assert "algo-2 in sleeps (train.py:6)" in failure["message"]
    stacks = [path.read_text() for path in sorted((Path(failure["report"]).parent / "logs").glob("*.stacks"))]
    assert "in waits_for_a_call" in stacks[0]
    assert "in sleeps" in stacks[1]
    # `train` itself is a Python process, too.
    assert all("bin/train" in text for text in stacks)


STOPPED = """
import os, signal, sys, time
rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
def save(*_):
    open(os.environ["SM_MODEL_DIR"] + "/checkpoint-" + rank, "w").write("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI
    MPI.COMM_WORLD.barrier()
time.sleep(200)
"""


def test_a_script_in_an_image_of_ours_hears_the_stop(rehearse):
    done = rehearse(STOPPED, "--stop-after", "1")
    assert done.code == 0, done.err[-3000:]
    assert checks(done.json) == {"stop": "passed"}
    assert files_of(done.json) == {"checkpoint-0": "saved"}
    # `train` itself was left alone, and reports as ever.
    assert done.json["hosts"][0]["exit_code"] == 0
    assert done.json["hosts"][0]["success"]


def test_every_rank_of_mpi_hears_the_stop(rehearse):
    """Those of the second host are children of sshd there; mpirun would kill all of them within a second."""
    slow = STOPPED.replace("def save(*_):", "def save(*_):\n    time.sleep(2)")
    # By then all are past MPI_Init, also on a busy machine: a rank that waits there for others hears nothing.
    done = rehearse(slow, *TWO_BY_TWO, "--distribution", "mpi", "--stop-after", "10")
    assert done.code == 0, done.err[-3000:]
    assert checks(done.json) == {"stop": "passed"}
    assert files_of(done.json) == {f"checkpoint-{rank}": "saved" for rank in range(4)}
    assert [row["exit_code"] for row in done.json["hosts"]] == [0, 0]


def test_a_script_without_a_handler_is_named(rehearse):
    done = rehearse("import time\ntime.sleep(200)\n", "--stop-after", "1")
    assert done.code == 9, done.err[-3000:]
    assert done.json["cause"] == "stop-no-handler"


def test_a_stop_that_comes_too_late_proves_nothing(rehearse):
    done = rehearse("print('done')", "--stop-after", "30")
    assert done.code == 9, done.err[-3000:]
    assert done.json["cause"] == "stop-not-sent"


WAIT = "import time\nprint('now it waits', flush=True)\ntime.sleep(1000)\n"


def start(environment, image: str, script: Path) -> subprocess.Popen[str]:
    """A rehearsal that goes on until it is ended; it runs its script when this returns."""
    argv = [str(Path(sys.executable).with_name("invoke")), "rehearse", "--image", image, "--entry-point", str(script)]
    running = subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    for line in running.stderr:
        if "now it waits" in line:
            return running
    raise AssertionError("the rehearsal ended early")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_nothing(environment, cpu_image, tmp_path, number):
    (tmp_path / "train.py").write_text(WAIT)
    running = start(environment, cpu_image, tmp_path / "train.py")
    running.send_signal(number)
    running.communicate(timeout=60)
    assert running.returncode == 130
    # `nothing_is_left` looks at the engine and at the folder.


def test_an_interruption_at_any_moment_leaves_nothing(environment, cpu_image, docker, state, tmp_path):
    """While the image is looked at, the network made, the containers made and started: each at some of these times."""
    (tmp_path / "train.py").write_text(WAIT)
    argv = [str(Path(sys.executable).with_name("invoke")), "rehearse", "--image", cpu_image, "--hosts", "2"]
    for tenths in range(6, 42, 4):
        running = subprocess.Popen(
            [*argv, "--entry-point", str(tmp_path / "train.py")],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(tenths / 10)
        # As a terminal does it: the clients of the engine get it, too.
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(60) != 0
        assert not left(docker), f"after {tenths / 10} s"
        assert not list((state / "rehearsals").glob("*/work")), f"after {tenths / 10} s"


@pytest.mark.parametrize("mend", ["doctor", "rehearse"])
def test_what_a_kill_left_is_cleared(environment, program, rehearse, cpu_image, docker, state, tmp_path, mend):
    (tmp_path / "train.py").write_text(WAIT)
    running = start(environment, cpu_image, tmp_path / "train.py")
    running.kill()
    running.communicate()
    assert len(left(docker)) == 2, "a container and its network"
    assert list((state / "rehearsals").glob("*/work"))
    if mend == "doctor":
        found = {row["check"]: row for row in program("doctor", "--json").json["findings"]}
        assert found["leftovers"]["severity"] == "warning"
        found = {row["check"]: row for row in program("doctor", "--fix", "--json").json["findings"]}
        assert found["leftovers"] == {"check": "leftovers", "severity": "ok", "message": "none", "remedy": ""}
    else:
        assert rehearse("print('the next')").code == 0


def test_a_rehearsal_that_runs_is_no_leftover(environment, cpu_image, rehearse, tmp_path):
    (tmp_path / "train.py").write_text(WAIT)
    running = start(environment, cpu_image, tmp_path / "train.py")
    try:
        assert rehearse("print('beside it')").code == 0
        assert running.poll() is None
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
