"""What all verbs share at the command line: flags that are checked, failures that exit with their code, JSON.

The verbs are plain invoke tasks, so ``invoke build`` in an activated environment, ``./invoke build`` in a checkout and
``trainwright build`` after ``pip install trainwright`` are the same program.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TextIO

from invoke.collection import Collection
from invoke.exceptions import Exit
from invoke.tasks import Task, task

from trainwright import __version__
from trainwright.cli.parser import check_command_line, verbs_program
from trainwright.core.errors import Failure, RequestError
from trainwright.core.faults import as_failure
from trainwright.core.text import for_people, hidden, printable

P = ParamSpec("P")
INTERRUPTED = 130


def use_catalog(folder: str | None) -> None:
    """Make a user's folder of image lines and components (``--catalog``) the one of this run."""
    if folder:
        os.environ["TRAINWRIGHT_CATALOG"] = folder


def say(text: str) -> None:
    """Tell the user what goes on. Standard error, so that ``--json`` has standard output for itself."""
    complain(f"· {text}")


def complain(text: str) -> None:
    """A line or more on standard error, in one piece as threads write there, too; what cannot be written is lost."""
    try:
        sys.stderr.write(f"{for_people(text)}\n")
        sys.stderr.flush()
    except OSError:
        _mute(sys.stderr)


def answer(text: str) -> None:
    """What a verb has to show, on standard output. Files and servers are quoted in it, so no character of it moves the
    cursor or turns the text around."""
    print(printable(text))


def artifact(text: str) -> None:
    """A file that a verb makes, on standard output: as it is, but for a terminal."""
    print(printable(text) if sys.stdout.isatty() else text, end="")


def print_json(document: Mapping[str, Any]) -> None:
    """The one JSON document of a ``--json`` run."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    for char in hidden(text, allowed="\n"):
        text = text.replace(char, json.dumps(char)[1:-1])
    print(text)


def _mute(stream: TextIO) -> None:
    """Let what is still in a stream's buffer go nowhere; Python would try to write it once more when it ends."""
    with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def report_failure(failure: Failure, as_json: bool) -> None:
    """Show a failure: what is wrong, the reasons, the offers, the remedy."""
    if as_json:
        try:
            print_json(failure.as_json())
            sys.stdout.flush()
        except OSError:
            _mute(sys.stdout)
    lines = [f"error: {failure.message}"]
    lines += [f"  {row['constraint']}: {row['evidence']}" for row in failure.details.get("rows", ())]
    offers = failure.details.get("offers", ())
    if offers:
        lines.append("did you mean")
        lines += [f"  {offer['command']}" for offer in offers]
    if failure.details.get("last_lines") and not as_json:
        lines += [f"  | {line}" for line in failure.details["last_lines"]]
    if failure.remedy:
        lines += failure.remedy.splitlines()
    complain("\n".join(lines))


def guarded(call: Callable[[], None], *, as_json: bool, words: Sequence[str]) -> int:
    """Run something to its end and say what went wrong; the exit code (see ``docs/exit-codes.md``).

    Args:
        call: what to run.
        as_json: whether a failure is a document on standard output as well.
        words: the command line, for the report of a fault of ours.
    """
    code = 0
    try:
        try:
            call()
        except Exit as ended:
            # invoke's own errors have 1 and a message: a mistake in the request.
            code = RequestError.exit_code if ended.message and ended.code == 1 else ended.code
            if ended.message:
                complain(f"error: {ended.message}")
        sys.stdout.flush()
    except Failure as failure:
        return _failed(failure, as_json)
    except BrokenPipeError:
        # The reader of a pipe went away: `./invoke list | head`.
        _mute(sys.stdout)
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except Exception as fault:
        return _failed(as_failure(fault, list(words)), as_json)
    return code


def _failed(failure: Failure, as_json: bool) -> int:
    report_failure(failure, as_json)
    try:
        sys.stdout.flush()
    except OSError:
        _mute(sys.stdout)
    return failure.exit_code


def verb(**options: Any) -> Callable[[Callable[P, None]], Task[Callable[P, None]]]:
    """An invoke task whose failures end the program with their exit code; see :mod:`trainwright.core.errors`.

    Args:
        options: as for :func:`invoke.task`.
    """

    def decorate(function: Callable[P, None]) -> Task[Callable[P, None]]:
        @functools.wraps(function)
        def ending(*args: P.args, **kwargs: P.kwargs) -> None:
            # A killed job must undo what it began, like an interrupted one.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            as_json = bool(kwargs.get("json"))
            if code := guarded(lambda: function(*args, **kwargs), as_json=as_json, words=sys.argv[1:]):
                raise Exit(code=code)

        return task(auto_shortflags=False, **options)(ending)  # type: ignore[no-any-return]

    return decorate


