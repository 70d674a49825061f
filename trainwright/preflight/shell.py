"""The Python scripts that a shell script starts, and by which launcher. Nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

# A command of the line → the distribution that starts processes as it does; {}: one process.
_LAUNCHERS = {
    "torchrun": "torch_distributed",
    "torch.distributed.run": "torch_distributed",
    "torch.distributed.launch": "torch_distributed",
    "accelerate": "torch_distributed",
    "deepspeed": "torch_distributed",
    "mpirun": "mpi",
    "horovodrun": "mpi",
}
_PYTHON = re.compile(r"(.*/)?(python[0-9.]*|torchrun|accelerate|deepspeed|mpirun|horovodrun)")
# Of a path in the container, or of a variable, what follows is in the folder of the job.
_PREFIX = re.compile(r"^(/opt/ml/(code|input/data/code)/|\$\{?\w+\}?/|\./)+")


@dataclass(frozen=True)
class Started:
    """A command that starts a script.

    Attributes:
        line: of the shell script.
        script: the Python script, relative to the job's folder.
        distribution: the key of ``distribution`` that starts processes in the same way; empty for one process.
    """

    line: int
    script: str
    distribution: str


def started_by(text: str) -> list[Started]:
    """Return the Python scripts that a text of the shell starts, each once, in order."""
    found: dict[str, Started] = {}
    for line, command in _commands(text):
        words = _words(command)
        start = next((i for i, word in enumerate(words) if _PYTHON.fullmatch(word)), None)
        if start is None:
            continue
        script = next((word for word in words[start + 1 :] if word.endswith(".py")), None)
        if script is None:
            continue
        script = _PREFIX.sub("", script)
        launcher = next((_LAUNCHERS[name] for name in map(_base, words[start:]) if name in _LAUNCHERS), "")
        found.setdefault(script, Started(line, script, launcher))
    return list(found.values())


def _base(word: str) -> str:
    return PurePosixPath(word).name


def _commands(text: str) -> Iterator[tuple[int, str]]:
    """Yield each command with its first line; a backslash joins lines."""
    whole, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        if line.rstrip().endswith("\\"):
            whole += line.rstrip()[:-1] + " "
            continue
        whole += line
        for command in re.split(r"&&|\|\||[;|]", whole):
            yield first, command
        whole, first = "", 0
    if whole:
        yield first, whole


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command, comments=True)
    except ValueError:  # a quote that another line closes
        return command.split()
