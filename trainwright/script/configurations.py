"""Objects that hold a script's settings: dataclasses, named tuples, namespaces, and the arguments of a Trainer."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainwright.core.data_files import read_json, read_yaml
from trainwright.core.errors import RequestError
from trainwright.script.abstract_state import AbstractState
from trainwright.script.events import Event
from trainwright.script.known import said
from trainwright.script.paths import root_of
from trainwright.script.reader import Module
from trainwright.script.values import Code, Value, constant, unknown

LARGEST = 1_000_000
# Classes whose fields are the arguments of their constructor.
_BY_FIELDS = ("NamedTuple", "BaseModel", "BaseSettings", "TypedDict")
# transformers' and trl's settings of a trainer.
_ARGUMENTS = ("TrainingArguments", "SFTConfig", "GRPOConfig")
_OFF = ("do_train", "do_eval", "do_predict")
NAMESPACES = frozenset(
    ("types.SimpleNamespace", "argparse.Namespace", "easydict.EasyDict", "omegaconf.OmegaConf.create", "munch.Munch")
)


def is_arguments(name: str) -> bool:
    """Return whether a class holds the settings of a trainer of transformers or trl."""
    return name.startswith(("transformers", "trl")) and name.endswith(_ARGUMENTS)


def by_fields(code: Code) -> bool:
    """Return whether a class gets its fields from its constructor: a dataclass, a named tuple."""
    made = any("dataclass" in d or d.startswith(("attr.", "attrs.", "define")) for d in code.decorators)
    inherited = any(base.code is not None and by_fields(base.code) for base in code.bases)
    return made or inherited or any(origin.endswith(_BY_FIELDS) for origin in code.origins())


def fields(code: Code) -> dict[str, Value]:
    """Return the fields of a class and of its bases, in order, with their defaults as they are written."""
    found: dict[str, Value] = {}
    for base in code.bases:
        found |= fields(base.code) if base.code is not None else {}
    for node in getattr(code.node, "body", ()):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = code.fields.get(node.target.id) or Value()
    return found | {name: value for name, value in code.fields.items() if name not in found}


def _default(state: AbstractState, event: Event, value: Value) -> Value:
    """Return the default of a field: of ``field(default_factory=…)`` what the function returns, or the class makes."""
    if not value.made_by("field", "Field") or value.attrs is None:
        return value
    factory = value.attrs.get("default_factory")
    if factory is None:
        return value.attrs.get("default", Value())
    return state.call(event.node, factory, None, [], {})


def field(_: AbstractState, event: Event) -> Value:
    """``dataclasses.field(…)``."""
    given = {name: value for name, value in event.keywords.items() if name in ("default", "default_factory")}
    if event.args:
        given.setdefault("default", event.args[0])
    return Value(made=frozenset({event.name}), attrs=given)


def made(state: AbstractState, event: Event, code: Code) -> dict[str, Value]:
    """Return the attributes of an object that is made of its fields."""
    defaults = fields(code)
    given = dict(zip(defaults, event.args, strict=False))
    given |= {name: value for name, value in event.keywords.items() if name != "**"}
    # Of an argument whose default cannot be read, the field of its name may have it.
    unread = {name for name, value in given.items() if value.tags == {"flag"} and value.constants is None}
    for name in [name for name in defaults if name not in given or name in unread]:
        default = _default(state, event, defaults[name])
        if (event.opened or name in unread) and default.sure:  # it may be among what is given by unknown names
            default = default.with_tags("flag")
            default.sure = False
        given[name] = default
    return given


def namespace(_: AbstractState, event: Event) -> Value:
    """``SimpleNamespace(name=value)`` and the like."""
    known = dict(event.args[0].attrs or {}) if event.args else {}
    return Value(made=frozenset({event.name}), attrs=known | {k: v for k, v in event.keywords.items() if k != "**"})


def of_file(module: Module, value: Value | None) -> Value:
    """Return what a configuration is: itself, or what the JSON or YAML file beside the script says that it names."""
    text = value.single() if value is not None else None
    ending = text.rpartition(".")[2] if isinstance(text, str) else ""
    opened = value is not None and value.made_by("open")
    if value is None or (value.attrs is not None and not opened) or not isinstance(text, str) or ending not in _READERS:
        return value if value is not None else Value()
    inside = not text.startswith("/") and ".." not in text
    # A job runs in the folder of its source; other paths are relative to the file that has them.
    source = module.path.parents[module.name.count("/")]
    for path in (source / text, module.path.parent / text) if inside else ():
        try:
            if path.is_file() and path.stat().st_size < LARGEST:
                return _written(_READERS[ending](path))
        except (RequestError, OSError, ValueError, RecursionError):
            pass  # a file that cannot be read says nothing
    return value


def stage_of(configuration: Value) -> object:
    """Return ZeRO's stage in a configuration of DeepSpeed; None or Ellipsis if it is not known."""
    zero = (configuration.attrs or {}).get("zero_optimization")
    stage = (zero.attrs or {}).get("stage") if zero is not None else None
    return stage.single() if stage is not None and "flag" not in stage.tags else None


_READERS: dict[str, Callable[[Path], object]] = {"json": read_json, "yaml": read_yaml, "yml": read_yaml}


def loaded(_: AbstractState, event: Event) -> Value:
    """``json.load(file)``, ``yaml.safe_load(text)``: what a file beside the script says."""
    given = event.args[0] if event.args else None
    return _read(event.module, given) if given is not None and given.made_by("open") else Value()


