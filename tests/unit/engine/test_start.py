"""Starting an engine that is installed, and waiting for it."""

from __future__ import annotations

import os

import pytest

from tests.support.bare_machine import BareMachine, consenting_machine
from trainwright.core.errors import EngineError
from trainwright.core.paths import state_dir
from trainwright.engine import setup

machine = pytest.fixture(consenting_machine)


def test_the_engine_is_started_in_the_background_and_waited_for(machine: BareMachine) -> None:
    machine.program("dockerd", f"sleep 0.2; touch {machine.folder}/up")
    machine.start()
    assert machine.calls == ["dockerd "]
    assert "engine.log" in machine.said[0]
    assert "answers" in machine.said[-1]


def test_a_dead_engine_shows_its_last_lines_and_advice_by_the_fatal_one(machine: BareMachine) -> None:
    log = state_dir() / "engine.log"
    log.write_text("failed to start daemon: something of last week\n")
    warning = "level=warning msg=Your kernel does not support cgroup blkio weight"
    fatal = "failed to start daemon: failed to create NAT chain DOCKER: iptables failed"
    machine.program("dockerd", f"echo '{warning}'; echo 'level=info noise'; echo '{fatal}'; exit 1")
    with pytest.raises(EngineError) as failure:
        machine.start()
    assert failure.value.message.startswith("the container engine exited at once")
    assert fatal in failure.value.message
    assert "noise" not in failure.value.message
    assert "last week" not in failure.value.message
    assert "iptables" in failure.value.remedy


def test_an_engine_that_never_answers_is_given_up(machine: BareMachine) -> None:
    machine.program("dockerd", "exec sleep 3")
    with pytest.raises(EngineError, match="does not answer after"):
        machine.start(wait_s=0.2)


def test_an_engine_that_is_starting_is_waited_for(machine: BareMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.program("dockerd", "exit 1")
    monkeypatch.setattr(setup, "_starting", os.getpid)
    asked = iter([False, False, True])
    setup.start(machine.said.append, answers=lambda: next(asked))
    assert machine.calls == []
    assert str(os.getpid()) in machine.said[0]


def test_a_pid_file_with_another_programs_number_is_removed(machine: BareMachine) -> None:
    setup.PID_FILE.write_text(str(os.getpid()))
    machine.program("dockerd", f"test -e {setup.PID_FILE} || touch {machine.folder}/up")
    machine.start()
    assert not setup.PID_FILE.exists()


def test_systemd_is_used_where_it_runs(machine: BareMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "SYSTEMD", machine.folder)
    machine.program("dockerd", "exit 1")
    machine.program("systemctl", f"touch {machine.folder}/up")
    machine.start()
    assert machine.calls == ["systemctl start docker"]


def test_a_failed_unit_shows_its_journal(machine: BareMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "SYSTEMD", machine.folder)
    machine.program("systemctl", "echo masked >&2; exit 1")
    machine.program("journalctl", "echo 'failed to start daemon: no space left on device'")
    with pytest.raises(EngineError, match="masked") as failure:
        machine.start()
    assert "no space left" in failure.value.message
    assert "free space" in failure.value.remedy
