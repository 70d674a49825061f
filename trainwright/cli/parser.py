"""Checks the command line before a verb runs. invoke parses it; mistakes that invoke silently accepts are errors."""

# ruff: noqa: E402 - invoke is loaded without what nothing uses of it, before any of its modules is imported whole

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trainwright.core.lean import import_invoke

import_invoke()

from invoke.config import Config
from invoke.exceptions import Exit, ParseError
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.parser.parser import Parser
from invoke.program import Program

from trainwright.core.errors import RequestError, nearest
from trainwright.core.text import fits, hidden, printable

# What of invoke's own flags has a meaning for verbs that start no shell commands through invoke.
KEPT = {"complete", "help", "list", "list-depth", "list-format", "print-completion-script", "version"}
LIST_FORMATS = ("flat", "nested", "json")
# How plain `invoke` finds tasks.py.
FINDING = {"collection", "search-root"}
_WHY = {
    "config": "Trainwright does not read invoke's settings.",
    "dry": "./invoke plan, ./invoke render and ./invoke build --dry-run show what would be built, and change nothing.",
    "debug": "TRAINWRIGHT_DEBUG=1 shows the traceback of an internal fault.",
}
# Flags of earlier versions, and what to type instead.
_GONE = {("push", "--attach-sbom"): "The bill of materials is attached to every image: leave the flag out."}
# What people mean by a flag without its value, or by one that a verb does not have.
_MEANT = {
    ("report", "--catalog"): "./invoke report --lines   # a page of all lines; --catalog DIR is your own",
}
# What other programs, or other words for the same, would call a verb.
CALLED = {
    **dict.fromkeys(("inspect", "show", "info", "history", "compare"), "report"),
    **dict.fromkeys(("images", "ls", "ps"), "list --built"),
    **dict.fromkeys(("catalog", "components", "search"), "list"),
    **dict.fromkeys(("exec", "bash", "sh"), "shell"),
    **dict.fromkeys(("hold", "release", "rollback", "move", "advance"), "tags"),
    **{"dockerfile": "render", "devcontainer": "render --devcontainer", "compose": "render --compose"},
    **{"bake": "pipeline --format bake", "export": "lock --export", "test": "smoke", "check": "preflight"},
    **{"why": "explain", "resolve": "plan", "train": "rehearse", "login": "push", "clean": "gc", "prune": "gc"},
}
_REQUEST = r"[a-z-]+:[a-z0-9.-]+"  # pytorch:cu124 where a verb should be
# Flags whose value may be a document, or a variable of any text.
_SEVERAL_LINES = {"distribution", "hyperparameters", "instance-groups", "env"}
# Every whole number among the flags is a count, and no verb takes more than nine digits of one.
_NUMBERS = {
    int: ("0{0,9}[1-9][0-9]{0,8}", "not a whole number from 1"),
    float: (r"[+-]?[0-9]{1,9}(\.[0-9]{1,9})?", "not a number"),
}


class BareWords(Argument):
    """A flag whose name may be left out; invoke knows positional words only by number."""


class RestWords(Argument):
    """A flag that takes every word after ``--``."""


def after_finding(words: Sequence[str]) -> list[str]:
    """Return a command line without the flags before the verb by which plain ``invoke`` has found ``tasks.py``."""
    rest = list(words)
    while rest and rest[0].partition("=")[0] in ("-c", "--collection", "-r", "--search-root"):
        del rest[: 1 if "=" in rest[0] else 2]
    return rest


def with_flags(words: Sequence[str], contexts: Iterable[ParserContext]) -> list[str]:
    """Return a command line with the flags' names that were left out: ``preflight --path=a.py`` for ``preflight a.py``.

    Args:
        words: what follows the name of the program.
        contexts: the verbs and their flags.
    """
    start = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
    verb = next((each for each in contexts if start < len(words) and each.name == words[start]), None)
    if verb is None or "--complete" in words:
        return list(words)
    flags = {type(argument): _flag(argument) for argument in _arguments(verb)}
    end = words.index("--") if "--" in words and RestWords in flags else len(words)
    made = list(words[: start + 1])
    is_value = False
    for word in words[start + 1 : end]:
        bare = BareWords in flags and not is_value and (not word.startswith("-") or word == "-")
        is_value = not is_value and word in verb.flags and verb.flags[word].takes_value
        made.append(f"{flags[BareWords]}={word}" if bare else word)
    return [*made, *(f"{flags[RestWords]}={word}" for word in words[end + 1 :])]


