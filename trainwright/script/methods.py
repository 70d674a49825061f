"""What methods of libraries' objects return, as far as training scripts depend on it."""

from __future__ import annotations

import ast

from trainwright.script import argparse_values, computed, episodes, gathered, mappings, paths
from trainwright.script.abstract_state import AbstractState
from trainwright.script.events import Event
from trainwright.script.known import said
from trainwright.script.library import flow, getenv, of_role, output_tags, tf_config
from trainwright.script.tensors import CASTS, TENSORS
from trainwright.script.values import FLOWS, IDENTITY, NONE, WRAPPERS, Value, for_one, mean_of_own, unknown

# Methods that return the object itself, or one like it.
_SAME = frozenset(
    [
        "to",
        "to_empty",
        "cuda",
        "cpu",
        "float",
        "double",
        "train",
        "eval",
        "requires_grad_",
        "contiguous",
        "clone",
        "view",
        "mean",
        "sum",
        "reshape",
        "repeat",
        "prefetch",
        "batch",
        "cache",
        "map",
        "shuffle",
        "with_options",
        "skip",
        "interleave",
        "padded_batch",
        "flat_map",
        "filter",
        "apply",
        "cast",
        "strip",
        "rstrip",
        "lower",
        "upper",
        "resolve",
        "absolute",
        "expanduser",
        "as_posix",
        "data_parallel",
        "share_memory",
        "unsqueeze",
        "squeeze",
        "flatten",
        "numpy",
    ]
)
# Methods of a tensor that add something to it.
_IN_PLACE = ("add_", "sub_", "copy_", "index_add_", "scatter_add_", "fill_")


def method(state: AbstractState, event: Event, name: str, called: Value) -> Value:
    """Return the result of a method of an object that no code of the script defines."""
    base = event.receiver if event.receiver is not None else Value()
    if event.role and event.role not in ("collective", "group"):
        return of_role(state.launch, event.role, event)
    if name == "half" and "model" in base.tags:
        base.tags |= {"half"}
        return base
    if (seen := episodes.method(event, base, name)) is not None:
        return seen
    if name in ("to", "cuda", "xpu"):
        if "cpu-tensor" in base.tags:
            kept = {"cpu-tensor"} if any(arg.name.startswith("torch.") for arg in event.args) else set()  # a dtype
            return Value(made=base.made, tags=base.tags - {"cpu-tensor"} | (kept or {"moved"}), of=base.of)
        base.tags |= {"placed"}
        return base
    if name == "cpu" and "out" in base.tags:
        return Value(made=base.made, tags=(base.tags - {"on-device"}) | {"cpu-tensor"}, of=base.of)
    if name == "shard" or (name == "select" and any(arg.tags & IDENTITY for arg in event.args)):
        base.tags |= {"sharded", "own"}
        return base
    if name == "shuffle" and event.arg("seed", 1) is None and "model" not in base.tags:
        return base.with_tags("mixed")
    if name == "repeat" and not (event.args or event.keywords):
        return base.with_tags("endless").without_tags("unequal")
    if name in ("read", "read_text", "open") and base.constants is not None:
        return Value(made=frozenset({"open"}), tags=base.tags, constants=base.constants)
    if name == "take":
        return Value(made=base.made, tags=base.tags - {"endless", "unequal"}, of=base.of)
    if (tensor := _tensor(event, base, name)) is not None:
        return tensor
    if name in _SAME:
        return _of_text(base, name) if isinstance(base.single(), str) and not event.args else base
    if name in ("reduce_mean", "concat", "stack", "reduce_sum", "merge") and "step-output" in base.tags:
        return Value(made=frozenset({f"?.{name}"}), tags=base.tags & FLOWS)
    if name in ("parameters", "named_parameters", "trainable_variables"):
        return Value(tags=frozenset({"params"}), of=base)
    if name == "gradient" and base.made_by("GradientTape"):
        return Value(tags=frozenset({"grad"}), of=base)
    if name in ("state_dict", "local_state_dict"):
        kind = {"partial"} if name == "local_state_dict" else gathered.tags(state, base)
        return Value(tags=frozenset({"state"}) | kind | (base.tags & (WRAPPERS | {"fsdp2"})), of=base)
    if name == "scale" and "scaler" in base.tags:
        return Value(tags=flow(event) | {"scaled", "loss"})
    if name == "prepare":
        return _prepared(event)
    if (joined := paths.method(event, base, name)) is not None:
        return joined
    if name == "index" and "hosts" in base.tags:
        return unknown("host_rank", *(("rank",) if state.launch.per_host == 1 else ()))
    if name == "get" and base.name == "os.environ":
        return getenv(state, event)
    if name == "get" and "tf-config" in base.tags and event.args:
        return tf_config(event.args[0])
    if (found := computed.method(event, base, name) or mappings.method(state, event, base, name)) is not None:
        return found
    if name in ("item", "tolist"):
        return _number(event, base, name)
    if name.startswith("parse_"):
        return argparse_values.parsed(state, event, name)
    if name == "add_argument":
        argparse_values.added(state, event)
        return Value()
    if name in ("add_argument_group", "add_mutually_exclusive_group", "add_parser", "add_subparsers"):
        return base
    if name in ("append", "extend") and event.args:
        added = (event.args[0],) if name == "append" else event.args[0].items or ()
        base.tags |= event.args[0].tags & FLOWS | episodes.kept(event.args[0])
        if base.items is not None:
            for_one(Value(items=added if event.under("one", "host") else ()), Value())
            base.items = (*base.items, *added)
        return Value()
    if name == "compile" and any("hvd" in v.tags for v in (*event.args, *event.keywords.values())):
        base.tags |= {"hvd-compiled"}
    if name in ("minimize", "compile", "fit") or called.tags & {"never"}:
        return Value(made=frozenset({f"?.{name}"}))
    mesh = base.part_of("init_device_mesh", "DeviceMesh")  # the rank in one of its dimensions
    named = ("dp_rank",) if mesh and name in ("get_local_rank", "get_rank") else said(name)
    if "model" in base.tags and not named:
        return _called(event, base, name)
    flows = (base.tags & FLOWS) | flow(event)
    made = {f"{m}.{name}" for m in base.made} if len(base.made) <= 3 else set()
    return Value(made=frozenset(made), tags=flows | set(named), of=base)


