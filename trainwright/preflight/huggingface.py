"""Trainer, Accelerate, DeepSpeed and Lightning: what they do themselves, and what they leave to the script."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.errors import nearest
from trainwright.core.findings import Finding, Rule
from trainwright.preflight import training_names
from trainwright.preflight.data import WRONG_SHARE
from trainwright.script.events import Event
from trainwright.script.paths import roots
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value

ACCELERATE = "Accelerate's documentation, migrating code to it"
NOT_PREPARED = Rule(
    code="TW155",
    severity="error",
    title="a model, optimizer or loader that the library does not know: it is trained in each process alone",
    source=f"{ACCELERATE}: prepare() wraps the model for DDP and divides the loader; DeepSpeed's: initialize()",
    remedy="model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
)
PLAIN_BACKWARD = Rule(
    code="TW156",
    severity="error",
    title="backward, step or clipping past the library that scales and reduces gradients",
    source=f"{ACCELERATE}: accelerator.backward(loss), accelerator.clip_grad_norm_; DeepSpeed's: engine.backward(loss)",
    remedy="accelerator.backward(loss) (with DeepSpeed: engine.backward(loss); engine.step())",
)
ARGUMENTS = Rule(
    code="TW157",
    severity="error",
    title="training arguments that contradict each other or the job's instance",
    source="transformers, training_args.py and integrations/deepspeed.py: each raises ValueError; of num_generations, "
    "TRL, grpo_config.py; huggingface/open-r1 #249; of train_batch_size, CarperAI/trlx #376",
    remedy="Change one of the two, as the message says.",
)
DEVICE_MAP = Rule(
    code="TW158",
    severity="error",
    title="a device_map that does not give each of the job's processes its own GPU",
    source="accelerate, Accelerator.prepare_model: a model with a device map over several GPUs cannot be trained "
    "in any distributed mode; a quantised one on another GPU than the process's own raises ValueError",
    remedy="Remove device_map; with quantisation use device_map={'': int(os.environ['LOCAL_RANK'])}.",
)
FEWER_NODES = Rule(
    code="TW159",
    severity="error",
    title="Lightning's Trainer has fewer nodes or devices than the job",
    source="Lightning's documentation of Trainer: num_nodes defaults to 1; devices times nodes are the processes",
    remedy="pl.Trainer(devices=…, num_nodes=len(json.loads(os.environ['SM_HOSTS'])), strategy='ddp')",
)
WRAPPED_NAMES = Rule(
    code="TW443",
    severity="warning",
    title="the model is saved with the names of its wrapper, so the model itself cannot load it",
    source="Accelerate's documentation, checkpoint and save a model: unwrap_model or get_state_dict before saving; "
    "pytorch/pytorch, issue 101107: names of torch.compile begin with _orig_mod",
    remedy="Save the model in the wrapper: model.module or model._orig_mod; accelerator.unwrap_model(model).",
)
RULES = (NOT_PREPARED, PLAIN_BACKWARD, ARGUMENTS, DEVICE_MAP, FEWER_NODES, WRAPPED_NAMES)
# Volta and Turing: no bfloat16.
_NO_BF16 = ("ml.p3.", "ml.p3dn.", "ml.g4dn.", "ml.p2.")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    if code.imports("accelerate", certain=True) is not None:
        yield from _accelerate(code)
    if code.imports("transformers", "trl") is not None:
        yield from _trainer(code)
    yield from _lightning(code)


# With these arguments loss.backward() gives wrong gradients; without them it does what accelerator.backward does.
_SCALES = {"mixed_precision", "gradient_accumulation_steps", "gradient_accumulation_plugin", "deepspeed_plugin", "**"}


def _accelerate(code: ScriptFacts) -> Iterator[Finding]:
    made = [e for e in code.ran("Accelerator", live=True) if e.name.startswith("accelerate")]
    if not made or not code.backwards:
        return
    prepares = [e for e in code.events if e.last in ("prepare", "prepare_model", "_prepare")]
    if not prepares:
        yield at(NOT_PREPARED, made[0], "accelerator.prepare is never called")
        return
    handled = [v for e in prepares for v in (*e.args, *e.keywords.values())]
    if not code.mentions("prepare_model"):
        known = all(v.made or v.tags or v.code for v in handled)
        if known:
            yield from _left_out(code, handled)
        for loader in code.ran("DataLoader", live=True):
            sampler = loader.arg("sampler", 3)
            if sampler is None or not sampler.made_by("DistributedSampler") or not code.several:
                continue
            if any(value is loader.result for value in handled):
                what = f"`{loader.text}`: accelerator.prepare divides the data of its DistributedSampler again"
                yield at(WRONG_SHARE, loader, what)
        if known and code.several and any("loader" in v.tags for v in handled):
            yield from _own_loader(code, handled, prepares[-1])
            yield from _gathered(code, handled, prepares[-1])
    plain = [e for e in code.ran("backward", live=True) if e.receiver is not None and not e.args]
    if plain and code.several and not any(e.args for e in code.ran("backward")):
        what = f"`{plain[0].text}` instead of accelerator.backward(loss)"
        scales = any(_SCALES & set(e.keywords) for e in made)
        yield at(PLAIN_BACKWARD, plain[0], what, severity=None if scales else "warning")
    yield from _wrapped_state(code)
    for event in code.ran("clip_grad_norm_", live=True):
        mixed = any(_says(e.arg("mixed_precision"), "fp16") for e in made)
        if event.name.startswith("torch.") and mixed and event.loops:
            yield at(PLAIN_BACKWARD, event, f"`{event.text}` clips scaled gradients; use accelerator.clip_grad_norm_")


def _wrapped_state(code: ScriptFacts) -> Iterator[Finding]:
    """Report the final model saved with the names of its wrapper, which nothing in the script reads again."""
    if not code.several or code.mentions("load_state_dict", "fsdp_plugin", "deepspeed_plugin"):
        return
    for event in code.ran("save", "save_file", live=True):
        path = event.arg("f", 1) or event.arg("filename")
        state = event.args[0] if event.args else None
        if state is None or path is None or "model" not in roots(path) or "state" not in state.tags:
            continue
        model = state.of.tags if state.of is not None else frozenset()
        if {"accelerate", "model"} <= model and "fsdp" not in model:
            what = f"`{event.text}`: each name begins with `module.`; take accelerator.unwrap_model(model) first"
            yield at(WRAPPED_NAMES, event, what)
            return


def _says(value: Value | None, text: str) -> bool:
    return value is not None and value.single() == text


def _left_out(code: ScriptFacts, handled: list[Value]) -> Iterator[Finding]:
    for kind in ("optimizer", "loader", "model"):
        if any(kind in v.tags for v in handled):
            continue
        there = [
            e
            for e in code.events
            if kind in e.result.tags
            and not e.detached
            and e.result.made
            and (kind != "loader" or e.last == "DataLoader")
        ]
        if kind == "loader" and any(_has_share(e) for e in (code.training_loader(), *there) if e is not None):
            continue  # it is divided already, and prepare() would divide it again
        beside = [v for c in code.events if any(v.made_by("Accelerator") for v in _given(c)) for v in _given(c)]
        if kind == "loader" and any(e.result is value for e in there for value in beside):
            continue  # `prepare_dataloader(loader, accelerator)` of another package divides it
        if kind == "model":
            trained = [e.result.of for e in code.events if "optimizer" in e.result.tags]
            parts = [v for e in code.events if any(e.result is v for v in handled) for v in _given(e)]
            there = [e for e in there if any(e.result is model for model in trained)]
            there = [e for e in there if not any(e.result is part for part in parts)]
        if there:
            yield at(NOT_PREPARED, there[0], f"`{there[0].text}` is not given to accelerator.prepare")
            return


def _has_share(loader: Event) -> bool:
    """Return whether a loader gives each process its own part of the data, by a sampler or a part of the dataset."""
    sampler = loader.arg("sampler", 3) or loader.arg("batch_sampler", 4)
    part = any("sharded" in value.tags or value.part_of("split_dataset_by_node") for value in _given(loader))
    return part or (sampler is not None and sampler.part_of("DistributedSampler"))


def _given(event: Event) -> tuple[Value, ...]:
    return (*event.args, *event.keywords.values())


def _own_loader(code: ScriptFacts, handled: list[Value], prepare: Event) -> Iterator[Finding]:
    """Report a loader that was made before others were prepared, and whose batches are trained on as they are."""
    loader = code.training_loader()
    if loader is None or loader.detached or loader.order > prepare.order or _has_share(loader):
        return
    if not any(v is loader.result for v in handled) and not code.iterates_prepared():
        yield at(NOT_PREPARED, loader, f"`{loader.text}` is not given to accelerator.prepare, as others are")


def _gathered(code: ScriptFacts, handled: list[Value], prepare: Event) -> Iterator[Finding]:
    """Report results that are gathered of a loader that was made before others were prepared, but was not itself."""
    for event in code.ran("gather", "gather_for_metrics", live=True):
        loader = code.loader(event.loops[-1]) if event.loops and event.name.startswith("accelerate") else None
        if loader is None or loader.detached or loader.order > prepare.order:
            continue
        own = loader.arg("sampler", 3) is not None or any("sharded" in v.tags for v in loader.args)
        if not own and not any(v is loader.result for v in handled):
            what = f"`{loader.text}` is not given to accelerator.prepare: line {event.line} gathers every sample"
            yield at(NOT_PREPARED, loader, f"{what} once for each process", severity="warning")
            return


_ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig")
_STRATEGIES = ("eval_strategy", "evaluation_strategy", "save_strategy")


def _trainer(code: ScriptFacts) -> Iterator[Finding]:
    for event in code.ran(*_ARGUMENTS):
        given = {k: v.single() for k, v in event.keywords.items() if "flag" not in v.tags}
        evaluates = given.get("eval_strategy", given.get("evaluation_strategy", "no"))
        unknown = event.opened or any(v.single() is ... for k, v in event.keywords.items() if k in _STRATEGIES)
        if what := _contrary(code, given, unknown=unknown):
            # Before save_strategy existed, the trainer saved when it evaluated.
            old = "load_best" in what and "save_strategy" not in given
            place = next((node for name, node in event.later.items() if name in what), event.node)
            yield at(ARGUMENTS, (event.module, place), what, severity="warning" if old else None)
        yield from _without_data(code, event, evaluates)
        yield from _misspelled(event)
        yield from _generates(code, event)
    yield from _backward_again(code)
    if code.several and code.launch.launched:
        for event in code.events:
            mapped = event.arg("device_map")
            if event.last != "from_pretrained" or mapped is None:
                continue
            apart = code.several_per_host and not code.mentions("CUDA_VISIBLE_DEVICES")
            one = _one_gpu(mapped) if apart else ""
            first = apart and _not_yet_set(code, mapped)
            if one or first or mapped.single() in ("auto", "balanced"):
                trained = code.ran("train", live=True) or code.backwards
                open_yet = "flag" in mapped.tags and not code.launch.hyperparameters
                if trained and not open_yet and not event.detached and event.by_rank is None:
                    said = f"`device_map={one or repr(mapped.single())}`"
                    said = "`torch.cuda.current_device()` before anything has set it, so 0," if first else said
                    yield at(DEVICE_MAP, event, f"{said} with {code.launcher}")


# What gives a process its GPU: PyTorch itself, the states of Accelerate, the arguments of transformers' Trainer.
_SETS_DEVICE = re.compile(
    r"\.set_device$|^accelerate\.|^transformers\..*(Arguments|Parser)\b|^trl\.|^deepspeed\.|lightning|^torch\.device$"
)


def _not_yet_set(code: ScriptFacts, mapped: Value) -> bool:
    """Return whether a device map names the current GPU before anything has set it, which means the first one."""
    asked = code.maker((mapped.attrs or {}).get("", mapped))
    if asked is None or asked.name != "torch.cuda.current_device" or asked.detached:
        return False
    before = [e for e in code.events if e.order < asked.order]
    return not any(_SETS_DEVICE.search(e.name) or e.role in ("group", "smp-init", "hvd-init") for e in before)


def _one_gpu(mapped: Value) -> str:
    """Return how to write a device map that is the same GPU in every process, or an empty string."""
    whole = mapped
    if mapped.attrs is not None:
        if set(mapped.attrs) != {""}:
            return ""
        whole = mapped.attrs[""]
    gpu = whole.single()
    if whole.tags - {"device", "cuda"} or isinstance(gpu, bool):
        return ""  # an argument, the process's own rank
    if isinstance(gpu, int) or (isinstance(gpu, str) and re.fullmatch(r"cuda:[0-9]+", gpu)):
        return repr(gpu) if whole is mapped else repr({"": gpu})
    return ""


def _contrary(code: ScriptFacts, given: dict[str, object], *, unknown: bool) -> str:
    """Return which of these arguments of a Trainer exclude each other, or do not fit the job's GPUs.

    Args:
        code: the script.
        given: the arguments.
        unknown: whether the strategies are not all known.
    """
    instance = (code.job.instance_type or "") if code.job is not None else ""
    evaluates = given.get("eval_strategy", given.get("evaluation_strategy", "no"))
    saved = given.get("save_strategy", "steps")
    if given.get("fp16") is True and given.get("bf16") is True:
        return "fp16 and bf16 together"
    best = given.get("load_best_model_at_end") is True and not unknown
    if best and evaluates != saved and ("save_strategy" in given or given.get("eval_steps") is None):
        return f"load_best_model_at_end with eval_strategy={evaluates!r} and save_strategy={saved!r}"
    if given.get("bf16") is True and instance.startswith(_NO_BF16):
        return f"bf16=True, but the GPUs of {instance} have no bfloat16"
    if given.get("fp16") is True and code.launch.gpus == 0:
        return f"fp16=True, but {instance} has no GPU"
    return ""


def _generates(code: ScriptFacts, arguments: Event) -> Iterator[Finding]:
    """Report metrics that decode texts, where the trainer gives them logits."""
    given = arguments.keywords.get("predict_with_generate")
    off = given is None or (given.single() is False and "flag" not in given.tags)
    if not off or arguments.opened or not arguments.last.startswith("Seq2Seq"):
        return
    for event in code.ran("Seq2SeqTrainer", live=True):
        metrics = event.arg("compute_metrics")
        node = metrics.code.node if metrics is not None and metrics.code is not None else None
        decodes = node is not None and "decode(" in ast.unparse(node) and "argmax" not in ast.unparse(node)
        own = event.arg("args", 1) is arguments.result and "preprocess_logits_for_metrics" not in event.keywords
        if own and decodes:
            what = "compute_metrics decodes texts, but predict_with_generate is not set: it gets logits"
            yield at(ARGUMENTS, event, what)
            return


def _misspelled(event: Event) -> Iterator[Finding]:
    """Report a keyword of TrainingArguments that no version has, if it is nearly one."""
    if event.last not in training_names.CLASSES or not event.name.startswith("transformers"):
        return
    parsed = "parse" in ast.unparse(event.node.func)  # arguments that a class of the script may add
    for name in event.keywords if not (event.opened or parsed) else ():
        similar = nearest(name, training_names.FIELDS, 1) if name not in training_names.FIELDS else []
        if similar and "flag" not in event.keywords[name].tags:
            yield at(ARGUMENTS, event, f"{event.last} has no argument {name}; did you mean {similar[0]}?")
            return


def _backward_again(code: ScriptFacts) -> Iterator[Finding]:
    """Report ``compute_loss`` of a Trainer that calls backward, which the Trainer does with its result."""
    for event in code.ran("backward"):
        inner = event.stack[-1] if event.stack else None
        owner = inner.owner if inner is not None and inner.name == "compute_loss" else None
        if owner is not None and any(origin.endswith("Trainer") for origin in owner.origins()):
            yield at(PLAIN_BACKWARD, event, f"`{event.text}` in compute_loss: the Trainer calls backward itself")
            return


def _without_data(code: ScriptFacts, arguments: Event, evaluates: object) -> Iterator[Finding]:
    """Report a trainer that is to evaluate, but gets no data set for it."""
    if evaluates not in ("steps", "epoch"):
        return
    for event in code.ran("Trainer", "Seq2SeqTrainer", "SFTTrainer", live=True):
        given = event.arg("args", 1)
        if given is arguments.result and event.arg("eval_dataset", 4) is None and not event.opened:
            yield at(ARGUMENTS, event, f"evaluation at each {evaluates.rstrip('s')}, but no eval_dataset")


def _lightning(code: ScriptFacts) -> Iterator[Finding]:
    job = code.job
    if job is None or code.imports("pytorch_lightning", "lightning") is None:
        return
    for event in code.ran("Trainer", live=True):
        if "lightning" not in event.name or code.horovod or event.opened:
            continue
        nodes, devices = event.arg("num_nodes"), event.arg("devices") or event.arg("gpus")
        number = 1 if nodes is None else nodes.single()
        if job.hosts > 1 and isinstance(number, int) and number != job.hosts and not (nodes and "flag" in nodes.tags):
            yield at(FEWER_NODES, event, f"num_nodes is {number}, but the job has {job.hosts} hosts")
        elif devices is not None and isinstance(devices.single(), int) and "flag" not in devices.tags:
            per_host = code.launch.per_host
            if code.launch.launched and per_host and devices.single() not in (per_host, -1):
                what = f"devices={devices.single()}, but the launcher starts {per_host} processes per host"
                yield at(FEWER_NODES, event, what)
