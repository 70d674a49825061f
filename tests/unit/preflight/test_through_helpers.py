"""Mistakes whose values go through lists, mappings, dataclasses and helpers before they do harm."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.neighbour_scripts import TWO
from tests.support.training_scripts import DDP, LOOP, P4D, SMP_JOB, TORCHRUN, codes

HOSTS: dict[str, Any] = {"instance_type": "ml.p3.8xlarge", "instance_count": 2, "plan": {"framework": "tensorflow"}}
ONE = {"instance_type": "ml.p3.8xlarge", "plan": {"framework": "tensorflow"}}
HVD: dict[str, Any] = {**ONE, "distribution": {"mpi": {"enabled": True, "processes_per_host": 4}}}
PASSED: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D, "hyperparameters": {"epochs": 3}}
STOPPED = (
    DDP + "def loaders():\n    made = []\n    for rows in ('training', 'validation'):\n"
    "        sampler = DistributedSampler(data[rows])\n"
    "        made.append((DataLoader(data[rows], sampler=sampler), sampler))\n    return made\n"
    "(train, sampler), (valid, _) = loaders()\n"
    "def evaluate():\n    total, seen = 0.0, 0\n    for x in valid:\n        total += model(x).item()\n"
    "        seen += 1\n"
    "    {joined}\n    return total / seen\n"
    "for epoch in range(9):\n    sampler.set_epoch(epoch)\n    for x in train:\n        model(x).sum().backward()\n"
    "        optimizer.step()\n    if evaluate() > 3:\n        break\n"
)
COUNTED = (
    STOPPED[: STOPPED.index("for epoch")]
    + "class Patience:\n    def __init__(self, most):\n        self.most, self.lowest, self.missed = most, {first}, 0\n"
    "    def see(self, value):\n        {better}:\n            self.lowest, self.missed = value, 0\n"
    "            return True\n        self.missed += 1\n        return False\n"
    "    @property\n    def over(self):\n        return self.missed > self.most\n"
    "patience = Patience(4)\nfor epoch in range(9):\n    sampler.set_epoch(epoch)\n    for x in train:\n"
    "        model(x).sum().backward()\n        optimizer.step()\n    patience.see(evaluate())\n"
    "    if {over}:\n        break\n"
)
WAYS_TO_COUNT = {
    "an early stop, by a property that counts": ("1e9", "if value < self.lowest", "patience.over"),
    "an early stop, by a counter": ("1e9", "if value < self.lowest", "patience.missed == 4"),
    "an early stop, without a first value": (
        "None",
        "if self.lowest is None or value < self.lowest",
        "patience.over",
    ),
    "an early stop, without a first value, in two steps": (
        "None",
        "if self.lowest is None:\n            self.lowest = value\n        elif value < self.lowest",
        "patience.missed >= patience.most",
    ),
}
WHILE = (
    STOPPED[: STOPPED.index("for epoch")]
    + "epoch, missed, lowest = 0, 0, 1e9\nwhile epoch < 90 and {going}:\n    epoch += 1\n"
    "    sampler.set_epoch(epoch)\n    for x in train:\n        model(x).sum().backward()\n        optimizer.step()\n"
    "    error = evaluate()\n    if error < lowest:\n        missed, lowest = 0, error\n"
    "    else:\n        missed += 1\n"
)
JOINED = "both = torch.tensor([total, seen]).cuda(); dist.all_reduce(both); total, seen = both.tolist()"
SETTINGS = """
from dataclasses import asdict, dataclass
from transformers import Trainer, TrainingArguments
@dataclass
class Settings:
    eval_strategy: str = "steps"
    eval_steps: int = 200
    save_steps: int = {save}
arguments = TrainingArguments(output_dir="/tmp/x", load_best_model_at_end=True, **asdict(Settings()))
Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data).train()
"""
CUT = (
    "import torch\nimport smdistributed.modelparallel.torch as smp\nfrom dataclasses import dataclass\n"
    "from torch.utils.data import DataLoader\nsmp.init()\n@dataclass\nclass Loading:\n    size: int = 8\n"
    "    drop_last: bool = {last}\nloading = Loading()\n"
    "loader = DataLoader(data, loading.size, drop_last=loading.drop_last)\n"
)
PLACED = """
import os
from dataclasses import dataclass, field
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
@dataclass
class Arguments:
    epochs: int = 3
    placement: str = field(default={default})
