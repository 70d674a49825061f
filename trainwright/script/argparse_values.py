"""The arguments of a script as values: the job's hyperparameter, or the default."""

from __future__ import annotations

from trainwright.script import configurations
from trainwright.script.abstract_state import AbstractState
from trainwright.script.events import Event
from trainwright.script.known import said
from trainwright.script.option_names import spelled
from trainwright.script.paths import root_of
from trainwright.script.values import NONE, Value, unknown

NAMESPACE = "argparse.Namespace"


def parser(state: AbstractState, event: Event) -> Value:
    """``argparse.ArgumentParser(…)``."""
    return Value(made=frozenset({"argparse.ArgumentParser"}))


def passed(value: object) -> Value:
    """Return a hyperparameter as the script gets it: as text."""
    text = str(value)
    tags = {f"root:{root_of(text)}"} if "/" in text else set()
    return Value(tags=frozenset(tags), constants=(text,))


def _converted(value: Value, kind: Value | None) -> Value:
    """Return a hyperparameter as argparse converts it; other functions than these are not known."""
    converters = {"int": int, "float": float}
    if kind is None or kind.name == "str":
        return Value(tags=value.tags, constants=value.constants, sure=True)
    text = value.single()
    try:
        number = converters[kind.name](str(text))
    except (KeyError, ValueError):
        return Value(tags=value.tags if kind.name not in converters else NONE)
    return Value(constants=(number,), sure=True)


def added(state: AbstractState, event: Event) -> None:
    """Note what an argument will be, or several that a loop adds."""
    rows = spelled(event.module, event.node)
    for names in rows:
        _add(state, event, names)
    if not rows:
        state.arguments["**"] = Value()  # others, with unknown names


def _add(state: AbstractState, event: Event, names: tuple[str, ...]) -> None:
    long = next((n for n in names if n.startswith("--")), names[0])
    destination = event.arg("dest")
    single = destination.single() if destination is not None else ...
    key = single if isinstance(single, str) else long.lstrip("-").replace("-", "_")
    launch = state.launch
    given = next(
        (launch.hyperparameters[n.lstrip("-")] for n in names if n.lstrip("-") in launch.hyperparameters), None
    )
    default = event.arg("default")
    kind = event.arg("type")
    if given is not None:
        state.arguments[key] = _converted(passed(given), kind)
        return
    named = said(key)
    action = event.arg("action")
    off = {"store_true": False, "store_false": True}.get(str(action.single())) if action is not None else None
    if default is None and off is not None:
        state.arguments[key] = Value(tags=frozenset({"flag", *named}), constants=(off,))
        return
    if default is None:
        state.arguments[key] = unknown("flag", *named)
        return
    if (
        kind is not None
        and kind.name not in ("int", "float", "str")
        and any(t.startswith("env:") for t in default.tags)
    ):
        # argparse applies the type to a default that is a string: json.loads, a function of the script.
        hosts = {"hosts"} if "env:SM_HOSTS" in default.tags else set()
        state.arguments[key] = unknown(*hosts, *(t for t in default.tags if t.startswith("root:")), *named)
        return
    if set(named) & {"rank", "local_rank"} and default.single() == -1:
        # "No launcher": what follows the option is written for the number that a launcher passes.
        state.arguments[key] = unknown(*named)
        return
    value = default.with_tags(*(named if not default.tags else ()))
    if not default.tags:
        # A plain default can be changed by a hyperparameter: it decides nothing.
        value.sure = False
        value.tags |= {"flag"}
    if "number" in value.tags and event.arg("type") is not None:
        value.tags = frozenset(t for t in value.tags if t not in ("number",) and not t.startswith("env:"))
        converted = [int(c) for c in value.constants or () if isinstance(c, str) and c.isdigit()]
        value.constants = tuple(converted) if converted else None
    state.arguments[key] = value


def parsed(state: AbstractState, event: Event, name: str) -> Value:
    """Return the result of ``parse_args`` and its relatives."""
    base = event.receiver
    if base is not None and base.made_by("HfArgumentParser", "TrlParser"):
        return configurations.parsed(state, event, name)
    space = Value(made=frozenset({NAMESPACE}), attrs=state.arguments)
    return Value(items=(space, Value())) if name == "parse_known_args" else space
