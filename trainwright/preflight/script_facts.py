"""What kind of training a script does; the rules ask here, so that they agree on it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from trainwright.preflight.reader import Script
from trainwright.preflight.syntax import Call, ScriptCode, first
from trainwright.sagemaker.distribution import Launcher
from trainwright.sagemaker.job import Job

# Libraries that place the model, split the data and step the optimizer themselves; what a script leaves to them is
# no mistake of the script.
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
    """The trees of a script, and what they and the job file say about the training.

    Args:
        script: as it was read.
        job: the job file, where there is one.
    """

    def __init__(self, script: Script, job: Job | None = None) -> None:
        super().__init__(script)
        self.job = job

    @property
    def launcher(self) -> Launcher | None:
        """What will start the script; ``None``: no job file says."""
        return self.job.launcher if self.job else None

    @cached_property
    def torch_xla(self) -> bool:
        """The script is written for torch_xla: it imports it in any case, not only where it happens to be there."""
        return self.imports("torch_xla", certain=True) is not None

    @property
    def xla(self) -> bool:
        """The training runs through XLA, as the script or the job says."""
        compiler = self.job is not None and self.job.compiler is not None and self.job.compiler.enabled
        return self.torch_xla or compiler or self.launcher == "xla"

    @cached_property
    def managed(self) -> bool:
        """A trainer library does the distributed work."""
        trainer = any(
            name.rsplit(".", 1)[-1] in ("Trainer", "Seq2SeqTrainer", "SageMakerTrainer") and "transformers" in name
            for module in self.modules
            for name in module.aliases.values()
        )
        return trainer or self.imports(*MANAGERS, certain=True) is not None

    @cached_property
    def group(self) -> Call | None:
        """Where the process group is made."""
        return first(self.called("init_process_group"))

    @cached_property
    def wraps(self) -> Call | None:
        """Where the model is wrapped for data parallelism."""
        return first(self.called("DistributedDataParallel", "FullyShardedDataParallel", "fully_shard"))

    @cached_property
    def spawns(self) -> Call | None:
        """Where the script starts its processes itself."""
        names = ("torch.multiprocessing.spawn", "torch_xla.distributed.xla_multiprocessing.spawn", "torch_xla.launch")
        return first(self.called(*names))

    @property
    def distributed(self) -> bool:
        """Several processes train together, as the script or the job says."""
        several = self.launcher not in (None, "process")
        return several or self.group is not None or self.wraps is not None or self.xla_distributed

    @property
    def cooperates(self) -> bool:
        """The script itself makes its processes work together; one that only is started several times does not."""
        joined = self.group is not None or self.wraps is not None
        return joined or self.managed or self.xla_distributed or self.imports("horovod", "smdistributed") is not None

    @cached_property
    def xla_distributed(self) -> bool:
        """torch_xla on several devices."""
        spawned = self.spawns is not None and "xla" in self.spawns.name
        return self.launcher == "xla" or (
            self.torch_xla and (spawned or self.mentions("_mp_fn", "xrt_world_size", "get_ordinal"))
        )

    def chooses_device(self) -> bool:
        """A device with a number is made: ``cuda:{rank}``, or ``torch.device("cuda", rank)``."""
        numbered = any(call.given("index", 1) is not None for call in self.called("torch.device"))
        return numbered or self.says("^cuda:")

    @cached_property
    def smp(self) -> bool:
        """The script uses SageMaker's model parallel library, version 1 (`smdistributed`) or 2 (`torch.sagemaker`)."""
        return self.imports("smdistributed.modelparallel", "torch.sagemaker") is not None

    def summary(self) -> dict[str, Any]:
        """For the document: what was taken for granted."""
        return {
            "launcher": self.launcher,
            "hosts": self.job.hosts if self.job else None,
            "processes_per_host": self.job.processes_per_host if self.job else None,
            "xla": self.xla,
            "distributed": self.distributed,
            "managed": self.managed,
            "smp": self.smp,
        }
