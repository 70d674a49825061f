"""What a step waits for, where results go, which options a job can pass: each mistake beside the nearest right way."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.neighbour_scripts import TENSORFLOW, TWO
from tests.support.public_ways import ONE
from tests.support.training_scripts import codes, findings, parser, write
from trainwright.core.records import parse_record
from trainwright.preflight.preflight import examine
from trainwright.sagemaker.job import Job
from trainwright.script.reader import Reader

HEAD = "import argparse, torch\nfrom torch.utils.data import DataLoader\n"
STEP = """
device = torch.device("cuda")
model = torch.nn.Linear(1, 1).to(device)
loader = DataLoader(data{workers})
for batch in loader:
    {batch}
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total += loss.item()
"""
WORKERS, BLOCKS = ", num_workers=2", 'x = batch["x"].to(device)'
# The batch waits for the device, and others load the data: nothing of the next step could run before.
WAITS = {
    "a part of the batch": BLOCKS,
    "by its name": "x, y = batch\n    x = x.cuda()",
    "each part": "x, y = (part.to(device) for part in batch)",
    "of a mapping": "x = {name: part.to(device) for name, part in batch.items()}['x']",
    "where an option says so": "x, y = batch\n    if args.gpu:\n        x = x.cuda()",
}
GOES_ON = {
    "no copy waits": (WORKERS, 'x = batch["x"].to(device, non_blocking=True)'),
    "no worker loads": ("", BLOCKS),
    "no worker loads, as the script says": (", num_workers=0", BLOCKS),
    "only the type changes": (WORKERS, "x = batch.to(torch.float16)"),
    "what the model made is moved": (WORKERS, "x = model(batch)\n    x = x.to(device)"),
}


def step(batch: str, workers: str = WORKERS) -> str:
    return HEAD + STEP.format(workers=workers, batch=batch)


@pytest.mark.parametrize("name", list(WAITS))
def test_a_fetched_value_costs_nothing_where_the_next_batch_waits_for_the_device(name):
    assert "TW150" not in codes(step(WAITS[name]), ONE)


@pytest.mark.parametrize("name", list(GOES_ON))
def test_a_fetched_value_costs_time_where_the_process_could_go_on(name):
    workers, batch = GOES_ON[name]
    assert "TW150" in codes(step(batch, workers), ONE)


def test_batches_that_an_iterator_gives_are_copied_as_well():
    loop = step(BLOCKS).replace(
        "for batch in loader:", "batches = iter(loader)\nwhile steps:\n    batch = next(batches)"
    )
    assert "TW150" not in codes(loop, ONE)
    assert "TW150" in codes(loop.replace(".to(device)\n    loss", "\n    loss"), ONE)


def test_options_for_all_loaders_count():
    packed = step(BLOCKS, ", **options").replace("loader =", "options = {'num_workers': 4}\nloader =")
    assert "TW150" not in codes(packed, ONE)
    assert "TW150" in codes(packed.replace("num_workers", "batch_size"), ONE)


def test_nothing_waits_for_a_device_that_nothing_uses():
    """As in a copy of PyTorch's tutorial on CIFAR-10: the model and its batches stay in main memory."""
    alone = step("x = batch", "").replace(".to(device)", "")
    assert "TW150" not in codes(alone, ONE)
    assert "TW150" in codes(alone.replace("model = torch.nn.Linear(1, 1)", "model = torch.nn.Linear(1, 1).cuda()"), ONE)
    assert "TW150" in codes(alone.replace("x = batch", "x = torch.ones(1, device='cuda')"), ONE)


HOROVOD = """
import os
import tensorflow as tf
import horovod.tensorflow.keras as hvd
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
def build(library=None):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.1 * hvd.size())
    if library:
        optimizer = library.DistributedOptimizer(optimizer)
    model.compile(optimizer=optimizer)
    return model
model = build({})
model.fit(data.shard(hvd.size(), hvd.rank()), callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""
SHUFFLED = """
def data(library=None):
    rows = tf.data.Dataset.from_tensor_slices(x).shuffle(1000)
    if library:
        rows = rows.shard(library.size(), library.rank())
    return rows