def _called(event: Event, model: Value, name: str) -> Value:
    """Return what a method of a model returns."""
    runs = name in ("__call__", "forward", "generate")
    return Value(tags=output_tags(model, event) if runs else NONE)


def _is_tensor(value: Value) -> bool:
    return "out" in value.tags or (bool(value.made) and value.made <= TENSORS)


def _number(event: Event, base: Value, name: str) -> Value:
    """Return what ``item()`` or ``tolist()`` makes of a tensor."""
    made = {"torch.Tensor.item"} if name == "item" and _is_tensor(base) and not event.args else set()
    return Value(made=frozenset(made), tags=base.tags & {"own", "of-root", "measured", "graphless", "played", "clock"})


def _tensor(event: Event, base: Value, name: str) -> Value | None:
    """Return what a method makes of a tensor that is no longer a logit, or no longer in the graph; None of others."""
    if name in ("softmax", "sigmoid") and not base.name:
        return Value(tags=(base.tags & FLOWS) | {f"as:{name}"}, of=base)
    whole = base.of if not base.made and base.of is not None else base  # `buffer[a:b].copy_(…)`
    if name in _IN_PLACE and whole.made and whole.made <= TENSORS:
        whole.tags |= flow(event)
        return base
    if name == "mean" and "own" in base.tags and not event.args:
        return base.with_tags(*mean_of_own(base, event.contexts))
    if "cpu-tensor" in base.tags and name in CASTS:
        return base
    if name in ("detach", "detach_"):
        copied = isinstance(event.node.func, ast.Attribute) and isinstance(event.node.func.value, ast.Call)
        base.tags |= {"detached"} if name == "detach_" and not copied else set()  # `loss.clone().detach_()`
        return base.with_tags("detached")
    return None


def _of_text(base: Value, name: str) -> Value:
    """``text.upper()`` and the like."""
    text = base.single()
    known = isinstance(text, str) and name in ("upper", "lower", "strip")
    return Value(base.name, base.made, base.tags, (getattr(text, name)(),), base.sure, of=base.of) if known else base


def _prepared(event: Event) -> Value:
    """``accelerator.prepare(model, optimizer, loader)``: the same things, wrapped."""
    items = []
    for arg in event.args:
        value = arg.with_tags("accelerate", *(("own",) if "loader" in arg.tags else ()))
        value.of = arg
        value.made = arg.made | {"accelerate.prepared"}
        items.append(value)
    return Value(items=tuple(items)) if len(items) > 1 else (items[0] if items else Value())
