"""What SageMaker puts below ``/opt/ml`` for a job of one host, for the jobs that image tests run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FOLDERS = ("code", "input/config", "input/data/training", "model", "output/data")


def job_files(code: Mapping[str, str], hyperparameters: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The files of a job whose entry point is ``train.py``: text by path below ``/opt/ml``.

    Args:
        code: text by file name, for ``code/``.
        hyperparameters: value by name; in the file, values are JSON-encoded strings, as the SDK writes them.
    """
    named = {"sagemaker_program": "train.py", "sagemaker_region": "us-west-2", **(hyperparameters or {})}
    group = {"instance_group_name": "homogeneousCluster", "instance_type": "ml.m5.xlarge", "hosts": ["algo-1"]}
    resources = {
        "current_host": "algo-1",
        "hosts": ["algo-1"],
        "current_instance_type": "ml.m5.xlarge",
        "current_group_name": "homogeneousCluster",
        "instance_groups": [group],
        "network_interface_name": "lo",
    }
    channels = {"training": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated"}}
    return {
        "input/config/hyperparameters.json": json.dumps({key: json.dumps(value) for key, value in named.items()}),
        "input/config/resourceconfig.json": json.dumps(resources),
        "input/config/inputdataconfig.json": json.dumps(channels),
        **{f"code/{name}": text for name, text in code.items()},
    }
