"""What the functions of libraries mean to a training script: a closed table of names, each from the library's own docs.

``torch.distributed``, ``torch_xla``, Horovod, SageMaker's two libraries, Accelerate and mpi4py all have a rank, a world
and collectives; here they get the same words, so that a rule is written once.
"""

from __future__ import annotations

import re
from functools import cache

_TORCH_COLLECTIVES = [
    "barrier",
    "monitored_barrier",
    "all_reduce",
    "all_gather",
    "all_gather_object",
    "all_gather_into_tensor",
    "broadcast",
    "reduce",
    "broadcast_object_list",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "gather",
    "gather_object",
    "scatter",
    "scatter_object_list",
    "all_to_all",
    "all_to_all_single",
    "new_group",
    "all_reduce_coalesced",
    "allreduce",
]
_HVD_COLLECTIVES = [
    "oob_allreduce",
    "allreduce",
    "allreduce_",
    "allgather",
    "allgather_object",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_parameters",
    "broadcast_optimizer_state",
    "broadcast_variables",
    "broadcast_global_variables",
    "join",
    "barrier",
    "alltoall",
    "reducescatter",
    "grouped_allreduce",
    "grouped_allreduce_",
]
_XLA_COLLECTIVES = [
    "rendezvous",
    "all_reduce",
    "all_gather",
    "mesh_reduce",
    "reduce_gradients",
    "optimizer_step",
    "save",
    "all_to_all",
]
_SMP_COLLECTIVES = [
    "barrier",
    "dp_barrier",
    "mp_barrier",
    "allgather",
    "broadcast",
    "resume_from_checkpoint",
    "save_checkpoint",
]


def _words(role: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, role)


_TORCH = {
    **_words("rank", "get_rank"),
    **_words("world", "get_world_size"),
    **_words("local_rank", "get_node_local_rank", "get_local_rank"),
    **_words("group", "init_process_group"),
    **_words("several", "is_initialized"),
    **_words("collective", *_TORCH_COLLECTIVES),
}
_HOROVOD = {
    **_words("rank", "rank"),
    **_words("world", "size"),
    **_words("local_rank", "local_rank"),
    **_words("host_rank", "cross_rank"),
    **_words("gpus", "local_size"),
    **_words("hvd-init", "init"),
    **_words("collective", *_HVD_COLLECTIVES),
    **_words("hvd-optimizer", "DistributedOptimizer", "DistributedGradientTape", "DistributedAdasumOptimizer"),
}
_XLA = {
    **_words("rank", "get_ordinal", "global_ordinal"),
    **_words("local_rank", "get_local_ordinal", "local_ordinal"),
    **_words("world", "xrt_world_size", "world_size", "global_device_count"),
    **_words("zero:local", "is_master_ordinal"),
    **_words("xla-device", "xla_device"),
    **_words("mark", "mark_step", "sync"),
    **_words("collective", *_XLA_COLLECTIVES),
}
_SMP = {
    **_words("rank", "rank"),
    **_words("local_rank", "local_rank"),
    **_words("dp_rank", "dp_rank", "rdp_rank"),
    **_words("part_rank", "pp_rank", "tp_rank", "mp_rank"),
    **_words("world", "size"),
    **_words("dp_size", "dp_size", "rdp_size"),
    **_words("gpus", "local_size"),
    **_words("smp-init", "init"),
    **_words("collective", *_SMP_COLLECTIVES),
}
_ACCELERATE = {
    **_words("zero:rank", "is_main_process", "is_last_process"),
    **_words("zero:local", "is_local_main_process"),
    **_words("rank", "process_index"),
    **_words("local_rank", "local_process_index"),
    **_words("world", "num_processes"),
    **_words("own-device", "device"),
    **_words("collective", *["gather", "gather_for_metrics", "reduce", "wait_for_everyone", "pad_across_processes"]),
    **_words("collective", "main_process_first", "local_main_process_first"),
}
_TRAINING_ARGUMENTS = {
    **_words("zero:rank", "should_save", "should_log", "is_world_process_zero"),
    **_words("zero:local", "is_local_process_zero"),
    **_words("rank", "process_index"),
    **_words("local_rank", "local_rank", "local_process_index"),
    **_words("world", "world_size"),
    **_words("own-device", "device"),
    **_words("collective", "main_process_first"),
}
# Lightning's documentation: save_checkpoint of a Trainer and these of Fabric are called in every process.
_LIGHTNING = {
    **_words("zero:rank", "is_global_zero"),
    **_words("rank", "global_rank"),
    **_words("local_rank", "local_rank"),
    **_words("host_rank", "node_rank"),
    **_words("world", "world_size"),
    **_words("collective", *["save_checkpoint", "barrier", "all_gather", "all_reduce", "broadcast"]),
}
_MPI = {
    **_words("rank", "Get_rank", "rank"),
    **_words("world", "Get_size", "size"),
    **_words(
        "collective",
        *["Barrier", "barrier", "bcast", "Bcast", "allreduce", "Allreduce", "gather", "Gather", "allgather", "reduce"],
    ),
}
_PREFIXES: tuple[tuple[str, dict[str, str]], ...] = (
    ("smdistributed.dataparallel.torch.distributed", _TORCH),
    ("smdistributed.dataparallel.tensorflow", _HOROVOD),
    ("smdistributed.modelparallel", _SMP),
    ("torch.distributed", _TORCH),
    ("deepspeed.comm", _TORCH),
    ("horovod", _HOROVOD),
    ("torch_xla", _XLA),
    ("accelerate", _ACCELERATE),
    ("transformers", _TRAINING_ARGUMENTS),
    ("trl", _TRAINING_ARGUMENTS),
    ("mpi4py", _MPI),
    ("lightning", _LIGHTNING),
    ("pytorch_lightning", _LIGHTNING),
)
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time")
_EXACT = {
    "torch.cuda.device_count": "gpus",
    "torch.cuda.is_available": "has-gpu",
    "torch.sagemaker.init": "smp-init",
    "deepspeed.init_distributed": "group",
    "torch.distributed.device_mesh.init_device_mesh": "group",
    "socket.gethostname": "host_rank",
    "uuid.uuid4": "random",
    "os.getpid": "random",
    "tempfile.mkdtemp": "root:tmp",
    "tempfile.gettempdir": "root:tmp",
    "tempfile.TemporaryDirectory": "root:tmp",
    **dict.fromkeys((f"time.{name}{unit}" for name in _CLOCKS for unit in ("", "_ns")), "clock"),
    **dict.fromkeys(("datetime.datetime.now", "datetime.datetime.utcnow", "timeit.default_timer"), "clock"),
    "os.getcwd": "root:relative",
    "pathlib.Path.cwd": "root:relative",
    "pathlib.Path.home": "root:elsewhere",
}


