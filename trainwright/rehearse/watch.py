"""Follows the hosts of a job from start to end: logs, exit codes, timeout, stacks of a hang."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainwright.core.runner import run, stream
from trainwright.engine.engine import Engine
from trainwright.rehearse import observer_files
from trainwright.rehearse.hosts import Host
from trainwright.rehearse.observed import LOG_LINES, End, HostFacts
from trainwright.rehearse.observer_files import STACKS
from trainwright.rehearse.rehearsed_job import RehearsedJob

TICK = 0.2
STACK_SECONDS = 3.0  # for the processes of a host to write their stacks
REST_SECONDS = 2.0  # for the other hosts to report, once one has failed
COMMAND_SECONDS = 60
LAST_WORDS_SECONDS = 5.0  # for the rest of a log after its container has ended

HostCallback = Callable[[str, str], None]  # takes the name of a host, and a text


@dataclass
class _Watched:
    """The state of a running host."""

    host: Host
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    exit_code: int | None = None
    end: End = "by itself"
    started_at: float = 0.0
    ended_at: float = 0.0
    out_of_memory: bool = False
    others: tuple[str, ...] = ()
    followers: list[threading.Thread] = field(default_factory=list)

    @property
    def running(self) -> bool:
        return self.exit_code is None


@dataclass(frozen=True)
class Ending:
    """How a job ended; ``stopped`` is the Unix time of SIGTERM, or 0."""

    timed_out: bool
    stopped: float
    seconds: float


class Watch:
    """Starts the containers of the hosts and follows them.

    Args:
        engine: the engine of the containers.
        job: its limits.
        hosts: with containers that are made and have not begun.
        line: called with every line of a host's log.
        enough: asked now and then whether all that is wanted has been seen; the hosts are then taken down.
        at_work: asked until it says that the script runs on every host; ``RehearsedJob.stop_after`` counts from then.
        state: called with what a host is doing, when that changes.
    """

    def __init__(
        self,
        engine: Engine,
        job: RehearsedJob,
        hosts: Sequence[Host],
        *,
        line: HostCallback,
        state: HostCallback,
        enough: Callable[[], bool] = lambda: False,
        at_work: Callable[[], bool] = lambda: True,
    ) -> None:
        self._engine = engine
        self._job = job
        self._hosts = {host.name: _Watched(host) for host in hosts}
        self._line, self._state, self._enough, self._at_work = line, state, enough, at_work
        self._events: queue.Queue[tuple[str, str, Any]] = queue.Queue()
        self._stopped = 0.0
        self._working_since = 0.0
        self._timed_out = False

    def follow(self) -> Ending:
        """Start all hosts and follow them to their end; none is running when this returns."""
        began = time.time()
        self._start()
        failed_at = 0.0
        while running := [one for one in self._hosts.values() if one.running]:
            self._take_events(TICK)
            now = time.time()
            if not failed_at and any(not one.running and one.exit_code != 0 for one in self._hosts.values()):
                failed_at = now
            if (failed_at and now > failed_at + REST_SECONDS) or self._enough():
                # The workers of a failed master wait forever; the platform takes them down as well.
                self._take_down([one for one in running if one.running], "taken down")
            elif self._stopped and now > self._stopped + self._job.stop_grace:
                self._time_up("stopped")
            elif now > began + self._job.timeout and not self._stopped:
                self._timed_out = True
                self._time_up("timeout")
            elif self._stop_is_due(now):
                self._stop()
        self._finish()
        return Ending(self._timed_out, self._stopped, time.time() - began)

    def facts(self) -> tuple[HostFacts, ...]:
        """The observations of each host; call it when this process can read the hosts' files."""
        return tuple(self._facts(one) for one in self._hosts.values())

    def _start(self) -> None:
        for name, one in self._hosts.items():
            done = self._client("start", one.host.container)
            one.started_at = time.time()
            if not done.ok:
                # The image lacks the program, or it cannot run: the engine's message is all there is.
                one.log.extend(done.stderr.strip().splitlines())
                for said in one.log:
                    self._line(name, said)
                one.exit_code, one.ended_at = self._exit_code(one) or 127, time.time()
                continue
            self._state(name, "started")
            for target in (self._read_log, self._wait):
                thread = threading.Thread(target=target, args=(one.host,), daemon=True)
                thread.start()
                one.followers.append(thread)

    def _read_log(self, host: Host) -> None:
        with stream([self._engine.client.path, "logs", "-f", host.container], env=self._engine.cli_env) as running:
            for said in running.lines():
                self._events.put(("line", host.name, said))

    def _wait(self, host: Host) -> None:
        done = run([self._engine.client.path, "wait", host.container], env=self._engine.cli_env)
        code = done.stdout.strip()
        self._events.put(("exit", host.name, int(code) if code.lstrip("-").isdigit() else 255))

    def _take_events(self, seconds: float) -> None:
        """Process pending events; waits up to ``seconds`` for the first one."""
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=seconds)
            while True:
                self._take(*event)
                event = self._events.get_nowait()

    def _take(self, kind: str, name: str, value: Any) -> None:
        one = self._hosts[name]
        if kind == "line":
            one.log.append(value)
            self._line(name, value)
        elif one.running:
            one.exit_code, one.ended_at = value, time.time()
            self._state(name, f"ended with exit code {value}")

    def _stop_is_due(self, now: float) -> bool:
        """Whether to send SIGTERM now; a stop before the script runs would prove nothing."""
        if self._job.stop_after is None or self._stopped:
            return False
        if not self._working_since and self._at_work():
            self._working_since = now
        return bool(self._working_since) and now >= self._working_since + self._job.stop_after

    def _stop(self) -> None:
        self._stopped = time.time()
        for name, one in self._hosts.items():
            if one.running:
                self._state(name, "SIGTERM sent")
                self._client("kill", "--signal", "TERM", one.host.container)

    def _time_up(self, end: End) -> None:
        running = [one for one in self._hosts.values() if one.running]
        for one in running:
            self._state(one.host.name, "time is up: asking for stacks")
            self._ask_for_stacks(one)
        self._take_down(running, end)

    def _ask_for_stacks(self, one: _Watched) -> None:
        top = self._client("top", one.host.container, "-eo", "pid,args")
        one.others = tuple(line.strip().partition(" ")[2].strip() for line in top.stdout.splitlines()[1:])
        living = [process.pid for process in observer_files.processes(one.host.folder.facts) if not process.ended]
        if not living:
            return
        # One by one: a process that has ended must not keep the others from being asked.
        script = 'for p in "$@"; do kill -0 $p 2>/dev/null && kill -$0 $p; done; true'
        self._client("exec", one.host.container, "/bin/sh", "-c", script, str(STACKS), *map(str, living))
        until = time.time() + STACK_SECONDS
        while time.time() < until:
            now = observer_files.processes(one.host.folder.facts)
            if all(process.stack for process in now if process.pid in living):
                break
            self._take_events(TICK)

    def _take_down(self, running: Sequence[_Watched], end: End) -> None:
        for one in running:
            one.end = end
        if running:
            self._client("kill", *(one.host.container for one in running))
        until = time.time() + COMMAND_SECONDS
        while any(one.running for one in running) and time.time() < until:
            self._take_events(TICK)
        for one in running:
            if one.running:
                one.exit_code, one.ended_at = 137, time.time()

    def _finish(self) -> None:
        until = time.time() + LAST_WORDS_SECONDS
        for one in self._hosts.values():
            for thread in one.followers:
                while thread.is_alive() and time.time() < until:
                    self._take_events(TICK)
        self._take_events(0.01)
        for one in self._hosts.values():
            said = self._client("inspect", "--format", "{{.State.OOMKilled}}", one.host.container)
            one.out_of_memory = said.stdout.strip() == "true"

    def _exit_code(self, one: _Watched) -> int:
        said = self._client("inspect", "--format", "{{.State.ExitCode}}", one.host.container)
        return int(said.stdout) if said.stdout.strip().isdigit() else 0

    def _facts(self, one: _Watched) -> HostFacts:
        output = one.host.folder.output
        failure = output / "failure"
        return HostFacts(
            name=one.host.name,
            container_host_name=one.host.own_name,
            exit_code=one.exit_code,
            end=one.end,
            started_at=one.started_at,
            ended_at=one.ended_at,
            seconds=max(0.0, one.ended_at - one.started_at),
            out_of_memory=one.out_of_memory,
            success=(output / "success").exists(),
            failure=failure.read_text(errors="replace") if failure.is_file() else None,
            log=tuple(one.log),
            processes=observer_files.processes(one.host.folder.facts),
            others=one.others,
        )

    def _client(self, *words: str) -> Any:
        return run([self._engine.client.path, *words], env=self._engine.cli_env, timeout=COMMAND_SECONDS)
