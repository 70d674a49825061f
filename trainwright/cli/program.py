"""The whole program: a command line that is checked, its verb, and failures that exit with their code.

The verbs are plain invoke tasks, so ``invoke build`` in an activated environment, ``./invoke build`` in a checkout and
``trainwright build`` after ``pip install trainwright`` are the same program.
"""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright import __version__
from trainwright.cli.output import Ended, called_by, complain, mute, named, report_failure
from trainwright.core.errors import Failure, RequestError
from trainwright.core.faults import as_failure

if TYPE_CHECKING:
    from invoke.collection import Collection

    from trainwright.cli.flags import Shelf, Verb

INTERRUPTED = 130
_COMPLETE = "__complete"  # what the scripts of shells call
# What asks for a page of help as the first word; and anywhere.
_FIRST = {_COMPLETE, "help", "version", "--version", "-V", "--list", "-l"}
_ANYWHERE = {"--help", "-h"}


def _asks(words: Sequence[str]) -> bool:
    """Whether a command line may ask for a page: only then is what makes pages loaded."""
    return not words or words[0] in _FIRST or not _ANYWHERE.isdisjoint(words)


def guarded(call: Callable[[], None], *, as_json: bool, words: Sequence[str]) -> int:
    """Run something to its end and say what went wrong; the exit code (see ``docs/exit-codes.md``).

    Args:
        call: what to run.
        as_json: whether a failure is a document on standard output as well.
        words: the command line, for the crash report.
    """
    code = 0
    try:
        try:
            call()
        except Ended as ended:
            code = ended.code
        except _exits() as ended:
            # invoke's own errors have 1 and a message: a mistake in the request.
            code = RequestError.exit_code if ended.message and ended.code == 1 else ended.code
            if ended.message:
                complain(f"error: {ended.message}")
        sys.stdout.flush()
    except Failure as failure:
        return _failed(failure, as_json)
    except BrokenPipeError:
        # The reader of a pipe went away: `./invoke list | head`.
        mute(sys.stdout)
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except Exception as fault:
        return _failed(as_failure(fault, list(words)), as_json)
    return code


def _exits() -> Any:
    """invoke's exception for an exit code, where invoke is loaded and can raise it."""
    loaded = sys.modules.get("invoke.exceptions")
    return loaded.Exit if loaded else ()


def _failed(failure: Failure, as_json: bool) -> int:
    report_failure(failure, as_json)
    try:
        sys.stdout.flush()
    except OSError:
        mute(sys.stdout)
    return failure.exit_code


def _for_verb(verb: Verb[Any] | None, failure: Failure) -> Failure:
    """A failure whose offers are for the verb in hand: who plans is not offered builds, which take minutes."""
    if verb is None or "allow_unproven" not in verb.record.__struct_fields__:
        return failure

    def of_it(text: str) -> str:
        return text.replace("./invoke build --framework", f"./invoke {verb.name} --framework")

    failure.remedy = of_it(failure.remedy)
    if offers := failure.details.get("offers"):
        offers = [{**offer, "command": of_it(offer["command"])} for offer in offers]
        failure.details = {**failure.details, "offers": offers}
    return failure


def checked(namespace: Collection, shelf: Shelf) -> Collection:
    """The same namespace, after a look at the command line that plain ``invoke`` is about to use it for.

    What invoke cannot parse or would show a page of its own for, our own program runs.

    Called where ``tasks.py`` is loaded, as plain ``invoke`` leaves no later place to step in; our own program
    (:func:`run`) looks for itself.

    Raises:
        Exit: with code 2, where the command line is wrong.
    """
    from invoke.exceptions import Exit

    from trainwright.cli.parser import after_finding, check_command_line, with_flags

    called = Path(sys.argv[0])
    if called.name in ("invoke", "inv") or (called.name, called.parent.name) == ("__main__.py", "invoke"):
        contexts = namespace.to_contexts()
        given = after_finding(sys.argv[1:])
        words = with_flags(given, contexts)
        if words != given or _asks(words):  # plain invoke cannot, but our own program can
            raise Exit(code=run(given, shelf, lambda: namespace, checkout=True))
        check = functools.partial(check_command_line, sys.argv[1:], contexts, finding=True)
        if code := guarded(check, as_json="--json" in words, words=words):
            raise Exit(code=code)
    return namespace


def run(words: Sequence[str], shelf: Shelf, namespace: Callable[[], Collection], *, checkout: bool) -> int:
    """The whole program in this process: parse a command line, run its verb, say what went wrong.

    Args:
        words: what follows the name of the program.
        shelf: the verbs, each loaded when it is asked for.
        namespace: gives the verbs as tasks of invoke; called where a fault in loading them is reported as any other.
        checkout: whether the program is called as ``./invoke``.

    Returns:
        The exit code; see ``docs/exit-codes.md``. Nothing is raised.
    """
    # A stream that the caller closed is None; print would then take standard output for standard error.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")

    called_by(checkout=checkout)

    def perform() -> None:
        from trainwright.cli import plain

        if words and words[0] == _COMPLETE:
            from trainwright.cli.completion import candidates

            for each in candidates(words[1:], shelf):  # an empty line would be an offer, and bash then names no files
                print(each)
            return
        if _asks(words):
            from trainwright.cli.pages import page_of

            if page := page_of(words, shelf):
                print(named(page))
                return
        if taken := plain.take(words, shelf.find):
            verb, said = taken
            verb.run(said)
            return
        from trainwright.cli.parser import check_command_line, verbs_program, with_flags

        verbs = namespace()
        contexts = verbs.to_contexts()
        given = with_flags(words, contexts)
        check_command_line(given, contexts)
        verbs_program(verbs, __version__, checkout=checkout).perform(given)

    def attempt() -> None:
        try:
            perform()
        except Failure as failure:
            raise _for_verb(shelf.find(words[0]) if words else None, failure) from failure.__cause__

    return guarded(attempt, as_json="--json" in words, words=words)
