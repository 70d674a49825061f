"""Parameters of SageMaker's model parallel library: one table of types, ranges, versions and frameworks.

Sources: the library's own schema (``smdistributed/modelparallel/backend/config.yaml`` of version 1.11 or 1.12, in
tkazusa/smdistributed_modelparallel); aws/sagemaker-python-sdk, doc/api/training/smd_model_parallel_general.rst
(versions and frameworks); sagemaker 2.257.7 (``fw_utils.validate_mp_config``); AWS's release notes of the library.
Version 2, which torchrun starts, has parameters of its own: sagemaker-train 1.27.0, ``distributed.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainwright.catalog.image_line import version_key
from trainwright.core.errors import RequestError

PARTITIONS_RENAMED = "1.6.0"  # `partitions` became `pipeline_parallel_degree`, for PyTorch
Framework = Literal["pytorch", "tensorflow"]
BOTH: tuple[Framework, ...] = ("pytorch", "tensorflow")


@dataclass(frozen=True)
class Parameter:
    """A parameter of version 1, or of version 2.

    Attributes:
        takes: whether a value is valid.
        words: valid values in words.
        since: the version of the library that added it; "0": the first.
        frameworks: those that have it.
        until: the first version that no longer has it; None: all have it.
    """

    takes: Callable[[Any], bool]
    words: str
    since: str = "0"
    frameworks: tuple[Framework, ...] = BOTH
    until: str | None = None


def _choice(*values: str) -> tuple[Callable[[Any], bool], str]:
    return lambda value: isinstance(value, str) and value in values, " or ".join(json.dumps(value) for value in values)


def _whole(least: int) -> tuple[Callable[[Any], bool], str]:
    return (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least,
        f"a whole number, at least {least}",
    )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_BOOL = (lambda value: isinstance(value, bool), "true or false")
_ANY = (lambda _: True, "")
_DEGREE = _whole(1)
_PT: tuple[Framework, ...] = ("pytorch",)
_TF: tuple[Framework, ...] = ("tensorflow",)
_PORTION = (lambda value: _number(value) and 0 <= value <= 1, "a number from 0 to 1")

# Orders of ranks by data, pipeline and tensor parallelism, which the SDK refuses and the library takes, for PyTorch.
PLACEMENTS = ("DPT", "DTP", "PDT", "PTD", "TDP", "TPD")
PARAMETERS: dict[str, Parameter] = {
    "partitions": Parameter(*_DEGREE),
    "pipeline_parallel_degree": Parameter(*_DEGREE, "1.6", _PT),
    "microbatches": Parameter(*_DEGREE),
    "pipeline": Parameter(*_choice("simple", "interleaved", "_only_forward")),
    "optimize": Parameter(*_choice("speed", "memory")),
    "placement_strategy": Parameter(*_choice("spread", "cluster", *PLACEMENTS)),
    "auto_partition": Parameter(*_BOOL),
    "default_partition": Parameter(*_ANY),
    "load_partition": Parameter(*_BOOL),
    "partition_file": Parameter(lambda value: isinstance(value, str), "a path"),
    "contiguous": Parameter(*_BOOL, "0", _TF),
    "horovod": Parameter(*_BOOL, "0", _TF),
    "ddp": Parameter(*_BOOL, "0", _PT),
    "ddp_port": Parameter(*_whole(0), "0", _PT),
    "ddp_dist_backend": Parameter(*_choice("nccl", "auto"), "0", _PT),
    "memory_weight": Parameter(*_PORTION, "0", _PT),
    "active_microbatches": Parameter(*_DEGREE, "1.3", _PT),
    "deterministic_server": Parameter(*_BOOL, "1.3", _PT, "1.11"),
    "tensor_parallel_degree": Parameter(*_DEGREE, "1.6", _PT),
    "offload_activations": Parameter(*_BOOL, "1.6", _PT),
    "activation_loading_horizon": Parameter(*_whole(0), "1.6", _PT),
    "shard_optimizer_state": Parameter(*_BOOL, "1.6", _PT),
    "fp16_params": Parameter(*_BOOL, "1.6", _PT),
    "prescaled_batch": Parameter(*_BOOL, "1.6", _PT),
    "skip_tracing": Parameter(*_BOOL, "1.6", _PT),
    "fp16": Parameter(*_BOOL, "1.10", _PT),
    "sharded_data_parallel_degree": Parameter(*_DEGREE, "1.11", _PT),
    "sdp_reduce_bucket_size": Parameter(*_whole(1), "1.11", _PT),
    "sdp_param_persistence_threshold": Parameter(*_whole(0), "1.11", _PT),
    "sdp_max_live_parameters": Parameter(*_whole(1), "1.11", _PT),
    "sdp_hierarchical_allgather": Parameter(*_BOOL, "1.11", _PT),
    # The library takes 1.0 and refuses 1.
    "sdp_gradient_clipping": Parameter(lambda value: isinstance(value, float), "a number like 1.0", "1.11", _PT),
    # Their first version is not known.
    "bf16": Parameter(*_BOOL, "0", _PT),
    "tensor_parallel_seed": Parameter(*_whole(0), "0", _PT),
    "delayed_parameter_initialization": Parameter(*_BOOL, "0", _PT),
    "trace_device": Parameter(*_ANY, "0", _PT, "1.11"),
    # Not documented.
    "fast_mode": Parameter(*_BOOL),
    "static_mode": Parameter(*_BOOL),
    "checkpoint_attentions": Parameter(*_BOOL),
    "task_level_activation_loading_horizon": Parameter(*_DEGREE),
    "herring": Parameter(*_BOOL),
}
SECOND: dict[str, Parameter] = {
    "hybrid_shard_degree": Parameter(*_whole(0), "2", _PT),  # 0: as PyTorch's FSDP would
    "tensor_parallel_degree": Parameter(*_DEGREE, "2", _PT),
    "context_parallel_degree": Parameter(*_DEGREE, "2", _PT),
    "expert_parallel_degree": Parameter(*_DEGREE, "2", _PT),
    "sm_activation_offloading": Parameter(*_BOOL, "2", _PT),
    "activation_loading_horizon": Parameter(*_DEGREE, "2", _PT),
    "fsdp_cache_flush_warnings": Parameter(*_BOOL, "2", _PT),
    "allow_empty_shards": Parameter(*_BOOL, "2", _PT),
    "random_seed": Parameter(*_whole(0), "2", _PT),
    # Not documented: AWS's aws-samples/sagemaker-distributed-training-workshop, 16_smp_cp_fp8_llama3_1, sets it.
    "delayed_parameter_initialization": Parameter(*_BOOL, "2", _PT),
}


def parameter(name: str, *, second: bool) -> Parameter | None:
    """The parameter of a name; ``None``: the library does not know it, or nothing is known of its values."""
    return (SECOND if second else PARAMETERS).get(name)


def wrong_values(parameters: Mapping[str, Any], *, second: bool) -> Iterator[tuple[str, str]]:
    """Names of parameters with invalid values, and what is wrong with each."""
    for name, value in parameters.items():
        known = parameter(str(name), second=second) or PARAMETERS.get(str(name)) or SECOND.get(str(name))
        if known is not None and not known.takes(value):
            yield str(name), f"{name} must be {known.words}, not {json.dumps(value, default=str)}"


def check_smp(parameters: Mapping[str, Any], version: str | None) -> None:
    """Reject parameters that the SDK or the library would reject.

    Args:
        parameters: those of ``distribution.smdistributed.modelparallel``.
        version: version of the library in the image; None: unknown.

    Raises:
        RequestError: a value or combination is invalid, or a name belongs to another version.
    """
    where = "distribution.smdistributed.modelparallel.parameters"
    for _, wrong in wrong_values(parameters, second=version is not None and version_key(version) >= (2,)):
        raise RequestError(f"{where}.{wrong}")
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
    old = version_key(version) < version_key(PARTITIONS_RENAMED)  # from then on, either name is valid
    if old and "pipeline_parallel_degree" in parameters and "partitions" not in parameters:
        raise RequestError(
            f"{where}: SMP {version} in the image has no parameter pipeline_parallel_degree", remedy="Use partitions."
        )
