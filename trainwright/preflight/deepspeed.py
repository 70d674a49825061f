"""DeepSpeed: what its engine does by itself, and what ZeRO stage 3 requires of a script."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.huggingface import PLAIN_BACKWARD
from trainwright.preflight.loop import counts_batches, each_nth
from trainwright.script.configurations import of_file, stage_of
from trainwright.script.events import Event, Guard
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, meant, qualified
from trainwright.script.values import Value

SCHEDULED_TWICE = Rule(
    code="TW564",
    severity="error",
    title="the loop steps a schedule that DeepSpeed's engine steps as well",
    source="DeepSpeed, runtime/engine.py, _take_model_step: engine.step() calls lr_scheduler.step(); "
    "deepspeedai/DeepSpeed #913, lucidrains/DALLE-pytorch #278",
    remedy="Leave the loop's step out, or do not give the schedule to deepspeed.initialize.",
)
DROPPED = Rule(
    code="TW565",
    severity="error",
    title="weights that were gathered under ZeRO-3 are changed, and the change is discarded",
    source="DeepSpeed's documentation of ZeRO-3, GatheredParameters: with modifier_rank=None changes are discarded "
    "upon exit; deepspeedai/DeepSpeed #1046, huggingface/transformers #27464",
    remedy="with deepspeed.zero.GatheredParameters(weights, modifier_rank=0): …",
)
WHOLE_INPUTS = Rule(
    code="TW577",
    severity="error",
    title="DeepSpeed converts the model to half precision, but its inputs are float32",
    source="DeepSpeed, runtime/engine.py, forward: it converts the inputs only with fp16.auto_cast; "
    "deepspeedai/DeepSpeed #1144, #904: input type FloatTensor and weight type HalfTensor should be the same",
    remedy='engine(images.half()), for bf16 images.bfloat16(); or "fp16": {"enabled": true, "auto_cast": true}.',
)
RULES = (SCHEDULED_TWICE, DROPPED, WHOLE_INPUTS)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.imports("deepspeed") is None:
        return
    yield from _dropped(code)
    if code.imports("deepspeed", certain=True) is not None:
        yield from _stepped(code)
        yield from _whole_inputs(code)


def _stepped(code: ScriptFacts) -> Iterator[Finding]:
    """Report what bypasses the engine."""
    made = [e for e in code.ran("initialize", live=True) if e.name == "deepspeed.initialize"]
    if not made or (code.imports("transformers") is not None and not code.backwards):
        return
    both = any(e.args and e.receiver is not None for e in code.ran("backward"))
    for event in code.ran("backward", live=True):
        if both:
            break  # with and without DeepSpeed
        if event.receiver is not None and not event.args and "model" not in event.receiver.tags and event.loops:
            yield at(PLAIN_BACKWARD, event, f"`{event.text}` instead of engine.backward(loss)")
            return
    steps = code.ran("step", live=True)
    engines = [e for e in steps if e.receiver is not None and {"model", "deepspeed"} <= e.receiver.tags]
    yield from _stepped_twice(steps, engines)
    yield from _scheduled_twice(code, engines)
    yield from _counted_twice(code)
    for event in code.ran("step", live=True):
        receiver = event.receiver
        alone = not event.guards or not any(
            e.receiver is not None and "deepspeed" in e.receiver.tags for e in code.ran("step")
        )
        if (
            receiver is not None
            and "optimizer" in receiver.tags
            and not receiver.tags & {"deepspeed", "accelerate"}
            and event.loops
            and alone
        ):
            yield at(PLAIN_BACKWARD, event, f"`{event.text}` instead of engine.step()")
            return


def _counted_twice(code: ScriptFacts) -> Iterator[Finding]:
    """Report an engine that is stepped only after each n-th batch, although it counts the batches itself."""
    backwards = [
        e for e in code.ran("backward", live=True) if e.receiver is not None and "deepspeed" in e.receiver.tags
    ]
    if code.mentions("set_gradient_accumulation_boundary") or code.says("managed_gradient_accumulation"):
        return  # the script says where the last batch is
    if all(_counts_one(e) for e in code.ran("initialize", live=True) if e.name == "deepspeed.initialize"):
        return
    for event in code.ran("step", live=True):
        if event.receiver is None or not {"model", "deepspeed"} <= event.receiver.tags:
            continue
        every = each_nth(event) or _of_callers(code, event)
        if every and any(e.loops == event.loops and not set(every) & set(e.guards) for e in backwards):
            what = f"`{event.text}` only where `{ast.unparse(every[0].node)[:40]}`: the engine counts batches itself"
            yield at(PLAIN_BACKWARD, event, what)
            return


def _counts_one(start: Event) -> bool:
    """Return whether an engine is known not to accumulate batches, so that each of its steps is an optimizer step."""
    number = (configuration(start).attrs or {}).get("gradient_accumulation_steps")
    return number is not None and number.single() == 1


def _of_callers(code: ScriptFacts, step: Event) -> list[Guard]:
    """Return the conditions of a step that are arguments of its function: ``last=(i + 1) % n == 0`` in each call."""
    function = step.stack[-1] if step.stack else None
    if function is None:
        return []
    names = function.parameters
    calls = [e for e in code.events if e.called is not None and e.called.code is function and not e.detached]
    found = []
    for guard in (g for g in step.guards if g.side and isinstance(g.node, ast.Name)):
        name = guard.node.id if isinstance(guard.node, ast.Name) else ""
        place = names.index(name) if name in names else len(names)
        given = [_argument(each, name, place) for each in calls]
        if given and all(node is not None and counts_batches(node) for node in given):
            found.append(guard)
    return found


def _argument(call: Event, name: str, place: int) -> ast.expr | None:
    """Return what a call gives for an argument; None if that cannot be seen."""
    named = next((k.value for k in call.node.keywords if k.arg == name), None)
    listed = call.node.args[place] if place < len(call.node.args) else None
    given = named or listed
    return meant(call.module, given) if given is not None else None


# What converts inputs, or may: also a layer that asks for the type of its weights.
_CONVERTS = (
    *("half", "bfloat16", "float16", "HalfTensor", "BFloat16Tensor", "autocast", "dtype", "type_as"),
    *("from_pretrained", "torch_autocast", "set_default_dtype"),
)
# Data sets of torchvision with an image first.
_IMAGES = re.compile(
    r"^torchvision\.datasets\.(ImageFolder|DatasetFolder|FakeData|ImageNet|E?K?MNIST|FashionMNIST|"
    r"CIFAR10|CIFAR100|SVHN|STL10|Food101|Flowers102|OxfordIIITPet|Places365|Caltech101|Caltech256)$"
)
_MODELS = ("torchvision.models.", "torch.nn.", "timm.")


def _whole_inputs(code: ScriptFacts) -> Iterator[Finding]:
    """Report inputs as a loader has them, in float32, of an engine that only has weights in half precision."""
    for start in code.ran("initialize", live=True):
        kind = _half(code, start) if start.name == "deepspeed.initialize" else ""
        model = start.arg("model", 1)
        if not kind or model is None or not _of_layers(model) or code.mentions(*_CONVERTS) or code.ran("type"):
            continue
        for event in code.events:
            engine = event.model
            if engine is None or engine.of is not model or "deepspeed" not in engine.tags or event.detached:
                continue
            loader, given = code.loader_of(event.over), event.args[0] if event.args else None
            data = loader.arg("dataset", 0) if loader is not None else None
            if data is not None and given is not None and _as_loaded(code, given) and _of_floats(data):
                what = f"`{event.text}`: {kind} is enabled in the configuration, and the loader gives float32"
                yield at(WHOLE_INPUTS, event, what)
                return


def _as_loaded(code: ScriptFacts, given: Value) -> bool:
    """Return whether an input is as the loader gives it, but for its device."""
    maker = code.maker(given)
    return not given.made and (maker is None or maker.last in ("to", "cuda", "contiguous", "clone", "float", "next"))


def _half(code: ScriptFacts, start: Event) -> str:
    """Return which half precision a configuration enables, without a conversion of the inputs; or nothing."""
    settings = configuration(start).attrs or {}
    for kind in ("fp16", "bf16", "bfloat16"):
        given = (settings[kind].attrs or {}) if kind in settings else {}
        enabled, casts = given.get("enabled"), given.get("auto_cast")
        on = enabled is not None and enabled.single() is True and code.decided(enabled)
        if on and (casts is None or casts.single() is False) and "torch_autocast" not in settings:
            return kind
    return ""


def _of_layers(model: Value) -> bool:
    """Return whether a model is one of torchvision, or of the script's own layers, whose first one takes the input."""
    own = model.instance and model.code is not None and "torch.nn.Module" in model.code.origins()
    return own or (bool(model.made) and all(made.startswith(_MODELS) for made in model.made))


