"""Scripts whose mistakes show only if the code around them is followed: contexts, generators, classes, settings."""

from __future__ import annotations

from typing import Any

from tests.support.neighbour_scripts import TWO
from tests.support.training_scripts import DDP, P4D, SMP_JOB

Pair = tuple[str, str, str, dict[str, Any]]
ONE: dict[str, Any] = {"instance_type": P4D, "distribution": {"torch_distributed": {"enabled": True}}}
HEAD = (
    "import os\nimport torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
    "from torch.utils.data import DataLoader, DistributedSampler\n"
)
STEP = "    loss = model(x).sum()\n    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
TRAIN = "model = DDP(net)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x in loader:\n" + STEP
PLACE = (
    HEAD + "class Place:\n    def __init__(self, rank, local):\n        self.rank, self.local = rank, local\n"
    "    @classmethod\n    def read(cls):\n"
    "        rank, local = (int(os.environ[key]) for key in ('RANK', {key!r}))\n        return cls(rank, local)\n"
    "torch.cuda.set_device(Place.read().local)\ndist.init_process_group('nccl')\n" + TRAIN
)
ENTERED = (
    "class Group:\n    def __enter__(self):\n        return self\n"
    "    def __exit__(self, *error):\n        dist.destroy_process_group()\n"
    "with Group():\n    {inside}\n{after}\n"
)
MANAGER = (
    "import contextlib\n"
    "@contextlib.contextmanager\ndef first():\n    if dist.get_rank() != 0:\n        dist.barrier()\n    yield\n"
    "    if dist.get_rank() == 0:\n        dist.barrier()\n"
    "@contextlib.contextmanager\ndef alone():\n    if dist.get_rank() == 0:\n        yield\n"
    "with {name}():\n    dist.all_reduce(total)\n"
)
YIELDED = (
    "def batches(loader):\n    for x in loader:\n        yield x.cuda()\n"
    "loaders = {{name: DataLoader(rows, sampler=DistributedSampler(rows) if name != {name!r} else None)\n"
    "           for name in ('train', 'more')}}\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x in batches(loaders['train']):\n" + STEP
)
PARTIAL = (
    "import functools\nbuild = functools.partial(DataLoader, rows{more})\n"
    "loader = build(batch_size=8, sampler=DistributedSampler(rows))\n"
)
DERIVED = (
    "class Base:\n    def __init__(self, folder):\n        self.folder, self.chosen = folder, {chosen}\n"
    "class Mine(Base):\n    def __init__(self, folder):\n        super().__init__(folder)\n"
    "    def keep(self, state):\n        if self.chosen:\n            torch.save(state, self.folder + '/m.pt')\n"
    "Mine('/opt/ml/model').keep(model.module.state_dict())\n"
)
MATCHED = (
    "match dist.get_rank():\n    case {case}:\n        torch.save(model.module.state_dict(), '/opt/ml/model/m.pt')\n"
    "    case _:\n        pass\n"
)
NAMESPACE = (
    "from types import SimpleNamespace\n"
    "import smdistributed.modelparallel.torch as smp\nimport torch\nfrom torch.utils.data import DataLoader\n"
    "options = SimpleNamespace(batch={batch})\nsmp.init()\ntorch.cuda.set_device(smp.local_rank())\n"
    "model = smp.DistributedModel(net)\noptimizer = smp.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1))\n"
    "loader = DataLoader(rows, batch_size=options.batch, drop_last=True)\n"
)
MICRO: dict[str, Any] = {
    **SMP_JOB,
    "distribution": {
        "smdistributed": {"modelparallel": {"enabled": True, "parameters": {"microbatches": 4}}},
        "mpi": {"enabled": True},
    },
}
LISTED = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(args=['--output_dir', "
    "'/opt/ml/checkpoints', {more}])\nTrainer(args=args, eval_dataset=rows).train()\n"
)
LATER = (
    "from transformers import Trainer, TrainingArguments\n"
    "args = TrainingArguments(output_dir='/opt/ml/checkpoints', fp16=True)\nargs.{what}\nTrainer(args=args).train()\n"
)
DEAD = (
    "class Job:\n    def export(self):\n        torch.save(model.module.state_dict(), '/opt/ml/model/m.pt')\n"
    "    def keep(self):\n        torch.save(model.module.state_dict(), '/opt/ml/checkpoints/m.pt')\n"
    "if dist.get_rank() == 0:\n    job = Job()\n    job.keep()\n    {end}\n"
)
HOOK = (
    "import lightning as L\nclass Log(L.Callback):\n    def on_train_end(self, trainer, module):\n"
    "        if trainer.is_global_zero:\n            {what}\n"
    "trainer = L.Trainer(devices=8, num_nodes=2, callbacks=[Log()])\ntrainer.fit(net)\n"
)
OWN_TRAINER = (
    "from transformers import Trainer, TrainingArguments\nclass Weighted(Trainer):\n"
    "    def compute_loss(self, model, inputs):\n        return model(**inputs).loss\n"
    "args = TrainingArguments(output_dir='/opt/ml/checkpoints', eval_strategy='epoch', save_strategy='epoch')\n"
    "Weighted(model=net, args=args{more}).train()\n"
)
FOLLOWED: dict[str, Pair] = {
    "a class method reads the environment": ("TW129", PLACE.format(key="RANK"), PLACE.format(key="LOCAL_RANK"), TWO),
    "__exit__ destroys the group": (
        "TW442",
        DDP + ENTERED.format(inside="pass", after="dist.barrier()"),
        DDP + ENTERED.format(inside="dist.barrier()", after=""),
        TWO,
    ),
    "a context manager of the first process": (
        "TW128",
        DDP + MANAGER.format(name="alone"),
        DDP + MANAGER.format(name="first"),
        TWO,
    ),
    "loaders in a dictionary, batches of a generator": (
        "TW171",
        DDP + YIELDED.format(name="train"),
        DDP + YIELDED.format(name="none"),
        TWO,
    ),
    "arguments that partial has taken": (
        "TW176",
        DDP + PARTIAL.format(more=", shuffle=True"),
        DDP + PARTIAL.format(more=", num_workers=2"),
        TWO,
    ),
    "the base class chooses": (
        "TW141",
        DDP + DERIVED.format(chosen="True"),
        DDP + DERIVED.format(chosen="dist.get_rank() == 0"),
        TWO,
    ),
    "a pattern of match": ("TW141", DDP + MATCHED.format(case="int()"), DDP + MATCHED.format(case="0"), TWO),
    "a namespace": ("TW413", NAMESPACE.format(batch=30), NAMESPACE.format(batch=32), MICRO),
    "a list that is parsed": (
        "TW157",
        LISTED.format(more="'--bf16', '--fp16'"),
        LISTED.format(more="'--bf16'"),
        ONE,
    ),
    "a setting of a list that does not exist": (
        "TW193",
        LISTED.format(more="'--save_step', '5', '--bf17'"),
        LISTED.format(more="'--save_steps', '5'"),
        ONE,
    ),
    "a setting that is changed later": ("TW157", LATER.format(what="bf16 = True"), LATER.format(what="seed = 3"), ONE),
    "a method that nothing calls": (
        "TW145",
        DDP + TRAIN.replace("DDP(net)", "model") + DEAD.format(end="pass"),
        DDP + TRAIN.replace("DDP(net)", "model") + DEAD.format(end="job.export()"),
        TWO,
    ),
    "what Lightning gives a callback": (
        "TW128",
        HOOK.format(what="trainer.strategy.barrier()"),
        HOOK.format(what="print('done')"),
        TWO,
    ),
    "a trainer of the script's own": (
        "TW157",
        OWN_TRAINER.format(more=""),
        OWN_TRAINER.format(more=", eval_dataset=rows"),
        ONE,
    ),
}
