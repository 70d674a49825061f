"""What only one process does to its model, and what is computed of one process's share as if it were all."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.collectives import DEADLOCK, condition
from trainwright.preflight.devices import APART
from trainwright.preflight.horovod import NO_BROADCAST
from trainwright.preflight.loaders import TWICE_SHARED
from trainwright.preflight.wrapping import ORDER
from trainwright.script.events import Event
from trainwright.script.known import DDP
from trainwright.script.known import NO_GRAPH as NO_GRAPH_WITHIN
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value, within

OF_ALL = Rule(
    code="TW491",
    severity="warning",
    title="a sum over one process's share is divided by the number of all samples",
    source="PyTorch's documentation of DistributedSampler: each process gets a share of the data set",
    remedy="dist.all_reduce(correct) before the division, or divide by the number of samples that were seen.",
)
NO_GRAPH = Rule(
    code="TW492",
    severity="error",
    title="backward of a value that has no graph",
    source='PyTorch, torch/csrc/autograd: "element 0 of tensors does not require grad and does not have a grad_fn"',
    remedy="Call backward of the loss itself; detach() and item() are for logging.",
)
FOLDER_NAME = Rule(
    code="TW493",
    severity="error",
    title="a file is saved under the name of a folder",
    source="Python's documentation of open: IsADirectoryError; SageMaker's container contract on SM_MODEL_DIR",
    remedy='os.path.join(os.environ["SM_MODEL_DIR"], "model.pt")',
)
SHARE_SHOWN = Rule(
    code="TW507",
    severity="warning",
    title="the first process reports a metric of its own share of the validation data as that of all",
    source="PyTorch's ImageNet example, validate: with a DistributedSampler, the meters are summed over the processes "
    "(all_reduce) before they are shown",
    remedy="dist.all_reduce over the sums and the number of samples before the division.",
)
ONE_RESTORED = Rule(
    code="TW571",
    severity="error",
    title="only some processes restore the state of the optimizer, the schedule or the scaler",
    source="PyTorch's documentation of DistributedDataParallel: it averages gradients, and assumes that the optimizer "
    "changes the parameters in all processes in the same way; pytorch/tutorials #2433: the state of the optimizer is "
    "not sent to the others",
    remedy="Load the checkpoint in every process: torch.load(path, map_location=device), then "
    "optimizer.load_state_dict(…).",
)
RULES = (OF_ALL, NO_GRAPH, FOLDER_NAME, SHARE_SHOWN, ONE_RESTORED)
_SEND_FIRST_WEIGHTS = ("torch.", "smdistributed.dataparallel.")
_NORMALIZED = r"batch_?norm|resnet|resnext|densenet|mobilenet|efficientnet|regnet|inception|googlenet|shufflenet"


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    yield from _without_graph(code)
    for event in code.ran("save", live=True):
        path = event.arg("f", 1) if event.name in ("torch.save", "torch.jit.save") else None
        folder = path is not None and ("env:SM_MODEL_DIR" in path.tags or path.single() == "/opt/ml/model")
        if folder and path is not None and path.constants in (None, ("/opt/ml/model",)):
            yield _at(FOLDER_NAME, event, "")
            break
    yield from _left_in_memory(code)
    if not code.several:
        return
    wraps = [
        e
        for e in code.wrapped_events
        if DDP.search(e.name) and not e.detached and e.name.startswith(_SEND_FIRST_WEIGHTS)
    ]
    yield from _wrapped(code, wraps)
    for event in code.ran("DistributedSampler", live=True):
        given = code.maker(event.args[0]) if event.args else None
        subset = given is not None and given.name == "torch.utils.data.Subset" and len(given.node.args) > 1
        if given is not None and subset and re.search(r"\brank|get_rank", ast.unparse(given.node.args[1])):
            yield _at(TWICE_SHARED, event, f"divides the share of line {given.line} again")
            break
    yield from _of_all(code)
    yield from _shown(code)
    yield from _restored_alone(code)


_COLLECTIVES = ("all_reduce", "reduce", "all_gather", "gather", "all_gather_object", "gather_for_metrics")
# Others that join metrics, two of them functions that many scripts have.
_OTHERS = ("gather_object", "all_gather_into_tensor", "reduce_tensor", "synchronize_between_processes")
_OF_FIRST = ("accelerate.Accelerator.print", "torch_xla.core.xla_model.master_print")
_SHOWS = ("print", "info", "warning", "log", "add_scalar", "write", "log_metrics", "log_metric")


def _shown(code: ScriptFacts) -> Iterator[Finding]:
    """Report a metric of one share that the first process shows, where no process ever joins any."""
    if any(code.ran(*_COLLECTIVES, *_OTHERS)):
        return
    for event in code.ran(*_SHOWS, live=True):
        given = (*event.args, *event.keywords.values())
        shares = [value for value in given if {"own", "measured"} <= value.tags]
        if shares and (event.under("one") or event.name in _OF_FIRST):
            yield _at(SHARE_SHOWN, event, "of a share, which no collective has joined with those of the others")
            return


def _at(rule: Rule, event: Event, message: str, severity: Severity | None = None) -> Finding:
    return at(rule, event, f"`{ast.unparse(event.node)[:60]}` {message}".strip(), severity=severity)


def _without_graph(code: ScriptFacts) -> Iterator[Finding]:
    backwards = {call.node for call in code.backwards}
    for event in code.ran("backward", live=True):
        loss = event.receiver
        if event.node not in backwards or loss is None or event.args or event.under("error"):
            continue
        what = ""
        if event.contexts and re.search(r"(^|\.|@)(no_grad|inference_mode)\b", event.contexts[-1]):
            what = f"within {event.contexts[-1].lstrip('@')}"
        elif {"detached", "out"} <= loss.tags and "scaled" not in loss.tags and not loss.sources:
            what = "after detach()"
        elif loss.made == {"torch.Tensor.item"}:
            what = "of a number"
        if what:
            yield _at(NO_GRAPH, event, what)
            return


def _wrapped(code: ScriptFacts, wraps: list[Event]) -> Iterator[Finding]:
    for wrap in wraps:
        model = wrap.args[0] if wrap.args else wrap.arg("module")
        if model is None:
            continue
        # Under a condition of its own, such as `n_gpu > 1`, it may be for what is not distributed.
        inner = [e for e in code.ran("DataParallel", live=True) if _asked(e) <= _asked(wrap)]
        if inner and model.made_by("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"):
            yield _at(ORDER, wrap, "around DataParallel, which uses all GPUs of the host in each process")
            return
        yield from _loaded_alone(code, wrap, model)
        yield from _forward_alone(code, wrap, model)


def _asked(event: Event) -> set[tuple[str, bool]]:
    """Return the conditions around a call, with their sides."""
    return {(ast.unparse(guard.node), guard.side) for guard in event.guards}


def _loaded_alone(code: ScriptFacts, wrap: Event, model: Value) -> Iterator[Finding]:
    """Report weights that one process loads after the wrapper has sent its first weights to all."""
    if code.mentions("broadcast_object_list", "broadcast_parameters", "_sync_module_states"):
        return
    sent = [e.arg("tensor", 0) for e in code.ran("broadcast")]
    if len(sent) != len(list(code.called("broadcast"))) or not all(
        each is not None and _counter(each) for each in sent
    ):
        return
    for event in code.ran("load_state_dict", live=True):
        guard = event.under("one")
        base = event.receiver
        if guard is None or event.order < wrap.order or base is None or "optimizer" in base.tags:
            continue
        if guard.chosen and not re.search(r"\b(isfile|exists|is_file)\(", ast.unparse(guard.node)):
            continue
        if (within(base, wrap.result) or within(base, model)) and not _also(code, event):
            yield _at(NO_BROADCAST, event, f"only where {condition(guard)}, after the model was wrapped")
            return


_TO_OTHERS = ("broadcast_object_list", "broadcast_object", "scatter_object_list", "all_gather_object", "bcast")
# What is sent of a checkpoint beside the states in it.
_PROGRESS = re.compile(r"epoch|step|start|best|iteration", re.I)


def _restored_alone(code: ScriptFacts) -> Iterator[Finding]:
    """Report an optimizer, a schedule or a scaler that is restored in one process, but not in the others."""
    if code.managed or code.horovod or code.mentions_like(r"(broadcast|sync|scatter|share)\w*(optim|state|dict)"):
        return
    sent = [e.arg("tensor", 0) for e in code.ran("broadcast")]
    sent += [e.args[0] if e.args and _PROGRESS.search(e.text) else None for e in code.ran(*_TO_OTHERS)]
    if not all(each is not None and (_counter(each) or _weights(each) or each.items is not None) for each in sent):
        return
    loads = code.ran("load_state_dict")
    for event in code.ran("load_state_dict", live=True):
        base, guard = event.receiver, event.under("one", "host")
        if base is None or guard is None or not _keeps_state(code, base) or event.under("error"):
            continue
        also = any(e.receiver is base and (e.excludes(event) or not e.by_rank) for e in loads if e is not event)
        steps = [e for e in code.ran("step", live=True) if e.by_rank is None and base in (e.receiver, *e.args[:1])]
        if steps and not also and not base.tags & _BY_LIBRARY:
            what = f"only where {condition(guard)}; `{steps[0].text}` in line {steps[0].line} runs in every process"
            yield _at(ONE_RESTORED, event, what)
            return


def _weights(value: Value) -> bool:
    """Return whether a value is of a model's parameters: ``p.data``."""
    return "params" in value.tags or (value.of is not None and "params" in value.of.tags)


