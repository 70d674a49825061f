"""Numbers of one process, or of one host, beside those of the whole job.

Sources: Accelerate, scheduler.py; huggingface/diffusers #3954, huggingface/accelerate #2926; SageMaker's container
contract on SM_NUM_GPUS.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes, parser
from trainwright.core.records import parse_record
from trainwright.preflight.preflight import examine
from trainwright.sagemaker.job import Job
from trainwright.script.reader import Reader

JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
ONE: dict[str, Any] = {"instance_type": "ml.g5.2xlarge"}
BEGIN = (
    "import math\nimport torch\nfrom accelerate import Accelerator\nfrom transformers import get_scheduler\n"
    "from transformers import get_linear_schedule_with_warmup\naccelerator = Accelerator({given})\n"
    "model = torch.nn.Linear(2, 2)\noptimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
    "loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)\n"
)
PREPARE = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
LOOP = (
    "for epoch in range(3):\n    for x in loader:\n        accelerator.backward(model(x).sum())\n"
    "        optimizer.step()\n        schedule.step()\n        optimizer.zero_grad()\n"
)
PREPARED = "schedule = accelerator.prepare(schedule)\n"


def of(length: str) -> str:
    """A schedule of this length."""
    return f"schedule = get_scheduler('linear', optimizer, 10, {length})\n"


def script(*parts: str, given: str = "") -> str:
    """A loop of Accelerate with a schedule."""
    return BEGIN.format(given=given) + "".join(parts) + LOOP


SHORT = [
    script(PREPARE, of("3 * len(loader)"), PREPARED),
    script(PREPARE, "steps = 3 * math.ceil(len(loader) / 4)\n", of("steps"), PREPARED),
    script(PREPARE, "steps = max(1, int(3 * len(loader)))\n", of("num_training_steps=steps"), PREPARED),
    script(PREPARE, "schedule = get_linear_schedule_with_warmup(optimizer, 0, len(loader))\n", PREPARED),
    script(PREPARE, "schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=3, "
           "steps_per_epoch=len(loader))\n", PREPARED),
    script(PREPARE, "schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3 * len(loader))\n",
           "schedule = accelerator.prepare_scheduler(schedule)\n"),
    script("loader = accelerator.prepare(loader)\n", of("3 * len(loader)"),
           "model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)\n"),
    script(PREPARE, of("3 * len(loader)"), PREPARED, given="split_batches=False"),
    script("steps = 3 * math.ceil(len(loader) / accelerator.num_processes)\n", of("steps"), PREPARE, PREPARED),
]  # fmt: skip
WHOLE = [
    script(PREPARE, of("3 * len(loader)")),
    script("steps = 3 * len(loader)\n", PREPARE, of("steps"), PREPARED),
    script(of("3 * len(loader)"), PREPARE, PREPARED),
    script(PREPARE, of("3 * len(loader) * accelerator.num_processes"), PREPARED),
    script(PREPARE, "steps = 3 * len(loader)\nsteps *= accelerator.num_processes\n", of("steps"), PREPARED),
    script(PREPARE, "each = len(loader) * accelerator.num_processes\n", of("3 * math.ceil(each / 4)"), PREPARED),
    script(PREPARE, "n = accelerator.num_processes\n", of("num_training_steps=n * (3 * len(loader))"), PREPARED),
    script(PREPARE, of("3 * len(loader)"), PREPARED, given="split_batches=True"),
    script(PREPARE, of("3 * len(loader)"), PREPARED, given="step_scheduler_with_optimizer=False"),
    script(PREPARE, of("3 * len(loader)"), PREPARED, given="split_batches=args.split"),
    script(PREPARE, of("3 * len(loader)"), PREPARED, given="**settings"),
    script("from accelerate.utils import DataLoaderConfiguration\n"
           "accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))\n",
           PREPARE, of("3 * len(loader)"), PREPARED),
    script("each = math.ceil(len(loader) / accelerator.num_processes)\n", of("each * accelerator.num_processes"),
           PREPARE, PREPARED),
    script(PREPARE, of("1000"), PREPARED, "print(len(loader))\n"),
    script("import deepspeed\n", PREPARE, of("3 * len(loader)"), PREPARED),
]  # fmt: skip


@pytest.mark.parametrize("text", SHORT)
def test_a_schedule_of_the_batches_of_one_process_ends_too_early(text: str) -> None:
    assert "TW517" in codes(text, JOB), text
    assert "TW517" not in codes(text, ONE), text


@pytest.mark.parametrize("text", WHOLE)
def test_a_schedule_of_the_steps_that_are_made_is_left_alone(text: str) -> None:
    assert "TW517" not in codes(text, JOB), text


ARGUMENTS = (
    "import argparse\nimport json\nimport os\nimport torch\nfrom transformers import Trainer, TrainingArguments\n"
    "p = argparse.ArgumentParser()\np.add_argument('--{name}', type=int, default=512, help='{help}')\n"
    "args = p.parse_args()\ngpus = int(os.environ['SM_NUM_GPUS'])\nhosts = json.loads(os.environ['SM_HOSTS'])\n"
)
TRAINER = (
    "settings = TrainingArguments('/opt/ml/checkpoints', per_device_train_batch_size={size})\n"
    "trainer = Trainer(model=net, args=settings)\ntrainer.train()\ntrainer.save_model('/opt/ml/model')\n"
)
LOADER = (
    "torch.distributed.init_process_group('nccl')\nsampler = torch.utils.data.DistributedSampler(data)\n"
    "loader = torch.utils.data.DataLoader(data, batch_size={size}, sampler=sampler)\n"
)


def batch(size: str, name: str = "global_batch_size", text: str = "", end: str = TRAINER, before: str = "") -> str:
    """A script whose batch of one process is computed from an argument."""
    return ARGUMENTS.format(name=name, help=text) + before + end.format(size=size)


FUNCTION = "def each(total_batch_size):\n    return int(total_batch_size / gpus)\n"
LARGE = [
    batch("args.global_batch_size // gpus"),
    batch("int(args.global_batch_size / gpus)", end=LOADER),
    batch("args.global_batch_size // torch.cuda.device_count()"),
    batch("each(args.global_batch_size)", before=FUNCTION),
    batch("args.batch // gpus", "batch", "effective batch size of a step"),
    batch("args.batch // gpus", "batch", "batch over all processes"),
    batch("size", before="args.effective_batch = 256\nsize = args.effective_batch // gpus\n"),
]
RIGHT = [
    batch("args.global_batch_size // (gpus * len(hosts))"),
    batch("args.global_batch_size // len(hosts) // gpus"),
    batch("args.global_batch_size // gpus // len(hosts)"),
    batch("args.global_batch_size // gpus // args.hosts"),
    batch("args.global_batch_size // int(os.environ['WORLD_SIZE'])"),
    batch("of_host // gpus", before="of_host = args.global_batch_size // len(hosts)\n"),
    batch("args.global_batch_size // gpus", before="args.global_batch_size //= len(hosts)\n"),
    batch("args.batch_size // gpus", "batch_size", "batch size"),
    batch("args.batch_size // gpus", "batch_size", "total batch of all GPUs of the current node"),
    batch("args.global_batch_size // gpus", text="total batch of each host"),
    batch("args.batch_per_host // gpus", "batch_per_host", "part of the global batch of each host"),
    batch("args.global_batch_size // args.share"),
    batch("16", before="shown = args.global_batch_size // gpus\n"),
]


@pytest.mark.parametrize("text", LARGE)
def test_the_batch_of_the_job_is_divided_by_the_gpus_of_one_host(text: str) -> None:
    assert "TW518" in codes(text, JOB), text
    assert "TW518" not in codes(text, {**JOB, "instance_count": 1}), text
    assert "TW518" not in codes(text), text


@pytest.mark.parametrize("text", RIGHT)
def test_the_batch_is_divided_by_all_processes_or_is_of_one_host(text: str) -> None:
    assert "TW518" not in codes(text, JOB), text


SIZES = "train_batch_size={}, train_micro_batch_size_per_gpu={}, gradient_accumulation_steps={}"
ENGINE = (
    "import os\nimport deepspeed\nimport torch\ndeepspeed.init_distributed()\nworld = int(os.environ['WORLD_SIZE'])\n"
    "gpus = int(os.environ['SM_NUM_GPUS'])\nconfig = dict({sizes})\n"
    "engine, _, _, _ = deepspeed.initialize(model=torch.nn.Linear(2, 2), config=config{more})\n"
)


# DeepSpeed, runtime/config.py, _set_batch_related_parameters and _batch_assertion; two hosts of 8 GPUs.
@pytest.mark.parametrize(
    ("sizes", "fits"),
    [
        (SIZES.format("4 * 2 * gpus", 4, 2), False),
        (SIZES.format("4 * 2 * world", 4, 2), True),
        (SIZES.format("4 * 2 * gpus * 2", 4, 2), True),
        (SIZES.format("512", 4, 2), False),
        ("train_batch_size=64, train_micro_batch_size_per_gpu=4", True),  # no steps are gathered
        ("train_batch_size=4 * gpus, train_micro_batch_size_per_gpu=4", False),
        ("train_batch_size=128, train_micro_batch_size_per_gpu=4", True),
        ("train_batch_size=72, train_micro_batch_size_per_gpu=4", False),
        ("train_batch_size=64, gradient_accumulation_steps=2", True),
        ("train_batch_size=40, gradient_accumulation_steps=2", False),
        ("train_batch_size=64", True),
        ("train_batch_size=8", False),
        ("train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=2", True),
        (SIZES.format("'auto'", 4, 2), True),
        (SIZES.format("batch", 4, 2), True),
        ("train_batch_size=8, **more", True),
    ],
)
def test_the_batch_sizes_of_deepspeed_fit_the_processes(sizes: str, fits: bool) -> None:
    text = ENGINE.format(sizes=sizes, more="")
    assert ("TW520" in codes(text, JOB)) != fits
    assert "TW520" not in codes(ENGINE.format(sizes=sizes, more=", mpu=mpu"), JOB), (
        "the processes divide the model, too"
    )
    assert "TW520" not in codes(text, None), "nobody knows how many processes"


@pytest.mark.parametrize(("size", "fits"), [(64, False), (128, True)])
@pytest.mark.parametrize("given", ["config='ds.json'", "args=args"])
def test_a_file_of_batch_sizes_fits_the_processes(tmp_path: Path, size: int, fits: bool, given: str) -> None:
    """DeepSpeed's documentation of its arguments: --deepspeed_config of add_config_arguments names the file."""
    (tmp_path / "ds.json").write_text(f'{{"train_batch_size": {size}, "train_micro_batch_size_per_gpu": 8}}')
    options = parser("'--deepspeed_config', default='ds.json'")
    start = ENGINE.format(sizes="", more="").replace("config=config", given)
    (tmp_path / "train.py").write_text(options + start)
    made = examine(Reader().script(tmp_path / "train.py", tmp_path), parse_record(Job, JOB, "job")).findings
    assert ("TW520" in {each.code for each in made}) != fits


