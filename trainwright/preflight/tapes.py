"""Gradients of TensorFlow's tapes in custom training loops: averaged among the processes, and unscaled."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.amp import NOT_SCALED, PLAIN_STEP
from trainwright.preflight.horovod import NOT_REDUCED
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value

UNSCALED = Rule(
    code="TW537",
    severity="warning",
    title="gradients in FP16 whose loss is not scaled",
    source="TensorFlow's guide Mixed precision, Training the model with a custom training loop: with mixed_float16 the "
    "loss has to be scaled, or gradients underflow to zero; model.compile does it for fit",
    remedy="optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer); get_scaled_loss in the tape, and "
    "get_unscaled_gradients after it (Keras 3: optimizer.scale_loss). Or mixed_bfloat16, on GPUs that have it.",
)
RULES = (UNSCALED,)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not (code.tensorflow or code.horovod):
        return
    yield from _scaled(code)
    if code.horovod and code.several:
        yield from _plain_tapes(code)


def _scaled(code: ScriptFacts) -> Iterator[Finding]:
    """Check the two halves of a loop of one's own with LossScaleOptimizer of Keras 2."""
    losses, unscaled = code.ran("get_scaled_loss"), code.ran("get_unscaled_gradients")
    # Keras calls the train_step of a model.
    functions = {e.stack[-1] for e in losses if e.stack}
    applied = [e for e in code.ran("apply_gradients") if not e.detached or functions.intersection(e.stack)]
    if losses and not unscaled and applied:
        yield at(PLAIN_STEP, applied[0], f"`{applied[0].text}` without get_unscaled_gradients")
    elif unscaled and not losses:
        yield at(NOT_SCALED, unscaled[0], f"`{unscaled[0].text}` of a loss that get_scaled_loss has not scaled")
    elif not (
        losses or code.mentions("compile", "LossScaleOptimizer") or code.mentions_like("loss_?scal|scale_?d?_?loss")
    ):
        half = [e for e in code.ran("set_global_policy", "set_policy", live=True) if _policy(e) == "mixed_float16"]
        taken = [e for e in code.ran("apply_gradients", live=True) if half and e.order > half[0].order]
        if taken and not any(e.off for e in half):
            what = f"`{taken[0].text}` applies FP16 gradients of an unscaled loss (policy: line {half[0].line})"
            yield at(UNSCALED, taken[0], what)


def _policy(event: Event) -> object:
    """Return the name of the policy that a call sets; Ellipsis if it is not known."""
    given = event.arg("policy", 0)
    return given.single() if given is not None else ...


def _plain_tapes(code: ScriptFacts) -> Iterator[Finding]:
    """Report gradients of the process's own share that an optimizer takes, though a tape was wrapped."""
    tapes = [e for e in code.ran("DistributedGradientTape", live=True) if "hvd" in e.result.tags]
    taken = [e for e in code.ran("gradient", live=True) if e.receiver is not None and not e.receiver.name]
    if tapes and taken and not any("hvd" in e.receiver.tags for e in taken if e.receiver is not None):
        what = f"`{taken[0].text}` asks the plain tape, not the one of line {tapes[0].line}"
        yield at(NOT_REDUCED, taken[0], what)
        return
    applied = [e for e in code.ran("apply_gradients") if e.args and tapes]
    plain = [e for e in applied if _of_plain_tape(code, e.args[0])]
    for event in plain:
        # A first step without an average makes the variables that are sent then, as in Horovod's elastic examples.
        others = (e for e in applied if e.node is event.node or e.receiver is event.receiver)
        # Steps of its own that an outer tape records, as of meta-learning, are not averaged one by one.
        inner = "tensorflow.GradientTape" in event.contexts
        wrapped = event.receiver is not None and "hvd" in event.receiver.tags
        if not (event.detached or wrapped or inner) and all(e in plain for e in others):
            what = f"`{event.text}` applies gradients of a plain tape; only that of line {tapes[0].line} is wrapped"
            yield at(NOT_REDUCED, event, what)
            return


def _of_plain_tape(code: ScriptFacts, value: Value) -> bool:
    """Return whether a value is, or holds, what a tape of TensorFlow itself has computed, clipped or not."""
    tape = value.of if "grad" in value.tags else None
    if tape is not None and tape.made == {"tensorflow.GradientTape"}:
        return True
    made = code.maker(value)
    clipped = made.args[:1] if made is not None and made.name.startswith("tensorflow.clip_by_") else []
    parts = (*(value.items or ()), *(value.attrs or {}).values(), *clipped)
    return any(_of_plain_tape(code, part) for part in parts)