def check_command_line(words: Sequence[str], contexts: Sequence[ParserContext], *, finding: bool = False) -> None:
    """Parse a command line as invoke will, for a better answer when it is wrong.

    Args:
        words: what follows the name of the program.
        contexts: the verbs and their flags; they are used up.
        finding: whether flags that say where ``tasks.py`` is are known, as those of plain ``invoke`` are.

    Raises:
        RequestError: an unknown verb or flag, with the nearest one; a flag that is given twice, without a value or with
            one that no flag of its kind takes; a flag of invoke's own that has no meaning here.
    """
    body = list(words)
    if "--" in body:
        body = body[: body.index("--")]
        if "--complete" not in body:
            raise RequestError("--: nothing may follow it", remedy="./invoke --help VERB shows every flag.")
    core = Program().initial_context
    kinds = _collect([core, *contexts])
    verbs = {str(name): context for context in contexts for name in (context.name, *context.aliases)}
    try:
        parsed = Parser(initial=core, ignore_unknown=True).parse_argv(body)
    except ParseError as wrong:
        raise RequestError(str(wrong), remedy="./invoke --help shows every flag.") from None
    allowed = KEPT | FINDING if finding else KEPT
    _check_core(parsed[0], body, kinds, allowed, None)
    _check_shown(parsed[0], verbs)
    if not parsed.unparsed or "--complete" in body:
        return
    verb = _verb(parsed.unparsed[0], verbs)
    _check_pairs(verb, parsed.unparsed)
    try:
        ran = Parser(contexts=[verb], initial=core).parse_argv(parsed.unparsed)
    except ParseError as wrong:
        raise _explained(wrong, parsed.unparsed, verb, verbs) from None
    _check_core(ran[0], parsed.unparsed, kinds, allowed, verb)
    if len(ran) > 2:
        raise RequestError(f"{verb.name} and {verb.name}: one verb at a time")
    for argument in _arguments(ran[1]):
        if argument.got_value:
            value = argument.value
            if argument.positional and value.startswith("-") and value != "-":
                raise _no_flag(value, verb)
            _check_value(_flag(argument), argument, kinds[verb.name, argument.names[0]], verb)


Kinds = Mapping[tuple[str | None, str], Any]


def _collect(contexts: Iterable[ParserContext]) -> Kinds:
    """Make every flag one that may be repeated, so that all that was given can be looked at; their own kinds."""
    kinds = {}
    for context in contexts:
        for argument in _arguments(context):
            kinds[context.name, argument.names[0]] = argument.kind
            if argument.takes_value and not argument.optional and not argument.positional:
                argument.set_value([], cast=False)
                argument.raw_value, argument.kind = None, list
    return kinds


def _arguments(context: ParserContext) -> list[Argument]:
    return list(context.args.values())


def _flag(argument: Argument) -> str:
    return f"--{str(argument.names[0]).strip('_').replace('_', '-')}"


def _see(verb: ParserContext) -> str:
    return f"./invoke --help {verb.name} shows every flag."


def _verb(word: str, verbs: Mapping[str, ParserContext]) -> ParserContext:
    if word in verbs:
        return verbs[word]
    if word.startswith("-"):
        example = "For example: ./invoke plan --framework pytorch"
        raise RequestError(f"{word.partition('=')[0]}: a verb comes first", remedy=example)
    if fits(_REQUEST, word):
        raise RequestError(f"{word}: a verb comes first", remedy=f"./invoke plan {word}   or   ./invoke build {word}")
    near = [CALLED[word]] if word in CALLED else nearest(word.replace("_", "-"), verbs)
    offer = f" Did you mean {' or '.join(near)}?" if near else ""
    raise RequestError(f"no verb {word!r}.{offer}", remedy="./invoke help all shows every verb.")


