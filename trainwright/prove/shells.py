"""Where the commands of image tests run: in a container, or in the build step that the tests run in themselves.

In a build step nothing of Trainwright is there but this module, :mod:`trainwright.prove.image_testing` and what that
imports (:mod:`trainwright.prove.in_build` says which files), so nothing else is imported when this one is.
"""

from __future__ import annotations

import base64
import os
import shlex
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

COMMAND_SECONDS = 120
_LAST_WORDS = 5


class Shell(Protocol):
    """What runs commands."""

    def run(self, command: str, seconds: float = COMMAND_SECONDS) -> tuple[int, bytes, bytes]:
        """Exit status, output and errors of a shell command; 124 if it timed out."""


class ContainerDied(RuntimeError):
    """The container, or its engine, stopped while it was being tested."""


class ContainerShell:
    """One shell that stays open in a container: a command takes about 15 ms, instead of 100 ms with ``docker exec``.

    Each command runs in a subshell without standard input; its output is returned in base64, so that any bytes work.
    """

    def __init__(self, client: str, container: str) -> None:
        self._argv = (client, container)
        self._open = ExitStack()
        self._last: list[str] = []

    def __enter__(self) -> ContainerShell:
        from trainwright.core.runner import stream  # not there in a build step

        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="trainwright-"))
        pipe = Path(folder, "commands")
        os.mkfifo(pipe, 0o600)
        # Opened for reading as well, so that neither side waits for the other to open its end.
        both_ends = os.open(pipe, os.O_RDWR)
        script = 'exec "$0" exec -i "$1" /bin/sh < "$2"'
        try:
            running = self._open.enter_context(stream(["/bin/sh", "-c", script, *self._argv, str(pipe)]))
            self._lines = running.lines()
            os.write(both_ends, b"echo ready\n")
            self._until("ready")
            self._pipe = self._open.enter_context(pipe.open("wb", buffering=0))
        except BaseException:
            self._open.close()
            raise
        finally:
            os.close(both_ends)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def run(self, command: str, seconds: float = COMMAND_SECONDS) -> tuple[int, bytes, bytes]:
        """Exit status, output and errors of a shell command; 124 if it timed out.

        Raises:
            ContainerDied: the shell ended.
        """
        marker = uuid.uuid4().hex
        line = (
            f"d=$(mktemp -d); timeout -k 5 {seconds:g} /bin/sh -c {shlex.quote(command)} </dev/null >$d/1 2>$d/2; "
            f"c=$?; base64 -w0 $d/1; echo; base64 -w0 $d/2; echo; rm -rf $d; echo {marker} $c\n"
        )
        try:
            self._pipe.write(line.encode())
        except OSError:
            raise self._died() from None
        status = int(self._until(marker).split()[1])
        out, err = (base64.b64decode(text) for text in self._last[-3:-1])
        return status, out, err

    def _until(self, word: str) -> str:
        self._last = []
        for line in self._lines:
            self._last.append(line)
            if line.startswith(word):
                return line
        raise self._died()

    def _died(self) -> ContainerDied:
        said = "; ".join(self._last[-_LAST_WORDS:])
        return ContainerDied(f"the container {self._argv[1][:12]} exited during the tests{': ' + said if said else ''}")


class StepShell:
    """The commands of image tests that run in a build step: with the environment of the image, nothing of the runner's.

    Output goes into files, so that a server which a command leaves behind holds nothing up.
    """

    def __init__(self, environment: Mapping[str, str], folder: str = "/") -> None:
        self._environment = dict(environment)
        self._folder = folder

    def run(self, command: str, seconds: float = COMMAND_SECONDS) -> tuple[int, bytes, bytes]:
        """As :meth:`ContainerShell.run`."""
        # timeout(1) ends the processes of the command as well, which a signal to the shell alone would not.
        argv = ["timeout", "-k", "5", f"{seconds:g}", "/bin/sh", "-c", command]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            done = subprocess.run(  # noqa: S603 - what runs programs otherwise is not there in a build step
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env=self._environment,
                cwd=self._folder,
                check=False,
            )
            out.seek(0)
            errors.seek(0)
            # A shell says 128 more than the number of the signal that ended a program.
            status = done.returncode if done.returncode >= 0 else 128 - done.returncode
            return status, out.read(), errors.read()
