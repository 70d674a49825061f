"""SageMaker's data parallel library: the import that registers its backend, and scripts that never use it."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import condition
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import at

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
RULES = (SMDDP_BACKEND, SMDDP_UNUSED)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    registered = code.imports("smdistributed.dataparallel") is not None or code.says(r"^smdistributed\.dataparallel")
    groups = [e for e in code.roles("group") if e.last == "init_process_group"]
    backends = [e.arg("backend", 0) for e in groups]
    for event, backend in zip(groups, backends, strict=True):
        if backend is not None and backend.single() == "smddp" and code.decided(backend) and not registered:
            yield at(SMDDP_BACKEND, (event.module, event.node), "the backend smddp is never registered")
        elif backend is not None and backend.single() == "smddp" and (where := _unregistered(code)):
            yield at(SMDDP_BACKEND, (event.module, event.node), f"the backend smddp is registered only where {where}")
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
        yield at(SMDDP_UNUSED, (groups[0].module, groups[0].node), what)


def _unregistered(code: ScriptFacts) -> str:
    """Return where the import is that registers the backend, if this job does not come there."""
    if code.job is None or code.incomplete or code.imports("smdistributed.dataparallel") is None:
        return ""
    imports = [guards for name, guards in code.imported if name.startswith("smdistributed.dataparallel")]
    off = [next((guard for guard in guards if guard.off), None) for guards in imports]
    if not off:
        return "this job does not come"
    return f"{condition(off[0])}, which nothing in the job sets" if off[0] is not None and all(off) else ""
