"""What the job passes, sets and has decides which lines of a script run, and what they get."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.neighbour_scripts import TWO
from tests.support.training_scripts import DDP, LOOP, P4D, SMP_JOB, TORCHRUN, codes, parser

MPI: dict[str, Any] = {"distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}, "instance_type": P4D}
SPOT: dict[str, Any] = {
    "distribution": TORCHRUN,
    "instance_type": P4D,
    "spot": True,
    "checkpoint": {"s3_uri": "s3://bucket/checkpoints"},
    "hyperparameters": {"epochs": 3},
}
# Horovod's own way of a loop of TensorFlow 2, with the wrapper behind an argument.
TAPE = (
    parser("'--compress', action='store_true'")
    + """
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
for step, (x, y) in enumerate(data):
    with tf.GradientTape() as tape:
        loss = lost(y, model(x))
    {wrap}
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    if step == 0:
        hvd.broadcast_variables(model.variables, root_rank=0)
"""
)
RESUMED = (
    DDP
    + parser("'--resume', default=''")
    + "p.add_argument('--epochs', type=int)\nif {test}:\n    state = torch.load(args.resume)\n"
    + "    model.module.load_state_dict(state['model'])\n    optimizer.load_state_dict(state['optimizer'])\n"
    + LOOP
    + "state = {{'model': model.module.state_dict(), 'optimizer': optimizer.state_dict()}}\n"
    + "if dist.get_rank() == 0:\n    torch.save(state, '/opt/ml/checkpoints/last.pt')\n"
)
REGISTERED = (
    "import os\nif os.environ.get('USE_SMDDP', '0') == '1':\n"
    "    import smdistributed.dataparallel.torch.torch_smddp\n" + DDP.replace('"nccl"', '"smddp"') + LOOP
)
SMDDP: dict[str, Any] = {
    "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
    "instance_type": P4D,
    "instance_count": 2,
}
CHOICES = "OPTIMIZERS = {{'adamw': 1, 'sgd': 2}}\n" + parser("'--optimizer', choices={choices}")
DIVIDED = DDP.replace("model = DDP(model)\n", "") + (
    "def make(data, training):\n    sampler = None\n    if {test}:\n        sampler = DistributedSampler(data)\n"
    "    return DataLoader(data, sampler=sampler, shuffle=training and sampler is None)\n"
    "def run(loader, optimizer=None):\n    for data in loader:\n        loss = model(data)\n"
    "        if optimizer is not None:\n            loss.backward()\n            optimizer.step()\n"
    "model = DDP(model)\nrun(make(first, training=True), optimizer)\nrun(make(second, training=False))\n"
)
TRAINER = """
import os
from transformers import Trainer, TrainingArguments
FOLDER = "/opt/ml/checkpoints"
trainer = Trainer(model=model, args=TrainingArguments(output_dir=FOLDER), train_dataset=data)
{before}
trainer.train(resume_from_checkpoint={resume})
trainer.save_model(os.environ["SM_MODEL_DIR"])
"""
CHANNEL = (
    'import os\nimport torch\nFOLDER = {root}\ndef read(name):\n    return torch.load(os.path.join({parts}, "x.pt"))\n'
    "train, test = read('train'), read({name})\n"
)
BELOW = (
    "import os\nfrom pathlib import Path\nimport torch\n"
    'FOLDER = Path(os.environ.get("SM_INPUT_DIR", "/opt/ml/input")) / "data"\n'
    'state = torch.load(FOLDER / "{name}" / "x.pt")\n'
)
INPUTS: dict[str, Any] = {"inputs": {"train": "s3://bucket/train", "validation": "s3://bucket/validation"}}
BATCHES = (
    "import torch\nimport smdistributed.modelparallel.torch as smp\nfrom torch.utils.data import DataLoader\n"
    "smp.init()\noptions = {{'batch_size': 8{more}}}\nloader = DataLoader(data, **options)\n"
)
SAVED = (
    parser("'--save-dir', default={folder}")
    + "import json, os\nimport torch\nwhere = os.environ['SM_CHANNEL_TRAIN']\n"
    + LOOP
    + "torch.save(model.state_dict(), os.path.join(args.save_dir, 'model.pt'))\n"
    + "with open(os.path.join(args.save_dir, 'config.json'), 'w') as file:\n    json.dump(settings, file)\n"
)

PAIRS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "a tape that is wrapped only with an argument": (
        "TW185",
        TAPE.format(wrap="if args.compress:\n        tape = hvd.DistributedGradientTape(tape)"),
        TAPE.format(wrap="tape = hvd.DistributedGradientTape(tape)"),
        {**MPI, "plan": {"framework": "tensorflow"}, "hyperparameters": {"epochs": 3}},
    ),
    "a checkpoint that is read only with an argument": (
        "TW454",
        RESUMED.format(test="args.resume and os.path.isfile(args.resume)"),
        RESUMED.format(test="os.path.isfile('/opt/ml/checkpoints/last.pt')"),
        SPOT,
    ),
    "choices that are sorted": (
        "TW198",
        CHOICES.format(choices="sorted(OPTIMIZERS)"),
        CHOICES.format(choices="sorted({*OPTIMIZERS, 'AdamW'})"),
        {"hyperparameters": {"optimizer": "AdamW"}},
    ),
    "choices that are keys": (
        "TW198",
        CHOICES.format(choices="list(OPTIMIZERS.keys())"),
        "OPTIMIZERS = {}\nOPTIMIZERS['AdamW'] = 3\n" + parser("'--optimizer', choices=list(OPTIMIZERS.keys())"),
        {"hyperparameters": {"optimizer": "AdamW"}},
    ),
    "choices to which one is added": (
        "TW198",
        CHOICES.format(choices="OPTIMIZERS"),
        CHOICES.format(choices="OPTIMIZERS").replace("import argparse", "OPTIMIZERS['AdamW'] = 3\nimport argparse"),
        {"hyperparameters": {"optimizer": "AdamW"}},
    ),
    "a sampler for the evaluation alone": (
        "TW171",
        DIVIDED.format(test="not training"),
        DIVIDED.format(test="dist.is_initialized()"),
        TWO,
    ),
    "a folder that the job makes": (
        "TW157",
        TRAINER.format(before="resume = os.path.isdir(FOLDER)", resume="resume"),
        TRAINER.format(before="resume = os.path.isdir(FOLDER) and bool(os.listdir(FOLDER))", resume="resume"),
        SPOT,
    ),
    "a folder that the script makes": (
        "TW157",
        TRAINER.format(before="os.makedirs(FOLDER, exist_ok=True)", resume="os.path.exists(FOLDER)"),
        TRAINER.format(before="os.makedirs(FOLDER + '/logs')", resume="os.path.exists(FOLDER + '/last')"),
        {"instance_type": P4D},
    ),
    "a channel by its name below the inputs": (
        "TW181",
        CHANNEL.format(root="os.environ['SM_INPUT_DIR']", parts='FOLDER, "data", name', name="'test'"),
        CHANNEL.format(root="os.environ['SM_INPUT_DIR']", parts='FOLDER, "data", name', name="'validation'"),
        INPUTS,
    ),
    "a channel in a path that begins with a variable": (
        "TW181",
        BELOW.format(name="test"),
        BELOW.format(name="validation"),
        INPUTS,
    ),
    "a channel by its name below a constant": (
        "TW181",
        CHANNEL.format(root="'/opt/ml/input/data'", parts="FOLDER, name", name="'test/first'"),
        CHANNEL.format(root="'/opt/ml/input/data'", parts="FOLDER, name", name="chosen"),
        INPUTS,
    ),
    "an argument of a loader that is unpacked": (
        "TW177",
        BATCHES.format(more=""),
        BATCHES.format(more=", 'drop_last': True"),
        SMP_JOB,
    ),
    "a model beside a text": (
        "TW145",
        SAVED.format(folder="'artifacts'"),
        SAVED.format(folder="'/opt/ml/model'"),
        {"instance_type": "ml.g5.xlarge", "hyperparameters": {}},
    ),
}


@pytest.mark.parametrize("name", list(PAIRS))
def test_the_mistake_is_reported_and_its_neighbour_is_not(name):
    code, wrong, right, job = PAIRS[name]
    assert code in codes(wrong, job)
    assert code not in codes(right, job)


@pytest.mark.parametrize(
    ("code", "script", "job", "more"),
    [
        (
            "TW185",
            TAPE.format(wrap="if args.compress:\n        tape = hvd.DistributedGradientTape(tape)"),
            MPI,
            "compress",
        ),
        ("TW454", RESUMED.format(test="args.resume"), SPOT, "resume"),
    ],
)
def test_what_the_job_passes_is_not_a_default(code, script, job, more):
    passed = {**job, "hyperparameters": {"epochs": 3, more: "last.pt"}}
    assert code in codes(script, {**job, "hyperparameters": {"epochs": 3}})
    assert code not in codes(script, passed)


def test_what_the_job_sets_decides_an_import():
    assert "TW126" in codes(REGISTERED, SMDDP)
    assert "TW126" in codes(REGISTERED, {**SMDDP, "environment": {"USE_SMDDP": "0"}})
    assert "TW126" not in codes(REGISTERED, {**SMDDP, "environment": {"USE_SMDDP": "1"}})
    assert "TW126" not in codes(REGISTERED.replace("os.environ.get('USE_SMDDP', '0') == '1'", "wanted()"), SMDDP)
