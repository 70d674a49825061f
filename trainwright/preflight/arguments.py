"""Arguments: SageMaker passes each hyperparameter as ``--name value``, and every value is a string."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.core.errors import nearest
from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.left_out import left_out
from trainwright.preflight.option_lists import LISTED, refusal
from trainwright.preflight.option_values import ARGUMENTS, VALUE, refused
from trainwright.script.call import Call
from trainwright.script.events import Event
from trainwright.script.option_names import spelled
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import Function, at, conditions, first, reachable

BOOL = Rule(
    code="TW190",
    severity="error",
    title="type=bool turns every non-empty string into True, `False` included",
    source=f"{ARGUMENTS}; Python's documentation of argparse advises against type=bool",
    remedy='type=lambda text: text.lower() == "true"',
)
FLAG = Rule(
    code="TW191",
    severity="note",
    title="a flag without a value cannot be set by a hyperparameter",
    source=f"{ARGUMENTS}, so argparse stops at the value (an error if the job gives that hyperparameter)",
    remedy='type=lambda text: text.lower() == "true", default=False instead of action="store_true".',
)
LETTERS = Rule(
    code="TW192",
    severity="error",
    title="type=list (or dict, tuple) splits a string into letters",
    source=f"{ARGUMENTS}; a list arrives as a string",
    remedy="Use type=json.loads, or let the script split the value.",
)
UNKNOWN = Rule(
    code="TW193",
    severity="error",
    title="the job has a hyperparameter that the script does not accept",
    source=f"{ARGUMENTS}; parse_args stops at an unknown argument",
    remedy="Add the argument, correct the name, or use parse_known_args.",
)
MISSING = Rule(
    code="TW194",
    severity="error",
    title="the script needs an argument that the job does not pass",
    source=ARGUMENTS,
    remedy="Add the hyperparameter to the job, or give the argument a default.",
)
UNTYPED = Rule(
    code="TW195",
    severity="warning",
    title="an argument whose default is a number has no type, so a hyperparameter arrives as a string",
    source=ARGUMENTS,
    remedy="Add type=int or type=float.",
)
POSITIONAL = Rule(
    code="TW196",
    severity="error",
    title="a positional argument; SageMaker does not pass any",
    source=ARGUMENTS,
    remedy='Make it an option: add_argument("--name", …).',
)
HYDRA = Rule(
    code="TW197",
    severity="warning",
    title="Hydra expects name=value, but SageMaker passes --name value",
    source=f"{ARGUMENTS}; aws/sagemaker-python-sdk #4247",
    remedy="Start Hydra from a small script that turns SM_HPS into overrides, or remove the job's hyperparameters.",
)
RULES = (BOOL, FLAG, LETTERS, UNKNOWN, MISSING, UNTYPED, POSITIONAL, HYDRA, VALUE, LISTED)
FLAGS = ("store_true", "store_false", "store_const", "count")
# Parsers that also take arguments from elsewhere; the full set is then unknown.
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
    "set_defaults",
    "ConfigArgumentParser",
    "configargparse",
)


@dataclass(frozen=True)
class Argument:
    """An ``add_argument``; ``names`` without dashes, ``bare`` takes no value.

    ``passed``: those of the names that SageMaker can pass, with two dashes; with one if they are a single letter
    (sagemaker-training 5.1.4, mapping.py). argparse does not take ``--net`` for ``-net``.
    """

    call: Call
    names: tuple[str, ...]
    passed: tuple[str, ...]
    positional: bool
    bare: bool
    required: bool
    optional: bool


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if _parses_its_own_list(code):
        return
    calls = (call for call in code.called("add_argument") if reachable(code, call) and not _never_parsed(code, call))
    spelled_by_call = [(call, spelled(call.module, call.node)) for call in calls]
    arguments = [_argument(call, names) for call, rows in spelled_by_call for names in rows]
    entry = code.script.entry
    given = code.given
    parses = any(c.module is entry for c in code.called("parse_args", "parse_known_args")) or bool(
        list(code.called("parse_args"))
    )
    for argument in arguments:
        yield from _one(code, argument, given)
    main = next((c for c in code.called("hydra.main")), None)
    if main is not None and (code.started is None or code.started.forwards):
        # Without a job file, its hyperparameters are unknown.
        severity: Severity = "error" if given else "note"
        yield at(HYDRA, main, "Hydra starts the script", severity=severity)
    if entry is None or code.job is None or not parses or not arguments or code.mentions(*OTHERS) or _inherits(code):
        return
    if code.started is not None and code.started.unclear:
        return
    every = all(rows for _, rows in spelled_by_call) and not _passed_on(code)
    yield from _whole(code, arguments, given, every=every)


def _never_parsed(code: ScriptFacts, call: Call) -> bool:
    """Return whether an imported file parses its arguments only if it is started itself."""
    if call.module is code.script.entry:
        return False
    parsed = [each for each in code.called("parse_args", "parse_known_args") if each.module is call.module]
    return bool(parsed) and not any(reachable(code, each) for each in parsed)


def _passed_on(code: ScriptFacts) -> bool:
    """Return whether add_argument itself is given to something, or has another name: ``add = parser.add_argument``."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "add_argument"
        and getattr(module.parents.get(node), "func", None) is not node
        for module in code.modules
        for node in module.nodes
    )


