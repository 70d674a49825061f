"""SageMaker's data parallel library: the import that registers its backend, scripts that never use it, and the
limits of its functions for TensorFlow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import condition
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at
from trainwright.script.values import Value

SMDDP_BACKEND = Rule(
    code="TW126",
    severity="error",
    title='backend "smddp" without the import that registers it',
    source="AWS guide for SageMaker's data parallel library, 1.4.0 and newer",
    remedy="import smdistributed.dataparallel.torch.torch_smddp",
)
SMDDP_UNUSED = Rule(
    code="TW127",
    severity="warning",
    title="the job uses the launcher of SageMaker's data parallel library, and the script does not use the library",
    source="AWS guide for SageMaker's data parallel library: the launcher alone speeds up nothing",
    remedy='import smdistributed.dataparallel.torch.torch_smddp; init_process_group(backend="smddp")',
)
TENSORFLOW = "smdistributed.dataparallel.tensorflow"
API = "SDK 2's documentation of SageMaker's data parallel library for TensorFlow (smd_data_parallel_tensorflow)"
NO_GRADIENT = Rule(
    code="TW533",
    severity="error",
    title="the data parallel library's allreduce is called with a tensor that is not a gradient",
    source=f"{API}, allreduce: only for gradients; with other tensors the job might stall or stop",
    remedy="smdistributed.dataparallel.tensorflow.oob_allreduce(tensor)",
)
TWICE = Rule(
    code="TW534",
    severity="error",
    title="the data parallel library is initialised twice",
    source=f"{API}, init: it raises an error if it is called more than once",
    remedy="Call sdp.init() once, at the start of the script, before it imports its own modules.",
)
RULES = (SMDDP_BACKEND, SMDDP_UNUSED, NO_GRADIENT, TWICE)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if not code.incomplete and code.imports(TENSORFLOW) is not None:
        yield from _tensorflow(code)
    registered = code.imports("smdistributed.dataparallel") is not None or code.says(r"^smdistributed\.dataparallel")
    groups = [e for e in code.roles("group") if e.last == "init_process_group"]
    backends = [e.arg("backend", 0) for e in groups]
    for event, backend in zip(groups, backends, strict=True):
        if backend is not None and backend.single() == "smddp" and code.decided(backend) and not registered:
            yield at(SMDDP_BACKEND, event, "the backend smddp is never registered")
        elif backend is not None and backend.single() == "smddp" and (where := _unregistered(code)):
            yield at(SMDDP_BACKEND, event, f"the backend smddp is registered only where {where}")
    entry = code.script.entry
    in_job = code.launcher == "smddp" and code.job is not None and "pytorchddp" not in code.job.distribution
    says = code.says("^smddp$") or "smddp" in code.launch.hyperparameters.values()
    if in_job and not registered and not code.managed and entry is not None and not says:
        yield at(SMDDP_UNUSED, (entry, entry.tree), "smdistributed.dataparallel is enabled only in the job")
    imported = code.imports("smdistributed.dataparallel.torch.torch_smddp")
    if (
        imported is not None
        and backends
        and not says
        and all(b is not None and b.single() in ("nccl", "gloo") for b in backends)
    ):
        what = "torch_smddp is imported, but the backend is not smddp"
        yield at(SMDDP_UNUSED, groups[0], what)


def _tensorflow(code: ScriptFacts) -> Iterator[Finding]:
    """Check the two functions of the library for TensorFlow that are stricter than Horovod's."""
    inits = [e for e in code.ran("init", live=True) if e.name == f"{TENSORFLOW}.init" and not e.guards]
    inits = [e for e in inits if not any(isinstance(node, ast.Try) for node in ancestors(e.module, e.node))]
    first = inits[0] if inits else None
    again = next((e for e in inits if first is not None and e.node is not first.node), None)
    if first is not None and again is not None:
        where = f"in line {first.line}" if first.module is again.module else f"in {first.module.name}:{first.line}"
        yield at(TWICE, again, f"`{ast.unparse(again.node)}`: already called {where}")
    for event in code.ran("allreduce", live=True):
        tensor = event.arg("tensor", 0) if event.name == f"{TENSORFLOW}.allreduce" else None
        if tensor is not None and _no_gradient(code, event, tensor):
            what = f"`{ast.unparse(event.node)[:60]}`: use oob_allreduce for tensors that are not gradients"
            yield at(NO_GRADIENT, event, what)
            return


def _no_gradient(code: ScriptFacts, event: Event, tensor: Value) -> bool:
    """Return whether a tensor is not a gradient: a loss, or anything where a wrapped tape reduces the gradients."""
    text = ast.unparse(event.node)
    if "grad" in tensor.tags or "params" in tensor.tags or re.search(r"grad|accum|\bg\b|delta", text, re.I):
        return False
    made = code.maker(tensor)
    if "loss" in tensor.tags or (made is not None and made.last == "result"):
        return True
    reduced = any(e.role == "hvd-optimizer" for e in code.events)
    return reduced or re.search(r"loss|accuracy|metric", text, re.I) is not None


def _unregistered(code: ScriptFacts) -> str:
    """Return where the import is that registers the backend, if this job does not come there."""
    if code.job is None or code.incomplete or code.imports("smdistributed.dataparallel") is None:
        return ""
    imports = [guards for name, guards in code.imported if name.startswith("smdistributed.dataparallel")]
    off = [next((guard for guard in guards if guard.off), None) for guards in imports]
    if not off:
        return "this job does not come"
    return f"{condition(off[0])}, which nothing in the job sets" if off[0] is not None and all(off) else ""
