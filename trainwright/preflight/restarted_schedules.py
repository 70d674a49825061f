"""Training that resumes from a checkpoint with a schedule that starts again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.paths import roots
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import Function, at, enclosing_function

STARTS_AGAIN = Rule(
    code="TW556",
    severity="error",
    title="training resumes at a later epoch, but its learning rate schedule starts again (a warning "
    "if the job keeps no checkpoints)",
    source="PyTorch's documentation of LRScheduler: last_epoch is -1 unless the scheduler is restored from a "
    "checkpoint; D-X-Y/NAS-Bench-201 #19, lightly-ai/lightly-train #301",
    remedy='Keep scheduler.state_dict() in the checkpoint, and scheduler.load_state_dict(state["scheduler"]).',
)
RULES = (STARTS_AGAIN,)
_READS = ("torch.load", "torch_xla.utils.serialization.load", "smdistributed.modelparallel.torch.load")
_TORCH = "torch.optim.lr_scheduler."
# A constant rate has nothing to restore.
_OF_TRANSFORMERS = re.compile(r"^transformers\.([\w.]+\.)?get_(scheduler|(\w+_)?schedule_with_warmup)$")
# The next rate follows from the last one, which is in the optimizer's state.
_FROM_LAST = ("ExponentialLR", "MultiplicativeLR")
_OF_METRIC = "ReduceLROnPlateau"
# A place in the training, not how long it is.
_PLACE = re.compile(r"^(?!.*(max|total|num|warm|per_|every|best)).*(epoch|step|iter|batch)", re.I)
# What else has a state to load, by its name.
_OTHERS = re.compile(
    r"model|net|module|optim|opt$|scaler|ema|sampler|loader|loss|criterion|backbone|encoder|head", re.I
)
_OWN_STATE = ("last_epoch", "_step_count", "last_step", "base_lrs")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.tensorflow or code.managed or not code.backwards:
        return
    trained = [e for e in code.ran("backward", live=True) if e.loops]
    if not trained or not _loads(code) or _restored(code):
        return
    starts = [start for event in trained for loop in event.loops if (start := _start(code, event.module, loop))]
    around = {loop for event in trained for loop in event.loops}
    for event in code.ran("step", live=True) if starts else ():
        makers = _makers(code, event)
        stepped = [e for e in code.ran("step", live=True) if e.receiver is event.receiver]
        if not makers or event.off or any(e.args or e.keywords or around.isdisjoint(e.loops) for e in stepped):
            continue  # `step(epoch)`, and steps over the epochs that have passed
        names = frozenset().union(*starts)
        if any(_kept(code, made) or not names.isdisjoint(_used(code, made)) for made in makers):
            continue
        what = f"`{makers[0].text}` counts its steps in line {event.line} from 0 again: nothing restores its state"
        # SageMaker starts a job again that keeps checkpoints; elsewhere somebody has to name the file.
        kept = code.job is not None and (code.job.spot or code.job.checkpoint)
        what += f", but training resumes at `{sorted(starts[0])[0]}`"
        yield at(STARTS_AGAIN, makers[0], what, severity=None if kept else "warning")
        return


def _loads(code: ScriptFacts) -> bool:
    """Return whether the script reads a checkpoint that the job may have."""
    job = code.job
    for event in code.ran("load", live=True):
        none = job is not None and not (job.spot or job.checkpoint)
        missing = none and roots(event.arg("f", 0), code.checkpoints) == {"checkpoint"}
        if event.name in _READS and not missing and not (job is not None and event.off):
            return True
    return False


def _restored(code: ScriptFacts) -> bool:
    """Return whether something may restore the schedule, or the script sets the learning rates itself."""
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.Subscript):
                key = node.slice.value if isinstance(node.slice, ast.Constant) else None
                if key == "lr" and isinstance(node.ctx, ast.Store):
                    return True
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in _OWN_STATE:
                return True
            if any("sched" in key.lower() for key in _keys(node)):
                return True
    for event in code.events:  # a library's function
        given = (*event.args, *event.keywords.values()) if re.search("load|resum|restor", event.last) else ()
        if not event.name.startswith("script.") and any(map(_schedules, (m for value in given for m in value.made))):
            return True
    for event in code.ran("load_state_dict"):
        receiver, written = event.receiver, event.node.func
        made, tags = (receiver.made, receiver.tags) if receiver is not None else ((), ())
        text = ast.unparse(written.value) if isinstance(written, ast.Attribute) else ""
        if any(map(_schedules, made)) or not (made or tags or _OTHERS.search(text)):
            return True
    return False


def _keys(node: ast.AST) -> Iterator[str]:
    """Yield the key that an expression reads: of ``state["epoch"]`` and ``state.get("epoch", 0)``."""
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
        key = node.args[0] if node.args else None
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        yield key.value


def _start(code: ScriptFacts, module: Module, loop: ast.AST) -> frozenset[str]:
    """Return the names of the place at which a loop starts, if that is read from a checkpoint; or nothing."""
    if isinstance(loop, ast.While):
        first: ast.expr | None = loop.test
    else:
        calls = [n for n in ast.walk(loop.iter) if isinstance(n, ast.Call)] if isinstance(loop, ast.For) else []
        ranges = [n for n in calls if ast.unparse(n.func).rpartition(".")[2] in ("range", "trange", "count")]
        counted = ranges[0] if ranges else None
        of_count = counted is not None and "count" in ast.unparse(counted.func)
        first = counted.args[0] if counted is not None and len(counted.args) > (0 if of_count else 1) else None
    if first is None:
        return frozenset()
    saved = {key for e in code.ran("save") if e.args for key in e.args[0].attrs or ()}
    if any(e.receiver is not None and "optimizer" in e.receiver.tags for e in code.ran("load_state_dict", live=True)):
        saved |= {key for each in code.modules for node in each.nodes for key in _keys(node)}
    places = {key for key in saved if _PLACE.search(key)}
    names = _names(module, [first])
    assigned = _assigned(code) if names and places else {}
    found = {name for name in names if any(_reads(code, value, places) for value in assigned.get(name, ()))}
    direct = {key for node in ast.walk(first) for key in _keys(node)} & places
    return frozenset(found | direct)


def _reads(code: ScriptFacts, value: ast.expr, places: set[str]) -> bool:
    """Return whether a value is read under one of these keys, also in a function of the script that is called."""
    called = {_last(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    functions = (n for m in code.modules for n in m.nodes if isinstance(n, Function) and n.name in called)
    return any(key in places for tree in (value, *functions) for node in ast.walk(tree) for key in _keys(node))


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _names(module: Module, nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names in expressions; of ``self.start`` it is ``start``."""
    found = set()
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and not isinstance(module.parents.get(node), ast.Attribute):
            found.add(node.id)
    return found