def _of_floats(data: Value) -> bool:
    """Return whether the first part of a data set's sample is a tensor in float32."""
    if data.made and all(_IMAGES.match(made) for made in data.made):
        return True
    getter = data.code.method("__getitem__") if data.instance and data.code is not None else None
    returns = [n.value for n in ast.walk(getter.node) if isinstance(n, ast.Return)] if getter is not None else []
    firsts = [v.elts[0] if isinstance(v, ast.Tuple) and v.elts else v for v in returns if v is not None]
    return bool(firsts) and all(re.search(r"\.float\(\)", ast.unparse(each)) is not None for each in firsts)


def _stepped_twice(steps: list[Event], engines: list[Event]) -> Iterator[Finding]:
    """Report a step of the optimizer that the engine steps."""
    for event in steps:
        twice = [e for e in engines if e.loops == event.loops and e.loops and not e.excludes(event)]
        if event.receiver is not None and {"optimizer", "deepspeed"} <= event.receiver.tags and twice:
            what = f"`{event.text}`: the engine in line {twice[0].line} steps it already"
            yield at(PLAIN_BACKWARD, event, what, severity="warning")
            return


def _scheduled_twice(code: ScriptFacts, engines: list[Event]) -> Iterator[Finding]:
    """Report steps of a schedule that the engine was given, or has made from its configuration."""
    made = [e for e in code.ran("initialize", live=True) if e.name == "deepspeed.initialize"]
    given = [value for e in made if (value := e.arg("lr_scheduler", 5)) is not None and value.single() is not None]
    theirs = bool(given) or any("scheduler" in (configuration(e).attrs or {}) for e in made)
    for event in code.ran("step", live=True):
        twice = [e for e in engines if e.loops == event.loops and e.loops and not e.excludes(event)]
        base = event.receiver
        if not twice or base is None or event.under("flag") not in (None, *twice[0].guards):
            continue
        if (theirs and base.made_by("deepspeed.Scheduler")) or any(base is value for value in given):
            what = f"`{event.text}`: `{twice[0].text}` in line {twice[0].line} does it already"
            yield at(SCHEDULED_TWICE, event, what)
            return


