"""Beside the corpus's mistakes, the nearest right ways: changes of a good script that leave it without a finding."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.corpus import Planted, edited, load

CORPUS = {good.base: good for good, _ in load()}

# The script, what it is changed to, and whether the job is changed.
RIGHT: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "each loads onto the CPU": ("ddp_imagenet", {"map_location=device": 'map_location="cpu"'}, {}),
    "each rank loads a file of its own": (
        "ddp_imagenet",
        {"torch.load(args.checkpoint, map_location=device)": 'torch.load(f"{args.checkpoint}.{dist.get_rank()}")'},
        {},
    ),
    "what is loaded is no state": (
        "ddp_imagenet",
        {"    scaler = torch": '    classes = torch.load("classes.pt")\n    scaler = torch'},
        {},
    ),
    "the wrapper takes the current device": ("ddp_imagenet", {"(model, device_ids=[gpu])": "(model)"}, {}),
    "no gradient is shared in all micro steps but the last": (
        "ddp_gpt",
        {
            "        with nullcontext() if last else model.no_sync():\n"
            "            _, loss = model(x, y)\n"
            "            loss = loss / accumulation\n"
            "            loss.backward()\n": "        if last:\n"
            "            _, loss = model(x, y)\n"
            "            loss.backward()\n"
            "        else:\n"
            "            with model.no_sync():\n"
            "                _, loss = model(x, y)\n"
            "                loss.backward()\n"
        },
        {},
    ),
    "gradients that are averaged by hand": (
        "ddp_gpt",
        {
            "with nullcontext() if last else model.no_sync():": "with model.no_sync():",
            "    torch.nn.utils": "    for each in model.parameters():\n        dist.all_reduce(each.grad)\n"
            "        each.grad /= dist.get_world_size()\n    torch.nn.utils",
            "import torch\n": "import torch\nimport torch.distributed as dist\n",
        },
        {},
    ),
    "gradients cleared at the first micro step": (
        "ddp_gpt",
        {
            "        last = micro": "        if micro == 0:\n            optimizer.zero_grad()\n        last = micro",
            "    optimizer.zero_grad(set_to_none=True)\n": "",
        },
        {},
    ),
    "gradients cleared before the micro steps": (
        "ddp_gpt",
        {
            "    for micro in": "    optimizer.zero_grad()\n    for micro in",
            "    optimizer.zero_grad(set_to_none=True)\n": "",
        },
        {},
    ),
    "a model that moves itself": (
        "ddp_gpt",
        {
            "model.to(device)\n": "",
            "        self.head = nn.Linear(384, 50304)\n": (
                "        self.head = nn.Linear(384, 50304)\n        self.to(device)\n"
            ),
        },
        {},
    ),
    "a model made on the GPU": (
        "ddp_gpt",
        {"model.to(device)\n": "", "model = GPT()": "with torch.device(device):\n    model = GPT()"},
        {},
    ),
    "shards that know the norm of all": (
        "fsdp_t5",
        {
            "model.clip_grad_norm_(1.0)": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            "    model = FullyShardedDataParallel(\n"
            "        model, auto_wrap_policy=policy, mixed_precision=bf16, device_id=torch.cuda.current_device()\n"
            "    )\n": "    fully_shard(model)\n",
            "FullyShardedDataParallel, MixedPrecision": "FullyShardedDataParallel, MixedPrecision, fully_shard",
        },
        {},
    ),
    "the whole state in every rank, which one writes": ("fsdp_t5", {", rank0_only=True": ""}, {}),
    "the last evaluation is the only one": (
        "hf_summarize",
        {
            '        evaluation_strategy="epoch",\n': "",
            "        load_best_model_at_end=True,\n": "",
            "        eval_dataset=eval_data,\n": "",
            "trainer.evaluate()": "trainer.evaluate(eval_data)",
        },
        {},
    ),
    "a loader made for each epoch's evaluation": (
        "accelerate_loop",
        {
            "model, optimizer, train_loader, eval_loader, schedule = accelerator.prepare(\n"
            "    model, optimizer, train_loader, eval_loader, schedule\n)\n": "model, optimizer, schedule = "
            "accelerator.prepare(model, optimizer, schedule)\n"
            "train_loader, eval_loader = accelerator.prepare(train_loader, eval_loader)\n"
        },
        {},
    ),
    "Accelerate may wrap in FSDP": (
        "accelerate_loop",
        {
            "unwrapped = accelerator.unwrap_model(model)": "sharded = accelerator.state.fsdp_plugin is not None\n"
            "unwrapped = model"
        },
        {},
    ),
    "the model's own method through the wrapper": (
        "accelerate_loop",
        {"unwrapped = accelerator.unwrap_model(model)": "unwrapped = model.module"},
        {},
    ),
    "the wrapper's own module where there is one": (
        "accelerate_loop",
        {
            "    model.eval()": "    own = model.module if accelerator.num_processes > 1 else model\n"
            "    if accelerator.num_processes > 1:\n        rows = own.get_input_embeddings()\n"
            "    else:\n        rows = model.get_input_embeddings()\n    model.eval()",
        },
        {},
    ),
    "a gradient that is clipped by its value": (
        "hvd_torch_imagenet",
        {
            "        optimizer.synchronize()\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
            "        with optimizer.skip_synchronize():\n            optimizer.step()\n": "        optimizer.step()\n"
        },
        {},
    ),
    "a sampler in a group of PyTorch's beside Horovod": (
        "hvd_torch_imagenet",
        {
            "DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())": "DistributedSampler(data)",
            "    hvd.init()\n": "    hvd.init()\n    torch.distributed.init_process_group('gloo', rank=hvd.rank(), "
            "world_size=hvd.size())\n",
        },
        {},
    ),
    "an SMP v2 job without tensor parallelism": (
        "smp_v2_llama",
        {
            "    model = tsm.transform(model)\n": "",
            "DistributedSampler(data, num_replicas=tsm.state.dp_size, rank=tsm.state.dp_rank, shuffle=True)": (
                "DistributedSampler(data, shuffle=True)"
            ),
        },
        {
            "distribution": {
                "torch_distributed": {"enabled": True},
                "smdistributed": {"modelparallel": {"enabled": True, "parameters": {"hybrid_shard_degree": 8}}},
            }
        },
    ),
    "a model of layers in the scope": (
        "mwms_resnet",
        {
            "tf.keras.applications.ResNet50(weights=None, classes=1000)": "build()",
            "def is_chief": "def build():\n    return tf.keras.Sequential([tf.keras.layers.Softmax()])\n\ndef is_chief",
        },
        {},
    ),
    "a tensor after the strategy": (
        "mwms_resnet",
        {"\n\ndef parse": "mean = tf.constant([0.485, 0.456, 0.406])\n\n\ndef parse"},
        {},
    ),
    "a tensor in a function that runs after the strategy": (
        "mwms_resnet",
        {
            "strategy = tf": "def mean():\n    return tf.constant([0.485])\n\n\nstrategy = tf",
            "tf.image.resize(": ("mean() * tf.image.resize("),
        },
        {},
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_way_is_not_blamed(name):
    base, edits, job = RIGHT[name]
    good = CORPUS[base]
    changed = Planted(base, name, (), edited(base, name, good.text, edits), good.job | job)
    assert [(f.code, f.line, f.message) for f in changed.findings()] == []
