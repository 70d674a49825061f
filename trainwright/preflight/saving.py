"""What a job leaves behind: who writes it, how, and whether SageMaker keeps it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import behind_first
from trainwright.preflight.saves import FUNCTIONS, OVER_HOSTS, Save, of_data, of_model, passed_on, saves, uploaded
from trainwright.script.call import Call
from trainwright.script.configurations import is_arguments
from trainwright.script.events import Event
from trainwright.script.paths import LOST, roots
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import Function, at, differs_by_rank, meant, of_one_rank, reachable

CONTRACT = "SageMaker's container contract"
TORCH_SAVE = Rule(
    code="TW140",
    severity="warning",
    title="torch.save of tensors on an XLA device",
    source="AWS guide for the SageMaker Training Compiler: checkpoints are written with xm.save",
    remedy="xm.save(model.state_dict(), path): it moves the tensors to the CPU and writes on one process.",
)
ALL_RANKS = Rule(
    code="TW141",
    severity="warning",
    title="every process writes the same file",
    source="PyTorch's DDP tutorial and Horovod's guide: save on one rank, as several writers may corrupt the file",
    remedy="if dist.get_rank() == 0: around it (or a name with the rank in it).",
)
NOT_KEPT = Rule(
    code="TW142",
    severity="warning",
    title="a file is saved in a folder that is lost with the container",
    source=f"{CONTRACT}: only SM_MODEL_DIR, SM_OUTPUT_DATA_DIR and the checkpoint folder are kept",
    remedy='os.path.join(os.environ["SM_MODEL_DIR"], …)',
)
NO_CHECKPOINT = Rule(
    code="TW143",
    severity="warning",
    title="the job may be interrupted or uses checkpoints, but the script does not use their folder",
    source="SageMaker copies one folder (/opt/ml/checkpoints unless the job says otherwise) to S3 while a job runs",
    remedy="Save to that folder and load from it at the start, or pass the path as a hyperparameter.",
)
NOTHING_SAVED = Rule(
    code="TW144",
    severity="warning",
    title="the script trains but saves nothing",
    source=f"{CONTRACT}: a job's result is what SM_MODEL_DIR contains at the end",
    remedy='torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt")) on one process.',
)
NOT_FINAL = Rule(
    code="TW145",
    severity="warning",
    title="the script saves, but nothing of it into SM_MODEL_DIR: the job ends with an empty model",
    source=f"{CONTRACT}: model.tar.gz is made of SM_MODEL_DIR; checkpoints and output data are kept apart from it",
    remedy='Save the final model to os.environ["SM_MODEL_DIR"] as well.',
)
READ_ONLY = Rule(
    code="TW146",
    severity="error",
    title="a file is saved into the folder of an input channel",
    source=f"{CONTRACT}: /opt/ml/input/data holds inputs, is mounted read-only for FastFile and FSx, and is not kept",
    remedy='Use os.environ["SM_MODEL_DIR"] or SM_OUTPUT_DATA_DIR.',
)
RULES = (TORCH_SAVE, ALL_RANKS, NOT_KEPT, NO_CHECKPOINT, NOTHING_SAVED, NOT_FINAL, READ_ONLY)
TO_CPU = (".cpu()", "_maybe_convert_to_cpu", "xser", "cpu_")
_TEXTS = ("json.dump", "yaml.dump", "yaml.safe_dump")  # no model
_TRAINERS = ("Trainer", "Seq2SeqTrainer", "SFTTrainer", "SageMakerTrainer")
_LIBRARIES = (*FUNCTIONS, "accelerate.Accelerator.save")
_SIGNS = re.compile(r"model_?dir|save_?(path|dir|model)|sm_model|export_?dir", re.I)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    written = saves(code)
    yield from _xla(code, written)
    yield from _ranks(code, written)
    yield from _places(code, written)
    yield from _checkpoints(code)
    yield from _result(code, written)


def _xla(code: ScriptFacts, written: list[Save]) -> Iterator[Finding]:
    if not code.torch_xla:
        return
    for save in written:
        event = save.event
        text = ast.unparse(event.node)
        kept = meant(event.module, event.node.args[0]) if event.node.args else event.node
        if any(word in text + ast.unparse(kept) for word in TO_CPU) or (
            event.detached and event.module is not code.script.entry
        ):
            continue
        if event.name == "torch.save" and not of_data(event):
            yield at(TORCH_SAVE, event, f"`{text[:60]}` with torch_xla")
        elif event.last == "save_pretrained" and save.whole and "save_function" not in event.keywords:
            receiver = event.receiver.tags if event.receiver is not None else frozenset()
            moved = code.mentions("_maybe_convert_to_cpu") or "cpu" in text
            to_cpu = [e for e in code.ran("to") if (v := e.arg("device", 0)) is not None and v.single() == "cpu"]
            moved = moved or any(e.receiver is event.receiver for e in (*code.ran("cpu"), *to_cpu))
            if "model" in receiver and not moved:
                yield at(TORCH_SAVE, event, f"`{text[:60]}` with torch_xla, without save_function=xm.save")


def _ranks(code: ScriptFacts, written: list[Save]) -> Iterator[Finding]:
    if not code.several or code.torch_xla or not _cooperates(code):
        return
    for save in written:
        event, path = save.event, save.path
        if not save.whole and (event.last == "save_pretrained" or not of_model(event)):
            continue
        if (event.detached and event.module is not code.script.entry) or _other_mode(code, event):
            continue
        if (event.name not in _LIBRARIES and event.last not in _EVERY) or _shared_write(code, event):
            continue
        if _managed(code) and event.name not in ("torch.save", "safetensors.torch.save_file"):
            continue
        chosen = event.under("one", "host", "dp", "rdp", "ranks")
        if path is None or chosen or _only_other(code, event) or path.tags & _VARIES:
            continue
        if any(s.event.under("one") and s.event.last == event.last and s.event.excludes(event) for s in written):
            continue  # the other side of `if distributed`
        text = ast.unparse(event.node)
        place = event.node.args[1] if event.name == "torch.save" and len(event.node.args) > 1 else None
        named = place is not None and differs_by_rank(code, event.module, place)
        if (
            named
            or _made_on_one(code, event)
            or re.search(r"rank|ordinal|BytesIO|buf|worker|tempfile|uuid", text, re.I)
        ):
            continue
        helper = event.stack and all(guard.kind in ("other", "own", "clock") for guard in event.guards)
        if (not helper or event.detached) and of_one_rank(code, Call(event.module, event.node, event.name)):
            continue
        if _by_callbacks(code, event) or _keras_decides(code, event) or "only-one" in event.result.tags:
            continue
        if behind_first(code, event, path):
            continue
        yield at(ALL_RANKS, event, f"`{text[:60]}` in every process")


def _only_other(code: ScriptFacts, event: Event) -> bool:
    """Return whether a call is on the other side of a condition on the rank, and one process may be there."""
    guard = event.under("others")
    alone = code.launch.processes is not None and code.launch.processes <= 2
    return guard is not None and (
        alone or event.last not in ("save", "save_file") or bool(event.loops) or guard.chosen or _answered(code, event)
    )


def _answered(code: ScriptFacts, event: Event) -> bool:
    return any(other.excludes(event) for other in code.ran(event.last))


def _other_mode(code: ScriptFacts, event: Event) -> bool:
    """Return whether a call is of another mode than the job's: under ``args.mode == "export"``, and that is "train"."""
    for guard in event.guards:
        test = guard.node
        if (
            code.job is None
            or not guard.side
            or not isinstance(test, ast.Compare)
            or not isinstance(test.ops[0], ast.Eq)
        ):
            continue
        mode, wanted = test.left, test.comparators[0]
        value = code.arguments_of_script.get(mode.attr) if isinstance(mode, ast.Attribute) else None
        known = value.single() if value is not None else ...
        if isinstance(wanted, ast.Constant) and isinstance(known, str) and known != wanted.value:
            return True
    return False


