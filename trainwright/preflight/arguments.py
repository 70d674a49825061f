"""Arguments: SageMaker passes each hyperparameter as ``--name value``, and every value is text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.core.errors import nearest
from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import Call, at, reachable

TOOLKIT = (
    "sagemaker-training 5.1.4: hyperparameters become `--name value`, true becomes `True`, there are no bare flags"
)
BOOL = Rule(
    code="TW190",
    severity="error",
    title="type=bool turns every text but the empty one into True, `False` included",
    source=f"{TOOLKIT}; Python's documentation of argparse advises against type=bool",
    remedy='type=lambda text: text.lower() == "true"',
)
FLAG = Rule(
    code="TW191",
    severity="note",
    title="a flag without a value cannot be set by a hyperparameter",
    source=f"{TOOLKIT}, so argparse would stop at the value (an error where the job gives that hyperparameter)",
    remedy='type=lambda text: text.lower() == "true", default=False instead of action="store_true".',
)
LETTERS = Rule(
    code="TW192",
    severity="error",
    title="type=list (or dict, tuple) takes a text apart into letters",
    source=f"{TOOLKIT}; a list arrives as its text",
    remedy="type=json.loads, or nargs with a value split by the script.",
)
UNKNOWN = Rule(
    code="TW193",
    severity="error",
    title="the job has a hyperparameter that the script's arguments do not know",
    source=f"{TOOLKIT}; parse_args stops at an unknown argument",
    remedy="Add the argument, correct the name, or parse_known_args.",
)
MISSING = Rule(
    code="TW194",
    severity="error",
    title="the script needs an argument that the job does not pass",
    source=TOOLKIT,
    remedy="Give the hyperparameter in the job, or the argument a default.",
)
UNTYPED = Rule(
    code="TW195",
    severity="warning",
    title="an argument with a number as default has no type, so a hyperparameter arrives as text",
    source=TOOLKIT,
    remedy="type=int or type=float.",
)
POSITIONAL = Rule(
    code="TW196",
    severity="error",
    title="a positional argument: SageMaker passes none",
    source=TOOLKIT,
    remedy='Make it an option: add_argument("--name", …).',
)
HYDRA = Rule(
    code="TW197",
    severity="warning",
    title="Hydra wants name=value, SageMaker passes --name value",
    source=f"{TOOLKIT}; aws/sagemaker-python-sdk #4247",
    remedy="Start Hydra from a small script that turns SM_HPS into overrides, or give the job no hyperparameters.",
)
RULES = (BOOL, FLAG, LETTERS, UNKNOWN, MISSING, UNTYPED, POSITIONAL, HYDRA)
FLAGS = ("store_true", "store_false", "store_const", "count")
# Parsers that take their arguments from elsewhere as well; then nothing is known of the whole set.
OTHERS = (
    "HfArgumentParser",
    "click",
    "fire",
    "typer",
    "absl",
    "jsonargparse",
    "tyro",
    "simple_parsing",
    "tap",
    "add_arguments",
    "add_subparsers",
    "parents",
    "set_defaults",
    "ConfigArgumentParser",
    "configargparse",
)


@dataclass(frozen=True)
class Argument:
    """An ``add_argument``; ``names`` without dashes, ``bare`` takes no value."""

    call: Call
    names: tuple[str, ...]
    positional: bool
    bare: bool
    required: bool
    optional: bool


def check(code: ScriptFacts) -> Iterator[Finding]:
    """The rules of this family."""
    if _parses_its_own_list(code):
        return
    calls = (call for call in code.called("add_argument") if reachable(code, call))
    arguments = [argument for call in calls if (argument := _argument(call)) is not None]
    entry = code.script.entry
    given = dict(code.job.hyperparameters) if code.job else {}
    parses = any(c.module is entry for c in code.called("parse_args", "parse_known_args")) or bool(
        list(code.called("parse_args"))
    )
    for argument in arguments:
        yield from _one(argument, given)
    main = next((c for c in code.called("hydra.main")), None)
    if main is not None:
        # Without a job file nobody knows whether it has hyperparameters.
        severity: Severity = "error" if given else "note"
        yield at(HYDRA, main, "the script is started by Hydra", severity=severity)
    if entry is None or code.job is None or not parses or not arguments or code.mentions(*OTHERS):
        return
    yield from _whole(code, arguments, given)


def _parses_its_own_list(code: ScriptFacts) -> bool:
    """Every parser is given a list by the script, so the command line does not matter."""
    parsed = list(code.called("parse_args", "parse_known_args"))
    lists = [c.given("args", 0) for c in parsed]
    return bool(parsed) and all(given is not None and "argv" not in ast.unparse(given) for given in lists)


def _argument(call: Call) -> Argument | None:
    names = [a.value for a in call.node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if not names or len(names) != len(call.node.args):
        return None
    positional = not names[0].startswith("-")
    action = call.constant("action")
    optional = call.constant("nargs") in ("?", "*") or (
        call.given("nargs") is not None and call.constant("nargs") is None
    )
    return Argument(
        call=call,
        names=tuple(name.lstrip("-") for name in names),
        positional=positional,
        bare=action in FLAGS or "BooleanOptionalAction" in ast.unparse(call.node),
        required=call.constant("required") is True,
        optional=optional,
    )


def _one(argument: Argument, given: dict[str, object]) -> Iterator[Finding]:
    call = argument.call
    shown = next((f"--{n}" for n in argument.names if len(n) > 1), argument.names[0])
    kind = call.given("type")
    name = kind.id if isinstance(kind, ast.Name) else None
    in_job = next((n for n in argument.names if n in given), None)
    if name == "bool" and not argument.bare:
        yield at(BOOL, call, f"{shown} False is True")
    if name in ("list", "dict", "tuple", "set") and call.given("nargs") is None:
        yield at(LETTERS, call, f"{shown} with type={name}")
    if argument.bare and in_job is not None:
        yield at(FLAG, call, f"the job passes --{in_job} {given[in_job]}, and it takes no value", severity="error")
    if argument.positional:
        if not argument.optional:
            yield at(POSITIONAL, call, f"{argument.names[0]} is positional")
        return
    default = call.given("default")
    if kind is not None or call.given("action") is not None or not isinstance(default, ast.Constant):
        return
    if type(default.value) in (int, float):
        severity: Severity | None = "error" if in_job is not None else None
        yield at(UNTYPED, call, f"{shown} has no type and the default {default.value!r}", severity=severity)


def _whole(code: ScriptFacts, arguments: list[Argument], given: dict[str, object]) -> Iterator[Finding]:
    """The arguments against the job's hyperparameters."""
    job, entry = code.job, code.script.entry
    assert job is not None and entry is not None
    names = {name for argument in arguments for name in argument.names}
    passed = {name for name in given if not name.startswith("sagemaker_")}
    if job.model_parallel:
        passed.add("mp_parameters")
    strict = next((c for c in code.called("parse_args")), None)
    if strict is not None and not any(code.called("parse_known_args")):
        for name in sorted(passed - names):
            if len(name) > 1 and sum(known.startswith(name) for known in names) == 1:
                continue  # argparse completes an unambiguous beginning
            near = nearest(name, names, 1)
            hint = f"; the script has --{near[0]}" if near else ""
            what = "the model parallel library adds" if name == "mp_parameters" else "the job passes"
            yield at(UNKNOWN, strict, f"{what} --{name}{hint}")
    for argument in arguments:
        if argument.required and not argument.positional and not passed & set(argument.names):
            yield at(MISSING, argument.call, f"--{argument.names[0]} is required")
