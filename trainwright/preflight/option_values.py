"""Single values that argparse refuses: text for a number, a value outside choices, one value where it expects two."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.call import Call
from trainwright.preflight.syntax import at
from trainwright.sagemaker.toolkit import TOOLKIT

ARGUMENTS = f"{TOOLKIT}: hyperparameters become `--name value`, true becomes `True`, there are no bare flags"
VALUE = Rule(
    code="TW198",
    severity="error",
    title="the job passes a value that the argument does not accept",
    source=f"{ARGUMENTS}; argparse stops with exit code 2 where type or choices refuse a value",
    remedy="Correct the hyperparameter, or the argument's type or choices.",
)


def refused(call: Call, shown: str, value: object) -> Iterator[Finding]:
    """Hold a hyperparameter against ``type`` and ``choices``, as argparse would."""
    kind, choices = call.given("type"), call.given("choices")
    converters = {"int": int, "float": float}
    # SageMaker writes every value as text; of a list, option_lists knows what becomes.
    text = str(value)
    nargs = call.given("nargs")
    several = len(value.split()) if isinstance(value, str) else 1
    if nargs is not None and isinstance(kind, ast.Name) and kind.id in converters and several > 1:
        what = f"{shown} '{text}' is passed as one word, not as {several}: invalid {kind.id} value"
        yield at(VALUE, call, what)
    elif isinstance(count := call.constant("nargs"), int) and count > 1 and not isinstance(value, list):
        what = f"{shown} expects {count} arguments, and gets one, '{text}'"
        yield at(VALUE, call, what, remedy='type=json.loads without nargs, and the value "[1, 2]".')
    if nargs is not None or call.given("action") is not None or isinstance(value, list | dict):
        return
    converted: object = text
    if isinstance(kind, ast.Name) and kind.id in converters:
        try:
            converted = converters[kind.id](text)
        except ValueError:
            yield at(VALUE, call, f"{shown} {text}: invalid {kind.id} value")
            return
    elif kind is not None and not (isinstance(kind, ast.Name) and kind.id == "str"):
        return
    if isinstance(choices, ast.List | ast.Tuple | ast.Set) and all(isinstance(e, ast.Constant) for e in choices.elts):
        known = [e.value for e in choices.elts if isinstance(e, ast.Constant)]
        if converted not in known:
            yield at(VALUE, call, f"{shown} {text}: choose from {', '.join(map(repr, known))}")