_VARIES = frozenset({"only-one", "rank", "local_rank", "random", "host_rank", "uneven"})
_EVERY = (
    "save_weights",
    "save",
    "ModelCheckpoint",
    "save_pretrained",
    "CheckpointManager",
    "save_trained_model",
    "save_keras_model",
    "export",
    "MonitoredTrainingSession",
    "Estimator",
)


def _made_on_one(code: ScriptFacts, event: Event) -> bool:
    """Return whether a call is in a method of a class that only the first process instantiates."""
    owner = next((function.owner for function in reversed(event.stack) if function.owner is not None), None)
    made = [each for each in code.events if owner is not None and each.name == f"script.{owner.name}"]
    return bool(made) and all(each.under("one") for each in made)


def _cooperates(code: ScriptFacts) -> bool:
    if _managed(code):
        return code.launch.launched and not code.managed_by_trainer and _by_hand(code)
    launched = code.launcher not in (None, "process") and code.cooperates
    strategy = code.mentions(*OVER_HOSTS)
    joined = code.group is not None and (code.wraps is not None or code.job is not None)
    return launched or joined or code.horovod or code.smp or strategy


def _by_hand(code: ScriptFacts) -> bool:
    """Return whether the processes are those of Accelerate, Lightning or Fabric, whose script saves by itself."""
    return any(
        event.name.startswith(("accelerate.", "lightning.", "pytorch_lightning."))
        for event in code.ran("Accelerator", "Trainer", "Fabric", live=True)
    )


