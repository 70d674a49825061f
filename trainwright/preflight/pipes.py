"""Channels in Pipe mode: a named pipe that one process can read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.events import Event
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import at, meant
from trainwright.preflight.values import IDENTITY

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
_OPENS = ("open", "fdopen", "fromfile", "TFRecordDataset", "FixedLengthRecordDataset", "TextLineDataset", "read_csv")
_PIPE = re.compile(r"/opt/ml/input/data/(\w+?)_(?:\d|\{)")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    given = code.job.inputs if code.job is not None else {}
    pipes = {name for name, each in given.items() if isinstance(each, dict) and each.get("input_mode") == "Pipe"}
    if not pipes or not code.several_per_host or code.incomplete:
        return
    for event in code.ran("PipeModeDataset", *_OPENS, live=True):
        channel = _channel(event)
        if channel in pipes and event.by_rank is None:
            each = code.launch.per_host or "several"
            what = f"`{ast.unparse(event.node)[:60]}` in each of {each} processes: the pipe of {channel} has one reader"
            yield at(SHARED_PIPE, (event.module, event.node), what)
            return


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
