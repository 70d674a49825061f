"""Processes stay in step: they leave loops together, agree on roots and tensors, and wait for the files of others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import DEADLOCK, collective, condition
from trainwright.preflight.saves import saves
from trainwright.script.events import OF_RANK, Event, Exit, Guard
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at
from trainwright.script.values import Value

DOCS = "PyTorch's documentation of torch.distributed"
LEFT = Rule(
    code="TW400",
    severity="error",
    title="only some processes leave a loop in which all of them have to make the same calls",
    source=f"{DOCS}: a collective is called by every process of the group, as is DistributedDataParallel's backward",
    remedy="Decide in one process, send the decision to all (broadcast), and let all leave.",
)
OWN_DECISION = Rule(
    code="TW401",
    severity="warning",
    title="each process decides by its own share of the data whether to go on or to wait, so they may part",
    source=f"{DOCS}: a collective is called by every process of the group; Horovod's API of MetricAverageCallback: "
    "callbacks that decide by a metric need its average; Lightning-AI/pytorch-lightning #379",
    remedy="Average the value over the processes first (all_reduce, hvd.callbacks.MetricAverageCallback).",
)
ROOT = Rule(
    code="TW402",
    severity="error",
    title="each process names itself as the root of a collective",
    source=f"{DOCS}: src and dst are the same in every process; Horovod and MPI require the same of root_rank and root",
    remedy="Name one rank, usually 0.",
)
IN_MEMORY = Rule(
    code="TW403",
    severity="error",
    title="a collective of NCCL on a tensor in main memory",
    source=f'{DOCS}, table of backends: nccl supports CUDA tensors alone ("No backend type associated with device type '
    'cpu"); mistralai/mistral-inference #252',
    remedy="torch.tensor(value, device=device), or tensor.to(device), before the call.",
)
RACE = Rule(
    code="TW404",
    severity="error",
    title="processes read a file that another one may still be writing",
    source="PyTorch's tutorial of DistributedDataParallel, save and load checkpoints: a barrier between the two",
    remedy="torch.distributed.barrier() between writing and reading",
)
DOWNLOAD = Rule(
    code="TW405",
    severity="warning",
    title="all processes of a host download and unpack the same files at once",
    source="torchvision, datasets/utils.py, and Keras, file_utils.py: neither takes a lock",
    remedy="Download in the first process of each host alone, then a barrier; or read from an input channel.",
)
GLOO = Rule(
    code="TW406",
    severity="warning",
    title="gradients of GPUs go through main memory and TCP",
    source=f"{DOCS}, which backend to use: NCCL for CUDA tensors, Gloo for those of the CPU",
    remedy='init_process_group("nccl")',
)
FOLDER = Rule(
    code="TW412",
    severity="error",
    title="every process creates, or removes, the same folder, and all but the first fail",
    source="Python's documentation of os.mkdir, os.makedirs and shutil.rmtree: FileExistsError, FileNotFoundError",
    remedy="os.makedirs(path, exist_ok=True); remove in one process alone",
)
OWN_CLOCK = Rule(
    code="TW516",
    severity="warning",
    title="each process decides by its own clock whether to go on, so they stop at different steps",
    source=f"{DOCS}: a collective is called by every process of the group; PyTorch Lightning, callbacks/timer.py: the "
    "decision is sent to all before they stop",
    remedy="Decide in one process and send the decision to all: stop = torch.tensor(…, device=device); "
    "dist.broadcast(stop, 0).",
)
RULES = (LEFT, OWN_DECISION, ROOT, IN_MEMORY, RACE, DOWNLOAD, GLOO, FOLDER, OWN_CLOCK)
# The root of a collective: its name, and its position.
_ROOTS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("broadcast", "broadcast_object_list"), ("src", 1)),
    **dict.fromkeys(("reduce",), ("dst", 1)),
    "scatter": ("src", 2),
    "gather": ("dst", 2),
    **dict.fromkeys(
        ("broadcast_parameters", "broadcast_variables", "broadcast_object", "broadcast_"), ("root_rank", 1)
    ),
    **dict.fromkeys(("broadcast_optimizer_state",), ("root_rank", 1)),
    **dict.fromkeys(
        ("BroadcastGlobalVariablesCallback", "BroadcastGlobalVariablesHook", "broadcast_global_variables"),
        ("root_rank", 0),
    ),
    **dict.fromkeys(("bcast", "Bcast"), ("root", 1)),
}
_ON_TENSORS = ("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "gather")
# What a tensor's methods make that is no tensor.
_NO_TENSORS = frozenset({"torch.Tensor.item", "torch.Tensor.numpy"})
READERS = (
    *("load", "load_file", "load_model", "load_weights", "from_pretrained", "load_from_disk", "load_state_dict"),
    *("read_csv", "read_parquet", "read_json", "read_pickle"),
)
# What writes prepared data: the place of the path is the first.
_WRITERS = ("save_to_disk", "to_csv", "to_parquet", "to_json", "to_pickle")
_MAKE_OR_REMOVE = ("os.mkdir", "os.makedirs", "shutil.rmtree")
_UNPACKS = ("shutil.unpack_archive", "urllib.request.urlretrieve")
_STOPPERS = ("EarlyStopping", "ReduceLROnPlateau", "TerminateOnNaN")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.several_per_host and not code.incomplete:
        yield from _downloads(code)
        yield from _folders(code)
    if not code.several or code.incomplete:
        return
    yield from _gloo(code)
    joint = [event for event in code.events if not event.detached and collective(event)]
    yield from _left(code, joint)
    yield from _parted(joint)
    yield from _until(code, joint)
    yield from _roots(code)
    yield from _in_memory(code)
    yield from _races(code, joint)
    yield from _callbacks(code)


def _text(node: ast.AST) -> str:
    return ast.unparse(node)[:60]


def _left(code: ScriptFacts, joint: list[Event]) -> Iterator[Finding]:
    reported: set[ast.AST] = set()
    for each in code.exits:
        if each.detached or each.node in reported:
            continue
        for kinds, rule in ((OF_RANK, LEFT), (frozenset({"own"}), OWN_DECISION), (frozenset({"clock"}), OWN_CLOCK)):
            guard = next((g for g in each.guards if g.kind in kinds and _within(g, each)), None)
            if guard is None or _together(code, each, guard):
                continue
            missed = _missed(each, guard, joint)
            # What the rest of a pass does under a condition on the rank is reported by itself.
            if missed is None or (each.kind == "continue" and rule is LEFT):
                continue
            reported.add(each.node)
            call = f"{collective(missed)} in line {missed.line}"
            what = f"{each.kind} where {condition(guard)}; the others still call {call}"
            yield at(rule, each, what)
            break


def _parted(joint: list[Event]) -> Iterator[Finding]:
    """Report a collective that each process makes or not by its own share of the data."""
    for event in joint:
        guard = next((g for g in event.guards if g.kind in ("own", "clock")), None)
        if guard is None or event.role != "collective" or "group" in event.keywords:
            continue
        other = [e for e in joint if any(g.node is guard.node and g.side is not guard.side for g in e.guards)]
        if not any(e.last == event.last for e in other):
            what = f"{collective(event)} runs only where {condition(guard)}, which each process decides for itself"
            yield at(OWN_DECISION if guard.kind == "own" else OWN_CLOCK, event, what)
            return


def _until(code: ScriptFacts, joint: list[Event]) -> Iterator[Finding]:
    """Report a loop with collectives that each process ends by its own clock, or its own share of the data."""
    timed = [(module, loop) for module, loop in code.clocked if isinstance(loop, ast.While)]
    for rule, loops in ((OWN_CLOCK, timed), (OWN_DECISION, code.own_loops)):
        for module, loop in loops:
            calls = [e for e in joint if loop in e.loops and not e.by_rank and "group" not in e.keywords]
            if calls:
                what = f"`while {_text(loop.test)}`, with {collective(calls[0])} in line {calls[0].line}"
                yield at(rule, (module, loop), what)
                break


def _within(guard: Guard, exit_: Exit) -> bool:
    """Return whether a condition is inside the loop that is left."""
    outer = exit_.loops[0] if exit_.kind == "return" else exit_.loops[-1]
    if not isinstance(outer, ast.For | ast.AsyncFor | ast.While):
        return False
    return outer.lineno <= guard.node.lineno <= (outer.end_lineno or 0)


def _together(code: ScriptFacts, exit_: Exit, guard: Guard) -> bool:
    """Return whether the processes on the other side of the condition leave, too."""
    return any(
        other.node is not exit_.node and any(g.node is guard.node and g.side is not guard.side for g in other.guards)
        for other in code.exits
    )


def _missed(exit_: Exit, guard: Guard, joint: list[Event]) -> Event | None:
    """Return a collective that the processes which stay still make."""
    for event in joint:
        inside = any(loop in event.loops for loop in exit_.loops)
        same = any(g.node is guard.node and g.side is guard.side for g in event.guards)
        later = exit_.kind != "continue" or event.order >= exit_.order
        if inside and later and not same and "group" not in event.keywords and not event.by_rank:
            return event
    return None


def _roots(code: ScriptFacts) -> Iterator[Finding]:
    for event in code.events:
        sends = event.role == "collective" or event.last.startswith("BroadcastGlobalVariables")
        if not sends or event.last not in _ROOTS or event.detached:
            continue
        if {"group", "comm", "process_set"} & set(event.keywords) or event.by_rank:
            continue
        keyword, position = _ROOTS[event.last]
        if event.last in ("gather", "scatter") and event.name.startswith("mpi4py"):
            continue
        root = event.arg(keyword, position)
        if root is not None and root.constants is None and root.tags & {"rank", "local_rank"}:
            yield at(ROOT, event, f"`{_text(event.node)}`")


def _in_memory(code: ScriptFacts) -> Iterator[Finding]:
    groups = [e for e in code.roles("group") if e.last == "init_process_group"]
    backends = [e.arg("backend", 0) for e in groups]
    if not groups or any(b is None or b.single() not in ("nccl", "smddp") or "flag" in b.tags for b in backends):
        return
    if code.mentions("set_default_device", "set_default_tensor_type", "new_group") or code.mentions_like("gloo"):
        return
    for event in code.events:
        if event.name == "torch.distributed.monitored_barrier" and not event.detached:
            yield at(IN_MEMORY, event, f"`{_text(event.node)}`: Gloo alone has it")
            return
        if event.detached or not event.name.startswith("torch.distributed.") or event.last not in _ON_TENSORS:
            continue
        if "group" in event.keywords or event.under("error"):
            continue
        number = next((v for v in event.args[:1] if v.made and v.made <= _NO_TENSORS), None)
        if number is not None:
            yield at(IN_MEMORY, event, f"`{_text(event.node)}`: it is no tensor (TypeError)")
            return
        for value in (*event.args, *event.keywords.values()):
            moved = "moved" in value.tags or _moves_attributes(event.module)
            if "cpu-tensor" in value.tags and value.items is None and not moved:
                yield at(IN_MEMORY, event, f"`{_text(event.node)}`: the tensor is on the CPU")
                return


def _moves_attributes(module: Module) -> bool:
    """Return whether a file may move tensors by their names: ``setattr(self, name, tensor.to(device))``."""
    return any(isinstance(node, ast.Name) and node.id == "setattr" for node in module.nodes)


def _path_text(value: Value | None, node: ast.expr | None) -> str:
    """The text of a path: its constant, or how it is written."""
    if value is not None and isinstance(single := value.single(), str):
        return single
    return ast.unparse(node) if node is not None and not isinstance(node, ast.Constant) else ""


def _known(path: Value | None, other: Value) -> bool:
    """Return whether two paths are certainly the same; the same expression in two files need not be."""
    return path is other or (path is not None and isinstance(path.single(), str) and path.single() == other.single())


def argument(event: Event, value: Value | None) -> ast.expr | None:
    """Return the expression that a call has for one of its values, or None."""
    for given, node in zip(event.args, event.node.args, strict=False):
        if given is value:
            return node
    return next((k.value for k in event.node.keywords if k.arg and event.keywords.get(k.arg) is value), None)


def _races(code: ScriptFacts, joint: list[Event]) -> Iterator[Finding]:
    writes = [(s.event, s.path) for s in saves(code)]
    writes += [(e, e.args[0]) for e in code.events if e.args and (e.last in _WRITERS or e.name == "numpy.save")]
    written = [
        (save, path, _path_text(path, argument(save, path)))
        for save, path in writes
        if save.under("one", "host") and not save.detached
    ]
    waits = [e.order for e in joint]
    waits += [e.order for e in code.events if e.last in ("sleep", "wait", "join", "fit") or _waits(e)]
    for event in code.ran(*READERS, live=True):
        if (
            event.by_rank
            or event.under("error")
            or (event.last == "load" and event.receiver and not event.receiver.name)
        ):
            continue
        for path in (*event.args[:1], *event.keywords.values()):
            text = _path_text(path, argument(event, path))
            for save, target, saved in written:
                same = text and saved == text and save.order < event.order
                same = same and (save.module is event.module or _known(target, path))
                if same and not any(save.order < order < event.order for order in waits) and not save.excludes(event):
                    what = f"`{_text(event.node)}` in every process, while the first may still write it in line"
                    yield at(RACE, event, f"{what} {save.line}")
                    return


def _waits(event: Event) -> bool:
    """Return whether a call seems to wait for the other processes."""
    return bool(re.search(r"barrier|sync|wait|broadcast|reduce|gather", event.last, re.I))


def _downloads(code: ScriptFacts) -> Iterator[Finding]:
    for event in code.events:
        fetches = event.name.startswith("torchvision.datasets.") and _true(event.arg("download"))
        fetches = fetches or bool(re.match(r"(tensorflow\.)?keras\.datasets\.\w+\.load_data$", event.name))
        fetches = fetches or event.name in _UNPACKS or (event.last == "extractall" and event.receiver is not None)
        path = event.arg("root", 0) or event.arg("path", 0)
        if not fetches or event.detached or event.guards or (path is not None and path.tags & {"rank", "local_rank"}):
            continue
        before = [e for e in code.events if e.order < event.order and (e.role == "collective" or _waits(e))]
        if any(e.under("others") for e in before) or any("lock" in name.lower() for name in event.contexts):
            continue  # the others wait until the first process is through
        yield at(DOWNLOAD, event, f"`{_text(event.node)}` in every process")
        return


def _folders(code: ScriptFacts) -> Iterator[Finding]:
    if not (code.cooperates or code.launch.launched):
        return
    for event in code.events:
        path = event.arg("path", 0) or event.arg("name", 0)
        if event.name not in _MAKE_OR_REMOVE or event.detached or event.guards or path is None:
            continue
        allowed = event.arg("exist_ok", 2) or event.arg("ignore_errors", 1)
        own = path.tags & {"rank", "local_rank", "random", "root:tmp"}
        if (allowed is not None and allowed.single() is not False) or own or _tried(event):
            continue
        yield at(FOLDER, event, f"`{_text(event.node)}` in every process")
        return


def _tried(event: Event) -> bool:
    """Return whether an exception of a call is handled."""
    return any(isinstance(outer, ast.Try) and outer.handlers for outer in ancestors(event.module, event.node)) or any(
        "suppress" in name for name in event.contexts
    )


def _true(value: Value | None) -> bool:
    return value is not None and value.single() is True and "flag" not in value.tags


def _gloo(code: ScriptFacts) -> Iterator[Finding]:
    """Report Gloo as the only backend of a training on GPUs."""
    groups = [e for e in code.roles("group") if e.last == "init_process_group" and not e.detached]
    if not code.launch.gpus or not code.backwards or code.torch_xla or code.horovod or not groups:
        return
    backends = [event.arg("backend", 0) for event in groups]
    moved = any(v.tags & {"cuda", "indexed", "local_rank"} for e in code.ran("to", "cuda", "device") for v in e.args)
    moved = moved or bool(code.ran("set_device"))
    if moved and all(b is not None and b.single() == "gloo" and code.decided(b) for b in backends):
        yield at(GLOO, groups[0], f"`{_text(groups[0].node)}` on {code.launch.gpus} GPUs per host")


def _callbacks(code: ScriptFacts) -> Iterator[Finding]:
    """Report Keras callbacks by which Horovod's processes communicate or decide, in some processes only."""
    if not code.horovod:
        return
    averaged = code.mentions("MetricAverageCallback", "allreduce", "metric_average")
    for event in code.ran("fit", "fit_generator", live=True):
        held = event.arg("validation_data")
        if held is not None and "only-one" in held.tags and code.mentions("MetricAverageCallback"):
            what = "validation_data in the first process alone; MetricAverageCallback waits there for its metrics"
            yield at(DEADLOCK, event, what)
    for event in code.events:
        if event.detached or event.last not in _STOPPERS or "keras" not in event.name:
            continue
        guard = event.by_rank
        where = condition(guard) if guard is not None else "only the first process has it"
        if (guard is not None or "only-one" in event.result.tags) and event.last != "ReduceLROnPlateau":
            yield at(LEFT, event, f"{event.last} where {where}; the others train on")
        elif guard is None and (not averaged or _averaged_later(code, event)):
            why = "MetricAverageCallback comes after it" if averaged else "there is no MetricAverageCallback"
            what = f"{event.last} decides by the process's own metric, as {why}"
            yield at(OWN_DECISION, event, what)


def _averaged_later(code: ScriptFacts, event: Event) -> bool:
    """Return whether ``fit`` runs the callback that averages metrics after this one."""
    for fit in code.ran("fit", "fit_generator", live=True):
        given = fit.arg("callbacks")
        items = (given.items or ()) if given is not None else ()
        places = [place for place, each in enumerate(items) if each is event.result]
        means = [place for place, each in enumerate(items) if each.made_by("MetricAverageCallback")]
        if places and means and places[0] < means[0]:
            return True
    return False
