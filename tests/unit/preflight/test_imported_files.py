"""Files that a script imports for one function of them: what the others do is no matter of the script."""

from __future__ import annotations

from pathlib import Path

from tests.support.training_scripts import P4D, write
from trainwright.preflight.preflight import preflight


def test_processes_of_an_imported_file(tmp_path: Path) -> None:
    """A tool that imports the model of a training script does not start that script's processes."""
    train = (
        "import torch\nimport torch.distributed as dist\nimport torch.multiprocessing as mp\n"
        "def net():\n    return torch.nn.Linear(1, 1)\n"
        "def run(rank):\n    dist.init_process_group('nccl', rank=rank)\n    model = net().to(rank)\n"
        "    model(x).sum().backward()\ndef main():\n    mp.spawn(run, nprocs=8)\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    tool = "import torch\nfrom train import {names}\n{call}device = torch.device('cuda', 0)\nnet().to(device)\n"
    job = tmp_path / "job.yaml"
    job.write_text(f"instance_type: {P4D}\n")
    for names, call, reported in (("net", "", False), ("net, main", "main()\n", True)):
        folder = write(tmp_path / str(reported), train=train, export=tool.format(names=names, call=call)).parent
        found = preflight([str(folder / "export.py")], None, str(job))
        assert ("TW121" in {f.code for f in found.findings}) is reported


def test_an_imported_function_that_is_not_called(tmp_path: Path) -> None:
    """Only the files of ZFTurbo/Music-Source-Separation-Training that call setup_ddp set the address of the group."""
    settings = (
        "import os\nimport torch.distributed as dist\ndef read():\n    return {}\n"
        "def setup_ddp(rank):\n    os.environ['MASTER_ADDR'] = 'localhost'\n    dist.init_process_group('nccl')\n"
    )
    train = (
        "import os\nimport torch\nfrom settings import {names}\nlocal_rank = int(os.environ['LOCAL_RANK'])\n{call}\n"
        "model = torch.nn.Linear(1, 1).to(local_rank)\nmodel(x).sum().backward()\n"
    )
    job = tmp_path / "job.yaml"
    job.write_text(f"instance_type: {P4D}\ndistribution: {{torch_distributed: {{enabled: true}}}}\n")
    for names, call, reported in (("read", "read()", False), ("setup_ddp", "setup_ddp(local_rank)", True)):
        text = train.format(names=names, call=call)
        place = write(tmp_path / names, settings=settings, train=text)
        found = preflight([str(place)], None, str(job))
        assert ("TW163" in {f.code for f in found.findings}) is reported
