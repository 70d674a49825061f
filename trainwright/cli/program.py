"""What all verbs share at the command line: flags that are checked, failures that exit with their code, JSON.

The verbs are plain invoke tasks, so ``invoke build`` in an activated environment, ``./invoke build`` in a checkout and
``trainwright build`` after ``pip install trainwright`` are the same program.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trainwright import __version__
from trainwright.core.errors import Failure, RequestError
from trainwright.core.faults import as_failure
from trainwright.core.paths import data_root
from trainwright.core.terminal import for_terminal
from trainwright.core.text import for_people, hidden, printable

if TYPE_CHECKING:
    from invoke.collection import Collection

    from trainwright.cli.flags import Shelf, Verb

INTERRUPTED = 130
_COMPLETE = "__complete"  # what the scripts of shells call
# What asks for a page of help as the first word; and anywhere.
_FIRST = {_COMPLETE, "help", "version", "--version", "-V", "--list", "-l"}
_ANYWHERE = {"--help", "-h"}
_OUR_NAME = "./invoke"  # in every text of ours
_PAGE = r"(?<![\w/.-])(?:docs/[\w-]+|CONTRIBUTING)\.md\b"
_called = [_OUR_NAME]  # what the user typed in its place


class Ended(Exception):
    """A verb that has shown what it has to show, and ends with an exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def use_catalog(folder: str | None) -> None:
    """Make a user's folder of image lines and components (``--catalog``) the one of this run."""
    if folder:
        os.environ["TRAINWRIGHT_CATALOG"] = folder


def _asks(words: Sequence[str]) -> bool:
    """Whether a command line may ask for a page: only then is what makes pages loaded."""
    return not words or words[0] in _FIRST or not _ANYWHERE.isdisjoint(words)


def named(text: str) -> str:
    """A text of ours as its reader needs it: an installed program is called ``trainwright``, and pages that texts name
    are in its package."""
    if by_checkout():
        return text
    text = text.replace(f"{_OUR_NAME} ", f"{_called[0]} ")
    return re.sub(_PAGE, _installed, text) if ".md" in text else text


def _installed(page: re.Match[str]) -> str:
    path = data_root() / page[0]
    return str(path) if path.is_file() else page[0]


def by_checkout() -> bool:
    """Whether this program was called as ``./invoke``."""
    return _called[0] == _OUR_NAME


def say(text: str) -> None:
    """Report progress to the user, on standard error, because ``--json`` writes its document to standard output."""
    complain(f"· {text}")


def complain(text: str) -> None:
    """A line or more on standard error, in one piece as threads write there, too; what cannot be written is lost."""
    try:
        sys.stderr.write(f"{for_terminal(for_people(named(text)), sys.stderr)}\n")
        sys.stderr.flush()
    except OSError:
        _mute(sys.stderr)


def answer(text: str) -> None:
    """What a verb has to show, on standard output. Files and servers are quoted in it, so no character of it moves the
    cursor or turns the text around."""
    print(for_terminal(printable(named(text)), sys.stdout))


def artifact(text: str) -> None:
    """A file that a verb makes, on standard output: as it is, but for a terminal."""
    print(printable(text) if sys.stdout.isatty() else text, end="")


def print_json(document: Mapping[str, Any], *, ours: bool = False) -> None:
    """The one JSON document of a ``--json`` run; ``ours``: all of its texts are this program's own."""
    text = json_text(document)
    print(named(text) if ours else text)


def json_text(document: Mapping[str, Any]) -> str:
    """A document as JSON in which hidden characters are escaped."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    for char in hidden(text, allowed="\n"):
        text = text.replace(char, json.dumps(char)[1:-1])
    return text


def _mute(stream: TextIO) -> None:
    """Discard what is left in a stream's buffer; Python would otherwise try to write it again at exit."""
    with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def report_failure(failure: Failure, as_json: bool) -> None:
    """Show a failure: what is wrong, the reasons, the offers, the remedy."""
    if as_json:
        try:
            print_json(failure.as_json(), ours=True)
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
        _mute(sys.stdout)
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
        _mute(sys.stdout)
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

    from trainwright.cli.parser import check_command_line, with_flags

    called = Path(sys.argv[0])
    if called.name in ("invoke", "inv") or (called.name, called.parent.name) == ("__main__.py", "invoke"):
        contexts = namespace.to_contexts()
        words = with_flags(sys.argv[1:], contexts)
        if words != sys.argv[1:] or _asks(words):  # plain invoke cannot, but our own program can
            raise Exit(code=run(sys.argv[1:], shelf, lambda: namespace, checkout=True))
        check = functools.partial(check_command_line, words, contexts, finding=True)
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

    _called[0] = _OUR_NAME if checkout else "trainwright"

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
