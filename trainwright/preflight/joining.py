"""When processes join: what needs the process group comes after it, and it is made once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import collective
from trainwright.script.events import OF_RANK, Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at

NOT_JOINED = Rule(
    code="TW472",
    severity="error",
    title="the process group, or the library, is used before it is initialised, or initialised twice",
    source='torch/distributed/distributed_c10d.py: "Default process group has not been initialized, please make sure '
    'to call init_process_group" and "trying to initialize the default process group twice!"; AWS guides for SMP: '
    "smp.init() and tsm.init() come before any other call of the library",
    remedy="Initialise once, at the start of main(), before anything else asks for a rank.",
)
NOT_OF_TORCH = Rule(
    code="TW560",
    severity="error",
    title="torch.distributed is used, but only the data parallel library's own module is initialised (a warning unless "
    "the image has a version before 1.4.0)",
    source="SDK 2's documentation of SageMaker's data parallel library 1.2.x for PyTorch: after its "
    "init_process_group() its own is_initialized() is true; huggingface/transformers #12847: Default process group has "
    "not been initialized; release notes of 1.4.0: the module is deprecated, the library is a backend of torch",
    remedy="Call the same function of smdistributed.dataparallel.torch.distributed, and give DistributedSampler "
    "num_replicas and rank from there.",
)
RULES = (NOT_JOINED, NOT_OF_TORCH)
# Calls of libraries that join the processes themselves, as far as their names say.
_JOINS = re.compile(
    r"^(init|setup|launch|spawn)|Accelerator$|PartialState|TrainingArguments$|^Fabric$|_into_dataclasses"
)
_ASKS = ("rank", "world", "local_rank", "dp_rank", "dp_size")
# DistributedDataParallel, and DistributedSampler without its share, ask the default group.
_OF_GROUP = ("torch.nn.parallel.", "torch.utils.data.distributed.", "torch.utils.data.DistributedSampler")
# Decorators that only say how a method is called; any other may have joined the processes.
_PLAIN = frozenset(("@classmethod", "@staticmethod", "@property", "@functools.cached_property"))
_NO_GRAPH = frozenset(("@torch.no_grad", "@torch.inference_mode"))
SMDDP = "smdistributed.dataparallel.torch.distributed"
# AWS's images with a library before 1.4.0: SageMaker's developer guide, supported frameworks of the library.
_FIRST_SMDDP = re.compile(r"pytorch-training:1\.[6-9]\b")
# What each library calls its beginning.
_LIBRARIES = (
    ("torch.distributed.", "torch.distributed.init_process_group"),
    ("smdistributed.modelparallel.torch.", "smdistributed.modelparallel.torch.init"),
    ("torch.sagemaker.transform", "torch.sagemaker.init"),
)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete:
        return
    for prefix, name in _LIBRARIES:
        begins = [e for e in code.ran(name.rpartition(".")[2]) if e.name == name]
        live = [e for e in begins if not e.detached]
        if not live:
            continue
        yield from _before(code, prefix, live[0])
        if prefix == "torch.distributed.":
            yield from _twice(code, live)
    yield from _not_of_torch(code)


def _not_of_torch(code: ScriptFacts) -> Iterator[Finding]:
    """Report what asks the default group of torch.distributed in a script of SMDDP's first interface."""
    groups = list(code.roles("group"))
    begin = next((e for e in groups if e.name == f"{SMDDP}.init_process_group" and not e.detached), None)
    if begin is None or code.managed or code.imports(SMDDP, certain=True) is None:
        return
    if any(not e.name.startswith(SMDDP) for e in groups) or any(map(_may_join, code.events)):
        return
    old = code.job is not None and _FIRST_SMDDP.search(code.job.image or "")
    for event in code.events:
        sampler = event.name.startswith(_OF_GROUP) and event.last == "DistributedSampler" and not _given(event)
        asks = event.role in _ASKS or event.role == "collective"
        if event.detached or not (sampler or (asks and event.name.startswith("torch.distributed."))):
            continue
        decorated = any(name.startswith("@") for name in set(event.contexts) - _PLAIN - _NO_GRAPH)
        caught = any(isinstance(node, ast.Try) for node in ancestors(event.module, event.node))
        if decorated or caught or any(guard.kind not in OF_RANK for guard in event.guards):
            continue
        what = f"`{event.text}` uses torch.distributed, but `{begin.text}` in line {begin.line} initialises only the "
        what += "library's own module"
        yield at(NOT_OF_TORCH, event, what, None if old else "warning")
        return


def _may_join(event: Event) -> bool:
    """Return whether a library's function may join the processes, as far as its name says."""
    own = event.name.startswith(("script.", SMDDP)) or event.last == "init"
    return not own and _JOINS.search(event.last) is not None


def _at(event: Event, message: str) -> Finding:
    return at(NOT_JOINED, event, f"`{ast.unparse(event.node)[:60]}` {message}")


def _before(code: ScriptFacts, prefix: str, begin: Event) -> Iterator[Finding]:
    for event in code.events[: begin.order]:
        if event.detached or not event.name.startswith((prefix, *_OF_GROUP)):
            if prefix == "torch.distributed." and _may_join(event):
                return
            continue
        if event.name.startswith(_OF_GROUP) and prefix != "torch.distributed.":
            continue
        asks = event.role in _ASKS or bool(collective(event)) or event.name == prefix or event.last.startswith("Distri")
        if event.role == "group" or "launcher" in event.name or event.last == "get_node_local_rank":
            return
        if not asks or event.guards or set(event.contexts) - _PLAIN or _given(event) or event.excludes(begin):
            continue
        yield _at(event, f"comes before `{ast.unparse(begin.node)[:40]}` in line {begin.line}")
        return


def _given(event: Event) -> bool:
    """Return whether a sampler is told its share, and so does not ask for it."""
    return event.last == "DistributedSampler" and bool(event.arg("num_replicas", 1) and event.arg("rank", 2))


def _twice(code: ScriptFacts, begins: list[Event]) -> Iterator[Finding]:
    if code.spawns is not None:
        return
    ends = [e.order for e in code.ran("destroy_process_group", live=True)]
    for first, second in pairwise(begins):
        between = any(first.order < order < second.order for order in ends)
        if between or first.node is second.node or second.under("world", "error", "other", "flag", "own", "clock"):
            continue
        if first.under("world", "error", "other", "flag", "own", "clock") or first.excludes(second):
            continue
        yield _at(second, f"after the group of line {first.line}")
        return