def _inherits(code: ScriptFacts) -> bool:
    return any(call.given("parents") is not None for call in code.called("ArgumentParser"))


def _parses_its_own_list(code: ScriptFacts) -> bool:
    """Return whether the script passes a list to every parser, so that the command line does not matter."""
    parsed = list(code.called("parse_args", "parse_known_args"))
    lists = [c.given("args", 0) for c in parsed]
    return bool(parsed) and all(given is not None and "argv" not in ast.unparse(given) for given in lists)


def _dashed(name: str) -> str:
    """Return the option that SageMaker makes of a hyperparameter's name (sagemaker-training 5.1.4, mapping.py)."""
    return f"--{name}" if len(name) > 1 else f"-{name}"


def _other(name: str) -> str:
    """Return the option of a name that SageMaker does not pass: with one dash for two, or two for one."""
    return f"-{name}" if len(name) > 1 else f"--{name}"


def _argument(call: Call, names: tuple[str, ...]) -> Argument:
    positional = not names[0].startswith("-")
    action = call.constant("action")
    optional = call.constant("nargs") in ("?", "*") or (
        call.given("nargs") is not None and call.constant("nargs") is None
    )
    return Argument(
        call=call,
        names=tuple(name.lstrip("-") for name in names),
        passed=tuple(n.lstrip("-") for n in names if n == _dashed(n.lstrip("-"))),
        positional=positional,
        bare=action in FLAGS or "BooleanOptionalAction" in ast.unparse(call.node),
        required=call.constant("required") is True,
        optional=optional,
    )


