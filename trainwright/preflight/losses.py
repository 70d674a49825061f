"""What losses of PyTorch get: outputs with a softmax or sigmoid that they apply themselves, and without gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import ENDS, SQUASHED, Marks, Value

SQUASHED_TWICE = Rule(
    code="TW465",
    severity="warning",
    title="a loss gets probabilities, and expects logits or their logarithms",
    source="PyTorch's documentation of CrossEntropyLoss and BCEWithLogitsLoss: the input are unnormalized logits; of "
    "NLLLoss: log-probabilities",
    remedy="Return the logits, and apply softmax or sigmoid for metrics alone (for NLLLoss, return log_softmax).",
)
CUT = Rule(
    code="TW499",
    severity="error",
    title="a loss is computed from the index of the largest output, which has no gradient",
    source='torch/autograd: "element 0 of tensors does not require grad and does not have a grad_fn"; PyTorch\'s '
    "documentation of CrossEntropyLoss: the input are the scores of all classes",
    remedy="loss = criterion(logits, target); take argmax for metrics alone.",
)
RULES = (SQUASHED_TWICE, CUT)
_INDICES = ("argmax", "argmin", "argsort")
_SAME_VALUES = ("float", "double", "half", "long", "to", "cuda", "view", "reshape", "squeeze", "unsqueeze", "type")
_LOSSES: dict[str, Marks] = {
    **dict.fromkeys(("cross_entropy", "CrossEntropyLoss"), frozenset({"as:softmax"})),
    **dict.fromkeys(("nll_loss", "NLLLoss"), frozenset({"as:softmax"})),
    **dict.fromkeys(("binary_cross_entropy_with_logits", "BCEWithLogitsLoss"), SQUASHED),
}
# Where the models of torchvision have their last layers, which scripts replace.
_HEADS = ("fc", "classifier", "head", "heads")
_DEEPEST = 4


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    yield from _squashed_twice(code)
    yield from _cut(code)


def _squashed_twice(code: ScriptFacts) -> Iterator[Finding]:
    for event in code.events:
        name = _loss(event)
        given = event.arg("input", 0) if name else None
        found = _squashed(code, given) & _LOSSES[name] if given is not None else None
        if found:
            what = " or ".join(sorted(tag[3:] for tag in found))
            told = f"`{ast.unparse(event.node)[:60]}`: {what} was applied already, and {name} expects"
            yield at(
                SQUASHED_TWICE,
                event,
                f"{told} {'its logarithm' if name.lower().startswith('nll') else 'logits'}",
            )
            return


def _cut(code: ScriptFacts) -> Iterator[Finding]:
    """Report a loss whose backward pass is called though its input are indices."""
    passes = code.ran("backward", live=True)
    for event in code.events:
        value = event.arg("input", 0) if _loss(event) or _any_loss(event) else None
        made = code.maker(value) if value is not None else None
        for _ in range(_DEEPEST):
            if made is not None and made.last in _SAME_VALUES and made.receiver is not None:
                made = code.maker(made.receiver)
        if made is None or made.last not in _INDICES or not made.name.startswith(("torch.", "?")):
            continue
        if any(event.result is each for e in passes for each in (e.receiver, *e.args, *_scaled(code, e))):
            what = f"`{ast.unparse(made.node)[:40]}` in line {made.line} has no gradient, and backward is called"
            yield at(CUT, event, f"`{ast.unparse(event.node)[:50]}`: {what}")
            return


def _any_loss(event: Event) -> bool:
    """Return whether a call computes a loss by its name, also one of those that take no logits."""
    made = event.called.made if event.called is not None else frozenset()
    of_class = bool(made) and all(name.startswith("torch.nn.") and name.endswith("Loss") for name in made)
    return of_class or (event.name.startswith("torch.nn.functional.") and event.last.endswith("_loss"))


def _scaled(code: ScriptFacts, backward: Event) -> list[Value]:
    """What ``scaler.scale(…).backward()`` has scaled."""
    made = code.maker(backward.receiver) if backward.receiver is not None else None
    return made.args if made is not None and made.last == "scale" else []


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
