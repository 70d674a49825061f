"""TensorFlow's strategies and Horovod: each step of their guides, left out and nearly left out.

The names are those of Horovod's documentation (usage with TensorFlow, Keras, PyTorch, Spark, Ray, elastic) and of
TensorFlow's guides (multi-worker training, saving).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, Case, but, unmet

KERAS = """
import tensorflow as tf
import horovod.tensorflow.keras as hvd
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
data = tf.data.Dataset.from_tensor_slices(rows).shard(hvd.size(), hvd.rank()).batch(32)
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
opt = tf.keras.optimizers.Adam(0.1 * hvd.size())
opt = hvd.DistributedOptimizer(opt)
model.compile(optimizer=opt, loss="mse")
model.fit(data, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""
TORCH = """
import torch
import horovod.torch as hvd
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
hvd.init()
torch.cuda.set_device(hvd.local_rank())
model = Net().cuda()
loader = DataLoader(data, sampler=DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank()))
opt = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
opt = hvd.DistributedOptimizer(opt, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(opt, root_rank=0)
for x in loader:
    opt.zero_grad()
    loss = model(x).sum()
    loss.backward()
    opt.step()
"""
MPI: dict[str, Any] = {"instance_type": P4D, "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
TWO = MPI | {"instance_count": 2}
ALONE: dict[str, Any] = {"instance_type": P4D, "distribution": {"mpi": {"enabled": True, "processes_per_host": 1}}}
SMDDP: dict[str, Any] = {
    "instance_type": P4D,
    "instance_count": 2,
    "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
}
PLAIN: dict[str, Any] = {"instance_type": P4D}
INIT = "hvd.init()\n"
FLAG = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--again', type=int)\nargs = p.parse_args()\n"
HOSTS = "import json, os\nhosts = json.loads(os.environ['SM_HOSTS'])\n"
PIN = 'tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")\n'
WRAP = "opt = hvd.DistributedOptimizer(opt)\n"
TAPE = "tape = hvd.DistributedGradientTape(tape)\n"
WRAPPED = "wrapped = hvd.DistributedOptimizer(opt)\n"
SENT_BY_HAND = (
    "hvd.broadcast_variables(model.variables, root_rank=0)\nhvd.broadcast_variables(opt.variables, root_rank=0)"
)
SHARD = ".shard(hvd.size(), hvd.rank())"
SLICED = ("(rows)", "(rows[first:])", "hvd.init()")  # and what is put in the place of the last
ENDLESS = ".shuffle(100).repeat()"
SENT = "callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)]"
FIT = f"model.fit(data, {SENT})"
TORCH_PIN = "torch.cuda.set_device(hvd.local_rank())\n"
TORCH_WRAP = "opt = hvd.DistributedOptimizer(opt, named_parameters=model.named_parameters())\n"
TORCH_SENT = "hvd.broadcast_parameters(model.state_dict(), root_rank=0)\n"
TORCH_SHARE = ", sampler=DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())"


def sdp(*edits: str) -> str:
    """The same training with SageMaker's data parallel library for TensorFlow."""
    text = but(KERAS, "horovod.tensorflow.keras as hvd", "smdistributed.dataparallel.tensorflow as sdp", "hvd.", "sdp.")
    return but(text, *edits)


UNSENT = but(KERAS, f", {SENT}", "")
UNPINNED = but(KERAS, PIN, "")
UNREDUCED = but(KERAS, WRAP, "")
TORCH_UNPINNED = but(TORCH, TORCH_PIN, "")
TORCH_UNREDUCED = but(TORCH, TORCH_WRAP, "")

STEPPED = [("TW184", True, but(UNSENT, "model.fit(data)", step), MPI) for step in (
    "model.fit(data)", "model.fit_generator(data)", "opt.apply_gradients(pairs)", "opt.minimize(loss)",
    "estimator.train(read)",
)] + [("TW184", False, but(UNSENT, "model.fit(data)", step), MPI) for step in (
    "model.evaluate(data)", "from work import train\ntrain(data)", "import work\nwork.train(data)",
)]  # fmt: skip
INITS: list[Case] = [
    ("TW182", True, but(KERAS, INIT, ""), MPI),
    ("TW182", 5, but(KERAS, INIT, ""), None),
    ("TW182", True, but(TORCH, INIT, ""), MPI),
    ("TW182", True, sdp("sdp.init()\n", ""), SMDDP),
    ("TW182", False, KERAS, MPI),
    ("TW182", False, sdp(), SMDDP),
    # What starts the processes calls it.
    ("TW182", False, but(TORCH, INIT, "import pytorch_lightning as pl\n"), MPI),
    ("TW182", False, but(TORCH, INIT, "import lightning as L\n"), MPI),
    ("TW182", False, but(KERAS, INIT, "from horovod.ray import RayExecutor\nRayExecutor(settings).start()\n"), MPI),
    ("TW182", False, but(KERAS, INIT, "import horovod.spark\nhorovod.spark.run(work)\n"), MPI),
    ("TW182", False, but(KERAS, INIT, "", FIT, "model.predict(data)"), MPI),
    ("TW182", False, "import tensorflow as tf\nimport horovod.tensorflow as hvd\nmodel.fit(data)\n", MPI),
]
LAUNCHERS: list[Case] = [
    ("TW187", 4, KERAS, {"instance_type": P4D, "distribution": TORCHRUN}),
    ("TW187", True, KERAS, PLAIN),
    ("TW187", False, KERAS, MPI),
    ("TW187", False, KERAS, SMDDP),
    ("TW187", False, KERAS, None),
    ("TW187", 4, sdp(), MPI),
    ("TW187", False, f"{KERAS}if args.sdp:\n    import smdistributed.dataparallel.tensorflow as sdp\n", MPI),
    ("TW187", False, sdp(), SMDDP),
    ("TW187", False, sdp(), None),
    # With one process, nothing is to be shared.
    ("TW184", False, UNSENT, ALONE),
    ("TW184", True, UNSENT, None),
]
PINS: list[Case] = [
    ("TW183", 4, UNPINNED, MPI),
    ("TW183", True, UNPINNED, None),
    ("TW183", False, UNPINNED, MPI | {"instance_type": "ml.c5.xlarge"}),
    ("TW183", False, UNPINNED, ALONE | {"instance_count": 2}),
    ("TW183", False, UNPINNED + "device = 'cpu'\n", MPI),
    *[("TW183", False, but(KERAS, PIN, f"{pin}\n"), MPI) for pin in (
        "tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], 'GPU')",
        "config.gpu_options.visible_device_list = str(hvd.local_rank())",
        "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = str(hvd.local_rank())",
    )],
    ("TW183", True, TORCH_UNPINNED, MPI),
    ("TW183", False, TORCH, MPI),
    ("TW183", True, but(TORCH_UNPINNED, "Net().cuda()", "Net().to('cuda')"), MPI),
    ("TW183", False, but(TORCH_UNPINNED, "Net().cuda()", "Net()"), MPI),
    ("TW183", False, but(TORCH_UNPINNED, "Net().cuda()", "Net().cuda(hvd.local_rank())"), MPI),
    ("TW183", False, but(TORCH_UNPINNED, "Net().cuda()", "Net().cuda().to(hvd.local_rank())"), MPI),
    ("TW183", False, but(TORCH_UNPINNED, "Net()", "device = torch.device('cuda', hvd.local_rank())\nmodel = Net()"),
     MPI),
    ("TW183", True, but(TORCH_UNPINNED, "Net().cuda()", "Net().cuda(hvd.rank())"), MPI),
    # The function that selects the GPU is never called.
    ("TW183", True, but(KERAS, PIN, f"def pin():\n    {PIN}"), MPI),
    ("TW183", False, but(KERAS, PIN, f"def pin():\n    {PIN}pin()\n"), MPI),
    ("TW183", True, but(TORCH, TORCH_PIN, f"def pin():\n    {TORCH_PIN}"), MPI),
    # The same GPU in every process, or the GPU of the global rank.
    *[("TW183", reported, but(KERAS, PIN, f"{pin}\n"), TWO) for reported, pin in (
        (True, "tf.config.set_visible_devices(gpus[0], 'GPU')"),
        (True, "tf.config.set_visible_devices(gpus[hvd.rank()], 'GPU')"),
        (True, "mine = hvd.rank()\ntf.config.set_visible_devices(gpus[mine], 'GPU')"),
        (False, "mine = hvd.local_rank()\ntf.config.set_visible_devices(gpus[mine], 'GPU')"),
        (False, "tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')"),
        (False, "tf.config.set_visible_devices([gpus[hvd.local_rank()]], device_type='GPU')"),
        (False, "tf.config.set_visible_devices(gpus[index], 'GPU')"),
        (True, "tf.config.set_visible_devices(groups[0][pick(hvd.rank())], 'GPU')"),
        (False, "tf.config.set_visible_devices(groups[0][pick(hvd.local_rank())], 'GPU')"),
        (False, "mine = hvd.local_rank()\ntf.config.set_visible_devices([groups[0][mine]], 'GPU')"),
        (True, "config.gpu_options.visible_device_list = '0'"),
        (True, "config.gpu_options.visible_device_list = str(hvd.rank())"),
        (False, "config.gpu_options.visible_device_list = str(hvd.rank() % 8)"),
        (False, "config.gpu_options.visible_device_list = str(hvd.local_rank())"),
        (True, "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'"),
        (False, "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = mine"),
        (False, "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = 'all'"),
        (False, "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = str(hvd.local_rank())\nworkers = '4'"),
    )],
    ("TW183", False, f"{KERAS}def first():\n    tf.config.set_visible_devices(gpus[0], 'GPU')\n", MPI),
    ("TW183", False, but(KERAS, PIN, "tf.config.set_visible_devices(gpus[hvd.rank()], 'GPU')\n"), MPI),
    ("TW183", False, but(KERAS, PIN, "config.gpu_options.visible_device_list = str(hvd.rank())\n"), MPI),
    ("TW183", False, but(KERAS, PIN, "tf.config.set_visible_devices(gpus[0], 'GPU')\n"), ALONE | {"instance_count": 2}),
    ("TW183", True, but(KERAS, PIN, "tf.config.set_visible_devices(gpus[0], 'GPU')\n"),  # IndexError
     MPI | {"instance_type": "ml.c5.xlarge"}),
]  # fmt: skip
REDUCED: list[Case] = [
    ("TW185", True, UNREDUCED, MPI),
    ("TW185", False, KERAS, MPI),
    *[("TW185", False, but(UNREDUCED, "model.compile", f"{words}\nmodel.compile", 'optimizer=opt, loss="mse"', ""), MPI)
      for words in (
        "tape = hvd.DistributedGradientTape(tape)", "opt = hvd.DistributedAdasumOptimizer(opt)",
        "trainer = hvd.DistributedTrainer(params, 'sgd')",
        "gradients = [hvd.allreduce(each) for each in gradients]", "gradients = hvd.grouped_allreduce(gradients)",
        "mean = hvd.allreduce(flat_gradient)", "mean = hvd.allreduce(rows)\nmean = hvd.allreduce(gradients, True)",
        "parts = [v.grad for v in model.variables]\nhvd.grouped_allreduce(parts, True)",
        "handle = hvd.allreduce_async(gradients)", "opt = wrapped(opt, by=hvd.DistributedOptimizer)",
    )],
    ("TW185", False, but(UNREDUCED, "opt = tf", "opt = wrapped(by=hvd.DistributedOptimizer)\nother = tf"), MPI),
    ("TW185", False, but(UNREDUCED, "model.compile", f"{TAPE}model.compile"), MPI),
    ("TW185", False, but(UNREDUCED, "model.compile",
                         f"{TAPE}two = hvd.DistributedOptimizer(two)\nmodel.compile"), MPI),
    ("TW185", False, f"{KERAS}def other():\n    model.compile(optimizer=tf.keras.optimizers.Adam())\n", MPI),
    ("TW185", True, but(UNREDUCED, "model.compile", "hvd.allgather(gradients)\nmodel.compile"), MPI),
    ("TW185", True, but(UNREDUCED, "model.compile", "hvd.allreduce(accuracy)\nmodel.compile"), MPI),
    ("TW185", True, TORCH_UNREDUCED, MPI),
    *[("TW185", False, but(TORCH_UNREDUCED, "    opt.step()", f"    {words}\n    opt.step()"), MPI) for words in (
        "for p in model.parameters():\n        p.grad = hvd.allreduce(p.grad)",
        "for p in model.parameters():\n        hvd.allreduce_(p)",
        "pieces = [p.grad for p in model.parameters()]\n    hvd.grouped_allreduce_(pieces)",
    )],
    # Wrapped on several hosts alone.
    ("TW185", True, but(KERAS, WRAP, HOSTS + f"if len(hosts) > 1:\n    {WRAP}"), MPI),
    ("TW185", False, but(KERAS, WRAP, HOSTS + f"if len(hosts) > 1:\n    {WRAP}"), TWO),
    # A model that is compiled with the optimizer itself.
    ("TW185", True, but(KERAS, WRAP, WRAPPED), MPI),
    ("TW185", True, but(KERAS, WRAP, WRAPPED, "optimizer=opt, ", "opt, "), MPI),
    ("TW185", False, but(KERAS, WRAP, WRAPPED, "optimizer=opt", "optimizer=wrapped"), MPI),
    ("TW185", False, but(KERAS, WRAP, f"{WRAP}{TAPE}"), MPI),
    ("TW185", False, but(KERAS, WRAP, WRAPPED, "optimizer=opt", "optimizer=given()"), MPI),
    ("TW185", False, but(KERAS, WRAP, WRAPPED, "optimizer=opt, ", ""), MPI),
    # Without synchronize, skip_synchronize leaves the gradients as they are.
    ("TW185", True, but(TORCH, "    opt.step()", "    with opt.skip_synchronize():\n        opt.step()"), MPI),
    ("TW185", True, but(TORCH, "    opt.step()",
                        "    torch.cuda.synchronize()\n    with opt.skip_synchronize():\n        opt.step()"), MPI),
    ("TW185", False, but(TORCH, "    opt.step()",
                         "    opt.synchronize()\n    with opt.skip_synchronize():\n        opt.step()"), MPI),
    ("TW185", False, but(TORCH, "    opt.step()", "    opt.synchronize()\n    opt.step()"), MPI),
]  # fmt: skip
BROADCAST: list[Case] = [
    ("TW184", True, UNSENT, MPI),
    ("TW184", False, KERAS, MPI),
    *[("TW184", False, but(UNSENT, "model.fit", f"{words}\nmodel.fit"), MPI) for words in (
        SENT_BY_HAND, "hvd.broadcast_global_variables(0)",
        "hooks = [hvd.BroadcastGlobalVariablesHook(0)]",
        "state = hvd.elastic.KerasState(model)", "state = hvd.elastic.TensorFlowKerasState(model, opt)",
        "state = hvd.elastic.TensorFlowState(model)",
    )],
    ("TW184", True, but(TORCH, TORCH_SENT, ""), MPI),
    ("TW184", False, TORCH, MPI),
    ("TW184", False, but(TORCH, TORCH_SENT, "state = hvd.elastic.TorchState(model)\n"), MPI),
    ("TW184", True, but(TORCH, TORCH_SENT, "hvd.broadcast_object(args, root_rank=0)\n"), MPI),
    # Weights that each process reads.
    *[("TW184", reported, but(UNSENT, "model.fit", f"{words}\nmodel.fit"), MPI) for reported, words in (
        (False, "model.load_weights('/opt/ml/input/data/model/w.h5')"),
        (False, "checkpoint.restore('/opt/ml/input/data/model')"),
        (False, "model = tf.keras.models.load_model('/opt/ml/input/data/model')"),
        (True, "if args.again:\n    model.load_weights('w.h5')"),
        (True, "if found:\n    model.load_weights('w.h5')"),
        (True, "if hvd.rank() == 0:\n    model.load_weights('w.h5')"),
        (True, "if hvd.rank() == 0:\n    model = tf.keras.models.load_model('resume')"),
        (False, "if found:\n    model = tf.keras.models.load_model('resume')"),
        (True, "if found:\n    model = tf.keras.models.load_model('m')"),
        (True, "where = 'resume'"),
        (True, "if found:\n    other = tf.keras.models.load_model('resume')\n"
         "if hvd.rank() == 0:\n    model = tf.keras.models.load_model('m')"),
        (True, f"{FLAG}if args.again:\n    model.load_weights('w.h5')"),
        (True, "def read():\n    model.load_weights('w.h5')"),
    )],
]  # fmt: skip
OWN = """
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.layer = tf.keras.layers.Dense(1)
    def call(self, x):
        return self.layer(x)
    {more}
model = Net()
"""


def sent(before: str = "", more: str = "pass") -> str:
    """A model of the script's own class, whose variables are sent after what is done before."""
    made = but(UNSENT, "model = tf.keras.Sequential([tf.keras.layers.Dense(1)])\n", OWN.format(more=more))
    return but(made, "model.compile", f"{before}\n{SENT_BY_HAND}\nmodel.compile")


UNBUILT: list[Case] = [
    ("TW184", True, sent(), MPI),
    *[("TW184", False, sent(words), MPI) for words in (
        "model.build((None, 8))", "model.load_weights('w.h5')", "checkpoint.restore('w')", "model.predict(data)",
        "model.summary()", "model.fit(data)", "loss = model(data)",
    )],
    ("TW184", True, sent("opt.get_config()"), MPI),
    ("TW184", False, but(sent(), SENT_BY_HAND, "import work\nwork.broadcast_variables(model.variables)"), MPI),
    ("TW184", False, sent(more="def build(self, shape):\n        self.w = self.add_weight()"), MPI),
    ("TW184", False, sent(more="def build_all(self, shape):\n        self.w = self.add_weight()"), MPI),
    ("TW184", False, but(sent(), "model = Net()", "model = tf.keras.Sequential([])"), MPI),
    ("TW184", False, but(sent(), "tf.keras.Model", "Base"), MPI),
    ("TW184", False, but(sent(), "hvd.broadcast_variables(model.variables, root", "hvd.broadcast_variables(rows, root"),
     MPI),
]  # fmt: skip
SHARED: list[Case] = [
    ("TW186", "warning", but(KERAS, SHARD, ""), MPI),
    ("TW186", False, KERAS, MPI),
    ("TW186", False, but(KERAS, SHARD, ".take(10)"), MPI),
    ("TW186", False, but(KERAS, SHARD, "", "fit(data, ", "fit(data, steps_per_epoch=10 // hvd.size(), "), MPI),
    ("TW186", False, but(KERAS, SHARD, "", "(rows)", "(rows[hvd.rank()::hvd.size()])"), MPI),
    ("TW186", False, but(KERAS, SHARD, "", *SLICED, "hvd.init()\nfirst = 5 * hvd.rank()"), MPI),
    ("TW186", "warning", but(KERAS, SHARD, "", *SLICED, "hvd.init()\nfirst = 5"), MPI),
    ("TW186", False, but(KERAS, SHARD, "", "tf.data.Dataset.from_tensor_slices(rows)", "rows"), MPI),
    ("TW186", False, but(KERAS, SHARD, "", "tf.data.Dataset.from_tensor_slices(rows)", "Dataset(rows)"), MPI),
    ("TW186", "warning", but(KERAS, SHARD, "", "data = tf", "log = '{}.txt'.format(hvd.rank())\ndata = tf"), MPI),
    ("TW186", "warning", but(TORCH, TORCH_SHARE, ""), MPI),
    ("TW186", False, TORCH, MPI),
    *[("TW186", False, but(TORCH, TORCH_SHARE, "", "loader = DataLoader(data)", words), MPI) for words in (
        "loader = DataLoader(partition(data))", "loader = DataLoader(data[hvd.rank()])", "loader = rows",
        "loader = DataLoader(random_split(data))", "loader = DataLoader(make_batch_reader(data))",
        "loader = DataLoader(random_shuffle(data))", "loader = DataLoader(rows(f'rank{number}.csv'))",
        "draw = numpy.random.RandomState(1)\nloader = DataLoader(data)",
    )],
    ("TW186", True, but(TORCH, TORCH_SHARE, "", "loader = DataLoader", "print(hvd.rank())\nloader = DataLoader"), MPI),
    # Endless data that each process orders itself: an epoch is not one pass over it.
    ("TW186", "note", but(KERAS, SHARD, ".shuffle(100).repeat()"), MPI),
    ("TW186", False, but(TORCH, TORCH_SHARE, "", "loader = DataLoader(data)", "loader = shuffle(repeat(rows))"), MPI),
    ("TW186", "warning", but(KERAS, SHARD, ".repeat()"), MPI),
    ("TW186", "warning", but(KERAS, SHARD, ".shuffle(100)"), MPI),
    ("TW186", False, but(KERAS, SHARD, f"{SHARD}.shuffle(100).repeat()"), MPI),
    ("TW186", False, but(KERAS, SHARD, ".shuffle(100).repeat()", "tf.data.Dataset", "reader"), MPI),
    *[("TW186", reported, but(KERAS, SHARD, ENDLESS, FIT, f"{before}{FIT}".replace("data,", words)), MPI)
      for reported, before, words in (
        ("note", "", "data, steps_per_epoch=10,"),
        (False, "", "data, steps_per_epoch=1000 // hvd.size(),"),
        (False, "n = hvd.size()\n", "data, steps_per_epoch=n,"),
        (False, "part = 5 // hvd.size()\n", "data,"),
        (False, "rows = read(hvd.rank())\n", "data,"),
        ("note", "print(hvd.rank())\n", "data,"),
        (False, "sampler = Sampler()\n", "data,"),
        (False, "reader = make_batch_reader(rows)\n", "data,"),
        (False, "data = data.take(hvd.size())\n", "data,"),
    )],
    ("TW186", False, but(sdp(), ".shard(sdp.size(), sdp.rank())", ".shuffle(100).repeat()", "model.fit",
                         "part = 5 // sdp.size()\nmodel.fit"), SMDDP),
]  # fmt: skip
CASES: list[Case] = [*STEPPED, *INITS, *LAUNCHERS, *PINS, *REDUCED, *BROADCAST, *UNBUILT, *SHARED]


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_the_guides(case: Case) -> None:
    """Check that a rule reports the script or not, with the severity or the line that the case names."""
    assert not unmet(case)
