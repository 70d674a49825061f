"""Weights in uninitialised memory or on the meta device, which something has to initialise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.known import FSDP
from trainwright.script.paths import roots
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value, within

EMPTY = Rule(
    code="TW540",
    severity="error",
    title="a model is trained from uninitialised memory",
    source="PyTorch's documentation of Module.to_empty, which moves parameters without copying their storage, and of "
    "the meta device: they have to be initialised explicitly; pytorch/examples, distributed/FSDP2/train.py",
    remedy="model.reset_parameters() or init_weights() after to_empty, or load a checkpoint in every run.",
)
NOT_MADE = Rule(
    code="TW588",
    severity="error",
    title="FSDP wraps a model on the meta device, but gets no function that initialises its parameters",
    source="torch/distributed/fsdp/_init_utils.py, _materialize_meta_module: without param_init_fn it calls "
    "reset_parameters of each module with parameters, and raises if a module has no such method; AWS guide of SMP v2, "
    "Delayed parameter initialization",
    remedy="param_init_fn=DelayedParamIniter(model).get_param_init_fn() of torch.sagemaker.delayed_param, or one of "
    "the script's own that initialises as the model does.",
)
RULES = (EMPTY, NOT_MADE)
# What sets weights, whoever calls it.
_FILLS = re.compile(
    r"^(load_state_dict|set_(model_)?state_dict|apply|copy_|broadcast\w*|_?(re)?init\w*(param|weight)\w*|reset_\w+|"
    r"(normal|uniform|fill|trunc_normal|zero|random)_|\w*(load|restore|resume)_?(model|weights|checkpoint|ckpt|params)\w*)$"
)
# How a script looks for its own checkpoint, which does not exist in the first run.
_ASKS = ("exists", "isfile", "is_file", "isdir", "is_dir")
_LIBRARIES = ("torch.nn.init.", "torch.distributed.checkpoint.load")
# What takes a model or its parameters without changing the weights.
_READS = re.compile(
    r"^(parameters|named_parameters|train|eval|to|cuda|requires_grad_|zero_grad|state_dict|compile|numel|fully_shard|"
    r"FSDP|DistributedDataParallel|FullyShardedDataParallel|(get_)?(model_|optimizer_)?state_dict|no_sync|"
    r"clip_grad_norm_|set_\w*(gradient_sync|reshard\w*|all_reduce)|checkpoint_wrapper|apply_activation_checkpointing|"
    r"print|len|list|sum|filter|next|isinstance|hasattr|getattr|type|id|vars|watch|gradient_checkpointing_enable|"
    r"dim|size|nelement|element_size|stride|is_(floating_point|complex|contiguous)|data_ptr|endswith|startswith|add)$"
)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if not code.incomplete and code.mentions("init_empty_weights", "device"):
        yield from _not_made(code)
    if code.incomplete or not code.backwards or code.managed:
        return
    trains = code.ran("backward", live=True)
    for event in code.ran("to_empty", live=True):
        model = event.receiver
        made = model is not None and "model" in model.tags and bool(model.made)
        later = [e for e in trains if e.order > event.order]
        if model is None or not made or not later or event.by_rank is not None or event.under("error"):
            continue
        after = (e for e in code.events[event.order + 1 :] if not e.detached and not _resumes(code, e, event))
        if not any(_may_fill(each, model) for each in after):
            what = f"nothing sets the weights of a first run before backward in line {later[0].line}"
            yield at(EMPTY, event, f"`{ast.unparse(event.node)[:60]}`: {what}")
            return


def _not_made(code: ScriptFacts) -> Iterator[Finding]:
    """Report a transformers model on the meta device, as its layers lack reset_parameters, which FSDP calls."""
    if code.mentions("to_empty", "load_state_dict", "set_module_tensor_to_device", "load_checkpoint_and_dispatch"):
        return
    for wrap in code.wrapped_events:
        model = wrap.arg("module", 0)
        skips = wrap.detached or wrap.opened or wrap.last == "fully_shard" or wrap.name.startswith("script.")
        if skips or model is None or not FSDP.search(wrap.name) or wrap.arg("param_init_fn", 8) is not None:
            continue
        while model.of is not None:
            model = model.of
        made = code.maker(model)
        if made is None or len(model.made) != 1 or not made.name.startswith("transformers.") or made.by_rank:
            continue
        if any(each.endswith("init_empty_weights") or each == "torch.device('meta')" for each in made.contexts):
            what = f"`{wrap.text}` without param_init_fn: the model of line {made.line} is on the meta device"
            yield at(NOT_MADE, wrap, what)
            return


def _resumes(code: ScriptFacts, event: Event, room: Event) -> bool:
    """Return whether a call is made only if an earlier run has left a checkpoint."""
    for guard in event.guards:
        asked = next((e for e in code.ran(*_ASKS) if e.node is guard.node), None)
        if asked is None or not guard.side or guard in room.guards:
            continue
        if roots(asked.args[0] if asked.args else asked.receiver, code.checkpoints) == {"checkpoint"}:
            return True
    return False


def _may_fill(event: Event, model: Value) -> bool:
    """Return whether a call sets weights, or is one of an unknown function that gets the model."""
    if event.name.startswith(_LIBRARIES) or event.arg("param_init_fn") or event.arg("sync_module_states"):
        return True
    optimizer = event.receiver is not None and "optimizer" in event.receiver.tags
    if _FILLS.search(event.last) and not optimizer:
        return True
    if event.last in ("load", "restore", "resume") and event.receiver is not None and not event.receiver.name:
        return True  # of an object that may have the model
    if event.model is not None or event.name.startswith("script.") or "optimizer" in event.result.tags:
        return False
    given = (event.receiver, *event.args, *event.keywords.values())
    return not _READS.search(event.last) and any(value is not None and _of(value, model) for value in given)


def _of(value: Value, model: Value) -> bool:
    """Return whether a value is a model, a part of it or its parameters, alone or in a list; not its optimizer."""
    return any(within(each, model) and "optimizer" not in each.tags for each in (value, *(value.items or ())))