(args,) = HfArgumentParser(Arguments).parse_args_into_dataclasses()
def options():
    made = {{"torch_dtype": "bfloat16"}}
    if args.placement:
        made["device_map"] = args.placement
    return made
model = AutoModelForCausalLM.from_pretrained("gpt2", **options())
Trainer(model=model, args=TrainingArguments(output_dir="/tmp/x"), train_dataset=data).train()
"""
GROUPED = (
    "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    "torch.distributed.init_process_group('nccl')\n"
    "def build(model):\n    plain = [p for n, p in model.named_parameters() if p.dim() < 2]\n"
    "    others = [p for n, p in model.named_parameters() if p.dim() >= 2]\n"
    "    return torch.optim.AdamW([{{'params': others}}, {{'params': plain, 'weight_decay': 0.0}}], lr=0.1)\n"
    "net = torch.nn.Linear(8, 8)\n{steps}\n" + LOOP
)
STEPPED = (
    "import torch\nimport smdistributed.modelparallel.torch as smp\nsmp.init()\n"
    "torch.cuda.set_device(smp.local_rank())\nmodel = smp.DistributedModel(torch.nn.Linear(1, 1))\n"
    "optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters()))\n"
    "def backward(loss):\n    {how}\n@smp.step\ndef step(model, x):\n    loss = model(x).mean()\n    backward(loss)\n"
    "    return loss\nfor x in loader:\n    step(model, x)\n    optimizer.step()\n"
)
CLUSTER = """
import json
import os
import tensorflow as tf
def index():
    return {index}
def join():
    hosts = json.loads(os.environ["SM_HOSTS"])
    task = {{"type": "worker", "index": index()}}
    config = {{"cluster": {{"worker": [host + ":8890" for host in hosts]}}, "task": task}}
    os.environ["TF_CONFIG"] = json.dumps(config)
    return config["task"]["index"]
me = join()
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
{train}
"""
OF_HOST = 'json.loads(os.environ["SM_HOSTS"]).index(os.environ["SM_CURRENT_HOST"])'
REPORTED = (
    "loss = strategy.run(step, args=(next(batches),))\n"
    "{guard}strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)"
)
PLACED_BY_RANK = (
    "from contextlib import contextmanager\n@contextmanager\ndef place():\n    if me == 0:\n"
    "        yield '/opt/ml/model/1'\n    else:\n        yield '/tmp/other'\n"
)
SAVED = "with place() as path:\n    model.save(path)\n"
SAVED_BY_ONE = "if me == 0:\n    with place() as path:\n        model.save(path)\n"
BACKBONE = """
import tensorflow as tf
strategy = tf.distribute.MirroredStrategy()
def encoder():
    rows = tf.keras.Input((8,))
    return tf.keras.Model(rows, tf.keras.layers.Dense(8)(rows))
def classifier(backbone):
    return tf.keras.Model(backbone.input, tf.keras.layers.Dense(1)(backbone.output))
{outside}
with strategy.scope():
    model = {made}
    model.compile(optimizer="sgd", loss="mse")