DIVIDED = (
    "import math\nimport torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel\n"
    "from torch.optim.lr_scheduler import LambdaLR, OneCycleLR\nfrom torch.utils.data import DataLoader\n"
    "from torch.utils.data.distributed import DistributedSampler\nfrom torchvision.datasets import ImageFolder\n"
    "dist.init_process_group('nccl')\ndata, size, world = ImageFolder(folder), 32, dist.get_world_size()\n"
    "loader = DataLoader(data, batch_size={size}, sampler=DistributedSampler(data))\n"
    "model = DistributedDataParallel(net)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "def scheduler(steps):\n    warm = int(steps * 0.1)\n"
    "    return LambdaLR(optimizer, lambda step: step / warm if step < warm else 1.0)\n"
    "schedule = {made}\nfor epoch in range(9):\n    for x in loader:\n        model(x).sum().backward()\n"
    "        optimizer.step()\n        {batch}\n    {end}\n"
)


def divided(made: str, *, size: str = "size", batch: str = "schedule.step()", end: str = "pass") -> str:
    """A training on shares of the data, with a schedule that is stepped for each batch."""
    return DIVIDED.format(made=made, size=size, batch=batch, end=end)


# PyTorch's documentation of OneCycleLR (total_steps, steps_per_epoch: len(data_loader)) and of DistributedSampler.
@pytest.mark.parametrize(
    "text",
    [
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(data) // size * 9)"),
        divided("OneCycleLR(optimizer, 0.1, epochs=9, steps_per_epoch=math.ceil(len(data) / size))"),
        divided("scheduler(len(data) // size * 9)"),
    ],
)
def test_a_schedule_over_the_batches_of_all_processes(text):
    assert "TW530" in codes(text, JOB)
    assert "TW530" not in codes(text, ONE)


