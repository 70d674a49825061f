"""The training loop: gradients are computed, used and cleared once per step, and nothing keeps the graph alive."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event, Guard
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import Function, ancestors, at, enclosing_function, meant
from trainwright.script.values import Value

DOCS = "PyTorch's documentation of torch.optim"
NO_ZERO = Rule(
    code="TW137",
    severity="warning",
    title="gradients are never set to zero, so each step adds to those of all steps before",
    source=f"{DOCS}: backward accumulates; call zero_grad between the steps",
    remedy="optimizer.zero_grad() before backward, or after step.",
)
ZERO_EARLY = Rule(
    code="TW138",
    severity="error",
    title="gradients are set to zero between backward and the optimizer's step",
    source=f"{DOCS}: the step would find no gradients; huggingface/accelerate #1299: within accumulate, a prepared "
    "optimizer's zero_grad acts for the last batch, as step does",
    remedy="optimizer.zero_grad() before backward, or after step (within accelerator.accumulate only after step).",
)
HALF = Rule(
    code="TW139",
    severity="error",
    title="a GradScaler with a model in half precision",
    source="PyTorch's documentation of automatic mixed precision: do not call half(); unscale_ raises "
    '"Attempting to unscale FP16 gradients"',
    remedy="Leave the model in float32; autocast chooses the type of each operation.",
)
GRAPH_KEPT = Rule(
    code="TW149",
    severity="warning",
    title="losses are summed with their graphs, so memory grows with every step",
    source="PyTorch's FAQ, my model reports out of memory: do not accumulate history across the training loop",
    remedy="total += loss.detach()",
)
STALE = Rule(
    code="TW147",
    severity="error",
    title="the optimizer is created with parameters that the model no longer has",
    source="PyTorch's documentation of FullyShardedDataParallel: create the optimizer after wrapping, as it "
    "replaces parameters; torch_xla's API guide: move the model to the XLA device first; huggingface/transformers "
    "#3519: layers that are new since",
    remedy="Create the optimizer from the model after it was wrapped or moved, and its layers replaced.",
)
TWICE = Rule(
    code="TW447",
    severity="error",
    title="backward runs twice through the same graph",
    source='PyTorch, torch/csrc/autograd: "Trying to backward through the graph a second time"; the first one frees '
    "its buffers, unless it has retain_graph=True",
    remedy="Call backward once for each loss, or add the losses and call it once; a loss that is not for the model "
    "that made its input takes input.detach().",
)
RULES = (STALE, NO_ZERO, ZERO_EARLY, HALF, GRAPH_KEPT, TWICE)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    yield from _halved(code)
    backwards = {call.node for call in code.backwards}
    steps = [e for e in code.ran("backward") if e.node in backwards]
    if not steps:
        return
    yield from _zero(code, steps)
    yield from _sums(code)
    for module in code.modules:
        for node in module.nodes:
            if isinstance(block := getattr(node, "body", None), list):
                yield from _twice(module, block)


def _twice(module: Module, block: list[ast.stmt]) -> Iterator[Finding]:
    """Report a second ``loss.backward()`` among the statements of a block, with nothing between that sets the loss."""
    done: dict[str, int] = {}
    for statement in block:
        call = statement.value if isinstance(statement, ast.Expr) else None
        func = call.func if isinstance(call, ast.Call) else None
        if isinstance(call, ast.Call) and isinstance(func, ast.Attribute) and func.attr == "backward":
            loss = func.value
            if isinstance(loss, ast.Name) and not call.args and not call.keywords:
                if loss.id in done:
                    what = f"`{ast.unparse(call)}` again, after line {done[loss.id]}"
                    yield at(TWICE, (module, call), what)
                done[loss.id] = call.lineno
                continue
        for each in ast.walk(statement) if done else ():
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                done.pop(each.id, None)


def _halved(code: ScriptFacts) -> Iterator[Finding]:
    scaler = [e for e in code.ran("step") if e.receiver is not None and "scaler" in e.receiver.tags]
    scaler = [e for e in scaler if not any(_scales_itself(v) for v in e.args)]
    halved = [e for e in code.ran("half", "to", live=True) if _of_model(e) and (e.last == "half" or _to_half(e))]
    enabled = [e.arg("enabled") for e in code.ran("GradScaler")]
    off = bool(enabled) and all(value is not None and value.single() is False for value in enabled)
    arguments = [e.arg("fp16") for e in code.events if e.last.endswith(("TrainingArguments", "SFTConfig"))]
    mixed = any(value is not None and value.single() is True and "flag" not in value.tags for value in arguments)
    accelerated = [e.arg("mixed_precision") for e in code.ran("Accelerator") if e.name.startswith("accelerate.")]
    mixed = mixed or any(value is not None and value.single() == "fp16" for value in accelerated)
    if not mixed and (off or not scaler):
        return
    what = "fp16=True" if mixed else "scaler.step"
    if halved and any(_back_in_part(e, halved[0]) for e in code.ran("float", live=True)):
        return
    if halved and not halved[0].under("flag"):
        yield at(HALF, halved[0], f"`{ast.unparse(halved[0].node)[:50]}` and {what}")
    else:
        yield from _loaded_in_half(code, what)


def _back_in_part(event: Event, halved: Event) -> bool:
    """Return whether a part of the model, the one that is trained, is float32 again: ``model.head.float()``."""
    parts = [ast.unparse(e.node.func.value) for e in (event, halved) if isinstance(e.node.func, ast.Attribute)]
    return event.order > halved.order and len(parts) == 2 and parts[0].startswith(f"{parts[1]}.")


def _scales_itself(optimizer: Value) -> bool:
    """Return whether an optimizer may unscale gradients itself (``_step_supports_amp_scaling`` of GradScaler)."""
    libraries = ("torch.", "apex.", "transformers.", "bitsandbytes.")
    return any(not made.startswith(libraries) for made in optimizer.made)


def _of_model(event: Event) -> bool:
    """Return whether a method belongs to the trained model, not to a copy such as averaged weights."""
    tags = event.receiver.tags if event.receiver is not None else frozenset[str]()
    return "model" in tags and not tags & {"copy", "out"}


def _to_half(event: Event) -> bool:
    """Return whether something is converted to half precision: ``model.to(torch.float16)``."""
    given = [*event.node.args, *(keyword.value for keyword in event.node.keywords)]
    return any(ast.unparse(each) in ("torch.float16", "torch.half") for each in given)


# Adapters are kept in float32; DeepSpeed and FSDP scale gradients of half precision themselves.
_OTHER_SCALING = re.compile(r"peft|lora|deepspeed|fsdp|fully_shard|adapter|quantization|load_in_|requires_grad", re.I)


def _loaded_in_half(code: ScriptFacts, what: str) -> Iterator[Finding]:
    """Report weights that are loaded in half precision and trained with a scaler, all of them."""
    options = [*code.arguments_of_script, *code.launch.hyperparameters, *code.launch.environment]
    if code.mentions_like(_OTHER_SCALING.pattern) or any(_OTHER_SCALING.search(option) for option in options):
        return
    trained = [e.receiver for e in code.ran("parameters", "named_parameters", live=True)]
    trained += [e.arg("model", 0) for e in code.ran("Trainer", "Seq2SeqTrainer", "SFTTrainer", live=True)]
    cast = [
        e.receiver
        for e in code.ran("float", "to", live=True)
        if e.last == "float" or any(value.name == "torch.float32" for value in (*e.args, *e.keywords.values()))
    ]
    for event in code.ran("from_pretrained", live=True):
        key = next((key for key in ("torch_dtype", "dtype") if key in event.keywords), "")
        if not key or not any(value is event.result for value in trained) or event.guards:
            continue
        if _is_half(event, key) and not any(value is event.result for value in cast):
            yield at(HALF, event, f"`{event.last}(…, {key}=float16)` and {what}")
            return


def _is_half(event: Event, key: str) -> bool:
    value = event.keywords[key]
    node = next((keyword.value for keyword in event.node.keywords if keyword.arg == key), None)
    if isinstance(node, ast.Name):
        given = [
            each.value
            for each in event.module.nodes
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == node.id
        ]
        node = given[0] if len(given) == 1 else None  # else it depends on something
    if isinstance(node, ast.Constant):
        return value.single() in ("float16", "half")
    return isinstance(node, ast.Attribute) and value.name in ("torch.float16", "torch.half")


def _zero(code: ScriptFacts, steps: list[Event]) -> Iterator[Finding]:
    optimizers = [e for e in code.ran("step", "optimizer_step") if _optimizer(e) and e.loops and not e.detached]
    looped = [e for e in steps if e.loops and not e.detached]
    zeroes = code.mentions(
        "zero_grad", "clear_grad", "zero_grad_", "clear_gradients", "dist_autograd", "rpc"
    ) or _cleared(code)
    by_library = code.managed or code.imports("deepspeed", "accelerate", "fairscale") is not None
    if optimizers and looped and not zeroes and not by_library and _defined(code):
        yield at(NO_ZERO, looped[0], "no zero_grad in what was read")
    yield from _dropped(code, looped, optimizers)
    for zero in code.ran("zero_grad"):
        before = [e for e in looped if e.order < zero.order and _together(e, zero)]
        after = [e for e in optimizers if e.order > zero.order and _together(e, zero)]
        between = [e for e in optimizers if before and before[-1].order < e.order < zero.order]
        again = [e for e in looped if after and zero.order < e.order < after[0].order]
        early = [e for e in looped if after and e.order > after[0].order and _together(e, zero)]
        begun = [e for e in looped if after and e.order < after[0].order]
        if after and early and not begun and of_same(zero, after[0]):
            what = f"step in line {after[0].line} comes before backward in line {early[0].line}, so it has no gradients"
            yield at(ZERO_EARLY, zero, what)
            return
        outside = [e for e in optimizers if _around(e, zero) and e.order > zero.order]
        if begun_here := [e for e in looped if _together(e, zero) and outside and not after]:
            what = f"each backward in line {begun_here[0].line}, and step in line {outside[0].line} only after the loop"
            yield at(ZERO_EARLY, zero, what)
            return
        if before and after and not between and not again:
            yield at(
                ZERO_EARLY,
                zero,
                f"backward in line {before[-1].line}, step in line {after[0].line}",
            )
            return


def _dropped(code: ScriptFacts, backwards: list[Event], steps: list[Event]) -> Iterator[Finding]:
    """Report gradients that are cleared for every batch, where only the step of each n-th one uses them."""
    if code.managed or code.horovod or code.imports("deepspeed", "accelerate") is not None:
        return
    counted = [each_nth(step) for step in steps]
    if not counted or any(not guards for guards in counted) or len({ast.unparse(s.node.func) for s in steps}) > 1:
        return  # some step is for every batch, or of another optimizer
    step, nth = steps[0], {guard.node for guards in counted for guard in guards}
    for zero in code.ran("zero_grad", live=True):
        added = [e for e in backwards if e.loops == zero.loops and not nth & {guard.node for guard in e.guards}]
        apart = {g.node for g in zero.guards} - {g.node for g in step.guards}
        if zero.loops == step.loops and added and not (apart or nth & {guard.node for guard in zero.guards}):
            what = f"the gradients of every batch, but step in line {step.line} runs after some of them"
            yield at(ZERO_EARLY, zero, f"`{ast.unparse(zero.node)[:50]}` clears {what}")
            return


def each_nth(step: Event) -> list[Guard]:
    """Return the conditions by which a step runs after each n-th batch alone: ``(i + 1) % n == 0``."""
    return [guard for guard in step.guards if counts_batches(meant(step.module, guard.node))]


def counts_batches(node: ast.expr) -> bool:
    """Return whether a condition is true at each n-th step: ``(i + 1) % n == 0``."""
    test = node.values[0] if isinstance(node, ast.BoolOp) else node
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.BinOp) and isinstance(test.left.op, ast.Mod)


def _around(outer: Event, inner: Event) -> bool:
    """Return whether a call is in the loop around the one of another call, in the same function."""
    return bool(inner.loops) and outer.loops == inner.loops[:-1] and outer.stack == inner.stack


def of_same(first: Event, second: Event) -> bool:
    """Return whether two calls are methods of the same object, as far as the text says."""
    owners = [_owner(event) for event in (first, second)]
    return owners[0] != "" and owners[0] == owners[1]


def _owner(event: Event) -> str:
    """Return the object of a method as text; of ``scaler.step(optimizer)``, the optimizer."""
    scaled = event.receiver is not None and "scaler" in event.receiver.tags
    func, given = event.node.func, event.node.args[:1]
    if scaled and given:
        return ast.unparse(given[0])
    return ast.unparse(func.value) if isinstance(func, ast.Attribute) else ""


def _defined(code: ScriptFacts) -> bool:
    """Return whether the script itself makes its optimizer: a piece of a larger program may do the rest elsewhere."""
    return any("optimizer" in e.result.tags and e.result.made for e in code.events)


def _cleared(code: ScriptFacts) -> bool:
    text = (ast.unparse(t) for m in code.modules for n in m.nodes if isinstance(n, ast.Assign) for t in n.targets)
    return any(name.endswith(".grad") for name in text)


def _optimizer(event: Event) -> bool:
    receiver = event.receiver
    if event.name.endswith("xla_model.optimizer_step"):
        return True
    return receiver is not None and bool(receiver.tags & {"optimizer", "scaler"}) and "lr_scheduler" not in event.name


def _together(first: Event, second: Event) -> bool:
    """Return whether two calls are in the same loop of the same function, on the same side of the same conditions."""
    sides = {g.node: g.side for g in first.guards}
    if any(sides.get(g.node, g.side) is not g.side for g in second.guards):
        return False
    return (
        first.loops[-1:] == second.loops[-1:]
        and first.stack == second.stack
        and len(first.guards) == len(second.guards)
    )


def _sums(code: ScriptFacts) -> Iterator[Finding]:
    """Report ``total += loss`` where ``loss`` is what ``backward`` was called on."""
    for step in code.steps:
        nodes = set(ast.walk(step.node))
        calls = [c for c in code.backwards if c.node in nodes]
        receivers = [c.node.func for c in calls]
        names = {n.id for each in receivers for n in ast.walk(each) if isinstance(n, ast.Name)}
        function = enclosing_function(step.module, calls[0].node) if calls else None
        for node in nodes:
            if isinstance(node, ast.Call) and _appends(node, names) and not _reset(step.module, node, _list(node)):
                if not _used_whole(function or step.node, _list(node)):
                    yield at(GRAPH_KEPT, (step.module, node), f"`{ast.unparse(node)[:50]}`")
                continue
            if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
                continue
            text = ast.unparse(node.value)
            target = ast.unparse(node.target)
            if isinstance(node.value, ast.Call) and _returns_loss(code, node.value):
                names = names | {text}
            if text in names and target not in names and not _reset(step.module, node, target):
                if _summed_back(function or step.node, target):
                    continue
                yield at(GRAPH_KEPT, (step.module, node), f"`{ast.unparse(node)[:50]}`")


def _appends(node: ast.Call, names: set[str]) -> bool:
    """Return whether a call appends one of the losses to a list."""
    method = isinstance(node.func, ast.Attribute) and node.func.attr == "append" and len(node.args) == 1
    return method and ast.unparse(node.args[0]) in names


def _list(node: ast.Call) -> str:
    return ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""


def _used_whole(region: ast.AST, name: str) -> bool:
    """Return whether a list of losses is emptied, cut, or made one loss in the same function."""
    for node in ast.walk(region):
        empties = isinstance(node, ast.Attribute) and node.attr in ("clear", "pop", "popleft")
        if (empties or isinstance(node, ast.Delete)) and name in ast.unparse(node):
            return True
        text = ast.unparse(node) if isinstance(node, ast.Call) else ""
        if name in text and ("backward" in text or re.match(r"(torch\.)?(stack|sum|cat)\(", text)):
            return True
    return False


def _returns_loss(code: ScriptFacts, call: ast.Call) -> bool:
    """Return whether a function of the script returns the very loss that it calls backward on."""
    last = ast.unparse(call.func).rpartition(".")[2]
    functions = [n for m in code.modules for n in m.nodes if isinstance(n, Function) and n.name == last]
    if len(functions) != 1 or not isinstance(call.func, ast.Name | ast.Attribute):
        return False
    nodes = list(ast.walk(functions[0]))
    begun = {ast.unparse(c.node.func) for c in code.backwards if c.node in nodes}
    roots = {text.removesuffix(".backward").rpartition("(")[2].rstrip(")") for text in begun}
    returned = [n.value for n in nodes if isinstance(n, ast.Return)]
    return bool(returned) and all(isinstance(v, ast.Name) and v.id in roots for v in returned)


def _reset(module: Module, node: ast.AST, target: str) -> bool:
    """Return whether the innermost loop around a sum also starts it anew."""
    loop = next((outer for outer in ancestors(module, node) if isinstance(outer, ast.For | ast.While)), None)
    assigned = (n for n in ast.walk(loop) if isinstance(n, ast.Assign)) if loop is not None else ()
    return any(ast.unparse(t) == target for each in assigned for t in each.targets)


def _summed_back(region: ast.AST, target: str) -> bool:
    """Return whether backward is called on the sum, or the sum is of detached values."""
    calls = (n.func for n in ast.walk(region) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    return any(call.attr == "backward" and target in ast.unparse(call.value) for call in calls)
