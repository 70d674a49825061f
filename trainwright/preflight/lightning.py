"""Lightning: what its loop does with a training_step, and Fabric, which leaves the loop to the script."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.collectives import DEADLOCK, condition
from trainwright.preflight.data import SPLITS
from trainwright.preflight.hotloop import ANOMALY
from trainwright.preflight.huggingface import NOT_PREPARED, PLAIN_BACKWARD
from trainwright.preflight.schedule import ON_CPU
from trainwright.script.events import Event
from trainwright.script.known import LIGHTNING
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import Function, at, qualified

DOCS = "Lightning's documentation of LightningModule"
NO_GRAPH = Rule(
    code="TW432",
    severity="error",
    title="training_step returns a loss without its graph, and Lightning calls backward on it",
    source=f"{DOCS}, training_step: the loss tensor; backward of a detached one raises RuntimeError (element 0 of "
    "tensors does not require grad)",
    remedy="return loss; log loss.detach()",
)
BY_HAND = Rule(
    code="TW433",
    severity="error",
    title="optimizers are stepped by hand, though Lightning steps them itself",
    source="Lightning's documentation of manual optimization: it needs automatic_optimization = False; without it, "
    "manual_backward and several optimizers raise an error",
    remedy="self.automatic_optimization = False in __init__",
)
ONE_PROCESS = Rule(
    code="TW439",
    severity="error",
    title="prepare_data sets what all processes read, but it runs in one of them",
    source="Lightning's documentation of LightningDataModule, prepare_data: it is called in one process of each host; "
    "do not assign state (self.x = y) in it",
    remedy="Download and convert in prepare_data; assign in setup, which runs in every process.",
)
OWN_MONITOR = Rule(
    code="TW440",
    severity="warning",
    title="checkpoints or early stopping depend on a value of one process and its share of the data",
    source="Lightning's documentation, logging: self.log reduces a value over the processes with sync_dist=True",
    remedy='self.log("val_loss", loss, sync_dist=True), or a metric of torchmetrics',
)
NO_LOSS = Rule(
    code="TW445",
    severity="error",
    title="training_step returns no loss, or a dict without the key loss",
    source='lightning, loops/optimization/automatic.py: "In automatic_optimization, when `training_step` returns a '
    "dict, the 'loss' key needs to be present\"",
    remedy='return loss, or {"loss": loss, …}; log the other values',
)
NOT_LOGGED = Rule(
    code="TW446",
    severity="error",
    title="checkpoints or early stopping go by a value that nothing logs",
    source='lightning, callbacks/model_checkpoint.py: "could not find the monitored key in the returned metrics", '
    'after a validation an error; early_stopping.py: "Early stopping conditioned on metric … which is not available"',
    remedy="monitor= the name of a self.log(…)",
)
NOT_LAUNCHED = Rule(
    code="TW451",
    severity="error",
    title="Fabric is set up without a launch, so its processes never meet",
    source="lightning, fabric.py: to use Fabric with more than one device, you must call .launch() or use the CLI "
    "(RuntimeError)",
    remedy="fabric.launch() after Fabric(…)",
)
RULES = (NOT_LAUNCHED, NO_GRAPH, BY_HAND, ONE_PROCESS, OWN_MONITOR, NO_LOSS, NOT_LOGGED)
_CLASSES = ("LightningModule", "LightningDataModule")
_DETACHES = ("detach", "item", "numpy", "tolist")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.imports(*LIGHTNING) is None:
        return
    manual = code.mentions("automatic_optimization")
    for module in code.modules:
        for node in module.nodes:
            if not isinstance(node, ast.ClassDef):
                continue
            if _is_lightning(module, node):
                methods = {each.name: each for each in node.body if isinstance(each, Function)}
                step = methods.get("training_step")
                if step is not None and manual:
                    yield from _past_lightning(module, step)
                if step is not None and not manual:
                    yield from _returned(module, step, ended="training_step_end" in methods)
                    yield from _stepped(module, step)
            if code.several:
                yield from _set_once(module, node)
    yield from _trainer(code)
    yield from _fabric(code)
    yield from _own_loader(code)
    yield from _reduced_by_one(code)
    yield from _monitored(code)
    yield from _not_logged(code)


def _set_once(module: Module, node: ast.ClassDef) -> Iterator[Finding]:
    """Report what only prepare_data assigns to ``self``, and another method reads."""
    methods = [each for each in node.body if isinstance(each, Function)]
    prepares = [each for each in methods if each.name == "prepare_data"]
    if not prepares or not any(qualified(module, b).rpartition(".")[2] in _CLASSES for b in node.bases):
        return
    others = [each for method in methods if method.name != "prepare_data" for each in ast.walk(method)]
    there = {_own(each) for each in others if isinstance(getattr(each, "ctx", None), ast.Store)}
    there |= {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    read = {_own(each) for each in others if isinstance(getattr(each, "ctx", None), ast.Load)}
    for each in sorted(_inside(prepares[0]), key=lambda each: getattr(each, "lineno", 0)):
        name = _own(each) if isinstance(getattr(each, "ctx", None), ast.Store) else ""
        if name and name in read - there:
            yield at(ONE_PROCESS, (module, each), f"`self.{name}` is assigned in prepare_data alone")
            return


def _own(node: ast.AST) -> str:
    """Return ``x`` of ``self.x``."""
    mine = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if mine and isinstance(node, ast.Attribute) else ""


def _monitored(code: ScriptFacts) -> Iterator[Finding]:
    """Report ``self.log`` of a validation's loss by which a callback decides, without ``sync_dist``."""
    if not code.several or code.mentions_like("all_gather|all_reduce|reduce_"):
        return
    deciders = [e for e in code.ran("ModelCheckpoint", "EarlyStopping", live=True) if "lightning" in e.name]
    monitored = {e.arg("monitor", 0 if e.last == "EarlyStopping" else 2): e.last for e in deciders}
    named = {str(value.single()): last for value, last in monitored.items() if value is not None}
    for module in code.modules:
        for step in (n for n in module.nodes if isinstance(n, Function) and n.name == "validation_step"):
            for call in (n for n in _inside(step) if isinstance(n, ast.Call)):
                if ast.unparse(call.func) != "self.log" or len(call.args) < 2 or len(call.keywords) > len(_plain(call)):
                    continue
                name, value = call.args[0], call.args[1]
                last = named.get(str(name.value)) if isinstance(name, ast.Constant) else None
                # A metric of torchmetrics, such as self.accuracy, is reduced by itself.
                if last is not None and "loss" in ast.unparse(name) and not isinstance(value, ast.Attribute):
                    what = f"`{ast.unparse(call)[:50]}` without sync_dist, and {last} goes by it"
                    yield at(OWN_MONITOR, (module, call), what)
                    return


