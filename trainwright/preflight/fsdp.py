"""How a model is sharded by FSDP: its policy, its frozen parameters, its first weights and its checkpoints."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.sharded import PARTIAL_OPTIMIZER
from trainwright.preflight.wrapping import ORDER, of_module
from trainwright.script.events import Event
from trainwright.script.known import DDP, FSDP
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value, within

DOCS = "PyTorch's documentation of FullyShardedDataParallel"
POLICY = Rule(
    code="TW483",
    severity="error",
    title="an argument of FSDP that it cannot use",
    source="torch/distributed/fsdp/wrap.py: transformer_auto_wrap_policy needs transformer_layer_cls, a set of "
    'classes, which functools.partial gives it; flat_param.py: "Must flatten tensors with uniform requires_grad when '
    'use_orig_params=False"',
    remedy="functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}); use_orig_params=True for "
    "a model that is frozen in part.",
)
FIRST_WEIGHTS = Rule(
    code="TW484",
    severity="error",
    title="the processes begin with shards of different models",
    source=f"{DOCS}, sync_module_states: only with it the first process's weights are sent to all; FSDP shards what "
    "each process has; torch_xla and fully_shard send none either",
    remedy="torch.manual_seed(seed), alike in all processes, or the same checkpoint in all of them, before the model "
    "is made; or sync_module_states=True.",
)
ONE_UNIT = Rule(
    code="TW509",
    severity="note",
    title="the whole model is one unit of FSDP, so all of its parameters are gathered at once",
    source="PyTorch's tutorial, getting started with FSDP: without auto_wrap_policy the model is one FSDP unit, and "
    "memory and communication are those of all layers at a time",
    remedy="auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})",
)
RULES = (POLICY, FIRST_WEIGHTS, ONE_UNIT)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several:
        return
    wraps = [e for e in code.wrapped_events if FSDP.search(e.name) and not e.detached and not _script(e)]
    whole = [e for e in wraps if e.last != "fully_shard"]
    yield from _policies(whole)
    yield from _one_unit(code, wraps)
    yield from _frozen(code, whole)
    yield from _begun(code, wraps)
    yield from _saved(code)
    for event in code.wrapped_events:
        model = event.args[0] if event.args else None
        if DDP.search(event.name) and model is not None and "fsdp" in model.tags and not event.detached:
            yield _at(ORDER, event, "around a model that FSDP shards")
            return


def _script(event: Event) -> bool:
    return event.name.startswith("script.")


def _at(rule: Rule, event: Event, message: str) -> Finding:
    return at(rule, event, f"`{ast.unparse(event.node)[:60]}` {message}")


def _policies(wraps: list[Event]) -> Iterator[Finding]:
    for event in wraps:
        policy = event.arg("auto_wrap_policy", 3)
        if policy is None or not policy.name.endswith(".transformer_auto_wrap_policy"):
            continue
        bound = (policy.attrs or {}).get("(bound)")
        if bound is None:
            yield _at(POLICY, event, "gets transformer_auto_wrap_policy without transformer_layer_cls")
            return
        layers = (bound.attrs or {}).get("transformer_layer_cls")
        if layers is not None and layers.items is None and (_is_class(layers)):
            yield _at(POLICY, event, "transformer_layer_cls is a class, not a set of classes")
            return


def _one_unit(code: ScriptFacts, wraps: list[Event]) -> Iterator[Finding]:
    """Report a model that is wrapped once, as a whole."""
    by_hand = code.smp or code.managed or any(code.called("enable_wrap", "wrap"))
    if len(wraps) != 1 or by_hand or code.mentions("NO_SHARD"):
        return
    event = wraps[0]
    policy = event.arg("auto_wrap_policy", 3)
    alone = event.last != "fully_shard" and not (event.loops or event.opened or any(map(of_module, event.stack)))
    if alone and (policy is None or policy.single() is None):
        yield _at(ONE_UNIT, event, "has no auto_wrap_policy")


def _is_class(value: Value) -> bool:
    """Return whether a value is one class, of the script or of a library."""
    own = value.code is not None and not value.instance and isinstance(value.code.node, ast.ClassDef)
    return own or (bool(value.name) and value.name.rpartition(".")[2][:1].isupper())


def _frozen(code: ScriptFacts, wraps: list[Event]) -> Iterator[Finding]:
    """Report a part of a model that is frozen before FSDP flattens it together with the rest."""
    if code.mentions("ignored_modules", "ignored_states", "NO_SHARD", "lambda_auto_wrap_policy", "LoraConfig"):
        return
    for wrap in wraps:
        original = wrap.arg("use_orig_params")
        model = wrap.args[0] if wrap.args else wrap.arg("module")
        if model is None or wrap.opened or (original is not None and not original.may_be(False)):
            continue
        for event in code.ran("parameters", "requires_grad_", live=True):
            base = event.receiver
            part = base is not None and base is not model and within(base, model)
            if part and event.order < wrap.order and _freezes(event):
                yield _at(POLICY, wrap, f"with use_orig_params=False, after line {event.line} has frozen a part")
                return


def _freezes(event: Event) -> bool:
    if event.last == "requires_grad_":
        given = event.arg("requires_grad", 0)
        return given is not None and given.single() is False
    parent = event.module.parents.get(event.node)
    texts = [ast.unparse(each) for each in parent.body] if isinstance(parent, ast.For) else []
    return any(text.endswith((".requires_grad = False", ".requires_grad_(False)")) for text in texts)


def _begun(code: ScriptFacts, wraps: list[Event]) -> Iterator[Finding]:
    """Report weights that each process draws with its own seed, or that only the first one loads."""
    synced = any(e.arg("sync_module_states", 9) is not None for e in wraps) or code.mentions(
        "set_model_state_dict", "broadcast_from_rank0", "load_state_dict", "broadcast", "distribute_tensor"
    )
    unshared = wraps and not synced
    xla = code.torch_xla and code.xla_distributed and code.backwards and not code.mentions("broadcast_master_param")
    if not unshared and not (
        xla and not code.mentions("load_state_dict", "from_pretrained", "DistributedDataParallel")
    ):
        return
    for event in code.ran("manual_seed", "set_seed", "seed_everything", live=True):
        seed = event.args[0] if event.args else None
        own = (
            seed is not None
            and seed.tags & {"rank", "local_rank"}
            and event.name.startswith(("torch.manual", "transf"))
        )
        later = [e for e in code.ran("manual_seed", "set_seed", live=True) if e.order > event.order]
        made = [e for e in code.events if e.order > event.order and "model" in e.result.tags and e.result.made]
        loaded = code.mentions("from_pretrained")
        if own and made and not later and not loaded and event.by_rank is None:
            yield _at(
                FIRST_WEIGHTS, event, f"before the model in line {made[0].line}: each process draws its own weights"
            )
            return
    for wrap in wraps if unshared else ():
        model = wrap.args[0] if wrap.args else wrap.arg("module")
        makers = [e for e in code.events if e.order < wrap.order and e.under("one") and _makes(e, model)]
        if makers and not wrap.opened:
            what = f"without sync_module_states=True: only the first process has the weights of line {makers[0].line}"
            yield _at(FIRST_WEIGHTS, wrap, what)
            return


def _makes(event: Event, model: Value | None) -> bool:
    loads = event.last in ("from_pretrained", "load_model") and "model" in event.result.tags
    return loads and model is not None and event.result.made <= model.made


def _saved(code: ScriptFacts) -> Iterator[Finding]:
    """Report shards that are saved as if they were the whole model, or each in a checkpoint of its own."""
    for save in code.ran("save", "async_save", live=True):
        if save.name.startswith("torch.distributed.checkpoint"):
            path = save.arg("checkpoint_id", 1)
            if path is not None and path.tags & {"rank", "local_rank"}:
                yield _at(
                    PARTIAL_OPTIMIZER, save, "writes a checkpoint for each process, and each lacks the others' shards"
                )
                return
        if save.name != "torch.save" or not save.args or not save.under("one"):
            continue
        for event in code.ran("state_dict", "get_model_state_dict", live=True):
            if event.result is not save.args[0] and not any(
                event.result is each for each in (save.args[0].attrs or {}).values()
            ):
                continue
            kinds = " ".join(_kinds(code, event))
            options = event.arg("options")
            by_options = event.last == "get_model_state_dict" and event.name.startswith("torch.distributed.")
            partial = by_options and (options is None or _not_full(options))
            if partial or "SHARDED_STATE_DICT" in kinds or "LOCAL_STATE_DICT" in kinds:
                yield _at(PARTIAL_OPTIMIZER, save, f"has the shards of one process, from line {event.line}")
                return


def _not_full(options: Value) -> bool:
    full = (options.attrs or {}).get("full_state_dict")
    return options.made_by("StateDictOptions") and options.attrs is not None and full is None


def _kinds(code: ScriptFacts, event: Event) -> Iterator[str]:
    """Yield the kinds of state that the ``with`` blocks around a call ask for."""
    for each in code.ran("state_dict_type", "set_state_dict_type", live=True):
        if each.order < event.order and (each.last == "set_state_dict_type" or each.name in event.contexts):
            last = [e for e in code.ran(each.last, live=True) if e.order < event.order][-1]
            if each is last:
                kind = each.arg("state_dict_type", 1)
                yield kind.name if kind is not None else ""
