"""PEFT: what adapters need to get gradients."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.versions import before
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value

NO_INPUT_GRADIENT = Rule(
    code="TW562",
    severity="error",
    title="adapters get no gradients: under reentrant checkpointing, the inputs have to require one",
    source="transformers before 5.0, modeling_utils.py, gradient_checkpointing_enable: use_reentrant is True, and "
    "gradients of the inputs are enabled for its own adapters only; huggingface/transformers #28335, #42489, "
    'huggingface/peft #137: "element 0 of tensors does not require grad"',
    remedy='model.enable_input_require_grads(), or gradient_checkpointing_kwargs={"use_reentrant": False}.',
)
NOT_TRAINABLE = Rule(
    code="TW563",
    severity="error",
    title="an adapter is loaded for inference, and then trained: no parameter requires a gradient",
    source="PEFT, peft_model.py, from_pretrained: is_trainable is False, which freezes the adapter; "
    "huggingface/peft #282, #1340",
    remedy="PeftModel.from_pretrained(model, path, is_trainable=True)",
)
LOST_HEAD = Rule(
    code="TW574",
    severity="warning",
    title="the new head of the model is neither trained nor saved with its adapters",
    source="PEFT's documentation, troubleshooting, randomly initialized layers: a head that is not in modules_to_save "
    "is not saved, and another random one takes its place when the adapter is loaded; PEFT finds it by task_type",
    remedy='LoraConfig(…, task_type="SEQ_CLS"), or modules_to_save=["classifier"] ("score" in decoders)',
)
RULES = (NO_INPUT_GRADIENT, NOT_TRAINABLE, LOST_HEAD)
# Models with a head that the checkpoint of a plain encoder or decoder lacks.
_HEADED = re.compile(
    r"^transformers\.(?:\w+\.)*\w+For(SequenceClassification|TokenClassification|ImageClassification|"
    r"AudioClassification|VideoClassification|MultipleChoice|SemanticSegmentation)\.from_pretrained$"
)
# What says that the head is made for the script's own labels.
_LABELS = ("num_labels", "id2label", "label2id", "ignore_mismatched_sizes")
# Tasks for which PEFT keeps the head.
_KEEPING = ("SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS")
_HEADS = re.compile(r"classif|score|head|all-linear|logits|\*", re.I)
_LOADED = re.compile(r"^peft\.(?:\w+\.)*(Auto)?PeftModel(For\w+)?\.from_pretrained$")
# Adapters of layers; those of prompts require a gradient of the inputs themselves.
_OF_LAYERS = ("LoraConfig", "AdaLoraConfig", "IA3Config", "LoHaConfig", "LoKrConfig", "VeraConfig", "OFTConfig")
_TRAINERS = ("Trainer", "Seq2SeqTrainer")
# What makes the inputs require a gradient, or may.
_ENABLES = (
    *("enable_input_require_grads", "prepare_model_for_kbit_training", "prepare_model_for_int8_training"),
    *("prepare_model_for_training", "register_forward_hook", "make_inputs_require_grad", "requires_grad_", "unsloth"),
)
# What frees parameters of an adapter that was loaded.
_FREES = ("set_adapter", "add_adapter", "load_adapter", "requires_grad_", "inference_mode", "set_requires_grad")
_EMBEDDING = "embed|wte|wpe"


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.imports("peft") is None or _freed(code):
        return
    yield from _inputs(code)
    yield from _loaded(code)
    yield from _heads(code)


def _freed(code: ScriptFacts) -> bool:
    """Return whether the script itself says which parameters require a gradient."""
    set_true = (
        isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]).endswith(".requires_grad")
        and not (isinstance(node.value, ast.Constant) and node.value.value is False)
        for module in code.modules
        for node in module.nodes
    )
    return any(set_true)


def _inputs(code: ScriptFacts) -> Iterator[Finding]:
    """Report adapters in a model that is checkpointed later; if it already is, PEFT enables gradients of the inputs."""
    if code.mentions(*_ENABLES) or code.says(_EMBEDDING):
        return
    old = before(code, "transformers", "5.0.0")
    for made in code.ran("get_peft_model", live=True) if old is not False else ():
        config = made.arg("peft_config", 1)
        enabled = [e for e in code.ran("gradient_checkpointing_enable") if e.order < made.order]
        if enabled or config is None or not config.made_by(*_OF_LAYERS) or not made.name.startswith("peft."):
            continue
        for event, model, options in _checkpointed(code):
            if model is None or not model.made_by("get_peft_model") or event.order < made.order:
                continue
            reentrant = (options.attrs or {}).get("use_reentrant") if options is not None else None
            if (options is None or options.attrs is not None) and (reentrant is None or reentrant.single() is True):
                sure = old is True and len(model.made) == 1 and event.off is None
                what = f"`{event.text}` checkpoints the layers of `{made.text}` in line {made.line}"
                yield at(NO_INPUT_GRADIENT, event, what, severity=None if sure else "warning")
                return


def _checkpointed(code: ScriptFacts) -> Iterator[tuple[Event, Value | None, Value | None]]:
    """Yield the calls that checkpoint a model, with the model and the options of the checkpoints."""
    for event in code.ran("gradient_checkpointing_enable", live=True):
        yield event, event.receiver, event.arg("gradient_checkpointing_kwargs", 0)
    for trainer in code.ran(*_TRAINERS, live=True):
        arguments = trainer.arg("args", 1)
        given = code.maker(arguments) if arguments is not None else None
        if given is None or given.opened or not trainer.name.startswith("transformers."):
            continue
        asked = given.keywords.get("gradient_checkpointing")
        if asked is not None and asked.single() is True and code.decided(asked):
            yield trainer, trainer.arg("model", 0), given.keywords.get("gradient_checkpointing_kwargs")


def _loaded(code: ScriptFacts) -> Iterator[Finding]:
    if code.mentions(*_FREES):
        return
    for event in code.ran("from_pretrained", live=True):
        if not _LOADED.match(event.name) or event.opened:
            continue
        trainable = event.arg("is_trainable", 2 if ".Auto" in event.name else 3)
        if trainable is not None and (trainable.single() is not False or not code.decided(trainable)):
            continue
        trained = _trained(code, event)
        if trained is not None:
            user, only = trained
            what = f"`{event.text}` without is_trainable=True, and `{user.text[:40]}` in line {user.line} trains it"
            yield at(NOT_TRAINABLE, event, what, severity=None if only else "warning")
            return


def _trained(code: ScriptFacts, loaded: Event) -> tuple[Event, bool] | None:
    """Return the trainer or optimizer that gets a model, and whether it can get no other one; or None."""
    for user in code.events:
        if user.detached or user.order < loaded.order:
            continue
        model = None
        if user.last.endswith("Trainer") and user.name.startswith(("transformers.", "trl.")):
            runs = [e for e in code.ran("train", live=True) if e.receiver is user.result and e.off is None]
            model = user.arg("model", 0) if runs and user.arg("peft_config") is None and not user.opened else None
        elif "optimizer" in user.result.tags and user.name.startswith("torch.") and code.backwards:
            model = user.result.of
        if model is not None and (model is loaded.result or loaded.name in model.made):
            return user, model.made <= {loaded.name}
    return None


def _heads(code: ScriptFacts) -> Iterator[Finding]:
    """Report adapters for a model with a new head, of which their configuration says nothing."""
    if code.mentions("merge_and_unload", "modules_to_save", *_FREES):
        return
    for made in code.ran("get_peft_model", live=True):
        base, config = made.arg("model", 0), made.arg("peft_config", 1)
        given = code.maker(config) if config is not None else None
        loaded = code.maker(base) if base is not None else None
        if given is None or loaded is None or given.opened or given.args or given.last not in _OF_LAYERS:
            continue
        if (
            not made.name.startswith("peft.")
            or not given.name.startswith("peft.")
            or len(base.made if base else ()) != 1
        ):
            continue
        if not _HEADED.match(loaded.name) or not any(loaded.arg(name) is not None for name in _LABELS):
            continue
        if _keeps_head(given) or _trained(code, made) is None:
            continue
        what = f"`{given.text[:40]}` in line {given.line} has no modules_to_save for the head of `{loaded.text[:50]}`"
        yield at(LOST_HEAD, made, what)
        return


def _keeps_head(config: Event) -> bool:
    """Return whether adapters come with the head, by the task or by the layers that they are for, or may."""
    task, layers = config.arg("task_type"), config.arg("target_modules")
    if task is not None and task.single() is not None:
        kind = task.single() if isinstance(task.single(), str) else task.name.rpartition(".")[2]
        if not kind or kind in _KEEPING:
            return True
    if layers is None or layers.single() is None:
        return False  # those that PEFT knows of the model
    names = [each.single() for each in layers.items] if layers.items is not None else [layers.single()]
    return any(not isinstance(name, str) or _HEADS.search(name) is not None for name in names)
