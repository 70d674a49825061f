"""What a training keeps to go on from: the best weights, and the epoch at which it stopped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.paths import roots
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at, enclosing_function, enclosing_loop

REFERENCE = Rule(
    code="TW453",
    severity="error",
    title="the best weights are kept by reference, and change with every further step",
    source="PyTorch's tutorial on saving and loading models: model.state_dict() returns a reference to the state and "
    "not its copy; use copy.deepcopy(model.state_dict())",
    remedy="best = copy.deepcopy(model.state_dict()), or write it to a file at once.",
)
GOES_ON = Rule(
    code="TW454",
    severity="warning",
    title="a resumed training does not go on where it stopped",
    source="Keras's API of fit, initial_epoch: epoch at which to start training, useful for resuming a previous "
    "training run; PyTorch's tutorial on saving a general checkpoint",
    remedy="Load the weights, and start at the epoch after the one that was saved (initial_epoch= in Keras).",
)
RULES = (REFERENCE, GOES_ON)
_USES = re.compile(r"(load_state_dict|save|save_file|dump)$")
_READS = ("load_weights", "load_model", "restore", "set_weights", "read")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    if code.backwards:
        yield from _by_reference(code)
        yield from _epoch_unread(code)
    if code.tensorflow or code.horovod:
        yield from _fits(code)


def _by_reference(code: ScriptFacts) -> Iterator[Finding]:
    """Report ``best = model.state_dict()`` in the loop over epochs, if it is used after the loop."""
    if code.mentions("FullyShardedDataParallel", "fully_shard", "get_model_state_dict"):
        return  # their states are gathered, and so copies
    around = {loop for event in code.ran("backward", live=True) for loop in event.loops}
    for module in code.modules:
        for node in module.nodes:
            loop = enclosing_loop(module, node) if isinstance(node, ast.Assign) else None
            if loop is None or loop not in around or not isinstance(node, ast.Assign):
                continue
            chosen = next((n for n in ancestors(module, node) if n is loop or isinstance(n, ast.If)), None)
            for name in _states(node) if isinstance(chosen, ast.If) else ():
                if _used_later(module, loop, name):
                    what = f"`{ast.unparse(node)[:60]}`, used after the loop in line {getattr(loop, 'lineno', 0)}"
                    yield at(REFERENCE, (module, node), what)
                    return


def _states(node: ast.Assign) -> Iterator[str]:
    """Yield the names to which an assignment gives the state of a model as it is."""
    for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        for each, value in pairs:
            text = ast.unparse(value)
            named = isinstance(each, ast.Name | ast.Attribute) and "optim" not in text
            if named and re.fullmatch(r"[A-Za-z0-9_.]+\.state_dict\(\)", text):
                yield ast.unparse(each)


def _used_later(module: Module, loop: ast.AST, name: str) -> bool:
    """Return whether something is loaded or written after a loop, in the same function."""
    end = getattr(loop, "end_lineno", 0) or 0
    function = enclosing_function(module, loop)
    for node in module.nodes:
        if not isinstance(node, ast.Call) or node.lineno <= end or not _USES.search(ast.unparse(node.func)):
            continue
        inside = enclosing_function(module, node) is function or name.startswith("self.")
        if inside and any(ast.unparse(each) == name for arg in node.args for each in ast.walk(arg) if _names(each)):
            return True
    return False


def _names(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def _kept(code: ScriptFacts) -> str:
    """Return the folder of a job's checkpoints; nothing if it is not meant to go on after an interruption."""
    job = code.job
    if job is None or not (job.spot or job.checkpoint):
        return ""
    return code.checkpoints


def _epoch_unread(code: ScriptFacts) -> Iterator[Finding]:
    """Report an epoch that is saved with a checkpoint, which the script loads without reading the epoch."""
    folder = _kept(code)
    if not folder or code.managed or not code.ran("load_state_dict", live=True):
        return
    for event in code.ran("save", live=True):
        if event.name != "torch.save" or not event.args:
            continue
        saved = event.args[0].attrs
        path = event.arg("f", 1)
        key = next((key for key in saved or {} if re.fullmatch(r"(last_|start_)?epochs?(_run)?", key)), None)
        if key is None or "checkpoint" not in roots(path, folder):
            continue
        texts = [node for _, node in code.texts if node.value == key]
        if (
            len(texts) == 1
            and not _subscript(event.module, texts[0])
            and not code.mentions_like("start_epoch|first_epoch|epochs_run|load_checkpoint|resume_")
        ):
            what = f"`{ast.unparse(event.node)[:50]}` keeps {key!r}, and nothing reads it: training starts at epoch 0"
            yield at(GOES_ON, event, what)
        return


def _subscript(module: Module, node: ast.Constant) -> bool:
    """Return whether a text is the key under which something is read: of ``dict(epoch=1)`` it is the only text."""
    around = module.parents.get(node)
    return isinstance(around, ast.Subscript) and isinstance(around.ctx, ast.Load)


def _loads(code: ScriptFacts, fit: Event) -> bool:
    """Return whether something may load weights before a fit, or an earlier one may have trained the model.

    TensorFlow's tutorial on transfer learning counts on after the epochs of the first fit.
    """
    fits = (e for e in code.ran("fit", "fit_generator", live=True) if e.receiver is fit.receiver)
    if fit.loops or any(e.order < fit.order for e in fits):
        return True
    # of transformers, from a folder or file whose name the script finds
    found = (e for e in code.ran("from_pretrained") if e.args and e.args[0].single() is ... and e.guards)
    read = (e for e in code.ran(*_READS) if not e.name.startswith("script."))
    return any(e.order < fit.order for e in (*read, *found))


def _fits(code: ScriptFacts) -> Iterator[Finding]:
    """Report a fit that skips epochs whose weights nothing loads, or that repeats those of the loaded weights."""
    folder = _kept(code)
    for event in code.ran("fit", live=True):
        if event.opened or event.receiver is None or event.receiver.name or code.mentions("BackupAndRestore"):
            continue
        text = ast.unparse(event.node)[:50]
        first = event.arg("initial_epoch")
        if first is not None:
            zero = first.constants is not None and set(first.constants) <= {0}
            if not zero and "flag" not in first.tags and not _loads(code, event):
                what = f"`{text}` starts at a later epoch, and nothing loads the weights of those before"
                yield at(GOES_ON, event, what)
                return
            continue
        loads = [e for e in code.ran("load_weights", "load_model", live=True) if e.order < event.order and e.guards]
        mine = [e for e in loads if folder and "checkpoint" in roots(e.arg("filepath", 0), folder)]
        epochs = next((k.value for k in event.node.keywords if k.arg == "epochs"), None)
        if mine and not isinstance(epochs, ast.BinOp | ast.Call):
            what = f"`{text}` starts at epoch 0 again after line {mine[0].line} has loaded the weights of a later one"
            yield at(GOES_ON, event, what)
            return
