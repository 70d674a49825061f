"""When processes join: what needs the process group comes after it, and it is made once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.collectives import collective
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at

NOT_JOINED = Rule(
    code="TW472",
    severity="error",
    title="the process group, or the library, is used before it is initialised, or initialised twice",
    source='torch/distributed/distributed_c10d.py: "Default process group has not been initialized, please make sure '
    'to call init_process_group" and "trying to initialize the default process group twice!"; AWS guides for SMP: '
    "smp.init() and tsm.init() come before any other call of the library",
    remedy="Initialise once, at the start of main(), before anything else asks for a rank.",
)
RULES = (NOT_JOINED,)
# Calls of libraries that join the processes themselves, as far as their names say.
_JOINS = re.compile(
    r"^(init|setup|launch|spawn)|Accelerator$|PartialState|TrainingArguments$|^Fabric$|_into_dataclasses"
)
_ASKS = ("rank", "world", "local_rank", "dp_rank", "dp_size")
# DistributedDataParallel, and DistributedSampler without its share, ask the default group.
_OF_GROUP = ("torch.nn.parallel.", "torch.utils.data.distributed.", "torch.utils.data.DistributedSampler")
# Decorators that only say how a method is called; any other may have joined the processes.
_PLAIN = frozenset(("@classmethod", "@staticmethod", "@property", "@functools.cached_property"))
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


def _at(event: Event, message: str) -> Finding:
    return at(NOT_JOINED, event, f"`{ast.unparse(event.node)[:60]}` {message}")


def _before(code: ScriptFacts, prefix: str, begin: Event) -> Iterator[Finding]:
    for event in code.events[: begin.order]:
        if event.detached or not event.name.startswith((prefix, *_OF_GROUP)):
            other = prefix == "torch.distributed."
            if other and _JOINS.search(event.last) and not event.name.startswith("script.") and event.last != "init":
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
