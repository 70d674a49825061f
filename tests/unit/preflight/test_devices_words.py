"""One GPU for each process: every way to select one, and near misses.

Calls are those of PyTorch's documentation of torch.cuda, torch.accelerator and DistributedDataParallel.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, SMP, SMP_JOB, XLA, codes, findings, parser

ALONE: dict[str, Any] = {"instance_type": P4D}
ONE: dict[str, Any] = {**ALONE, "distribution": {"torch_distributed": {"enabled": True}}}
TWO: dict[str, Any] = {**ONE, "instance_count": 2}
PAIR: dict[str, Any] = {**TWO, "instance_type": "ml.g5.xlarge"}
JOINED = "import os\nimport torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
HEAD = JOINED + "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = torch.nn.Linear(1, 1)\n"
LOCAL = "int(os.environ['LOCAL_RANK'])"
RANK = "int(os.environ['RANK'])"
SET = f"torch.cuda.set_device({LOCAL})\n"
FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
UNCALLED = "def never_called(x):\n    {}\n"
STEP = "for rows in loader:\n    {}\n    model(rows).sum().backward()\n"
ACCELERATE = f"import accelerate\n{HEAD}"
VISIBLE = "os.environ['CUDA_VISIBLE_DEVICES'] = {}\n"
SPAWNED = "import torch.multiprocessing as mp\ndef work(n):\n    pass\nmp.spawn(work, nprocs=8)\n"
PROCESSES = (
    "import torch\nimport torch.distributed as dist\nfrom multiprocessing import Process\ndef work(n):\n"
    "    dist.init_process_group('nccl', rank=n)\n    model = torch.nn.Linear(1, 1).to(f'cuda:{n}')\n"
    "for n in range(torch.cuda.device_count()):\n    Process(target=work, args=(n,)).start()\n"
)
CASES: list[tuple[str, bool, str, dict[str, Any] | None]] = [
    # --- one GPU for all
    *(
        ("TW121", True, HEAD + line, ONE)
        for line in (
            "torch.cuda.set_device(0)",
            "torch.cuda.set_device(device=0)",
            "torch.cuda.set_device('cuda:0')",
            "torch.accelerator.set_device_index(0)",
            "torch.accelerator.device_index(0)",
            "model.cuda(0)",
            "model.cuda(device=0)",
            "model.to('cuda:0')",
            "model.to(device='cuda:0')",
            "torch.device('cuda:0')",
            "torch.device('cuda', 0)",
            "DDP(model, device_ids=[0])",
            "DDP(model, [0])",
            "DDP(model, output_device=0)",
            FSDP + "FSDP(model, device_id=0)",
            # nobody selects one
            "model.cuda()",
            "data.cuda(non_blocking=True)",
            "model.to('cuda')",
            "model.to(device='cuda')",
            "torch.device('cuda')",
            "torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
            # several for each
            "DDP(model, device_ids=list(range(torch.cuda.device_count())))",
            "DDP(model, device_ids=range(ngpus_per_node))",
            "DDP(model, list(range(n_gpu)))",
            "DDP(model, device_ids=[0, 1])",
            "DDP(model, [1, 2, 3])",
            SET + "DDP(model, [0, 1])",
            SET + "more = {'device_ids': [0, 1]}\nDDP(model, **more)",
            f"{SET}DDP(model, device_ids=[2 * {LOCAL}, 2 * {LOCAL} + 1])",
        )
    ),
    *(
        ("TW121", False, HEAD + line, ONE)
        for line in (
            "",
            SET + "model.cuda()",
            f"torch.accelerator.set_device_index({LOCAL})\nmodel.cuda()",
            f"model.to({LOCAL})",
            f"model.cuda({LOCAL})",
            f"DDP(model.cuda({LOCAL}), device_ids=[{LOCAL}], bucket_cap_mb=25)",
            "model.to(*place)",
            "model.to('cpu')",
            "model.to(dtype=torch.half)",
            "model.to(torch.device('cuda', chosen(model)))",
            "torch.cuda.set_device(f'cuda:{os.getpid() % 8}')",
            "torch.cuda.set_device('cuda:{}'.format(place()))\nmodel.cuda()",
            f"def set_device(seed):\n    torch.cuda.set_device({LOCAL})\nset_device(0)\nmodel.cuda()",
            "import work\nwork.cuda()",
            "torch.distributed.device_mesh.init_device_mesh('cuda', (8,))\nmodel.cuda()",
            "from torch.distributed.fsdp import fully_shard\nfully_shard(model)\nmodel.cuda()",
            "try:\n    import fairscale\nexcept ImportError:\n    pass\nmodel.cuda()",
            "os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\nmodel.cuda()",
            "from work import set_device\nset_device(place)\nmodel.cuda()",
            "from work import set_device_index\nset_device_index(place)\nmodel.cuda()",
            "from work import device_index\ndevice_index(place)\nmodel.cuda()",
            # Other moves do not matter where each process may use its own device.
            SET + "rows.to('cuda:0')",
            "torch.cuda.set_device(f'cuda:{os.getpid() % 8}')\nrows.to('cuda:0')",
            "model.to(torch.device('cuda', chosen(model)))\nrows.to('cuda:0')",
            f"{SET}pair = [2 * {LOCAL}, 2 * {LOCAL} + 1] if args.two else None\nDDP(model, device_ids=pair)",
            # Set for some purpose, or nowhere.
            SET + "if args.debug:\n    torch.cuda.set_device(0)\n",
            SET + UNCALLED.format("torch.cuda.set_device(0)"),
            SET + UNCALLED.format("DDP(x, device_ids=[0, 1])"),
            SET + "place = torch.device('cuda:0')\nmodel.to('cpu')\nmodel.cuda()",
            SET + "place = torch.device('cuda:0')\n" + UNCALLED.format("x.to(place)"),
        )
    ),
    ("TW121", True, HEAD + SET + "place = torch.device('cuda:0')\nmodel.to('cpu')\nmodel.to(place)\n", ONE),
    ("TW121", True, HEAD + f"model.to('cuda')\nDDP(model, device_ids=[{LOCAL}])\n", ONE),
    # A model on one GPU, though each process selects its own.
    *(
        ("TW121", found, HEAD + SET + line, job)
        for found, line, job in (
            *(
                (True, line, ONE)
                for line in (
                    "model.to('cuda:0')",
                    "model.cuda(0)",
                    "model.cuda(device=0)",
                    "device = 'cuda:0'\nmodel.to(device)",
                    "device = 'cuda:0' if torch.cuda.is_available() else 'cpu'\nDDP(model.to(device))",
                    "if torch.cuda.is_available():\n    model.to('cuda:0')",
                    "from models import build\nDDP(build().to('cuda:0'))",
                    "from models import build\nDDP(module=build().to('cuda:0'))",
                    "model.to('cuda:0')\nmodel.to('cpu')",
                    "model.to('cuda:0')\nmodel.to(torch.half)",
                    f"model.to({LOCAL})\nmodel.to('cuda:0')",
                    f"model.to('cuda:0')\ntorch.nn.Linear(1, 1).to({LOCAL})",
                )
            ),
            (True, STEP.format("rows.to('cuda:0')"), ONE),
            (True, STEP.format("rows.cuda(0)"), ONE),
            (True, parser('"--device", default="cuda:0"') + "model.to(args.device)", ONE),
            (False, parser('"--device", default="cuda:0"') + "model.to(args.device)", None),
            *(
                (False, line, ONE)
                for line in (
                    "from models import build\nbuild().to('cuda:0')",
                    "if args.debug:\n    model.to('cuda:0')",
                    "if dist.get_rank() == 0:\n    model.to('cuda:0')",
                    "if dist.get_world_size() == 1:\n    model.to('cuda:0')",
                    f"device = 'cuda:0'\nif dist.is_initialized():\n    device = {LOCAL}\nmodel.to(device)",
                    f"model.to('cuda:0')\nmodel.to({LOCAL})",
                    "model.to('cuda:0')\nmodel.cuda()",
                    "model.to('cuda:0')\nmodel.to('cuda')",
                    "model.to('cpu')",
                    "model.to(torch.half)",
                    UNCALLED.format("model.to('cuda:0')"),
                    "import ray\nmodel.to('cuda:0')",
                    "shown = os.environ.get('CUDA_VISIBLE_DEVICES')\nmodel.to('cuda:0')",
                    STEP.format(f"rows.to({LOCAL})"),
                    STEP.format("rows.to('cuda')"),
                    STEP.format("if args.debug:\n        rows.to('cuda:0')"),
                    STEP.format(f"rows = rows.to('cuda:0')\n    rows.to({LOCAL})"),
                    STEP.format("pass") + "for rows in held_out:\n    rows.to('cuda:0')",
                )
            ),
            (False, "model.to('cuda:0')", PAIR),
        )
    ),
    ("TW121", True, HEAD + f"DDP(model.to('cuda:0'), device_ids=[{LOCAL}])\n", ONE),
    ("TW121", False, SMP.replace("torch.cuda.set_device", "model.to('cuda:0')\ntorch.cuda.set_device"), SMP_JOB),
    ("TW121", False, PROCESSES, ALONE),
    ("TW121", False, parser('"--gpu", type=int, default=0') + HEAD + "torch.cuda.set_device(args.gpu)\n", ONE),
    ("TW121", False, parser('"--device", default="cuda"') + HEAD + "model.to(args.device)\n", ONE),
    ("TW121", False, HEAD + "model.cuda()\n", PAIR),
    ("TW121", False, XLA + DDP.replace("torch.cuda.set_device", "int") + "model.cuda()\n", ONE),
    ("TW121", False, SMP.replace("torch.cuda.set_device(smp.local_rank())", "model.cuda()"), SMP_JOB),
    # --- the rank of all hosts
    ("TW129", True, HEAD + f"torch.cuda.set_device({RANK})\n", TWO),
    ("TW129", True, HEAD + f"model.to(torch.device('cuda', {RANK}))\n", TWO),
    ("TW129", False, HEAD + f"torch.cuda.set_device({RANK})\n", ONE),
    ("TW121", False, HEAD + f"torch.cuda.set_device({RANK})\nmodel.cuda()\n", ONE),
    ("TW129", False, HEAD + SET, TWO),
    ("TW129", False, HEAD + f"torch.cuda.set_device({RANK} % torch.cuda.device_count())\n", TWO),
    # --- CUDA_VISIBLE_DEVICES
    ("TW121", True, HEAD + VISIBLE.format("'0'"), ONE),
    ("TW121", True, ACCELERATE + VISIBLE.format("'0'"), ONE),
    ("TW121", False, ACCELERATE + "import ray\n" + VISIBLE.format("'0'"), ONE),
    ("TW121", False, ACCELERATE + SPAWNED + VISIBLE.format("'0'"), ALONE),
    ("TW121", False, HEAD + VISIBLE.format("'0,1,2,3,4,5,6,7'"), ONE),
    ("TW121", False, HEAD + VISIBLE.format("os.environ['LOCAL_RANK']") + "torch.cuda.set_device(0)\n", ONE),
    # --- a library that gives each process its own
    ("TW121", True, ACCELERATE + "model.to('cuda:0')\n", ONE),
    ("TW121", True, ACCELERATE + "model.cuda(0)\n", ONE),
    ("TW121", False, ACCELERATE + "model.cuda()\n", ONE),
    ("TW121", False, ACCELERATE + "model.to(dtype=torch.half)\n", ONE),
    ("TW121", False, ACCELERATE + "if args.debug:\n    model.to('cuda:0')\n", ONE),
    ("TW121", False, ACCELERATE + "to('cuda:0')\n", ONE),
    ("TW121", False, ACCELERATE + UNCALLED.format("x.to('cuda:0')"), ONE),
    ("TW121", False, parser('"--device", default="cuda:0"') + ACCELERATE + "model.to(args.device)\n", ONE),
    # --- too late
    *(
        ("TW121", found, HEAD + text, ONE)
        for text, found in (
            ("DDP(model)\n" + SET, True),
            (SET + "DDP(model)\n", False),
            (f"DDP(model.to({LOCAL}))\n{SET}", False),
            (f"{FSDP}FSDP(model, device_id={LOCAL})\n{SET}", False),
            (f"DDP(model)\n{UNCALLED.format(SET)}", False),
            (f"def set_device(n):\n    torch.cuda.set_device({LOCAL})\nset_device(0)\nDDP(model)\n", False),
        )
    ),
    *(
        ("TW121", found, HEAD + text + f"DDP(model, device_ids=[{LOCAL}])\n", ONE)
        for text, found in (
            (f"model.cuda()\n{SET}", True),
            (f"model.to('cuda')\n{SET}", True),
            (f"model.to(device='cuda')\n{SET}", True),
            (f"where = torch.device('cuda', {LOCAL})\nmodel.cuda()\n{SET}", True),
            (f"{SET}model.cuda()\n", False),
            (f"rows.cuda()\n{SET}", False),
            (f"model.to('cpu')\n{SET}", False),
            (f"model.to(dtype)\n{SET}", False),
            (f"model.to(dtype=torch.half)\n{SET}", False),
            (f"model.cuda(place())\n{SET}", False),
            (f"model.to(torch.half)\n{SET}", False),
            (f"model.train()\n{SET}", False),
            (f"{UNCALLED.format('model.cuda()')}{SET}", False),
            (f"model.to({LOCAL})\nmodel.cuda()\n{SET}", False),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("code", "reported", "script", "job"), CASES)
def test_a_gpu_is_reported_where_several_processes_share_it(
    code: str, reported: bool, script: str, job: dict[str, Any] | None
) -> None:
    found = codes(script, job)
    assert (code in found) == reported, (found, script)


@pytest.mark.parametrize(
    ("script", "severity"),
    [
        (HEAD + "model.cuda()\n", "warning"),
        (HEAD + "model.cuda()\nDDP(model)\n", "error"),
        (HEAD + "DDP(model)\n" + UNCALLED.format("x.cuda()"), "warning"),
        (HEAD + "torch.cuda.set_device(0)\n", "error"),
        (ACCELERATE + "model.to('cuda:0')\n", "warning"),
        (HEAD + "DDP(model)\n" + SET, "warning"),
        (HEAD + SET + "model.to('cuda:0')\n", "error"),
        (HEAD + SET + parser('"--device", default="cuda:0"') + "model.to(args.device)\n", "warning"),
        # DistributedDataParallel itself moves what is given to the model (torch/nn/parallel/distributed.py).
        (HEAD + SET + STEP.format("rows = rows.to('cuda:0')"), "warning"),
    ],
)
def test_what_is_certain_is_an_error(script: str, severity: str) -> None:
    assert {each.severity for each in findings(script, ONE) if each.code == "TW121"} == {severity}


def test_the_call_is_named() -> None:
    (found,) = [each for each in findings(HEAD + "torch.cuda.set_device(0)\n", ONE) if each.code == "TW121"]
    assert "torch.cuda.set_device(0)" in found.message


def test_the_constant_gpu_is_named() -> None:
    script = HEAD + SET + "device = 'cuda:1' if torch.cuda.is_available() else 'cpu'\nmodel.to(device)\n"
    (found,) = [each for each in findings(script, ONE) if each.code == "TW121"]
    assert "`model.to(device)`: GPU 1 in every process" in found.message