def _one(code: ScriptFacts, argument: Argument, given: dict[str, object]) -> Iterator[Finding]:
    call = argument.call
    shown = next((f"--{n}" for n in argument.names if len(n) > 1), argument.names[0])
    kind = call.given("type")
    name = kind.id if isinstance(kind, ast.Name) else None
    in_job = next((n for n in argument.passed if n in given), None)
    true = in_job is not None and str(given[in_job]).lower() not in ("false", "0", "no", "off", "")
    if name == "bool" and not argument.bare and not _decided_by_script(code, argument):
        # As long as nothing passes False, it is right.
        severe: Severity = "note" if true else "error" if in_job is not None else "warning"
        yield at(BOOL, call, f"{shown} False is True", severity=severe)
    if name in ("list", "dict", "tuple", "set") and call.given("nargs") is None:
        default = call.given("default")
        computed = default is not None and not isinstance(default, ast.Constant | ast.List | ast.Tuple | ast.Dict)
        # With a default from the environment nobody passes it: it works until somebody does.
        if in_job is not None or not computed:
            yield at(LETTERS, call, f"{shown} with type={name}", severity=None if in_job is not None else "warning")
    if argument.bare and in_job is not None:
        yield at(FLAG, call, f"the job passes --{in_job} {given[in_job]}, but it takes no value", severity="error")
    if argument.positional:
        if not argument.optional and code.started is None:
            yield at(POSITIONAL, call, f"{argument.names[0]} is positional")
        return
    default = call.given("default")
    if in_job is not None and not argument.bare:
        yield from refused(call, shown, given[in_job])
        if why := refusal(call, given[in_job]):
            yield at(LISTED, call, f"{shown} {why}")
    textual = name == "str" and call.given("choices") is None
    if (kind is not None and not textual) or call.given("action") is not None or not isinstance(default, ast.Constant):
        return
    if type(default.value) in (int, float) and not _converted(code, argument):
        severity: Severity | None = "error" if in_job is not None else None
        what = "type=str" if textual else "no type"
        yield at(UNTYPED, call, f"{shown} has {what} and the default {default.value!r}", severity=severity)
    elif isinstance(default.value, str) and _is_number(default.value):
        used = _as_number(code, argument)
        if used is not None and not _converted(code, argument):
            what = f"the default {default.value!r}, a text, which `{ast.unparse(used.node)[:50]}` takes as a number"
            yield at(UNTYPED, call, f"{shown} has {what}", severity="error")


# What is a number in the calls of PyTorch.
_NUMBERS = ("lr", "weight_decay", "momentum", "eps", "batch_size", "num_workers", "step_size", "gamma", "T_max")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _as_number(code: ScriptFacts, argument: Argument) -> Event | None:
    """Return a call of PyTorch, or ``range``, that takes an argument as the number that it is not."""
    names = {name.replace("-", "_") for name in argument.names}
    attributes = (n for m in code.modules for n in m.nodes if isinstance(n, ast.Attribute) and n.attr in names)
    if any(isinstance(each.ctx, ast.Store) for each in attributes):
        return None  # `args.lr = float(args.lr)`
    for event in code.events:
        if event.detached or not (event.name == "range" or event.name.startswith("torch.")):
            continue
        given = [k.value for k in event.node.keywords if k.arg in _NUMBERS]
        given += event.node.args if event.name == "range" else []
        if any(isinstance(each, ast.Attribute) and each.attr in names for each in given):
            return event
    return None


def _decided_by_script(code: ScriptFacts, argument: Argument) -> bool:
    """Return whether the script sets an argument itself, to either value: ``args.distributed = True``, ``= False``."""
    names = {name.replace("-", "_") for name in argument.names}
    given = {
        node.value.value
        for module in code.modules
        for node in module.nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr in names
    }
    return given >= {True, False}


def _added_elsewhere(code: ScriptFacts) -> bool:
    """Return whether a library gets the parser, and may add arguments: ``Trainer.add_argparse_args(parser)``."""
    return any(
        value.made_by("ArgumentParser") and not event.name.startswith("script.")
        for event in code.events
        if event.last not in ("isinstance", "print", "vars", "getattr")
        for value in (*event.args, *event.keywords.values())
    )


def _converted(code: ScriptFacts, argument: Argument) -> bool:
    """Return whether each use makes a number of an argument, or a text: ``float(args.lr)``, ``f"{args.lr}"``."""
    names = {name.replace("-", "_") for name in argument.names}
    uses = [
        (module, node)
        for module in code.modules
        for node in module.nodes
        if isinstance(node, ast.Attribute) and node.attr in names and isinstance(node.ctx, ast.Load)
    ]
    return bool(uses) and all(_as_text_or_number(code, module, node) for module, node in uses)


