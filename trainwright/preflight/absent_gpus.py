"""Learning rates, batch sizes and numbers of processes that are 0 because the instance has no GPUs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.script.configurations import is_arguments
from trainwright.script.events import Event
from trainwright.script.known import OPTIMIZER
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value

NO_GPUS = Rule(
    code="TW580",
    severity="error",
    title="a learning rate, batch size or number of processes is computed from the number of GPUs, which is 0 on the "
    "job's instance",
    source="aws/sagemaker-training-toolkit, src/sagemaker_training/environment.py: SM_NUM_GPUS counts what nvidia-smi "
    "lists, and is 0 without it; #154 there counts NeuronCores apart, as SM_NUM_NEURONS",
    remedy='int(os.environ["WORLD_SIZE"]) for the processes of the job; on Trainium int(os.environ["SM_NUM_NEURONS"]) '
    "for those of a host; or max(1, …).",
)
RULES = (NO_GPUS,)
_ASKS = re.compile("gpu|cuda", re.I)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.launch.gpus != 0 or code.incomplete:
        return
    for event in code.events:
        if event.detached or event.off or any(_ASKS.search(ast.unparse(guard.node)) for guard in event.guards):
            continue
        for name, value in _numbers(event):
            if value is not None and "gpus" in value.tags and value.single() == 0:
                yield at(NO_GPUS, event, f"`{event.text}`: {name} is 0 because the instance has no GPUs")
                return


def _numbers(event: Event) -> Iterator[tuple[str, Value | None]]:
    """Yield arguments that must not be 0, with their names."""
    if event.name.startswith("script."):
        return
    if OPTIMIZER.search(event.name):
        keras = "keras" in event.name
        yield "the learning rate", event.arg("lr", None if keras else 1)
        yield "the learning rate", event.arg("learning_rate", 0 if keras else None)
    elif event.last == "DataLoader" or (event.last == "batch" and event.name.startswith("tensorflow.")):
        yield "the batch size", event.arg("batch_size", 0 if event.last == "batch" else 1)
    elif event.last == "DistributedSampler":
        yield "num_replicas", event.arg("num_replicas", 1)
    elif event.role == "group":
        yield "world_size", event.arg("world_size", 3)
    elif event.last == "spawn":
        yield "nprocs", event.arg("nprocs", 2)
    elif is_arguments(event.name):
        yield "the learning rate", event.arg("learning_rate")
        yield "the batch size", event.arg("per_device_train_batch_size")
