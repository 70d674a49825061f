"""Encoders of transformers with a pooler, whose output a script may ignore."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.script.events import Event
from trainwright.script.known import NO_GRAPH
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import enclosing_function
from trainwright.script.values import Value, within

# Classes whose add_pooling_layer is True by default, and whose pooler has parameters in any configuration
# (transformers 4.28.1 and 4.57.1, models/*/modeling_*.py). DistilBERT, ELECTRA, DeBERTa, GPT-2 and T5 have none.
_CLASSES = frozenset(
    f"{name}Model"
    for name in (
        *("Bert", "Roberta", "XLMRoberta", "XLMRobertaXL", "RobertaPreLayerNorm", "Camembert", "Albert", "MPNet"),
        *("Longformer", "Ernie", "MegatronBert", "RemBert", "Data2VecText", "Luke", "Xmod", "ViT", "DeiT"),
    )
)
# Of which of these the published weights are that AutoModel loads by such a name (models/auto/modeling_auto.py).
_WEIGHTS = re.compile(
    r"^((google-bert/)?bert-(base|large)-|(FacebookAI/)?(xlm-)?roberta-(base|large)|(almanach/)?camembert-base|"
    r"(albert/)?albert-|microsoft/mpnet-base|allenai/longformer-|google/vit-|facebook/deit-)"
)
# What reads the pooler, takes it out, or keeps it from being trained.
_READS = ("pooler", "pooler_output", "to_tuple", "get_peft_model", "PeftModel", "LoraConfig", "named_children")
_STATES = ("last_hidden_state", "hidden_states", "attentions")


def unread(code: ScriptFacts, model: Value) -> Iterator[tuple[Event, bool]]:
    """Yield the encoders in a model of whose output the pooler's is never taken, each with whether it surely has one.

    An encoder is surely one with a pooler if its class is, or if the job decides by which name it is loaded.
    """
    if code.mentions(*_READS) or code.says("pooler"):
        return
    for event in code.events:
        if event.detached or event.guards or not _has_pooler(event) or not within(event.result, model):
            continue
        calls = [e for e in code.events if e.called is event.result or (e.model and e.model.of is event.result)]
        trained = [e for e in calls if not any(NO_GRAPH.search(name) for name in e.contexts)]
        if trained and len(trained) == len(calls) and all(_takes_states(e.module, e.node) for e in calls):
            yield event, "Auto" not in event.name or code.decided(_weights(event))


def _has_pooler(event: Event) -> bool:
    """Return whether a call creates an encoder of a class with a pooler, and does not turn the pooler off."""
    parts = event.name.split(".")
    loads = parts[-1] == "from_pretrained"
    pooled = event.arg("add_pooling_layer", None if loads else 1)
    if parts[0] != "transformers" or event.opened or (pooled is not None and pooled.single() is not True):
        return False
    name = parts[-2] if parts[-1] in ("from_pretrained", "from_config", "_from_config") else parts[-1]
    given = _weights(event) if loads and name == "AutoModel" else None
    weights = given.single() if given is not None else None
    return name in _CLASSES or (isinstance(weights, str) and bool(_WEIGHTS.search(weights)))


def _weights(event: Event) -> Value | None:
    return event.arg("pretrained_model_name_or_path", 0)


def _takes_states(module: Module, node: ast.expr) -> bool:
    """Return whether of an encoder's output only its hidden states are taken: ``[0]``, ``.last_hidden_state``."""
    around = module.parents.get(node)
    if isinstance(around, ast.Attribute):
        return around.attr in _STATES
    if isinstance(around, ast.Subscript):
        key = around.slice.value if isinstance(around.slice, ast.Constant) else None
        return key in (0, *_STATES) and key is not False
    target = around.targets[0] if isinstance(around, ast.Assign) and len(around.targets) == 1 else None
    function = enclosing_function(module, node) or module.tree
    if isinstance(target, ast.Name):
        loads = _loads(function, target)
        return bool(loads) and all(_takes_states(module, each) for each in loads)
    if isinstance(target, ast.Tuple) and len(target.elts) == 2:  # states, _ = self.bert(ids, return_dict=False)
        pooled = target.elts[1]
        return isinstance(pooled, ast.Name) and not _loads(function, pooled)
    return False


def _loads(function: ast.AST, name: ast.Name) -> list[ast.Name]:
    """Return where a function reads a name."""
    names = (n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name.id)
    return [each for each in names if isinstance(each.ctx, ast.Load)]
