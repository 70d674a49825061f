"""Pieces of scripts for mistakes and the right ways beside them."""

from __future__ import annotations

from typing import Any

from tests.support.training_scripts import DDP, LOOP, P4D, TORCHRUN

TWO: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
TENSORFLOW: dict[str, Any] = {
    "instance_type": P4D,
    "plan": {"framework": "tensorflow"},
    "distribution": {"mpi": {"enabled": True}},
}
HVD = """
import os
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())
"""
ALONE = DDP.replace("model = DDP(model)\n", "")
KERAS = """
import os
import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.fit(data)
model.save("/opt/ml/output/data/last")
where = os.environ["SM_MODEL_DIR"]
"""
HALF = "import torch\nmodel = torch.nn.Linear(1, 1)\nmodel.half()\n"
SCALED = "for x in data:\n    scaler.scale(model(x)).backward()\n    scaler.step(optimizer)\n    scaler.update()\n"
RANKED = (
    "import argparse, torch\nimport torch.distributed as dist\np = argparse.ArgumentParser()\n"
    "p.add_argument('--local_rank', type=int, default=0)\nargs = p.parse_args()\n"
    "dist.init_process_group('nccl')\nmodel = torch.nn.parallel.DistributedDataParallel(model)\n"
)
MIRRORED = """
import tensorflow as tf
strategy = tf.distribute.MirroredStrategy()
def make():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(optimizer=tf.keras.optimizers.Adam(), loss="mse")
    model.fit(data)
"""
BUILT = """
import tensorflow as tf
strategy = tf.distribute.MirroredStrategy()
def build():
    return tf.keras.Sequential([tf.keras.layers.Dense(1)])
"""
MADE = "    opt = tf.keras.optimizers.Adam(); model = build()\n"
COMPILED = "model.compile(optimizer=opt, loss='mse')\nmodel.fit(data)\n"
SHARES = "sampler = torch.utils.data.distributed.DistributedSampler(data, 2, {rank})\n" + LOOP
KEEPS = "from lightning.pytorch.callbacks import ModelCheckpoint\nkeep = ModelCheckpoint(dirpath='{}')\n"
WRAPPED = "net = torch.nn.parallel.DistributedDataParallel(model, device_ids=[int(os.environ['LOCAL_RANK'])])\n"
ZERO = (
    "from torch.distributed.optim import ZeroRedundancyOptimizer\n"
    "optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1)\n"
)
SMDDP = (
    "import torch\nimport smdistributed.dataparallel.torch.distributed as dist\n"
    "from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel\n"
    "dist.init_process_group()\ntorch.cuda.set_device(dist.get_local_rank())\n"
)
STEPPED = "for x in data:\n    scaler.scale(model(x)).backward()\n    {unscale}\n    optimizer.step()\n"
CHOSEN = """
import os
import tensorflow as tf
if "sagemaker_mpi_enabled" in os.environ["SM_FRAMEWORK_PARAMS"]:
    import horovod.tensorflow.keras as hvd
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
model = tf.keras.Sequential([])
model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.1 * hvd.size())), loss="mse")
"""
SKIPPED = """
import torch
import horovod.torch as hvd
hvd.init()
torch.cuda.set_device(hvd.local_rank())
opt = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size()))
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for x in DataLoader(data, sampler=DistributedSampler(data, rank=hvd.rank())):
    model(x).backward()
    {wait}
    with opt.skip_synchronize():
        opt.step()
"""
TRAINED = """
from transformers import AutoModel, Trainer, TrainingArguments
model = AutoModel.from_pretrained("bert-base-uncased"){half}
trainer = Trainer(model=model, args=TrainingArguments(output_dir="/opt/ml/model", fp16={fp16}))
trainer.train()
"""
SPAWNED = """
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
def work(rank):
    dist.init_process_group("nccl", world_size=8, rank={rank})
mp.spawn(work, nprocs=8)
"""
FILES = """
class Part(torch.utils.data.Dataset):
    def __init__(self, file):
        self.rows = open(file).readlines()
files = sorted(os.listdir("/opt/ml/input/data/train"))
loader = DataLoader(Part({file}))
"""
HVD_LOOP = (
    HVD
    + """
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
opt = tf.keras.optimizers.Adam(0.1 * hvd.size())
"""
)
TAPE = """
with tf.GradientTape() as tape:
    loss = model(data)
tape = hvd.DistributedGradientTape(tape)
opt.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
"""
ADDRESS = 'import os\nos.environ["MASTER_PORT"] = "12345"\n'
REQUIRED = 'p.add_argument("--local_rank", type=int, required=True)\n'
VERSIONED = "import torch\nif torch.__version__[0] == '1':\n    "
PARSER = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\n"
