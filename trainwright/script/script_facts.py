"""What kind of training a script does; all rules share these answers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from trainwright.sagemaker.distribution import Launcher
from trainwright.sagemaker.job import Job
from trainwright.script.call import Call
from trainwright.script.events import Event, Exit, Guard, JobStart, Replacement
from trainwright.script.flow import Interpreter
from trainwright.script.known import DDP, FSDP
from trainwright.script.reader import Module, Script
from trainwright.script.shell import Started
from trainwright.script.syntax import Function, ScriptCode, enclosing_function, first
from trainwright.script.values import Code, Value

# Libraries that place the model, split the data and step the optimizer themselves; a script that leaves this to them
# makes no mistake.
MANAGERS = (
    "accelerate",
    "pytorch_lightning",
    "lightning",
    "deepspeed",
    "colossalai",
    "composer",
    "ignite",
    "fastai",
    "catalyst",
    "mmengine",
    "mmcv",
    "detectron2",
    "ray",
    "torchtitan",
    "torchtune",
    "trl",
    "sentence_transformers",
    "setfit",
)


class ScriptFacts(ScriptCode):
    """The syntax trees of a script, and what they and the job file say about the training.

    Args:
        script: the parsed script.
        job: the job file, if given.
        started: how a shell script starts it, if one does.
    """

    def __init__(self, script: Script, job: Job | None = None, started: Started | None = None) -> None:
        super().__init__(script)
        self.job = job
        self.started = started
        # What it gets as arguments: what the job passes, or what the shell script does; of ``unseen``, only the names.
        self.given: dict[str, Any] = dict(job.arguments) if job is not None else {}
        self.unseen: frozenset[str] = frozenset()
        if started is not None:
            self.given = (self.given if started.forwards else {}) | started.values
            self.unseen = frozenset(started.options) - frozenset(started.values)
        self.launch = JobStart()
        if job is not None:
            alone = job.launcher == "process"
            per_host = (None if self.spawns is not None else 1) if alone else job.processes_per_host
            self.launch = JobStart(
                job.launcher,
                job.hosts,
                per_host,
                job.gpus,
                self.given,
                dict(job.environment),
                dict(job.environment),
                job.instances,
            )
        self._interpreter = Interpreter(script, self.launch)

    @cached_property
    def events(self) -> list[Event]:
        """Every call of the script, in the order in which they run, with what is known of its arguments."""
        return self._interpreter.run()

    @property
    def exits(self) -> list[Exit]:
        """Where loops are left early."""
        return self._interpreter.exits if self.events else []

    @cached_property
    def _by_last(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        for event in self.events:
            found.setdefault(event.last, []).append(event)
        return found

    def ran(self, *lasts: str, live: bool = False) -> list[Event]:
        """Return the calls of functions or methods with these names, in order.

        Args:
            live: only those that the script is seen to reach from its start.
        """
        found = [event for last in lasts for event in self._by_last.get(last, ())]
        found = [event for event in found if not (live and event.detached)]
        return found if len(lasts) == 1 else sorted(found, key=lambda event: event.order)

    def roles(self, *roles: str) -> Iterator[Event]:
        """Yield the calls that have one of these roles: ``collective``, ``group``, …"""
        return (event for event in self.events if event.role in roles)

    def decided(self, value: Value | None) -> bool:
        """Return whether a value is what the job runs with: no argument that a job, if there is none, might pass."""
        return value is not None and ("flag" not in value.tags or self.job is not None)

    @property
    def incomplete(self) -> bool:
        """Whether the interpreter gave up, so that nothing can be said to be missing."""
        return bool(self.events) and self._interpreter.cut

    @cached_property
    def arguments_of_script(self) -> dict[str, Any]:
        """The values of the script's arguments."""
        return self._interpreter.arguments if self.events else {}

    def training_loader(self) -> Event | None:
        """The call that made the loader over whose batches backward is called; None if that cannot be seen."""
        made = (self.loader_of(event.over) for event in self.ran("backward", live=True))
        return next((each for each in made if each is not None), None)

    def loader(self, loop: ast.AST) -> Event | None:
        """The call that made the loader over whose batches a loop goes; None if that cannot be seen."""
        return self.loader_of(self.iterated(loop))

    def loader_of(self, value: Value | None) -> Event | None:
        """Return the call that made a loader, or that of which a value was made; None if that cannot be seen."""
        while value is not None:
            made = next((e for e in self.ran("DataLoader") if e.result is value), None)
            if made is not None:
                return made
            value = value.of
        return None

    def iterated(self, loop: ast.AST) -> Value | None:
        """Return what a loop iterates over; None for a ``while``, or if it was not reached."""
        return self._interpreter.iterated.get(loop) if self.events else None

    @cached_property
    def _makers(self) -> dict[int, Event]:
        found: dict[int, Event] = {}
        for event in self.events:
            code = event.called.code if event.called is not None else None
            if code is None or not isinstance(code.node, Function):
                found.setdefault(id(event.result), event)
        return found

    def maker(self, value: Value) -> Event | None:
        """Return the call of a library, a class or an object that made a value; None if that cannot be seen."""
        return self._makers.get(id(value))

    def returned(self, function: Code) -> Value | None:
        """Return what a function of the script returns, in the last of its calls; None if it was not reached."""
        return self._interpreter.results.get((function,)) if self.events else None

    def iterates_prepared(self) -> bool:
        """Whether the batches of some backward come from what Accelerate prepared, or that cannot be seen."""
        for event in self.ran("backward", live=True):
            seen = value = event.over
            while seen is not None and "accelerate" not in seen.tags:
                seen = seen.of
            if value is None or seen is not None:
                return True
        return False

    @property
    def misused(self) -> list[tuple[Module, ast.expr, str]]:
        """Variables of the environment whose text is used as a number or a list: file, place, variable."""
        return self._interpreter.misused if self.events else []

    @property
    def clocked(self) -> list[tuple[Module, ast.While | ast.Attribute]]:
        """Loops, and attributes that are set, for which the process's own clock decides: file, place."""
        return self._interpreter.clocked if self.events else []

    @property
    def own_loops(self) -> list[tuple[Module, ast.While]]:
        """Loops that each process ends by what it computed from its own share of the data: file, place."""
        return self._interpreter.own_loops if self.events else []

    @property
    def imported(self) -> list[tuple[str, tuple[Guard, ...]]]:
        """The libraries that the script is seen to import, with the conditions."""
        return self._interpreter.imported if self.events else []

    @property
    def uncalled(self) -> list[tuple[Module, ast.expr]]:
        """Functions that are asked whether they are true, where their results are meant: file, place."""
        return self._interpreter.uncalled if self.events else []

    @property
    def fractions(self) -> list[tuple[Module, ast.BinOp]]:
        """Where a sum over one process's share is divided by the number of all samples: file, place."""
        return self._interpreter.fractions if self.events else []

    @property
    def quotients(self) -> list[tuple[Module, ast.BinOp]]:
        """Where a number is divided by the number of one host's GPUs: file, place."""
        return self._interpreter.quotients if self.events else []

    @property
    def missing(self) -> list[tuple[Module, ast.Name, Guard]]:
        """Names that all processes read though only some have set them: file, place, condition."""
        return self._interpreter.missing if self.events else []

    @property
    def replacements(self) -> list[Replacement]:
        """Layers that are put into a model, and optimizers that take the place of others."""
        return self._interpreter.replacements if self.events else []

    @property
    def covered(self) -> list[tuple[Module, ast.Attribute, tuple[Guard, ...]]]:
        """What is asked of a wrapper, though only the model in it has it: file, place, conditions."""
        return self._interpreter.covered if self.events else []

    @property
    def needed(self) -> list[tuple[Module, ast.expr, str]]:
        """Environment variables that must be set: file, place, name."""
        return self._interpreter.needed if self.events else []

    def comes_to(self, node: ast.AST) -> bool:
        """Whether the job certainly comes to where a variable of the environment is read."""
        return bool(self.events) and node in self._interpreter.reached

    @cached_property
    def wrapped_events(self) -> list[Event]:
        """The calls that wrap a model in DDP or FSDP."""
        return [e for e in self.events if DDP.search(e.name) or FSDP.search(e.name)]

    @cached_property
    def horovod(self) -> bool:
        """Whether the script uses Horovod, or SageMaker's data parallel library for TensorFlow (the same interface)."""
        names = ("horovod", "smdistributed.dataparallel.tensorflow")
        # Where mpirun starts the processes and nothing else joins them, an import under a condition counts, too.
        chosen = self.launcher == "mpi" and self.group is None and self.wraps is None and not self.managed
        return self.imports(*names, certain=not chosen) is not None

    @cached_property
    def tensorflow(self) -> bool:
        """Whether the script trains with TensorFlow, not PyTorch."""
        return self.imports("tensorflow", "keras", certain=True) is not None and not self.backwards

    @cached_property
    def several(self) -> bool:
        """Whether several processes train together in this job (without a job: according to the script)."""
        if self.spawns is not None and self.launcher in (None, "process"):
            return True
        processes = self.launch.processes
        if processes is not None:
            return processes > 1
        if self.job is not None:
            return self.launcher != "process" or self.job.hosts > 1
        return self.group is not None or self.wraps is not None or self.horovod or self.xla_distributed or self.smp

    @cached_property
    def several_per_host(self) -> bool:
        """Whether a host has several of these processes, which share its GPUs."""
        per_host = self.launch.per_host
        if self.spawns is not None and self.launcher in (None, "process"):
            return True
        return self.several and (per_host is None or per_host > 1)

    @property
    def several_hosts(self) -> bool:
        """Whether the job has several hosts."""
        return (self.launch.hosts or 1) > 1

    @property
    def submitted(self) -> bool:
        """Whether the job file describes a job that can be submitted, not only what the script runs on."""
        job = self.job
        return job is not None and bool(job.image or job.role or job.entry_point or job.inputs)

    @property
    def checkpoints(self) -> str:
        """The folder whose contents SageMaker restores when the job starts again."""
        job = self.job
        return job.checkpoint.local_path if job is not None and job.checkpoint else "/opt/ml/checkpoints"

    @property
    def launcher(self) -> Launcher | None:
        """The launcher that starts the script; None without a job file."""
        return self.job.launcher if self.job else None

    @cached_property
    def torch_xla(self) -> bool:
        """Whether the script is written for torch_xla: it imports it unconditionally, not only if installed."""
        return self.imports("torch_xla", certain=True) is not None

    @property
    def xla(self) -> bool:
        """Whether the training runs through XLA, according to the script or the job."""
        compiler = self.job is not None and self.job.compiler is not None and self.job.compiler.enabled
        return self.torch_xla or compiler or self.launcher == "xla"

    @cached_property
    def managed_by_trainer(self) -> bool:
        """Whether transformers' Trainer does the training."""
        return any(
            name.rsplit(".", 1)[-1] in ("Trainer", "Seq2SeqTrainer", "SageMakerTrainer") and "transformers" in name
            for module in self.modules
            for name in module.aliases.values()
        )

    @cached_property
    def managed(self) -> bool:
        """Whether a trainer library does the distributed work."""
        return self.managed_by_trainer or self.imports(*MANAGERS, certain=True) is not None

    def never_called(self, *names: str) -> str:
        """Return the function that alone has calls of these names if no other word of the script names it."""
        calls = list(self.called(*names))
        helpers = [self._helper(call) for call in calls]
        if not calls or helpers[0] is None or any(each is not helpers[0] for each in helpers):
            return ""
        name = helpers[0].name
        words = {getattr(node, "id", getattr(node, "attr", "")) for m in self.modules for node in m.nodes}
        return "" if name in words or any(name in str(node.value) for _, node in self.texts) else name

    def _helper(self, call: Call) -> Function | None:
        """Return the undecorated function of a module that has the call."""
        function = enclosing_function(call.module, call.node)
        if function is None or function.decorator_list:
            return None
        return function if isinstance(call.module.parents.get(function), ast.Module) else None

    @cached_property
    def group(self) -> Call | None:
        """The call that creates the process group."""
        return first(self.called("init_process_group"))

    @cached_property
    def wraps(self) -> Call | None:
        """The call that wraps the model for data parallelism."""
        return first(self.called("DistributedDataParallel", "FullyShardedDataParallel", "fully_shard"))

    @cached_property
    def spawns(self) -> Call | None:
        """The call with which the script starts processes itself."""
        names = (
            *("torch.multiprocessing.spawn", "torch_xla.distributed.xla_multiprocessing.spawn", "torch_xla.launch"),
            *("accelerate.notebook_launcher", "accelerate.launchers.notebook_launcher"),
        )
        processes = ("multiprocessing.Process", "torch.multiprocessing.Process")  # which join a group
        started = first(self.called(*processes)) if self.launcher in (None, "process") else None
        # Accelerate's launcher of one process calls the function itself.
        calls = (c for c in self.called(*names) if "spawn" in c.last or c.constant("num_processes", 2) != 1)
        calls = (c for c in calls if c.module is self.script.entry or c.is_for_others(self.modules))
        return first(calls) or (started if self.group is not None else None)

    @property
    def distributed(self) -> bool:
        """Whether several processes train together, according to the script or the job."""
        several = self.launcher not in (None, "process")
        return several or self.group is not None or self.wraps is not None or self.xla_distributed

    @property
    def cooperates(self) -> bool:
        """Whether the script itself makes its processes work together, and is not just started several times."""
        joined = self.group is not None or self.wraps is not None
        return joined or self.managed or self.xla_distributed or self.imports("horovod", "smdistributed") is not None

    @cached_property
    def xla_distributed(self) -> bool:
        """Whether torch_xla uses several devices."""
        spawned = self.spawns is not None and "xla" in self.spawns.name
        joined = self.group is not None and "xla" in ast.unparse(self.group.node)
        return self.launcher == "xla" or (
            self.torch_xla and (spawned or joined or self.mentions("_mp_fn", "xrt_world_size", "get_ordinal"))
        )

    def chooses_device(self) -> bool:
        """Return whether the script names a numbered device: ``cuda:{rank}``, or ``torch.device("cuda", rank)``."""
        numbered = any(call.given("index", 1) is not None for call in self.called("torch.device"))
        return numbered or self.says("^cuda:")

    @cached_property
    def smp(self) -> bool:
        """Whether the script uses the model parallel library, version 1 (`smdistributed`) or 2 (`torch.sagemaker`)."""
        return self.imports("smdistributed.modelparallel", "torch.sagemaker") is not None

    def summary(self) -> dict[str, Any]:
        """Return the assumptions of the check, for the document."""
        return {
            "launcher": self.launcher,
            "hosts": self.job.hosts if self.job else None,
            "processes_per_host": self.job.processes_per_host if self.job else None,
            "xla": self.xla,
            "distributed": self.distributed,
            "managed": self.managed,
            "smp": self.smp,
        }
