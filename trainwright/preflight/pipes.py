"""Channels in Pipe mode: a named pipe that one process can read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at, meant
from trainwright.script.values import IDENTITY, Value

SHARED_PIPE = Rule(
    code="TW536",
    severity="error",
    title="several processes of a host read the named pipe of one channel",
    source="AWS guide, Access Training Data: each pipe may only be read by a single process. AWS's sample "
    "sagemaker-horovod-distributed-training-tfkeras-pipemode: a dedicated input channel for each Horovod worker",
    remedy='PipeModeDataset(channel=f"train_{hvd.local_rank()}"), with a channel for each process of a host; or '
    "input_mode: FastFile, whose files every process can read.",
)
RULES = (SHARED_PIPE,)
# What opens a path; a pipe's is that of its channel, with the number of the epoch.
_OPENS = ("open", "fromfile", "read_csv")
# What opens it when samples are asked for, and what asks for them.
_LAZY = ("PipeModeDataset", "TFRecordDataset", "FixedLengthRecordDataset", "TextLineDataset")
_ASKS = ("fit", "fit_generator", "evaluate", "predict", "next", "iter", "train_on_batch")
_PIPE = re.compile(r"/opt/ml/input/data/(\w+?)_(?:\d|\{)")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    given = code.job.inputs if code.job is not None else {}
    pipes = {name for name, each in given.items() if isinstance(each, dict) and each.get("input_mode") == "Pipe"}
    if not pipes or not code.several_per_host or code.incomplete:
        return
    for event in code.ran(*_LAZY, *_OPENS, live=True):
        channel = _channel(event)
        if channel in pipes and event.by_rank is None and (event.last in _OPENS or _read_by_all(code, event)):
            each = code.launch.per_host or "several"
            what = f"`{ast.unparse(event.node)[:60]}` in each of {each} processes: the pipe of {channel} has one reader"
            yield at(SHARED_PIPE, event, what)
            return


def _read_by_all(code: ScriptFacts, made: Event) -> bool:
    """Return whether all processes ask for samples of each data set of this class."""
    asked = [e for e in code.events if not e.detached and any(v.made & made.result.made for v in _samples_of(e))]
    return bool(asked) and not any(event.by_rank for event in asked)


def _samples_of(event: Event) -> list[Value]:
    """Return the data of which a call, or the loop around it, takes samples."""
    given = [*event.args, *event.keywords.values()] if event.last in _ASKS else []
    return given if event.over is None else [*given, event.over]


def _channel(event: Event) -> object:
    """Return the channel whose pipe a call reads in every process; None if it is another one in each, or not known."""
    if event.last == "PipeModeDataset":
        name = event.arg("channel", 0)
        return name.single() if name is not None else None
    path = event.args[0] if event.args else None
    if path is None or path.tags & IDENTITY:
        return None
    known = path.single()
    text = known if isinstance(known, str) else ast.unparse(meant(event.module, event.node.args[0]))
    found = _PIPE.search(text)
    return found.group(1) if found else None
