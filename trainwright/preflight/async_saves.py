"""Asynchronous checkpoints, which have to be finished before the script ends."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at

UNFINISHED = Rule(
    code="TW581",
    severity="warning",
    title="the script ends before its last asynchronous checkpoint is finished",
    source="AWS reference of SMP v2, torch.sagemaker.distributed.checkpoint.state_dict_saver: async_save saves "
    "asynchronously; maybe_finalize_async_calls waits until all requests are completed, and with blocking=False "
    "finalizes those that have finished",
    remedy="maybe_finalize_async_calls(blocking=True, process_group=…) in every process after training.",
)
RULES = (UNFINISHED,)
_SAVER = "torch.sagemaker.distributed.checkpoint.state_dict_saver."
_FINISH = "maybe_finalize_async_calls"


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.mentions("AsyncCallsQueue"):
        return
    saves = [e for e in code.ran("async_save", live=True) if e.name == f"{_SAVER}async_save"]
    if not saves or any(e.order > saves[-1].order for e in code.ran(_FINISH) if _waits(e)):
        return
    what = f"`{saves[-1].text}`: nothing waits for it after training"
    path = saves[-1].arg("checkpoint_id", 1)
    result = path is not None and "root:model" in path.tags
    yield at(UNFINISHED, saves[-1], what, severity="error" if result else None)


def _waits(event: Event) -> bool:
    """Return whether a call waits for all that is being written, as it does by default, or may wait."""
    blocking = event.arg("blocking", 0)
    return blocking is None or blocking.single() is not False
