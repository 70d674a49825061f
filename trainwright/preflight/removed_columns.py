"""Columns of a data set that the script reads, and that a Trainer removes before."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import Function, at
from trainwright.script.values import Value

REMOVED = Rule(
    code="TW503",
    severity="error",
    title="a collate function, or a transform of the data set, reads columns that the Trainer removes before it",
    source="transformers, training_args.py, remove_unused_columns: columns that the model's forward does not take are "
    "removed, unless it is False; datasets, set_transform: the function gets the columns that are left",
    remedy="TrainingArguments(…, remove_unused_columns=False)",
)
RULES = (REMOVED,)
# What forward of transformers' models takes, and what the Trainer keeps.
_KEPT = re.compile(
    r"input|mask|label|token|type|pixel|position|embed|values|features|bbox|start|end|speaker|past|audio|image", re.I
)
# The same without what is also the name of a raw column.
_TAKEN = re.compile(
    r"(input|token|pixel|position|decoder)_\w+|\w*(mask|label)\w*|\w+_(ids|values|features)", re.ASCII | re.I
)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.imports("transformers", "trl") is None or code.mentions("remove_unused_columns"):
        return
    arguments = list(code.ran("TrainingArguments", "Seq2SeqTrainingArguments", live=True))
    if len(arguments) != 1 or arguments[0].opened:
        return
    trainers = [e for e in code.ran("Trainer", "Seq2SeqTrainer", live=True) if _of_library(e.arg("model", 0))]
    for event in trainers:
        for column in _collated(event):
            what = f"gets a collate function that reads {column!r}, which forward does not take"
            yield at(REMOVED, event, f"`{ast.unparse(event.node)[:50]}` {what}")
            return
    for event in code.ran("set_transform", "with_transform", live=True) if trainers else ():
        for column in _transformed(event):
            what = f"the function reads {column!r}, which forward does not take"
            yield at(REMOVED, event, f"`{ast.unparse(event.node)[:50]}`: {what}")
            return


def _of_library(model: Value | None) -> bool:
    return model is not None and bool(model.made) and all(name.startswith("transformers.") for name in model.made)


def _function(given: Value | None, typed: ast.AST | None) -> Function | ast.Lambda | None:
    """Return the function that an argument is, or the ``__call__`` of the object that it is."""
    made = given.code if given is not None else None
    method = made.method("__call__") if made is not None and isinstance(made.node, ast.ClassDef) else made
    function = method.node if method is not None else typed
    return function if isinstance(function, Function | ast.Lambda) else None


def _first(function: Function | ast.Lambda) -> str:
    names = [argument.arg for argument in function.args.args if argument.arg != "self"]
    return names[0] if names else ""


def _collated(event: Event) -> Iterator[str]:
    """Yield raw columns that a Trainer's collate function reads: ``[row["text"] for row in rows]``."""
    typed = next((k.value for k in event.node.keywords if k.arg == "data_collator"), None)
    function = _function(event.arg("data_collator", 2), typed)
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.comprehension) and function and ast.unparse(node.iter) == _first(function):
            yield from (key for key in _keys(function, ast.unparse(node.target)) if not _KEPT.search(key))


def _transformed(event: Event) -> Iterator[str]:
    """Yield raw columns that a transform reads of a batch: ``examples["image"]``."""
    function = _function(event.arg("transform", 0), event.node.args[0] if event.node.args else None)
    if function is not None:
        yield from (key for key in _keys(function, _first(function)) if not _TAKEN.fullmatch(key))


def _keys(function: ast.AST, item: str) -> Iterator[str]:
    """Yield the constant keys that are read of an item."""
    for each in ast.walk(function):
        if not isinstance(each, ast.Subscript) or not isinstance(each.ctx, ast.Load):
            continue
        if (
            ast.unparse(each.value) == item
            and isinstance(each.slice, ast.Constant)
            and isinstance(each.slice.value, str)
        ):
            yield each.slice.value