model.fit(data)
"""
METERS = (
    DDP + "from collections import defaultdict\nclass Meter:\n    def __init__(self):\n        self.total = 0.0\n"
    "    def joined(self):\n        total = torch.tensor([self.total]).cuda()\n        dist.all_reduce(total)\n"
    "        return total.item()\nmeters = defaultdict(Meter)\n"
    "def summary():\n    return {{name: meter.joined() for name, meter in meters.items()}}\n" + LOOP + "{told}\n"
)
FIELDS = (
    "import argparse, os\nfrom dataclasses import dataclass, fields\nimport torch\n@dataclass\nclass Settings:\n"
    "    out_dir: str = {folder}\n    data_dir: str = os.environ.get('SM_CHANNEL_DATA', 'data')\n"
    "parser = argparse.ArgumentParser()\nfor each in fields(Settings):\n"
    "    parser.add_argument(f'--{{each.name}}', type=each.type, default=each.default)\n"
    "settings = Settings(**vars(parser.parse_args()))\n"
    + LOOP
    + "torch.save(model.state_dict(), os.path.join(settings.out_dir, 'ckpt.pt'))\n"
)
STATEFUL = (
    "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.rnn = torch.nn.LSTM(8, 8)\n    def forward(self, x, hidden):\n"
    "        x, hidden = self.rnn(x, hidden)\n        return x, {hidden}\nmodel = Net()\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nhidden = None\nfor x in loader:\n"
    "    optimizer.zero_grad()\n    out, hidden = model(x, hidden)\n    out.sum().backward()\n    optimizer.step()\n"
)
EARLY = """
import json
import os
import tensorflow as tf
{first}
def join(hosts):
    task = {{"type": "worker", "index": hosts.index(os.environ["SM_CURRENT_HOST"])}}
    cluster = {{"cluster": {{"worker": [host + ":2222" for host in hosts]}}, "task": task}}
    os.environ["TF_CONFIG"] = json.dumps(cluster)
def main():
    join(json.loads(os.environ["SM_HOSTS"]))
    {then}
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
    model.fit(data)
main()
"""
CHOSEN = """
import horovod.tensorflow.keras as hvd
import tensorflow as tf
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
class Nothing(tf.keras.callbacks.Callback):
    pass
