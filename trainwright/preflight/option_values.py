"""Single values that argparse refuses: text for a number, a value outside choices, one value where it expects two."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.sagemaker.toolkit import TOOLKIT
from trainwright.script.call import Call
from trainwright.script.option_names import elements
from trainwright.script.reader import Module
from trainwright.script.syntax import at

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
    known = _known(call.module, choices) if choices is not None else []
    if known and converted not in known:
        yield at(VALUE, call, f"{shown} {text}: choose from {', '.join(map(repr, known))}")


def _known(module: Module, choices: ast.expr) -> list[object]:
    """Return what an argument may be; nothing if some of it cannot be read, or is added later."""
    names = {node.id for node in ast.walk(choices) if isinstance(node, ast.Name)}
    for node in module.nodes:
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.value, ast.Name):
            stored = isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)
            added = isinstance(node, ast.Attribute) and node.attr in ("update", "setdefault", "append", "extend", "add")
            if node.value.id in names and (stored or added):
                return []
    each = list(elements(module, choices))
    known: list[object] = [node.value for node in each if isinstance(node, ast.Constant)]
    return known if len(known) == len(each) else []