def of_path(_: AbstractState, event: Event) -> Value:
    """``OmegaConf.load(path)``."""
    return _read(event.module, event.args[0]) if event.args else Value()


def _read(module: Module, given: Value) -> Value:
    """Return what a file says; of one that cannot be read nothing is known, not even what it lacks."""
    found = of_file(module, given)
    return found if found is not given else Value()


def _written(data: object) -> Value:
    if isinstance(data, dict):
        return Value(attrs={str(key): _written(value) for key, value in data.items()})
    return Value(items=tuple(map(_written, data))) if isinstance(data, list) else constant(data)


# ---- HfArgumentParser ------------------------------------------------------------------------------------------------


def parser(_: AbstractState, event: Event) -> Value:
    """``HfArgumentParser((ModelArguments, TrainingArguments))``."""
    given = event.arg("dataclass_types", 0)
    classes = (given.items or (given,)) if given is not None else ()
    return Value(made=frozenset({event.name}), items=tuple(classes))


def parsed(state: AbstractState, event: Event, name: str) -> Value:
    """Return the objects that ``parse_args_into_dataclasses`` and its relatives make."""
    base = event.receiver
    classes = base.items or () if base is not None else ()
    given = _given(state, event, name)
    # What is a field of a class of the script is no argument of the others.
    own = {name for each in classes if each.code is not None for name in fields(each.code)}
    others = None if given is None else {name: value for name, value in given.items() if name not in own}
    items = []
    for each in classes:
        if each.code is not None and isinstance(each.code.node, ast.ClassDef):
            items.append(_filled(state, event, each.code, given))
        elif is_arguments(each.name):
            items.append(arguments(state, event, each.name, {"**": Value()} if others is None else others))
        else:
            items.append(Value())
    loose = event.arg("return_remaining_strings")
    if name == "parse_args_into_dataclasses" and loose is not None and loose.single() is not False:
        items.append(Value())
    return Value(items=tuple(items))


def _given(state: AbstractState, event: Event, name: str) -> dict[str, Value] | None:
    """Return the options that a parser of dataclasses gets; None if they are not known."""
    if name == "parse_dict":
        return event.args[0].attrs if event.args else None
    words = event.arg("args", 0)
    if name != "parse_args_into_dataclasses" or event.arg("args_filename") is not None:
        return None
    if words is not None and words.single() is not None:
        return options(words.items) if words.items is not None else None
    if not state.launch.hyperparameters and state.launch.launcher is None:
        return None
    return {key: typed(value) for key, value in state.launch.hyperparameters.items()}


def options(words: Sequence[Value]) -> dict[str, Value] | None:
    """Return the options of a command line."""
    found: dict[str, Value] = {}
    key = ""
    for word in words:
        text = word.single()
        if isinstance(text, str) and text.startswith("--"):
            key, equals, rest = text[2:].partition("=")
            key = key.replace("-", "_")
            found[key] = typed(rest) if equals else constant(True)
        elif not key:
            return None
        else:
            found[key] = typed(text) if text is not ... else word
    return found


def typed(text: object) -> Value:
    """Return an option as the parser converts it: a number, a truth value, or a text."""
    words: dict[str, object] = {"true": True, "false": False}
    value: object = text
    if isinstance(text, str):
        value = words.get(text.lower(), text)
        for kind in (int, float) if value is text else ():
            try:
                value = kind(text)
                break
            except ValueError:
                continue
    tags = {f"root:{root_of(value)}"} if isinstance(value, str) and "/" in value else set()
    return Value(tags=frozenset(tags), constants=(value,), sure=True)


def _filled(state: AbstractState, event: Event, code: Code, given: Mapping[str, Value] | None) -> Value:
    """Return an object of a class of the script, with the options given; its defaults can be changed by others."""
    defaults = {}
    for name, written in fields(code).items():
        value = _default(state, event, written)
        default = value.with_tags("flag", *(said(name) if not value.tags and value.constants is None else ()))
        default.sure = False
        defaults[name] = default if value.constants is not None or value.tags else unknown("flag", *said(name))
    own = {name: value for name, value in (given or {}).items() if name in defaults}
    trains = next((origin for origin in code.origins() if is_arguments(origin)), "")
    if trains:
        known = {"**": Value()} if given is None else {**defaults, **given}
        result = arguments(state, event, trains, known)
        result.code, result.instance = code, True
        result.attrs = {**defaults, **(given or {})}
    else:
        result = Value(made=frozenset({f"script.{code.name}"}), attrs=defaults | own, code=code, instance=True)
    init = code.method("__post_init__")
    if init is not None:
        state.call_code(init, [], {}, result)
    return result


def arguments(state: AbstractState, event: Event, name: str, keywords: Mapping[str, Value]) -> Value:
    """Note a call of a trainer's arguments that a parser makes, and return them."""
    made_there = event.again(name, [], dict(keywords), len(state.events))
    state.events.append(made_there)
    known = {} if made_there.opened else {name: constant(False, "flag", sure=False) for name in _OFF}
    known |= {key: value for key, value in keywords.items() if key != "**"}
    made_there.result = Value(made=frozenset({name}), attrs=known)
    return made_there.result


def assigned(state: AbstractState, base: Value, name: str, value: Value, node: ast.expr) -> None:
    """Note that an attribute of a trainer's arguments is set after they were made: ``args.bf16 = True``."""
    if not any(is_arguments(made) for made in base.made):
        return
    for event in reversed(state.events):
        if event.result is base and is_arguments(event.name):
            event.keywords[name] = value if not state.depth else value.with_tags("flag")
            event.later[name] = node
            return