# The flags by which every verb that takes a request names it.
REQUEST_FLAGS = {
    "framework": "framework: pytorch",
    "cuda": "CUDA of the image: cu124, 12.4 or cpu (default: the newest)",
    "version": "framework version, whole or its beginning: 2.6.0, 2.6",
    "python": "Python version: 3.11",
    "base": "kind of base image: debian",
    "with": "components to add, comma-separated: cuda-compiler",
    "without": "components to leave out, comma-separated: rmm,metis",
    "set": "pin a component to another version, NAME=VERSION: nccl=2.21.5 (may be repeated)",
    "allow-unproven": "try a version that is newer than the data, from the nearest image line",
    "with-requirements": "a requirements file; its packages are installed last",
    "code": "a folder that is baked into /opt/ml/code (an estimator's source_dir is then ignored)",
    "entry-point": "the script in --code that `train` runs",
    "allow-secrets": "let files into the image that look like credentials (.env, .netrc, *.pem, ...)",
    "catalog": "a folder of your own with images/ and templates/components/, on top of the shipped ones",
    "site": "where things come from here, a TOML file (default: trainwright.toml, if there is one)",
}
CATALOG_HELP = REQUEST_FLAGS["catalog"]
JSON_HELP = "print one JSON document on standard output"


def request_verb(
    help: Mapping[str, str] | None = None,
    **options: Any,
) -> Callable[[Callable[..., None]], Task[Callable[..., None]]]:
    """A verb that takes a request: its function gets the request's flags as one mapping, its own flags by name.

    Args:
        help: help for the verb's own flags.
        options: as for :func:`invoke.task`.
    """

    def decorate(function: Callable[..., None]) -> Task[Callable[..., None]]:
        parameters = list(inspect.signature(function).parameters.values())
        flags = [flag.replace("-", "_") + ("_" if flag in ("with", "set") else "") for flag in REQUEST_FLAGS]
        defaults = {"allow_unproven": False, "allow_secrets": False}
        iterable = [*options.pop("iterable", ()), "set_"]

        def takes_flags(c: Any, **given: Any) -> None:
            words = {name: given.pop(name) for name in flags}
            function(c, words, **given)

        takes_flags.__name__, takes_flags.__doc__ = function.__name__, function.__doc__
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        takes_flags.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [parameters[0], *(inspect.Parameter(n, kind, default=defaults.get(n)) for n in flags), *parameters[2:]]
        )
        return verb(help={**REQUEST_FLAGS, **(help or {})}, iterable=iterable, **options)(takes_flags)

    return decorate


def checked(namespace: Collection) -> Collection:
    """The same namespace, after a look at the command line that plain ``invoke`` is about to use it for.

    Called where ``tasks.py`` is loaded, as plain ``invoke`` leaves no later place to step in; our own program
    (:func:`run`) looks for itself.

    Raises:
        Exit: with code 2, where the command line is wrong.
    """
    called = Path(sys.argv[0])
    if called.name in ("invoke", "inv") or (called.name, called.parent.name) == ("__main__.py", "invoke"):
        words = sys.argv[1:]
        check = functools.partial(check_command_line, words, namespace.to_contexts(), finding=True)
        if code := guarded(check, as_json="--json" in words, words=words):
            raise Exit(code=code)
    return namespace


def run(words: Sequence[str], namespace: Callable[[], Collection], *, checkout: bool) -> int:
    """The whole program in this process: parse a command line, run its verb, say what went wrong.

    Args:
        words: what follows the name of the program.
        namespace: gives the verbs; called where a fault in loading them is reported as any other.
        checkout: whether the program is called as ``./invoke``.

    Returns:
        The exit code; see ``docs/exit-codes.md``. Nothing is raised.
    """
    # A stream that the caller closed is None; print would then take standard output for standard error.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")

    def perform() -> None:
        verbs = namespace()
        check_command_line(words, verbs.to_contexts())
        verbs_program(verbs, __version__, checkout=checkout).perform(words)

    return guarded(perform, as_json="--json" in words, words=words)