def _not_logged(code: ScriptFacts) -> Iterator[Finding]:
    """Report a monitored name that differs from all that the script logs, if it is seen to log by name alone."""
    logged: set[str] = set()
    validates = False
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and any(
                isinstance(e, Function) and e.name.endswith("_step") for e in node.body
            ):
                if len(node.bases) != 1 or not _is_lightning(module, node):
                    return  # its other bases may log
                validates |= any(isinstance(e, Function) and e.name == "validation_step" for e in node.body)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOGS:
                names = _names(node)
                if names is None:
                    return
                logged |= names
    if not logged or not validates or code.mentions("callback_metrics", "logged_metrics"):
        return
    for event in code.ran("ModelCheckpoint", "EarlyStopping", live=True):
        value = event.arg("monitor", 0 if event.last == "EarlyStopping" else 2)
        name = value.single() if value is not None and "flag" not in value.tags else None
        if "lightning" not in event.name or not isinstance(name, str) or _quiet(event):
            continue
        if (
            name in _CANDIDATES
            or re.sub(r"(_step|_epoch)?(/dataloader_idx_\d+)?$", "", name) in logged
            or name in logged
        ):
            continue
        if not name.startswith("lr-"):
            what = f"`{ast.unparse(event.node)[:50]}`: {name!r} is not among {', '.join(sorted(logged))}"
            yield at(NOT_LOGGED, event, what)


