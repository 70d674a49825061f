"""Parameters of SageMaker's model parallel library, as sagemaker 2.257.7 (``fw_utils.py``) validates them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from trainwright.catalog.image_line import version_key
from trainwright.core.errors import RequestError

PARTITIONS_RENAMED = "1.6.0"  # `partitions` became `pipeline_parallel_degree`


def _choice(*values: Any) -> tuple[Callable[[Any], bool], str]:
    return lambda value: any(value is each or (value == each and isinstance(value, str)) for each in values), (
        " or ".join(json.dumps(value) for value in values)
    )


def _whole(least: int) -> tuple[Callable[[Any], bool], str]:
    return (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least,
        f"a whole number, at least {least}",
    )


# What the SDK validates (fw_utils.validate_mp_config), and the degrees, which it does not.
SMP_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "pipeline": _choice("simple", "interleaved", "_only_forward"),
    "placement_strategy": _choice("spread", "cluster"),
    "optimize": _choice("speed", "memory"),
    "partition_file": (lambda value: isinstance(value, str), "a path"),
    "memory_weight": (lambda value: isinstance(value, int | float) and 0 <= value <= 1, "a number from 0 to 1"),
    "ddp_port": _whole(0),
    "hybrid_shard_degree": _whole(0),  # 0: as PyTorch's FSDP would
    **dict.fromkeys(
        ("auto_partition", "contiguous", "load_partition", "horovod", "ddp", "deterministic_server"),
        _choice(True, False),
    ),
    **dict.fromkeys(
        (
            "microbatches",
            "partitions",
            "active_microbatches",
            "pipeline_parallel_degree",
            "tensor_parallel_degree",
            "sharded_data_parallel_degree",
            "context_parallel_degree",
            "expert_parallel_degree",
        ),
        _whole(1),
    ),
}


def check_smp(parameters: Mapping[str, Any], version: str | None) -> None:
    """Reject parameters that the SDK or the library would reject.

    Args:
        parameters: those of ``distribution.smdistributed.modelparallel``.
        version: version of the library in the image; None: unknown.

    Raises:
        RequestError: a value or combination is invalid, or a name belongs to another version.
    """
    where = "distribution.smdistributed.modelparallel.parameters"
    for name, value in parameters.items():
        right, words = SMP_VALUES.get(name, (lambda _: True, ""))
        if not right(value):
            raise RequestError(f"{where}.{name} must be {words}, not {json.dumps(value, default=str)}")
    if parameters.get("auto_partition") is False and "default_partition" not in parameters:
        raise RequestError(f"{where}: auto_partition: false needs default_partition")
    partitions = parameters.get("partitions", parameters.get("pipeline_parallel_degree"))
    if "default_partition" in parameters and parameters["default_partition"] >= (partitions or 1):
        raise RequestError(f"{where}.default_partition must be less than the number of partitions")
    for name in ("ddp_port", "ddp_dist_backend"):
        if name in parameters and "ddp" not in parameters:
            raise RequestError(f"{where}.{name} needs ddp")
    if parameters.get("ddp") and parameters.get("horovod"):
        raise RequestError(f"{where} enables both ddp and horovod; keep one of them")
    if version is None:
        return
    old = version_key(version) < version_key(PARTITIONS_RENAMED)
    wrong, right_name = (
        ("pipeline_parallel_degree", "partitions") if old else ("partitions", "pipeline_parallel_degree")
    )
    if wrong in parameters and right_name not in parameters:
        raise RequestError(f"{where}: SMP {version} in the image has no parameter {wrong}", remedy=f"Use {right_name}.")
