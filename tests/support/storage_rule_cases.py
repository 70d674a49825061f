"""What a job's storage and network make useless: volumes that are not made, files that hosts divide, shells."""

from __future__ import annotations

from typing import Any

from tests.support.rule_jobs import ISOLATED, P3, P4, grouped, image
from trainwright.estimator.image import ImageFacts


def sharded(place: str, hosts: int = 4, **channel: Any) -> dict[str, Any]:
    """A job whose hosts divide what is at an address of S3."""
    given = {"s3_data": place, "distribution": "ShardedByS3Key", **channel}
    return {"instance_count": hosts, "inputs": {"train": given}}


def of_group(name: str, place: str) -> dict[str, Any]:
    """The same for the hosts of one group: two of "gpu", one of "data"."""
    return grouped({}) | {"inputs": sharded(place, instance_groups=[name])["inputs"]}


def listed(mode: str) -> dict[str, Any]:
    """A job with a manifest, in an input mode."""
    given = {"s3_data": "s3://bucket/train.manifest", "s3_data_type": "ManifestFile", "input_mode": mode}
    return {"inputs": {"train": given}}


KEYS = "arn:aws:kms:us-west-2:123456789012"
FILE = "s3://bucket/shards/train.tar"
DEBUGGED = {"remote_debug": True}
CASES: list[tuple[str, str, dict[str, Any], ImageFacts | None, int]] = [
    ("TW330", "volume_gb", {"instance_type": "ml.g5.2xlarge", "volume_gb": 4000}, image(), 2),
    ("TW330", "volume_gb", {"instance_type": P4, "volume_gb": 500}, image(), 2),
    ("TW331", "inputs.train", sharded(FILE), image(), 2),
    ("TW331", "inputs.train", sharded("s3://bucket/train.tfrecord", hosts=2), image(), 2),
    ("TW331", "inputs.train", of_group("gpu", FILE), image(), 2),
    ("TW295", "remote_debug", {**DEBUGGED, **ISOLATED}, image(), 2),
    ("TW339", "volume_kms_key", {"volume_kms_key": "alias/volumes"}, image(), 2),
    ("TW339", "volume_kms_key", {"volume_kms_key": f"{KEYS}:alias/volumes"}, image(), 2),
    ("TW287", "inputs.train", listed("FastFile"), image(), 2),
]
NEIGHBOURS: list[tuple[str, dict[str, Any], ImageFacts | None, int]] = [
    ("TW330", {"instance_type": P3, "volume_gb": 4000}, image(), 2),
    ("TW339", {"volume_kms_key": f"{KEYS}:key/mrk-0f1e2d3c4b5a6978"}, image(), 2),
    ("TW339", {"output_kms_key": "alias/models"}, image(), 2),
    ("TW287", listed("File"), image(), 2),
    ("TW287", listed("Pipe"), image(), 2),
    ("TW330", {"instance_type": P4}, image(), 2),
    ("TW331", sharded("s3://bucket/shards/"), image(), 2),
    ("TW331", sharded(f"{FILE}/"), image(), 2),
    ("TW331", sharded(FILE, hosts=1), image(), 2),
    ("TW331", of_group("data", FILE), image(), 2),
    ("TW331", sharded(FILE, distribution="FullyReplicated"), image(), 2),
    ("TW331", sharded("s3://bucket/train.json", s3_data_type="ManifestFile"), image(), 2),
    ("TW295", {**DEBUGGED, "subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}, image(), 2),
    ("TW295", ISOLATED, image(), 2),
]
