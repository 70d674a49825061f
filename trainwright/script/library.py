"""What calls of libraries return, as far as training scripts depend on it: ranks, paths, devices, wrapped models."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.script import argparse_values, computed, configurations, gathered, mappings, tensors, unequal
from trainwright.script.abstract_state import DERIVED, AbstractState
from trainwright.script.environment_names import environment
from trainwright.script.events import Event, JobStart
from trainwright.script.known import DDP, FSDP, LOADER, MODEL, NO_MODEL, OPTIMIZER, said
from trainwright.script.paths import folder, path_join
from trainwright.script.tensors import TENSORS
from trainwright.script.values import (
    ENDS,
    FLOWS,
    IDENTITY,
    MOST_ITEMS,
    NONE,
    WRAPPERS,
    Marks,
    Value,
    constant,
    graphless,
    merge,
    unknown,
)

_TRANSPARENT = frozenset(
    [
        "int",
        "str",
        "float",
        "bool",
        "abs",
        "round",
        "os.path.abspath",
        "os.path.normpath",
        "os.path.realpath",
        "os.path.expanduser",
        "os.fspath",
        "pathlib.Path",
        "pathlib.PurePath",
        "shutil.copytree",
        "ast.literal_eval",
        "json.dumps",
        "torch.tensor",
    ]
)
# Of what functools.partial returns: the arguments that it has taken.
BOUND = "(bound)"
_JOINS = frozenset({"os.path.join", "pathlib.Path", "pathlib.PurePath", "tf.io.gfile.join", "posixpath.join"})
_WRAPPED = {
    **dict.fromkeys(("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"), "dp"),
    "smdistributed.modelparallel.torch.DistributedModel": "smp",
    "smdistributed.modelparallel.torch.DistributedOptimizer": "smp",
    "torch.sagemaker.transform": "smp",
}


def output_tags(model: Value, event: Event) -> Marks:
    """Return the facts of a model's output, by the arguments of its call, also named ones: ``model(**batch)``."""
    given = frozenset[str]().union(*(arg.tags & FLOWS for arg in event.args))
    wrapped = model.tags & WRAPPERS - {"dp"}  # DataParallel works in one process
    if "out" in given:  # a loss, or the next part of the model
        return given | {"wrapped-out"} if wrapped else given
    known = {"known-out"} if model.made else NONE
    sharded = {"fsdp-out"} if "fsdp" in wrapped else NONE
    own = {"own"} if any("own" in value.tags for value in (*event.args, *event.keywords.values())) else NONE
    own |= graphless(event.contexts) if own else NONE
    own |= {"played"} if any("played" in value.tags for value in (*event.args, *event.keywords.values())) else NONE
    return frozenset({"out", "on-device"}) | ({"wrapped-out"} if wrapped else known) | sharded | own


def flow(event: Event) -> Marks:
    """Return the facts that a result inherits from the arguments of its call."""
    tags: Marks = NONE
    for value in (*event.args, *event.keywords.values()):
        tags |= value.tags & FLOWS
    return tags


