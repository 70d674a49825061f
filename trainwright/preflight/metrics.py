"""Metrics: under the names that a Trainer asks for, and with each sample of the evaluation counted once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at
from trainwright.script.values import Code, Value

REPEATED = Rule(
    code="TW463",
    severity="warning",
    title="samples that fill up the last batch of an evaluation count twice in its metrics",
    source="Accelerate's quick tour, distributed evaluation: the last batch is completed with samples that were there "
    "already, and gather_for_metrics drops them",
    remedy="accelerator.gather_for_metrics((predictions, labels))",
)
RULES = (REPEATED,)
# What makes one number of a batch; the repeated samples are in it already.
_REDUCES = ("sum", "mean", "item", "count_nonzero", "tensor", "numel")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several or code.imports("accelerate") is None:
        return
    off = [e.arg("even_batches") for e in code.events if e.last in ("Accelerator", "DataLoaderConfiguration")]
    if any(value is not None and value.may_be(False) for value in off) or code.mentions("join_uneven_inputs"):
        return
    training = {loop for event in code.ran("backward") for loop in event.loops[-1:]}
    for event in code.ran("gather", live=True):
        if not event.name.startswith("accelerate.Accelerator.") or not event.loops or event.loops[-1] in training:
            continue
        given = event.arg("tensor", 0)
        by_name = "loss" in ast.unparse(event.node).lower()  # a mean of the batch, as a rule
        if given is not None and _completed(code, event) and not by_name and _per_sample(code, given, event):
            yield at(REPEATED, event, f"`{ast.unparse(event.node)[:60]}`")
            return


def _completed(code: ScriptFacts, event: Event) -> bool:
    """Return whether a loop goes over what Accelerate prepared, and its last batch may be smaller than the others."""
    value = code.iterated(event.loops[-1])
    while value is not None and "accelerate" not in value.tags:
        value = value.of
    loader = code.loader(event.loops[-1])
    dropped = loader.arg("drop_last") if loader is not None else None
    return value is not None and "loader" in value.tags and (dropped is None or dropped.may_be(False))


def _per_sample(code: ScriptFacts, given: Value, event: Event) -> bool:
    """Return whether what is gathered has a row for each sample, no sum, and all of them are kept."""
    values = (given, *(given.items or ()), *(given.attrs or {}).values())
    reduced = [e.result for e in code.ran(*_REDUCES)]
    summed = any("loss" in value.tags or any(value is each for each in reduced) for value in values)
    return not (summed or _cut(event))


def _cut(event: Event) -> bool:
    """Return whether the function of a call cuts something to a length: ``predictions[: len(dataset) - seen]``."""
    around = next((n for n in ancestors(event.module, event.node) if isinstance(n, ast.FunctionDef)), event.module.tree)
    uppers = (n.upper for n in ast.walk(around) if isinstance(n, ast.Slice) and n.upper is not None)
    return any("len(" in ast.unparse(upper) or isinstance(upper, ast.Name | ast.BinOp) for upper in uppers)


def names(code: ScriptFacts, function: Code) -> set[str]:
    """Return the names of the metrics that a function of the script returns; nothing if not all are known."""
    value = code.returned(function)
    attrs = value.attrs if value is not None and value.code is None else None
    if not attrs or attrs.keys() & {"**", "element"}:
        return set()
    return {name.removeprefix("eval_") for name in attrs}


# Measures that are better the smaller they are, and the larger they are.
_SMALL = re.compile(r"(^|_)(loss|wer|cer|ter|mae|mse|rmse|perplexity|ppl|eer|error(_rate)?)$")
_LARGE = re.compile(
    r"(^|_)(accuracy|acc|f1|precision|recall|bleu|sacrebleu|meteor|rouge\w*|auc|iou|exact_match|matthews_correlation)$"
)


def keeps_worst(name: str, given: Value | None) -> bool | None:
    """Return how a Trainer compares a measure, if that keeps the worst checkpoint; None if it does not, or may not.

    transformers, training_args.py, __post_init__: without greater_is_better, more is better unless the name of the
    measure ends with "loss".

    Args:
        name: of the measure, without ``eval_``.
        given: greater_is_better, if it is given.
    """
    larger = not name.endswith("loss") if given is None or given.single() is None else given.single()
    wrong = (larger is True and _SMALL.search(name)) or (larger is False and _LARGE.search(name))
    return larger if wrong and isinstance(larger, bool) else None
