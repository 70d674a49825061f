"""Numbers of one process, or of one host, that are taken for those of the whole job."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.events import Event
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import at
from trainwright.preflight.values import Value

SHORT_SCHEDULE = Rule(
    code="TW517",
    severity="error",
    title="a schedule counts the batches of one process, and Accelerate steps it once for each process",
    source="Accelerate, scheduler.py: the prepared scheduler makes num_processes steps at each step, unless "
    "split_batches=True; huggingface/diffusers #3954, huggingface/accelerate #2926",
    remedy="num_training_steps=max_steps * accelerator.num_processes, or take len() of the loader before prepare.",
)
RULES = (SHORT_SCHEDULE,)
# Where a schedule gets its number of steps: by name, and by position.
_STEPS = ("num_training_steps", "total_steps", "steps_per_epoch", "T_max", "total_iters")
_PLACES = {"get_scheduler": 3, "OneCycleLR": 2, "CosineAnnealingLR": 1}
_WITH_WARMUP = 2


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several:
        return
    if code.imports("accelerate") is not None:
        yield from _short_schedules(code)


def _at(rule: Rule, event: Event, message: str) -> Finding:
    return at(rule, (event.module, event.node), f"`{ast.unparse(event.node.func)[:50]}` {message}")


def _short_schedules(code: ScriptFacts) -> Iterator[Finding]:
    """Report a prepared schedule whose length was computed from a prepared loader."""
    made = [e for e in code.ran("Accelerator", live=True) if e.name.startswith("accelerate.")]
    settings = [*made, *code.ran("DataLoaderConfiguration", live=True)]
    if not made or code.imports("deepspeed") is not None or any(map(_steps_once, settings)):
        return
    prepared = [
        (event, value)
        for event in code.ran("prepare", "prepare_scheduler", live=True)
        if event.name.startswith("accelerate.Accelerator.")
        for value in event.args
    ]
    for event in code.events:
        length = _length(event)
        if length is None or event.detached or "share-length" not in length.tags:
            continue
        later = [e for e, value in prepared if e.order > event.order and _same(value, event.result)]
        if later:
            part = f"1/{code.launch.processes}" if code.launch.processes else "a part"
            what = f"gets the steps of one process, and is prepared in line {later[0].line}"
            yield _at(SHORT_SCHEDULE, event, f"{what}: it ends after {part} of the training")
            return


def _steps_once(event: Event) -> bool:
    """Return whether the scheduler of an accelerator may step once at each step."""
    split, coupled = event.arg("split_batches"), event.arg("step_scheduler_with_optimizer")
    return (
        event.opened
        or (split is not None and not _is(split, False))
        or (coupled is not None and not _is(coupled, True))
    )


def _is(value: Value, wanted: bool) -> bool:
    return value.single() is wanted and "flag" not in value.tags


def _length(event: Event) -> Value | None:
    """Return the number of steps that a schedule gets."""
    if not event.name.startswith(("transformers.", "diffusers.", "torch.optim.lr_scheduler.")):
        return None
    place = _WITH_WARMUP if event.last.endswith("_with_warmup") else _PLACES.get(event.last)
    given = (event.arg(name) for name in _STEPS)
    found = next((value for value in given if value is not None and "share-length" in value.tags), None)
    return found or (event.arg("", place) if place is not None else None)


def _same(value: Value, made: Value) -> bool:
    """Return whether a value is what a call has made, perhaps in one of two branches."""
    return value is made or (bool(made.made) and made.made <= value.made)
