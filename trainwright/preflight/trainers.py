"""Trainer and Accelerate: what a script's own classes and calls give them, and which optimizer has which model."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.collectives import DEADLOCK, condition
from trainwright.preflight.huggingface import NOT_PREPARED
from trainwright.preflight.lockstep import LEFT, OWN_CLOCK
from trainwright.preflight.loop import STALE
from trainwright.preflight.requirements import FILE, asked_for
from trainwright.preflight.resuming import GOES_ON
from trainwright.preflight.versions import admits
from trainwright.script.events import Event
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import Function, ancestors, at, qualified
from trainwright.script.values import WRAPPERS, Value, within

NO_OUTPUTS = Rule(
    code="TW489",
    severity="error",
    title="compute_loss of a Trainer returns the loss alone where the outputs are asked for, too",
    source="transformers, trainer.py, prediction_step: loss, outputs = self.compute_loss(model, inputs, "
    "return_outputs=True)",
    remedy="return (loss, outputs) if return_outputs else loss",
)
DIVIDED_TWICE = Rule(
    code="TW490",
    severity="warning",
    title="the loss is divided by the number of accumulated batches, which Accelerate does as well",
    source="Accelerate's guide, performing gradient accumulation: accelerator.backward divides the loss by "
    "gradient_accumulation_steps",
    remedy="accelerator.backward(loss), with the loss as it is.",
)
OLD_LOSS = Rule(
    code="TW525",
    severity="error",
    title="compute_loss does not accept num_items_in_batch, which the Trainer passes (a note if the version of "
    "transformers is unknown)",
    source="transformers, trainer.py, training_step: since 4.46.0 compute_loss(model, inputs, num_items_in_batch=…)",
    remedy="def compute_loss(self, model, inputs, return_outputs=False, **kwargs):",
)
ONE_BATCH = Rule(
    code="TW527",
    severity="error",
    title="accelerator.accumulate without gradient_accumulation_steps: every batch is a step",
    source="Accelerate's guide, performing gradient accumulation: gradient_accumulation_steps of Accelerator; "
    "accelerator.py: 1 by default",
    remedy="Accelerator(gradient_accumulation_steps=…)",
)
RULES = (NO_OUTPUTS, DIVIDED_TWICE, OLD_LOSS, ONE_BATCH)
_TRAINERS = ("Trainer", "Seq2SeqTrainer", "SFTTrainer")
# What all processes have to do at the same step.
_JOINT = ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate")
_ZERO = ("is_world_process_zero", "is_local_process_zero", "should_save", "should_log")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    if code.imports("transformers", "trl") is not None:
        yield from _outputs(code)
        yield from _controls(code)
        yield from _weights_alone(code)
        yield from _of_other(code)
        yield from _signature(code)
    if code.imports("accelerate") is not None:
        yield from _prepared(code)
        yield from _divided(code)
        yield from _accumulates_one(code)
        yield from _states(code)
    yield from _other_model(code)


def _at(rule: Rule, event: Event, message: str, severity: Severity | None = None) -> Finding:
    return at(rule, event, f"`{ast.unparse(event.node)[:50]}` {message}", severity=severity)


def _classes(code: ScriptFacts, ending: str) -> Iterator[tuple[Module, ast.ClassDef]]:
    """Yield the script's classes that are derived from a library's class whose name ends so, and that are used."""
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and len(node.bases) == 1:
                base = qualified(module, node.bases[0])
                if base.startswith(("transformers.", "trl.")) and base.endswith(ending) and _used(module, node):
                    yield module, node


def _used(module: Module, node: ast.ClassDef) -> bool:
    return any(isinstance(n, ast.Name) and n.id == node.name and isinstance(n.ctx, ast.Load) for n in module.nodes)


def _outputs(code: ScriptFacts) -> Iterator[Finding]:
    evaluates = code.ran("evaluate", "predict", live=True) or any(
        (v := e.arg("eval_strategy") or e.arg("evaluation_strategy")) is not None and v.single() in ("epoch", "steps")
        for e in code.events
    )
    if not evaluates or code.mentions("prediction_step", "prediction_loss_only", "evaluation_loop"):
        return
    for module, owner in _classes(code, "Trainer"):
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef) or node.name != "compute_loss":
                continue
            returns = [n for n in ast.walk(node) if isinstance(n, ast.Return)]
            names = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == "return_outputs"]
            plain = returns and all(_one_value(module, r.value) for r in returns)
            told = node.args.kwarg is None or any(each.arg == "return_outputs" for each in node.args.args)
            if plain and not names and told:
                yield at(NO_OUTPUTS, (module, returns[-1]), f"`{ast.unparse(returns[-1])[:50]}` in every case")
                return


def _signature(code: ScriptFacts) -> Iterator[Finding]:
    """Report a ``compute_loss`` that lacks ``num_items_in_batch``, unless an older transformers is asked for."""
    for module, owner in _classes(code, "Trainer"):
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef) or node.name != "compute_loss" or node.args.kwarg is not None:
                continue
            names = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
            asked = asked_for(module.path.parent / FILE, "transformers")
            if "num_items_in_batch" in names or (asked is not None and not admits(asked, "4.46")):
                continue
            what = f"`def compute_loss({ast.unparse(node.args)[:60]})` does not accept num_items_in_batch"
            yield at(OLD_LOSS, (module, node), what, severity=None if asked is not None else "note")
            return


def _states(code: ScriptFacts) -> Iterator[Finding]:
    """Report save_state or load_state of a sharded model, which are collectives, in some processes only."""
    names = ("fsdp_plugin", "deepspeed_plugin")
    plugins = [e.keywords[name] for e in _accelerators(code) for name in names if name in e.keywords]
    for event in code.ran("save_state", "load_state", live=True):
        if plugins and event.name.startswith("accelerate") and (guard := event.by_rank) is not None:
            what = f"of a sharded model runs only where {condition(guard)}"
            chosen = all(p.may_be(None) or "maybe-none" in p.tags for p in plugins)  # a setting decides
            yield _at(DEADLOCK, event, what, "warning" if chosen else None)
            return


def _one_value(module: Module, node: ast.expr | None) -> bool:
    """Return whether an expression is a tensor for certain: a name that is a loss, a sum, a loss of torch."""
    if isinstance(node, ast.Call):
        return qualified(module, node.func).startswith("torch.nn.functional.")
    return isinstance(node, ast.BinOp) or (isinstance(node, ast.Name) and "loss" in node.id)


def _controls(code: ScriptFacts) -> Iterator[Finding]:
    """Report what a callback tells the Trainer in the first process alone: the others train on, or save, without it."""
    if not code.several:
        return
    for module, owner in _classes(code, "Callback"):
        timed = {target for _, target in code.clocked if getattr(target, "attr", "") in _JOINT}
        for told in (n for n in ast.walk(owner) if n in timed):
            what = f"`{ast.unparse(told)}` is set by the process's own time, and the others may not set it"
            yield at(OWN_CLOCK, (module, told), what)
            return
        for node in (n for n in ast.walk(owner) if isinstance(n, ast.Assign)):
            target = node.targets[0]
            if not isinstance(target, ast.Attribute) or not target.attr.startswith("should_"):
                continue
            if ast.unparse(target.value) != "control" or target.attr == "should_log":
                continue
            tests = [o.test for o in ancestors(module, node) if isinstance(o, ast.If) and node not in o.orelse]
            ranked = [t for t in tests if any(isinstance(n, ast.Attribute) and n.attr in _ZERO for n in ast.walk(t))]
            if ranked and not any(isinstance(each, ast.Not) for t in ranked for each in ast.walk(t)):
                rule = LEFT if target.attr in ("should_training_stop", "should_epoch_stop") else DEADLOCK
                what = f"`{ast.unparse(node)[:50]}` only where `{ast.unparse(ranked[0])[:40]}`"
                yield at(rule, (module, node), what)
                return


def _weights_alone(code: ScriptFacts) -> Iterator[Finding]:
    """Report a Trainer that resumes from checkpoints in which there is neither an optimizer nor a schedule."""
    for event in code.events:
        only = event.keywords.get("save_only_model")
        if only is None or only.single() is not True or "flag" in only.tags or event.detached:
            continue
        resumes = [e for e in code.ran("train", live=True) if e.arg("resume_from_checkpoint", 0) is not None]
        if any(e.receiver is not None and e.receiver.made_like("Trainer") for e in resumes):
            what = f"has save_only_model=True, and line {resumes[0].line} resumes without the optimizer's state"
            yield _at(GOES_ON, event, what)
            return


def _of_other(code: ScriptFacts) -> Iterator[Finding]:
    """Report an optimizer for a Trainer that has the parameters of another model."""
    for event in code.ran(*_TRAINERS, live=True):
        given, model = event.arg("optimizers"), event.arg("model", 0)
        optimizer = given.items[0] if given is not None and given.items else None
        owner = optimizer.of if optimizer is not None and "optimizer" in optimizer.tags else None
        if owner is None or model is None or not event.name.startswith(("transformers.", "trl.")):
            continue
        makers = code.maker(owner), code.maker(model)
        known = all(maker is not None and "model" in maker.result.tags for maker in makers)
        if known and not within(owner, model) and not within(model, owner):
            what = f"gets an optimizer with the parameters of the model in line {makers[0].line if makers[0] else 0}"
            yield _at(STALE, event, what)
            return


def _other_model(code: ScriptFacts) -> Iterator[Finding]:
    """Report steps of an optimizer whose model no pass of the same loop calls."""
    if code.managed or code.mentions("load_state_dict_into", "functional_call"):
        return
    for step in code.ran("step", live=True):
        scaled = step.receiver is not None and "scaler" in step.receiver.tags and step.args
        optimizer = step.args[0] if scaled else step.receiver
        owner = optimizer.of if optimizer is not None and {"optimizer"} <= optimizer.tags else None
        maker = code.maker(owner) if owner is not None else None
        if owner is None or maker is None or not step.loops or optimizer is None or len(optimizer.made) != 1:
            continue
        if "model" not in owner.tags or "sometimes" in owner.tags or step.guards:
            continue
        near = [e for e in code.events if e.loops[:1] == step.loops[:1]]
        if any(_related(owner, v) for e in near for v in (*e.args, *e.keywords.values()) if "model" in v.tags):
            continue  # `transport.training_losses(model, x)` of another package calls it
        called = [e.model for e in near if e.model is not None]
        others = [code.maker(model) for model in called]
        empty = any(WRAPPERS & m.tags and m.of is None for m in called)
        if (
            called
            and not empty
            and all(other is not None for other in others)
            and not any(_related(owner, m) or _holds(code, m, owner) for m in called)
            # `model.train()` of one of two models that a condition has joined says nothing of where it was made.
            and not any(o.receiver is not None and "model" in o.receiver.tags for o in others if o is not None)
        ):
            what = f"updates the model of line {maker.line}, and the loop calls that of line {_line(others[0])}"
            yield _at(STALE, step, what)
            return
    for wrap in code.ran("DistributedModel", live=True):
        raw = wrap.args[0] if wrap.args else None
        for event in code.events:
            own = "optimizer" in event.result.tags and event.result.of is raw and raw is not None and event.result.made
            if own and wrap.name.startswith("smdistributed") and event.name.startswith("torch.optim."):
                yield _at(STALE, event, f"has the parameters from before smp.DistributedModel in line {wrap.line}")
                return


def _line(event: Event | None) -> int:
    return event.line if event is not None else 0


def _related(first: Value, second: Value) -> bool:
    """Return whether one of two models is a part of the other, or of the model in the other's wrappers."""
    return any(within(part, whole) for part, other in ((first, second), (second, first)) for whole in _layers(other))


