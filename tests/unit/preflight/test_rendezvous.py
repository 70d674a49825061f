"""A process group that takes its rank from the environment, under each launcher, and near misses.

What init_process_group reads is from torch/distributed/rendezvous.py (``_env_rendezvous_handler``); what is set, from
PyTorch's documentation of torchrun, Open MPI's of mpirun, and sagemaker-pytorch-training 3.0.0 (``training.py``:
``_set_distributed_environment`` sets MASTER_ADDR and MASTER_PORT, and nothing else).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, findings

ALONE: dict[str, Any] = {"instance_type": "ml.g5.2xlarge"}
HOSTS = ALONE | {"instance_count": 2}
MPI: dict[str, Any] = {"instance_type": P4D, "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
SMP = {
    "instance_type": P4D,
    "distribution": {"mpi": {"enabled": True}, "smdistributed": {"modelparallel": {"enabled": True}}},
}
SMDDP = {"instance_type": P4D, "instance_count": 2, "distribution": {"pytorchddp": {"enabled": True}}}
HEAD = "import os\nimport sys\nimport torch\nimport torch.distributed as dist\n"
JOIN = "dist.init_process_group('nccl')\n"
SETUP = f"def setup():\n    {JOIN}\n"


def told(line: str, job: dict[str, Any] | None) -> list[str]:
    return [each.message for each in findings(HEAD + line + "\n", job) if each.code == "TW166"]


@pytest.mark.parametrize(
    "line",
    [
        "dist.init_process_group('nccl')",
        "dist.init_process_group(backend='gloo')",
        "dist.init_process_group()",
        "dist.init_process_group('nccl', 'env://')",
        "dist.init_process_group('nccl', init_method='env://')",
        "dist.init_process_group('nccl', init_method=None)",
        "dist.init_process_group('nccl', rank=0)",
        "dist.init_process_group('nccl', world_size=2)",
        "dist.device_mesh.init_device_mesh('cuda', (1,))",
        f"if not dist.is_initialized():\n    {JOIN}",
        f"if dist.is_available() and not dist.is_initialized():\n    {JOIN}",
        f"def main():\n    {JOIN}\nif __name__ == '__main__':\n    main()",
        f"try:\n    {JOIN}finally:\n    print()",
        f"{SETUP}try:\n    setup()\nexcept Exception as e:\n    print(e)\n    sys.exit(1)",
        f"{SETUP}try:\n    setup()\nexcept Exception as e:\n    print(e)\n    raise",
        f"import work\nwork.compile()\n{JOIN}",
        f"torch.manual_seed(0)\nprint(os.environ.get('NAME'))\n{JOIN}",
        f"os.environ['MASTER_ADDR'] = 'localhost'\n{JOIN}",
        f"os.environ['RANK'] = '0'\n{JOIN}",
        f"os.environ.update(NCCL_DEBUG='INFO')\n{JOIN}",
        f"world = int(os.environ.get('WORLD_SIZE', 1))\n{JOIN}",
    ],
)
@pytest.mark.parametrize("job", [ALONE, HOSTS, MPI])
def test_a_group_without_a_rank_is_reported_where_no_launcher_sets_one(line: str, job: dict[str, Any]) -> None:
    assert len(told(line, job)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "dist.init_process_group('nccl', rank=0, world_size=1)",
        "dist.init_process_group('nccl', 'env://', None, 1, 0)",
        "dist.init_process_group('nccl', init_method='tcp://algo-1:7777')",
        "dist.init_process_group('nccl', init_method='env://?rank=0&world_size=1')",
        "dist.init_process_group('nccl', init_method=address())",
        "dist.init_process_group('nccl', store=dist.FileStore('/tmp/f', 1))",
        "dist.init_process_group('mpi')",
        "dist.init_process_group('fake')",
        "dist.init_process_group(**given)",
        f"os.environ['RANK'] = os.environ['WORLD_SIZE'] = '1'\n{JOIN}",
        f"os.environ.setdefault('RANK', '0')\nos.environ.setdefault('WORLD_SIZE', '1')\n{JOIN}",
        f"os.environ.update({{'RANK': '0', 'WORLD_SIZE': '1'}})\n{JOIN}",
        f"os.environ.update(RANK='0', WORLD_SIZE='1')\n{JOIN}",
        f"os.environ.update(more)\n{JOIN}",
        f"os.environ.update(**more)\n{JOIN}",
        f"for name in more:\n    os.environ[name] = more[name]\n{JOIN}",
        f"from work import setup_env\nsetup_env()\n{JOIN}",
        f"from work import mpi_discovery\nmpi_discovery()\n{JOIN}",
        f"if 'RANK' in os.environ:\n    {JOIN}",
        f"if 'RANK' not in os.environ:\n    os.system('torchrun train.py')\n    sys.exit()\n{JOIN}",
        f"if int(os.environ.get('WORLD_SIZE', 1)) > 1:\n    {JOIN}",
        f"if args.distributed:\n    {JOIN}",
        f"try:\n    {JOIN}except ValueError:\n    print()",
        f"{SETUP}try:\n    setup()\nexcept ValueError:\n    print()",
        SETUP,
        f"import accelerate\n{JOIN}",
        f"import torch.multiprocessing as mp\n{SETUP}mp.spawn(setup, nprocs=8)",
        f"import torch_xla\n{JOIN}",
    ],
)
@pytest.mark.parametrize("job", [ALONE, MPI])
def test_a_group_that_may_know_its_rank_is_right(line: str, job: dict[str, Any]) -> None:
    assert not told(line, job)


@pytest.mark.parametrize(
    "job",
    [
        None,
        ALONE | {"distribution": TORCHRUN},
        SMDDP,
        ALONE | {"environment": {"RANK": "0", "WORLD_SIZE": "1"}},
    ],
)
def test_jobs_that_set_the_rank_are_right(job: dict[str, Any] | None) -> None:
    assert not told(JOIN, job)


def test_the_model_parallel_library_sets_its_own_variables() -> None:
    assert not told(f"import smdistributed.modelparallel.torch as smp\nsmp.init()\n{JOIN}", SMP)


def test_what_is_missing_is_named_and_how_to_pass_it() -> None:
    group = "`dist.init_process_group('nccl')` reads RANK and WORLD_SIZE"
    (alone,) = [each for each in findings(HEAD + JOIN, ALONE) if each.code == "TW166"]
    assert f"{group}, but the job starts the script without a launcher" in alone.message
    assert "torch_distributed" in alone.remedy
    (mpi,) = [each for each in findings(HEAD + JOIN, MPI) if each.code == "TW166"]
    assert f'{group}, which the launcher "mpi" does not set' in mpi.message
    assert 'rank=int(os.environ["OMPI_COMM_WORLD_RANK"])' in mpi.remedy
    assert 'world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"])' in mpi.remedy
    assert "reads WORLD_SIZE," in told("dist.init_process_group('nccl', rank=0)", ALONE)[0]


def test_a_rank_that_is_read_as_well_is_reported_once() -> None:
    (message,) = told(f"{JOIN}local = os.environ['LOCAL_RANK']", ALONE)
    assert 'os.environ["LOCAL_RANK"], but the job starts the script without a launcher' in message