def _check_shown(core: ParserContext, verbs: Mapping[str, ParserContext]) -> None:
    """Look at the values of the flags that show something: a verb, a format."""
    asked, listed, format_ = (core.args[name].value for name in ("help", "list", "list-format"))
    if isinstance(asked, str):
        _verb(asked, verbs)
    if isinstance(listed, str):
        raise RequestError(f"--list {listed}: it takes no value", remedy=f"./invoke --help {listed}")
    if format_ and format_[0] not in LIST_FORMATS:
        raise RequestError(f"--list-format {format_[0]}: {', '.join(LIST_FORMATS)}")


def _check_core(
    core: ParserContext, words: Sequence[str], kinds: Kinds, allowed: set[str], verb: ParserContext | None
) -> None:
    """Refuse invoke's own flags where they have no meaning."""
    for argument in _arguments(core):
        if not argument.got_value:
            continue
        if argument.names[0] in allowed:
            _check_value(_flag(argument), argument, kinds[core.name, argument.names[0]])
            continue
        flags = [f"-{name}" if len(name) == 1 else f"--{name}" for name in argument.names]
        given = next((word.partition("=")[0] for word in words if word.partition("=")[0] in flags), flags[-1])
        why = _WHY.get(argument.names[0], "It is about shell commands of invoke.")
        if verb is None:
            raise RequestError(f"{given}: this flag of invoke has no meaning here", remedy=why)
        near = [flag for flag in verb.flags if flag.startswith(f"--{given.strip('-')}")]
        offer = f" Did you mean {' or '.join(near)}?" if near else ""
        raise RequestError(f"{verb.name} has no flag {given}.{offer}", remedy=_see(verb) if near else why)


def _check_pairs(verb: ParserContext, words: Sequence[str]) -> None:
    """Refuse a flag that has no value: invoke lets it pass where the flag may be repeated."""
    for word, following in zip(words, [*words[1:], None], strict=True):
        if word in verb.flags and verb.flags[word].takes_value:
            if following is None or following in verb.flags:
                meant = _MEANT.get((str(verb.name), word), _see(verb))
                raise RequestError(f"{verb.name}: {word} needs a value", remedy=meant)
            if following.startswith("--"):
                near = nearest(following.partition("=")[0], verb.flags)
                offer = f" Did you mean {' or '.join(near)}?" if near else ""
                raise RequestError(
                    f"{verb.name}: {word} needs a value, and {following.partition('=')[0]} is not a flag.{offer}",
                    remedy=f"A value that begins so is written {word}={following}",
                )


def _check_value(flag: str, argument: Argument, kind: Any, verb: ParserContext | None = None) -> None:
    values = argument.value if isinstance(argument.value, list) else [argument.value]
    texts = [value for value in values if isinstance(value, str)]
    if kind is not list and len(texts) > 1:
        remedy = "Give it once: a verb takes one at a time."
        if "comma-separated" in (argument.help or ""):
            remedy = f"In one flag: {flag} {','.join(texts)}"
        elif flag == "--request" and re.fullmatch(r"cu?[0-9.]+|cpu|[0-9.]+", texts[1]):
            remedy = f"In one word: {':'.join(texts[:2])}"
        elif flag == "--request" and verb is not None and "--component" in verb.flags:
            name, request = sorted(texts[:2], key=lambda text: ":" in text)
            remedy = f"./invoke {verb.name} {request} --component {name}"
        raise RequestError(f"{flag} is given twice: {texts[0]} and {texts[1]}", remedy=remedy)
    for text in texts:
        if not text:
            raise RequestError(f"{flag}: the value is empty", remedy="Give it a value, or leave the flag out.")
        lines = "\n\t" if flag.strip("-") in _SEVERAL_LINES else ""
        if bad := [char for char in hidden(text, allowed=lines) if unicodedata.category(char) in ("Cc", "Cs")]:
            raise RequestError(f"{flag}: a control character ({printable(bad[0], allowed='')}) in {text}")
        pattern, what = _NUMBERS.get(kind, ("", ""))
        if pattern and not fits(pattern, text):
            example = argument.default or 2
            raise RequestError(f"{flag} {text}: {what}", remedy=f"For example: {flag} {example:g}")


