"""What is saved of a model or an optimizer of which each process holds a part: FSDP, and DeepSpeed's stage 3."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import DEADLOCK, condition, stage_3_of_accelerate
from trainwright.script.configurations import of_file, stage_of
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import IDENTITY, Value

PARTIAL_OPTIMIZER = Rule(
    code="TW430",
    severity="error",
    title="the state of one process is saved as if it were that of the whole model, or of its optimizer",
    source="PyTorch's documentation of FullyShardedDataParallel, optim_state_dict: the state of an optimizer is "
    "sharded as its parameters are; FSDP.optim_state_dict or get_optimizer_state_dict, called by all processes, "
    "gathers it; pytorch/examples, distributed/FSDP2/checkpoint.py: full_tensor() joins what fully_shard has divided",
    remedy="FSDP.optim_state_dict(model, optimizer) in every process; then torch.save in one.",
)
WHOLE = Rule(
    code="TW444",
    severity="warning",
    title="a model is loaded before the arguments that shard it, so each process loads all of it",
    source="transformers' documentation of DeepSpeed, constructing massive models: TrainingArguments with a "
    "configuration of ZeRO-3 has to be made before from_pretrained is called",
    remedy="args = TrainingArguments(…, deepspeed=…) first, then model = AutoModel….from_pretrained(…)",
)
NOT_GATHERED = Rule(
    code="TW450",
    severity="warning",
    title="the model is saved without its weights, which DeepSpeed's stage 3 divides among the processes",
    source="transformers, trainer.py, save_model: with stage3_gather_16bit_weights_on_model_save=false it saves the "
    "checkpoint of each process instead, to be joined by zero_to_fp32.py",
    remedy='"stage3_gather_16bit_weights_on_model_save": true in zero_optimization',
)
RULES = (NOT_GATHERED, PARTIAL_OPTIMIZER, WHOLE)
# A configuration's file whose name says it.
_STAGE_3 = re.compile(r"(zero|stage|z)[_-]?3", re.I)
_GATHERS = "weights_on_model_save"
_TRAINERS = ("Trainer", "Seq2SeqTrainer", "SFTTrainer")
# What leaves shards as they are.
_KEEPS = frozenset(
    [
        *("items", "keys", "values", "cpu", "clone", "detach", "to", "float", "half", "bfloat16", "contiguous", "pop"),
        *("get", "update", "copy", "dict", "OrderedDict", "list", "sorted", "len", "print", "save", "isinstance"),
        *("hasattr", "startswith", "replace", "removeprefix", "numel", "size", "to_local", "append", "deepcopy"),
    ]
)
_ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several:
        return
    yield from _optimizer(code)
    yield from _engine(code)
    yield from _of_accelerate(code)
    yield from _trainer(code)


def _engine(code: ScriptFacts) -> Iterator[Finding]:
    """Report a state that torch.save gets of an engine of stage 3, whose parameters are empty in each process."""
    staged = [
        e
        for e in code.ran("initialize", live=True)
        if e.name == "deepspeed.initialize"
        and stage_of(of_file(e.module, e.arg("config") or e.arg("config_params") or e.arg("config", 6))) == 3
    ]
    yield from _unsaved(code, staged)
    if not staged or code.mentions("GatheredParameters", "_zero3_consolidated_16bit_state_dict"):
        return
    for event in code.ran("save", live=True):
        state = event.args[0] if event.name == "torch.save" and event.args else None
        model = staged[0].arg("model", 1)
        owner = state.of if state is not None and "state" in state.tags else None
        if owner is not None and (owner is model or "deepspeed" in owner.tags):
            what = f"`{ast.unparse(event.node)[:60]}`: with stage 3 the parameters are empty; use save_16bit_model"
            yield at(NOT_GATHERED, event, what)
            return


def _unsaved(code: ScriptFacts, staged: list[Event]) -> Iterator[Finding]:
    """Report a model that the engine does not save, because its configuration does not gather the weights."""
    for event in code.ran("save_16bit_model", "save_fp16_model", live=True) if staged else ():
        configuration = of_file(staged[0].module, staged[0].arg("config") or staged[0].arg("config_params"))
        zero = (configuration.attrs or {}).get("zero_optimization", Value())
        said = [value for name, value in (zero.attrs or {}).items() if name.endswith(_GATHERS)]
        gathers = any(value.single() is not False for value in said) if said else code.says(_GATHERS)
        asked = not isinstance(event.module.parents.get(event.node), ast.Expr)  # it returns whether it saved
        if event.receiver is not None and "deepspeed" in event.receiver.tags and not gathers and not asked:
            what = f"`{event.text}` saves nothing: stage3_gather_16bit_weights_on_model_save is not true"
            yield at(NOT_GATHERED, event, what, severity="warning" if code.ran("save_checkpoint") else "error")
            return


def _of_accelerate(code: ScriptFacts) -> Iterator[Finding]:
    """Report a request for whole weights where Accelerate's plugin does not make DeepSpeed gather them."""
    plugin = stage_3_of_accelerate(code)
    if plugin is None or plugin.opened or "hf_ds_config" in plugin.keywords or plugin.args:
        return
    told = plugin.arg("zero3_save_16bit_model")
    variable = "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL"
    if (told is not None and told.single() is not False) or variable in code.launch.environment or code.says(variable):
        return
    for event in code.ran("get_state_dict", live=True):
        if event.name.startswith("accelerate."):
            what = f"`{event.text}` raises ValueError: `{plugin.text[:40]}` in line {plugin.line} gathers no weights"
            remedy = "DeepSpeedPlugin(zero_stage=3, zero3_save_16bit_model=True)"
            yield at(NOT_GATHERED, event, what, severity="error", remedy=remedy)
            return


