"""Lightning: the arguments of `__init__` that `load_from_checkpoint` needs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.known import LIGHTNING
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Code

NOT_KEPT = Rule(
    code="TW587",
    severity="error",
    title="load_from_checkpoint lacks arguments that the module's __init__ requires",
    source="Lightning-AI/pytorch-lightning #4390, #3140: TypeError, __init__() missing 1 required positional argument, "
    "without save_hyperparameters(); #18838: arguments that load_from_checkpoint is given",
    remedy="self.save_hyperparameters() in __init__, or load_from_checkpoint(path, width=…).",
)
RULES = (NOT_KEPT,)
_KEEPS = ("save_hyperparameters", "hparams", "on_save_checkpoint", "CHECKPOINT_HYPER_PARAMS_KEY")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.mentions(*_KEEPS) or code.says("^hyper_parameters$"):
        return
    for event in code.ran("load_from_checkpoint", live=True):
        made = event.receiver.code if event.receiver is not None else None
        if made is None or made.method("load_from_checkpoint") is not None:
            continue
        if event.opened or event.under("error") or event.arg("hparams_file", 2) is not None:
            continue
        missing = [name for name in _required(made) if name not in event.keywords]
        if missing and any(origin.startswith(LIGHTNING) for origin in made.origins()):
            what = f"`{event.text}`: no checkpoint and no argument provides {', '.join(missing)}"
            yield at(NOT_KEPT, event, what)
            return


def _required(module: Code) -> list[str]:
    """Return the arguments without a default of a class's own ``__init__``, or of one that it inherits."""
    begin = module.method("__init__")
    if begin is None or not isinstance(begin.node, ast.FunctionDef) or begin.decorators:
        return []
    given = begin.node.args
    listed = [each.arg for each in (*given.posonlyargs, *given.args)][1:]
    named = [each.arg for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    return [*listed[: len(listed) - len(given.defaults)], *named]