"""
WORKERS_JOB: dict[str, Any] = {
    "instance_type": "ml.p4d.24xlarge",
    "instance_count": 2,
    "distribution": {"multi_worker_mirrored_strategy": {"enabled": True}},
}


def test_a_branch_for_what_the_call_does_not_have_is_not_run():
    """A function wraps the optimizer only for those that give it Horovod, and the only call gives it nothing."""
    assert "TW185" in codes(HOROVOD.format(""), TENSORFLOW)
    assert "TW185" not in codes(HOROVOD.format("hvd"), TENSORFLOW)
    shuffled = HOROVOD.format("hvd").replace("model = build", SHUFFLED + "model = build")
    assert "TW427" in codes(shuffled.replace("data.shard(hvd.size(), hvd.rank())", "data(hvd)"), TENSORFLOW)
    assert "TW427" not in codes(shuffled.replace("data.shard(hvd.size(), hvd.rank())", "data()"), TENSORFLOW)


def test_a_default_that_is_a_choice_is_still_followed_on_both_sides():
    """`wrap=True` is a setting, which another call may turn off: what is under it is no dead branch."""
    chosen = (
        HOROVOD.replace("library=None", "wrap=False").replace("if library:", "if wrap:").replace("library.", "hvd.")
    )
    assert "TW185" not in codes(chosen.format(""), TENSORFLOW)


CHECKPOINT = """
import os
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
folder = os.environ["SM_MODEL_DIR"]
"""


def test_keras_writes_checkpoints_of_several_workers_on_the_chief():
    callback = CHECKPOINT + 'model.fit(data, callbacks=[tf.keras.callbacks.ModelCheckpoint(folder + "/c")])\n'
    assert "TW141" not in codes(callback, WORKERS_JOB)
    assert "TW141" in codes(CHECKPOINT + 'model.fit(data)\nmodel.save(folder + "/1")\n', WORKERS_JOB)


def test_a_run_without_an_account_needs_no_key():
    """Weights & Biases' documentation, anonymous mode; milesial/Pytorch-UNet."""
    text = 'import wandb\nwandb.init(project="x"{})\n'
    assert "TW416" not in codes(text.format(', anonymous="must"'), ONE)
    assert "TW416" in codes(text.format(', anonymous="never"'), ONE)
    assert "TW416" in codes(text.format(""), ONE)


ASIDE = """
import os, torch
model = torch.nn.Linear(1, 1)
for x in data:
    model(x).backward()
{}
"""
TRAINED = """
import os
from transformers import Trainer, TrainingArguments
trainer = Trainer(model=model, args=TrainingArguments(output_dir="/tmp/steps"), train_dataset=data)
trainer.train()
data = os.environ["SM_CHANNEL_TRAIN"]
trainer.save_model("/tmp/model")
{}
"""


@pytest.mark.parametrize(
    "call", ['(dataset, "/tmp/work/all.pt")', '(rows, "/tmp/work/cached_rows.pt")', "(rows, cache_file)"]
)
def test_prepared_data_may_be_lost_with_the_container(call):
    text = ASIDE.format(f'cache_file = "/tmp/work/rows.pt"\ntorch.save{call}')
    assert "TW142" not in codes(text, ONE)
    weights = text.replace("(dataset,", "(model.state_dict(),").replace("(rows,", "(model.state_dict(),")
    assert "TW142" in codes(weights, ONE)
    assert "TW142" in codes(ASIDE.format('torch.save(rows, "/tmp/dataset/rows.pt")'), ONE)


def test_a_model_that_the_script_uploads_itself_is_kept():
    """arunprsh/train-bert-from-scratch-on-sagemaker: S3Uploader.upload of the folder, after the model is in it."""
    upload = 'S3Uploader.upload("/tmp/model", "s3://bucket/model")'
    assert "TW145" in codes(TRAINED.format(""), ONE)
    assert "TW145" not in codes(TRAINED.format("from sagemaker.s3 import S3Uploader\n" + upload), ONE)
    before = TRAINED.replace("trainer.train()", "from sagemaker.s3 import S3Uploader\n" + upload + "\ntrainer.train()")
    assert "TW145" in codes(before.format(""), ONE)


