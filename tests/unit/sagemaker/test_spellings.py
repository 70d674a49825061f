"""Names of the SDKs and the API in a job file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright.core.errors import RequestError
from trainwright.core.yaml_places import yaml_tree
from trainwright.sagemaker.job import Job, read_job
from trainwright.sagemaker.spellings import JOB, TABLES, line_of

BOOLEANS = {"spot", "network_isolation", "encrypt_traffic", "remote_debug", "session_tags"}
NUMBERS = {"volume_gb", "max_run", "max_wait", "keep_alive", "retries"}
RECORDS = {"checkpoint", "tensorboard", "debugger", "profiler"}
OTHERS: dict[str, Any] = {"metrics": {"loss": "loss=(.*);"}, "inputs": {"train": "s3://bucket/train"}}
OTHERS |= (
    dict.fromkeys(BOOLEANS, True) | dict.fromkeys(NUMBERS, 7) | {key: {"s3_uri": "s3://bucket/a"} for key in RECORDS}
)


def read(folder: Path, given: dict[str, Any]) -> Job:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(given))
    return read_job(file)


@pytest.mark.parametrize("name", [name for name in JOB if name != "training_input_mode"])
def test_a_key_may_have_the_name_that_an_sdk_has_for_it(tmp_path, name):
    value = OTHERS.get(JOB[name], "text")
    assert read(tmp_path, {name: value}) == read(tmp_path, {JOB[name]: value}) != Job()


CODE = {"sagemaker_program": "train.py", "sagemaker_submit_directory": '"s3://b/c.tar.gz"'}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"checkpoint_s3_uri": "s3://b/c"}, {"checkpoint": {"s3_uri": "s3://b/c"}}),
        (
            {"checkpoint_local_path": "/opt/c", "checkpoint_s3_uri": "s3://b/c"},
            {"checkpoint": {"s3_uri": "s3://b/c", "local_path": "/opt/c"}},
        ),
        ({"checkpoint_local_path": "", "checkpoint_s3_uri": None}, {}),
        ({"checkpoint_config": {"S3Uri": "s3://b/c"}}, {"checkpoint": {"s3_uri": "s3://b/c"}}),
        ({"disable_profiler": True, "debugger_hook_config": False}, {}),
        (
            {"hyperparameters": {**CODE, "lr": 1}},
            {"entry_point": "train.py", "source_dir": "s3://b/c.tar.gz", "hyperparameters": {"lr": 1}},
        ),
        ({"entry_point": "a.py", "hyperparameters": CODE}, {"entry_point": "a.py", "hyperparameters": CODE}),
        (
            {"debugger_hook_config": {"s3_output_path": "s3://b/d", "container_local_output_path": "/opt/d"}},
            {"debugger": {"s3_uri": "s3://b/d", "local_path": "/opt/d"}},
        ),
        (
            {"profiler_config": {"s3_output_path": "s3://b/p", "system_monitor_interval_millis": 1000}},
            {"profiler": {"s3_uri": "s3://b/p", "interval_ms": 1000}},
        ),
        (
            {"instance_groups": [{"InstanceGroupName": "a", "InstanceType": "ml.p3.2xlarge", "InstanceCount": 1}]},
            {"instance_groups": [{"name": "a", "instance_type": "ml.p3.2xlarge", "instance_count": 1}]},
        ),
        ({"BaseJobName": "a", "MaxRun": 7}, {"name": "a", "max_run": 7}),
        # Names within these are the user's.
        (
            {"hyperparameters": {"ImageUri": 1, "volume_size": 2}},
            {"hyperparameters": {"ImageUri": 1, "volume_size": 2}},
        ),
        ({"environment": {"OutputPath": "x"}}, {"environment": {"OutputPath": "x"}}),
    ],
)
def test_a_notebook_s_call_can_be_copied(tmp_path, theirs, ours):
    assert read(tmp_path, theirs) == read(tmp_path, ours)


SEARCH = {"metric": "loss", "goal": "Minimize", "early_stopping": True, "ranges": {"lr": {"min": 0.1, "max": 1.0}}}


def test_a_search_may_have_the_names_of_the_tuner(tmp_path):
    theirs = {
        "objective_metric_name": "loss",
        "objective_type": "Minimize",
        "early_stopping_type": "Auto",
        "hyperparameter_ranges": {"lr": {"MinValue": 0.1, "MaxValue": 1.0, "ScalingType": "Linear"}},
        "warm_start_config": {"warm_start_type": "TransferLearning", "parents": ["a"]},
    }
    ours = {**SEARCH, "warm_start": {"type": "TransferLearning", "parents": ["a"]}}
    ours["ranges"] = {"lr": {"min": 0.1, "max": 1.0, "scaling": "Linear"}}
    assert read(tmp_path, {"tuner": theirs}) == read(tmp_path, {"tuner": ours})
    assert not read(tmp_path, {"tuner": {**theirs, "early_stopping_type": "Off"}}).tuner.early_stopping


def test_yaml_s_own_numbers_are_not_needed(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("tuner: {metric: a, goal: Minimize, ranges: {lr: {min: 1e-5, max: 1e3}, n: {min: x}}}\n")
    with pytest.raises(RequestError, match=r"tuner\.ranges\.n\.min"):
        read_job(file)
    file.write_text("tuner: {metric: a, goal: Minimize, ranges: {lr: {min: 1e-5, max: 1e3}}}\n")
    lr = read_job(file).tuner.ranges["lr"]
    assert (lr.min, lr.max, lr.kind) == (1e-5, 1000.0, "Continuous")


def test_a_variable_and_a_tag_are_what_was_typed(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("environment: {UMASK: 022, DEBUG: yes, PORT: 8080, V: 1.10, S: 'x'}\ntags: {day: 2026-11-27}\n")
    job = read_job(file)
    assert job.environment == {"UMASK": "022", "DEBUG": "yes", "PORT": "8080", "V": "1.10", "S": "x"}
    assert job.tags == {"day": "2026-11-27"}
    for nothing in ("environment: {A: }", "environment: {A: [1]}", "environment: {<<: {A: 1}}", "environment: {1: 2}"):
        file.write_text(nothing)
        with pytest.raises(RequestError, match="environment"):
            read_job(file)


CHANNEL = {"s3_data": "s3://b/k", "distribution": "ShardedByS3Key", "s3_data_type": "S3Prefix", "input_mode": "Pipe"}
SYSTEM = {"file_system_id": "fs-0123456789abcdef0", "file_system_type": "EFS", "directory_path": "/a"}
IN_S3 = {"S3DataType": "S3Prefix", "S3Uri": "s3://b/k", "S3DataDistributionType": "ShardedByS3Key"}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"a": {"DataSource": {"S3DataSource": IN_S3}, "InputMode": "Pipe"}}, {"a": CHANNEL}),
        ([{"ChannelName": "a", "DataSource": {"S3DataSource": IN_S3}, "InputMode": "Pipe"}], {"a": CHANNEL}),
        ({"a": {"s3_uri": "s3://b/k"}}, {"a": {"s3_data": "s3://b/k"}}),
        ({"a": {"data_source": "s3://b/k"}}, {"a": {"s3_data": "s3://b/k"}}),
        (
            {"a": {"S3Uri": "s3://b/k", "CompressionType": "Gzip", "RecordWrapperType": "RecordIO"}},
            {"a": {"s3_data": "s3://b/k", "compression": "Gzip", "record_wrapping": "RecordIO"}},
        ),
        (
            {
                "a": {
                    "DataSource": {
                        "FileSystemDataSource": {
                            "FileSystemId": "fs-0123456789abcdef0",
                            "FileSystemType": "EFS",
                            "DirectoryPath": "/a",
                        }
                    }
                }
            },
            {"a": SYSTEM},
        ),
    ],
)
def test_a_channel_may_have_the_names_of_the_api(tmp_path, theirs, ours):
    assert read(tmp_path, {"inputs": theirs}).inputs == ours


def test_an_input_mode_of_the_job_is_that_of_its_channels_in_s3(tmp_path):
    inputs = {"a": "s3://b/k", "b": {"s3_data": "s3://b/k", "input_mode": "File"}, "c": SYSTEM}
    made = read(tmp_path, {"input_mode": "FastFile", "inputs": inputs}).inputs
    assert made == {"a": {"s3_data": "s3://b/k", "input_mode": "FastFile"}, "b": inputs["b"], "c": SYSTEM}
    with pytest.raises(RequestError, match="no channels"):
        read(tmp_path, {"input_mode": "FastFile"})
    assert read(tmp_path, {"input_mode": "File"}) == Job()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"volume_gb": 1, "volume_size": 2}, "volume_gb and volume_size are the same key"),
        ({"image_uri": "a", "training_image": "b"}, "are the same key"),
        ({"tuner": {**SEARCH, "objective_type": "Maximize"}}, "tuner: goal and objective_type are the same key"),
        ({"inputs": {"a": {"s3_uri": "s3://b/k", "s3_data": "s3://b/k"}}}, "inputs.a: s3_data and s3_uri are"),
        ({"inputs": [{"ChannelName": "a"}, {"ChannelName": "a"}]}, "two channels of inputs have the same name"),
        ({"inputs": ["s3://b/k"]}, "inputs: must be a mapping"),
        ({"volume_sise": 1}, "unknown key 'volume_sise'"),
        ({"keep_alive_time_in_seconds": 1}, "unknown key"),
        ({"disable_profiler": False}, "unknown key 'disable_profiler'"),
        ({"checkpoint": {"s3_uri": "s3://b/c"}, "checkpoint_s3_uri": "s3://b/d"}, "unknown key 'checkpoint_s3_uri'"),
        ({"framework_version": "2.6.0", "py_version": "py312"}, "framework_version is not a key"),
    ],
)
def test_what_is_there_twice_or_nobody_s_name_is_an_error(tmp_path, given, says):
    with pytest.raises(RequestError, match=says):
        read(tmp_path, given)


def test_no_name_stands_for_two_keys():
    known = set(Job.__struct_fields__)
    assert not known & set(JOB)
    assert set(JOB.values()) - {"input_mode"} <= known
    assert set(TABLES) <= known


def test_a_warm_pool_of_no_seconds_is_none(tmp_path):
    assert read(tmp_path, {"keep_alive": 0}).keep_alive == 0


WRITTEN = """\
TrainingImage: team/image:1
distribution:
  mpi:
    enabled: true
  smdistributed: {modelparallel: {enabled: true}}
checkpoint_config:
  S3Uri: s3://bucket/a
inputs:
  train:
    S3DataType: S3Prefix
    CompressionType: Gzip
tuner:
  ObjectiveMetricName: loss
"""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("image", 1),
        ("distribution", 2),
        ("distribution.mpi", 3),
        ("distribution.mpi.enabled", 4),
        ("distribution.mpi.processes_per_host", 3),
        ("distribution.smdistributed.modelparallel.parameters.ddp", 5),
        ("checkpoint", 6),
        ("inputs.train", 9),
        ("tuner.metric", 13),
        ("max_run", None),
    ],
)
def test_a_finding_has_the_line_of_its_key_or_of_what_is_around_it(tmp_path, key, line):
    (tmp_path / "job.yaml").write_text(WRITTEN)
    assert line_of(key, yaml_tree(tmp_path / "job.yaml")) == line


def test_a_key_of_a_json_file_has_a_line_too(tmp_path):
    (tmp_path / "job.json").write_text('{\n  "instance_count": 2,\n  "inputs": {"train": "s3://b/a"}\n}\n')
    tree = yaml_tree(tmp_path / "job.json")
    assert [line_of(key, tree) for key in ("instance_count", "inputs.train")] == [2, 3]
