"""The arguments that an HfArgumentParser makes of dataclasses, and training that no argument of the job switches on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.errors import nearest
from trainwright.core.findings import Finding, Rule
from trainwright.preflight import training_names
from trainwright.preflight.arguments import MISSING, UNKNOWN
from trainwright.preflight.collectives import condition
from trainwright.preflight.option_lists import LISTED, refused_by_field
from trainwright.preflight.option_values import VALUE
from trainwright.script.configurations import options
from trainwright.script.events import Event
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Code

RULES: tuple[Rule, ...] = ()


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Hold the job's hyperparameters, or a list of the script's own, against the fields of the dataclasses."""
    yield from _never_trains(code)
    parsers = [e for e in code.ran("HfArgumentParser") if e.args]
    parses = code.ran("parse_args_into_dataclasses")
    if not parsers or not parses or code.job is None or any(code.called("add_argument")):
        return
    given: dict[str, object] = code.given
    passed = {*given, *code.unseen}
    who, words = "the job passes", parses[0].arg("args", 0)
    if words is not None and words.single() is not None:
        listed = options(words.items) if words.items is not None else None
        if listed is None:
            return
        who, given = "the script passes", {name: value.single() for name, value in listed.items()}
        passed = {*given}
    elif code.started is not None and code.started.unclear:
        return
    event = parsers[0]
    values = event.args[0].items or event.args[:1]
    classes = [value.code for value in values if value.code is not None]
    origins = [origin for each in classes for origin in each.origins()]
    origins += [value.name for value in values if value.code is None]
    loose = parses[0].arg("return_remaining_strings")
    # Of a library's class, only those with known fields.
    own = loose is None and all(origin.rpartition(".")[2] in training_names.CLASSES for origin in origins)
    fields: dict[str, ast.AnnAssign] = {}
    for each in classes:
        for body in (getattr(part.node, "body", []) for part in (*_inherited(each), each)):
            fields |= {n.target.id: n for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    trains = any(origin.rpartition(".")[2] in training_names.CLASSES for origin in origins)
    known = {*fields, *(training_names.FIELDS if origins else ())}
    module = event.module
    for name, value in given.items():
        node = fields.get(name)
        short = sum(each.startswith(name) for each in known) == 1  # argparse completes an unambiguous beginning
        if name not in known and own and not short and not name.startswith("sagemaker_"):
            similar = nearest(name, known, 1)
            hint = f"; the script has --{similar[0]}" if similar else ""
            yield at(UNKNOWN, (module, event.node), f"{who} --{name}{hint}")
        else:
            whole = trains and name in training_names.WHOLE
            yield from (
                _refused(module, node, name, value) if node is not None else _not_whole(event, name, value, whole)
            )
    if trains and own and "output_dir" not in {*passed, *fields} and given:
        yield at(
            MISSING, (module, event.node), "--output_dir of the training arguments is required", severity="warning"
        )
    for name, node in fields.items():
        if _required(node) and name not in passed:
            yield at(MISSING, (module, node), f"--{name} is required")


def _not_whole(event: Event, name: str, value: object, whole: bool) -> Iterator[Finding]:
    """Report a value of a library's argument that int() does not take."""
    try:
        int(str(value) if whole and value is not ... else "0")
    except ValueError:
        yield at(VALUE, event, f"--{name} {value}: invalid int value")


def _refused(module: Module, node: ast.AnnAssign, name: str, value: object) -> Iterator[Finding]:
    """Report a value that the type of a field does not convert."""
    kind = ast.unparse(node.annotation).replace("Optional[", "").replace("]", "").split(" |")[0]
    if why := refused_by_field(node.annotation, value):
        yield at(LISTED, (module, node), f"--{name} {why}")
    elif kind in ("int", "float") and value is not ...:
        try:
            (int if kind == "int" else float)(str(value))
        except ValueError:
            yield at(VALUE, (module, node), f"--{name} {value}: invalid {kind} value")


def _inherited(code: Code) -> list[Code]:
    """Return the script's classes that a class is derived from."""
    bases = [base.code for base in code.bases if base.code is not None]
    return [*(outer for base in bases for outer in _inherited(base)), *bases]


def _required(node: ast.AnnAssign) -> bool:
    """Return whether an attribute of a dataclass has no default, so its argument is required."""
    if not isinstance(node.value, ast.Call) or not ast.unparse(node.value.func).endswith("field"):
        return node.value is None and not ast.unparse(node.annotation).startswith(("ClassVar", "typing.ClassVar"))
    known = {keyword.arg for keyword in node.value.keywords}
    return not node.value.args and known.isdisjoint({"default", "default_factory", None})


def _never_trains(code: ScriptFacts) -> Iterator[Finding]:
    """Report a training under a condition that the job does not meet: an argument's default, which it does not set."""
    if not code.launch.hyperparameters or code.incomplete:
        return
    trains = [
        e
        for e in code.ran("backward", "fit", "train", live=True)
        if e.receiver is not None and not (e.last == "train" and ("model" in e.receiver.tags or e.receiver.name))
    ]
    if trains and all(event.off for event in trains):
        event, guard = trains[0], trains[0].off
        assert guard is not None
        what = f"training runs only where {condition(guard)}, which nothing in the job sets"
        yield at(MISSING, event, what, severity="warning")
