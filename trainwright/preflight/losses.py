"""Losses of PyTorch that apply a softmax or sigmoid themselves, and outputs to which one was applied already."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.events import Event
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import at
from trainwright.preflight.values import ENDS, SQUASHED, Marks, Value

SQUASHED_TWICE = Rule(
    code="TW465",
    severity="warning",
    title="a loss gets probabilities, and expects logits or their logarithms",
    source="PyTorch's documentation of CrossEntropyLoss and BCEWithLogitsLoss: the input are unnormalized logits; of "
    "NLLLoss: log-probabilities",
    remedy="Return the logits, and apply softmax or sigmoid for metrics alone (for NLLLoss, return log_softmax).",
)
RULES = (SQUASHED_TWICE,)
_LOSSES: dict[str, Marks] = {
    **dict.fromkeys(("cross_entropy", "CrossEntropyLoss"), frozenset({"as:softmax"})),
    **dict.fromkeys(("nll_loss", "NLLLoss"), frozenset({"as:softmax"})),
    **dict.fromkeys(("binary_cross_entropy_with_logits", "BCEWithLogitsLoss"), SQUASHED),
}
# Where the models of torchvision have their last layers, which scripts replace.
_HEADS = ("fc", "classifier", "head", "heads")
_DEEPEST = 4


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rule of this family."""
    if code.incomplete:
        return
    for event in code.events:
        name = _loss(event)
        given = event.arg("input", 0) if name else None
        found = _squashed(code, given) & _LOSSES[name] if given is not None else None
        if found:
            what = " or ".join(sorted(tag[3:] for tag in found))
            told = f"`{ast.unparse(event.node)[:60]}`: {what} was applied already, and {name} expects"
            yield at(
                SQUASHED_TWICE,
                (event.module, event.node),
                f"{told} {'its logarithm' if name.lower().startswith('nll') else 'logits'}",
            )
            return


def _loss(event: Event) -> str:
    """Return the loss that a call computes; nothing for another call."""
    if event.name.startswith("torch.nn.functional.") and event.last in _LOSSES:
        return event.last
    made = event.called.made if event.called is not None else frozenset()
    names = [each.rpartition(".")[2] for each in made if each.startswith("torch.nn.")]
    return names[0] if len(made) == 1 and names and names[0] in _LOSSES else ""


def _squashed(code: ScriptFacts, value: Value, depth: int = 0) -> Marks:
    """Return which function was applied last to a value, also by the model that made it."""
    if depth > _DEEPEST or value.tags & SQUASHED:
        return value.tags & SQUASHED
    made = code.maker(value)
    model = made.model if made is not None else None
    while model is not None:
        forward = model.code.method("forward") if model.code is not None else None
        if forward is not None:
            returned = code.returned(forward)
            return _squashed(code, returned, depth + 1) if returned is not None else frozenset()
        replaced = any(each.startswith("torchvision.models.") for each in model.made)
        ends = [model, *((model.attrs or {}).get(name, Value()) for name in _HEADS if replaced)]
        if tags := frozenset(f"as:{tag[5:]}" for each in ends for tag in each.tags & ENDS):
            return tags
        model = model.of
    return frozenset()
