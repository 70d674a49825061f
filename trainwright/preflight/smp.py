"""SageMaker's model parallel library: initialisation, wrapping, one device per process, the step function."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import at, enclosing_function

V1, V2 = "smdistributed.modelparallel", "torch.sagemaker"
GUIDE = "AWS guide for model-parallel training scripts"
NO_INIT = Rule(
    code="TW105",
    severity="error",
    title="the model parallel library is imported and never initialised",
    source=GUIDE,
    remedy="Call smp.init() (version 2: torch.sagemaker.init()) first of all in the script.",
)
NOT_WRAPPED = Rule(
    code="TW106",
    severity="warning",
    title="the model parallel library is initialised, but the model or the optimizer is not handed to it",
    source=GUIDE,
    remedy="model = smp.DistributedModel(model); optimizer = smp.DistributedOptimizer(optimizer)",
)
NO_DEVICE = Rule(
    code="TW107",
    severity="error",
    title="with the model parallel library each process needs its own GPU, and the script chooses none",
    source=f"{GUIDE}: one process per GPU",
    remedy="torch.cuda.set_device(smp.local_rank()) right after smp.init().",
)
PLAIN_BACKWARD = Rule(
    code="TW108",
    severity="error",
    title="inside an @smp.step function the loss's own backward is called",
    source=f"{GUIDE}: the library splits the backward pass over microbatches and devices itself",
    remedy="model.backward(loss)",
)
NOT_AGREED = Rule(
    code="TW109",
    severity="error",
    title="job and script do not agree on whether the model parallel library is used",
    source="sagemaker-training 5.1.4: mp_parameters reach the script, which alone decides what to do with them",
    remedy="Switch smdistributed.modelparallel on in both, or in neither.",
)
RULES = (NO_INIT, NOT_WRAPPED, NO_DEVICE, PLAIN_BACKWARD, NOT_AGREED)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """The rules of this family."""
    entry = code.script.entry
    asked = code.job is not None and code.job.model_parallel
    imported = code.imports(V1, V2)
    # SageMakerTrainer and Trainer of transformers call the library themselves.
    if asked and imported is None and not code.managed and entry is not None:
        yield at(
            NOT_AGREED, (entry, entry.tree), "the job switches model parallelism on, and the script does not use it"
        )
    # A library asks first whether it may import it; then another part of it initialises.
    if imported is None or not (asked or code.imports(V1, V2, certain=True)):
        return
    module = next(m for m in code.modules if imported in m.parents)
    if code.job is not None and not asked:
        yield at(NOT_AGREED, (module, imported), "the script uses model parallelism, and the job does not switch it on")
    first_version = code.imports(V1) is not None
    inits = [c for c in code.called("init") if c.name.startswith((V1, V2))]
    if not inits and not code.mentions("SMPTrainer"):
        name = "smp.init()" if first_version else "torch.sagemaker.init()"
        yield at(NO_INIT, (module, imported), f"{name} is never called")
    if not first_version or not inits:
        return
    lacking = [name for name in ("DistributedModel", "DistributedOptimizer") if not code.mentions(name)]
    if lacking and code.backwards:
        yield at(NOT_WRAPPED, inits[0], f"smp.{' and smp.'.join(lacking)} not used")
    if not code.mentions("set_device") and not code.chooses_device():
        yield at(NO_DEVICE, inits[0], "no torch.cuda.set_device(smp.local_rank()) after smp.init()")
    for call in code.backwards:
        function = enclosing_function(call.module, call.node)
        if function is None or not any(_is_step(decorator) for decorator in function.decorator_list):
            continue
        if "loss" in call.receiver.lower() and not call.node.args:
            yield at(PLAIN_BACKWARD, call, f"{call.receiver}.backward() in the step function {function.name}")


def _is_step(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(target, ast.Attribute) and target.attr == "step"
