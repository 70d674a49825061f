"""Models that are not trained: all of whose parameters are frozen, or that are saved before training."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.apart import NO_GRAPH
from trainwright.preflight.saving import NOT_FINAL
from trainwright.script.events import Event
from trainwright.script.paths import roots
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value

RULES: tuple[Rule, ...] = ()
_SAVES = ("save", "save_file", "save_pretrained", "save_model", "save_weights")
# What gives a model parameters that are not frozen, or frees some.
_FREES = (
    "get_peft_model",
    "add_adapter",
    "set_adapter",
    "inject_adapter",
    "add_module",
    "register_parameter",
    "unfreeze",
)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.tensorflow:
        return
    yield from _frozen(code)
    yield from _saved_first(code)


def _frozen(code: ScriptFacts) -> Iterator[Finding]:
    """Report that all parameters of the one model are frozen that an optimizer or a Trainer gets."""
    if code.mentions(*_FREES) or code.mentions_like("lora|adapter|peft") or code.replacements:
        return
    freezes = [e for e in code.ran("requires_grad_", "parameters", live=True) if _off(e) and not e.guards]
    changes = sum(isinstance(n, ast.Attribute) and n.attr == "requires_grad" for m in code.modules for n in m.nodes)
    changes += sum(1 for _ in code.called("requires_grad_"))
    for event in freezes if changes == len({e.node for e in freezes}) else ():
        trained = [model for model in _trained(code) if model is not None]
        if trained and all(_same(event.receiver, model) for model in trained):
            what = f"`{ast.unparse(event.node)[:50]}`: all parameters of the model that is trained are frozen"
            yield at(NO_GRAPH, event, what, remedy="Freeze the backbone alone, or set requires_grad of the head again.")
            return


def _off(event: Event) -> bool:
    """Return whether a call freezes a whole model, or its loop does and nothing else with the parameters."""
    if event.last == "requires_grad_":
        given = event.arg("requires_grad", 0)
        return given is not None and given.single() is False and _whole(event.receiver)
    loop = event.module.parents.get(event.node)
    if not isinstance(loop, ast.For) or len(loop.body) != 1 or not _whole(event.receiver):
        return False
    return ast.unparse(loop.body[0]) in (
        f"{ast.unparse(loop.target)}.requires_grad = False",
        f"{ast.unparse(loop.target)}.requires_grad_(False)",
    )


def _whole(model: Value | None) -> bool:
    return model is not None and "model" in model.tags and bool(model.made)


def _trained(code: ScriptFacts) -> Iterator[Value | None]:
    """Yield the models whose parameters an optimizer gets, and those of a Trainer."""
    for event in code.events:
        if "optimizer" in event.result.tags and event.result.made and not event.detached and event.args:
            several = ast.unparse(event.node).count("parameters") > 1
            yield event.result.of if not several else Value()
        elif event.last.endswith("Trainer") and event.name.startswith(("transformers.", "trl.")) and not event.detached:
            yield event.arg("model", 0)


def _same(frozen: Value | None, trained: Value) -> bool:
    """Return whether a frozen model is the trained one, or what is in its wrappers."""
    inner: Value | None = trained
    while inner is not None and inner is not frozen:
        inner = inner.of
    return inner is not None


def _saved_first(code: ScriptFacts) -> Iterator[Finding]:
    """Report a final model that is saved before the first step of training, and not again."""
    starts = [e for e in code.events if e.last in ("backward", "train", "fit") and not e.detached and _trains(e)]
    saves = [e for e in code.ran(*_SAVES) if "model" in roots(_path(e)) and _of_model(e)]
    if not starts or not saves or any(e.detached or e.loops for e in saves) or code.smp:
        return  # a function that SMP's step decorates is followed later
    if max(e.order for e in saves) < min(e.order for e in starts):
        what = f"`{ast.unparse(saves[-1].node)[:60]}` comes before the training in line {starts[0].line}"
        yield at(NOT_FINAL, saves[-1], what, remedy="Save the model after the training.")


def _of_model(event: Event) -> bool:
    """Return whether a model or its state is saved, not a tokenizer."""
    given = event.args[0].tags if event.args else frozenset()
    receiver = event.receiver
    return bool(given & {"model", "state"}) or (
        receiver is not None and ("model" in receiver.tags or receiver.made_like("Trainer"))
    )


def _trains(event: Event) -> bool:
    made = event.receiver.made if event.receiver is not None else frozenset()
    return event.last == "backward" or any(name.startswith(("transformers.", "trl.")) for name in made)


def _path(event: Event) -> Value | None:
    names = ("f", "filename", "save_directory", "output_dir")
    named = next((value for name in names if (value := event.arg(name)) is not None), None)
    return named or event.arg("", 1 if event.last in ("save", "save_file") and event.name.startswith("torch") else 0)