_BY_LIBRARY = frozenset({"accelerate", "deepspeed", "hvd", "smp", "fsdp"})


def _keeps_state(code: ScriptFacts, value: Value) -> bool:
    """Return whether a value is an optimizer with moments, a schedule or a scaler: plain SGD remembers nothing."""
    if "scaler" in value.tags or any(".lr_scheduler." in made for made in value.made):
        return True
    maker = code.maker(value)
    if (
        "optimizer" not in value.tags
        or maker is None
        or not maker.name.startswith(("torch.optim.", "torch_optimizer."))
    ):
        return False
    momentum = maker.arg("momentum", 2)
    return maker.last != "SGD" or (momentum is not None and momentum.single() != 0)


def _counter(value: Value) -> bool:
    """Return whether a tensor was made for a number, such as the epoch, so it is no weight."""
    return bool(value.made) and value.made <= {f"torch.{name}" for name in ("tensor", "zeros", "ones", "full", "empty")}


def _also(code: ScriptFacts, event: Event) -> bool:
    return any(e.excludes(event) or not e.by_rank for e in code.ran("load_state_dict") if e is not event)


def _forward_alone(code: ScriptFacts, wrap: Event, model: Value) -> Iterator[Finding]:
    """Report a pass of the wrapper in one process: with buffers, as of batch normalization, it is a collective."""
    buffers = wrap.arg("broadcast_buffers")
    if buffers is not None or not normalized(model):
        return
    for event in code.events:
        guard = event.under("one", "host")
        mine = event.model is not None and event.model is wrap.result
        if guard is None or not mine or event.detached or event.under("error") or model is event.model:
            continue
        if "out" in frozenset().union(*(value.tags for value in event.args)):
            continue
        what = f"runs only where {condition(guard)}: the wrapper sends the buffers of batch normalization to all"
        # Without gradients it does so in the first pass after a training step only (distributed.py, _post_forward), in
        # which the others may follow at their next step.
        free = any(NO_GRAPH_WITHIN.search(name) for name in event.contexts)
        yield _at(DEADLOCK, event, what, "warning" if free else None)
        return


