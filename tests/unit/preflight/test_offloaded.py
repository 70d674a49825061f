"""FSDP's gradients in main memory are replaced by each backward pass that reduces them.

Sources: PyTorch's documentation of FullyShardedDataParallel, limitations; torch/distributed/fsdp/_flat_param.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, Case, but, unmet

JOB: dict[str, Any] = {"instance_type": P4D, "distribution": TORCHRUN, "hyperparameters": {"parts": 8}}
HEAD = (
    "import argparse\nimport os\nimport torch\nimport torch.distributed as dist\n"
    "from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP, ShardingStrategy\n"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--parts', type=int, default=4)\n"
    "args = parser.parse_args()\n"
    "dist.init_process_group('cpu:gloo,cuda:nccl')\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
    "torch.manual_seed(1)\n"
    "model = FSDP(torch.nn.Linear(8, 8), cpu_offload=CPUOffload(offload_params=True))\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
)
INNER = (
    "for step in range(100):\n    for _ in range(args.parts):\n"
    "        loss = model(next(stream).cuda()).sum() / args.parts\n        loss.backward()\n"
    "    optimizer.step()\n    optimizer.zero_grad()\n"
)
NTH = (
    "for i, batch in enumerate(loader):\n    loss = model(batch.cuda()).sum() / args.parts\n    loss.backward()\n"
    "    if (i + 1) % args.parts == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n"
)
SKIPPED = but(
    NTH,
    "    if (i + 1) % args.parts == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n",
    "    if (i + 1) % args.parts != 0:\n        continue\n    optimizer.step()\n    optimizer.zero_grad()\n",
)
HELPER = (
    "def learn(model, optimizer, batches):\n    optimizer.zero_grad()\n    for batch in batches:\n"
    "        model(batch.cuda()).sum().backward()\n    optimizer.step()\n"
    "for batches in loader:\n    learn(model, optimizer, batches)\n"
)
SCALED = but(NTH, "loss.backward()", "scaler.scale(loss).backward()", "optimizer.step()", "scaler.step(optimizer)")
SCALER = "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\nscaler = ShardedGradScaler()\n"
PLAIN = but(
    NTH,
    "    if (i + 1) % args.parts == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n",
    "    optimizer.step()\n    optimizer.zero_grad()\n",
)
OFFLOAD = ", cpu_offload=CPUOffload(offload_params=True)"
CASES: list[Case] = [
    ("TW573", "error", HEAD + INNER, JOB),
    ("TW573", "error", HEAD + NTH, JOB),
    ("TW573", "error", HEAD + SKIPPED, JOB),
    ("TW573", "error", HEAD + SCALER + SCALED, JOB),
    ("TW573", "error", HEAD + but(NTH, "% args.parts", "% 4"), JOB),
    ("TW573", "error", but(HEAD, "offload_params=True", "True") + INNER, JOB),
    ("TW573", 17, HEAD + INNER, JOB),
    ("TW573", "error", but(HEAD, ", cpu_offload=CPUOffload", ", None, None, CPUOffload") + INNER, JOB),
    ("TW573", "error", HEAD + INNER, {**JOB, "hyperparameters": {"parts": 2}}),
    # How many they are is not known.
    ("TW573", "warning", HEAD + HELPER, JOB),
    ("TW573", "warning", HEAD + but(INNER, "in range(args.parts)", "in parts(args.parts)"), JOB),
    ("TW573", "warning", HEAD + but(NTH, "% args.parts", "% parts()"), JOB),
    # One batch for each step.
    ("TW573", False, HEAD + PLAIN, JOB),
    ("TW573", False, HEAD + INNER, {**JOB, "hyperparameters": {"parts": 1}}),
    ("TW573", False, HEAD + NTH, {**JOB, "hyperparameters": {"parts": 1}}),
    ("TW573", False, HEAD + but(NTH, "% args.parts", "% 1"), JOB),
    ("TW573", False, HEAD + but(NTH, "    loss.backward()\n", "    optimizer.zero_grad()\n    loss.backward()\n"), JOB),
    # All but the last within no_sync.
    (
        "TW573",
        False,
        HEAD
        + but(
            NTH,
            "    loss.backward()\n",
            "    last = (i + 1) % args.parts == 0\n    with contextlib.nullcontext() if last else model.no_sync():\n"
            "        loss.backward()\n",
        ),
        JOB,
    ),
    # In the memory of the GPU, or in one process.
    ("TW573", False, but(HEAD, OFFLOAD, "") + INNER, JOB),
    ("TW573", False, but(HEAD, "offload_params=True", "offload_params=False") + INNER, JOB),
    ("TW573", False, but(HEAD, "offload_params=True", "offload_params=chosen()") + INNER, JOB),
    ("TW573", False, but(HEAD, OFFLOAD, f"{OFFLOAD}, sharding_strategy=ShardingStrategy.NO_SHARD") + INNER, JOB),
    ("TW573", False, HEAD + INNER, {"instance_type": "ml.g5.xlarge"}),
    # FSDP2 accumulates what it has offloaded.
    (
        "TW573",
        False,
        but(
            HEAD,
            f"FSDP(torch.nn.Linear(8, 8){OFFLOAD})",
            "fully_shard(torch.nn.Linear(8, 8), offload_policy=CPUOffloadPolicy())",
            "CPUOffload, FullyShardedDataParallel as FSDP, ShardingStrategy",
            "CPUOffload, CPUOffloadPolicy, fully_shard",
        )
        + INNER,
        JOB,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_accumulated_gradients_in_main_memory(case: Case) -> None:
    assert not unmet(case), unmet(case)
