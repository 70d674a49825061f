"""The order of steps around a wrapped model: what is done before it is wrapped, after, and to its gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.known import DDP, FSDP
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, differs_by_rank
from trainwright.script.values import Code, Value

DOCS = "PyTorch's documentation of DistributedDataParallel, SyncBatchNorm and FullyShardedDataParallel"
ORDER = Rule(
    code="TW148",
    severity="error",
    title="a model is wrapped, or a strategy made, in the wrong order, or the wrapper is used as the model itself",
    source=f"{DOCS}; AWS guide for SMP v2: tsm.transform, then FSDP; TensorFlow's guide for multi-worker training; "
    "diffusers, pipeline_utils.py, save_pretrained: a component of another class is left out",
    remedy="Move the model to its GPU, convert or transform it, then wrap it; methods of its own are those of .module.",
)
CLIPPED = Rule(
    code="TW179",
    severity="error",
    title="gradients are clipped by the norm of a part of them",
    source=f"{DOCS}: model.clip_grad_norm_ takes the norm over all shards; Horovod's documentation of gradient "
    "clipping: optimizer.synchronize() first, then step within optimizer.skip_synchronize()",
    remedy="FSDP: model.clip_grad_norm_(…). Horovod: optimizer.synchronize(); clip_grad_norm_(…); "
    "with optimizer.skip_synchronize(): optimizer.step()",
)
LOADED = Rule(
    code="TW178",
    severity="warning",
    title="every process loads the checkpoint onto the GPU that it was saved from",
    source="PyTorch's documentation of torch.load: tensors go back to the device they were saved from; its ImageNet "
    "example maps to the process's own GPU",
    remedy='torch.load(path, map_location="cpu"), or map_location=f"cuda:{local_rank}"',
)
RULES = (ORDER, CLIPPED, LOADED)
# Methods of Hugging Face's models, which DistributedDataParallel does not pass on.
_OF_THE_MODEL = ("save_pretrained", "push_to_hub", "generate", "resize_token_embeddings", "get_input_embeddings")
# Accelerate wraps in FSDP or DeepSpeed, which pass the model's methods on.
_PLUGINS = ("FullyShardedDataParallelPlugin", "DeepSpeedPlugin", "deepspeed_plugin", "fsdp_plugin")
# Where these make a model, it is in main memory.
_LEFT_ON_CPU = ("script.", "torch.", "torchvision.", "timm.", "transformers.", "diffusers.")
_NO_SHARDS = ("NO_SHARD",)
# A script that asks whether the model is wrapped: the branch for a single process may use the model itself.
_ASKS = ("isinstance", "hasattr", "num_processes", "world_size", "WORLD_SIZE", "distributed_type", "n_gpu")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    if code.tensorflow:
        yield from _strategy(code)
        return
    wraps = [e for e in code.wrapped_events if not e.detached]
    yield from _order(code, wraps)
    yield from _wrapped_twice(code, wraps)
    yield from _as_model(code)
    yield from _clipped(code, wraps)
    yield from _loaded(code, wraps)
    yield from _other_names(code)


def _model(event: Event) -> Value | None:
    return event.args[0] if event.args else event.arg("module") or event.arg("model")


def _order(code: ScriptFacts, wraps: list[Event]) -> Iterator[Finding]:
    for event in code.ran("convert_sync_batchnorm", live=True):
        given = _model(event)
        if given is not None and given.tags & {"ddp", "fsdp"}:
            yield at(ORDER, event, f"`{event.text}` after the model was wrapped: DDP reduces the layers it replaced")
            return
    for event in code.events:
        given = _model(event) if event.name == "torch.sagemaker.transform" else None
        if given is not None and "fsdp" in given.tags and not event.detached:
            yield at(ORDER, event, f"`{event.text}` after the model was sharded")
            return
    inits = [e for e in code.events if e.name == "torch.sagemaker.init" and not e.detached]
    for event in code.ran("init_process_group", live=True):
        if inits and inits[0].order < event.order and event.role == "group":
            what = f"`{event.text}` after torch.sagemaker.init() in line {inits[0].line}, which then has made the group"
            yield at(ORDER, event, what)
            return
    for event in wraps:
        model = _model(event)
        ids = event.arg("device_ids", 1)
        if model is None or not DDP.search(event.name) or not (ids.items if ids is not None else _needs_gpu(code)):
            continue
        if model.made_by("DistributedDataParallel"):
            yield at(ORDER, event, f"`{event.text}`: the model is wrapped already")
            return
        if _on_cpu(code, model, event):
            yield at(ORDER, event, f"`{event.text}`: the model is still on the CPU")
            return


def _needs_gpu(code: ScriptFacts) -> bool:
    """Return whether NCCL alone joins the processes: it sends the parameters of the first one, from its GPU."""
    backends = [event.arg("backend", 0) for event in code.roles("group")]
    return bool(backends) and all(b is not None and b.single() == "nccl" and "flag" not in b.tags for b in backends)


def _wrapped_twice(code: ScriptFacts, wraps: list[Event]) -> Iterator[Finding]:
    """Report a model that is wrapped, though a library wraps it itself."""
    for event in wraps:
        model = _model(event)
        if model is not None and "smp" in model.tags and DDP.search(event.name):
            yield at(ORDER, event, f"`{event.text}`: smp.DistributedModel reduces gradients itself (ddp: true)")
            return
    by_hand = [
        e for e in code.ran("DistributedDataParallel", "DDP", "DataParallel", live=True) if e.name[:6] == "torch."
    ]
    if not by_hand:
        return
    for event in code.ran("prepare", "Trainer", "Seq2SeqTrainer", "SFTTrainer", live=True):
        if not event.name.startswith(("accelerate", "transformers.", "trl.")):
            continue
        for value in (*event.args, *event.keywords.values()):
            wrapped = next((e for e in by_hand if e.result is value), None)
            if wrapped is not None:
                what = f"`{wrapped.text}`, and {event.last} in line {event.line} wraps it again"
                yield at(ORDER, wrapped, what)
                return


def _on_cpu(code: ScriptFacts, model: Value, wrap: Event) -> bool:
    """Whether the script is seen to make a model, and nothing to move it or what it is made of to a GPU."""
    made = [e for e in code.events if e.result is model and e.order < wrap.order]
    if not made or model.tags & {"placed", "cuda", "out"} or "model" not in model.tags:
        return False
    makers = [name for name in model.made if name != "torch.compile"]
    if not makers or not all(name.startswith(_LEFT_ON_CPU) for name in makers):
        return False  # detectron2's build_model moves what it makes
    words = ("set_default_device", "set_default_tensor_type", "device_map", "init_inference", "to_empty")
    if code.mentions(*words) or any(e.arg("device") or e.arg("device_map") for e in made):
        return False
    if any("device" in name for e in made for name in e.contexts):
        return False  # with torch.device("cuda"): …
    # Its class may move its parts itself.
    return not any(e.last in ("cuda", "to") and any(map(of_module, e.stack)) for e in code.events)


def of_module(function: Code) -> bool:
    """Return whether a function is a method of a class of layers, which may move its parts itself."""
    return function.owner is not None and any(name.endswith("Module") for name in function.owner.origins())


def _as_model(code: ScriptFacts) -> Iterator[Finding]:
    """Report a method of the model that is called on DistributedDataParallel."""
    if not code.several or code.mentions(*_PLUGINS) or (code.job and "ACCELERATE_USE" in str(code.job.environment)):
        return
    for event in code.ran(*_OF_THE_MODEL, live=True):
        tags = event.receiver.tags if event.receiver is not None else frozenset()
        prepared = "accelerate" in tags and code.job is not None and code.launch.launched
        if "model" in tags and ("ddp" in tags or prepared) and not tags & {"fsdp", "deepspeed"}:
            if asks_for_wrapper(event):
                continue
            way = "accelerator.unwrap_model(model)" if prepared else "model.module"
            yield at(ORDER, event, f"`{event.text}`: DistributedDataParallel has no {event.last}; use {way}")
            return
    for module, node, around in code.covered:
        guards = [ast.unparse(guard.node) for guard in around]
        if not any(word in text for text in guards for word in _ASKS):
            what = f"`{ast.unparse(node)[:60]}`: DistributedDataParallel has no {node.attr}; use model.module"
            yield at(ORDER, (module, node), what)
            return
    saved = [event.receiver for event in code.ran("save_pretrained", live=True)]
    for event in code.events:
        if not event.name.startswith("diffusers.") or not any(value is event.result for value in saved):
            continue
        for value in (*event.args, *event.keywords.values()):
            prepared = "accelerate" in value.tags and code.launch.launched
            if "model" in value.tags and ("ddp" in value.tags or prepared) and not value.tags & {"fsdp", "deepspeed"}:
                what = "save_pretrained leaves out what DistributedDataParallel wraps; give it the model inside"
                yield at(ORDER, event, f"`{event.text}`: {what}")
                return


def asks_for_wrapper(event: Event) -> bool:
    """Return whether a condition around a call asks whether the model is wrapped, or how many processes there are."""
    return any(word in ast.unparse(guard.node) for guard in event.guards for word in _ASKS)


def _clipped(code: ScriptFacts, wraps: list[Event]) -> Iterator[Finding]:
    sharded = [e for e in wraps if FSDP.search(e.name) and e.last != "fully_shard"]
    clips = [e for e in code.ran("clip_grad_norm_", live=True) if e.name.startswith("torch.nn.utils")]
    for event in clips:
        given = event.args[0] if event.args else event.arg("parameters")
        owner = given.of if given is not None and "params" in given.tags else given
        if sharded and owner is not None and "fsdp" in owner.tags and not code.mentions(*_NO_SHARDS):
            yield at(CLIPPED, event, f"`{event.text}`: each rank takes the norm of its own shards")
            return
    if not code.horovod or not code.several:
        return
    optimizers = [e for e in code.ran("step", live=True) if e.receiver is not None and "hvd" in e.receiver.tags]
    waits = [e for e in code.ran("synchronize", live=True) if e.receiver is not None and "hvd" in e.receiver.tags]
    for event in clips:
        steps = [e for e in optimizers if e.order > event.order and e.loops[-1:] == event.loops[-1:]]
        waited = [e for e in waits if e.order < event.order and e.loops[-1:] == event.loops[-1:]]
        begun = [e for e in code.ran("backward", live=True) if e.order < event.order]
        if not steps or not begun:
            continue
        again = waited and not any("skip_synchronize" in name for name in steps[0].contexts)
        if not waited:
            yield at(CLIPPED, event, f"`{event.text}` before the gradients are averaged: step does that")
        elif again and not code.mentions("skip_synchronize"):
            what = f"`{steps[0].text}` averages the gradients again after synchronize() in line {waited[-1].line}"
            yield at(CLIPPED, steps[0], what, "warning")
        return


def _loaded(code: ScriptFacts, wraps: list[Event]) -> Iterator[Finding]:
    """Report a checkpoint that was saved from a GPU and is loaded by all processes of a host without a place."""
    if not code.several_per_host or not (wraps or code.horovod) or code.launch.gpus == 0:
        return
    for event in code.ran("load", live=True):
        place = event.arg("map_location", 1)
        fixed = place is not None and place.single() in ("cuda:0", 0) and "flag" not in place.tags
        if event.name != "torch.load" or (_given(place) and not fixed) or event.opened:
            continue
        path = event.arg("f", 0)
        named = bool(event.node.args) and differs_by_rank(code, event.module, event.node.args[0])
        own = named or (path is not None and path.tags & {"rank", "local_rank", "host_rank"})
        if event.by_rank or event.result.tags & {"dataset"} or own or "rank" in event.text:
            continue
        states = [e for e in code.ran("load_state_dict", live=True) if e.order > event.order]
        if _comes_from(event, states):
            where = "onto the first GPU of the host" if fixed else "without map_location"
            yield at(LOADED, event, f"`{event.text}` {where} in every process")
            return


def _given(value: Value | None) -> bool:
    return value is not None and value.single() is not None


def _other_names(code: ScriptFacts) -> Iterator[Finding]:
    """Report weights that are saved from the model and loaded into its wrapper, or the other way round."""
    if not code.several or code.says(r"^module\.|_orig_mod"):
        return  # it renames them
    saves = [e for e in code.ran("save", live=True) if e.name == "torch.save" and len(e.args) > 1]
    loads = [e for e in code.ran("load", live=True) if e.name == "torch.load" and e.args]
    for event in code.ran("load_state_dict", live=True):
        given = event.args[0] if len(event.node.args) == 1 and not event.node.keywords else None
        load = next((e for e in loads if given is not None and e.result in (given, given.of)), None)
        if event.receiver is None or "model" not in event.receiver.tags or load is None or given is None:
            continue
        if asks_for_wrapper(event):
            continue
        key = event.node.args[0].slice if isinstance(event.node.args[0], ast.Subscript) else None
        name = key.value if isinstance(key, ast.Constant) else None
        states = [s for e in saves if _same(e.args[1], load.args[0]) for s in _states(e.args[0], name)]
        told = {_named_by_ddp(state.of) for state in states if state.of is not None}
        inside = _named_by_ddp(event.receiver)
        if told == {not inside}:
            what = "names without `module.`" if inside else "names that begin with `module.`"
            yield at(ORDER, event, f"`{event.text}`: the file has {what}, as it was saved")
            return


def _same(path: Value, other: Value) -> bool:
    text = path.single()
    return path is other or (isinstance(text, str) and text == other.single())


def _states(saved: Value, name: object) -> list[Value]:
    """Return the model's weights in what was saved: under a name, or it is them."""
    found = saved.attrs.get(name) if saved.attrs is not None and isinstance(name, str) else saved
    whole = found is not None and "state" in found.tags and found.attrs is None
    return [found] if found is not None and whole and found.of is not None and "model" in found.of.tags else []