def _optimizer(code: ScriptFacts) -> Iterator[Finding]:
    if code.mentions("NO_SHARD"):
        return
    for save in code.ran("save", live=True):
        path = save.arg("f", 1)
        own = path is not None and path.tags & IDENTITY
        if save.name != "torch.save" or not save.args or own or "rank" in ast.unparse(save.node):
            continue
        for value in _inside(save.args[0]):
            whole = code.mentions("state_dict_type", "StateDictType")
            if (
                {"state", "fsdp2"} <= value.tags
                and not whole
                and "optimizer" not in (value.of.tags if value.of is not None else ())
                and not _joined(code, save)
            ):
                text = ast.unparse(save.node)[:60]
                what = f"`{text}` has the shards of this process; take get_model_state_dict with full_state_dict=True"
                yield at(PARTIAL_OPTIMIZER, save, what)
                return
            optimizer = value.of if "state" in value.tags else None
            model = optimizer.of if optimizer is not None and "optimizer" in optimizer.tags else None
            if model is not None and "fsdp" in model.tags:
                what = f"`{ast.unparse(save.node)[:60]}` has the state of this process's shards only"
                yield at(PARTIAL_OPTIMIZER, save, what)
                return


def _joined(code: ScriptFacts, save: Event) -> bool:
    """Return whether something may join the shards of a state before it is saved: ``shard.full_tensor()``."""
    before = (e for e in code.events if e.order < save.order or e.detached)
    others = (e for e in before if e.last not in _KEEPS and not e.name.startswith("script."))
    given = (value for e in others for value in (e.receiver, *e.args, *e.keywords.values()))
    return any(value is not None and {"state", "fsdp2"} <= value.tags for value in given)


def _inside(value: Value, depth: int = 3) -> Iterator[Value]:
    yield value
    if depth:
        for inner in (*(value.items or ()), *(value.attrs or {}).values()):
            yield from _inside(inner, depth - 1)


