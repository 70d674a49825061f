"""Correct idioms of public scripts, each with the nearest mistake: only the mistake is reported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, codes

TORCHRUN: dict[str, Any] = {"instance_type": P4D, "distribution": {"torch_distributed": {"enabled": True}}}
ONE: dict[str, Any] = {"instance_type": P4D}
MPI: dict[str, Any] = {
    "instance_type": P4D,
    "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}},
    "plan": {"framework": "tensorflow"},
}
ROLES = (
    "import os\nimport torch\nimport torch.distributed as dist\nimport torch.distributed.rpc as rpc\n"
    "rank = int(os.environ['RANK'])\n{start}"
    "model = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "for x in data:\n    model(x).sum().backward()\n    if rank == 0:\n        optimizer.step()\n        "
    "optimizer.zero_grad()\n"
)
BOTH = (
    "import deepspeed\nimport torch\nfrom accelerate import Accelerator\n"
    "def baseline(model, optimizer, loader):\n"
    "    model, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config='ds.json')\n"
    "    for x in loader:\n        model.backward(model(x).sum())\n        {step}\n"
    "def prepared(model, optimizer, loader):\n"
    "    accelerator = Accelerator()\n"
    "    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
    "    for x in loader:\n        accelerator.backward(model(x).sum())\n        optimizer.step()\n"
    "model = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "loader = torch.utils.data.DataLoader(data)\n"
    "baseline(model, optimizer, loader)\nprepared(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)\n"
)
SHARDS = (
    "import torch\nimport torch.distributed as dist\n"
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    "dist.init_process_group('nccl')\nmodel = torch.nn.Linear(2, 2)\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nmodel = FSDP(model{words})\n"
    "for x in data:\n    model(x).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
INSIDE = (
    "import torch\nfrom accelerate import Accelerator\nfrom other import Joined\naccelerator = Accelerator()\n"
    "control = torch.nn.Linear(2, 2)\ncontrol.to(accelerator.device)\n"
    "optimizer = torch.optim.SGD(control.parameters(), lr=0.1)\nloader = torch.utils.data.DataLoader(data)\n"
    "model = Joined({parts})\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
    "for x in loader:\n    accelerator.backward(model(x).sum())\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
HOOKED = (
    "import tensorflow as tf\nimport horovod.tensorflow.keras as hvd\nimport smdebug.tensorflow as smd\nhvd.init()\n"
    "model = tf.keras.Sequential()\nplain = tf.keras.optimizers.Adadelta(1.0 * hvd.size())\n"
    "opt = hvd.DistributedOptimizer(plain)\nhook = smd.KerasHook(out_dir='/opt/ml/output/tensors')\n"
    "opt = hook.wrap_optimizer({given})\nmodel.compile(loss='mse', optimizer=opt)\n"
    "model.fit(x, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])\n"
)
JOINED = (
    "import torch\nimport torch.distributed as dist\nfrom accelerate import Accelerator\n"
    "accelerator = Accelerator()\n{test}    dist.init_process_group(world_size=1, rank=0, store=dist.HashStore())\n"
)
EITHER = (
    "import lightning as L\nclass Keep(L.Callback):\n    def __init__(self, s):\n        self.settings = s\n"
    "    def on_train_epoch_end(self, trainer, module):\n"
    "        if trainer.is_global_zero or 'stage_3' in self.settings.strategy:\n"
    "            {test}:\n                trainer.save_checkpoint('/opt/ml/model/last.ckpt')\n"
)
PART = (
    "import torch\nscaler = torch.amp.GradScaler()\nmodel = torch.nn.Sequential().cuda()\nmodel = model.half()\n{more}"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "for x in data:\n    scaler.scale(model(x).sum()).backward()\n    scaler.step(optimizer)\n    scaler.update()\n"
    "    optimizer.zero_grad()\n"
)
TEXT = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--part', type=str, default=100)\n"
    "args = p.parse_args()\ndef read(path, part=100):\n    return path[: {used}]\n"
    "rows = read('/opt/ml/input/data/train', args.part)\n"
)
KINDS = (
    "import contextlib\nimport torch\nmodel = torch.nn.Linear(2, 2).cuda()\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x in data:\n    with {cast}:\n"
    "        loss = model(x).sum()\n    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
HALF = "torch.autocast('cuda', torch.float16)"
HALVED = (
    "import torch\nfrom apex.optimizers import FusedAdam\nfrom fused_lamb_amp import FusedLAMBAMP\n"
    "model = torch.nn.Linear(2, 2)\nmodel.half()\nscaler = torch.amp.GradScaler()\n"
    "optimizer = {optimizer}(model.parameters())\n"
    "for x in data:\n    scaler.scale(model(x).sum()).backward()\n    scaler.step(optimizer)\n    scaler.update()\n"
    "    optimizer.zero_grad()\n"
)
GRAPH = (
    "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
    "from {library} import DataLoader\ntorch.manual_seed(1)\ndist.init_process_group('nccl')\n"
    "model = DDP(torch.nn.Linear(2, 2).cuda())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "loader = DataLoader(graph, nodes, sampler, device='cuda', batch_size=8, shuffle=True, use_ddp=True)\n"
    "for x in loader:\n    model(x).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
ENGINE = (
    "import deepspeed\nimport torch\nmodel = torch.nn.Linear(2, 2)\n"
    "{made} = deepspeed.initialize(model=model, config='ds.json')\n"
    "for x in loader:\n    engine.backward(engine(x).sum())\n    {step}\n"
)
PARTS = (
    "import os\nimport torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\ntorch.manual_seed(1)\n"
    "dist.init_process_group('nccl')\nmodel = DDP(torch.nn.Linear(2, 2).cuda())\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nworld = dist.get_world_size()\n"
    "parts = {parts}\nfor x in loader:\n    for part in x.chunk(parts):\n        loss = model(part).sum()\n"
    "        loss = loss / parts\n        loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
# By source of the idiom: the rule, the job, a script with the mistake, and the correct script.
BUCKETS = (
    "import torch\nfrom torch.utils.data import DataLoader, DistributedSampler\nsampler = DistributedSampler(data)\n"
    "loader = DataLoader(data, batch_sampler=sampler, {more})\nfor x in loader:\n    model(x).sum().backward()\n"
)
HELPED = (
    "import torch\nfrom accelerate import Accelerator\nfrom parallel import divided\naccelerator = Accelerator()\n"
    "model = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "loader = torch.utils.data.DataLoader(data)\nmodel, optimizer = accelerator.prepare(model, optimizer)\n"
    "loader = divided({given})\n"
    "for x in loader:\n    accelerator.backward(model(x).sum())\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
ENCODED = (
    "import torch\nfrom transport import losses\nencoder, model = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x in data:\n    hidden = encoder(x)\n"
    "    loss = losses({given})\n    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
)
COMPILED = (
    "import os\nimport torch\nimport torch.distributed as dist\nimport torchvision\nfrom models import built\n"
    "dist.init_process_group('nccl')\nlocal_rank = int(os.environ['LOCAL_RANK'])\nmodel = {made}\n"
    "model = torch.compile(model)\n"
    "model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])\nmodel(x).sum().backward()\n"
)
META = (
    "import argparse\nimport torch\nimport util.misc as misc\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--local_rank', default=-1, type=int)\nargs = parser.parse_args()\n{joined}\n"
    "model = torch.nn.Linear(1, 1).cuda(args.gpu)\n"
    "model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])\nmodel(x).sum().backward()\n"
)
DRAWN = (
    "import torch\nimport torch.distributed as dist\nimport webdataset as wds\ndist.init_process_group('nccl')\n"
    "data = wds.WebDataset(urls{more}).decode().to_tuple('jpg', 'cls')\n"
    "loader = torch.utils.data.DataLoader(data, batch_size=8)\n"
    "model = torch.nn.parallel.DistributedDataParallel(net.cuda())\nfor x in loader:\n    model(x).sum().backward()\n"
)
SHOWN = (
    "import torch.distributed as dist\ndist.init_process_group('nccl')\ndef show(losses, tag):\n"
    "    if tag == 'TRAIN' and dist.get_rank() == 0:\n        for value in losses:\n"
    "            writer.add_scalar(tag, value)\n    {again}:\n        if value is not None:\n            print(tag)\n"
    "for x in data:\n    show([v for v in read(x)], 'TRAIN')\n"
)
TOOLS = (
    "import torch\nfrom audiotools import ml\n{made}\nfor x in data:\n    loss = model(x).sum()\n    loss.backward()\n"
    "    optimizer.step()\n"
)
WAYS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "pytorch/examples, distributed/rpc/batch: processes with tasks of their own": (
        "TW169",
        TORCHRUN,
        ROLES.format(start="dist.init_process_group('gloo')\n"),
        ROLES.format(start="rpc.init_rpc(f'worker{rank}', rank=rank, world_size=8)\n"),
    ),
    "huggingface/accelerate, benchmarks/fp8: a baseline of DeepSpeed beside Accelerate": (
        "TW156",
        TORCHRUN,
        BOTH.format(step="torch.optim.SGD(model.parameters(), lr=0.1).step()"),
        BOTH.format(step="model.step()"),
    ),
    "huggingface/accelerate, benchmarks/fp8: FSDP that keeps the parameters": (
        "TW147",
        TORCHRUN,
        SHARDS.format(words=""),
        SHARDS.format(words=", use_orig_params=True"),
    ),
    "huggingface/diffusers, train_pixart_controlnet_hf.py: a model that is a part of the prepared one": (
        "TW155",
        TORCHRUN,
        INSIDE.format(parts="None"),
        INSIDE.format(parts="None, control"),
    ),
    "awslabs/sagemaker-debugger, horovod_keras_mnist.py: a wrapper around Horovod's": (
        "TW185",
        MPI,
        HOOKED.format(given="plain"),
        HOOKED.format(given="opt"),
    ),
    "DeepSpeed, getting started: of what initialize returns, the script takes the engine alone": (
        "TW156",
        TORCHRUN,
        ENGINE.format(made="engine, optimizer, *_", step="optimizer.step()\n    engine.step()"),
        ENGINE.format(made="engine, *_", step="engine.step()"),
    ),
    "karpathy/nanoGPT, train.py: the parts of a step are shared out, and a loss is divided by their number": (
        "TW485",
        TORCHRUN,
        PARTS.format(parts="world"),
        PARTS.format(parts="steps // world"),
    ),
    "karpathy/nanoGPT, train.py, with a number that is known": (
        "TW485",
        TORCHRUN,
        PARTS.format(parts="world"),
        PARTS.format(parts="40 // world"),
    ),
    "dmlc/dgl, examples/multigpu: a loader that divides its nodes": (
        "TW171",
        TORCHRUN,
        GRAPH.format(library="torch.utils.data")
        .replace("graph, nodes, sampler, device='cuda'", "nodes")
        .replace(", use_ddp=True", ""),
        GRAPH.format(library="dgl.dataloading"),
    ),
    "NVIDIA/DeepLearningExamples, lamb_amp_opt: an optimizer that takes scaled gradients": (
        "TW139",
        ONE,
        HALVED.format(optimizer="FusedAdam"),
        HALVED.format(optimizer="FusedLAMBAMP"),
    ),
    "crowsonkb/k-diffusion, train.py: a group of one process where Accelerate has made none": (
        "TW104",
        TORCHRUN,
        JOINED.format(test="if True:\n"),
        JOINED.format(test="if not dist.is_initialized():\n"),
    ),
    "BlinkDL/RWKV-LM, RWKV-v5/src/trainer.py: what follows from one side of an or holds in every process": (
        "TW128",
        TORCHRUN,
        EITHER.format(test="if self.settings.epochs"),
        EITHER.format(test="if 'stage_3' in self.settings.strategy"),
    ),
    "THUDM/ChatGLM-6B, ptuning/main.py: the part that is trained is float32 again": (
        "TW139",
        ONE,
        PART.format(more=""),
        PART.format(more="model.transformer.prefix_encoder.float()\n"),
    ),
    "aws-samples/sagemaker-custom-project-templates: a function converts the text that it gets": (
        "TW195",
        {**ONE, "hyperparameters": {"part": 50}},
        TEXT.format(used="part"),
        TEXT.format(used="int(part)"),
    ),
    "FoundationVision/LlamaGen, train_c2i_fsdp.py: one of several kinds that a setting chooses": (
        "TW480",
        ONE,
        KINDS.format(cast=HALF),
        KINDS.format(cast="{'fp16': " + HALF + ", 'fp32': contextlib.nullcontext()}[kind]"),
    ),
    "fishaudio/Bert-VITS2, train_ms.py: the default of shuffle beside a batch sampler": (
        "TW176",
        TORCHRUN,
        BUCKETS.format(more="shuffle=True"),
        BUCKETS.format(more="shuffle=False, drop_last=False"),
    ),
    "jzhang38/EasyContext, train.py: a helper that gets the loader and the Accelerator": (
        "TW155",
        TORCHRUN,
        HELPED.format(given="loader"),
        HELPED.format(given="loader, accelerator"),
    ),
    "Alpha-VLLM/Lumina-T2X, train.py: another package calls the model that is trained": (
        "TW147",
        ONE,
        ENCODED.format(given="hidden"),
        ENCODED.format(given="model, hidden"),
    ),
    "jingyaogong/minimind, train_pretrain.py: a model of another package, compiled": (
        "TW148",
        TORCHRUN,
        COMPILED.format(made="torchvision.models.resnet18()"),
        COMPILED.format(made="built(local_rank)[0]"),
    ),
    "facebookresearch/mae, main_pretrain.py: a helper in another file reads LOCAL_RANK": (
        "TW123",
        TORCHRUN,
        META.format(joined="torch.distributed.init_process_group('nccl')"),
        META.format(joined="misc.init_distributed_mode(args)"),
    ),
    "dome272/Wuerstchen, train_stage_B.py: each process draws from all shards": (
        "TW171",
        TORCHRUN,
        DRAWN.format(more=""),
        DRAWN.format(more=", resampled=True"),
    ),
    "wenet-e2e/wenet, train_utils.py: the name is that of another loop": (
        "TW471",
        TORCHRUN,
        SHOWN.format(again="if tag"),
        SHOWN.format(again="for value in losses"),
    ),
    "descriptinc/descript-audio-codec, train.py: an Accelerator of another library": (
        "TW120",
        TORCHRUN,
        TOOLS.format(made="model = ml.Net().to(torch.accelerator.current_accelerator())"),
        TOOLS.format(made="accel = ml.Accelerator()\nmodel = accel.prepare_model(ml.Net())"),
    ),
    "meituan/YOLOv6, tools/train.py: the option is set again": (
        "TW123",
        TORCHRUN,
        META.format(joined="seed = 1"),
        META.format(joined="from yolov6.utils.envs import get_envs\nargs.local_rank = get_envs()"),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_right_way_beside_the_mistake(way: str) -> None:
    code, job, wrong, right = WAYS[way]
    assert code in codes(wrong, job)
    assert code not in codes(right, job)