def _named_by_ddp(model: Value) -> bool:
    return "ddp" in model.tags and "fsdp" not in model.tags


def _comes_from(event: Event, states: list[Event]) -> bool:
    """Whether a loaded thing, or a part of it, is the state of a model or an optimizer."""
    for state in states:
        value = state.args[0] if state.args else None
        while value is not None:
            if value is event.result:
                return True
            value = value.of
    return False


def _strategy(code: ScriptFacts) -> Iterator[Finding]:
    """Report a collective strategy that is made after TensorFlow's first operation."""
    made = [e for e in code.ran("MultiWorkerMirroredStrategy", live=True) if not e.guards]
    if not made or not code.several_hosts:
        return
    for event in code.events:
        if event.order >= made[0].order or event.detached or event.guards:
            continue
        if _starts(event):
            what = f"`{event.text}` comes before the strategy in line {made[0].line}"
            yield at(ORDER, event, f"{what}: collectives are configured before TensorFlow's first operation")
            return


def _starts(event: Event) -> bool:
    """Return whether a call starts TensorFlow's runtime: by an operation, or to list the logical devices.

    A layer's ``adapt`` computes its weights; yahoo/TensorFlowOnSpark #490 has the list of devices.
    """
    if event.name.startswith(("tensorflow.keras.", "keras.")):
        return (event.last == "adapt" and ".layers." in event.name) or event.last in _READERS
    return event.name in _OPERATIONS or event.name.startswith(_FAMILIES)


_READERS = ("image_dataset_from_directory", "text_dataset_from_directory", "timeseries_dataset_from_array")
# These make a tensor.
_FAMILIES = (
    "tensorflow.math.",
    "tensorflow.image.",
    "tensorflow.io.decode_",
    "tensorflow.io.parse_",
    "tensorflow.linalg.",
)
_OPERATIONS = frozenset(
    f"tensorflow.{name}"
    for name in (
        *(
            "constant",
            "Variable",
            "zeros",
            "ones",
            "range",
            "convert_to_tensor",
            "cast",
            "reshape",
            "stack",
            "concat",
            "one_hot",
            "random.normal",
            "random.uniform",
        ),
        *("expand_dims", "io.read_file", "data.Dataset.list_files", "data.TextLineDataset", "io.matching_files"),
        *("data.TFRecordDataset", "data.Dataset.from_tensor_slices", "data.Dataset.range"),
        *("data.Dataset.from_generator", "config.list_logical_devices", "config.experimental.list_logical_devices"),
    )
)