def _explained(
    wrong: ParseError, words: Sequence[str], verb: ParserContext, verbs: Mapping[str, ParserContext]
) -> RequestError:
    unknown = next((word for word in words[1:] if repr(word.partition("=")[0]) in str(wrong)), None)
    if lacking := re.search(r"required positional arguments: (.*)", str(wrong)):
        # invoke takes an unknown flag for the first of several words that a verb needs.
        flags = (word for word in words[1:] if word.startswith("--") and word.partition("=")[0] not in verb.flags)
        if strange := next(flags, None):
            return _no_flag(strange, verb)
        names = lacking[1].replace("'", "")
        usage = f"./invoke {verb.name} {names.replace(',', '').upper()}"
        return RequestError(f"{verb.name}: {names} is missing", remedy=f"{usage}   ({_see(verb)[:-1]})")
    if unknown is None:
        return RequestError(f"{verb.name}: {wrong}", remedy=_see(verb))
    if unknown in verbs:
        return RequestError(f"{verb.name} and {unknown}: one verb at a time")
    if unknown.startswith("-"):
        return _no_flag(unknown, verb)
    message, remedy = f"{verb.name}: unexpected word {unknown!r}; a flag begins with --", _see(verb)
    if any(isinstance(each, RestWords) for each in _arguments(verb)):
        message = f"{verb.name}: the command {unknown!r} goes behind --"
        remedy = f"./invoke {verb.name} -- {unknown} ...   ({remedy[:-1]})"
    return RequestError(message, remedy=remedy)


def _no_flag(word: str, verb: ParserContext) -> RequestError:
    flag = word.partition("=")[0]
    if (gone := _GONE.get((str(verb.name), flag))) is not None:
        return RequestError(f"{verb.name} has no flag {flag} any more", remedy=gone)
    near = nearest(flag, verb.flags)
    offer = f" Did you mean {' or '.join(near)}?" if near else ""
    return RequestError(
        f"{verb.name} has no flag {flag}.{offer}", remedy=_MEANT.get((str(verb.name), flag), _see(verb))
    )


class _NoSettings(Config):
    """invoke's settings, none of them read: its files and variables are about shell commands that no verb starts."""

    def load_base_conf_files(self) -> None:
        """Nothing from /etc or the home folder."""

    def load_shell_env(self) -> None:
        """Nothing from ``INVOKE_*``."""


class Verbs(Program):
    """invoke's program over our verbs: its parser, its executor and its help, without its settings and its net."""

    parser: Parser

    def core_args(self) -> list[Argument]:
        """invoke's flags that have a meaning here (and two that its own code looks at)."""
        return [each for each in super().core_args() if each.names[0] in KEPT | {"debug", "write-pyc"}]

    def perform(self, words: Sequence[str]) -> None:
        """Parse a command line and run its verb.

        Raises:
            Exit: after a page or a list was shown, or from a verb that sets its own exit code.
            Exception: anything that a verb raises.
        """
        self.create_config()
        try:
            self.parse_core([str(self._name), *words])
            self.parse_collection()
            self.parse_tasks()
            self.parse_cleanup()
        except ParseError as wrong:
            raise RequestError(str(wrong), remedy="./invoke --list shows every verb.") from None
        except ValueError:
            # A quote that is still open where the user asks for a completion.
            if not self.args.complete.value:
                raise
            raise Exit(code=0) from None
        self.execute()

    def task_list_opener(self, extra: str = "") -> str:  # noqa: ARG002 - invoke's
        """The heading of the list of verbs."""
        return "Verbs"


def verbs_program(namespace: Any, version: str, *, checkout: bool) -> Verbs:
    """The program over a collection of verbs.

    Args:
        namespace: the verbs.
        version: of Trainwright.
        checkout: whether it is called as ``./invoke``.
    """
    make: Callable[..., Verbs] = Verbs
    return make(
        name="Trainwright",
        binary="./invoke" if checkout else "trainwright",
        binary_names=["./invoke", "invoke", "inv"] if checkout else ["trainwright"],
        namespace=namespace,
        version=version,
        config_class=_NoSettings,
    )