def test_sagemaker_cannot_pass_a_long_option_with_one_dash():
    """weiaicunzai/pytorch-cifar100: `-net` is required, and the job's hyperparameter arrives as `--net`."""
    job = {**ONE, "hyperparameters": {"net": "vgg16"}}
    wrong = findings(parser('"-net", type=str, required=True'), job)
    assert {f.code for f in wrong} == {"TW193", "TW194"}
    assert any("the script has -net" in f.message for f in wrong)
    assert codes(parser('"--net", type=str, required=True'), job) == set()
    assert codes(parser('"-net", "--net", type=str, required=True'), job) == set()


def test_a_letter_has_one_dash():
    job = {**ONE, "hyperparameters": {"b": 8}}
    assert codes(parser('"-b", type=int, required=True'), job) == set()
    assert codes(parser('"-b", action="store_true"'), job) == {"TW191"}
    assert codes(parser('"-big", action="store_true"'), {**ONE, "hyperparameters": {"big": 8}}) == {"TW193"}


OPTIONS = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--task", required=True)
p.add_argument("--bf16", type=bool, default=True)
p.add_argument("--fp16", type=bool, default=False)  # {}
p.add_argument("--lora", type=bool, default=False)
p.add_argument("--rate", default=0.1)
p.add_argument("--folder", required=True)
args = p.parse_args()
"""


def test_options_with_the_same_mistake_are_one_finding():
    """The first, which names the others; another severity (the job sets it to true) is another finding."""
    job = {**ONE, "hyperparameters": {"lora": True}}
    said = [(f.code, f.severity, f.line, f.message) for f in findings(OPTIONS, job)]
    assert [each for each in said if each[0] == "TW190"] == [
        ("TW190", "warning", 5, "--bf16 False is True (and 1 more like it: --fp16)"),
        ("TW190", "note", 7, "--lora False is True"),
    ]
    assert ("TW194", "error", 4, "--task is required (and 1 more like it: --folder)") in said
    assert any(each[0] == "TW195" and each[3].startswith("--rate") for each in said)


def test_a_silenced_option_leaves_the_others():
    silenced = OPTIONS.format("trainwright: ignore[TW190] nobody passes it")
    assert [f.message for f in findings(silenced, ONE) if f.code == "TW190"] == [
        "--bf16 False is True (and 1 more like it: --lora)"
    ]


UTILS = """
import os
import torch
import torch.distributed as dist
def start():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
"""
FINDS = """
import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", {}))
"""
TOOL = """
import paths
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from core.start import start
start()
model = torch.nn.Linear(1, 1).to(torch.device("cuda"))
model = DDP(model)
for data in loader:
    model(data).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("folder", "found"), [('"lib"', True), ('"other"', False), ("folder", False)])
def test_folders_that_a_script_puts_on_its_path_are_read(tmp_path, folder, found):
    """microsoft/CvT: the GPU is selected in a module of `lib`, which `_init_paths` puts on `sys.path`."""
    write(tmp_path / "lib" / "core", start=UTILS)
    write(tmp_path / "tools", paths=FINDS.format(folder), train=TOOL)
    job = parse_record(Job, TWO, "job")
    script = Reader().script((tmp_path / "tools" / "train.py").resolve(), tmp_path.resolve())
    assert ("lib/core/start.py" in script.files) is found
    assert ("TW121" not in {f.code for f in examine(script, job).findings}) is found


def test_a_path_out_of_the_job_is_not_followed(tmp_path):
    outside = tmp_path / "lib" / "core"
    write(outside, start=UTILS)
    write(tmp_path / "job" / "tools", paths=FINDS.format('"..", "lib"'), train=TOOL)
    script = Reader().script((tmp_path / "job" / "tools" / "train.py").resolve(), (tmp_path / "job").resolve())
    assert script.files == ("tools/train.py", "tools/paths.py")