def _holds(code: ScriptFacts, model: Value, part: Value) -> bool:
    """Return whether a model was made of another: `torch.nn.Sequential(backbone, head)`."""
    makers = [maker for layer in _layers(model) if (maker := code.maker(layer)) is not None]
    return any(_related(part, given) for maker in makers for given in maker.args)


def _layers(model: Value) -> Iterator[Value]:
    """Yield a model with its wrappers, and what is in each of them."""
    inner: Value | None = model
    while inner is not None:
        yield inner
        inner = inner.of if inner.tags & WRAPPERS else None


def _prepared(code: ScriptFacts) -> Iterator[Finding]:
    """Report what prepare returns in another order than the names get it, or that nothing takes."""
    for event in code.ran("prepare", live=True):
        if not event.name.startswith("accelerate.") or not event.node.args:
            continue
        around = event.module.parents.get(event.node)
        given = [ast.unparse(each) for each in event.node.args]
        kinds = {"model", "optimizer", "loader"}
        if isinstance(around, ast.Expr) and any(v.tags & kinds for v in event.args):
            wrapped = any("model" in v.tags or "loader" in v.tags for v in event.args)
            if wrapped and code.several and not code.mentions("prepare_model"):
                yield _at(NOT_PREPARED, event, "and nothing takes what it returns")
                return
        target = _taken_by(event.module, around) if isinstance(around, ast.Assign) else None
        names = [ast.unparse(each) for each in target.elts] if isinstance(target, ast.Tuple) else []
        if sorted(names) == sorted(given) and names != given and len(set(given)) == len(given):
            place = next(index for index, (name, each) in enumerate(zip(names, given, strict=True)) if name != each)
            what = f"returns {given[place]} first where the script takes {names[place]}"
            yield _at(NOT_PREPARED, event, what)
            return


