"""The calls of a script that write a model or a checkpoint, and where to."""

from __future__ import annotations

import ast
import re

from trainwright.script.call import Call
from trainwright.script.events import Event
from trainwright.script.known import LIGHTNING
from trainwright.script.paths import LOST, roots
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.values import Value

# Functions that write: the name of the path's argument, and its position.
FUNCTIONS: dict[str, tuple[str, int]] = {
    "torch.save": ("f", 1),
    "torch.jit.save": ("f", 1),
    "torch.onnx.export": ("f", 2),
    "torch_xla.core.xla_model.save": ("file_or_path", 1),
    "torch_xla.utils.serialization.save": ("path", 1),
    "smdistributed.modelparallel.torch.save": ("f", 1),
    "smdistributed.modelparallel.torch.save_checkpoint": ("path", 0),
    "torch.distributed.checkpoint.save": ("checkpoint_id", 1),
    "torch.distributed.checkpoint.save_state_dict": ("storage_writer", 1),
    "safetensors.torch.save_file": ("filename", 1),
    "safetensors.torch.save_model": ("filename", 1),
    "tensorflow.saved_model.save": ("export_dir", 1),
    "tensorflow.keras.models.save_model": ("filepath", 1),
    "joblib.dump": ("filename", 1),
    "shutil.copy": ("dst", 1),
    "shutil.copyfile": ("dst", 1),
    "shutil.copytree": ("dst", 1),
    "shutil.move": ("dst", 1),
    "pickle.dump": ("file", 1),
}
_METHODS: dict[str, tuple[str, int]] = {
    "save_pretrained": ("save_directory", 0),
    "push_to_hub": ("repo_id", 0),
    "save_model": ("output_dir", 0),
    "save_checkpoint": ("save_dir", 0),
    "save_state": ("output_dir", 0),
    "save_weights": ("filepath", 0),
    "save_trained_model": ("path", 0),
    "export": ("filepath", 0),
    "export_saved_model": ("export_dir_base", 0),
    "save": ("filepath", 0),
    "write_checkpoint": ("path", 0),
}


# The strategies of TensorFlow under which every worker saves: all but the chief to a folder that is thrown away.
OVER_HOSTS = ("MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy")  # its name at first
# What is made to prepare data, and saved beside a model.
_PREPARES = re.compile(r"Tokenizer|Processor|FeatureExtractor")


class Save:
    """A call that writes a model: ``path`` is None where the call has none, ``whole`` if it writes a model.

    ``prepares`` is what is saved beside a model: a tokenizer.
    """

    def __init__(self, event: Event, path: Value | None, *, whole: bool, prepares: bool = False) -> None:
        self.event = event
        self.path = path
        self.whole = whole
        self.prepares = prepares


def saves(code: ScriptFacts) -> list[Save]:
    """Return the calls that write a model or a checkpoint, in order."""
    found = []
    for event in code.events:
        if event.name in FUNCTIONS:
            keyword, position = FUNCTIONS[event.name]
            found.append(
                Save(event, event.arg(keyword, position), whole=not event.name.startswith(("shutil", "pickle")))
            )
        elif event.last in _METHODS and event.receiver is not None and not event.receiver.name:
            keyword, position = _METHODS[event.last]
            receiver = event.receiver.tags
            if event.receiver.made_by("CheckpointManager"):
                continue  # its folder was given where it was made
            own = all(made.startswith("script.") for made in event.receiver.made or {event.name})
            if (own and event.name.startswith("script.")) or (
                event.last in ("save", "export") and not _keras(code, event)
            ):
                continue
            path = event.arg(keyword, position) or event.arg("path") or event.arg("checkpoint_dir")
            path = path or _output_of(code, event)
            if event.name.startswith("accelerate") and event.last in ("save", "save_model"):
                path = event.arg("f" if event.last == "save" else "save_directory", 1)
            made = any(_PREPARES.search(name) for name in event.receiver.made) and "model" not in receiver
            tokenizer = made or (not receiver and "tokenizer" in ast.unparse(event.node).lower())
            prepares = made or (tokenizer and _of_tokenizer(event))
            found.append(Save(event, path, whole=not tokenizer, prepares=prepares))
        elif event.last == "ModelCheckpoint" and code.tensorflow:
            found.append(Save(event, event.arg("filepath", 0), whole=True))
        elif event.last == "ModelCheckpoint" and code.imports(*LIGHTNING) is not None:
            uploaded = code.mentions("log_model")  # to Weights & Biases
            found += [] if uploaded else [Save(event, event.arg("dirpath", 0), whole=True)]
        elif event.last == "save_keras_model":
            found.append(Save(event, event.arg("saved_model_path", 1), whole=True))
        elif event.last in ("MonitoredTrainingSession", "Estimator") and code.imports("tensorflow") is not None:
            path = event.arg("checkpoint_dir") or event.arg("model_dir")
            chosen = " if " in ast.unparse(event.node) or _steps_by_rank(code)
            found += [] if path is None or chosen else [Save(event, path, whole=True)]
        elif event.last == "BackupAndRestore" and code.tensorflow:
            found.append(Save(event, event.arg("backup_dir", 0), whole=True))
        elif event.last == "CheckpointManager":
            found.append(Save(event, event.arg("directory", 1), whole=True))
    return [save for save in found if save.path is None or not save.path.made_by("BytesIO", "StringIO")]