def function(state: AbstractState, event: Event) -> Value:
    """Return the result of a library's function or class."""
    launch, name, last, args = state.launch, event.name, event.last, event.args
    special = _SPECIAL.get(name)
    if special is not None:
        return special(state, event)
    if name in _JOINS and len(args) != 1:
        return path_join(args)
    if name in _TRANSPARENT:
        converted = _converted(name, args[0]) if args else Value()
        return tensors.made(event, converted.tags, converted) if name in TENSORS else converted
    if name in TENSORS:
        return tensors.made(event, flow(event))
    if known := event.role:
        return of_role(launch, known, event)
    first = args[0] if args else None
    if DDP.search(name) or FSDP.search(name) or name in _WRAPPED:
        kind = _WRAPPED.get(name) or ("ddp" if DDP.search(name) else "fsdp")
        inner = first or event.arg("module") or event.arg("model")
        if last == "fully_shard" and inner is not None:
            inner.tags |= {"fsdp", "fsdp2"}
            return inner
        base = (inner.tags if inner is not None else NONE) & (WRAPPERS | {"half", "cuda", "optimizer"})
        what = {"optimizer"} if "Optimizer" in last else {"model"}
        return Value(made=frozenset({name}), tags=base | {kind} | what, of=inner)
    if OPTIMIZER.search(name):
        return Value(
            made=frozenset({name}), tags=frozenset({"optimizer"}), of=mappings.trained(first) if first else None
        )
    if configurations.is_arguments(name):
        given = {key: value for key, value in event.keywords.items() if key != "**"}
        return Value(made=frozenset({name}), tags=flow(event), attrs=given)
    if last == "GradScaler":
        return Value(made=frozenset({name}), tags=frozenset({"scaler"}))
    container = last[:1].islower() or not name.startswith("torch.nn.") or last in _CONTAINERS
    if container and MODEL.search(name) and not NO_MODEL.search(name):
        ends = _last(args).tags & ENDS if last == "Sequential" else NONE
        return Value(made=frozenset({name}), tags=frozenset({"model"}) | ends)
    if LOADER.search(name):
        loader = {"loader"} | (first.tags & (WRAPPERS | {"own", "unequal"}) if first else NONE)
        sampler = event.arg("sampler", 3)
        loader |= {"own"} if sampler is not None and sampler.made_by("DistributedSampler") else set()
        return Value(made=frozenset({name}), tags=frozenset(loader), of=first)
    if last == "DistributedSampler" or "Sampler" in last:
        return Value(made=frozenset({name}), tags=frozenset({"sampler"}), of=first)
    if last == "list_files" and "Dataset" in name:
        ordered = event.arg("shuffle", 1)
        mixed = (
            {"mixed"} if event.arg("seed", 2) is None and (ordered is None or ordered.single() is not False) else set()
        )
        return Value(made=frozenset({name}), tags=frozenset({"dataset"} | mixed))
    if last == "load_data" and ".datasets." in name and "keras" in name and name.split(".")[-2] in _WITH_CLASSES:
        pair = Value(items=(Value(), Value(made=frozenset({"keras.datasets.labels"}))))
        return Value(made=frozenset({name}), items=(pair, pair))
    if "Dataset" in name or name.startswith(("datasets.", "torchvision.datasets")):
        return Value(made=frozenset({name}), tags=frozenset({"dataset"}) | flow(event))
    guess = said(last) if last[:1].islower() and not name.startswith(("torch.", "tensorflow.")) else ()
    squashed = _SQUASHES.get(last, NONE) if name.startswith("torch.") else NONE
    return Value(made=frozenset({name}), tags=flow(event) | set(guess) | squashed | tensors.joined(event))


# Keras's data sets whose labels are the numbers of several classes.
_WITH_CLASSES = ("mnist", "fashion_mnist", "cifar10", "cifar100", "reuters")
_SQUASHES = {
    "softmax": frozenset({"as:softmax"}),
    "sigmoid": frozenset({"as:sigmoid"}),
    "Softmax": frozenset({"ends:softmax"}),
    "Sigmoid": frozenset({"ends:sigmoid"}),
}


def _last(layers: list[Value]) -> Value:
    """Return the last of the layers that a Sequential gets, in a dictionary or one by one."""
    named = list((layers[0].attrs or {}).values()) if len(layers) == 1 else []
    return (named or layers or [Value()])[-1]


_CONTAINERS = ("Sequential", "Linear", "Transformer", "TransformerEncoder", "LSTM", "GRU", "RNN", "Conv2d")


def of_role(launch: JobStart, known: str, event: Event) -> Value:
    """Return the result of a call with this role: a rank, the number of processes, an optimizer of Horovod."""
    tags = frozenset({known})
    if known == "world" and launch.processes is not None and launch.launched:
        return constant(launch.processes, known)
    if known in ("gpus",) and launch.gpus is not None and event.name == "torch.cuda.device_count":
        return constant(launch.gpus, known)
    if known == "has-gpu":
        return constant(launch.gpus > 0, known) if launch.gpus is not None else unknown(known)
    if known == "several":
        return unknown("several")
    if known == "xla-device":
        return Value(made=frozenset({event.name}), tags=frozenset({"xla-device"}))
    if known == "hvd-optimizer":
        inner = event.args[0] if event.args else event.arg("optimizer")
        return Value(made=frozenset({event.name}), tags=frozenset({"optimizer", "hvd"}), of=inner.of if inner else None)
    if known == "collective":
        return Value(made=frozenset({event.name}), tags=flow(event))
    if known in ("smp-init", "hvd-init", "group", "mark"):
        return Value(made=frozenset({event.name}))
    if event.last in ("rdp_rank", "rdp_size"):
        tags |= {event.last}
    return Value(tags=tags)


def _converted(name: str, value: Value) -> Value:
    """Return ``int(value)`` and the like: the same facts, and the constants converted."""
    kinds: dict[str, Callable[[object], object]] = {
        "int": lambda v: int(v) if isinstance(v, float) else int(str(v)),
        "float": lambda v: float(str(v)),
        "str": str,
    }
    constants = value.constants
    if name in kinds and constants is not None:
        try:
            constants = tuple(kinds[name](c) for c in constants)
        except (ValueError, OverflowError):
            constants = None
    if name == "ast.literal_eval" and "json" in value.tags:
        return unknown("hosts" if "env:SM_HOSTS" in value.tags else "parsed")
    converted = {"number", "json"} if name in ("int", "float") else set()
    kept = frozenset(
        t for t in value.tags if t not in converted and not (name in ("int", "float") and t.startswith("env:"))
    )
    return Value(made=value.made, tags=kept, constants=constants, sure=value.sure, of=value.of)