def chosen(make):
    {choose}
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * hvd.size())), loss="mse")
table = {{
    "first": lambda: hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    "means": hvd.callbacks.MetricAverageCallback,
    "kept": {kept},
}}
model.fit(data, callbacks=[make() for make in table.values()], validation_data=held)
"""
KEPT = "lambda: tf.keras.callbacks.ModelCheckpoint('/opt/ml/checkpoints/best.h5', save_weights_only=True)"
STOPS = "lambda: tf.keras.callbacks.EarlyStopping(patience=3)"
BY_RANK = "return make if hvd.rank() == 0 else Nothing"
CHECKED = """
import horovod.tensorflow.keras as hvd
import tensorflow as tf
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
def validation():
    {only}
    return tf.data.Dataset.from_tensor_slices(rows).batch(8)
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * hvd.size())), loss="mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
model.fit(data, callbacks=callbacks, validation_data=validation())
"""
WORKERS = "strategy = tf.distribute.MultiWorkerMirroredStrategy()"

PAIRS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "meters of a defaultdict": (
        "TW128",
        METERS.format(told="if dist.get_rank() == 0:\n    print(summary())"),
        METERS.format(told="told = summary()\nif dist.get_rank() == 0:\n    print(told)"),
        TWO,
    ),
    "arguments of a dataclass's fields": (
        "TW145",
        FIELDS.format(folder="'out'"),
        FIELDS.format(folder="'/opt/ml/model'"),
        {"instance_type": "ml.g5.xlarge", "hyperparameters": {"data_dir": "/opt/ml/input/data/data"}},
    ),
    "a hidden state that the model detaches": (
        "TW447",
        STATEFUL.format(hidden="hidden"),
        STATEFUL.format(hidden="tuple(h.detach() for h in hidden)"),
        {"instance_type": "ml.g5.xlarge"},
    ),
    "a callback of every process, through a table": (
        "TW141",
        CHOSEN.format(choose="return make", kept=f"chosen({KEPT})"),
        CHOSEN.format(choose=BY_RANK, kept=f"chosen({KEPT})"),
        HVD,
    ),
    "a callback of every process, through a table and a condition": (
        "TW141",
        CHOSEN.format(choose="return make or Nothing", kept=f"chosen({KEPT})"),
        CHOSEN.format(choose="if hvd.rank() == 0:\n        return make\n    return Nothing", kept=f"chosen({KEPT})"),
        HVD,
    ),
    "an early stop of the first process, through a table": (
        "TW400",
        CHOSEN.format(choose=BY_RANK, kept=f"chosen({STOPS})"),
        CHOSEN.format(choose=BY_RANK, kept=STOPS),
        HVD,
    ),
    "validation data of the first process": (
        "TW128",
        CHECKED.format(only="if hvd.rank() != 0:\n        return None"),
        CHECKED.format(only="if not rows:\n        return None"),
        HVD,
    ),
    "a strategy of another module's import": (
        "TW187",
        EARLY.format(first=WORKERS, then="pass"),
        EARLY.format(first="", then=WORKERS),
        HOSTS,
    ),
    "an early stop, by a share that a list of loaders gave": (
        "TW401",
        STOPPED.format(joined="pass"),
        STOPPED.format(joined=JOINED),
        TWO,
    ),
    "arguments of a dataclass": ("TW157", SETTINGS.format(save=500), SETTINGS.format(save=400), PASSED),
    **{
        name: (
            "TW401",
            COUNTED.format(joined="pass", first=first, better=better, over=over),
            COUNTED.format(joined=JOINED, first=first, better=better, over=over),
            TWO,
        )
        for name, (first, better, over) in WAYS_TO_COUNT.items()
    },
    **{
        f"a loop that goes on while {going}": (
            "TW401",
            WHILE.format(joined="pass", going=going),
            WHILE.format(joined=JOINED, going=going),
            TWO,
        )
        for going in ("missed < 4", "not missed > 3", "lowest > 0.1")
    },
    "a last batch by a default": ("TW177", CUT.format(last="False"), CUT.format(last="True"), SMP_JOB),
    "a device map by a default": ("TW158", PLACED.format(default="'auto'"), PLACED.format(default="''"), PASSED),
    "groups of parameters": (
        "TW147",
        GROUPED.format(steps="optimizer = build(net)\nmodel = FSDP(net)"),
        GROUPED.format(steps="model = FSDP(net)\noptimizer = build(model)"),
        TWO,
    ),
    "a backward of a helper": (
        "TW108",
        STEPPED.format(how="loss.backward()"),
        STEPPED.format(how="model.backward(loss)"),
        SMP_JOB,
    ),
    "the same index on every host": (
        "TW187",
        CLUSTER.format(index='int(os.environ.get("RANK", "0"))', train="model.fit(data)"),
        CLUSTER.format(index=OF_HOST, train="model.fit(data)"),
        HOSTS,
    ),
    "a reduction of the chief alone": (
        "TW128",
        CLUSTER.format(index=OF_HOST, train=REPORTED.format(guard="if me == 0:\n    ")),
        CLUSTER.format(index=OF_HOST, train=REPORTED.format(guard="")),
        HOSTS,
    ),
    "a save of the chief alone, to the place that a block gives": (
        "TW168",
        CLUSTER.format(index=OF_HOST, train=PLACED_BY_RANK + SAVED_BY_ONE),
        CLUSTER.format(index=OF_HOST, train=PLACED_BY_RANK + SAVED),
        HOSTS,
    ),
    "a save of all, to the place that a block gives": (
        "TW141",
        CLUSTER.format(
            index=OF_HOST,
            train="from contextlib import contextmanager\n@contextmanager\n"
            "def place():\n    yield '/opt/ml/model/1'\n" + SAVED,
        ),
        CLUSTER.format(index=OF_HOST, train=PLACED_BY_RANK + SAVED),
        HOSTS,
    ),
    "a backbone from outside of the scope": (
        "TW189",
        BACKBONE.format(outside="base = encoder()", made="classifier(base)"),
        BACKBONE.format(outside="", made="classifier(encoder())"),
        ONE,
    ),
    "a copy of a model from outside of the scope": (
        "TW189",
        BACKBONE.format(outside="base = encoder()", made="classifier(base)"),
        BACKBONE.format(outside="base = encoder()", made="tf.keras.models.clone_model(base)"),
        ONE,
    ),
}


@pytest.mark.parametrize("name", list(PAIRS))
def test_the_mistake_is_reported_and_its_neighbour_is_not(name):
    code, wrong, right, job = PAIRS[name]
    assert code in codes(wrong, job)
    assert code not in codes(right, job)


@pytest.mark.parametrize("given", [{}, {"MODE": "0"}])
def test_a_variable_that_the_script_sets_decides_nothing(given):
    script = "os.environ['MODE'] = chosen()\nif os.environ['MODE'] == '1':\n"
    alone = "    if dist.get_rank() == 0:\n        dist.barrier()\n"
    assert "TW128" in codes(DDP + script + alone + LOOP, {**TWO, "environment": given})