@pytest.mark.parametrize(
    "text",
    [
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(loader) * 9)"),
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(data) // (size * world) * 9)"),
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(data) // size // world * 9)"),
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(data) // size * 9)", size="size // world"),
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(data) // size * 9)", batch="pass", end="schedule.step()"),
        divided("scheduler(9)"),
    ],
)
def test_schedules_over_the_batches_of_one_process(text):
    assert "TW530" not in codes(text, JOB)


# PyTorch's documentation of OneCycleLR (steps_per_epoch: len(data_loader)); chengtan9907/OpenSTL #184.
@pytest.mark.parametrize(
    "text",
    [
        divided("OneCycleLR(optimizer, 0.1, epochs=9, steps_per_epoch=len(loader) // world)"),
        divided("OneCycleLR(optimizer, 0.1, epochs=9, steps_per_epoch=max(1, len(loader) // world))"),
        divided("OneCycleLR(optimizer, 0.1, total_steps=math.ceil(9 * len(loader) / dist.get_world_size()))"),
        divided("OneCycleLR(optimizer, 0.1, 9 * len(loader) // (2 * world))"),
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(loader.sampler) // size // world * 9)"),
        divided("scheduler(len(loader) * 9 // world)"),
        divided("scheduler(9 * (len(loader) // world))"),
        divided("scheduler(len(loader) * 9 // world)", size="64 // world"),
    ],
)
def test_the_batches_of_one_process_are_divided_once_more(text):
    assert "TW576" in codes(text, JOB)
    assert "TW576" not in codes(text, ONE)


@pytest.mark.parametrize(
    "text",
    [
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(loader) * 9)"),
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(loader) * world // world * 9)"),
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(loader) // world * world * 9)"),
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(data) // size // world * 9)"),
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(loader) // (512 // (size * world)) * 9)"),
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(loader) // 4 * 9)"),
        divided(
            "OneCycleLR(optimizer, 0.1, total_steps=len(loader) * 9 // world)", batch="pass", end="schedule.step()"
        ),
        divided("OneCycleLR(optimizer, 0.1, total_steps=len(loader) * 9 // world)").replace(
            "sampler=DistributedSampler(data)", "shuffle=True"
        ),
    ],
)
def test_the_batches_of_one_process_are_divided_by_something_else(text):
    assert "TW576" not in codes(text, JOB)