_LOGS = ("log", "log_dict")
_CANDIDATES = ("epoch", "step")  # Lightning's own


def _names(call: ast.Call) -> set[str] | None:
    """Return the names that ``self.log`` or ``self.log_dict`` gives values; None if they are computed."""
    given = (
        call.args[0] if call.args else next((k.value for k in call.keywords if k.arg in ("name", "dictionary")), None)
    )
    keys = given.keys if isinstance(given, ast.Dict) else [given]
    names = {str(key.value) for key in keys if isinstance(key, ast.Constant)}
    own = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in ("self", "pl_module")
    return names if len(names) == len(keys) else None if own else set()


def _quiet(event: Event) -> bool:
    """Return whether a callback does not miss its value: it keeps no best ones, or is not strict."""
    kept, strict = event.arg("save_top_k"), event.arg("strict")
    return (kept is not None and kept.single() == 0) or (strict is not None and strict.single() is not True)


def _plain(call: ast.Call) -> list[ast.keyword]:
    """Return the options of a call, but what says how a value is reduced."""
    return [each for each in call.keywords if each.arg not in (None, "sync_dist", "reduce_fx", "rank_zero_only")]


def _is_lightning(module: Module, node: ast.ClassDef) -> bool:
    return any(qualified(module, base).rpartition(".")[2] == "LightningModule" for base in node.bases)