def _assigned(code: ScriptFacts) -> dict[str, list[ast.expr]]:
    """Return what each name, or attribute of that name, gets anywhere."""
    found: dict[str, list[ast.expr]] = {}
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.Assign):
                parts = [p for t in node.targets for p in (t.elts if isinstance(t, ast.Tuple) else [t])]
            else:
                parts = [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) else []
            for name in {_last(each) for each in parts}:
                if value := getattr(node, "value", None):
                    found.setdefault(name, []).append(value)
    return found


def _makers(code: ScriptFacts, step: Event) -> list[Event]:
    """Return the calls that may have made the scheduler that steps; nothing if another object does."""
    made = step.receiver.made if step.receiver is not None else frozenset()
    if not made or not all(map(_schedules, made)):
        return []
    return [e for e in code.events if e.name in made and not e.detached]


def _schedules(name: str) -> bool:
    return name.startswith(_TORCH) or _OF_TRANSFORMERS.match(name) is not None


def _kept(code: ScriptFacts, made: Event) -> bool:
    """Return whether a schedule continues anyway: it gets its last step, or follows from the optimizer's rate."""
    last, name = made.arg("last_epoch"), made.arg("name", 0)
    if made.opened or (last is not None and last.single() != -1) or made.last == _OF_METRIC:
        return True
    if made.last == "get_scheduler" and (name is None or name.single() in ("constant", ...)):
        return True
    optimizers = [e for e in code.ran("load_state_dict", live=True) if e.receiver and "optimizer" in e.receiver.tags]
    return made.last in _FROM_LAST and bool(optimizers)


def _used(code: ScriptFacts, made: Event) -> set[str]:
    """Return the names that decide on a schedule: in its arguments, and in what these are computed from."""
    module = made.module
    given: list[ast.AST] = [*made.node.args[1:], *(k.value for k in made.node.keywords if k.arg != "optimizer")]
    function = enclosing_function(module, made.node)
    calls = [c for c in code.called(function.name) if c.node is not made.node] if function is not None else []
    found = {name for call in calls for name in _names(call.module, [*call.node.args, *call.node.keywords])}
    for each in given:
        found |= _names(module, [each]) - _parameters(each)
    functions = {n.name: (m, n) for m in code.modules for n in m.nodes if isinstance(n, Function) and n is not function}
    assigned = _assigned(code)
    for _ in range(3):
        for name in list(found):
            found |= {each for value in assigned.get(name, ()) for each in _names(module, [value])}
            if name in functions:
                where, node = functions[name]
                found |= _names(where, node.body) - _parameters(node)
    return found


def _parameters(node: ast.AST) -> set[str]:
    return {arg.arg for arg in node.args.args} if isinstance(node, Function | ast.Lambda) else set()
