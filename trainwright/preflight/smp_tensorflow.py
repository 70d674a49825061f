"""SageMaker's model parallel library 1 for TensorFlow: gradients, batches and the order of the data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.data import LAST_BATCH, WRONG_SHARE, cuts, divided_model, for_training, of_partitions
from trainwright.preflight.smp import UNEVEN, V1
from trainwright.preflight.smp_limits import UNSUPPORTED
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value

LIBRARY = f"{V1}.tensorflow"
OTHER_SAMPLES = Rule(
    code="TW532",
    severity="error",
    title="the processes that hold the parts of one model read different samples",
    source="AWS guide, Modify a TensorFlow training script: seed the random operations of the data pipeline with "
    "smp.dp_rank(), so that the GPUs that hold different partitions of a model get the same samples",
    remedy="dataset.shuffle(size, seed=smp.dp_rank())",
)
RULES = (OTHER_SAMPLES,)
# Numbers that two processes of one model do not have in common.
_APART = frozenset({"rank", "part_rank", "random", "clock"})


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.imports(LIBRARY, certain=True) is None:
        return
    yield from _unsupported(code)
    yield from _batches(code)
    if code.job is None or divided_model(code):
        yield from _order(code)


def _at(rule: Rule, event: Event, message: str, severity: Severity | None = None) -> Finding:
    return at(rule, event, f"`{ast.unparse(event.node)[-60:]}`{message}", severity=severity)


def _unsupported(code: ScriptFacts) -> Iterator[Finding]:
    """Report what the guide lists as unsupported: GradientTape, restoring without smp's manager, hvd.init."""
    # step = smp.step(function)
    given = {value.code for e in code.ran("step") if e.name == f"{LIBRARY}.step" for value in e.args if value.code}
    for event in code.ran("GradientTape"):
        inside = f"@{LIBRARY}.step" in event.contexts or any(function in given for function in event.stack)
        around = any(
            f"@{LIBRARY}.step" in e.contexts and _within(e, event) for e in code.events if e.order > event.order
        )
        if event.name == "tensorflow.GradientTape" and (inside or around):
            where = "in" if inside else "around"
            what = f" {where} an @smp.step function: optimizer.get_gradients(loss, variables) computes the gradients"
            yield _at(UNSUPPORTED, event, what)
            break
    for event in code.ran("restore", live=True):
        if event.receiver is not None and event.receiver.made_by("tensorflow.train.Checkpoint"):
            yield _at(UNSUPPORTED, event, ": smp.CheckpointManager(checkpoint).restore() restores a divided model")
            break
    for event in code.ran("init", live=True):
        if event.name.startswith("horovod."):
            yield _at(UNSUPPORTED, event, ": smp.init() initialises Horovod among the copies of each part", "warning")
            break


def _within(event: Event, tape: Event) -> bool:
    """Return whether a call is made in the ``with`` block that a tape opens."""
    return "tensorflow.GradientTape" in event.contexts and event.stack[: len(tape.stack)] == tape.stack


def _batches(code: ScriptFacts) -> Iterator[Finding]:
    """Report training batches that the library cannot split into microbatches of one size."""
    parts = code.job.smp_parameters.get("microbatches", 1) if code.job is not None else None
    if parts == 1:
        return
    whole = cuts(code) or code.mentions("take", "filter") or _skips(code)
    for event in code.ran("batch", "padded_batch", live=True):
        data = event.receiver
        if data is None or "dataset" not in data.tags or not for_training(event):
            continue
        size = event.arg("batch_size", 0)
        number = size.single() if size is not None else None
        if isinstance(number, int) and isinstance(parts, int) and number % parts:
            yield at(
                UNEVEN,
                event,
                f"batches of {number} cannot be split into {parts} microbatches",
            )
            return
        last = event.arg("drop_remainder", 1 if event.last == "batch" else 3)
        off = last is None or (last.single() is False and last.sure)
        if off and not (whole or event.opened or "endless" in data.tags):
            yield _at(LAST_BATCH, event, " without drop_remainder=True: SMP splits each batch into microbatches")
            return


def _skips(code: ScriptFacts) -> bool:
    """Return whether the script leaves a loop, or one pass of it, where a batch has another size."""
    guards = [guard for each in code.exits if each.kind != "return" for guard in each.guards]
    return any(re.search(r"shape|len\(|size", ast.unparse(guard.node)) for guard in guards)


def _order(code: ScriptFacts) -> Iterator[Finding]:
    """Report a shuffle, or a share, in which the parts of one model differ."""
    numbers = [e for e in code.events if e.role in ("rank", "local_rank", "world")]
    seeds = code.ran("set_seed", "set_random_seed", live=True)
    seeds = [e for e in seeds if e.name.startswith("tensorflow.") and e.args]
    for event in seeds:
        if _differs(event, event.args[0]) and not _of_copies(numbers, event):
            yield _at(OTHER_SAMPLES, event, ": another seed for each part of the model")
            return
    for event in code.ran("shuffle", live=True):
        data, seed = event.receiver, event.arg("seed", 1)
        if data is None or "dataset" not in data.tags or event.opened:
            continue
        if seed is not None and _differs(event, seed) and not _of_copies(numbers, event):
            yield _at(OTHER_SAMPLES, event, ": another seed for each part of the model")
            return
        if (seed is None or seed.single() is None) and not code.mentions("set_seed", "set_random_seed"):
            yield _at(OTHER_SAMPLES, event, ": without any seed, each part of the model draws its own order", "warning")
            return
    for event in code.ran("shard", live=True):
        count, index = event.arg("num_shards", 0), event.arg("index", 1)
        data = event.receiver
        what = of_partitions(code, count, index) if count is not None and index is not None else ""
        if what and data is not None and "dataset" in data.tags and not _of_copies(numbers, event):
            yield _at(WRONG_SHARE, event, f": {what}")
            return


def _differs(event: Event, seed: Value) -> bool:
    """Return whether two processes of one model have different seeds."""
    # `rank % copies`, which may be the number of a copy, is known as a local rank, too.
    local = "local_rank" in seed.tags and "local_rank()" in ast.unparse(event.node)
    return (local or bool(seed.tags & _APART)) and "dp_rank" not in seed.tags


def _of_copies(numbers: list[Event], event: Event) -> bool:
    """Return whether a call's numbers may be Horovod's: of the copies of a part, as smp.init() initialises it."""
    inside = set(ast.walk(event.node))
    return any(e.name.startswith("horovod.") for e in [e for e in numbers if e.node in inside] or numbers)
