"""Checkpoints that are written to go on from, and what of them a script reads again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import condition
from trainwright.preflight.huggingface import WRAPPED_NAMES
from trainwright.preflight.resuming import GOES_ON
from trainwright.preflight.wrapping import asks_for_wrapper
from trainwright.script.events import Event
from trainwright.script.paths import roots
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import Function, ancestors, at, meant
from trainwright.script.values import WRAPPERS, Value

BARE_NAMES = Rule(
    code="TW497",
    severity="error",
    title="a model loads a checkpoint whose names are those of its wrapper, or the other way round",
    source="PyTorch, torch/nn/modules/module.py, load_state_dict: Missing key(s) in state_dict; the names of "
    "DistributedDataParallel begin with `module.`, and so do those of a copy or an average of it; sming256/OpenTAD #44",
    remedy="model.module.load_state_dict(…), as model.module.state_dict() was saved.",
)
RULES = (BARE_NAMES,)
_EPOCH = re.compile(r"(last_|start_|next_)?epochs?(_run)?$")
_MOVES = ("os.replace", "os.rename", "shutil.move")
_STRIPS = r"module\.|_orig_mod|^module$"


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.tensorflow or not code.backwards:
        return
    yield from _unread(code)
    yield from _wrapped_names(code)
    yield from _bare_names(code)
    yield from _before_prepare(code)


def _unread(code: ScriptFacts) -> Iterator[Finding]:
    """Report parts of a checkpoint, such as the optimizer's state, that nothing loads, though other parts are."""
    job = code.job
    if job is None or not (job.spot or job.checkpoint) or code.managed or code.imports("accelerate") is not None:
        return
    folder = code.checkpoints
    kept = [
        e
        for e in code.ran("save")
        if e.name == "torch.save" and len(e.args) > 1 and "checkpoint" in roots(e.arg("f", 1), folder)
    ]
    never = [name for name in (_uncalled_loader(code, word) for word in ("resume", "load", "restore")) if name]
    loads = [
        e for e in code.ran("load", live=True) if e.name == "torch.load" and roots(e.arg("f", 0), folder) != {"channel"}
    ]
    reads = code.mentions_like("load_state|load_check|resum|restore|from_checkpoint|load_pretrained")
    unset = loads[0].off if loads and code.launch.hyperparameters and all(e.off for e in loads) else None
    for save in kept:
        parts = save.args[0].attrs or {}
        if unset is not None:
            what = f"is read only where {condition(unset)}, which nothing in the job sets"
            yield _at(save, f"{what}: each start begins anew")
            return
        if not loads:
            if never:
                yield _at(save, f"and nothing calls {never[0]}, which would read it: each start begins anew")
                return
            if any(_EPOCH.match(name) or _of_optimizer(value) for name, value in parts.items()) and not reads:
                yield _at(save, "keeps what training goes on from, and nothing loads it: each start begins anew")
                return
            continue
        for name, value in parts.items():
            if _of_optimizer(value) and not _read(code, name):
                what = f"keeps the optimizer's state as {name!r}, and nothing loads it: it begins with new moments"
                yield _at(save, what)
                return
        epoch = next((name for name in parts if _EPOCH.match(name)), None)
        if epoch is not None and any(_read(code, each) for each in parts) and _starts_at_zero(code, save):
            yield _at(save, f"keeps {epoch!r}, and the loop over epochs starts at 0 all the same")
            return


def _of_optimizer(value: Value) -> bool:
    return "state" in value.tags and value.of is not None and "optimizer" in value.of.tags


def _at(event: Event, message: str) -> Finding:
    return at(GOES_ON, event, f"`{ast.unparse(event.node)[:50]}` {message}")


def _uncalled_loader(code: ScriptFacts, word: str) -> str:
    """Return a function of the script that loads a checkpoint and that nothing names."""
    words = {getattr(node, "id", getattr(node, "attr", "")) for m in code.modules for node in m.nodes}
    for module in code.modules:
        for node in module.nodes:
            named = isinstance(node, Function) and word in node.name and node.name not in words
            if named and "load_state_dict" in ast.unparse(node) and isinstance(node, Function):
                return node.name
    return ""


def _read(code: ScriptFacts, key: str) -> bool:
    """Return whether a key of a checkpoint is read anywhere, or may be."""
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                if isinstance(node.slice, ast.Constant) and node.slice.value == key:
                    return True
            elif (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop")
            ):
                if node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == key:
                    return True
            elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant) and node.left.value == key:
                return True
    loads = [each.args[0] for call in code.called("load_state_dict") if (each := call.node).args]
    if any(isinstance(each, ast.Subscript) and not isinstance(each.slice, ast.Constant) for each in loads):
        return True  # `for name, part in parts.items(): part.load_state_dict(kept[name])`
    return any(not e.node.args or _whole(e) for e in code.ran("load_state_dict") if e.receiver is None)


