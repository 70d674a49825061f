"""The first process of an image: whom it hands a signal on to, what it waits for, and how it ends."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.programs import load_program
from trainwright.core.paths import templates_dir
from trainwright.sagemaker.causes import load_book

PROGRAM = templates_dir() / "components/sagemaker-toolkit/training-init"
# A script that tells of its SIGTERM, after so many seconds of saving.
SAVES = """
import signal, sys, time
def save(*_):
    time.sleep({seconds})
    open("{folder}/saved", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open("{folder}/ready", "w").close()
time.sleep(60)
"""
FORKS = """
import os, signal, sys, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, lambda *_: open("{folder}/worker-got-it", "w").close())
    open("{folder}/ready", "w").close()
    time.sleep(60)
def save(*_):
    open("{folder}/saved", "w").close()
    os.kill(0, signal.SIGKILL)
signal.signal(signal.SIGTERM, save)
time.sleep(60)
"""


INIT = load_program("components/sagemaker-toolkit/training-init")


class Container:
    """A folder with a `train` of one's own, which the program finds first on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[str]] = []

    def program(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def script(self, name: str, text: str, **values: Any) -> str:
        """The command line of a Python script."""
        return f"{sys.executable} {self.program(name, text.format(folder=self.folder, **values))}"

    def start(self, *command: str, **more: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        made = subprocess.Popen(
            [sys.executable, "-IS", str(PROGRAM), *command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **more,
        )
        self.running.append(made)
        return made

    def stop(self) -> int:
        """Start `train`, send SIGTERM once its script is ready, and wait for the exit code."""
        running = self.start("train")
        self.wait_for("ready")
        running.send_signal(signal.SIGTERM)
        return running.wait(10)

    def wait_for(self, name: str) -> None:
        until = time.monotonic() + 30
        while not (self.folder / name).exists():
            assert time.monotonic() < until, f"no {name}"
            time.sleep(0.02)

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def close(self) -> None:
        for each in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.communicate(timeout=60)


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    made = Container(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_exit_code_of_train_is_the_container_s(container, code):
    container.program("train", f"#!/bin/sh\nexit {code}\n")
    assert container.start("train").wait(10) == code


def test_a_killed_train_counts_as_in_a_shell(container):
    container.program("train", "#!/bin/sh\nkill -KILL $$\n")
    assert container.start("train").wait(10) == 137


def test_a_missing_train_is_what_the_rehearsal_calls_so(container, tmp_path):
    running = container.start("train", cwd=tmp_path)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 127
    pattern = next(cause.search for cause in load_book().rehearsal if cause.id == "train-missing")
    assert pattern.search(said), said


def test_a_train_that_is_no_program(container):
    container.program("train", "").chmod(0o644)
    running = container.start("train")
    _, said = running.communicate(timeout=60)
    assert running.returncode == 126
    assert 'exec: "train": permission denied' in said


def test_the_script_gets_the_signal_and_train_ends_well(container):
    container.program("train", f"#!/bin/sh\n{container.script('train.py', SAVES, seconds=0)}\nexit $?\n")
    assert container.stop() == 0
    assert container.has("saved")


def test_a_shell_that_train_puts_before_the_script_is_passed_over(container):
    """As sagemaker-training 4.8.3 has it: killed, the shell would make a failed job of one that has saved."""
    script = container.script("train.py", SAVES, seconds=0)
    container.program("train", f"#!/bin/sh\n/bin/sh -c '{script}; exit $?'\nexit $?\n")
    assert container.stop() == 0
    assert container.has("saved")


def test_what_train_leaves_is_waited_for(container):
    """A shell between `train` and the script has no handler: it ends, and `train` with it, before the script has."""
    script = container.script("train.py", SAVES, seconds=1)
    shell = container.program("entry.sh", f"#!/bin/sh\n{script}\necho more to do > {container.folder}/went-on\n")
    container.program("train", f"#!/bin/sh\n{shell}\nexit 1\n")
    assert container.stop() == 1
    assert container.has("saved")
    assert not container.has("went-on")


def test_processes_of_a_script_with_a_handler_are_its_own_business(container):
    container.program("train", f"#!/bin/sh\n{container.script('train.py', FORKS)}\nexit 7\n")
    running = container.start("train")
    container.wait_for("ready")
    running.send_signal(signal.SIGTERM)
    container.wait_for("saved")
    time.sleep(0.3)
    assert not container.has("worker-got-it")


def test_launchers_are_passed_over(container):
    launcher = "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, sys.argv[1]]))\n"
    container.script("train.py", SAVES, seconds=0)
    torchrun = container.script("torchrun", launcher)
    container.program("train", f"#!/bin/sh\n{torchrun} {container.folder}/train.py\nexit $?\n")
    assert container.stop() == 0, "torchrun was ended, and not by its rank"
    assert container.has("saved")


def test_an_entry_point_of_another_image_may_stand_before_train(container):
    """As those of AWS's containers, which start `train` by a shell after some work of their own."""
    container.program("train", f"#!/bin/sh\n{container.script('train.py', SAVES, seconds=0)}\nexit $?\n")
    entry = container.program("entry.sh", '#!/bin/bash\ntrue\neval "$@"\n')
    running = container.start("bash", "-m", str(entry), "train")
    container.wait_for("ready")
    running.send_signal(signal.SIGTERM)
    assert running.wait(10) == 0
    assert container.has("saved")


def test_train_itself_is_ended_before_there_is_a_script(container):
    container.program("train", f"#!/bin/sh\ntouch {container.folder}/ready\nwhile :; do :; done\n")
    assert container.stop() == 128 + signal.SIGTERM


def test_orphans_are_buried(container):
    orphan = f"(sh -c 'echo $$ > {container.folder}/orphan; exit 0' &)"
    container.program("train", f"#!/bin/sh\n{orphan}\nsleep 1\ntouch {container.folder}/ready\nsleep 5\n")
    container.start("train")
    container.wait_for("ready")
    pid = (container.folder / "orphan").read_text().strip()
    assert not Path("/proc", pid).exists(), "a zombie"


def test_any_other_command_takes_the_place_of_the_program(container):
    running = container.start("sh", "-c", "echo $$; cat", stdin=subprocess.PIPE)
    said, _ = running.communicate("typed\n", timeout=60)
    assert said == f"{running.pid}\ntyped\n"


@pytest.mark.parametrize("command", ["train", "sh"])
def test_the_driver_s_libraries_are_decided_on_first(container, monkeypatch, command):
    seen = container.folder / "seen"
    monkeypatch.setenv("CUDA_COMPAT", str(container.program("compat", f'#!/bin/sh\necho "$@" > {seen}\n')))
    container.program("train", f"#!/bin/sh\ncat {seen}\n")
    said, _ = container.start(*([command] if command == "train" else ["sh", "-c", f"cat {seen}"])).communicate(
        timeout=10
    )
    assert said == "--decide\n"


@pytest.mark.parametrize(("command", "made"), [(("train",), "key\n"), (("sh", "-c", "cat"), "")])
def test_a_host_has_its_key_before_train(container, monkeypatch, command, made):
    """A worker of an MPI job logs in to the first host before it starts a server; a shell needs no key."""
    seen = container.program("seen", "")
    monkeypatch.setenv("ROOT_KEY", str(container.program("root-key", f"#!/bin/sh\necho key >> {seen}; exit 1\n")))
    container.program("train", f"#!/bin/sh\ncat {seen}\n")
    said, _ = container.start(*command, stdin=subprocess.DEVNULL).communicate(timeout=60)
    assert (said, seen.read_text()) == (made, made)


def test_what_python_ignores_is_not_inherited(container):
    container.program("train", "#!/bin/sh\ngrep -E 'Sig(Ign|Blk)' /proc/self/status\n")
    said, _ = container.start("train").communicate(timeout=60)
    masks = dict(re.findall(r"(Sig\w+):\s+(\w+)", said))
    ours = {number - 1 for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)}
    assert masks.keys() == {"SigIgn", "SigBlk"}
    for mask in masks.values():
        assert not any(int(mask, 16) >> bit & 1 for bit in ours)


def test_the_oldest_python_of_an_image_can_read_it():
    ast.parse(PROGRAM.read_text(), feature_version=(3, 6))


def test_program_is_executable_where_it_lies():
    assert PROGRAM.stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ("/opt/venv/bin/python /opt/venv/bin/train", "train"),
        ("/opt/venv/bin/python -- train.py --epochs 3", "train.py"),
        ("/opt/venv/bin/python3.11 -u train.py", "train.py"),
        ("/opt/venv/bin/python -m mpi4py train.py", "mpi4py"),
        ("/opt/venv/bin/python -m torch.distributed.run train.py", "torch.distributed.run"),
        ("/opt/venv/bin/python /opt/venv/bin/torchrun --nnodes 2 train.py", "torchrun"),
        ("/bin/sh -c ./train.sh", "sh"),
        ("/bin/bash /usr/local/bin/smddprun python train.py", "smddprun"),
        ("sshd: root@notty", "sshd"),
        ("/usr/bin/orted -mca ess env", "orted"),
        ("", ""),
    ],
)
def test_name_of_what_a_process_runs(words, program):
    process = INIT.Process.__new__(INIT.Process)
    process.words = words.split()
    assert process.program == program


# A forest below process 1: each process has a parent before it, a program, and perhaps a handler.
ROWS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(["torchrun", "mpirun", "train.py", "bash", "sshd"]), st.booleans()),
    max_size=12,
)


def forest(rows: list[tuple[int, str, bool]]) -> dict[int, Any]:
    table = {}
    for number, (parent, program, handler) in enumerate(rows):

        def catches(_: int, handler: bool = handler) -> bool:
            return handler

        pid, above = number + 2, 1 + parent % (number + 1)
        table[pid] = SimpleNamespace(pid=pid, parent=above, program=program, words=[program], catches=catches)
    return table


@given(ROWS)
def test_every_branch_is_told_once_and_nobody_below_a_handler(rows):
    table = forest(rows)
    told = list(INIT.receivers(table, 1, signal.SIGTERM, 0))
    assert len(told) == len(set(told))
    link: Callable[[Any], bool] = lambda one: (  # noqa: E731
        one.program == "bash" and one.parent in table and table[one.parent].program == "sshd"
    )
    for pid, one in table.items():
        launcher = one.program in INIT.LAUNCHERS or link(one)
        above, shielded = one.parent, False
        while above in table:
            parent = table[above]
            shielded |= parent.catches(15) and not (parent.program in INIT.LAUNCHERS or link(parent))
            above = parent.parent
        assert (pid in told) == (not launcher and not shielded)
