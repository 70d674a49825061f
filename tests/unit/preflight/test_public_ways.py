"""What public scripts do that is right, each beside the nearest mistake: the mistake is reported, the way is not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.neighbour_scripts import ALONE, TENSORFLOW, TWO
from tests.support.public_ways import (
    ADDS,
    BACK,
    CPU,
    DEVICE,
    ENGINE,
    ENTRY,
    EVALUATED,
    FABRIC,
    FIRE,
    HELPER,
    HOROVOD,
    LIGHTNING,
    METER,
    MICRO,
    MODE,
    MODES,
    ONE,
    OPTION,
    PARTS,
    PLACES,
    RATE,
    REDUCES,
    SCALED,
    SHARED,
    SPAWNS,
    SPEED,
    STOPS,
    TEMPORARY,
    TRAINER,
    USES,
    WANDB,
)
from tests.support.training_scripts import DDP, LOOP, P4D, codes, findings, parser, write
from trainwright.preflight.preflight import preflight

OF_METHOD = DDP.replace(
    "model = DDP(model)\n",
    "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.layer = torch.nn.Linear(2, 1)\n    def forward(self, x):\n        return self.layer(x)\n"
    "    def score(self, x):\n        return self(x).mean()\n    def loss(self, out):\n        return out.mean()\n"
    "model = DDP(Net().cuda())\n",
) + LOOP.replace("model(data)", "{}")
NEIGHBOURS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    # facebookresearch/ibot, NVIDIA's SSD: the value has to be there before the step goes on.
    "a value that decides in the step": (
        "TW150",
        METER,
        METER + "    if not math.isfinite(loss.item()):\n        raise SystemExit\n",
        ONE,
    ),
    "a condition that ends nothing needs no value at each step": (
        "TW150",
        METER + "    if loss.item() > 5:\n        count += 1\n",
        LOOP + "    if count > 5:\n        count = 0\n",
        ONE,
    ),
    "a step that waits for the device anyway": (
        "TW150",
        METER,
        METER.replace("optimizer.step()", "torch.cuda.synchronize()").replace("\nfor", "import torch\nfor"),
        ONE,
    ),
    "a loss that is tested": (
        "TW150",
        METER,
        METER + "    if torch.isnan(loss).any():\n        break\n",
        ONE,
    ),
    "a metric that is computed on the processor": (
        "TW150",
        METER,
        METER + "    seen.append(labels.cpu().numpy())\n",
        ONE,
    ),
    "a profiler that an argument turns on": (
        "TW154",
        "import torch\nwith torch.autograd.profiler.emit_nvtx():\n    train()\n",
        "import torch\nwith torch.autograd.profiler.emit_nvtx(enabled=args.profile):\n    train()\n",
        ONE,
    ),
    # NVIDIA's DLRM: the wrapper is a part of what is trained.
    "a part of the model is wrapped in its place": (
        "TW124",
        ALONE + PARTS + "top = DDP(model.top)\n" + LOOP,
        ALONE + PARTS + "model.top = DDP(model.top)\n" + LOOP,
        TWO,
    ),
    # NVIDIA's nnU-Net: what is saved in another mode than the job's.
    "a mode of the script": (
        "TW141",
        DDP + MODE.format("train") + LOOP,
        DDP + MODE.format("export") + LOOP,
        TWO,
    ),
    # facebookresearch/suncet: one share is all of the data.
    "all of the data in each process": (
        "TW175",
        SHARED.format("dist.get_world_size()"),
        SHARED.format("1"),
        {"instance_type": P4D},
    ),
    # salesforce/ALBEF
    "a name with the rank in it": (
        "TW141",
        DDP + LOOP + "torch.save(model.state_dict(), '%s/part%d.pt' % (folder, 0))\n",
        DDP
        + LOOP
        + "number = dist.get_rank()\nname = '%s/part%d.pt' % (folder, number)\ntorch.save(model.state_dict(), name)\n",
        TWO,
    ),
    "a progress bar": ("TW150", METER, METER + "    bar.set_postfix(loss=meter.avg)\n", ONE),
    "an epoch is a step": ("TW150", METER, METER.replace("for data in loader", "for epoch in range(9)"), ONE),
    # salesforce/BLIP: what the option says is never read.
    "an option that the script sets itself": (
        "TW190",
        OPTION + "args = p.parse_args()\nargs.distributed = True\n",
        OPTION + "args = p.parse_args()\nif x:\n    args.distributed = True\nelse:\n    args.distributed = False\n",
        ONE,
    ),
    "a library adds arguments": (
        "TW193",
        ADDS.format("pytorch_lightning", ""),
        ADDS.format("pytorch_lightning", "p = Trainer.add_argparse_args(p)"),
        {**ONE, "hyperparameters": {"lr": 0.1, "accelerator": "gpu"}},
    ),
    # karpathy/nanochat
    "a service that an argument turns on": (
        "TW416",
        WANDB.format("not first"),
        WANDB.format('args.run == "dummy" or not first'),
        TWO,
    ),
    "fire passes the hyperparameters": (
        "TW142",
        FIRE.replace("output_dir +", '"results" +'),
        FIRE,
        {**ONE, "hyperparameters": {"output_dir": "/opt/ml/model"}},
    ),
    "DeepSpeed reads the local rank": ("TW123", SPEED.format("args"), SPEED.format("engine"), TWO),
    # ultralytics/yolov5
    "a list agrees the processes": (
        "TW400",
        DDP + STOPS.format("pass"),
        DDP + STOPS.format("if rank != 0:\n        stop = told[0]"),
        TWO,
    ),
    "a decorator of the script": ("TW409", EVALUATED.format("print"), EVALUATED.format("torch.no_grad()"), ONE),
    "a copy in half precision": ("TW139", SCALED.format("net"), SCALED.format("mean"), ONE),
    "the script's own schedule": ("TW407", BACK.format("pass"), BACK.format("def step(self): self.set()"), ONE),
    "layers that are the same in both modes": ("TW408", MODES.format(", torch.nn.Dropout(0.1)"), MODES.format(""), ONE),
    "a global batch that is divided": ("TW125", RATE.format(""), RATE.format(" // num_gpus"), TENSORFLOW),
    "an engine that is put aside": ("TW142", TEMPORARY.format("fork"), TEMPORARY.format("load"), ONE),
    # facebookresearch/ijepa: each process sees one GPU, and that is number 0.
    "a process that sees one GPU": (
        "TW121",
        ALONE.replace('torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))', "") + DEVICE + LOOP,
        ALONE.replace(
            'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
            'os.environ["CUDA_VISIBLE_DEVICES"] = str(devices[int(os.environ["LOCAL_RANK"])])',
        )
        + DEVICE
        + LOOP,
        TWO,
    ),
    # Mistakes that were planted in public scripts and not found.
    "the model in the wrapper": (
        "TW434",
        DDP + LOOP.replace("model(data)", "model.module(data)"),
        DDP + LOOP,
        TWO,
    ),
    "an evaluation of the model in the wrapper": (
        "TW434",
        DDP + LOOP.replace("model(data)", "model.module(data)"),
        DDP + LOOP + "with torch.no_grad():\n    for data in loader:\n        print(model.module(data))\n",
        TWO,
    ),
    "a method of the model in the wrapper": (
        "TW434",
        OF_METHOD.format("model.module.score(data)"),
        OF_METHOD.format("model(data)"),
        TWO,
    ),
    "a method of the model in the wrapper, without a graph": (
        "TW434",
        OF_METHOD.format("model.module.score(data)"),
        OF_METHOD.format("model(data)")
        + "with torch.no_grad():\n    for data in loader:\n        model.module.score(data)\n",
        TWO,
    ),
    "a method of the model in the wrapper, of what the wrapper returns": (
        "TW434",
        OF_METHOD.format("model.module.score(data)"),
        OF_METHOD.format("model.module.loss(model(data))"),
        TWO,
    ),
    "the first of the batches is synchronised": (
        "TW434",
        DDP + MICRO.format("micro == 0"),
        DDP + MICRO.format("micro == 3"),
        TWO,
    ),
    "a collective in a function of autograd": (
        "TW128",
        DDP + REDUCES.format("if dist.get_rank() == 0:\n    Reduce.apply(loss)"),
        DDP + REDUCES.format("Reduce.apply(loss)"),
        TWO,
    ),
    "the best model and nothing saved": ("TW157", TRAINER.format("no"), TRAINER.format("steps"), ONE),
    "Fabric scales": ("TW156", FABRIC.format("loss.backward()"), FABRIC.format("fabric.backward(loss)"), ONE),
    "the engine steps": ("TW156", ENGINE.format("optimizer.step()"), ENGINE.format(""), TWO),
    "a loss without its graph": (
        "TW432",
        LIGHTNING.format("pass", "return loss.detach()"),
        LIGHTNING.format("pass", "self.log('loss', loss.detach())\n        return loss"),
        ONE,
    ),
    "a name for a loss without its graph": (
        "TW432",
        LIGHTNING.format("pass", "shown = loss.item()\n        return {'loss': shown}"),
        LIGHTNING.format("pass", "shown = loss.item()\n        return {'loss': loss, 'shown': shown}"),
        ONE,
    ),
    "optimizers by hand": (
        "TW433",
        LIGHTNING.format("pass", "self.manual_backward(loss)"),
        LIGHTNING.format("self.automatic_optimization = False", "self.manual_backward(loss)"),
        ONE,
    ),
    "weights that only a restart reads": ("TW184", HOROVOD.format("if resume: "), HOROVOD.format(""), TENSORFLOW),
}


@pytest.mark.parametrize("name", list(NEIGHBOURS))
def test_the_mistake_is_reported_and_the_way_beside_it_is_not(name):
    code, wrong, right, job = NEIGHBOURS[name]
    assert code in codes(wrong, job)
    assert code not in codes(right, job)


def test_a_default_path_that_an_option_overrides_is_one_finding():
    places = [[f.line for f in findings(PLACES + line, ONE) if f.code == "TW180"] for line in USES]
    assert places == [[5], [5, 6]]


def test_on_a_processor_nothing_waits_for_a_device():
    assert "TW150" in codes(METER, ONE)
    assert "TW150" not in codes(METER, CPU)


def test_a_bool_that_the_job_sets_to_true_is_right_for_now():
    text = parser('"--lora", type=bool, default=False')
    said = {
        value: [f.severity for f in findings(text, {**ONE, "hyperparameters": {"lora": value}})]
        for value in (True, False)
    }
    assert said == {True: ["note"], False: ["error"]}


def test_only_what_is_imported_of_a_file_is_run(tmp_path):
    """A file that is a script itself: its parser, its training and what it saves are not run for one of its names."""
    write(tmp_path, train=ENTRY, helper=HELPER)
    assert [f.code for f in preflight([str(tmp_path / "train.py")]).findings] == []
    found = {f.code for f in preflight([str(tmp_path / "helper.py")]).findings}
    assert {"TW196", "TW142", "TW150"} <= found


def test_arguments_that_only_the_file_itself_parses_are_not_the_job_s(tmp_path):
    helper = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--normalize', type=bool, default=True)\n"
    helper += "def evaluate(): pass\n{}args = p.parse_args()\n"
    found = {}
    for name, guard in {"own": "if __name__ == '__main__': ", "always": ""}.items():
        folder = tmp_path / name
        folder.mkdir()
        write(folder, train="from helper import evaluate\nevaluate()\n", helper=helper.format(guard))
        found[name] = [f.code for f in preflight([str(folder / "train.py")]).findings]
    assert found == {"own": [], "always": ["TW190"]}


def test_processes_that_a_script_starts_one_by_one_train_together():
    job = {"instance_type": P4D}
    assert "TW128" in codes(SPAWNS.format("if dist.get_rank() == 0:\n        "), job)
    assert "TW128" not in codes(SPAWNS.format(""), job)
