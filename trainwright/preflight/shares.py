"""Shares of the data that are larger in some processes, which then make more steps than the others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import collective
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.unequal import RAGGED
from trainwright.script.values import Code, Value

UNEQUAL = Rule(
    code="TW519",
    severity="warning",
    title="each process trains to the end of its own files, and those with fewer batches stop first",
    source="Horovod's documentation, stall inspector: a reduction waits for every process; join(): for processes "
    "with uneven data; PyTorch's tutorial of the Join context manager: DistributedDataParallel hangs with uneven data",
    remedy="The same number of steps in every process (itertools.islice(loader, steps); dataset.repeat() and "
    "take(steps), steps_per_epoch), or with Join([model]) around the loop; with Horovod, hvd.join() after it.",
)
GATHERED = Rule(
    code="TW541",
    severity="warning",
    title="tensors are gathered whose lengths may differ from process to process",
    source="PyTorch's documentation of all_gather: the tensors of its list have the sizes of those that they receive; "
    "Lightning-AI/pytorch-lightning #7773: it hangs; facebookresearch/maskrcnn-benchmark #383 pads all to the longest",
    remedy="dist.all_gather_object, or pad all to the longest (all_reduce of the length with ReduceOp.MAX) and cut; or "
    "a DistributedSampler, whose shares are equal.",
)
RULES = (UNEQUAL, GATHERED)
_GATHERS = {"all_gather": 1, "all_gather_into_tensor": 1, "gather": 0}
_LENGTHS = ("all_reduce", "all_gather", "all_gather_object", "all_gather_into_tensor")
_UPDATES = ("step", "apply_gradients", "minimize")
_PADS = re.compile(r"\bpad(ded)?\b|_pad\b|\bpad_|longest", re.I)
# What makes a stream endless, or ends it before its files do.
_OTHER_END = re.compile(r"\b(cycle|islice|repeat)\b")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.several or code.managed or code.imports("accelerate", "deepspeed") is not None:
        return
    if not any(_rest(node) for module in code.modules for node in module.nodes):
        yield from _unequal(code)
        yield from _gathered(code)


def _unequal(code: ScriptFacts) -> Iterator[Finding]:
    """Report a loop, or fit, that reduces gradients in each batch and ends with the process's own files."""
    if any(event.name.startswith(("horovod.", "torch.")) for event in code.ran("join", "Join")):
        return
    for event in code.events:
        if event.detached or event.by_rank is not None:
            continue
        if event.last == "fit" and event.receiver is not None and "hvd-compiled" in event.receiver.tags:
            data, steps = event.arg("x", 0), event.arg("steps_per_epoch", 11)
            none = steps is None or steps.single() is None
            if data is not None and "unequal" in data.tags and none and not event.opened:
                what = f"`{ast.unparse(event.node.func)[:50]}` gets the process's own files, and no steps_per_epoch"
                yield at(UNEQUAL, event, what)
                return
        for loop in event.loops if _reduces(code, event) else ():
            left = any(isinstance(node, ast.Break | ast.Return) for node in ast.walk(loop))
            if isinstance(loop, ast.For) and not left and _of_own_files(code, loop):
                what = f"`for … in {ast.unparse(loop.iter)[:40]}` ends with the process's own files"
                yield at(UNEQUAL, (event.module, loop), f"{what}; line {event.line} waits for all processes")
                return


def _gathered(code: ScriptFacts) -> Iterator[Finding]:
    """Report tensors that are gathered although their lengths may differ, and nothing exchanges the lengths."""
    for event in code.ran(*_GATHERS, live=True):
        given = event.arg("tensor" if event.last != "all_gather_into_tensor" else "input_tensor", _GATHERS[event.last])
        if not event.name.startswith("torch.distributed.") or given is None or not given.tags & RAGGED:
            continue
        here = {each.node for each in event.stack[-1:]}
        told = [e for e in code.ran(*_LENGTHS) if e.order < event.order and here == {f.node for f in e.stack[-1:]}]
        if not told and not any(_PADS.search(ast.unparse(each.node)) for each in event.stack[-2:]):
            what = f"`{ast.unparse(event.node)[:60]}` gathers a tensor as long as the process's own share of the data"
            yield at(GATHERED, event, what)
            return


def _reduces(code: ScriptFacts, event: Event) -> bool:
    """Return whether a call joins the gradients of all processes."""
    if not code.horovod:
        return event.last == "backward" and bool(collective(event))
    base = event.receiver
    steps = base is not None and "hvd" in base.tags and event.last in _UPDATES
    by_hand = event.role == "collective" and any("grad" in value.tags for value in event.args)
    return event.role == "hvd-optimizer" or steps or by_hand


def _of_own_files(code: ScriptFacts, loop: ast.For) -> bool:
    """Return whether a loop goes over what is in the process's own files.

    A list of the script's own has an item for each file; the files may hold any number.
    """
    value = code.iterated(loop)
    value = value.of if value is not None and "element" in value.tags else value  # enumerate(dataset)
    if value is None:
        return False
    data: Value | None = value
    while data is not None and not (data.instance and "dataset" in data.tags):
        data = data.of
    if data is None or data.code is None:
        return "unequal" in value.tags
    if not any(origin.endswith("IterableDataset") for origin in data.code.origins()) or _has_other_end(data.code):
        return False
    known = (value, *(data.attrs or {}).values())
    return any("unequal" in each.tags for each in known) or any(_deals(code, n) for n in ast.walk(data.code.node))


def _deals(code: ScriptFacts, node: ast.AST) -> bool:
    """Return whether a stream takes its share of the files where it goes over them."""
    value = code.iterated(node) if isinstance(node, ast.For) else None
    return value is not None and "unequal" in value.tags


def _has_other_end(stream: Code) -> bool:
    nodes = list(ast.walk(stream.node))
    endless = any(isinstance(n, ast.While) and isinstance(n.test, ast.Constant) for n in nodes)
    return endless or any(isinstance(n, ast.Break) for n in nodes) or bool(_OTHER_END.search(ast.unparse(stream.node)))


def _rest(node: ast.AST) -> bool:
    """Return whether a script asks what is left when files are divided: ``len(files) % hvd.size()``, or rounds up."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("ceil", "divmod")):
        text = " ".join(map(ast.unparse, node.args))
        return "len(" in text and bool(re.search("size|world", text))
    divides = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and "len(" in ast.unparse(node.left)
    return isinstance(node, ast.BinOp) and divides and bool(re.search("size|world", ast.unparse(node.right)))
