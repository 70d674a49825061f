"""Processes with a share of the files each: they need the same number of steps, or a way to join those that are done.

Source: Horovod's documentation, stall inspector and join(); PyTorch's tutorial of the Join context manager.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, but, codes

JOB: dict[str, Any] = {
    "instance_type": P4D,
    "instance_count": 2,
    "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}},
}
TF: dict[str, Any] = {**JOB, "plan": {"framework": "tensorflow"}}
SHARE = "files[hvd.rank() :: hvd.size()]"
FILES = "files = sorted(tf.io.gfile.glob(os.path.join(os.environ['SM_CHANNEL_TRAIN'], '*.tfrecord')))\nmine = " + SHARE
BEGIN = (
    "import itertools\nimport os\nimport tensorflow as tf\nimport horovod.tensorflow{} as hvd\nhvd.init()\n"
    "gpus = tf.config.list_physical_devices('GPU')\ntf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')\n"
    f"{FILES}\n"
    "dataset = tf.data.TFRecordDataset(mine).map(parse).shuffle(1000).batch(32)\n"
    "model = tf.keras.Sequential([tf.keras.layers.Dense(1)])\noptimizer = tf.keras.optimizers.Adam(0.001)\n"
)
LOOP = BEGIN.format("") + (
    "@tf.function\ndef train(x, y, first):\n    with tf.GradientTape() as tape:\n        loss = error(y, model(x))\n"
    "    tape = hvd.DistributedGradientTape(tape)\n"
    "    gradients = tape.gradient(loss, model.trainable_variables)\n"
    "    optimizer.apply_gradients(zip(gradients, model.trainable_variables))\n"
    "    if first:\n        hvd.broadcast_variables(model.variables, root_rank=0)\n"
    "for epoch in range(3):\n    for step, (x, y) in enumerate(dataset):\n        train(x, y, step == 0)\n"
)
FIT = BEGIN.format(".keras") + (
    "model.compile(optimizer=hvd.DistributedOptimizer(optimizer), loss='mse')\n"
    "model.fit(dataset, epochs=3, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])\n"
)
TORCH = (
    "import os\nfrom pathlib import Path\nimport horovod.torch as hvd\nimport torch\nhvd.init()\n"
    "torch.cuda.set_device(hvd.local_rank())\n"
    "class Rows(torch.utils.data.IterableDataset):\n    def __init__(self, files):\n        self.files = files\n"
    "    def __iter__(self):\n        for file in self.files:\n            yield from torch.load(file)\n"
    "files = sorted(Path(os.environ['SM_CHANNEL_TRAIN']).glob('*.pt'))\n"
    f"loader = torch.utils.data.DataLoader(Rows({SHARE}), batch_size=32)\n"
    "model = torch.nn.Linear(2, 2).cuda()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())\n"
    "hvd.broadcast_parameters(model.state_dict(), root_rank=0)\n"
    "for x in loader:\n    optimizer.zero_grad()\n    model(x.cuda()).sum().backward()\n    optimizer.step()\n"
)
PARTS = "itertools.islice(files, hvd.rank(), None, hvd.size())"
LISTED = "[os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith('.rec')]"
OVER = "enumerate(dataset)"
DDP_JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
TAKEN = "files[rank::world]"
READ = "        for file in self.files:\n            yield from torch.load(file)\n"
STREAM = DDP.replace("model = DDP(model)\n", "") + (
    "import glob\nfrom torch.utils.data import IterableDataset\n"
    "class Rows(IterableDataset):\n    def __init__(self, folder, rank, world):\n"
    "        files = sorted(glob.glob(os.path.join(folder, '*.pt')))\n"
    f"        self.rank, self.world = rank, world\n        self.files = {TAKEN}\n"
    f"    def __iter__(self):\n{READ}"
    "rows = Rows(os.environ['SM_CHANNEL_TRAINING'], dist.get_rank(), dist.get_world_size())\n"
    "model = DDP(torch.nn.Linear(2, 2).cuda())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "loader = DataLoader(rows, batch_size=32)\n"
    "for x in loader:\n    optimizer.zero_grad()\n    model(x.cuda()).sum().backward()\n    optimizer.step()\n"
)
LATE = but(
    STREAM, f"self.files = {TAKEN}", "self.files = files", "in self.files:", "in self.files[self.rank :: self.world]:"
)
TABLE = but(
    STREAM,
    "Rows(IterableDataset)",
    "Rows(torch.utils.data.Dataset)",
    READ,
    READ + "    def __len__(self):\n        return len(self.files)\n    def __getitem__(self, i):\n"
    "        return torch.load(self.files[i])\n",
)
APART = [
    (STREAM, DDP_JOB),
    (but(STREAM, "for x in loader", "for step, x in enumerate(loader)"), DDP_JOB),
    (LATE, DDP_JOB),
    (but(STREAM, TAKEN, "[f for i, f in enumerate(files) if i % world == rank]"), DDP_JOB),
    (but(STREAM, "        self.files =", "        files.sort()\n        self.files ="), DDP_JOB),
    (LOOP, TF),
    (but(LOOP, "step, (x, y) in enumerate(dataset)", "x, y in dataset", "step == 0", "epoch == 0"), TF),
    (but(LOOP, SHARE, f"list({PARTS})"), TF),
    (but(LOOP, "TFRecordDataset(mine)", "TFRecordDataset([os.path.join('/x', name) for name in mine])"), TF),
    (but(LOOP, FILES, f"files = {LISTED}\nmine = {SHARE}"), TF),
    (FIT, TF),
    (TORCH, JOB),
]
TOGETHER = [
    (but(STREAM, "in loader:", "in itertools.islice(loader, 100):"), DDP_JOB),
    (but(STREAM, "    optimizer.zero", "    if dist.get_rank() < 0:\n        break\n    optimizer.zero"), DDP_JOB),
    (
        but(
            STREAM,
            "for x in loader:\n    optimizer.zero_grad()\n    model(x.cuda()).sum().backward()\n    optimizer.step()\n",
            "with model.join():\n    for x in loader:\n        model(x.cuda()).sum().backward()\n"
            "        optimizer.step()\n        optimizer.zero_grad()\n",
        ),
        DDP_JOB,
    ),
    (
        but(STREAM, READ, "        while True:\n            for file in self.files:\n                yield file\n"),
        DDP_JOB,
    ),
    (but(STREAM, "in self.files:", "in itertools.cycle(self.files):"), DDP_JOB),
    (but(STREAM, f"self.files = {TAKEN}", f"assert len(files) % world == 0\n        self.files = {TAKEN}"), DDP_JOB),
    (
        but(STREAM, f"self.files = {TAKEN}", f"whole = math.ceil(len(files) / world)\n        self.files = {TAKEN}"),
        DDP_JOB,
    ),
    (but(STREAM, f"self.files = {TAKEN}", "self.files = files"), DDP_JOB),
    (TABLE, DDP_JOB),
    (but(LOOP, ".batch(32)", ".repeat().batch(32).take(1000)"), TF),
    (but(LOOP, OVER, "enumerate(dataset.take(steps))"), TF),
    (but(LOOP, OVER, "enumerate(itertools.islice(dataset, steps))"), TF),
    (but(LOOP, "step, (x, y) in enumerate(dataset)", "step, (x, y) in zip(range(steps), dataset)"), TF),
    (
        but(LOOP, "train(x, y, step == 0)\n", "if step >= steps:\n            break\n        train(x, y, step == 0)\n"),
        TF,
    ),
    (but(LOOP, FILES, FILES.replace("\nmine", "\nif len(files) % hvd.size():\n    raise ValueError\nmine")), TF),
    (but(LOOP, SHARE, f"files[: len(files) // hvd.size() * hvd.size()]{SHARE.removeprefix('files')}"), TF),
    (LOOP + "hvd.join()\n", TF),
    (but(LOOP, SHARE, "files"), TF),
    (but(LOOP, "TFRecordDataset(mine)", "TFRecordDataset(files).shard(hvd.size(), hvd.rank())"), TF),
    (but(FIT, "epochs=3", "epochs=3, steps_per_epoch=100"), TF),
    (but(FIT, ".batch(32)", ".batch(32).repeat()", "epochs=3", "epochs=3, steps_per_epoch=100"), TF),
    (but(TORCH, "for x in loader:\n", "for step, x in zip(range(100), loader):\n"), JOB),
    (TORCH + "hvd.join()\n", JOB),
    (but(TORCH, SHARE, "files", "batch_size=32)", "batch_size=32)\nprint(os.path.join('a', 'b'))"), JOB),
    # What is only evaluated joins nothing in a batch.
    (LOOP.partition("for epoch")[0] + "for x, y in dataset:\n    print(model(x))\n", TF),
]


@pytest.mark.parametrize(("text", "job"), APART)
def test_processes_that_train_to_the_end_of_their_own_files(text: str, job: dict[str, Any]) -> None:
    assert "TW519" in codes(text, job), text
    assert "TW519" not in codes(text, {"instance_type": "ml.g5.2xlarge"}), text


@pytest.mark.parametrize(("text", "job"), TOGETHER)
def test_processes_that_make_the_same_number_of_steps(text: str, job: dict[str, Any]) -> None:
    assert "TW519" not in codes(text, job), text