def _managed(code: ScriptFacts) -> bool:
    """Return whether a library does the distributed work, and writes its own checkpoints on one process."""
    return code.managed or code.imports("accelerate", "pytorch_lightning", "lightning") is not None


def _shared_write(code: ScriptFacts, event: Event) -> bool:
    """Return whether every process is meant to call: sharded state, or a collective that writes once."""
    if event.name.startswith(("torch.distributed.checkpoint", "shutil", "torch_xla")):
        return True
    if code.mentions("FullyShardedDataParallel", "fully_shard", "distributed_checkpoint", "deepspeed"):
        return not (event.name == "torch.save" and _of_rank_zero(code))
    partial = event.arg("partial")
    smp = "modelparallel" in event.name
    if smp and event.last == "save_checkpoint":
        return True
    return smp and (partial is None or partial.single() is not False or "v3" in event.keywords)


def _of_rank_zero(code: ScriptFacts) -> bool:
    """Return whether the only state that the script takes of a sharded model is whole, on rank 0: others have none."""
    whole = [e.arg("rank0_only", 1) for e in code.ran("FullStateDictConfig", live=True)]
    whole = [value for value in whole if value is not None and value.single() is True]
    parts = ("ShardedStateDictConfig", "LocalStateDictConfig", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT")
    return bool(whole) and not code.mentions(*parts)


def _by_callbacks(code: ScriptFacts, event: Event) -> bool:
    """Return whether a Keras callback is only used on one rank: ``if hvd.rank() == 0: callbacks.append(…)``."""
    if event.last != "CheckpointManager":
        return False
    own = [e for e in code.ran("save") if e.receiver is not None and e.receiver.made_by("CheckpointManager")]
    return any(e.under("one") for e in own or code.ran("save"))


def _keras_decides(code: ScriptFacts, event: Event) -> bool:
    """Return whether Keras itself writes on the chief alone: its ModelCheckpoint in a strategy over several hosts.

    Source: keras 2.9, callbacks.py: ``_get_file_path`` gives the other workers a temporary folder.
    """
    return event.last == "ModelCheckpoint" and code.mentions(*OVER_HOSTS) and not code.horovod


_PLACES = {"tmp": "a temporary folder", "relative": "the working folder", "elsewhere": "a folder"}


def _places(code: ScriptFacts, written: list[Save]) -> Iterator[Finding]:
    folder = code.checkpoints
    for save in written:
        event = save.event
        if not reachable(code, Call(event.module, event.node, event.name)):
            continue
        where = roots(save.path, folder)
        if not where or save.path is None or event.last == "push_to_hub":
            continue
        text = ast.unparse(event.node)[:60]
        if where == {"remote"} and event.name in (
            "torch.save",
            "joblib.dump",
            "pickle.dump",
            "safetensors.torch.save_file",
        ):
            yield at(
                NOT_KEPT, event, f"`{text}`: {event.name} does not write to S3, but to a local folder of that name"
            )
        elif where == {"channel"}:
            yield at(READ_ONLY, event, f"`{text}`")
        elif where <= LOST and "flag" not in save.path.tags and not code.mentions("chdir") and save.whole:
            # What is put into a TemporaryDirectory is meant to go.
            if uploaded(code, event) or (where == {"tmp"} and code.mentions("TemporaryDirectory")):
                continue
            if of_data(event):
                continue
            later = [s for s in written if s.event.order > event.order and s.whole]
            backup = event.last == "BackupAndRestore"  # for the next start, when this container is gone
            kept = passed_on(code, save, written) or any({"model"} & roots(s.path) for s in later)
            if where == {"tmp"} and not backup and kept:
                continue
            places = " or ".join(_PLACES[each] for each in sorted(where))
            yield at(NOT_KEPT, event, f"`{text}`: {places}, which is lost with the container")


def _checkpoints(code: ScriptFacts) -> Iterator[Finding]:
    job, entry = code.job, code.script.entry
    if job is None or entry is None or not (job.checkpoint or job.spot):
        return
    folder = code.checkpoints
    given = [*code.given.values(), *job.hyperparameters.values(), *job.environment.values()]
    # Without a directory, SMP's manager writes there (SDK 2's documentation, smd_model_parallel_tensorflow).
    managers = [e for e in code.ran("CheckpointManager") if e.name.startswith("smdistributed.modelparallel.")]
    if folder.rstrip("/") == "/opt/ml/checkpoints" and any(e.arg("directory", 1) is None for e in managers):
        return
    if not code.says("^" + folder.rstrip("/")) and not any(str(value).startswith(folder) for value in given):
        why = "spot instances" if job.spot else "checkpoint"
        yield at(NO_CHECKPOINT, (entry, entry.tree), f"the job has {why}, but the script never uses {folder}")


def _result(code: ScriptFacts, written: list[Save]) -> Iterator[Finding]:
    """Check that a training leaves something, and that it is where SageMaker looks for the model."""
    if code.incomplete:
        return
    trained = [e for e in code.events if e.node in {c.node for c in code.backwards} and not e.detached]
    trained += [e for e in code.ran("fit", "train", "apply_gradients", live=True) if _trains(code, e)]
    if not trained:
        return
    found = [s for s in written if s.event.last not in ("push_to_hub",)]
    writes = ("dump", "savez", "export", "to_csv", "save_file", "log_model", "upload_file", "save_to_disk")
    own = {n.name for m in code.modules for n in m.nodes if isinstance(n, Function)}  # whose saves are followed
    others = any(call.last not in own and call.name not in _TEXTS for call in code.called(*writes))
    trainer = [e for e in code.ran("train", live=True) if e.receiver is not None and e.receiver.made_by(*_TRAINERS)]
    arguments = code.ran("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig")
    output = [_output(code, e) for e in arguments if trainer or ".parse_" not in ast.unparse(e.node.func)]
    beside = bool(found) and all(s.prepares for s in found)
    if (not found or beside) and not trainer:
        # A method of another name, or a callback, may save.
        other = "save_(?!pretrained$)" if beside else "save_"
        helper = code.mentions("save", "hook") or code.mentions_like(f"{other}|_save|saver|checkpoint(er|_man)")
        managed = code.managed and not (beside and code.imports("accelerate") is not None)
        if not others and not helper and not managed and _meant(code):
            what = "only a tokenizer is saved" if beside else "no file that was read saves a model"
            yield at(NOTHING_SAVED, trained[0], what)
        return
    kept = [s for s in found if s.whole or ("model" in roots(s.path, code.checkpoints) and not s.prepares)]
    places = [roots(s.path, code.checkpoints) for s in kept if s.path is not None]
    unclear = any(not p or "model" in p for p in (*places, *output)) or any(
        s.path is None and not trainer for s in kept
    )
    if unclear or others or not (places or output) or code.mentions("TemporaryDirectory", "smdebug"):
        return
    lost = kept and all(place <= LOST for place in places) and not output
    if lost and any("flag" not in s.path.tags for s in kept if s.path is not None):
        return  # TW142 says it of each
    in_s3 = kept and uploaded(code, kept[0].event)  # by the script itself
    if in_s3 or not _meant(code) or _handed_over(code, [s.event for s in found if s.prepares]):
        return
    last = kept[-1].event if kept else trainer[-1]
    shown = ", ".join(sorted({p for place in (*places, *output) for p in place}))
    yield at(NOT_FINAL, last, f"everything is saved to other places ({shown})")


def _handed_over(code: ScriptFacts, known: list[Event]) -> bool:
    """Return whether something that is not known gets the model's folder: it may save there."""
    for event in code.events:
        if any(event is each for each in known) or is_arguments(event.name):
            continue
        if event.name.startswith(("os.", "print", "argparse", "logging", "script.")) or event.last == "add_argument":
            continue
        if event.name == "open" and (mode := event.arg("mode", 1)) is not None and mode.single() in ("w", "a", "wt"):
            continue  # a text is no model
        if any("model" in roots(value, code.checkpoints) for value in (*event.args, *event.keywords.values())):
            return True
    return False


def _output(code: ScriptFacts, event: Event) -> set[str]:
    """Return where a Trainer writes its checkpoints: nowhere, if it is told to write none."""
    strategy = event.arg("save_strategy")
    never = strategy is not None and strategy.single() == "no"
    folder = event.arg("output_dir", 0)
    if event.opened and folder is not None and "flag" in folder.tags:
        return set()  # settings that are not known may say another
    return {"nowhere"} if never else roots(folder, code.checkpoints)


def _trains(code: ScriptFacts, event: Event) -> bool:
    receiver = event.receiver
    if receiver is None or receiver.name:
        return False
    if event.last == "train":
        return receiver.made_by(*_TRAINERS)
    if event.last == "fit" and any(made.startswith(("lightning.", "pytorch_lightning.")) for made in receiver.made):
        return True
    return code.tensorflow and ("model" in receiver.tags or bool(receiver.made))


def _meant(code: ScriptFacts) -> bool:
    """Return whether the script is one for SageMaker, or says where results go: a benchmark has nothing to save."""
    if code.submitted or any("sagemaker" in str(name) for name in code.launch.hyperparameters):
        return True
    if code.says(r"^SM_(MODEL_DIR|OUTPUT_DATA_DIR|CHANNEL_\w+|HOSTS|NUM_GPUS|CURRENT_HOST)$|^/opt/ml/"):
        return True
    if code.tensorflow:
        return False  # SDK 2 passes --model_dir to every script
    return any(_SIGNS.search(name) for name in (*code.arguments_of_script, *code.launch.hyperparameters))
