"""Other names for keys of the job file, those of SDK 2, SDK 3 and the API: a notebook's call can be copied. And values
that YAML reads otherwise than they are meant.

Sources: sagemaker 2.257.7 (``estimator.py``, ``inputs.py``, ``debugger``, ``tuner.py``), sagemaker-train 1.27.0
(``configs.py``) and botocore's model of ``CreateTrainingJob``. Hyperparameters, variables, tags, metrics and
``distribution`` have names of their own, which stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainwright.core.errors import RequestError
from trainwright.core.yaml_places import rows, yaml_texts

# Another name → the job file's.
JOB = {
    "image_uri": "image",
    "training_image": "image",
    "role_arn": "role",
    "base_job_name": "name",
    "output_path": "output",
    "use_spot_instances": "spot",
    "enable_managed_spot_training": "spot",
    "volume_size": "volume_gb",
    "volume_size_in_gb": "volume_gb",
    "volume_kms_key_id": "volume_kms_key",
    "max_runtime_in_seconds": "max_run",
    "max_wait_time_in_seconds": "max_wait",
    "keep_alive_period_in_seconds": "keep_alive",
    "max_retry_attempts": "retries",
    "maximum_retry_attempts": "retries",
    "enable_network_isolation": "network_isolation",
    "encrypt_inter_container_traffic": "encrypt_traffic",
    "enable_inter_container_traffic_encryption": "encrypt_traffic",
    "enable_remote_debug": "remote_debug",
    "enable_session_tag_chaining": "session_tags",
    "training_plan_arn": "training_plan",
    "metric_definitions": "metrics",
    "checkpoint_config": "checkpoint",
    "tensorboard_output_config": "tensorboard",
    "debugger_hook_config": "debugger",
    "profiler_config": "profiler",
    "training_input_mode": "input_mode",
    "input_data_config": "inputs",
}
# What notebooks say although a job is so without it.
USUAL = {"disable_profiler": True, "debugger": False}
# What SDK 2 makes the address of an image from.
VERSIONS = ("framework_version", "py_version", "pytorch_version", "tensorflow_version", "transformers_version")
CHANNEL = {
    "s3_uri": "s3_data",
    "data_source": "s3_data",
    "s3_data_distribution_type": "distribution",
    "compression_type": "compression",
    "record_wrapper_type": "record_wrapping",
    "instance_group_names": "instance_groups",
}
# Records of the API that have an address or a file system inside.
_INSIDE = ("data_source", "s3_data_source", "file_system_data_source")
_KEPT = {"s3_output_path": "s3_uri", "container_local_output_path": "local_path"}
TABLES = {
    "checkpoint": {},
    "tensorboard": _KEPT,
    "debugger": _KEPT,
    "profiler": {
        "s3_output_path": "s3_uri",
        "system_monitor_interval_millis": "interval_ms",
        "profiling_interval_in_milliseconds": "interval_ms",
    },
    "tuner": {
        "objective_metric_name": "metric",
        "objective_type": "goal",
        "hyperparameter_ranges": "ranges",
        "early_stopping_type": "early_stopping",
        "warm_start_config": "warm_start",
    },
}
_CODE = {"sagemaker_program": "entry_point", "sagemaker_submit_directory": "source_dir"}
_FLAT = {"checkpoint_s3_uri": "s3_uri", "checkpoint_local_path": "local_path"}
_RANGE = {"min_value": "min", "max_value": "max", "scaling_type": "scaling"}
_GROUP = {"instance_group_name": "name"}
_STOPPING = {"Auto": True, "Off": False}


def respelled(data: Any, path: Path) -> Any:
    """The content of a job file with the job file's own names.

    Args:
        data: as read; what is not a table is returned as it is.
        path: of the file.

    Raises:
        RequestError: a key stands there under two names, two channels have one, or versions are in place of an image.
    """
    if not isinstance(data, dict):
        return data
    where = str(path)
    made = _renamed(data, JOB, where)
    if asked := next((key for key in VERSIONS if key in made), None):
        raise RequestError(
            f"{where}: {asked} is not a key; a job names its image",
            remedy="image: 763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.6.0-gpu-py312, or your own.",
        )
    made = {key: value for key, value in made.items() if key not in USUAL or value is not USUAL[key]}
    made = _entry(made)
    if "checkpoint" not in made:
        flat = {_FLAT[key]: value for key in [*made] if key in _FLAT and (value := made.pop(key))}
        made |= {"checkpoint": flat} if flat else {}
    for key, names in TABLES.items():
        if isinstance(made.get(key), dict):
            made[key] = _renamed(made[key], names, f"{where}: {key}")
    if isinstance(tuner := made.get("tuner"), dict):
        _tuner(tuner, where)
    if isinstance(groups := made.get("instance_groups"), list):
        made["instance_groups"] = [_table(each, _GROUP, where) for each in groups]
    for key in ("environment", "tags"):
        if isinstance(given := made.get(key), dict):
            made[key] = _as_typed(given, path, key)
    for key, name in (("model", "parameters"), ("batch", "learning_rate")):
        if isinstance(given := made.get(key), dict):
            made[key] = _with_numbers(given, name)
    return _channels(made, where)


def line_of(key: str, tree: Any) -> int | None:
    """The line of a key of a job file; if it is missing, that of the closest key above it, or None.

    Args:
        key: as findings name it, such as ``distribution.mpi.enabled``; the file may have another name for it.
        tree: of the file (:func:`trainwright.core.yaml_places.yaml_tree`).
    """
    line, names = None, JOB
    for part in key.split("."):
        found = next(
            ((at, node) for name, at, node in rows(tree) if names.get(_snake(name), _snake(name)) == part), None
        )
        if found is None:
            break
        (line, tree), names = found, CHANNEL if part == "inputs" else TABLES.get(part, names)
    return line


def _entry(made: dict[str, Any]) -> dict[str, Any]:
    """A job whose code is named as in a request of the API: by hyperparameters of the toolkit, often as JSON."""
    given = made.get("hyperparameters")
    if not isinstance(given, dict) or not all(isinstance(given.get(key), str) for key in _CODE):
        return made
    if "entry_point" in made or "source_dir" in made:
        return made
    code = {ours: given[theirs].strip('"') for theirs, ours in _CODE.items()}
    return made | code | {"hyperparameters": {key: value for key, value in given.items() if key not in _CODE}}


def _as_typed(given: dict[Any, Any], path: Path, key: str) -> dict[Any, Any]:
    """Numbers, switches and dates of a table as text, where nothing but text can be meant."""
    others = [name for name, value in given.items() if not isinstance(value, str | None | list | dict)]
    typed = yaml_texts(path, key) if others else {}
    return given | {name: typed[name] for name in others if name in typed}


def _with_numbers(table: Any, *names: str) -> Any:
    """YAML 1.1 takes 1.5e9 and 1e-5 for text: the exponent has no sign, or the number no point."""
    for name in names if isinstance(table, dict) else ():
        if isinstance(text := table.get(name), str):
            with suppress(ValueError):
                table = table | {name: float(text)}
    return table


def _tuner(tuner: dict[str, Any], where: str) -> None:
    if isinstance(ranges := tuner.get("ranges"), dict):
        ours = {name: _table(each, _RANGE, f"{where}: {name}") for name, each in ranges.items()}
        tuner["ranges"] = {name: _with_numbers(each, "min", "max") for name, each in ours.items()}
    if isinstance(stops := tuner.get("early_stopping"), str):
        tuner["early_stopping"] = _STOPPING.get(stops, stops)
    if "warm_start" in tuner:
        tuner["warm_start"] = _table(tuner["warm_start"], {"warm_start_type": "type"}, where)


def _channels(made: dict[str, Any], where: str) -> dict[str, Any]:
    inputs = made.get("inputs")
    if isinstance(inputs, list) and all(isinstance(each, dict) for each in inputs):
        rows = [_renamed(each, {}, where) for each in inputs]
        inputs = {str(row.pop("channel_name", place)): row for place, row in enumerate(rows)}
        if len(inputs) < len(rows):
            raise RequestError(f"{where}: two channels of inputs have the same name")
    mode = made.pop("input_mode", None)
    if not isinstance(inputs, dict) or not inputs:
        if mode not in (None, "File"):
            raise RequestError(f"{where}: input_mode applies to the channels in inputs, and the job has no channels")
        return made
    return made | {"inputs": {name: _channel(each, mode, f"{where}: inputs.{name}") for name, each in inputs.items()}}


def _channel(given: Any, mode: Any, where: str) -> Any:
    """A channel in the form of SDK 2; ``mode``: of a channel in S3 that has none, where the job has one for all."""
    if mode is not None and isinstance(given, str):
        given = {"s3_data": given}
    if not isinstance(given, dict):
        return given
    given = _renamed(given, {}, where)
    while inside := next((key for key in _INSIDE if isinstance(given.get(key), dict)), None):
        given = _renamed(given.pop(inside), {}, where) | given
    made = _renamed(given, CHANNEL, where)
    return made if mode is None or "file_system_id" in made else {"input_mode": mode} | made


def _table(given: Any, names: Mapping[str, str], where: str) -> Any:
    return _renamed(given, names, where) if isinstance(given, dict) else given


def _renamed(table: Mapping[Any, Any], names: Mapping[str, str], where: str) -> dict[Any, Any]:
    """A table under the job file's names.

    Raises:
        RequestError: a key stands there under two names.
    """
    made: dict[Any, Any] = {}
    came: dict[Any, Any] = {}
    for key, value in table.items():
        name = _snake(key) if isinstance(key, str) else key
        name = names.get(name, name)
        if name in made:
            raise RequestError(f"{where}: {came[name]} and {key} are the same key", remedy="Keep one of them.")
        made[name], came[name] = value, key
    return made


def _snake(key: str) -> str:
    """A name of the API as the SDKs write it: ``S3DataType`` → ``s3_data_type``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower() if key[:1].isupper() and key.isalnum() else key
