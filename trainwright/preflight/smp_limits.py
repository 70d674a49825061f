"""What SageMaker's model parallel library 1 does itself, so that a script must not, and what it cannot take."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.events import Event
from trainwright.preflight.known import DDP
from trainwright.preflight.loop import ZERO_EARLY
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.smp import V1
from trainwright.preflight.syntax import at
from trainwright.preflight.values import Value

UNSUPPORTED = Rule(
    code="TW498",
    severity="error",
    title="the model parallel library is given what it does not support",
    source="AWS guide, Modify a PyTorch Training Script, unsupported framework features: the DistributedDataParallel "
    "wrapper, as the library integrates DDP itself; apex.amp and apex's fused optimizers; ScriptModules. Modify a "
    "TensorFlow training script: tf.GradientTape, tf.train.Checkpoint.restore and a call of hvd.init",
    remedy="smp.DistributedModel(model) with the plain model, `ddp: true` in the job's parameters; "
    "torch.cuda.amp.autocast with smp.amp.GradScaler. TensorFlow: optimizer.get_gradients(loss, variables) in the "
    "@smp.step function, smp.CheckpointManager, `horovod: true` in the job's parameters.",
)
RULES = (UNSUPPORTED,)
_FUSED = ("FusedAdam", "FusedLAMB", "FusedNovoGrad")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.imports(f"{V1}.torch", certain=True) is None:
        return
    for event in code.ran("DistributedModel", live=True):
        model = event.arg("module", 0) if event.name.startswith(V1) else None
        if model is not None and model.made_by("DistributedDataParallel"):
            yield _at(UNSUPPORTED, event, "around DistributedDataParallel, which the library integrates itself")
        elif any(e.name.startswith("torch.jit.") and e.result is model for e in code.ran("script", "trace")):
            yield _at(UNSUPPORTED, event, "of a model that torch.jit has compiled")
    for event in code.wrapped_events:
        model = event.args[0] if event.args else None
        if DDP.search(event.name) and model is not None and "smp" in model.tags and not event.detached:
            yield _at(UNSUPPORTED, event, "around smp.DistributedModel, which reduces gradients itself")
    for event in code.ran("DistributedOptimizer", live=True):
        made = _made(event.arg("optimizer", 0)) if event.name.startswith(V1) else ""
        if made.startswith("apex.") and made.endswith(_FUSED):
            yield _at(UNSUPPORTED, event, f"of {made}")
    for event in code.ran("initialize", "scale_loss", live=True):
        if event.name.startswith("apex.amp."):
            yield _at(UNSUPPORTED, event, "beside the model parallel library")
            break
    yield from _cleared(code)


def _at(rule: Rule, event: Event, message: str) -> Finding:
    return at(rule, event, f"`{ast.unparse(event.node)[:60]}` {message}")


def _made(value: Value | None) -> str:
    return next(iter(value.made)) if value is not None and len(value.made) == 1 else ""


def _cleared(code: ScriptFacts) -> Iterator[Finding]:
    """Report gradients that are cleared after the step function has computed them, before the optimizer steps."""
    passes = [e for e in code.ran("backward", live=True) if e.receiver is not None and "smp" in e.receiver.tags]
    for zero in code.ran("zero_grad", live=True):
        near = [e for e in (*passes, *code.ran("step", "zero_grad", live=True)) if zero.loops and e.loops == zero.loops]
        near = sorted((e for e in near if e.last != "step" or _of_optimizer(e)), key=lambda e: e.order)
        before = [e for e in near if e.order < zero.order]
        after = [e for e in near if e.order > zero.order]
        if before and before[-1].last == "backward" and after and after[0].last == "step" and not zero.guards:
            what = f"clears the gradients of the step function before the optimizer steps in line {after[0].line}"
            yield _at(ZERO_EARLY, zero, what)
            return


def _of_optimizer(event: Event) -> bool:
    return event.receiver is not None and "optimizer" in event.receiver.tags
