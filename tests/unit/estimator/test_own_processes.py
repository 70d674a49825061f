"""A job without a launcher on a host with several GPUs: whether its script uses all of them by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.rule_jobs import P4, found, image

ALL = {
    # TensorFlow's guide, Distributed training with TensorFlow
    "mirrored": "import tensorflow as tf\nstrategy = tf.distribute.MirroredStrategy()\n",
    "workers": "from tensorflow.distribute import MultiWorkerMirroredStrategy as Strategy\nStrategy()\n",
    # Keras 2's documentation of multi_gpu_model
    "copies": "from keras.utils import multi_gpu_model\nmodel = multi_gpu_model(model, 8)\n",
    # PyTorch's documentation of torch.nn.DataParallel
    "threads": "from torch.nn import DataParallel\nmodel = DataParallel(model)\n",
    # accelerate's guide, Handling big models for inference
    "divided": "model = AutoModel.from_pretrained('m', device_map='auto')\n",
    # PyTorch's documentation of multiprocessing, torch_xla's of launch
    "spawned": "import torch.multiprocessing as mp\nmp.spawn(run, nprocs=8)\n",
    "xla": "import torch_xla\ntorch_xla.launch(run)\n",
    # PyTorch's documentation of torchrun, accelerate's of its command
    "torchrun": "import subprocess\nsubprocess.run(['torchrun', '--nproc_per_node', '8', 'work.py'])\n",
    "accelerate": "import os\nos.system('accelerate launch --num_processes 8 work.py')\n",
    # Lightning's documentation of strategies: it starts the processes of the other devices
    "lightning": "import lightning as L\nL.Trainer(accelerator='gpu', devices=8).fit(model)\n",
}
ONE = {
    "one GPU": "import torch\nmodel = Net().cuda()\n",
    "a name in a comment": "# MirroredStrategy\nimport tensorflow as tf\n",
    "torchrun's wrapper": "import torch\nmodel = torch.nn.parallel.DistributedDataParallel(model)\n",
    "a model on one device": "model = AutoModel.from_pretrained('m', device_map='cuda:0')\n",
    "one GPU's strategy": "import tensorflow as tf\nstrategy = tf.distribute.OneDeviceStrategy('/gpu:0')\n",
}


def warned(folder: Path, text: str, **changes: Any) -> bool:
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "train.py").write_text(text)
    return "TW275" in {each.code for each in found(folder, {"instance_type": P4, **changes}, image())}


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_a_script_that_uses_all_gpus(tmp_path, text):
    assert not warned(tmp_path, text)
    # It does not join the hosts.
    assert warned(tmp_path, text, instance_count=2)


@pytest.mark.parametrize("text", ONE.values(), ids=ONE)
def test_a_script_that_uses_one_gpu(tmp_path, text):
    assert warned(tmp_path, text)


def test_a_module_that_the_script_imports(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "work.py").write_text(ALL["mirrored"])
    assert not warned(tmp_path, "import work\n")
    assert warned(tmp_path, "import json\n")


def test_a_shell_script(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "work.py").write_text(ONE["one GPU"])
    for command, one in (("torchrun --nproc_per_node 8 work.py", False), ("python work.py", True)):
        (tmp_path / "src" / "run.sh").write_text(f"#!/bin/bash\n{command}\n")
        assert warned(tmp_path, "", entry_point="run.sh") is one


def test_a_script_that_cannot_be_read(tmp_path):
    assert warned(tmp_path, "print 'x'\n")
    assert warned(tmp_path, "", entry_point="other.py")
    assert warned(tmp_path, "", entry_point=None, source_dir=None)
