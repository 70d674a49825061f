"""The Python scripts that a shell script starts, by which launcher and with which options. Nothing is run."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
_MODULE = ("-m", "--module")
# Of a path in the container, or of a variable, what follows is in the folder of the job.
_PREFIX = re.compile(r"^(/opt/ml/(code|input/data/code)/|\$\{?\w+\}?/|\$\(dirname [^)]*\)/|\./)+")
_ASSIGNED = re.compile(r"\w+=.*", re.ASCII | re.S)
_DECLARES = ("export", "readonly", "declare", "local", "then", "else", "do")
_ALL = ("$@", "$*")
_OPTION = re.compile(r"(--?)([A-Za-z][\w-]*)(?:=(.*))?", re.ASCII | re.S)
_SEVERAL = re.compile(r"arg|opt|extra|flag|param|@", re.I)


@dataclass(frozen=True)
class Started:
    """A command that starts a script.

    Attributes:
        line: of the shell script.
        script: the Python script or the module, as the command names it.
        places: where it may be, relative to the job's folder, the likeliest first.
        distribution: the key of ``distribution`` that starts processes in the same way; empty for one process.
        options: its options without dashes; None where there is not one value, or one that cannot be seen.
        forwards: it gets what the job passes, too: ``"$@"``.
        unclear: it gets words whose meaning cannot be seen, such as ``$ARGS``.
        module: it is started as a module, by ``-m``.
        otherwise: what is started if that module is not the job's: ``-m cProfile train.py``.
    """

    line: int
    script: str
    places: tuple[str, ...]
    distribution: str = ""
    options: Mapping[str, str | None] = field(default_factory=dict)
    forwards: bool = False
    unclear: bool = False
    module: bool = False
    otherwise: Started | None = None

    @property
    def values(self) -> dict[str, str]:
        """The options that have one known value."""
        return {name: value for name, value in self.options.items() if value is not None}


def started_by(text: str) -> list[Started]:
    """Return the Python scripts that a text of the shell starts, each once, in order."""
    found: dict[tuple[str, ...], Started] = {}
    known, folder = _constants(text), ""
    for line, command in _commands(text):
        words = _words(_expanded(command, known))
        if words[:1] in (["cd"], ["pushd"], ["popd"]):
            folder = _entered(folder, words[1:])
            continue
        start = next((i for i, word in enumerate(words) if _PYTHON.fullmatch(word)), None)
        made = _started(line, words[start:], 1, folder) if start is not None else None
        if made is not None:
            found.setdefault(made.places, made)
    return list(found.values())


def _started(line: int, words: Sequence[str], first: int, folder: str) -> Started | None:
    """Return what a command starts, as it is named after Python or a launcher; None if it starts no script."""
    for number in range(first, len(words)):
        word, module = words[number], words[number - 1] in _MODULE
        if module and word not in _LAUNCHERS:
            path = word.replace(".", "/")
            places = [*_places(folder, f"{path}.py"), *_places(folder, f"{path}/__main__.py")]
        elif word.endswith(".py"):
            places = _places(folder, word)
        else:
            continue
        otherwise = _started(line, words, number + 1, folder) if module else None
        launcher = next((_LAUNCHERS[name] for name in map(_base, words[:number]) if name in _LAUNCHERS), "")
        options, forwards, unclear = _options(words[number + 1 :])
        return Started(line, word, tuple(places), launcher, options, forwards, unclear, module, otherwise)
    return None


def _places(folder: str, word: str) -> list[str]:
    """Return where a script may be: below the folder that was entered, and below that of the job."""
    below = _PREFIX.sub("", word)
    absolute = word.startswith(("/", "$"))
    return list(dict.fromkeys([below] if absolute else [posixpath.normpath(posixpath.join(folder, below)), below]))


def _entered(folder: str, words: Sequence[str]) -> str:
    """Return the folder that ``cd`` enters, relative to that of the job, which it is as well if that is unknown."""
    word = words[0] if words else "$HOME"
    below = _PREFIX.sub("", f"{word}/")
    if below.startswith(("/", "$", "-", "~")):
        return ""
    entered = posixpath.normpath(posixpath.join("" if word.startswith(("/", "$")) else folder, below))
    return "" if entered == "." or entered.startswith("..") else entered


def _options(words: Sequence[str]) -> tuple[dict[str, str | None], bool, bool]:
    """Return the options among the words after a script, whether it gets those of the job, and others as well."""
    found: dict[str, list[str]] = {"": []}
    name, unclear = "", False
    for word in words:
        if re.match(r"\d?[<>]|&", word):
            break
        if (option := _OPTION.fullmatch(word)) is not None:
            name = option[2]
            found[name] = [] if option[3] is None else [option[3]]
            # `-j8` and `--n`: SageMaker gives a single letter one dash, and others two, and rules know these alone.
            unclear = unclear or (option[1] == "-") != (len(name) == 1)
        elif word not in _ALL:
            # Of `--lr $LR` it is one value; of `$ARGS`, and where a value is there already, it may be more options.
            unclear = unclear or (_hidden(word) and (not name or bool(found[name]) or bool(_SEVERAL.search(word))))
            found[name].append(word)
    known = {n: v[0] if len(v) == 1 and not _hidden(v[0]) else None for n, v in found.items() if n}
    return known, any(word in _ALL for word in words), unclear


def _hidden(word: str) -> bool:
    return "$" in word or "`" in word


def _constants(text: str) -> dict[str, str]:
    """Return the variables that a text of the shell sets once, to a value that can be seen."""
    found: dict[str, str] = {}
    for _, command in _commands(text):
        words = _words(command)
        while words[:1] and words[0] in _DECLARES:
            del words[0]
        if not all(map(_ASSIGNED.fullmatch, words)):
            continue
        for name, _, given in (word.partition("=") for word in words):
            once = len(re.findall(rf"(?<![\w$-]){name}\+?=|\b(?:for|read)\s+{name}\b", text)) == 1
            value = _expanded(given, found)
            if once and not re.search(r"[$`'\"\\]", value):
                found[name] = value
    return found


def _expanded(text: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda found: known.get(found[1] or found[2], found[0]), text)


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