@cache
def role(name: str) -> str:
    """Return what a library's function or attribute is to a training script: ``rank``, ``collective`` …; or nothing."""
    if name in _EXACT:
        return _EXACT[name]
    for prefix, table in _PREFIXES:
        if name.startswith(prefix + "."):
            return table.get(name.rpartition(".")[2], "")
    return ""


# What a function or a block is within where PyTorch keeps no graph, or keeps one only if it is told to.
NO_GRAPH = re.compile(r"no_grad|inference_mode|set_grad_enabled")
DDP = re.compile(r"(^|\.)(DistributedDataParallel|DistributedDataParallelCPU)$")
FSDP = re.compile(
    r"(^|\.)(FullyShardedDataParallel|FSDP|fully_shard|XlaFullyShardedDataParallel|SpmdFullyShardedDataParallel)$"
)
OPTIMIZER = re.compile(
    r"^(torch|apex|torch_xla|syncfree)\.(\w+\.)*optim\w*\.(?!lr_scheduler)(\w+\.)*[A-Z]\w+$|"
    r"(^|\.)(\w*Optimizer|FusedAdam\w*|FusedLAMB|Adam\w*|SGD\w*|Lion|LAMB|Adafactor|RMSprop|Adagrad|create_optimizer)$"
)
MODEL = re.compile(
    r"^torchvision\.models\.|^torch\.nn\.(?!parallel|functional|init|utils|\w*Loss$)(modules\.\w+\.)?[A-Z]\w+$|"
    r"\.from_pretrained$|\.from_config$|^timm\.create_model$|^torch\.hub\.load$|"
    r"keras\.(models\.)?(Sequential|Model)$|keras\.applications\.([\w.]+\.)?[A-Z]\w+$|^segmentation_models_pytorch\.|"
    r"^diffusers\.([\w.]+\.)?\w+Model$"
)
NO_MODEL = re.compile(
    r"Tokenizer|Pipeline|Config|Processor|FeatureExtractor|FeatureExtractionMixin|Dataset|GenerationConfig|PromptTemplate"
)
LOADER = re.compile(r"(^|\.)(DataLoader|StatefulDataLoader|DataLoader2|WebLoader|MpDeviceLoader|ParallelLoader)$")

