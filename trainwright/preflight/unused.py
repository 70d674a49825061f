"""Layers of a model that take part in no forward pass, for whose gradients DistributedDataParallel waits."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight import poolers
from trainwright.script.events import Event
from trainwright.script.known import DDP
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at, qualified
from trainwright.script.values import Code, Value

UNUSED = Rule(
    code="TW431",
    severity="error",
    title="a layer of a model in DistributedDataParallel gets no gradient",
    source="PyTorch's documentation of DistributedDataParallel, find_unused_parameters; torch/csrc/distributed/c10d/"
    'reducer.cpp: "Expected to have finished reduction in the prior iteration before starting a new one"; '
    "princeton-nlp/SimCSE #78: the poolers of BERT and RoBERTa",
    remedy="Remove the layer, use it in forward, or pass find_unused_parameters=True.",
)
RULES = (UNUSED,)
# Layers of torch.nn that certainly have parameters.
_LAYERS = frozenset(
    f"torch.nn.{name}"
    for name in (
        *("Linear", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "Embedding"),
        *("EmbeddingBag", "LayerNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "LSTM", "GRU", "RNN"),
        *("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer", "Parameter"),
    )
)
# Ways to reach a layer other than by its name.
_OTHER_WAYS = ("children", "named_children", "_modules", "getattr", "__dict__", "vars", "get_submodule", "modules")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    frozen = code.mentions("requires_grad", "requires_grad_", "_set_static_graph", "no_sync")
    if code.incomplete or not code.several or not code.backwards or frozen:
        return
    for event in code.wrapped_events:
        if event.detached or not DDP.search(event.name) or event.opened or not _expects_all(event):
            continue
        model = event.args[0] if event.args else event.arg("module")
        for each in _classes(model):
            yield from _layers(code, each, event)
        if model is not None:
            yield from _poolers(code, model, event)


def _poolers(code: ScriptFacts, model: Value, wrap: Event) -> Iterator[Finding]:
    """Report an encoder whose last layer is computed, and has no part in the loss."""
    for encoder, surely in poolers.unread(code, model):
        what = f"`{encoder.text}` has a pooler whose output is never used; line {wrap.line} wraps the model"
        certain = surely and code.job is not None
        remedy = "Pass add_pooling_layer=False to the encoder, or find_unused_parameters=True to the wrapper."
        yield at(UNUSED, encoder, what, None if certain else "warning", remedy=remedy)


def _expects_all(event: Event) -> bool:
    """Return whether the wrapper waits for the gradients of all parameters."""
    given = [event.arg(name) for name in ("find_unused_parameters", "static_graph")]
    return all(value is None or value.single() is False for value in given)


def _classes(model: Value | None, depth: int = 3) -> Iterator[Code]:
    """Yield the script's classes of a model and of its parts."""
    if model is None or model.code is None or not model.instance or not isinstance(model.code.node, ast.ClassDef):
        return
    yield model.code
    if depth:
        for part in (model.attrs or {}).values():
            yield from _classes(part, depth - 1)


def _layers(code: ScriptFacts, model: Code, wrap: Event) -> Iterator[Finding]:
    node = model.node
    assert isinstance(node, ast.ClassDef)
    init, forward = model.methods.get("__init__"), model.methods.get("forward")
    plain = list(model.origins()) == ["torch.nn.Module"] and not any(base.code for base in model.bases)
    if init is None or forward is None or not plain or not isinstance(init.node, ast.FunctionDef):
        return
    others = [each for each in node.body if each is not init.node]
    words = {n.id for each in others for n in ast.walk(each) if isinstance(n, ast.Name)}
    words |= {n.attr for each in others for n in ast.walk(each) if isinstance(n, ast.Attribute)}
    if words & set(_OTHER_WAYS) or _inherited(code, node.name):
        return
    for statement in init.node.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        name = _own_attribute(statement.targets[0])
        if name and _has_parameters(model, statement.value):
            if not _reached(code, name):
                what = f"`{ast.unparse(statement)[:60]}` is used nowhere; line {wrap.line} wraps the model"
                yield at(UNUSED, (model.module, statement), what)
            elif (test := _by_chance(code, forward, name)) is not None:
                what = f"`{ast.unparse(statement)[:60]}` depends on `{ast.unparse(test)[:40]}`"
                yield at(UNUSED, (model.module, statement), what)
            elif _one_each_time(code, forward, name, wrap):
                what = f"one of `{ast.unparse(statement)[:60]}` is used in each backward pass, and the others are not"
                yield at(UNUSED, (model.module, statement), what)


