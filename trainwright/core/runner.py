"""Runs external commands; a journal records arguments, seconds and exit status.

Nothing else in the package imports :mod:`subprocess`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from trainwright.core.masking import mask, masked
from trainwright.core.paths import state_dir
from trainwright.core.processes import lives, pid_of

FINISH_SECONDS = 60.0  # that an interruption waits for a command
JOURNAL_LIMIT = 2_000_000  # bytes after which the journal starts anew (the old one is kept once)


@contextmanager
def interruptions(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM with ``handler`` in this block; outside of the main thread none arrive anyway.

    Args:
        handler: as of :func:`signal.signal`. Child processes inherit ``SIG_IGN``, but no function.
    """
    try:
        before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread
        before = {}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@dataclass(frozen=True)
class Completed:
    """A finished command. ``stdout`` and ``stderr`` are empty if they were not captured."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the command exited with 0."""
        return self.returncode == 0

    def tail(self, lines: int = 20) -> str:
        """The last lines of standard error, else of standard output; secrets are masked."""
        return mask("\n".join((self.stderr.strip() or self.stdout.strip()).splitlines()[-lines:]))


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
    finish: bool = False,
) -> Completed:
    """Run a command to its end and capture its output; never raises for an exit status.

    Args:
        argv: program and arguments; no shell.
        env: variables in addition to this process's.
        stdin: text for standard input (default: empty).
        timeout: seconds after which the command is killed, with status 124.
        finish: on Ctrl-C, wait for the command to end. For commands that create a container or a network: if the
            client is interrupted, the engine still creates it, and no clean-up sees it.

    Returns:
        The finished command, with status 127 if the program does not exist and 126 if it cannot be run.
    """
    started = time.monotonic()
    merged = {**os.environ, **env} if env else None
    deferred: list[int] = []  # a process whose start is interrupted would keep running unnoticed
    try:
        with interruptions(lambda number, _: deferred.append(number)) if finish else nullcontext():
            process = subprocess.Popen(  # noqa: S603 - argv comes from this package
                list(argv),
                env=merged,
                cwd=cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                # A terminal sends Ctrl-C to the whole group.
                start_new_session=finish,
            )
        with process:
            try:
                for number in deferred:
                    signal.raise_signal(number)
                out, err = process.communicate(stdin or "", timeout=timeout)
            except KeyboardInterrupt:
                if finish:
                    process.wait(FINISH_SECONDS)
                raise
            finally:
                if process.poll() is None:
                    process.kill()
            code = process.returncode
    except FileNotFoundError:
        code, out, err = 127, "", f"{argv[0]}: not found"
    except PermissionError as denied:
        code, out, err = 126, "", f"{argv[0]}: {denied.strerror}"
    except subprocess.TimeoutExpired as late:
        out = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        code, err = 124, f"{argv[0]}: timed out after {timeout:.0f} s"
    completed = Completed(tuple(argv), code, out, err, time.monotonic() - started)
    _journal(completed)
    return completed