def _as_text_or_number(code: ScriptFacts, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Return whether a value is converted where it stands, or in the function of the script that gets it there."""
    use = module.parents.get(node)
    if isinstance(use, ast.FormattedValue) or not isinstance(use, ast.Call) or not isinstance(use.func, ast.Name):
        return isinstance(use, ast.FormattedValue)
    if use.func.id in ("int", "float"):
        return True
    found = [(m, n) for m in code.modules for n in m.nodes if isinstance(n, Function) and n.name == use.func.id]
    if len(found) != 1 or node not in use.args or depth > 2:
        return False
    where, function = found[0]
    parameters = [each.arg for each in (*function.args.posonlyargs, *function.args.args)][use.args.index(node) :]
    reads = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == (parameters or [""])[0]]
    return bool(reads) and all(_as_text_or_number(code, where, each, depth + 1) for each in reads)


def tensorflow_job(code: ScriptFacts) -> bool:
    """Return whether the SDK's TensorFlow estimator starts the job: it adds the argument ``--model_dir``."""
    job = code.job
    if job is None:
        return False
    plan = job.plan.framework if job.plan is not None else ""
    own = any(key in job.distribution for key in ("parameter_server", "multi_worker_mirrored_strategy"))
    return plan.startswith("tensorflow") or "tensorflow" in (job.image or "") or own


_ADDED = {
    "mp_parameters": "the model parallel library adds",
    "model_dir": "the SDK's TensorFlow estimator adds",
}


def _whole(code: ScriptFacts, arguments: list[Argument], given: dict[str, object], *, every: bool) -> Iterator[Finding]:
    """Compare the arguments with the job's hyperparameters; ``every``: there are no others, with unknown names."""
    job, entry = code.job, code.script.entry
    assert job is not None and entry is not None
    names = {name for argument in arguments for name in argument.passed}
    otherwise_dashed = {name for argument in arguments if not argument.positional for name in argument.names} - names
    passed = {name for name in given if not name.startswith("sagemaker_")}
    added = code.started is None or code.started.forwards
    if job.model_parallel and added:
        passed.add("mp_parameters")
    if tensorflow_job(code) and added:
        passed.add("model_dir")
    # A function of the script's own may have that name.
    strict = next((c for c in code.called("parse_args") if isinstance(c.node.func, ast.Attribute)), None)
    closed = every and not any(code.called("parse_known_args"))
    if strict is not None and closed and not _added_elsewhere(code):
        for name in sorted(passed - names):
            if len(name) > 1 and sum(known.startswith(name) for known in names) == 1:
                continue  # argparse completes an unambiguous beginning
            similar = nearest(name, names, 1)
            hint = f"; the script has --{similar[0]}" if similar else ""
            hint = f"; the script has {_other(name)}, which is another option" if name in otherwise_dashed else hint
            what = _ADDED.get(name, "the job passes") if name not in given else "the job passes"
            yield at(UNKNOWN, strict, f"{what} {_dashed(name)}{hint}")
    lenient = first(code.called("parse_known_args")) if strict is None else None
    if lenient is not None:
        lost = [(name, _other(name)) for name in sorted(passed & otherwise_dashed)]
        lost += [(name, f"--{known}") for name, known in left_out(lenient, names, passed, every=every, code=code)]
        for name, known in lost:
            what = f"the job passes {_dashed(name)}, which parse_known_args leaves out; the script has {known}"
            remedy = "Correct the name in the job, or add the argument."
            yield at(UNKNOWN, lenient, what, severity="warning", remedy=remedy)
    for argument in arguments:
        # Under a condition, such as a version of PyTorch, it may not be there at all.
        tests = [ast.unparse(test) for test, _ in conditions(argument.call.module, argument.call.node)]
        if any("__name__" not in test for test in tests):
            continue
        if argument.required and not argument.positional and not (passed | code.unseen) & set(argument.passed):
            name = max(argument.names, key=len)
            what = f"{_dashed(name)} is required"
            what = what if argument.passed else f"{_other(name)} is required, and SageMaker passes {_dashed(name)}"
            yield at(MISSING, argument.call, what)
