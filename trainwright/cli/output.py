"""What a verb shows: answers, documents and files on standard output; progress and failures on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from trainwright.core.errors import Failure
from trainwright.core.paths import data_root
from trainwright.core.terminal import for_terminal
from trainwright.core.text import for_people, hidden, printable

_OUR_NAME = "./invoke"  # in every text of ours
_PAGE = r"(?<![\w/.-])(?:docs/[\w-]+|CONTRIBUTING)\.md\b"
_called = [_OUR_NAME]  # what the user typed in its place


class Ended(Exception):
    """A verb that has shown what it has to show, and ends with an exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def called_by(*, checkout: bool) -> None:
    """From here on texts name the program as it was called: ``./invoke``, or ``trainwright`` where it is installed."""
    _called[0] = _OUR_NAME if checkout else "trainwright"


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
        mute(sys.stderr)


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


def mute(stream: TextIO) -> None:
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
            mute(sys.stdout)
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
