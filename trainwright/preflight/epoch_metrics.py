"""Keras metrics in a custom training loop, which accumulate over epochs unless the loop resets them."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value

NEVER_RESET = Rule(
    code="TW589",
    severity="warning",
    title="a metric is never reset between epochs, unlike others in the same loop, so it covers all epochs so far",
    source="Keras's documentation of metrics: they are stateful, and reset_state clears them; "
    "JetBrains-Research/code2seq #112, MichiganCOG/ViP #34: without it they accumulate over all epochs",
    remedy="metric.reset_state() at the start of each epoch",
)
RULES = (NEVER_RESET,)
_RESETS = ("reset_state", "reset_states")
_METRICS = ("tensorflow.keras.metrics.", "tensorflow.metrics.", "keras.metrics.")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.mentions(*_RESETS):
        return
    made = [e for e in code.events if e.name.startswith(_METRICS)]
    resets = code.ran(*_RESETS)
    known = [_metric(made, e.receiver) for e in resets]
    if None in known:
        return
    in_loops = [e for e in resets if e.loops and not e.under("flag")]
    for event in made:
        if event.loops or event.detached or event in known or event.last == "Sum":  # what a whole run has seen
            continue
        updates = [e for e in code.ran("update_state") if e.receiver is event.result]
        asked = [e for e in code.ran("result") if e.receiver is event.result and e.loops]
        for epoch in (e.loops[-1] for e in in_loops):
            batches = [e for e in updates if epoch in e.loops[:-1]]
            if batches and any(e.loops[-1] is epoch for e in asked):
                what = f"`{event.text}`: line {batches[0].line} continues from the previous epoch"
                yield at(NEVER_RESET, event, what)
                return


def _metric(made: list[Event], receiver: Value | None) -> Event | None:
    """Return the call that made a metric; None if that cannot be seen."""
    return next((e for e in made if e.result is receiver), None)
