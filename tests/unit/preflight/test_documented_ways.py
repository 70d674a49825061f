"""Beside each mistake that a library's documentation warns of, the right way that is nearest to it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, codes

TWO: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
MADE = DDP.replace("model = DDP(model)\n", "net = torch.nn.Linear(2, 2).cuda()\nmodel = DDP(net)\n")
ADAM = "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)\n"
LOADED = "data = torch.load('d.pt')\nsampler = DistributedSampler(data)\nloader = DataLoader(data, sampler=sampler)\n"


def loop(*lines: str, head: str = "") -> str:
    """A training loop with these lines."""
    inner = "".join(f"    {line}\n" for each in lines for line in each.split("\n"))
    return f"{MADE}{ADAM}{head}for x, y in loader:\n    optimizer.zero_grad()\n{inner}"


LOSS = "loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())"
STEP = "loss.backward()\noptimizer.step()"
CLASS = "class Job:\n    def __init__(self):\n        self.rank = dist.get_rank()\n{}\njob = Job()\n"
TRAINER = "import torch\nfrom transformers import Trainer, TrainingArguments\nargs = TrainingArguments('out'{})\n"
SHARDED = (
    "import functools, os, torch\nimport torch.distributed as dist\n"
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    "from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy\n"
    "dist.init_process_group('nccl')\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n{}\n"
)
SCALED = "scaler = torch.cuda.amp.GradScaler()\n"
PASS = f"with torch.autocast('cuda', dtype=torch.float16):\n    {LOSS}\nscaler.scale(loss).backward()"
ENDS = "scaler.step(optimizer)\nscaler.update()"
UNSCALE = "scaler.unscale_(optimizer)\n"
CAST = "with torch.autocast('cuda', dtype=torch.{})"
IS_MAIN = "    def is_main(self):\n        return self.rank == 0"
PRINTS = ":\n    print(1)\n"
IF_ZERO = DDP + "if dist.get_rank() == 0:\n    "
ON_GPU = "data = torch.utils.data.TensorDataset(x.cuda(), y.cuda())\nloader = DataLoader(data, num_workers={})\n"
OWN = "class Own(Trainer):\n    def compute_loss(self, model, inputs, return_outputs=False):\n"
ACCELERATE = (
    "import torch\nfrom accelerate import Accelerator\n"
    "accelerator = Accelerator(gradient_accumulation_steps=4)\n"
    "model = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=1)\n"
)
XLA = (
    "import torch\nimport torch.distributed as dist\nimport torch_xla.core.xla_model as xm\n{}"
    "dist.init_process_group('xla')\n"
)
RESUMED = (
    f"{MADE}{ADAM}def restore(model):\n    kept = torch.load('c.pt')\n    {{}}(kept['model'])\n"
    "if os.path.exists('c.pt'):\n    restore(model)\nfor x in loader:\n    optimizer.zero_grad()\n"
    "    model(x).sum().backward()\n    optimizer.step()\n"
    "torch.save(dict(model=model.module.state_dict(), epoch=1), 'c.pt')\n"
)
EXPORTED = (
    DDP + "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--out', default='{}')\n"
    "args = parser.parse_args()\nloader = torch.load(os.environ['SM_CHANNEL_TRAIN'] + '/d.pt')\n"
    "def export(model, out):\n    torch.jit.script(model).save(out + '/m.pt')\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=1)\nfor x in loader:\n    optimizer.zero_grad()\n"
    "    model(x).sum().backward()\n    optimizer.step()\n"
    "if dist.get_rank() == 0:\n    export(model.module, args.out)\n"
)
SMDDP = (
    "import argparse, torch\nimport torch.distributed as dist\n{}"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--backend', default='smddp')\n"
    "args = parser.parse_args()\ndist.init_process_group(args.backend)\n{}"
)
SUMMED = (
    "import torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\nsize = dist.get_world_size()\n"
    "model = torch.nn.Linear(2, 2).cuda()\noptimizer = torch.optim.SGD(model.parameters(), lr=1)\n"
    "for x in loader:\n    optimizer.zero_grad()\n    loss = model(x).sum(){}\n    loss.backward()\n"
    "    for each in model.parameters():\n        dist.all_reduce(each.grad, op=dist.ReduceOp.SUM)\n"
    "    optimizer.step()\n    print({})\n"
)
# Code: the mistake, and what is right beside it.
WAYS: dict[str, tuple[str, str, str]] = {
    "a method with and without its call": (
        "TW470",
        DDP + CLASS.format(IS_MAIN) + "if job.is_main" + PRINTS,
        DDP + CLASS.format(IS_MAIN) + "if job.is_main()" + PRINTS,
    ),
    "a property": (
        "TW470",
        DDP + "if dist.is_initialized:\n    print(1)\n",
        DDP
        + CLASS.format("    @property\n    def is_main(self):\n        return self.rank == 0")
        + "if job.is_main:\n    print(1)\n",
    ),
    "a callback that may be there": (
        "TW470",
        DDP + "if dist.get_rank == 0:\n    print(1)\n",
        DDP + "def report(x):\n    print(x)\ndef run(hook=None):\n    if hook:\n        hook(1)\nrun(report)\n",
    ),
    "a property of the Trainer's arguments": (
        "TW470",
        TRAINER.format("") + "trainer = Trainer(args=args)\nif trainer.is_world_process_zero:\n    print(1)\n",
        TRAINER.format("") + "trainer = Trainer(args=args)\nif args.should_save:\n    print(1)\n",
    ),
    "a name of the first process": (
        "TW471",
        IF_ZERO + "log = open('l', 'w')\nlog.write('x')\n",
        IF_ZERO + "log = open('l', 'w')\nif dist.get_rank() == 0:\n    log.write('x')\n",
    ),
    "a name that all have": (
        "TW471",
        IF_ZERO + "names = read()\ndist.barrier()\nprint(names)\n",
        IF_ZERO + "names = read()\nelse:\n    names = None\nprint(names)\n",
    ),
    "a name that is asked for behind `or`": (
        "TW471",
        IF_ZERO + "best = 1\nprint(best)\n",
        IF_ZERO + "best = 1\nif dist.get_rank() != 0 or best > 0:\n    print(1)\n",
    ),
    "each process in turn": (
        "TW471",
        DDP + "rank = dist.get_rank()\nif rank == 1:\n    part = 1\nuse(part)\n",
        DDP + "rank = dist.get_rank()\nfor turn in range(16):\n    if rank == turn:\n        part = 1\nuse(part)\n",
    ),
    "a group that is made again": (
        "TW472",
        DDP + "dist.init_process_group('gloo')\n",
        DDP + "dist.destroy_process_group()\ndist.init_process_group('gloo')\n",
    ),
    "a rank before the group": (
        "TW472",
        "import torch.distributed as dist\nseed = dist.get_rank()\n" + DDP,
        "import torch.distributed as dist\nseed = dist.get_rank() if dist.is_initialized() else 0\n" + DDP,
    ),
    "an exception that is printed": (
        "TW473",
        loop(LOSS, STEP).replace("for x, y", "try:\n  for x, y").replace("\n    ", "\n      ")
        + "except Exception as error:\n  print(error)\n",
        loop(LOSS, STEP).replace("for x, y", "try:\n  for x, y").replace("\n    ", "\n      ")
        + "except Exception as error:\n  print(error)\n  raise\n",
    ),
    "a second model": (
        "TW474",
        MADE
        + "top = torch.nn.Linear(2, 2).cuda()\n"
        + "optimizer = torch.optim.SGD([*model.parameters(), *top.parameters()], lr=1)\n"
        + "for x in loader:\n    top(model(x)).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n",
        MADE
        + "top = DDP(torch.nn.Linear(2, 2).cuda())\n"
        + "optimizer = torch.optim.SGD([*model.parameters(), *top.parameters()], lr=1)\n"
        + "for x in loader:\n    top(model(x)).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n",
    ),
    "unscaled twice": (
        "TW477",
        loop(PASS, "scaler.unscale_(optimizer)\nscaler.unscale_(optimizer)", ENDS, head=SCALED),
        loop(PASS, "scaler.unscale_(optimizer)", ENDS, head=SCALED),
    ),
    "unscaled for each batch": (
        "TW477",
        loop(PASS, UNSCALE + "if i % 4 == 0:\n    " + ENDS.replace("\n", "\n    "), head=SCALED),
        loop(PASS, UNSCALE + "if args.fp16:\n    " + ENDS.replace("\n", "\n    "), head=SCALED),
    ),
    "a loss of probabilities": (
        "TW478",
        loop(PASS.replace("cross_entropy", "binary_cross_entropy"), ENDS, head=SCALED),
        loop(PASS.replace("cross_entropy", "binary_cross_entropy_with_logits"), ENDS, head=SCALED),
    ),
    "a scaler for each step": (
        "TW479",
        loop("scaler = torch.cuda.amp.GradScaler()", PASS, ENDS),
        loop(PASS, ENDS, head=SCALED),
    ),
    "float16 without a scaler": (
        "TW480",
        loop(f"with torch.autocast('cuda', dtype=torch.float16):\n    {LOSS}", STEP),
        loop(f"with torch.autocast('cuda', dtype=torch.bfloat16):\n    {LOSS}", STEP),
    ),
    "backward within autocast": (
        "TW481",
        loop(CAST.format("bfloat16") + f":\n    {LOSS}\n    loss.backward()", "optimizer.step()"),
        loop(f"with torch.autocast('cuda', dtype=torch.bfloat16):\n    {LOSS}", STEP),
    ),
    "autocast of the CPU": (
        "TW482",
        loop(f"with torch.autocast('cpu'):\n    {LOSS}", STEP),
        loop(f"with torch.autocast(device.type):\n    {LOSS}", STEP, head="device = pick()\n"),
    ),
    "a policy of FSDP": (
        "TW483",
        SHARDED.format("model = FSDP(model, auto_wrap_policy=transformer_auto_wrap_policy)"),
        SHARDED.format(
            "policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})\n"
            "model = FSDP(model, auto_wrap_policy=policy)"
        ),
    ),
    "weights of the first process": (
        "TW484",
        SHARDED.format("torch.manual_seed(dist.get_rank())\nmodel = torch.nn.Linear(2, 2).cuda()\nmodel = FSDP(model)"),
        SHARDED.format(
            "torch.manual_seed(dist.get_rank())\nmodel = torch.nn.Linear(2, 2).cuda()\n"
            "model = FSDP(model, sync_module_states=True)"
        ),
    ),
    "a mean of the mean": (
        "TW485",
        loop(LOSS, "loss = loss / dist.get_world_size()", STEP),
        loop(LOSS, "loss = loss / 4", STEP),
    ),
    "CUDA in workers": (
        "TW486",
        DDP + ON_GPU.format(2),
        DDP + ON_GPU.format(0),
    ),
    "the batch of all": (
        "TW487",
        DDP + "s = DistributedSampler(d)\nloader = DataLoader(d, batch_size=8 * dist.get_world_size(), sampler=s)\n",
        DDP + "s = DistributedSampler(d)\nloader = DataLoader(d, batch_size=64 // dist.get_world_size(), sampler=s)\n",
    ),
    "a share for the Trainer": (
        "TW488",
        TRAINER.format("")
        + "part = data.shard(args.world_size, args.process_index)\nTrainer(args=args, train_dataset=part)\n",
        TRAINER.format("") + "part = data.shard(10, 0)\nTrainer(args=args, train_dataset=part)\n",
    ),
    "the outputs of compute_loss": (
        "TW489",
        TRAINER.format(", eval_strategy='epoch'")
        + OWN
        + "        loss = model(**inputs).loss\n        return loss\nOwn(args=args).train()\n",
        TRAINER.format(", eval_strategy='epoch'")
        + OWN
        + "        out = model(**inputs)\n        return (out.loss, out) if return_outputs else out.loss\n"
        + "Own(args=args).train()\n",
    ),
    "a pass past the Trainer's wrapper": (
        "TW434",
        TRAINER.format("")
        + OWN
        + "        out = self.model(**inputs)\n        return (out.loss, out) if return_outputs else out.loss\n"
        + "Own(args=args).train()\n",
        TRAINER.format("")
        + OWN
        + "        with torch.no_grad():\n            self.model(**inputs)\n        out = model(**inputs)\n"
        + "        return (out.loss, out) if return_outputs else out.loss\nOwn(args=args).train()\n",
    ),
    "a loss that Accelerate divides": (
        "TW490",
        ACCELERATE
        + "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\nfor x in loader:\n"
        + "    with accelerator.accumulate(model):\n        loss = model(x).sum() / accumulation\n"
        + "        accelerator.backward(loss / accumulation)\n        optimizer.step()\n"
        + "        optimizer.zero_grad()\n",
        ACCELERATE
        + "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\nfor x in loader:\n"
        + "    with accelerator.accumulate(model):\n        loss = model(x).sum()\n"
        + "        shown = loss / accumulation\n"
        + "        accelerator.backward(loss)\n        optimizer.step()\n        optimizer.zero_grad()\n",
    ),
    "a sum over a share": (
        "TW491",
        MADE + LOADED + "right = torch.zeros(1).cuda()\nfor x, y in loader:\n    right += (model(x) == y).sum()\n"
        "print(right.item() / len(loader.dataset))\n",
        MADE + LOADED + "right = torch.zeros(1).cuda()\nfor x, y in loader:\n    right += (model(x) == y).sum()\n"
        "dist.all_reduce(right)\nprint(right.item() / len(loader.dataset))\n",
    ),
    "backward without a graph": (
        "TW492",
        loop(LOSS, "loss = loss.detach()", STEP),
        loop(LOSS, "shown = loss.detach()", STEP),
    ),
    "a file and a folder": (
        "TW493",
        DDP + "torch.save(model.module.state_dict(), os.environ['SM_MODEL_DIR'])\n",
        DDP + "torch.save(model.module.state_dict(), os.environ['SM_MODEL_DIR'] + '/m.pt')\n",
    ),
    "no_sync for the last of the batches": (
        "TW496",
        loop(
            "last = step()",
            "with model.no_sync() if last else nullcontext():",
            f"    {LOSS}",
            "    loss.backward()",
            "if last:",
            "    optimizer.step()",
            head="from contextlib import nullcontext\n",
        ),
        loop(
            "last = step()",
            "with nullcontext() if last else model.no_sync():",
            f"    {LOSS}",
            "    loss.backward()",
            "if last:",
            "    optimizer.step()",
            head="from contextlib import nullcontext\n",
        ),
    ),
    "the backend of XLA where another import registers it, too": (
        "TW495",
        XLA.format(""),
        XLA.format("import torch_xla.distributed.xla_multiprocessing as xmp\n"),
    ),
    "a checkpoint of the inner model for the wrapper": (
        "TW497",
        RESUMED.format("model.load_state_dict"),
        RESUMED.format("model.module.load_state_dict"),
    ),
    "a folder of the container, in a function that is called export": (
        "TW145",
        EXPORTED.format("outputs"),
        EXPORTED.format("/opt/ml/model"),
    ),
    "a backend of a flag that the job leaves alone": (
        "TW126",
        SMDDP.format("", ""),
        SMDDP.format("import smdistributed.dataparallel.torch.torch_smddp\n", ""),
    ),
    "the folder of all outputs": (
        "TW142",
        DDP + "torch.save(model.module.state_dict(), os.path.join(os.environ['SM_OUTPUT_DIR'], 'model', 'm.pt'))\n",
        DDP + "torch.save(model.module.state_dict(), os.path.join(os.environ['SM_OUTPUT_DIR'], 'data', 'm.pt'))\n",
    ),
    "a notebook's launcher under torchrun": (
        "TW122",
        "from accelerate import notebook_launcher\ndef run():\n    pass\nnotebook_launcher(run, num_processes=8)\n",
        "from accelerate import Accelerator\ndef run():\n    pass\nrun()\n",
    ),
    # Accelerate, launchers.py: with one process it calls the function itself.
    "a notebook's launcher of several": (
        "TW122",
        "from accelerate import notebook_launcher\ndef run():\n    pass\nnotebook_launcher(run, (), 2)\n",
        "from accelerate import notebook_launcher\ndef run():\n    pass\nnotebook_launcher(run, (), 1)\n",
    ),
    "weights of a checkpoint that one process finds": (
        "TW184",
        MADE + "first = torch.zeros(1).cuda()\nif dist.get_rank() == 0 and os.path.isfile('c.pt'):\n"
        "    model.module.load_state_dict(torch.load('c.pt'))\n    first += 1\ndist.broadcast(first, 0)\n",
        MADE + "if dist.get_rank() == 0 and os.path.isfile('c.pt'):\n"
        "    model.module.load_state_dict(torch.load('c.pt'))\n"
        "for each in model.parameters():\n    dist.broadcast(each, 0)\n",
    ),
    "a sum of gradients where only the loss that is shown is divided": (
        "TW448",
        SUMMED.format("", "loss.item() / size"),
        SUMMED.format(" / size", "loss.item() / size"),
    ),
    "an optimizer of another model": (
        "TW147",
        MADE + "other = torch.nn.Linear(2, 2).cuda()\noptimizer = torch.optim.SGD(other.parameters(), lr=1)\n"
        "for x in loader:\n    optimizer.zero_grad()\n    model(x).sum().backward()\n    optimizer.step()\n",
        MADE + "optimizer = torch.optim.SGD(net.parameters(), lr=1)\n"
        "for x in loader:\n    optimizer.zero_grad()\n    model(x).sum().backward()\n    optimizer.step()\n",
    ),
    "weights that all load": (
        "TW184",
        MADE + "if dist.get_rank() == 0:\n    model.load_state_dict(torch.load('w.pt'))\n",
        MADE
        + "model.load_state_dict(torch.load('w.pt'))\nif dist.get_rank() == 0:\n    scheduler.load_state_dict(x)\n",
    ),
    "what prepare returns": (
        "TW155",
        ACCELERATE + "optimizer, model = accelerator.prepare(model, optimizer)\nmodel(x).sum().backward()\n",
        ACCELERATE + "model, optimizer = accelerator.prepare(model, optimizer)\nmodel(x).sum().backward()\n",
    ),
    "labels in main memory": (
        "TW459",
        MADE + ADAM + LOADED + "for x, y in loader:\n    x = x.cuda()\n"
        "    torch.nn.functional.cross_entropy(model(x), y).backward()\n    optimizer.step()\n",
        MADE + ADAM + LOADED + "for x, y in loader:\n    x, y = x.cuda(), y.cuda()\n"
        "    torch.nn.functional.cross_entropy(model(x), y).backward()\n    optimizer.step()\n",
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_the_mistake_is_reported_and_the_right_way_is_not(name):
    code, wrong, right = WAYS[name]
    assert code in codes(wrong, TWO)
    assert code not in codes(right, TWO)


def test_the_epoch_of_a_checkpoint_is_read_though_it_was_kept_by_a_keyword():
    save = "torch.save(dict(model=model.state_dict(), epoch=epoch), '/opt/ml/checkpoints/c.pt')"
    script = (
        f"{MADE}{ADAM}def restore():\n    saved = torch.load('/opt/ml/checkpoints/c.pt')\n"
        "    model.load_state_dict(saved['model'])\n    return saved['epoch'] + 1\n"
        "for epoch in range(restore(), 9):\n    for x in loader:\n        optimizer.zero_grad()\n"
        f"        model(x).sum().backward()\n        optimizer.step()\n    {save}\n"
    )
    job = TWO | {"checkpoint": {"s3_uri": "s3://b/c"}}
    assert "TW454" not in codes(script, job)
    assert "TW454" in codes(
        script.replace("range(restore(), 9)", "range(9)").replace("loader:", "restore() or []:"), job
    )