# What the names of things that are not in what was read say about them.
_NAMES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.I), tag)
    for pattern, tag in (
        (r"^_?(is|am|on|if)?_?local_(main|master|primary|zero)|is_local_(rank|main|master|process)", "zero:local"),
        (
            r"^_?(is|am|on|if)_?(the_)?(global_|world_)?(main|master|primary|root|chief|lead|first|rank_?(0|zero))"
            r"(_?(process|rank|node|proc|ordinal|worker|zero))?$|rank_?zero$|is_(?:world_process|global)_zero|^should_save$|^rank_?0$",
            "zero:rank",
        ),
        (r"^_?(args_)?local_?rank$|local_process_index|^get_local_rank$|^local_ordinal$", "local_rank"),
        (r"^_?(global_?|world_?|dist_?|ddp_?)?rank$|^get_(global_|world_)?rank$|^process_index$|^mpi_rank$", "rank"),
        (r"^(node|host|machine)_?(rank|index|id)$|^current_host$", "host_rank"),
        (r"^(task|worker)_(id|index)$", "rank"),
        (r"^task_type$", "task-type"),
        (r"^dp_rank$", "dp_rank"),
        (r"^(get_)?_?world_?size$|^num_replicas(_in_sync)?$|^num_processes$|^ddp_world_size$", "world"),
        (r"^(num|n)_?gpus?(_per_(node|host))?$|^ngpus_per_node$|^local_world_size$", "gpus"),
        (r"(^|_)hosts$", "hosts"),
        (r"(^|_)(optim\w*|opt)$", "optimizer"),
        (r"scaler$", "scaler"),
        (r"(^|_)(model|net|network|module|ddp_model|engine)$", "model"),
        (r"(^|_)loss$", "loss"),
        (r"(^|_)(data_?)?loader$|dataloader$", "loader"),
        (r"(^|_)(grad|grads|gradients)$", "grad"),
    )
)
_SAID: dict[str, tuple[str, ...]] = {}


def said(name: str) -> tuple[str, ...]:
    """Return what the name of something unknown says: of ``is_main_process`` that it is true in one process."""
    if name not in _SAID:
        found = next((tag for pattern, tag in _NAMES if pattern.search(name)), None)
        _SAID[name] = (found,) if found else ()
    return _SAID[name]


# The name of something that is not trained on.
HELD_OUT = re.compile(r"val|test|eval|dev(?!ice)", re.I)
# The packages of Lightning, the newer one first.
LIGHTNING = ("lightning", "pytorch_lightning")
# Schedules of the learning rate, with the arguments that say how many steps they have, and the places of these.
SCHEDULE_STEPS: dict[str, tuple[tuple[str, int], ...]] = {
    "OneCycleLR": (("steps_per_epoch", 4), ("total_steps", 2)),
    "CosineAnnealingLR": (("T_max", 1),),
    "CosineAnnealingWarmRestarts": (("T_0", 1),),
    "PolynomialLR": (("total_iters", 1),),
    "LinearLR": (("total_iters", 3),),
    "CyclicLR": (("step_size_up", 3),),
    "get_scheduler": (("num_training_steps", 3),),
    "get_linear_schedule_with_warmup": (("num_training_steps", 2),),
    "get_cosine_schedule_with_warmup": (("num_training_steps", 2),),
    "get_polynomial_decay_schedule_with_warmup": (("num_training_steps", 2),),
}
# Python's own functions whose calls are followed.
BUILTINS = frozenset(
    [
        *("int", "str", "float", "bool", "len", "range", "enumerate", "zip", "print", "open", "max", "min", "sum"),
        *("list", "dict", "tuple", "set", "isinstance", "getattr", "setattr", "hasattr", "any", "all", "sorted", "map"),
        *("filter", "reversed", "abs", "round", "vars", "type", "exit", "quit", "super", "iter", "next", "repr"),
    ]
)