def getenv(state: AbstractState, event: Event) -> Value:
    """``os.environ.get(name, default)``."""
    key, default = event.arg("key", 0), event.arg("default", 1)
    name = key.single() if key is not None else ...
    return environment(state.launch, name, default or constant(None)) if isinstance(name, str) else Value()


def _len(state: AbstractState, event: Event) -> Value:
    value = event.args[0] if event.args else Value()
    if "hosts" in value.tags:
        hosts = state.launch.hosts
        return constant(hosts, "world") if hosts is not None else unknown("world")
    if "json" in value.tags:
        return Value(tags=value.tags)
    share = {"share-length"} if {"accelerate", "loader"} <= value.tags else set()
    share |= {"own-batches"} if {"own", "loader"} <= value.tags or value.made_by("DistributedSampler") else set()
    share |= value.tags & {gathered.EMPTY_ELSEWHERE}
    return Value(tags=frozenset({"length"}) | share, of=value)


def _loads(state: AbstractState, event: Event) -> Value:
    value = event.args[0] if event.args else Value()
    if value.made_by("open"):
        return configurations.loaded(state, event)
    if "env:TF_CONFIG" in value.tags:
        return unknown("tf-config")
    return unknown("hosts" if "env:SM_HOSTS" in value.tags else "parsed") if "json" in value.tags else Value()


def tf_config(key: Value) -> Value:
    """Return a part of TF_CONFIG: ``index`` and ``type`` of the task say which process this is."""
    return unknown({"index": "rank", "type": "task-type"}.get(str(key.single()), "tf-config"))


def _device(state: AbstractState, event: Event) -> Value:
    if not event.args:
        return Value(tags=frozenset({"device"}))
    first, index = event.args[0], event.arg("index", 1)
    tags = (first.tags & (IDENTITY | {"cuda", "xla-device", "number"})) | {"device"}
    if index is None:
        return Value(tags=tags, constants=first.constants)
    kinds = [c for c in first.constants or () if isinstance(c, str)]
    if index.single() is not ... and kinds:
        return Value(tags=tags, constants=tuple(f"{kind}:{index.single()}" for kind in kinds))
    return Value(tags=tags | (index.tags & IDENTITY) | {"cuda", "indexed"})


def _getattr(state: AbstractState, event: Event) -> Value:
    base, name = event.arg("", 0), event.arg("", 1)
    key = name.single() if name is not None else ...
    return state.attribute(base, key) if base is not None and isinstance(key, str) else Value()


def _setattr(state: AbstractState, event: Event) -> Value:
    if len(event.args) == 3 and isinstance(key := event.args[1].single(), str):
        base = event.args[0]
        base.attrs = {**(base.attrs or {}), key: event.args[2]}
    return Value()


def _enumerate(state: AbstractState, event: Event) -> Value:
    inner = state.each(event.args[0]) if event.args else Value()
    element = Value(items=(unknown("index"), inner))
    return Value(tags=frozenset({"element"}), attrs={"element": element}, of=event.args[0] if event.args else None)


def _zip(state: AbstractState, event: Event) -> Value:
    return Value(tags=frozenset({"element"}), attrs={"element": Value(items=tuple(map(state.each, event.args)))})


def _super(state: AbstractState, event: Event) -> Value:
    """``super()``: the object whose method runs, as one of the bases of the method's class."""
    owner = event.stack[-1].owner if event.stack else None
    bases = Value(items=owner.bases if owner is not None else ())
    return Value(made=frozenset({"super"}), attrs={DERIVED: bases}, of=state.selves[-1] if state.selves else None)


def _map(state: AbstractState, event: Event) -> Value:
    """``map(function, values)``: a function of the script is run for each of a few values that are known."""
    function, values = event.arg("", 0), event.args[1] if len(event.args) == 2 else None
    if function is None or values is None:
        return Value(tags=flow(event))
    few = values.items if values.items is not None and len(values.items) <= MOST_ITEMS else (state.each(values),)
    if function.code is not None and not function.instance:
        found = [state.call_code(function.code, [each], {}, function.of) for each in few]
    else:
        found = [(function.attrs or {}).get("(returned)", Value(made=each.made, tags=each.tags)) for each in few]
    return Value(tags=flow(event), attrs={"element": merge(found)}, items=tuple(found) if few is values.items else None)