def _taken_by(module: Module, around: ast.Assign) -> ast.expr:
    """Return what gets the result of a call: also the names that it is unpacked into by the next assignment."""
    target = around.targets[0]
    if isinstance(target, ast.Name):
        for node in module.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == target.id:
                return node.targets[0]
    return target


def _accelerators(code: ScriptFacts) -> list[Event]:
    return [e for e in code.ran("Accelerator", live=True) if e.name.startswith("accelerate.")]


def _accumulates_one(code: ScriptFacts) -> Iterator[Finding]:
    """Report that a script with an argument for accumulation does not give it to the Accelerator."""
    passed = {"gradient_accumulation_steps", "gradient_accumulation_plugin", "deepspeed_plugin", "**"}
    asked = code.says(r"^--?[\w-]*accum") and not code.says("ACCELERATE_GRADIENT_ACCUMULATION_STEPS")
    sets = any(
        isinstance(n, ast.Attribute) and n.attr == "gradient_accumulation_steps" and isinstance(n.ctx, ast.Store)
        for m in code.modules
        for n in m.nodes
    )
    for event in _accelerators(code):
        if asked and not sets and code.mentions("accumulate") and not passed & set(event.keywords) and not event.args:
            yield _at(ONE_BATCH, event, "accumulates one batch: the script's number is not passed to it")
            return


