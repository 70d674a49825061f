"""DeepSpeed's engine and ZeRO's stage 3: each mistake beside its nearest right way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, findings
from trainwright.core.records import parse_record
from trainwright.preflight.preflight import examine
from trainwright.sagemaker.job import Job
from trainwright.script.reader import Reader

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
ENGINE = """
import os
import deepspeed
import torch
config = {config}
optimizer = torch.optim.AdamW(model.parameters())
rates = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
{made} = deepspeed.initialize(model=model, optimizer=optimizer, {given}config=config)
for batch in loader:
    loss = engine(batch).mean()
    engine.backward(loss)
    engine.step()
    {more}
"""
PLAIN = {"config": "{}", "made": "engine, _, _, _", "given": "", "more": "pass"}
BLOCK = """
import deepspeed
import torch
with deepspeed.zero.Init():
    model = torch.nn.Linear(8, 8)
{around}:
    {change}
"""
GATHERED = "with deepspeed.zero.GatheredParameters(model.weight{rank})"
PLUGIN = """
import torch
from accelerate import Accelerator, {plugin}
accelerator = Accelerator({given})
model, loader = accelerator.prepare(torch.nn.Linear(8, 8), loader)
for batch in loader:
    accelerator.backward(model(batch).mean())
if accelerator.is_main_process:
    torch.save(accelerator.get_state_dict(model), "/opt/ml/model/m.pt")
"""


def found(text: str, code: str) -> list[str]:
    return [f.severity for f in findings(text, JOB) if f.code == code]


@pytest.mark.parametrize(
    "changed",
    [
        {"given": "lr_scheduler=rates, ", "more": "rates.step()"},
        {"given": "lr_scheduler=rates, ", "made": "engine, _, _, rates", "more": "rates.step()"},
        {"made": "engine, _, _, rates", "config": "{'scheduler': {'type': 'WarmupLR'}}", "more": "rates.step()"},
    ],
    ids=["given", "returned", "configured"],
)
def test_a_schedule_that_the_engine_steps(changed):
    assert found(ENGINE.format(**PLAIN | changed), "TW564") == ["error"]


@pytest.mark.parametrize(
    "changed",
    [
        {"more": "rates.step()"},
        {"given": "lr_scheduler=rates, "},
        {"given": "lr_scheduler=None, ", "more": "rates.step()"},
    ],
    ids=["by hand", "by the engine", "none"],
)
def test_a_schedule_that_is_stepped_once(changed):
    assert found(ENGINE.format(**PLAIN | changed), "TW564") == []


@pytest.mark.parametrize(
    "change",
    [
        "model.weight.data.normal_()",
        "torch.nn.init.zeros_(model.weight)",
        "model.weight.data = torch.zeros(8, 8)",
        "model.weight.data[:4] += 1",
    ],
)
def test_a_change_of_gathered_weights_is_dropped(change):
    assert found(BLOCK.format(around=GATHERED.format(rank=""), change=change), "TW565") == ["error"]


@pytest.mark.parametrize(
    ("around", "change"),
    [
        (GATHERED.format(rank=", modifier_rank=0"), "model.weight.data.normal_()"),
        (GATHERED.format(rank=", 0"), "torch.nn.init.zeros_(model.weight)"),
        (GATHERED.format(rank=""), "size = model.weight.size(0)"),
        (GATHERED.format(rank=""), "copy.copy_(model.weight)"),
        ("with torch.no_grad()", "model.weight.normal_()"),
    ],
)
def test_gathered_weights_that_are_read_or_handed_out(around, change):
    assert found(BLOCK.format(around=around, change=change), "TW565") == []


def test_what_is_gathered_may_have_a_name():
    """A list that was made before, of a module or of parameters."""
    named = "weights = list(model.parameters())\nwith deepspeed.zero.GatheredParameters(weights)"
    assert found(BLOCK.format(around=named, change="model.reset_parameters()"), "TW565") == ["error"]


def test_nothing_is_dropped_below_stage_3():
    text = ENGINE.format(**PLAIN | {"config": "{'zero_optimization': {'stage': 2}}"})
    change = "with deepspeed.zero.GatheredParameters(model.weight):\n    model.weight.data.normal_()\n"
    assert found(text + change, "TW565") == []


@pytest.mark.parametrize(("gathers", "severities"), [(None, ["error"]), (False, ["error"]), (True, [])])
def test_a_configuration_beside_the_script(tmp_path: Path, gathers, severities):
    zero = {"stage": 3} if gathers is None else {"stage": 3, "stage3_gather_16bit_weights_on_model_save": gathers}
    (tmp_path / "zero.json").write_text(json.dumps({"zero_optimization": zero}))
    entry = tmp_path / "train.py"
    text = ENGINE.format(**PLAIN).replace("config = {}", 'config = "zero.json"')
    entry.write_text(text + "engine.save_16bit_model(os.environ['SM_MODEL_DIR'])\n")
    made = examine(Reader().script(entry, tmp_path), parse_record(Job, JOB, "job")).findings
    assert [f.severity for f in made if f.code == "TW450"] == severities


def test_a_script_that_asks_whether_it_was_saved():
    text = ENGINE.format(**PLAIN | {"config": "{'zero_optimization': {'stage': 3}}"})
    asks = "if not engine.save_16bit_model('/opt/ml/model'):\n    engine.save_checkpoint('/opt/ml/model')\n"
    assert found(text + asks, "TW450") == []
    both = "engine.save_16bit_model('/opt/ml/model')\nengine.save_checkpoint('/opt/ml/model')\n"
    assert found(text + both, "TW450") == ["warning"]


@pytest.mark.parametrize(
    ("plugin", "options", "severities"),
    [
        ("DeepSpeedPlugin", "zero_stage=3, zero3_save_16bit_model=True", ["error"]),
        ("DeepSpeedPlugin", "zero_stage=2", []),
        ("FullyShardedDataParallelPlugin", "", ["error"]),
    ],
)
def test_the_state_of_a_model_that_is_sharded_is_a_collective(plugin, options, severities):
    """Without shards, accelerate 0.25 returns the model's own state in any process."""
    given = f"{'deepspeed' if plugin[0] == 'D' else 'fsdp'}_plugin={plugin}({options})"
    assert found(PLUGIN.format(plugin=plugin, given=given), "TW128") == severities
    assert found(PLUGIN.format(plugin=plugin, given=""), "TW128") == []


