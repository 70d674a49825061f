"""What kind of training a script does; all rules share these answers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from trainwright.preflight.reader import Script
from trainwright.preflight.syntax import Call, ScriptCode, first
from trainwright.sagemaker.distribution import Launcher
from trainwright.sagemaker.job import Job

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
    "trl",
    "sentence_transformers",
    "setfit",
)


class ScriptFacts(ScriptCode):
    """The syntax trees of a script, and what they and the job file say about the training.

    Args:
        script: the parsed script.
        job: the job file, if given.
    """

    def __init__(self, script: Script, job: Job | None = None) -> None:
        super().__init__(script)
        self.job = job

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
    def managed(self) -> bool:
        """Whether a trainer library does the distributed work."""
        trainer = any(
            name.rsplit(".", 1)[-1] in ("Trainer", "Seq2SeqTrainer", "SageMakerTrainer") and "transformers" in name
            for module in self.modules
            for name in module.aliases.values()
        )
        return trainer or self.imports(*MANAGERS, certain=True) is not None

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
        names = ("torch.multiprocessing.spawn", "torch_xla.distributed.xla_multiprocessing.spawn", "torch_xla.launch")
        return first(self.called(*names))

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
        return self.launcher == "xla" or (
            self.torch_xla and (spawned or self.mentions("_mp_fn", "xrt_world_size", "get_ordinal"))
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