def _inside(step: Function) -> Iterator[ast.AST]:
    """Yield the nodes of a method, without those of functions in it."""
    waiting: list[ast.AST] = list(step.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _returned(module: Module, step: Function, *, ended: bool) -> Iterator[Finding]:
    """Report a loss that is returned detached, or not at all; a name counts if all that is assigned to it is detached.

    ``ended``: the module has a training_step_end, which makes the loss (Lightning 1).
    """
    nodes = list(_inside(step))
    if not ended and not any(isinstance(n, ast.Return | ast.Raise | ast.Yield) for n in nodes) and len(step.body) > 1:
        yield at(NO_LOSS, (module, step), "training_step returns nothing, so Lightning skips every step")
        return
    assigned: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                assigned.setdefault(ast.unparse(target), []).append(node.value)
    for node in nodes:
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        loss: ast.expr | None = node.value
        if isinstance(loss, ast.Dict):
            if not ended and loss.keys and all(isinstance(k, ast.Constant) and k.value != "loss" for k in loss.keys):
                yield at(NO_LOSS, (module, node), f"`{ast.unparse(node)[:60]}`")
                return
            pairs = zip(loss.keys, loss.values, strict=True)
            loss = next((v for k, v in pairs if isinstance(k, ast.Constant) and k.value == "loss"), None)
        values = assigned.get(loss.id, []) if isinstance(loss, ast.Name) else [loss]
        if values and all(value is not None and _detached(value) for value in values):
            yield at(NO_GRAPH, (module, node), f"`{ast.unparse(node)[:60]}`")
            return


def _detached(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and (
        (isinstance(value.func, ast.Attribute) and value.func.attr in _DETACHES and not value.args)
        or (isinstance(value.func, ast.Name) and value.func.id == "float")
    )


def _past_lightning(module: Module, step: Function) -> Iterator[Finding]:
    """Report ``loss.backward()`` under manual optimization: the precision and the strategy need to know of it."""
    for node in _inside(step):
        if isinstance(node, ast.Call) and re.search(r"loss\w*\.backward$", ast.unparse(node.func)) and not node.args:
            what = f"`{ast.unparse(node)[:50]}` instead of self.manual_backward(loss)"
            yield at(PLAIN_BACKWARD, (module, node), what, severity="warning")
            return


def _stepped(module: Module, step: Function) -> Iterator[Finding]:
    """Report ``self.optimizers()`` whose result is stepped, or ``self.manual_backward``."""
    calls = [node for node in _inside(step) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    taken = [call for call in calls if ast.unparse(call.func) == "self.optimizers"]
    for call in sorted(calls, key=lambda each: each.lineno):
        name = ast.unparse(call.func)
        steps = name.endswith(".step") and bool(taken) and "sched" not in name
        again = name.endswith(".backward") and not call.args
        if name == "self.manual_backward" or steps or again:
            yield at(BY_HAND, (module, call), f"`{ast.unparse(call)[:50]}` under automatic optimization")
            return


def _trainer(code: ScriptFacts) -> Iterator[Finding]:
    """Report a Trainer that only tries a few batches, or leaves the job's GPUs alone."""
    for event in code.ran("Trainer", live=True):
        if not event.name.startswith(LIGHTNING):
            continue
        for name in ("fast_dev_run", "overfit_batches"):
            given = event.arg(name)
            number = given.single() if given is not None and "flag" not in given.tags else 0
            if number is True or (isinstance(number, int | float) and number > 0):
                what = f"{name}={number!r}: the training ends after a few batches, and saves nothing"
                what = what if name == "fast_dev_run" else f"{name}={number!r}: it trains on a part of the data alone"
                yield at(ANOMALY, event, what)
        kind = event.arg("accelerator")
        if code.launch.gpus and kind is not None and kind.single() == "cpu" and "flag" not in kind.tags:
            yield at(ON_CPU, event, "accelerator='cpu'")


def _fabric(code: ScriptFacts) -> Iterator[Finding]:
    """Report ``loss.backward()`` where Fabric scales and reduces gradients."""
    made = [e for e in code.ran("Fabric", live=True) if e.name.startswith(LIGHTNING)]
    setups = [e for e in code.ran("setup", live=True) if made and e.receiver is made[0].result]
    if setups and code.several and code.job is not None and not code.mentions("launch") and not made[0].opened:
        yield at(NOT_LAUNCHED, setups[0], f"`{ast.unparse(setups[0].node)[:50]}`")
    backwards = code.ran("backward", live=True)
    if not made or any(e.args for e in backwards):
        return
    scaled = any((v := e.arg("precision", 3)) is not None and str(v.single()).startswith("16") for e in made)
    severity: Severity | None = None if scaled else "warning"
    wrapped = [e for e in code.ran("setup", "setup_module", live=True) if e.order > made[0].order]
    for event in backwards:
        if wrapped and event.receiver is not None and event.loops:
            what = f"`{ast.unparse(event.node)[:50]}` instead of fabric.backward(loss)"
            yield at(PLAIN_BACKWARD, event, what, severity=severity)
            return


def _own_loader(code: ScriptFacts) -> Iterator[Finding]:
    """Report a training loop over a loader that Fabric has not set up: it has no share, and stays on the CPU."""
    made = [e for e in code.ran("Fabric", live=True) if e.name.startswith(LIGHTNING)]
    loader = code.training_loader() if made and code.ran("setup", "setup_module", live=True) else None
    if loader is None or loader.detached or not code.several or code.mentions(*SPLITS):
        return
    if loader.arg("sampler", 3) is not None or any("sharded" in value.tags for value in loader.args):
        return
    given = [v for e in code.ran("setup_dataloaders", "_setup_dataloader") for v in (*e.args, *e.keywords.values())]
    starred = any(not (v.tags or v.made) for v in given)
    if not starred and not any(v is loader.result for v in given):
        what = f"`{ast.unparse(loader.node)[:50]}` is not given to fabric.setup_dataloaders"
        yield at(NOT_PREPARED, loader, what)


def _reduced_by_one(code: ScriptFacts) -> Iterator[Finding]:
    """Report ``self.log(…, sync_dist=True)`` in some processes: it reduces the value over all of them."""
    if not code.several:
        return
    for event in code.ran("log", "log_dict"):
        synced = event.arg("sync_dist")
        if synced is not None and synced.single() is True and (guard := event.by_rank) is not None:
            what = f"{event.last}(…, sync_dist=True) runs only where {condition(guard)}"
            yield at(DEADLOCK, event, what)
            return