def _whole(event: Event) -> bool:
    return isinstance(event.node.args[0], ast.Name)


def _starts_at_zero(code: ScriptFacts, save: Event) -> bool:
    """Return whether the loop in which a checkpoint is saved counts epochs from a constant, and none is skipped."""
    for loop in save.loops[:1]:
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
            return False
        call = loop.iter
        named = isinstance(call.func, ast.Name) and call.func.id in ("range", "trange")
        first = call.args[0] if named and len(call.args) > 1 else ast.Constant(0)
        target = ast.unparse(loop.target)
        skips = any(isinstance(n, ast.Continue) for n in ast.walk(loop)) or code.mentions_like(
            "remaining|epochs_left|skip_"
        )
        counted = "epoch" in target and named and isinstance(first, ast.Constant)
        rest = call.args[-1] if named and call.args else None
        return counted and not skips and not isinstance(rest, ast.BinOp)
    return False


def _wrapped_names(code: ScriptFacts) -> Iterator[Finding]:
    """Report a final model whose names begin with ``module.`` or ``_orig_mod.``, which a wrapper puts before them."""
    if code.managed or code.says(_STRIPS) or code.mentions("removeprefix", "strip_prefix", "_orig_mod"):
        return
    for event in code.ran("save", "save_file", live=True):
        path = event.arg("f", 1) or event.arg("filename", 1)
        state = event.args[0] if event.args else None
        if state is None or path is None or roots(path) != {"model"} or "sometimes" in state.tags:
            continue
        owner = state.of if "state" in state.tags else state
        compiled = owner is not None and _compiled(code, event, owner)
        wrapper = compiled or (code.several and owner is not None and _is_wrapper(owner))
        if wrapper and not _loads(code):
            name = "_orig_mod" if compiled else "module"
            what = f"each name begins with `{name}.`" if "state" in state.tags else "it is the wrapper, not the model"
            text = f"`{ast.unparse(event.node)[:60]}`: {what}; take model.{name}"
            yield at(WRAPPED_NAMES, event, text)
            return


def _compiled(code: ScriptFacts, save: Event, owner: Value) -> bool:
    """Return whether what is saved is called as ``model = torch.compile(model)`` calls what it returns.

    A ``model_fn`` of the script's own that compiles the model anew has the same names.
    """
    functions = [n for m in code.modules for n in m.nodes if isinstance(n, Function) and n.name == "model_fn"]
    if any("compile" in ast.unparse(node) for node in functions):
        return False
    state = save.node.args[0] if save.node.args else None
    saved = state.func.value if isinstance(state, ast.Call) and isinstance(state.func, ast.Attribute) else state
    for event in code.ran("compile", live=True):
        parent = event.module.parents.get(event.node)
        named = [ast.unparse(each) for each in parent.targets] if isinstance(parent, ast.Assign) else []
        here = event.stack == save.stack and event.order < save.order and not event.guards
        if event.name == "torch.compile" and here and event.result is owner and saved is not None:
            return ast.unparse(saved) in named
    return False


def _is_wrapper(value: Value) -> bool:
    made = value.made_by("DistributedDataParallel") and len(value.made) == 1
    return made and {"ddp", "model"} <= value.tags and "fsdp" not in value.tags


def _bare_names(code: ScriptFacts) -> Iterator[Finding]:
    """Report a state dict of the script's own whose names are not those of the model that gets it.

    A wrapper's names begin with ``module.``, those of the model in it do not.
    """
    if not code.several or code.says(_STRIPS) or code.mentions("consume_prefix_in_state_dict_if_present"):
        return
    # SageMaker's inference toolkit calls model_fn.
    loads = (e for e in code.ran("load_state_dict") if not e.detached or any(f.name == "model_fn" for f in e.stack))
    for event in loads:
        base, kept = event.receiver, list(_kept(code, event)) if event.node.args else []
        owners = [_owner(code, state) for state in kept]
        tried = any(isinstance(outer, ast.Try) for outer in ancestors(event.module, event.node))
        if base is None or not owners or "optimizer" in base.tags or tried or asks_for_wrapper(event):
            continue
        text = f"`{ast.unparse(event.node)[:60]}`: the names were saved"
        strict = event.arg("strict", 1)
        lost = ", and strict=False leaves all of them out" if strict is not None and strict.may_be(False) else ""
        if _is_wrapper(base) and all(o is not None and "ddp" not in o.tags and not _averaged(o) for o in owners):
            yield at(BARE_NAMES, event, f"{text} without `module.`{lost}")
            return
        if _is_bare(base) and all(owner is not None and _adds_names(code, owner) for owner in owners):
            remedy = "Save model.module.state_dict(), whose names are those of the model."
            yield at(BARE_NAMES, event, f"{text} with `module.`{lost}", remedy=remedy)
            return