def _has_parameters(model: Code, made: ast.Call) -> bool:
    """Return whether a call makes a layer with parameters, or a sequence of layers with one of those."""
    name = qualified(model.module, made.func)
    inner = [arg for arg in made.args if isinstance(arg, ast.Call)] if name == "torch.nn.Sequential" else []
    if name == "torch.nn.ModuleDict":
        inner = [arg.value for arg in made.args if isinstance(arg, ast.DictComp) and isinstance(arg.value, ast.Call)]
        several = [arg.values for arg in made.args if isinstance(arg, ast.Dict) and len(arg.values) > 1]
        inner += [each for values in several for each in values if isinstance(each, ast.Call)]
    if name == "torch.nn.ModuleList":
        parts = [arg.elt for arg in made.args if isinstance(arg, ast.ListComp | ast.GeneratorExp)]
        inner = [part for part in parts if isinstance(part, ast.Call)]
    return name in _LAYERS or any(_has_parameters(model, each) for each in inner)


def _one_each_time(code: ScriptFacts, forward: Code, name: str, wrap: Event) -> bool:
    """Return whether an argument of forward selects one of several layers, and backward follows each call."""
    node = forward.node
    given = {arg.arg for arg in node.args.args[1:]} if isinstance(node, ast.FunctionDef) else set()
    uses = [forward.module.parents.get(load) for load in _loads(code, name)]
    selected = [u.slice.id for u in uses if isinstance(u, ast.Subscript) and isinstance(u.slice, ast.Name)]
    calls = [event for event in code.events if event.model is wrap.result and not event.detached]
    passes = [event.loops for event in code.ran("backward", live=True)]
    if len(calls) != 1 or not calls[0].loops or [calls[0].loops] != passes:
        return False
    around = ancestors(calls[0].module, calls[0].node)
    once = not any(isinstance(each, ast.GeneratorExp | ast.ListComp) for each in around)
    return once and bool(uses) and len(selected) == len(uses) and given.issuperset(selected)


def _own_attribute(target: ast.expr) -> str:
    own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    return target.attr if own and isinstance(target, ast.Attribute) else ""


def _inherited(code: ScriptFacts, name: str) -> bool:
    """Return whether another class is derived from this one: it may use the layer."""
    bases = [
        ast.unparse(base) for m in code.modules for n in m.nodes if isinstance(n, ast.ClassDef) for base in n.bases
    ]
    return any(base.rpartition(".")[2] == name for base in bases)


def _loads(code: ScriptFacts, name: str) -> list[ast.Attribute]:
    """Return where an attribute of this name is read, of whatever object."""
    nodes = (node for module in code.modules for node in module.nodes)
    return [n for n in nodes if isinstance(n, ast.Attribute) and n.attr == name and isinstance(n.ctx, ast.Load)]


def _reached(code: ScriptFacts, name: str) -> bool:
    """Return whether the layer is named anywhere but where it is made."""
    return bool(_loads(code, name)) or code.says(rf"(^|\W){name}(\W|$)")


def _by_chance(code: ScriptFacts, forward: Code, name: str) -> ast.expr | None:
    """Return the condition under which alone a layer is used: drawn in each process for itself, or in evaluation."""
    loads = _loads(code, name)
    for node in ast.walk(forward.node):
        if isinstance(node, ast.For) and isinstance(first := node.body[0], ast.If) and _drawn(first.test):
            over = loads and set(ast.walk(node.iter)).issuperset(loads)
            if over and isinstance(first.body[-1], ast.Continue):
                return first.test
        if not isinstance(node, ast.If) or node.orelse:
            continue
        drawn = ast.unparse(node.test) == "not self.training" or _drawn(node.test)
        inside = [each for statement in node.body for each in ast.walk(statement)]
        if drawn and loads and all(any(load is each for each in inside) for load in loads):
            return node.test
    return None


def _drawn(test: ast.expr) -> bool:
    """Return whether a condition draws a number."""
    calls = (ast.unparse(each.func) for each in ast.walk(test) if isinstance(each, ast.Call))
    return any(call in ("random.random", "torch.rand", "np.random.rand", "random.uniform") for call in calls)
