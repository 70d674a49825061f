"""Names that are not what they seem: a function that is not called, a property that is, one that some ranks lack."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import condition
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at

NO_CALL = Rule(
    code="TW470",
    severity="error",
    title="a function is asked whether it is true, instead of its result, or a property is called",
    source="Python's language reference, truth value testing: a function is always true; Accelerate's API of "
    "Accelerator: is_main_process and the like are properties (TypeError: 'bool' object is not callable)",
    remedy="Call the function: if trainer.is_world_process_zero(): …; read a property without a call.",
)
UNSET = Rule(
    code="TW471",
    severity="error",
    title="a name is set in some processes only, and all of them use it",
    source="Python's language reference, resolution of names: UnboundLocalError or NameError in the others, while the "
    "process that has it waits for them",
    remedy="Set it in every process (None where there is nothing), or use it under the same condition.",
)
RULES = (NO_CALL, UNSET)
# Properties of Accelerate's Accelerator and PartialState, of transformers' arguments, and of Lightning's Trainer.
_PROPERTIES = {
    "Accelerator": (
        *("is_main_process", "is_local_main_process", "is_last_process", "process_index", "local_process_index"),
        *("num_processes", "device", "sync_gradients", "distributed_type", "mixed_precision", "use_distributed"),
    ),
    "PartialState": ("is_main_process", "is_local_main_process", "is_last_process", "process_index", "num_processes"),
    "TrainingArguments": ("world_size", "process_index", "local_process_index", "should_save", "should_log", "device"),
    "lightning.Trainer": ("is_global_zero", "global_rank", "local_rank", "world_size", "global_step", "current_epoch"),
}


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    reported: set[ast.AST] = set()
    for module, node in code.uncalled:
        if node not in reported:
            reported.add(node)
            what = f"`{ast.unparse(node)[:60]}` is a function, and always true; its result is meant"
            yield at(NO_CALL, (module, node), what)
    for event in code.events:
        base = event.receiver
        if base is None or base.code is not None or event.node in reported:
            continue
        if any(base.made_like(owner) and event.last in names for owner, names in _PROPERTIES.items()):
            reported.add(event.node)
            what = f"`{ast.unparse(event.node)[:60]}`: {event.last} is a property, and its value cannot be called"
            yield at(NO_CALL, event, what)
    if not code.several or code.incomplete:
        return
    names: set[str] = set()
    for place, name, guard in code.missing:
        tried = any(isinstance(outer, ast.Try) and outer.handlers for outer in ancestors(place, name))
        if name.id not in names and not tried:
            names.add(name.id)
            yield at(UNSET, (place, name), f"`{name.id}` is set only where {condition(guard)}")
