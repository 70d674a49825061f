"""A command or a shell of the user's in an image, with the working folder mounted; the container goes away with it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwright.core import runner
from trainwright.core.errors import EngineError, RequestError
from trainwright.engine.engine import Engine

FOLDER = "/workspace"  # the working folder, in the container


def enter(
    engine: Engine,
    image: str,
    command: Sequence[str],
    folder: Path,
    *,
    environment: Mapping[str, str],
    network: str | None,
    terminal: bool,
) -> int:
    """Run a command in a new container of an image, on this process's own standard streams.

    Args:
        engine: has the image; its GPUs are given to the container, if there are any.
        image: tag or id.
        command: the program and its arguments, in place of the image's own.
        folder: mounted at ``/workspace``, where the command starts. Files that it makes belong to this user.
        environment: variables of the command.
        network: ``none``, or a network of the engine (default: the engine's own).
        terminal: give the command a terminal.

    Returns:
        The command's exit status; 125 to 127 if the engine could not start it (``docker run``).

    Raises:
        RequestError: the engine has no such image.
        EngineError: the engine is on another machine, which has no such folder.
    """
    if not engine.local:
        raise EngineError(
            f"the engine at {engine.endpoint} cannot mount a folder of this machine",
            remedy="Use an engine of this machine: unset DOCKER_HOST, or docker context use default.",
        )
    if not runner.run([engine.client.path, "image", "inspect", "--format", "{{.Id}}", image], env=engine.cli_env).ok:
        raise RequestError(
            f"--image {image}: the engine has no such image",
            remedy="./invoke list --built shows the images that were built here.",
        )
    argv = [engine.client.path, "run", "--rm", "--init", "--interactive", *(["--tty"] if terminal else [])]
    # Without the label of sessions, by which doctor finds what was left over: a shell may stay open for days.
    argv += ["--name", f"trainwright-run-{uuid.uuid4().hex[:12]}", "--shm-size", "1g"]
    argv += ["--mount", _bind(folder), "--workdir", FOLDER]
    argv += ["--gpus", "all"] if engine.gpus else []
    argv += ["--network", network] if network else []
    if os.getuid():
        # The user has no home folder in the image.
        argv += ["--user", f"{os.getuid()}:{os.getgid()}", "--env", "HOME=/tmp"]
    argv += [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
    return runner.attached([*argv, "--entrypoint", command[0], image, *command[1:]], env=engine.cli_env)


def _bind(folder: Path) -> str:
    """The folder as ``--mount`` takes it, which reads a line of CSV: a name may contain a comma."""
    source = f"source={folder}".replace('"', '""')
    return f'type=bind,"{source}",target={FOLDER}'