def _owner(code: ScriptFacts, state: Value | None) -> Value | None:
    """Return the model whose state a value is; None if it is not known, as within two wrappers."""
    if state is None or "state" not in state.tags:
        return None
    asked = [ast.unparse(e.node.func) for e in code.ran("state_dict") if e.result is state]
    return None if any(".module.module." in text for text in asked) else state.of


def _averaged(model: Value) -> bool:
    """Return whether a model is PyTorch's own average of another, which is its ``module``."""
    return model.made == {"torch.optim.swa_utils.AveragedModel"}


def _adds_names(code: ScriptFacts, owner: Value) -> bool:
    """Return whether a model's names begin with ``module.``: of a wrapper, its copy, or an average of either."""
    if owner.of is not None and _averaged(owner.of) and not owner.made:
        maker = code.maker(owner.of)
        inner = maker.arg("model", 0) if maker is not None else None
        return inner is not None and _is_wrapper(inner)
    return _is_wrapper(owner) or _averaged(owner)


def _kept(code: ScriptFacts, load: Event) -> Iterator[Value | None]:
    """Yield what a model gets: another one's state, or what the script saved in a file of the same path."""
    given, value = meant(load.module, load.node.args[0]), load.args[0]
    if any(event.result is value for event in code.ran("state_dict")):
        yield value
        return
    part = _part(given)
    if part is ...:
        return
    reads = [e for e in code.ran("load") if e.name == "torch.load" and e.result in (value, value.of)]
    for save in code.ran("save", live=True):
        if save.name == "torch.save" and len(save.node.args) > 1 and any(_same_file(code, save, e) for e in reads):
            if part is None:
                yield save.args[0]
            elif save.args[0].attrs:
                yield save.args[0].attrs.get(str(part))


def _part(given: ast.expr) -> object:
    """Return the key of what is taken of a checkpoint: None for all of it, Ellipsis for a key that is not known."""
    if isinstance(given, ast.Subscript):
        key: ast.expr | None = given.slice
    elif isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr in ("get", "pop"):
        key = given.args[0] if given.args else None
    else:
        return None
    return key.value if isinstance(key, ast.Constant) else ...


def _same_file(code: ScriptFacts, save: Event, read: Event) -> bool:
    """Return whether a file that is read was saved under this path, or renamed to it: by its value, or its text."""
    moves = [e for e in code.ran("replace", "rename", "move") if e.name in _MOVES and len(e.node.args) > 1]
    written = ast.unparse(save.node.args[1])
    moved = [e for e in moves if ast.unparse(e.node.args[0]) == written]
    places = [(save.args[1], save.node.args[1]), *((e.args[1], e.node.args[1]) for e in moved)]
    for value, node in places:
        known = value.single() is not ... and bool(read.args) and read.args[0].single() is not ...
        if known and value.single() == read.args[0].single():
            return True
        if not known and read.node.args and ast.unparse(read.node.args[0]) == ast.unparse(node):
            return True
    return False


def _is_bare(value: Value) -> bool:
    """Return whether a value is certainly a model of the script's own, or of torchvision, in no wrapper."""
    own = value.code is not None and value.instance
    made = len(value.made) == 1 and next(iter(value.made)).startswith(("torchvision.models.", "torch.nn."))
    return "model" in value.tags and not value.tags & WRAPPERS and (own or made)


def _loads(code: ScriptFacts) -> bool:
    """Return whether the script itself loads such names: into a wrapper, also where SageMaker serves the model."""
    functions = [n for m in code.modules for n in m.nodes if isinstance(n, Function) and n.name == "model_fn"]
    into = any(e.receiver is not None and "ddp" in e.receiver.tags for e in code.ran("load_state_dict"))
    return into or any("DataParallel" in ast.unparse(node) for node in functions)


def _before_prepare(code: ScriptFacts) -> Iterator[Finding]:
    """Report a state of Accelerate that is loaded before anything is prepared."""
    prepares = [e for e in code.ran("prepare", live=True) if e.name.startswith("accelerate")]
    for event in code.ran("load_state", live=True):
        if event.name.startswith("accelerate") and prepares and event.order < prepares[0].order:
            what = f"before prepare in line {prepares[0].line}: nothing that it would load into is known"
            yield at(GOES_ON, event, f"`{ast.unparse(event.node)[:50]}` {what}", severity="error")
            return