def _output_of(code: ScriptFacts, event: Event) -> Value | None:
    """Return where a Trainer's save_model writes by itself: the output_dir of its arguments."""
    if event.last != "save_model":
        return None
    made = next((e for e in code.events if e.result is event.receiver and e.last.endswith("Trainer")), None)
    given = made.arg("args", 1) if made is not None else None
    return (given.attrs or {}).get("output_dir") if given is not None else None


def _of_tokenizer(event: Event) -> bool:
    """Return whether a method is one of a tokenizer: not of a model whose path has the word in it."""
    func = event.node.func
    return isinstance(func, ast.Attribute) and "tokenizer" in ast.unparse(func.value).lower()


def _steps_by_rank(code: ScriptFacts) -> bool:
    """Return whether an Estimator's configuration lets one process write: ``save_checkpoints_steps=… if rank == 0``."""
    keys = ("save_checkpoints_steps", "save_checkpoints_secs")
    return any(isinstance(call.given(key), ast.IfExp) for call in code.calls for key in keys)


def _keras(code: ScriptFacts, event: Event) -> bool:
    """Return whether ``….save(…)`` writes a model: of Keras, or of something that is called a model."""
    receiver = event.receiver
    assert receiver is not None
    return code.tensorflow or "model" in receiver.tags or receiver.made_by("Accelerator")


def save_calls(calls: list[Call]) -> list[Call]:
    """Return the calls that write a whole model or checkpoint."""
    names = ("save_pretrained", "save_checkpoint", "save_state", "save_model")
    return [c for c in calls if c.name in ("torch.save", "torch_xla.core.xla_model.save") or c.last in names]


def uploaded(code: ScriptFacts, event: Event) -> bool:
    """Return whether a function that is called for it uploads something afterwards: ``sync_checkpoints_to_s3(…)``."""
    return any(e.order > event.order and re.search(r"_s3$|^s3_|upload", e.last) for e in code.events)


def passed_on(code: ScriptFacts, save: Save, written: list[Save]) -> bool:
    """Return whether a file in a temporary folder is copied or read again, or is meant to be discarded."""
    event, path = save.event, save.path
    return path is not None and (
        _copied(code, event) or _read_again(code, event, path) or _of_the_rest(code, save, written)
    )


def _copied(code: ScriptFacts, event: Event) -> bool:
    """Return whether something is copied afterwards, or a program that may copy it is started."""
    later = ("copy", "copytree", "copyfile", "move", "run", "system", "check_call", "Popen", "copy2")
    return any(e.order > event.order for e in code.ran(*later))


def _read_again(code: ScriptFacts, event: Event, path: Value) -> bool:
    """Return whether the script reads back what it saved in a temporary folder, so the file was only temporary."""
    readers = code.ran("from_pretrained", "load", "load_model", "load_file", "load_state_dict")
    read = [value for e in readers if e.order > event.order for value in (*e.args, *e.keywords.values())]
    if path.constants is None:  # of a name that is only known when it runs
        return any(roots(value) == {"tmp"} for value in read)
    return any(value.constants == path.constants for value in read)


def _of_the_rest(code: ScriptFacts, save: Save, written: list[Save]) -> bool:
    """Return whether a save may be that of the other workers of a strategy, as the chief's own is kept.

    Source: TensorFlow's tutorial Multi-worker training with Keras, model saving and loading.
    """
    like = (other for other in written if other.event.last == save.event.last)
    return code.mentions(*OVER_HOSTS) and any(roots(each.path, code.checkpoints) - LOST for each in like)


_DATA = re.compile(r"dataset|features|vocab|cached", re.I)
_CACHE = re.compile(r"\bcached?\b|(\b|_)cached?_|_cached?\b", re.I)


def of_model(event: Event) -> bool:
    """Return whether a pickle or a copied file is a model, not parameters or a list."""
    first = event.node.args[:1]
    return any("model" in value.tags for value in event.args[:1]) or any(
        "model" in ast.unparse(a).lower() for a in first
    )


def of_data(event: Event) -> bool:
    """Return whether data are put aside, which the next job prepares again: ``torch.save(data, cache_file)``."""
    if event.last not in ("save", "dump") or len(event.node.args) < 2 or of_model(event):
        return False
    what, where = (ast.unparse(each) for each in event.node.args[:2])
    return not re.search("state|net|optim", what) and bool(_DATA.search(what) or _CACHE.search(where))