def configuration(start: Event) -> Value:
    """Return the configuration that ``deepspeed.initialize`` gets, or the file beside the script that has it."""
    options = start.arg("args", 0)
    given = start.arg("config", 10) or start.arg("config_params")
    if given is None and options is not None and options.attrs is not None:
        given = options.attrs.get("deepspeed_config")
    return of_file(start.module, given)


# Methods that change a tensor, or a module's parameters.
_CHANGES = frozenset(
    [
        *("copy_", "fill_", "zero_", "normal_", "uniform_", "trunc_normal_", "add_", "sub_", "mul_", "div_", "lerp_"),
        *("addcmul_", "clamp_", "masked_fill_", "index_copy_", "load_state_dict", "reset_parameters"),
    ]
)


def _dropped(code: ScriptFacts) -> Iterator[Finding]:
    """Report a block that gathers weights and changes them, but names no process whose changes are kept."""
    stages = [stage_of(configuration(e)) for e in code.ran("initialize") if e.name == "deepspeed.initialize"]
    staged = bool(code.ran("Init")) or 3 in stages
    if stages and not staged and all(isinstance(stage, int) for stage in stages):
        return  # nothing is divided
    blocks = ((module, node) for module in code.modules for node in module.nodes if isinstance(node, ast.With))
    for module, block in blocks:
        for call in (item.context_expr for item in block.items):
            if not isinstance(call, ast.Call) or not qualified(module, call.func).endswith("GatheredParameters"):
                continue
            change = _change(module, block, _gathered(module, call))
            if not _modified(call) and change is not None:
                what = f"`{ast.unparse(change)[:60]}` in the block of `{ast.unparse(call)[:60]}`"
                yield at(DROPPED, (module, change), what, severity=None if staged else "warning")
                return


def _modified(call: ast.Call) -> bool:
    """Return whether the call names a process whose changes are kept, or might."""
    given = [k.value for k in call.keywords if k.arg in ("modifier_rank", None)] or call.args[1:2]
    return any(not (isinstance(value, ast.Constant) and value.value is None) for value in given)


def _gathered(module: Module, call: ast.Call) -> list[str]:
    """Return how the script writes what is gathered: ``model`` of ``list(model.parameters())``."""
    given = next((k.value for k in call.keywords if k.arg == "params"), call.args[0] if call.args else None)
    if given is None:
        return []
    parts = []
    for written in (given, meant(module, given)):
        whole = written
        while isinstance(whole, ast.Call) and ast.unparse(whole.func) in ("list", "tuple") and whole.args:
            whole = whole.args[0]
        parts += whole.elts if isinstance(whole, ast.List | ast.Tuple) else [whole]
    return [re.sub(r"\.parameters\(\)$", "", ast.unparse(part)) for part in parts]


def _change(module: Module, block: ast.With, gathered: list[str]) -> ast.AST | None:
    """Return where a block changes what was gathered; None if it only reads it."""
    for node in (inner for statement in block.body for inner in ast.walk(statement)):
        target: ast.AST | None = None
        if isinstance(node, ast.Assign | ast.AugAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            plain = isinstance(target, ast.Name) or (isinstance(target, ast.Attribute) and target.attr != "data")
            target = None if plain and isinstance(node, ast.Assign) else target
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _CHANGES and not qualified(module, node.func).startswith("torch.nn.init."):
                target = node.func.value
            elif qualified(module, node.func).startswith("torch.nn.init.") and node.args:
                target = node.args[0]
        text = ast.unparse(target) if target is not None else ""
        if any(text == each or text.startswith((f"{each}.", f"{each}[")) for each in gathered):
            return node
    return None