def _trainer(code: ScriptFacts) -> Iterator[Finding]:
    """Report a save on one process of a model that the Trainer shards: to gather it is a collective."""
    shards = _shards(code)
    if not shards:
        return
    trainers = [e for e in code.ran(*_TRAINERS, live=True) if e.name.startswith(("transformers.", "trl."))]
    yield from _not_gathered(code, trainers)
    models = [m for e in trainers if (m := e.arg("model", 0)) is not None]
    made = [e for e in code.ran(*_ARGUMENTS, live=True) if e.arg("deepspeed") is not None]
    for event in code.ran("from_pretrained", live=True):
        early = made and shards.startswith("DeepSpeed") and event.order < made[0].order
        if early and _is(event.result, models) and not code.mentions("HfDeepSpeedConfig", "Init", "zero3_init_flag"):
            what = (
                f"`{ast.unparse(event.node)[:50]}` comes before `{made[0].last}(…, deepspeed=…)` in line {made[0].line}"
            )
            yield at(WHOLE, event, what)
    for event in code.ran("save_model", "save_pretrained", live=True):
        guard = event.by_rank
        base = event.receiver
        alone = event.last == "save_pretrained" and not (
            event.opened or {"state_dict", "save_function"} & set(event.keywords)
        )
        if guard is None and alone and _of_trainer(event, trainers):
            text = ast.unparse(event.node)[:50]
            what = f"`{text}`: {shards} divides the weights; trainer.save_model gathers them"
            yield at(NOT_GATHERED, event, what)
            return
        if guard is None or base is None or "state_dict" in event.keywords:
            continue
        trains = [e for e in code.ran("train", live=True) if e.order < event.order and not e.guards]
        saves = event.last == "save_model" and any(base is e.result for e in trainers)
        saves = saves or (event.last == "save_pretrained" and (_of_trainer(event, trainers) or _is(base, models)))
        if saves and trains:
            what = f"`{ast.unparse(event.node)[:50]}` gathers the weights that {shards} divides, and"
            yield at(DEADLOCK, event, f"{what} runs only where {condition(guard)}")
            return


def _not_gathered(code: ScriptFacts, trainers: list[Event]) -> Iterator[Finding]:
    """Report a model that is saved where DeepSpeed is told not to gather its weights, or not told to."""
    for arguments in code.ran(*_ARGUMENTS, live=True):
        configuration = of_file(arguments.module, arguments.arg("deepspeed"))
        zero = (configuration.attrs or {}).get("zero_optimization")
        if zero is None or stage_of(configuration) != 3 or code.mentions_like("zero_to_fp32|fp32_state_dict"):
            continue
        names = [name for name in zero.attrs or {} if name.startswith("stage3_gather_")]
        for event in code.ran("save_model", live=True):
            mine = any(event.receiver is e.result for e in trainers)
            if mine and not any((zero.attrs or {})[name].single() is not False for name in names):
                what = f"`{ast.unparse(event.node)[:50]}`: stage3_gather_16bit_weights_on_model_save is not true"
                yield at(NOT_GATHERED, event, what)
                return


def _is(value: Value, models: list[Value]) -> bool:
    return any(value is model for model in models)


def _of_trainer(event: Event, trainers: list[Event]) -> bool:
    """Return whether the receiver is ``trainer.model``."""
    function = event.node.func
    inner = function.value if isinstance(function, ast.Attribute) else function
    base = event.receiver.of if event.receiver is not None else None
    attribute = isinstance(inner, ast.Attribute) and inner.attr in ("model", "model_wrapped")
    return attribute and any(base is each.result for each in trainers)


def _shards(code: ScriptFacts) -> str:
    """Return what divides the weights among the processes, as far as the script or the job says; else nothing."""
    environment = code.launch.environment
    if environment.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true"):
        return "FSDP"
    passed = code.launch.hyperparameters if code.mentions("HfArgumentParser") else {}
    if isinstance(words := passed.get("fsdp"), str) and "shard" in words and "no_shard" not in words:
        return "FSDP"
    for event in code.ran(*_ARGUMENTS):
        fsdp, deepspeed = event.arg("fsdp"), event.arg("deepspeed")
        decided = fsdp is not None and ("flag" not in fsdp.tags or bool(code.launch.hyperparameters))
        words = fsdp.single() if fsdp is not None and decided else None
        listed = [item.single() for item in fsdp.items or ()] if fsdp is not None else []
        if any(isinstance(w, str) and "shard" in w and "no_shard" not in w for w in (words, *listed)) or words is True:
            return "FSDP"
        file = deepspeed.single() if deepspeed is not None and "flag" not in deepspeed.tags else None
        named = isinstance(file, str) and _STAGE_3.search(file)
        if deepspeed is not None and (named or stage_of(of_file(event.module, deepspeed)) == 3):
            return "DeepSpeed's stage 3"
    return ""