def _divided(code: ScriptFacts) -> Iterator[Finding]:
    steps = [e.arg("gradient_accumulation_steps") for e in _accelerators(code)]
    if not code.mentions("accumulate") or not any(s is not None and s.single() not in (1, None) for s in steps):
        return
    for module in code.modules:
        for node in module.nodes:
            divides = isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div)
            if not divides or not isinstance(node, ast.BinOp | ast.AugAssign):
                continue
            left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            number = right.value if isinstance(right, ast.Constant) else None
            same = number is not None and any(s is not None and s.single() == number for s in steps)
            if not ast.unparse(left).endswith("loss") or not (same or "accum" in ast.unparse(right)):
                continue
            if _goes_backward(module, node):
                yield at(DIVIDED_TWICE, (module, node), f"`{ast.unparse(node)[:50]}`")
                return


def _goes_backward(module: Module, node: ast.AST) -> bool:
    """Return whether what is divided goes into accelerator.backward: in the call, or under a name that it gets."""
    statement = next((n for n in (node, *ancestors(module, node)) if isinstance(n, ast.stmt)), None)
    function = next((n for n in ancestors(module, node) if isinstance(n, Function)), module.tree)
    names = set()
    if isinstance(statement, ast.Assign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = {ast.unparse(each) for each in targets}
    for each in ast.walk(function):
        called = isinstance(each, ast.Call) and ast.unparse(each.func).endswith(".backward")
        given = each.args[0] if isinstance(each, ast.Call) and called and each.args else None
        if given is not None and (ast.unparse(given) in names or any(n is node for n in ast.walk(given))):
            return True
    return False
