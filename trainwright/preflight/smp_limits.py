"""What SageMaker's model parallel library 1 does itself, so that a script must not, and what it cannot take."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import condition
from trainwright.preflight.loop import ZERO_EARLY
from trainwright.preflight.smp import V1, is_part
from trainwright.script.events import Event
from trainwright.script.known import DDP
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Code, Value

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
SPLIT = Rule(
    code="TW553",
    severity="error",
    title="class weights are split into microbatches, as if they were samples",
    source="SageMaker Python SDK, doc/api/training, common API of the model parallel library, smp.step: tensors are "
    "split along their first dimension unless non_split_inputs names them",
    remedy='@smp.step(non_split_inputs=["weights"])',
)
OF_TENSORS = Rule(
    code="TW559",
    severity="error",
    title="with tensor parallelism, only one of the processes that share a layer saves the model",
    source="AWS guide, Instructions for Checkpointing with Tensor Parallelism: rdp_rank() == 0 instead of dp_rank() == "
    "0, which might stall the job; troubleshooting: these ranks communicate to construct the checkpoint; "
    "huggingface/transformers #15804, #15877",
    remedy="if smp.rdp_rank() == 0: state = model.state_dict(), then torch.save under smp.rank() == 0.",
)
RULES = (UNSUPPORTED, SPLIT, OF_TENSORS)
_PARTS = "if smp.rdp_rank() == 0: smp.save(state.local_state_dict(), path, partial=True)"
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
    yield from _split_weights(code)
    yield from _of_tensors(code)


def _of_tensors(code: ScriptFacts) -> Iterator[Finding]:
    """Report a state that is gathered, or parts that are saved, where dp_rank is 0 in a tensor-parallel job."""
    degree = code.job.smp_parameters.get("tensor_parallel_degree", 1) if code.job is not None else 1
    if not isinstance(degree, int) or degree < 2:
        return
    for event in code.ran("state_dict", "save", live=True):
        guard = event.under("dp")
        # `else` of `if smp.tp_size() > 1`
        if guard is None or any(re.search("tp_|tensor", ast.unparse(each.node)) for each in event.guards):
            continue
        what = f"`{event.text}` runs only where {condition(guard)}: "
        if event.last == "state_dict" and event.receiver is not None and "smp" in event.receiver.tags:
            what += f"it waits for all {degree} tensor-parallel processes"
            yield at(OF_TENSORS, event, what, remedy=_PARTS if _of_optimizer(event) else None)
            return
        if event.last == "save" and event.name in (f"{V1}.torch.save", "torch.save") and is_part(event):
            what += "the parts of the other tensor-parallel processes are lost"
            yield at(OF_TENSORS, event, what, remedy=_PARTS)
            return


# Losses whose weight has a number for each class; of others, it has one for each sample.
_OF_CLASSES = re.compile(r"(^|[._])(cross_entropy|nll_loss|CrossEntropyLoss|NLLLoss)$")


def _split_weights(code: ScriptFacts) -> Iterator[Finding]:
    """Report class weights among the arguments of a step function in a job with several microbatches."""
    parts = code.job.smp_parameters.get("microbatches", 1) if code.job is not None else 1
    for event in code.events if isinstance(parts, int) and parts > 1 else ():
        function = event.called.code if event.called is not None else None
        node = function.node if function is not None else None
        if event.detached or not isinstance(node, ast.FunctionDef) or not _split_by(node, function):
            continue
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        given = dict(zip(names, event.args, strict=False)) | event.keywords
        for name in sorted(_weights(node) & given.keys()):
            if given[name].single() is not None:
                what = f"`{name}` of {node.name} has a number for each class, and is split into {parts} microbatches"
                yield at(SPLIT, event, what, remedy=f'@smp.step(non_split_inputs=["{name}"])')
                return


def _split_by(node: ast.FunctionDef, function: Code | None) -> bool:
    """Return whether smp.step splits all arguments of a function."""
    stepped = function is not None and any(name == f"{V1}.torch.step" for name in function.decorators)
    return stepped and not any(
        "non_split" in ast.unparse(each) or "**" in ast.unparse(each) for each in node.decorator_list
    )


def _weights(node: ast.FunctionDef) -> set[str]:
    """Return the parameters of a function that it passes, unchanged, to a loss as class weights."""
    stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    found: set[str] = set()
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        written = ast.unparse(call.func)
        known, place = _OF_CLASSES.search(written), 0 if written.endswith("Loss") else 2
        values = [k.value for k in call.keywords if k.arg == "pos_weight" or (known and k.arg == "weight")]
        values += call.args[place : place + 1] if known else []
        found |= {value.id for value in values if isinstance(value, ast.Name)}
    return found - stored


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
