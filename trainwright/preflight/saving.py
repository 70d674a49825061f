"""What a job leaves behind: who writes it, how, and whether SageMaker keeps it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import Call, at, of_one_rank, reachable

TORCH_SAVE = Rule(
    code="TW140",
    severity="warning",
    title="torch.save of tensors that live on an XLA device",
    source="AWS guide for the SageMaker Training Compiler: checkpoints are written with xm.save",
    remedy="xm.save(model.state_dict(), path): it moves the tensors to the CPU and writes on one process.",
)
ALL_RANKS = Rule(
    code="TW141",
    severity="warning",
    title="every process writes the same file",
    source="PyTorch's DDP tutorial: save on one rank, as several writers may leave a broken file",
    remedy="if dist.get_rank() == 0: around it (or a name with the rank in it).",
)
NOT_KEPT = Rule(
    code="TW142",
    severity="warning",
    title="a file is saved into the working folder, which ends with the container",
    source="SageMaker's container contract: only SM_MODEL_DIR, SM_OUTPUT_DATA_DIR and the checkpoint folder are kept",
    remedy='os.path.join(os.environ["SM_MODEL_DIR"], …)',
)
NO_CHECKPOINT = Rule(
    code="TW143",
    severity="warning",
    title="the job may be interrupted or asks for checkpoints, and the script does not know their folder",
    source="SageMaker copies one folder (/opt/ml/checkpoints unless the job says otherwise) to S3 while a job runs",
    remedy="Save to that folder, and load from it at the start; or give the path as a hyperparameter.",
)
NOTHING_SAVED = Rule(
    code="TW144",
    severity="warning",
    title="the script trains and saves nothing",
    source="SageMaker's container contract: a job's result is what lies in SM_MODEL_DIR at its end",
    remedy='torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt")) on one process.',
)
RULES = (TORCH_SAVE, ALL_RANKS, NOT_KEPT, NO_CHECKPOINT, NOTHING_SAVED)
TO_CPU = (".cpu()", "_maybe_convert_to_cpu", "xser", "cpu_")
SAVERS = ("save", "save_pretrained", "save_model", "save_checkpoint", "save_state", "dump", "savez", "to_csv", "export")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """The rules of this family."""
    saves = [call for call in code.called("torch.save") if reachable(code, call)]
    for call in saves:
        text = ast.unparse(call.node)
        if code.torch_xla and not any(word in text for word in TO_CPU):
            yield at(TORCH_SAVE, call, f"`{text[:60]}` with torch_xla")
        target = call.given("f", 1)
        if target is None:
            continue
        one_place = isinstance(target, ast.Constant | ast.Name | ast.Attribute | ast.JoinedStr | ast.Call | ast.BinOp)
        unnamed = one_place and not any(word in ast.unparse(target) for word in ("rank", "ordinal", "BytesIO", "buf"))
        if _several(code) and unnamed and not of_one_rank(code, call):
            yield at(ALL_RANKS, call, f"torch.save to {ast.unparse(target)[:40]} on every process")
        if _relative(target) and not code.mentions("chdir"):
            yield at(NOT_KEPT, call, f"torch.save to {ast.unparse(target)[:40]}")
    yield from _checkpoints(code)
    trains = [c for c in code.backwards if c.module is code.script.entry]
    if trains and not code.managed and not code.mentions(*SAVERS) and not code.mentions_like("save|checkpoint|ckpt"):
        yield at(NOTHING_SAVED, trains[0], "nothing in the files that were read saves a model")


def _several(code: ScriptFacts) -> bool:
    if code.torch_xla or code.managed:
        return False
    launched = code.launcher not in (None, "process") and code.cooperates
    parallel = launched or (code.group is not None and code.wraps is not None)
    # Sharded state is written by every process on purpose.
    return (
        parallel
        and not code.smp
        and not code.mentions("FullyShardedDataParallel", "fully_shard", "distributed_checkpoint")
    )


def _relative(target: ast.expr) -> bool:
    """A constant file name (or an f-string that begins as one) without a folder that the job might choose."""
    if isinstance(target, ast.JoinedStr) and target.values and isinstance(target.values[0], ast.Constant):
        text = str(target.values[0].value)
    elif isinstance(target, ast.Constant) and isinstance(target.value, str):
        text = target.value
    elif isinstance(target, ast.BinOp) and isinstance(target.op, ast.Add | ast.Mod):
        return _relative(target.left)
    else:
        return False
    return bool(text) and not text.startswith(("/", "~", "s3:", "hdfs:", "gs:", "%", "{"))


def _checkpoints(code: ScriptFacts) -> Iterator[Finding]:
    job, entry = code.job, code.script.entry
    if job is None or entry is None or not (job.checkpoint or job.spot):
        return
    folder = job.checkpoint.local_path if job.checkpoint else "/opt/ml/checkpoints"
    given = [*job.hyperparameters.values(), *job.environment.values()]
    if not code.says("^" + folder.rstrip("/")) and not any(str(value).startswith(folder) for value in given):
        why = "spot instances" if job.spot else "checkpoint"
        yield at(NO_CHECKPOINT, (entry, entry.tree), f"the job has {why}, and nothing names {folder}")


def save_calls(calls: list[Call]) -> list[Call]:
    """Calls that write a whole model or checkpoint."""
    names = ("save_pretrained", "save_checkpoint", "save_state", "save_model")
    return [c for c in calls if c.name in ("torch.save", "torch_xla.core.xla_model.save") or c.last in names]
