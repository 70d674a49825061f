"""What all verbs share at the command line: flags that are checked, failures that exit with their code, JSON.

The verbs are plain invoke tasks, so ``invoke build`` in an activated environment, ``./invoke build`` in a checkout and
``trainwright build`` after ``pip install trainwright`` are the same program.
"""

from __future__ import annotations

import errno
import functools
import inspect
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec

from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.parser.context import ParserContext
from invoke.parser.parser import Parser
from invoke.program import Program
from invoke.tasks import Task, task

from trainwright import __version__
from trainwright.errors import BuildFailed, Failure, RequestError, nearest

P = ParamSpec("P")


def use_catalog(folder: str | None) -> None:
    """Make a user's folder of image lines and components (``--catalog``) the one of this run."""
    if folder:
        os.environ["TRAINWRIGHT_CATALOG"] = folder


def say(text: str) -> None:
    """Tell the user what goes on. Standard error, so that ``--json`` has standard output for itself."""
    sys.stderr.write(f"· {text}\n")  # in one piece: threads tell of what they do, too
    sys.stderr.flush()


def print_json(document: Mapping[str, Any]) -> None:
    """The one JSON document of a ``--json`` run."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def report_failure(failure: Failure, as_json: bool) -> None:
    """Show a failure: what is wrong, the reasons, the offers, the remedy."""
    if as_json:
        print_json(failure.as_json())
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
    print("\n".join(lines), file=sys.stderr)


def verb(**options: Any) -> Callable[[Callable[P, None]], Task[Callable[P, None]]]:
    """An invoke task whose failures end the program with their exit code; see :mod:`trainwright.errors`.

    Args:
        options: as for :func:`invoke.task`.
    """

    def decorate(function: Callable[P, None]) -> Task[Callable[P, None]]:
        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            # A killed job must undo what it began, like an interrupted one.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            try:
                function(*args, **kwargs)
            except Failure as failure:
                report_failure(failure, bool(kwargs.get("json")))
                raise Exit(code=failure.exit_code) from None
            except BrokenPipeError:
                # The reader of a pipe went away: `./invoke list | head`.
                sys.stderr.close()
                raise Exit(code=0) from None
            except OSError as refused:
                told = _system_failure(refused)
                report_failure(told, bool(kwargs.get("json")))
                raise Exit(code=told.exit_code) from None
            except KeyboardInterrupt:
                print("interrupted", file=sys.stderr)
                raise Exit(code=130) from None

        return task(auto_shortflags=False, **options)(guarded)  # type: ignore[no-any-return]

    return decorate


def _system_failure(refused: OSError) -> Failure:
    """What to say where the system refuses a file: a full disk, a folder that cannot be written."""
    what = f"{refused.filename}: {refused.strerror}" if refused.filename else str(refused)
    if refused.errno in (errno.ENOSPC, errno.EDQUOT):
        return BuildFailed(
            f"the disk is full ({what}); nothing half-made was kept",
            remedy="df -h shows which disk; docker system df what the engine holds; then run the command again.",
        )
    return RequestError(what, remedy="TRAINWRIGHT_STATE and TRAINWRIGHT_CACHE name folders that can be written.")


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
    """The same namespace, after a look at the command line that is about to use it.

    An unknown verb or flag is an error with exit code 2 that names the nearest one; invoke itself would exit with 1
    and offer nothing. Called where ``tasks.py`` is loaded, as plain ``invoke`` leaves no later place to step in.

    Raises:
        Exit: with code 2, where the command line names an unknown verb or flag.
    """
    if Path(sys.argv[0]).name in ("invoke", "inv", "trainwright"):
        check_command_line(sys.argv[1:], namespace.to_contexts())
    return namespace


def check_command_line(words: list[str], contexts: list[ParserContext]) -> None:
    """Parse a command line as invoke will, for a better answer when it is wrong.

    Raises:
        Exit: with code 2 and the nearest verb or flag.
    """
    core = Program(version=__version__).initial_context
    try:
        rest = Parser(initial=core, ignore_unknown=True).parse_argv(words).unparsed
    except ParseError as wrong:
        raise Exit(f"error: {wrong}", code=2) from None
    if not rest:
        return
    by_name = {str(name): context for context in contexts for name in (context.name, *context.aliases)}
    if rest[0] not in by_name:
        near = nearest(rest[0], by_name) or sorted(by_name)
        raise Exit(
            f"error: no verb {rest[0]!r}. Did you mean {' or '.join(near)}?\n./invoke --list shows every verb.", code=2
        )
    try:
        Parser(contexts=contexts, initial=core).parse_argv(rest)
    except ParseError as wrong:
        raise Exit(_explain(wrong, rest, by_name), code=2) from None


def _explain(wrong: ParseError, words: list[str], by_name: Mapping[str, ParserContext]) -> str:
    context = wrong.context if wrong.context is not None and wrong.context.name else by_name[words[0]]
    unknown = next((w for w in words if w.startswith("-") and f"{w.split('=')[0]!r}" in str(wrong)), None)
    see = f"./invoke --help {context.name} shows every flag."
    lacking = re.search(r"<Argument: ([\w-]+)", str(wrong))
    if lacking:
        return f"error: {context.name}: --{lacking[1].replace('_', '-')} needs a value\n{see}"
    if unknown is None:
        return f"error: {context.name}: {wrong}\n{see}"
    near = nearest(unknown.split("=")[0], context.flags) or sorted(context.flags)
    return f"error: {context.name} has no flag {unknown.split('=')[0]}. Did you mean {' or '.join(near)}?\n{see}"


def main() -> None:
    """The ``trainwright`` command of an installed package."""
    from trainwright.verbs import namespace

    try:
        program = Program(name="trainwright", binary="trainwright", namespace=checked(namespace), version=__version__)
    except Exit as wrong:
        print(wrong.message, file=sys.stderr)
        sys.exit(wrong.code)
    program.run()