def _first(state: AbstractState, event: Event) -> Value:
    return event.args[0] if event.args else Value()


def _range(state: AbstractState, event: Event) -> Value:
    element = unknown("each-rank" if any({"world", "gpus"} & arg.tags for arg in event.args) else "index")
    shared = {"sharded", "own"} if len(event.args) > 2 and event.args[0].tags & IDENTITY else ()
    return Value(tags=unequal.of_range(event.args).union(shared), attrs={"element": element})


def _partial(state: AbstractState, event: Event) -> Value:
    """``functools.partial(function, …)``: the function, with the arguments that its calls get besides theirs."""
    if not event.args:
        return Value()
    function = event.args[0].with_tags()
    bound = Value(items=tuple(event.args[1:]), attrs={k: v for k, v in event.keywords.items() if k != "**"})
    before = (function.attrs or {}).get(BOUND)
    if before is not None:
        bound = Value(
            items=(*(before.items or ()), *event.args[1:]), attrs={**(before.attrs or {}), **(bound.attrs or {})}
        )
    function.attrs = {**(function.attrs or {}), BOUND: bound}
    return function


def _open(state: AbstractState, event: Event) -> Value:
    path = event.arg("file", 0)
    mode = event.arg("mode", 1) or constant("r")
    known = path.constants if path is not None else None
    return Value(made=frozenset({"open"}), tags=path.tags if path else NONE, constants=known, attrs={"mode": mode})


def _exit(state: AbstractState, event: Event) -> Value:
    return unknown("never")


def _initialize(state: AbstractState, event: Event) -> Value:
    """``deepspeed.initialize``: engine, optimizer, loader, scheduler."""
    model = event.arg("model", 1)
    engine = Value(made=frozenset({"deepspeed.DeepSpeedEngine"}), tags=frozenset({"model", "deepspeed"}), of=model)
    optimizer = Value(made=frozenset({"deepspeed.Optimizer"}), tags=frozenset({"optimizer", "deepspeed"}))
    loader = Value(tags=frozenset({"loader", "deepspeed"}))
    schedule = Value(made=frozenset({"deepspeed.Scheduler"}), of=event.arg("lr_scheduler", 5))
    return Value(items=(engine, optimizer, loader, schedule))


_SPECIAL: dict[str, Callable[[AbstractState, Event], Value]] = {
    "os.environ.get": getenv,
    "os.getenv": getenv,
    "os.environ.setdefault": lambda state, event: Value(),
    "len": _len,
    **dict.fromkeys(
        ("evaluate.load", "evaluate.combine", "datasets.load_metric"), lambda state, event: computed.metric(event)
    ),
    "json.loads": _loads,
    **dict.fromkeys(("json.load", "yaml.safe_load", "yaml.load", "yaml.full_load"), configurations.loaded),
    "omegaconf.OmegaConf.load": configurations.of_path,
    "torch.device": _device,
    "os.path.dirname": lambda state, event: folder(event.args[0]) if event.args else Value(),
    **dict.fromkeys(("dict", "collections.OrderedDict"), lambda state, event: mappings.made(event)),
    **dict.fromkeys(configurations.NAMESPACES, configurations.namespace),
    **dict.fromkeys(("dataclasses.field", "pydantic.Field"), configurations.field),
    **dict.fromkeys(("transformers.HfArgumentParser", "trl.TrlParser"), configurations.parser),
    "map": _map,
    "super": _super,
    "getattr": _getattr,
    **gathered.FUNCTIONS,
    "setattr": _setattr,
    "enumerate": _enumerate,
    "zip": _zip,
    **dict.fromkeys(("list", "iter", "sorted", "vars", "tqdm.tqdm", "tqdm.auto.tqdm", "torch.compile"), _first),
    **dict.fromkeys(("torch.jit.script", "tensorflow.function", "types.MappingProxyType"), _first),
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": _first,
    "tensorflow.clip_by_global_norm": lambda state, event: Value(items=(_first(state, event), Value(tags=flow(event)))),
    "next": lambda state, event: state.each(event.args[0]) if event.args else Value(),
    "collections.defaultdict": mappings.filled,
    "dataclasses.asdict": lambda state, event: mappings.of_object(event),
    "copy.deepcopy": lambda state, event: event.args[0].with_tags("copy") if event.args else Value(),
    "range": _range,
    "functools.partial": _partial,
    "open": _open,
    **dict.fromkeys(("sys.exit", "exit", "quit", "os._exit"), _exit),
    "deepspeed.initialize": _initialize,
    "argparse.ArgumentParser": argparse_values.parser,
    "os.environ.copy": lambda state, event: unknown("environ-copy"),
}