def normalized(model: Value) -> bool:
    """Return whether a model is known to have layers of batch normalization."""
    own = ast.unparse(model.code.node) if model.code is not None else ""
    return "BatchNorm" in own or any(re.search(_NORMALIZED, made, re.I) for made in model.made)


def _of_all(code: ScriptFacts) -> Iterator[Finding]:
    if any(code.ran(*_COLLECTIVES)):
        return  # one of them may have joined the sums before, also under a condition
    for module, node in code.fractions:
        yield at(OF_ALL, (module, node), f"`{ast.unparse(node)[:60]}`")
        return


def _left_in_memory(code: ScriptFacts) -> Iterator[Finding]:
    """Report targets of a loader that stay in main memory, where the inputs beside them go to a GPU."""
    if code.managed or code.torch_xla or code.smp or code.imports("accelerate", "deepspeed") is not None:
        return
    for event in code.events:
        loop = event.loops[-1] if event.loops else None
        if event.detached or not isinstance(loop, ast.For) or not _compares(event):
            continue
        names = _targets(loop)
        made = code.loader(loop)
        if made is None or not made.name.startswith("torch.") or len(names) < 2:
            continue
        moved = {name for name in names if _moved(loop, name)}
        for value, given in zip(event.args, event.node.args, strict=False):
            name = given.id if isinstance(given, ast.Name) else ""
            others = [v for v in event.args if v is not value and {"on-device", "out"} <= v.tags]
            if name in names and name not in moved and moved and others and not value.tags & {"moved", "out"}:
                yield _at(APART, event, f"`{name}` stays in main memory, where the loader put it")
                return


def _compares(event: Event) -> bool:
    # CTCLoss takes targets and lengths in main memory as well (PyTorch's documentation of it, the note on cuDNN).
    made = event.called.made if event.called is not None else ()
    by_class = any(name.startswith("torch.nn.") and name.endswith("Loss") and "CTC" not in name for name in made)
    return by_class or bool(
        re.match(r"torch\.nn\.functional\.(cross_entropy|nll_loss|mse_loss|l1_loss|binary_)", event.name)
    )


def _targets(loop: ast.For) -> set[str]:
    """Return the names that the items of a batch get: ``x, y`` of ``for i, (x, y) in enumerate(loader)``."""
    target = loop.target
    if isinstance(target, ast.Tuple) and isinstance(loop.iter, ast.Call) and "enumerate" in ast.unparse(loop.iter.func):
        target = target.elts[-1]
    return {each.id for each in target.elts if isinstance(each, ast.Name)} if isinstance(target, ast.Tuple) else set()


def _moved(loop: ast.For, name: str) -> bool:
    """Return whether anything but a loss gets a name of the batch: it may move it, as ``to`` and ``cuda`` do."""
    for node in ast.walk(loop):
        moves = isinstance(node, ast.Attribute) and node.attr in ("to", "cuda")
        if isinstance(node, ast.Attribute) and moves and isinstance(node.value, ast.Name) and node.value.id == name:
            return True
        stored = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        if stored and not any(node is each for each in ast.walk(loop.target)):
            return True
    return False