ACCUMULATED = """
import deepspeed
import torch
class Learner:
    def __init__(self, model):
        self.engine, _, _, _ = deepspeed.initialize(model=model, config={config})

    def part(self, batch, last):
        self.engine.backward(self.engine(batch).mean())
        if {test}:
            self.engine.step()

    def fit(self, loader):
        for i, batch in enumerate(loader):
            {call}
Learner(torch.nn.Linear(8, 8)).fit(loader)
"""
FOURTH = {
    "config": "{'gradient_accumulation_steps': 4}",
    "test": "last",
    "call": "self.part(batch, last=(i + 1) % 4 == 0)",
}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"call": "self.part(batch, (i + 1) % 4 == 0)"},
        {"call": "full = (i + 1) % 4 == 0\n            self.part(batch, full)"},
        {"config": "CONFIG"},
    ],
    ids=["named", "by its place", "a name", "unknown"],
)
def test_a_helper_that_steps_the_engine_after_each_nth_batch(changed):
    assert found(ACCUMULATED.format(**FOURTH | changed), "TW156") == ["error"]


@pytest.mark.parametrize(
    "changed",
    [
        {"test": "True"},
        {"config": "{'gradient_accumulation_steps': 1}"},
        {"config": "{'managed_gradient_accumulation': False}"},
        {"call": "self.part(batch, batch.is_good)"},
        {"test": "not last"},
        {"call": "self.part(batch, (i + 1) % 4 == 0)\n            self.part(batch, True)"},
        {"test": "self.engine.set_gradient_accumulation_boundary(last) or last"},
    ],
    ids=["each", "one", "unmanaged", "other", "not", "two calls", "boundary"],
)
def test_a_helper_that_steps_the_engine_as_it_should(changed):
    assert found(ACCUMULATED.format(**FOURTH | changed), "TW156") == []


HALF = """
import deepspeed
import torch
import torchvision
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, i):
        return {row}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x)

def place(images):
    return images.to("cuda")

model = {model}
data = {data}
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={config})
for images, labels in loader:
    loss = torch.nn.functional.cross_entropy(engine({given}), labels.to("cuda"))
    engine.backward(loss)
    engine.step()
"""
WHOLE = {
    "row": "self.rows[i].float(), 1",
    "model": "torchvision.models.resnet50()",
    "data": "torchvision.datasets.ImageFolder('/opt/ml/input/data/train', torchvision.transforms.ToTensor())",
    "config": "{'fp16': {'enabled': True}}",
    "given": "images.to(engine.device)",
}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"given": "images.cuda()"},
        {"given": "place(images)"},
        {"config": "{'bf16': {'enabled': True}, 'zero_optimization': {'stage': 2}}"},
        {"config": "{'fp16': {'enabled': True, 'auto_cast': False}}"},
        {"model": "Net()", "data": "Rows(torch.load('/opt/ml/input/data/train/x.pt'))"},
        {"model": "torch.nn.Sequential(torch.nn.Linear(8, 8))"},
    ],
    ids=["images", "cuda", "helper", "bf16", "auto_cast is off", "own layers", "layers"],
)
def test_weights_in_half_precision_and_inputs_in_float32(changed):
    assert found(HALF.format(**WHOLE | changed), "TW577") == ["error"]


@pytest.mark.parametrize(
    "changed",
    [
        {"given": "images.to(engine.device).half()"},
        {"given": "images.to(engine.device, torch.float16)"},
        {"given": "images.to(engine.device).type(torch.HalfTensor)"},
        {"given": "prepare(images)"},
        {"config": "{'fp16': {'enabled': True, 'auto_cast': True}}"},
        {"config": "{'fp16': {'enabled': False}}"},
        {"config": "{'bf16': {'enabled': True}, 'torch_autocast': {'enabled': True}}"},
        {"config": "{'fp16': {'enabled': 'auto'}}"},
        {"config": "CONFIG"},
        {"config": "{}"},
        {"model": "transformers.AutoModelForImageClassification.from_pretrained('google/vit')"},
        {"model": "make()"},
        {"data": "Rows(torch.load('/opt/ml/input/data/train/x.pt'))", "row": "self.rows[i], 1"},
        {"data": "load()"},
        {"model": "Net()", "row": "self.rows[i].to(self.rows.dtype), 1"},
    ],
)
def test_inputs_that_have_the_type_of_the_weights(changed):
    assert found(HALF.format(**WHOLE | changed), "TW577") == []