def attached(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> int:
    """Run a command on this process's own standard streams, and return its exit status.

    A terminal sends Ctrl-C to the command as well, which decides what it means; without one, it is passed on.

    Returns:
        As of :func:`run`; 128 plus the number of a signal that ended the command.
    """
    started, merged = time.monotonic(), {**os.environ, **env} if env else None
    with subprocess.Popen(list(argv), env=merged) as process:  # noqa: S603 - argv comes from this package
        while True:
            try:
                code = process.wait()
                break
            except KeyboardInterrupt:
                if not os.isatty(0):
                    process.send_signal(signal.SIGINT)
    code = code if code >= 0 else 128 - code
    _journal(Completed(tuple(argv), code, "", "", time.monotonic() - started))
    return code


class Stream:
    """A running command whose output is read line by line; see :func:`stream`."""

    def __init__(self, process: subprocess.Popen[str], argv: tuple[str, ...]) -> None:
        self._process = process
        self._started = time.monotonic()
        self.argv = argv

    def lines(self) -> Iterator[str]:
        """The lines of standard output and standard error, interleaved, without line ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line.rstrip("\n")

    def wait(self) -> Completed:
        """Wait for the end. The result has no output; that came from :meth:`lines`."""
        code = self._process.wait()
        completed = Completed(self.argv, code, "", "", time.monotonic() - self._started)
        _journal(completed)
        return completed

    def stop(self, grace: float = 10.0) -> None:
        """End the command and its children: SIGINT first, SIGKILL after ``grace`` seconds."""
        if self._process.poll() is not None:
            return
        self._signal(signal.SIGINT)
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


@contextmanager
def stream(argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Iterator[Stream]:
    """Start a command in its own process group and read it while it runs; it is stopped on exit.

    A Ctrl-C in this process therefore reaches the command once, through :meth:`Stream.stop`.

    Raises:
        FileNotFoundError: the program does not exist.
    """
    process = subprocess.Popen(  # noqa: S603 - argv comes from this package
        list(argv),
        env={**os.environ, **env} if env else None,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    running = Stream(process, tuple(argv))
    try:
        yield running
    finally:
        running.stop()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def piped(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> Iterator[IO[bytes]]:
    """The standard output of a command as bytes, while it runs; it is ended when the reader is done with it.

    What the command says on standard error is lost; a reader sees that its output ends early.

    Raises:
        FileNotFoundError: the program does not exist.
    """
    started = time.monotonic()
    with subprocess.Popen(  # noqa: S603 - argv comes from this package
        list(argv),
        env={**os.environ, **env} if env else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.stdout.close()
            process.terminate()
    _journal(Completed(tuple(argv), process.returncode, "", "", time.monotonic() - started))


class Child:
    """A command that runs beside this process; see :func:`spawn`."""

    def __init__(self, process: subprocess.Popen[bytes], argv: tuple[str, ...]) -> None:
        self._process = process
        self._started = time.monotonic()
        self.argv = argv

    @property
    def pid(self) -> int:
        """The number of the process, which is that of its session."""
        return self._process.pid

    def ended(self) -> Completed | None:
        """The finished command, without its output; ``None`` while it runs. A signal's status is 128 and its number."""
        code = self._process.poll()
        if code is None:
            return None
        code = code if code >= 0 else 128 - code
        completed = Completed(self.argv, code, "", "", time.monotonic() - self._started)
        _journal(completed)
        return completed


def spawn(argv: Sequence[str], *, out: Path, log: Path) -> Child:
    """Start a command in a session of its own: a Ctrl-C in this process does not reach it. :func:`end` ends it.

    Args:
        argv: program and arguments; no shell.
        out: gets its standard output.
        log: gets its standard error.

    Raises:
        OSError: the program or a file cannot be opened.
    """
    with out.open("wb") as answers, log.open("wb") as said:
        process = subprocess.Popen(  # noqa: S603 - argv comes from this package
            list(argv), stdin=subprocess.DEVNULL, stdout=answers, stderr=said, start_new_session=True
        )
    return Child(process, tuple(argv))


def end(processes: Iterable[str], grace: float = FINISH_SECONDS) -> None:
    """End processes that were started with :func:`spawn`, by this process or by one that was killed.

    Each is asked to end (SIGTERM), so that it ends what it has started itself. What has not ended after ``grace``
    seconds is killed with its group; so is everything if the wait is interrupted.

    Args:
        processes: as :func:`trainwright.core.processes.described` describes them; those that do not run any more, or
            are not known here, are left alone.
        grace: seconds to wait.
    """
    left = [process for process in processes if lives(process)]
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(pid_of(process), signal.SIGTERM)
    limit = time.monotonic() + grace
    try:
        while (left := [process for process in left if lives(process)]) and time.monotonic() < limit:
            time.sleep(0.05)
    finally:
        for process in left:
            with suppress(ProcessLookupError):
                os.killpg(pid_of(process), signal.SIGKILL)


def detach(argv: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None) -> int:
    """Start a daemon in its own session, with its output appended to ``log``; returns its pid."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(  # noqa: S603 - argv comes from this package
            list(argv),
            env={**os.environ, **env} if env else None,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return process.pid


# Set by tests that check which commands were run; called with every finished command.
observer: Callable[[Completed], None] | None = None


def _journal(done: Completed) -> None:
    if observer is not None:
        observer(done)
    path = state_dir() / "commands.jsonl"
    try:
        if path.exists() and path.stat().st_size > JOURNAL_LIMIT:
            path.replace(path.with_suffix(".old.jsonl"))
        with path.open("a") as out:
            row = {"argv": masked(done.argv), "exit": done.returncode, "seconds": round(done.seconds, 3)}
            out.write(json.dumps(row) + "\n")
    except OSError:
        # A full disk must not hide the result of the command itself.
        return
