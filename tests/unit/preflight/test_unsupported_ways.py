"""What a library or a machine cannot do, as its documentation says, and beside it the right way that is nearest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes

P3 = "ml.p3.16xlarge"
SMP_JOB: dict[str, Any] = {
    "instance_type": P3,
    "distribution": {"smdistributed": {"modelparallel": {"enabled": True, "parameters": {}}}, "mpi": {"enabled": True}},
}
ONE: dict[str, Any] = {"instance_type": P4D}
TRAINIUM: dict[str, Any] = {"instance_type": "ml.trn1.32xlarge", "distribution": TORCHRUN}
SMP = (
    "import torch\nimport smdistributed.modelparallel.torch as smp\nfrom torch.nn.parallel import "
    "DistributedDataParallel as DDP\nfrom apex.optimizers import FusedAdam\nfrom apex import amp\nsmp.init()\n"
    "torch.cuda.set_device(smp.local_rank())\nnet = torch.nn.Linear(2, 2)\n{}\n"
    "@smp.step\ndef step(model, x):\n    loss = model(x).sum()\n    model.backward(loss)\n    return loss\n"
    "for x in loader:\n    {}\n"
)
WRAPPED = "model = smp.DistributedModel({})\noptimizer = smp.DistributedOptimizer({}(model.parameters()))"
PLAIN = WRAPPED.format("net", "torch.optim.Adam")
TURN = "optimizer.zero_grad()\n    loss = step(model, x.cuda()).reduce_mean()\n    optimizer.step()"
LOOP = (
    "import torch, os\nfrom torchvision import transforms, datasets\nfrom torch.nn.utils.rnn import pad_sequence\n"
    "from torch.utils.data import DataLoader\nnet = torch.nn.Linear(2, 2)\ndevice = {}\nmodel = net.to(device)\n{}\n"
    "optimizer = torch.optim.Adam(model.parameters())\nfor x, y in loader:\n    optimizer.zero_grad()\n    {}\n"
    "    loss.backward()\n    optimizer.step()\ntorch.save({}.state_dict(), os.environ['SM_MODEL_DIR'] + '/m.pt')\n"
)
CUDA, ANY = "torch.device('cuda')", "torch.device('cuda' if torch.cuda.is_available() else 'cpu')"
LOSS = "loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))"
TRANSFORMED = (
    "tf = transforms.Lambda(lambda t: {})\n"
    "loader = DataLoader(datasets.MNIST('d', transform=tf), batch_size=8, num_workers={})"
)
XLA = "import torch_xla.core.xla_model as xm\n"
LONGEST = "fill(batch, max(len(each) for each in batch))"
COLLATED = (
    "def collate(batch):\n    return {}\n"
    "loader = DataLoader(torch.load('d.pt'), batch_size=8, drop_last=True, collate_fn=collate)"
)

TWO: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
SHARDED: dict[str, Any] = TWO | {"inputs": {"train": {"s3_data": "s3://b/t", "distribution": "ShardedByS3Key"}}}
GROUP = (
    "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
    "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
)
STREAM = (
    "class Stream(torch.utils.data.IterableDataset):\n    def __iter__(self):\n        {}\n"
    "        yield from open('d')\n"
    "loader = DataLoader(Stream(), batch_size=8, num_workers=4)"
)
SCHEDULED = (
    "import torch\nmodel = torch.nn.Linear(2, 2).cuda()\nepochs = 9\n"
    "optimizer = torch.optim.Adam(model.parameters(), lr=1)\n"
    "loader = torch.load('d.pt')\nschedule = torch.optim.lr_scheduler.{}\nfor epoch in range(epochs):\n"
    "    for x in loader:\n"
    "        optimizer.zero_grad()\n        model(x.cuda()).sum().backward()\n        optimizer.step()\n"
    "{}schedule.step()\n"
)
HALF = (
    "import torch\nscaler = torch.cuda.amp.GradScaler()\nmodel = torch.nn.Linear(2, 2).cuda(){}\n"
    "other = torch.nn.Linear(2, 2).cuda().half()\noptimizer = torch.optim.Adam(model.parameters(), lr=1)\n"
    "for x in torch.load('d.pt'):\n    optimizer.zero_grad()\n    with torch.autocast('cuda', dtype=torch.float16):\n"
    "        loss = model(x.cuda()).sum()\n    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n"
    "    scaler.update()\n"
)
SAMPLED = (
    "import os, torch\nfrom torch.utils.data import DataLoader, WeightedRandomSampler\n"
    + GROUP
    + "data = torch.load('d.pt')\n"
    "gen = torch.Generator().manual_seed({})\nsampler = WeightedRandomSampler(data.weights, 9, generator=gen)\n"
    "loader = DataLoader(data, sampler=sampler)\n"
)
DIVIDED = (
    "import os, torch\nfrom torch.utils.data import DataLoader, DistributedSampler\n"
    + GROUP
    + "data = torch.load('d.pt')\n"
    "sampler = DistributedSampler(data{})\nloader = DataLoader(data, sampler=sampler)\n"
)
OF_HOST = ", num_replicas=int(os.environ['LOCAL_WORLD_SIZE']), rank=int(os.environ['LOCAL_RANK'])"
COLLATOR = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\ndef collate(rows):\n"
    "    return tokenizer([row['{}'] for row in rows])\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"
    "args = TrainingArguments('/opt/ml/model'{})\nTrainer(model=model, args=args, data_collator=collate).train()\n"
)
AVERAGE = (
    "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
    "dist.init_process_group(backend='{}')\nmodel = DDP(torch.nn.Linear(2, 2).cuda())\n"
    "loss = model(x).sum()\nloss.backward()\ndist.all_reduce(loss.detach(), op=dist.ReduceOp.{})\n"
)
TRANSFORM = (
    "from datasets import load_from_disk\nfrom transformers import AutoModelForImageClassification, Trainer\n"
    "from transformers import TrainingArguments\n"
    "def prepared(rows):\n    return {{'pixel_values': process(rows['{}']), 'label': rows['label']}}\n"
    "data = load_from_disk('d')\ndata.set_transform(prepared)\n"
    "model = AutoModelForImageClassification.from_pretrained('m')\nargs = TrainingArguments('/opt/ml/model'{})\n"
    "Trainer(model=model, args=args, train_dataset=data).train()\n"
)
ACCELERATE = (
    "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator(gradient_accumulation_steps=8)\n"
    "model, optimizer = accelerator.prepare(torch.nn.Linear(2, 2), torch.optim.SGD(model.parameters(), lr=1))\n"
    "for step, x in enumerate(loader):\n    accelerator.backward(model(x).sum())\n    if {}:\n"
    "        optimizer.step()\n"
    "        optimizer.zero_grad()\n"
)
HIDDEN = (
    "import torch\nmodel = Net().cuda()\noptimizer = torch.optim.SGD(model.parameters(), lr=1)\n"
    "hidden = model.start()\n"
    "for x, y in torch.load('d.pt'):\n    optimizer.zero_grad()\n    {}out, hidden = model(x, hidden)\n"
    "    torch.nn.functional.mse_loss(out, y).backward(retain_graph=True)\n    optimizer.step()\n"
)
REGISTERED = (
    "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
    "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.first = torch.nn.Linear(2, 2)\n"
    "    def forward(self, x):\n        return self.first(x)\ndist.init_process_group('gloo')\nmodel = DDP(Net())\n{}"
)
WAYS = {
    "DDP in the model parallel library": (
        ("TW498", SMP_JOB),
        SMP.format(WRAPPED.format("DDP(net)", "torch.optim.Adam"), TURN),
        SMP.format(PLAIN, TURN),
    ),
    "DDP around the model parallel library": (
        ("TW498", SMP_JOB),
        SMP.format(PLAIN + "\nwhole = DDP(model)", TURN),
        SMP.format(PLAIN + "\nother = DDP(torch.nn.Linear(2, 2))", TURN),
    ),
    "a script module": (
        ("TW498", SMP_JOB),
        SMP.format(WRAPPED.format("torch.jit.script(net)", "torch.optim.Adam"), TURN),
        SMP.format(PLAIN + "\nexported = torch.jit.script(torch.nn.Linear(2, 2))", TURN),
    ),
    "an optimizer of apex": (
        ("TW498", SMP_JOB),
        SMP.format(WRAPPED.format("net", "FusedAdam"), TURN),
        SMP.format(WRAPPED.format("net", "smp.optimizers.FusedAdam"), TURN),
    ),
    "amp of apex": (
        ("TW498", SMP_JOB),
        SMP.format(PLAIN + "\nmodel, optimizer = amp.initialize(model, optimizer)", TURN),
        SMP.format(PLAIN + "\nscaler = smp.amp.GradScaler()", TURN),
    ),
    "gradients of the step function that are cleared": (
        ("TW138", SMP_JOB),
        SMP.format(PLAIN, "loss = step(model, x.cuda())\n    optimizer.zero_grad()\n    optimizer.step()"),
        SMP.format(PLAIN, "loss = step(model, x.cuda())\n    optimizer.step()\n    optimizer.zero_grad()"),
    ),
    "indices for a loss": (
        ("TW499", ONE),
        LOOP.format(CUDA, "", LOSS.replace("model(x.to(device))", "model(x.to(device)).argmax(1).float()"), "model"),
        LOOP.format(CUDA, "", f"{LOSS}\n    hits = model(x.to(device)).argmax(1).float()", "model"),
    ),
    "indices for a loss that is shown alone": (
        ("TW499", ONE),
        LOOP.format(
            CUDA, "criterion = torch.nn.MSELoss()", "loss = criterion(model(x.cuda()).argmax(1).float(), y)", "model"
        ),
        LOOP.format(
            CUDA,
            "criterion = torch.nn.MSELoss()",
            f"{LOSS}\n    shown = criterion(model(x.cuda()).argmax(1).float(), y)",
            "model",
        ),
    ),
    "names of a compiled model": (
        ("TW443", ONE),
        LOOP.format(CUDA, "model = torch.compile(model)", LOSS, "model"),
        LOOP.format(CUDA, "model = torch.compile(model)", LOSS, "net"),
    ),
    "names of a compiled model that serving compiles as well": (
        ("TW443", ONE),
        LOOP.format(CUDA, "model = torch.compile(model)", LOSS, "model"),
        LOOP.format(CUDA, "model = torch.compile(model)", LOSS, "model")
        + "def model_fn(folder):\n    model = torch.compile(torch.nn.Linear(2, 2))\n"
        "    model.load_state_dict(torch.load(folder + '/m.pt'))\n    return model\n",
    ),
    "CUDA in a transform of a worker": (
        ("TW486", ONE),
        LOOP.format(CUDA, TRANSFORMED.format("t.to('cuda')", 4), LOSS, "model"),
        LOOP.format(CUDA, TRANSFORMED.format("t.to('cuda')", 0), LOSS, "model"),
    ),
    "a transform in main memory": (
        ("TW486", ONE),
        LOOP.format(CUDA, TRANSFORMED.format("t.cuda()", 4), LOSS, "model"),
        LOOP.format(CUDA, TRANSFORMED.format("t.to(torch.float32)", 4), LOSS, "model"),
    ),
    "batches as long as their longest sample": (
        ("TW170", TRAINIUM),
        XLA + LOOP.format("xm.xla_device()", COLLATED.format("pad_sequence(batch)"), LOSS, "model"),
        XLA + LOOP.format("xm.xla_device()", COLLATED.format("torch.stack(batch)"), LOSS, "model"),
    ),
    "batches as long as the longest sample may be": (
        ("TW170", TRAINIUM),
        XLA + LOOP.format("xm.xla_device()", COLLATED.format(LONGEST), LOSS, "model"),
        XLA + LOOP.format("xm.xla_device()", COLLATED.format("fill(pad_sequence(batch), MAX_LEN)"), LOSS, "model"),
    ),
    "a GPU on Trainium": (
        ("TW500", TRAINIUM),
        LOOP.format(ANY, "", LOSS, "model"),
        XLA + LOOP.format("xm.xla_device()", "", LOSS, "model"),
    ),
    "a GPU or Trainium": (
        ("TW500", TRAINIUM),
        XLA + LOOP.format(ANY, "", LOSS, "model"),
        XLA + LOOP.format(f"{ANY[:-1]}) if cuda else xm.xla_device()", "", LOSS, "model"),
    ),
    "a seed of CUDA beside the device of torch_xla": (
        ("TW500", TRAINIUM),
        XLA + LOOP.format("'cpu'", "if torch.cuda.is_available():\n    torch.cuda.manual_seed(1)", LOSS, "model"),
        "import torch_xla\n"
        + LOOP.format(
            "torch_xla.device()", "if torch.cuda.is_available():\n    torch.cuda.manual_seed(1)", LOSS, "model"
        ),
    ),
    "a share that is a quotient": (
        ("TW175", TWO),
        DIVIDED.format(", num_replicas=8, rank=int(os.environ['LOCAL_RANK']) // 8"),
        DIVIDED.format(", num_replicas=dist.get_world_size(), rank=dist.get_rank()"),
    ),
    "a stream that workers repeat in another order": (
        ("TW501", ONE),
        LOOP.format(CUDA, STREAM.format("random.Random(7).shuffle(rows)"), LOSS, "model"),
        LOOP.format(CUDA, STREAM.format("rows = random.sample(rows, 9)"), LOSS, "model"),
    ),
    "a stream that workers repeat": (
        ("TW501", ONE),
        LOOP.format(CUDA, STREAM.format("pass"), LOSS, "model"),
        LOOP.format(CUDA, STREAM.format("info = torch.utils.data.get_worker_info()"), LOSS, "model"),
    ),
    "a schedule of epochs for batches": (
        ("TW502", ONE),
        SCHEDULED.format("OneCycleLR(optimizer, max_lr=1, total_steps=epochs)", " " * 8),
        SCHEDULED.format("OneCycleLR(optimizer, max_lr=1, total_steps=epochs * len(loader))", " " * 8),
    ),
    "a schedule of epochs for epochs": (
        ("TW502", ONE),
        SCHEDULED.format("CosineAnnealingLR(optimizer, T_max=epochs)", " " * 8),
        SCHEDULED.format("CosineAnnealingLR(optimizer, T_max=epochs)", " " * 4),
    ),
    "a model in half precision with a scaler": (("TW504", ONE), HALF.format(".half()"), HALF.format("")),
    "the same draws in all processes": (("TW175", TWO), SAMPLED.format("7"), SAMPLED.format("dist.get_rank()")),
    "a share of a host's share": (("TW175", SHARDED), DIVIDED.format(""), DIVIDED.format(OF_HOST)),
    "a share of files that every host has": (("TW175", TWO), DIVIDED.format(OF_HOST), DIVIDED.format("")),
    "a share for two processes each": (
        ("TW175", TWO),
        DIVIDED.format(", num_replicas=dist.get_world_size() // 2, rank=dist.get_rank() % 8"),
        DIVIDED.replace("data =", "half = dist.get_world_size() // 2\ndata =", 1).format(
            ", num_replicas=half, rank=dist.get_rank() % half"
        ),
    ),
    "columns that the Trainer removes": (
        ("TW503", ONE),
        COLLATOR.format("text", ""),
        COLLATOR.format("text", ", remove_unused_columns=False"),
    ),
    "columns that forward takes": (
        ("TW503", ONE),
        COLLATOR.format("comment_text", ""),
        COLLATOR.format("input_ids", ""),
    ),
    "an average over Gloo": (
        ("TW529", TWO),
        AVERAGE.format("gloo", "AVG"),
        AVERAGE.format("gloo", "SUM"),
    ),
    "an average over SageMaker's library": (
        ("TW529", TWO),
        AVERAGE.format("smddp", "AVG"),
        AVERAGE.format("nccl", "AVG"),
    ),
    "columns that a transform reads": (
        ("TW503", ONE),
        TRANSFORM.format("image", ""),
        TRANSFORM.format("image", ", remove_unused_columns=False"),
    ),
    "columns of forward that a transform reads": (
        ("TW503", ONE),
        TRANSFORM.format("file", ""),
        TRANSFORM.format("pixel_values", ""),
    ),
    "steps that are not accumulated, but shown": (
        ("TW410", ONE),
        ACCELERATE.format("step % 100 == 0"),
        ACCELERATE.format("step % 8 == 7"),
    ),
    "a hidden state with its graph": (
        ("TW447", ONE),
        HIDDEN.format(""),
        HIDDEN.format("hidden = hidden.detach()\n    "),
    ),
    "a layer that is put into a wrapped model": (
        ("TW437", TWO),
        REGISTERED.format("model.module.first = torch.nn.Linear(2, 3)\n"),
        REGISTERED.format(""),
    ),
    "the step of XLA over a plain loader": (
        ("TW111", TRAINIUM),
        XLA
        + LOOP.format("xm.xla_device()", "", LOSS, "model").replace("optimizer.step()", "xm.optimizer_step(optimizer)"),
        XLA
        + LOOP.format("xm.xla_device()", "", LOSS, "model").replace(
            "optimizer.step()", "xm.optimizer_step(optimizer, barrier=True)"
        ),
    ),
    "a device of the module in a worker": (
        ("TW486", ONE),
        "DEVICE = 'cuda'\n" + LOOP.format(CUDA, TRANSFORMED.format("t.to(DEVICE)", 4), LOSS, "model"),
        "DEVICE = 'cpu'\n" + LOOP.format(CUDA, TRANSFORMED.format("t.to(DEVICE)", 4), LOSS, "model"),
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_the_mistake_is_reported_and_the_right_way_is_not(name):
    (code, job), wrong, right = WAYS[name]
    assert code in codes(wrong, job)
    assert code not in codes(right, job)


def test_a_script_that_asks_for_a_gpu_on_a_gpu_is_right():
    assert "TW500" not in codes(LOOP.format(ANY, "", LOSS, "model"), ONE)
