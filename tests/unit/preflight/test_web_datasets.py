"""Files of a WebDataset, which are dealt out to the processes, and then to the workers of their loaders.

Sources: webdataset, compat.py and shardlists.py at the tags v0.2.88 (no check of empty workers), 0.2.90 and v0.2.100.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, but, codes
from trainwright.preflight.preflight import preflight

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D, "instance_count": 2}
ALONE: dict[str, Any] = {"instance_type": "ml.g5.2xlarge"}
# 96 files for 16 processes.
SCRIPT = (
    DDP
    + """
import webdataset as wds
root = os.environ["SM_CHANNEL_TRAIN"]
def rows(train=True):
    urls = os.path.join(root, "pairs-{000000..000095}.tar")
    found = wds.WebDataset(urls, shardshuffle=100, nodesplitter=wds.split_by_node)
    found = found.shuffle(2000).decode("pil").to_tuple("jpg", "txt").batched(64)
    return wds.WebLoader(found, batch_size=None, num_workers=8)
net = DDP(torch.nn.Linear(2, 2).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in rows():
    optimizer.zero_grad()
    net(x.cuda()).sum().backward()
    optimizer.step()
"""
)
JOINED = 'os.path.join(root, "pairs-{000000..000095}.tar")'
WORKERS = "num_workers=8"
SPLIT = "nodesplitter=wds.split_by_node"


@pytest.mark.parametrize(
    ("wrong", "script"),
    [
        (True, SCRIPT),
        (True, but(SCRIPT, JOINED, '"/opt/ml/input/data/train/pairs-{000..095}.tar"')),
        (True, but(SCRIPT, JOINED, 'f"{root}/pairs-{{000..095}}.tar"')),
        (True, but(SCRIPT, JOINED, 'root + "/pairs-{a,b}-{00..47}.tar"')),
        (True, but(SCRIPT, JOINED, '[f"{root}/pairs-{i:06d}.tar" for i in range(96)]')),
        (True, but(SCRIPT, JOINED, 'f"pipe:aws s3 cp s3://b/pairs-{{000..095}}.tar -"')),
        (True, but(SCRIPT, "wds.WebLoader(", "torch.utils.data.DataLoader(")),
        (True, but(SCRIPT, "..000095", "..000014", ", num_workers=8", "")),
        (True, but(SCRIPT, SPLIT, f"{SPLIT}, workersplitter=wds.split_by_worker, empty_check=True")),
        (True, but(SCRIPT, JOINED, 'f"{root}/pairs-{{100..195}}.tar"')),
        (True, but(SCRIPT, "WebDataset(urls, ", "WebDataset(urls=urls, ")),
        (True, but(SCRIPT, SPLIT, f"{SPLIT}, resampled=False")),
        (False, but(SCRIPT, JOINED, 'f"{root}/pairs-{{100..227}}.tar"')),
        (False, but(SCRIPT, JOINED, 'root + "/pairs-{a,b}-{00..63}.tar"')),
        (False, but(SCRIPT, JOINED, 'root + "/pairs-{a,b,c}-{00..42}.tar"')),
        (False, but(SCRIPT, JOINED, '[f"{root}/{i}.tar" for i in range(128)]')),
        (False, but(SCRIPT, JOINED, '[f"{root}/{i}.tar" for i in numbers(96)]')),
        (False, but(SCRIPT, WORKERS, "num_workers=6")),
        (False, but(SCRIPT, "..000095", "..000127")),
        (False, but(SCRIPT, "..000095", "..000015", ", num_workers=8", "")),
        (False, but(SCRIPT, SPLIT, f"{SPLIT}, empty_check=False")),
        (False, but(SCRIPT, SPLIT, "resampled=True")),
        (False, but(SCRIPT, SPLIT, f"{SPLIT}, resampled=args.again")),
        (False, but(SCRIPT, SPLIT, "nodesplitter=mine")),
        (False, but(SCRIPT, SPLIT, f"{SPLIT}, workersplitter=None")),
        (False, but(SCRIPT, SPLIT, f"{SPLIT}, **options")),
        (False, but(SCRIPT, WORKERS, "num_workers=workers")),
        (False, but(SCRIPT, WORKERS, "**options")),
        (False, but(SCRIPT, JOINED, "list_of(root)")),
        (False, but(SCRIPT, JOINED, 'f"{root}/pairs-{{000..{last}}}.tar"')),
        (False, but(SCRIPT, JOINED, 'root + "/a-{000..095}.tar::" + root + "/b-{000..095}.tar"')),
        (False, but(SCRIPT, JOINED, '[f"{root}/{i}.tar" for i in range(96) if wanted(i)]')),
        (False, but(SCRIPT, "found.shuffle(2000)", "other(root)")),
    ],
)
def test_files_for_each_worker(wrong, script):
    assert ("TW569" in codes(script, JOB)) is wrong


def test_the_processes_of_the_job():
    """96 files are enough for one process with 8 workers, or for those of one host."""
    assert "TW569" not in codes(SCRIPT, JOB | {"instance_count": 1})
    assert "TW569" not in codes(SCRIPT, None)
    alone = but(SCRIPT, f", {SPLIT}", "", 'dist.init_process_group("nccl")', "")
    assert "TW569" not in codes(alone, ALONE)
    assert "TW569" in codes(but(alone, "..000095", "..000004"), ALONE)


@pytest.mark.parametrize(
    ("wanted", "severity"),
    [
        ("webdataset==0.2.100", "error"),
        ("webdataset>=0.2.90", "error"),
        ("webdataset", "warning"),
        ("webdataset==0.2.86", None),
        ("numpy", "warning"),
    ],
)
def test_the_release_that_checks_it(tmp_path: Path, wanted: str, severity: str | None) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "requirements.txt").write_text(f"{wanted}\n")
    (tmp_path / "job.yaml").write_text(json.dumps(JOB))
    document = preflight([str(tmp_path / "train.py")], job_file=str(tmp_path / "job.yaml"))
    assert next((each.severity for each in document.findings if each.code == "TW569"), None) == severity
