"""SageMaker's data parallel library before 1.4.0: its module has a group, torch.distributed has none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import findings

ACCOUNT = "763104351884.dkr.ecr.us-west-2.amazonaws.com"
SCRIPT = """
import torch
import torch.distributed
{imports}
from torch.utils.data.distributed import DistributedSampler
{init}
{then}
"""
OWN = "import smdistributed.dataparallel.torch.distributed as dist"
INIT = "dist.init_process_group()"
BOTH = f"{INIT}\ntorch.distributed.init_process_group('nccl')"
BACKEND = "import smdistributed.dataparallel.torch.torch_smddp\nimport torch.distributed as dist"
EITHER = f"try:\n    {OWN}\nexcept ImportError:\n    import torch.distributed as dist"


def job(version: str | None) -> dict[str, Any]:
    named = {"image": f"{ACCOUNT}/pytorch-training:{version}-gpu-py36-cu111-ubuntu18.04"} if version else {}
    launched = {"smdistributed": {"dataparallel": {"enabled": True}}}
    return {"instance_type": "ml.p3.16xlarge", "instance_count": 2, "distribution": launched, **named}


def found(then: str, *, imports: str = OWN, init: str = INIT, version: str | None = "1.8.1") -> list[str]:
    text = SCRIPT.format(imports=imports, init=init, then=then)
    return [each.severity for each in findings(text, job(version)) if each.code == "TW560"]


@pytest.mark.parametrize(
    "then",
    [
        "torch.distributed.barrier()",
        "rank = torch.distributed.get_rank()",
        "def world():\n    return torch.distributed.get_world_size()\nrate = 0.1 * world()",
        "import torch.distributed as td\ntd.all_reduce(total)",
        "if dist.get_rank() == 0:\n    torch.distributed.broadcast(total, 0)",
        "with torch.no_grad():\n    torch.distributed.all_reduce(total)",
        "class Meter:\n    def join(self):\n        torch.distributed.all_reduce(self.total)\nMeter().join()",
        "sampler = DistributedSampler(data)",
        "sampler = DistributedSampler(data, num_replicas=dist.get_world_size())",
    ],
)
def test_torch_has_no_group(then):
    """huggingface/transformers #12847: Default process group has not been initialized."""
    assert found(then) == ["error"]
    # Release notes of 1.4.0, which is in AWS's images of PyTorch 1.10: the library is a backend of torch.
    assert found(then, version="1.10.2") == ["warning"]
    assert found(then, version=None) == ["warning"]
    assert found(then, init=BOTH) == []
    assert found(then, imports=BACKEND, init="dist.init_process_group(backend='smddp')") == []
    assert found(then, imports=EITHER) == []


@pytest.mark.parametrize(
    "then",
    [
        "dist.barrier()\ndist.all_reduce(total)\nrank = dist.get_rank()",
        "sampler = DistributedSampler(data, num_replicas=dist.get_world_size(), rank=dist.get_rank())",
        "sampler = DistributedSampler(data, dist.get_world_size(), dist.get_rank())",
        "if torch.distributed.is_initialized():\n    torch.distributed.barrier()",
        "rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0",
        "def later():\n    torch.distributed.barrier()",
        "try:\n    rank = torch.distributed.get_rank()\nexcept RuntimeError:\n    rank = dist.get_rank()",
        "if verbose:\n    torch.distributed.barrier()",
        "import deepspeed\ndeepspeed.init_distributed()\ntorch.distributed.barrier()",
    ],
)
def test_torch_is_not_asked(then):
    assert found(then) == []
