"""Every rule about the rest of a job: a job that it speaks of."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tests.support import algorithm_rule_cases, storage_rule_cases
from tests.support.rule_jobs import (
    COMPILER,
    DLC,
    FSX,
    GROUPS,
    IN_S3,
    ISOLATED,
    KEY_ID,
    LABELS,
    MPI,
    ON,
    OWN,
    P3,
    P4,
    REFERENCE,
    TENSORFLOW,
    dist,
    grouped,
    image,
    old,
    ranged,
    smp,
    source_folder,
    spoken_at,
    tuned,
    without,
)
from tests.unit.estimator import test_cluster_rules, test_distribution_rules, test_image_rules
from trainwright.estimator.check import CODES
from trainwright.estimator.image import ImageFacts

folder = pytest.fixture(scope="module")(source_folder)

MANY_RANGES = {f"h{n}": {"min": 1, "max": 2} for n in range(31)}  # botocore's model: 30 of each kind

FEW = {"layers": {"min": 1, "max": 3}, "optimizer": {"values": ["sgd", "adam"]}}
MIXED_RANGES = {**{f"h{n}": {"min": 1, "max": 2} for n in range(20)}, **{f"f{n}": {"values": [1]} for n in range(11)}}
PAIR = {"instance_count": 2}
FSX_NAME = "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com"
ON_GPU = {"s3_data": "s3://bucket/a", "instance_groups": ["gpu"]}
PLAN_EAST = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/plan-1"
ALGORITHM = "246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-xgboost:1.7-1"
KEY_EAST = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"

# code, path, what is changed in a good job, image, SDK
CASES: list[tuple[str, str, dict[str, Any], ImageFacts | None, int]] = [
    ("TW260", "entry_point", {"entry_point": "/opt/ml/code/train.py"}, image(), 2),
    ("TW260", "entry_point", {"source_dir": None, "entry_point": "src/my train.py"}, image(), 2),
    ("TW260", "entry_point", {"entry_point": "../train.py"}, image(), 2),
    ("TW260", "entry_point", {"entry_point": "s3://bucket/train.py"}, image(), 2),
    ("TW260", "source_dir", {"source_dir": "s3://bucket/code"}, image(), 2),
    ("TW261", "entry_point", {"entry_point": "tran.py"}, image(), 2),
    ("TW261", "source_dir", {"source_dir": "sources"}, image(), 2),
    ("TW262", "instance_type", {"instance_type": "ml.p4d.24xlage"}, image(), 2),
    ("TW262", "instance_type", {"instance_type": "local_gpu"}, image(), 2),
    ("TW263", "instance_type", {"instance_type": None}, image(), 2),
    ("TW263", "instance_type", {"instance_groups": GROUPS}, image(), 2),
    ("TW264", "role", {"role": None}, image(), 2),
    ("TW264", "image", {"image": None}, image(), 2),
    ("TW264", "region", {**OWN, "region": None}, image(), 2),
    ("TW264", "entry_point", {"entry_point": None, "source_dir": None}, image(), 2),
    ("TW341", "entry_point", {"entry_point": None, "source_dir": None}, image(origin="plan"), 2),
    ("TW265", "hyperparameters.sagemaker_program", {"hyperparameters": {"sagemaker_program": "a.py"}}, image(), 2),
    ("TW265", "hyperparameters.mp_parameters", {"hyperparameters": {"mp_parameters": {}}}, image(), 2),
    ("TW266", "hyperparameters.learning rate", {"hyperparameters": {"learning rate": 1}}, image(), 2),
    (
        "TW267",
        "environment.SAGEMAKER_CONTAINER_LOG_LEVEL",
        {"environment": {"SAGEMAKER_CONTAINER_LOG_LEVEL": "INFO"}},
        image(),
        2,
    ),
    ("TW267", "environment.SAGEMAKER_PROGRAM", {"environment": {"SAGEMAKER_PROGRAM": "other.py"}}, image(), 2),
    ("TW268", "max_wait", {"max_wait": 100}, image(), 2),
    ("TW268", "max_wait", {"spot": True, "max_run": 200, "max_wait": 100}, image(), 2),
    ("TW269", "checkpoint", {"spot": True}, image(), 2),
    ("TW270", "inputs.train", {"inputs": {"train": "file:///data"}}, image(), 2),
    ("TW270", "inputs.train", {"inputs": {"train": {"s3_dta": "s3://b/k"}}}, image(), 2),
    ("TW270", "inputs.train", {"inputs": {"train": {"s3_data": "s3://b/k", "input_mode": "Fast"}}}, image(), 2),
    ("TW270", "inputs.train", {"inputs": {"train": 3}}, image(), 2),
    ("TW270", "inputs.train", {"inputs": {"train": {**FSX, "directory_path": "abcd"}}}, image(), 2),
    ("TW270", "inputs.train", {"inputs": {"train": {**FSX, "file_system_type": "NFS"}}}, image(), 2),
    ("TW270", "inputs.train", {"inputs": {"train": {**FSX, "input_mode": "File"}}}, image(), 2),
    ("TW270", "inputs.train", {"inputs": {"train": {**LABELS, "attribute_names": ["x"] * 17}}}, image(), 2),
    ("TW287", "inputs.train", {"inputs": {"train": {**LABELS, "input_mode": "FastFile"}}}, image(), 2),
    ("TW287", "inputs.train", {"inputs": {"train": {**LABELS, "input_mode": None}}}, image(), 3),
    ("TW287", "inputs.train", {"inputs": {"train": {**LABELS, "attribute_names": []}}}, image(), 2),
    ("TW287", "inputs.train", {"inputs": {"train": {**LABELS, "s3_data_type": "ManifestFile"}}}, image(), 2),
    ("TW271", "inputs.code", {"inputs": {"code": "s3://b/k"}}, image(), 3),
    ("TW272", "batch.global", dist({"torch_distributed": ON}, batch={"global": 64, "per_replica": 8}), image(), 2),
    ("TW272", "batch.global", dist({"torch_distributed": ON}, batch={"global": 100}), image(), 2),
    ("TW272", "batch.micro", dist({"torch_distributed": ON}, batch={"per_replica": 8, "micro": 3}), image(), 2),
    ("TW273", "model.parameters", dist({"torch_distributed": ON}, model={"parameters": 7e9}), image(), 2),
    (
        "TW274",
        "instance_type",
        {
            "instance_type": "ml.p3.2xlarge",
            "instance_count": 8,
            "distribution": {"mpi": {"enabled": True, "processes_per_host": 1}},
        },
        image(),
        2,
    ),
    ("TW275", "distribution", {"instance_type": P4}, image(), 2),
    ("TW275", "distribution", {"instance_count": 2}, image(), 2),
    ("TW275", "distribution", {"instance_type": "ml.g7.12xlarge"}, image(cuda="12.8"), 2),
    ("TW275", "distribution", dist({"torch_distributed": {"enabled": False}}), image(), 2),
    ("TW276", "hyperparameters.x", {"hyperparameters": {"x": None}}, image(), 2),
    (
        "TW276",
        "environment.SAGEMAKER_SUBMIT_DIRECTORY",
        {"environment": {"SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/code"}},
        image(),
        2,
    ),
    ("TW277", "instance_type", {"distribution": {"smdistributed": {"dataparallel": ON}}}, image(), 2),
    (
        "TW277",
        "instance_type",
        {"instance_type": "ml.p5.48xlarge", "distribution": {"smdistributed": {"dataparallel": ON}}},
        image(),
        2,
    ),
    (
        "TW277",
        "instance_type",
        {"instance_type": P3, "distribution": {"smdistributed": {"dataparallel": ON}}},
        without("smdistributed-dataparallel", **{"smdistributed-dataparallel": "2.1.0 (aws)"}),
        2,
    ),
    ("TW278", "hyperparameters.since", {"hyperparameters": {"since": date(2026, 11, 21)}}, image(), 2),
    ("TW278", "distribution.mpi", dist({"mpi": {**MPI, "custom_mpi_options": date(2026, 1, 1)}}), image(), 2),
    ("TW280", "distribution", dist({"smdistributed": {"dataparallel": ON}}), image(), 3),
    ("TW280", "distribution", dist(smp(pipeline_parallel_degree=2)), image(), 3),
    ("TW281", "compiler", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, COMPILER, 3),
    ("TW282", "source_dir", {"source_dir": None, "entry_point": "src/train.py"}, image(), 3),
    ("TW282", "source_dir", {"source_dir": "s3://bucket/code.tar.gz"}, image(), 3),
    ("TW283", "distribution.mpi", dist({"mpi": MPI}), image(), 3),
    ("TW284", "distribution.instance_groups", grouped({"mpi": MPI, "instance_groups": ["gpu"]}), image(), 3),
    ("TW285", "debugger", {"debugger": {"s3_uri": "s3://bucket/t"}}, image(), 3),
    ("TW285", "profiler", {"profiler": {"s3_uri": "s3://bucket/p"}}, image(), 3),
    ("TW286", "volume_kms_key", {"volume_kms_key": "alias/volumes"}, image(), 2),
    ("TW286", "volume_kms_key", {"instance_type": P4, "volume_kms_key": "alias/volumes"}, image(), 2),
    ("TW215", "tuner.metric", tuned(metric="los"), image(), 2),
    ("TW215", "tuner.metric", tuned(metric="validation:auc") | {"image": ALGORITHM}, None, 2),
    ("TW215", "tuner.metric", tuned() | {"metrics": {}, "image": REFERENCE.replace("team/training", "knn")}, None, 2),
    ("TW216", "tuner.ranges", tuned(ranges={}), image(), 2),
    ("TW216", "tuner.ranges.lr", ranged(min=0.1), image(), 2),
    ("TW216", "tuner.ranges.lr", ranged(min=0.1, max=0.01), image(), 2),
    ("TW216", "tuner.ranges.lr", ranged(min=0.0, max=0.01, scaling="Logarithmic"), image(), 2),
    ("TW216", "tuner.ranges.lr", ranged(min=0.5, max=1.0, scaling="ReverseLogarithmic"), image(), 2),
    ("TW216", "tuner.ranges.lr", ranged(min=0, max=1, scaling="ReverseLogarithmic"), image(), 2),
    ("TW216", "tuner.ranges.lr", ranged(min=0.1, values=[1, 2]), image(), 2),
    ("TW216", "tuner.ranges.lr", tuned(strategy="Grid"), image(), 2),
    ("TW216", "tuner.max_jobs", tuned(strategy="Grid", ranges={"lr": {"values": [1, 2]}}, max_jobs=3), image(), 2),
    ("TW216", "tuner.max_parallel_jobs", tuned(max_jobs=2, max_parallel_jobs=3), image(), 2),
    ("TW216", "tuner.hyperband", tuned(strategy="Hyperband"), image(), 2),
    ("TW216", "tuner.hyperband", tuned(hyperband={"max_resource": 9}), image(), 2),
    ("TW216", "tuner.hyperband", tuned(strategy="Hyperband", hyperband={"max_resource": 20_001}), image(), 2),
    (
        "TW216",
        "tuner.hyperband",
        tuned(strategy="Hyperband", hyperband={"max_resource": 9, "min_resource": 10}),
        image(),
        2,
    ),
    (
        "TW216",
        "tuner.hyperband",
        {**tuned(strategy="Hyperband", ranges={"epochs": {"min": 1, "max": 9}}), "hyperparameters": {"epochs": 3}},
        image(),
        2,
    ),
    ("TW290", "tuner.max_runtime", tuned(max_runtime=119), image(), 2),
    (
        "TW290",
        "tuner.warm_start.parents",
        tuned(warm_start={"type": "TransferLearning", "parents": [f"p{n}" for n in range(6)]}),
        image(),
        2,
    ),
    (
        "TW290",
        "tuner.warm_start.parents[0].HyperParameterTuningJobName",
        tuned(warm_start={"type": "TransferLearning", "parents": ["a_b"]}),
        image(),
        2,
    ),
    ("TW216", "tuner.early_stopping", tuned(strategy="Hyperband", early_stopping=True), image(), 2),
    ("TW217", "keep_alive", {**tuned(), "keep_alive": 60}, image(), 2),
    ("TW217", "registry", {**tuned(), **OWN}, image(), 2),
    ("TW217", "registry", {**tuned(), **OWN}, image(), 3),
    ("TW217", "tensorboard", {**tuned(), "tensorboard": {"s3_uri": "s3://bucket/t"}}, image(), 2),
    ("TW218", "distribution", dist({"torch_distributed": ON}, **tuned()), image(), 3),
    ("TW218", "network_isolation", {**tuned(), "network_isolation": True}, image(), 3),
    ("TW279", "tuner.ranges.lr", {**tuned(), "hyperparameters": {"lr": 0.1}}, image(), 2),
    ("TW290", "tuner.ranges.IntegerParameterRanges", tuned(ranges=MANY_RANGES), image(), 2),
    ("TW290", "role", {**tuned(), "role": "training"}, image(), 2),
    ("TW291", "hyperparameters.text", {**tuned(), "hyperparameters": {"text": "x" * 2600}}, image(), 2),
    ("TW290", "role", {"role": "training"}, image(), 2),
    ("TW290", "name", {"name": "my_job"}, image(), 2),
    ("TW290", "environment.LONG", {"environment": {"LONG": "x" * 513}}, image(), 2),
    ("TW290", "hyperparameters", {"hyperparameters": {f"h{n}": n for n in range(100)}}, image(), 2),
    ("TW290", "subnets", {"subnets": [f"subnet-{n}" for n in range(17)], "security_group_ids": ["sg-1"]}, image(), 2),
    ("TW290", "image", {"image": REFERENCE + "x" * 200}, image(), 2),
    ("TW290", "volume_kms_key", {"instance_type": P3, "volume_kms_key": "k" * 2049}, image(), 2),
    ("TW290", "keep_alive", {"keep_alive": 21601}, image(), 2),
    ("TW290", "retries", {"retries": 31}, image(), 2),
    ("TW290", "registry.credentials_provider", {**OWN, "registry": {"credentials_provider": "x"}}, image(), 2),
    ("TW290", "training_plan", {"training_plan": "my-plan"}, image(), 2),
    ("TW291", "hyperparameters.text", {"hyperparameters": {"text": "x" * 2499}}, image(), 2),
    ("TW292", "max_run", {"max_run": 28 * 86400 + 1}, image(), 2),
    (
        "TW277",
        "instance_type",
        {"distribution": {"smdistributed": {"dataparallel": {"enabled": True}}}, "instance_type": "ml.c5.4xlarge"},
        image(),
        2,
    ),
    ("TW292", "volume_gb", {"volume_gb": 16385}, image(), 2),
    ("TW292", "tags.AWS:team", {"tags": {"AWS:team": "x"}}, image(), 2),
    ("TW293", "inputs.train", {"inputs": {"train": FSX}}, image(), 2),
    ("TW293", "inputs.train", {"inputs": {"train": FSX}, "subnets": ["subnet-1"]}, image(), 2),
    ("TW293", "inputs.train", {"inputs": {"train": FSX}, "security_group_ids": ["sg-1"]}, image(), 2),
    ("TW293", "registry", {**OWN, "subnets": []}, image(), 2),
    ("TW293", "registry", {**OWN, "security_group_ids": []}, image(), 3),
    ("TW295", "keep_alive", {"keep_alive": 60, "spot": True}, image(), 2),
    ("TW295", "inputs.a", {"inputs": {"a": {"s3_data": "s3://b/k", "compression": "Gzip"}}}, image(), 2),
    (
        "TW295",
        "inputs.a",
        {"inputs": {"a": {"s3_data": "s3://b/k", "compression": "Gzip", "input_mode": "FastFile"}}},
        image(),
        2,
    ),
    ("TW295", "keep_alive", {**grouped({}), "keep_alive": 60}, image(), 2),
    ("TW295", "inputs.a", {"inputs": {"a": {"s3_data": "s3://b/k", "record_wrapping": "RecordIO"}}}, image(), 2),
    ("TW295", "placement", {"instance_type": P4, "placement": {"multiple_jobs": True}}, image(), 2),
    ("TW216", "tuner.max_jobs", tuned(max_jobs=751), image(), 2),
    ("TW216", "tuner.max_jobs", tuned(strategy="Random", max_jobs=10_001), image(), 2),
    ("TW216", "tuner.max_parallel_jobs", tuned(max_jobs=200, max_parallel_jobs=101), image(), 2),
    ("TW216", "metrics", {**tuned(), "metrics": {"loss": "(.)", **{f"m{n}": "(.)" for n in range(20)}}}, image(), 2),
    ("TW216", "tuner.ranges", tuned(ranges=MIXED_RANGES), image(), 2),
    ("TW216", "tuner.ranges.lr", ranged(min=3, max=3), image(), 2),
    ("TW216", "tuner.ranges.lr", ranged(min=0.5, max=0.5), image(), 2),
    ("TW216", "tuner.ranges.lr", ranged(values=["sgd", "adam", "sgd"]), image(), 2),
    ("TW216", "tuner.max_jobs", tuned(ranges=FEW, max_jobs=7), image(), 2),
    ("TW216", "tuner.max_jobs", tuned(ranges=FEW, max_jobs=7, strategy="Random"), image(), 2),
    ("TW265", "tuner.ranges.sagemaker_program", tuned(ranges={"sagemaker_program": {"values": ["a.py"]}}), image(), 2),
    ("TW266", "tuner.ranges.learning rate", tuned(ranges={"learning rate": {"min": 0.1, "max": 1.0}}), image(), 2),
    ("TW270", "inputs.train", {"inputs": {"train": {**FSX, "directory_path": "/"}}}, image(), 2),
    ("TW263", "instance_count", {**grouped({}), "instance_count": 2}, image(), 2),
    ("TW286", "volume_kms_key", {"instance_type": "ml.p6-b200.48xlarge", "volume_kms_key": "alias/v"}, image(), 2),
    ("TW286", "volume_kms_key", {"instance_type": "ml.trn2.48xlarge", "volume_kms_key": "alias/v"}, image(), 2),
    ("TW286", "volume_kms_key", {"instance_type": "ml.g7e.12xlarge", "volume_kms_key": "alias/v"}, image(), 2),
    ("TW287", "inputs.a", {"inputs": {"a": {"s3_data": "s3://b/k/", "s3_data_type": "ManifestFile"}}}, image(), 2),
    ("TW287", "inputs.a", {"inputs": {"a": {**LABELS, "s3_data": "s3://bucket"}}}, image(), 2),
    ("TW292", "role", {"role": "arn:aws:iam::123456789012:role/"}, image(), 2),
    ("TW295", "training_plan", {"instance_type": P3, "training_plan": PLAN_EAST}, image(), 2),
    ("TW295", "spot", {"instance_type": P4, "training_plan": PLAN_EAST, "spot": True}, image(), 2),
    ("TW295", "training_plan", {**grouped({}), "training_plan": PLAN_EAST}, image(), 2),
    ("TW310", "output", {"output": "s3://192.168.5.4/models"}, image(), 2),
    ("TW310", "output", {"output": "s3://My-Bucket/models"}, image(), 2),
    ("TW310", "inputs.train", {"inputs": {"train": "s3://my_bucket/train"}}, image(), 2),
    ("TW310", "inputs.train", {"inputs": {"train": {"s3_data": "s3://my..bucket/train"}}}, image(), 2),
    ("TW310", "checkpoint.s3_uri", {"checkpoint": {"s3_uri": "s3://<bucket>/c"}, "image": "training:1"}, image(), 2),
    ("TW310", "source_dir", {"source_dir": "s3://bucket-/code.tar.gz"}, image(), 2),
    ("TW311", "training_plan", {"training_plan": PLAN_EAST}, image(), 2),
    ("TW311", "volume_kms_key", {"instance_type": P3, "volume_kms_key": KEY_EAST}, image(), 2),
    ("TW311", "role", {"role": "arn:aws-us-gov:iam::123456789012:role/training"}, image(), 2),
    ("TW311", "region", {"region": "us-west2", "image": "training:1"}, image(), 2),
    ("TW311", "region", {"region": "us-west-3", "image": "training:1"}, image(), 2),
    ("TW312", "debugger", {"region": "me-central-1", "debugger": {"s3_uri": "s3://bucket/t"}}, image(), 2),
    ("TW312", "profiler", {"region": "us-gov-east-1", "profiler": {"s3_uri": "s3://bucket/p"}}, image(), 2),
    (
        "TW312",
        "profiler",
        {"instance_type": "ml.trn1.32xlarge", "profiler": {"s3_uri": "s3://bucket/p"}},
        image(),
        2,
    ),
    ("TW313", "image", {"image": DLC.replace("us-west-2", "me-south-1")}, image(), 2),
    ("TW313", "image", {"image": DLC.replace("py312", "py38")}, image(), 2),
    ("TW313", "image", {"image": DLC.replace("py312", "py3")}, image(), 2),
    ("TW314", "metrics.loss", {"metrics": {"loss": "loss: ([0-9.]+"}}, image(), 2),
    ("TW314", "metrics.loss", {"metrics": {"loss": "*loss=(.*)"}}, image(), 2),
    ("TW314", "metrics.loss", {"metrics": {"loss": "loss: [0-9.]+"}}, image(), 2),
    *(
        ("TW314", "metrics.loss", {"metrics": {"loss": expression}}, image(), 2)
        for expression in (
            *(r"loss=(.*?)", r"loss=([0-9.]+?)", r"loss=(\S??)", r".*loss=(.*?).*", r"\(loss=(.*?)\s*,?"),
            *(r"(loss)=[0-9.]+", r"state: ([a-z]+)", r"loss=(\s*)[0-9]"),
        )
    ),
    ("TW316", "hyperparameters.model_dir", {**ISOLATED, "hyperparameters": IN_S3}, TENSORFLOW, 2),
    ("TW316", "hyperparameters.model_dir", {**ISOLATED, "hyperparameters": IN_S3}, image(), 2),
    ("TW316", "environment.HUB", {**ISOLATED, "environment": {"HUB": "https://hub.example.com"}}, image(), 2),
    *(
        (
            "TW317",
            "tensorboard.local_path",
            {"tensorboard": {"s3_uri": "s3://bucket/t", "local_path": path}},
            image(),
            2,
        )
        for path in ("/opt/ml/checkpoints/tb", "/tmp/logs", "/usr/local/nvidia", "/opt/ml/output/tensorboard2")
    ),
    *(
        ("TW318", "environment.CUDA_VISIBLE_DEVICES", dist(how, environment={"CUDA_VISIBLE_DEVICES": seen}), image(), 2)
        for how, seen in (
            *(({"torch_distributed": ON}, "0"), ({"torch_distributed": ON}, ""), ({"torch_distributed": ON}, "-1")),
            *(
                ({"mpi": {**MPI, "processes_per_host": 4}}, "0,1,2"),
                ({"mpi": MPI}, "0,1,2,3,4,5,6,8"),
                ({"mpi": {**MPI, "processes_per_host": 2}}, "0,-1,1"),
            ),
        )
    ),
    ("TW318", "environment.GLOO_SOCKET_IFNAME", {**PAIR, "environment": {"GLOO_SOCKET_IFNAME": "lo"}}, image(), 2),
    *(
        ("TW343", f"environment.{name}", {"environment": {name: f"--xla_dump_to=/tmp {flag}"}}, image(), 2)
        for name, flag in (("XLA_FLAGS", "--tf_xla_clustering_debug"), ("TF_XLA_FLAGS", "--tf_xla_auto_jit=2"))
    ),
    ("TW318", "environment.NCCL_SOCKET_IFNAME", {**PAIR, "environment": {"NCCL_SOCKET_IFNAME": "=lo"}}, image(), 2),
    ("TW319", "hyperparameters.id", {"hyperparameters": {"id": KEY_ID}}, image(), 2),
    ("TW319", "environment.AWS_ACCESS_KEY_ID", {"environment": {"AWS_ACCESS_KEY_ID": KEY_ID}}, image(), 2),
    ("TW323", "checkpoint.local_path", {"checkpoint": {"s3_uri": "s3://b/c", "local_path": "s3://b/c"}}, image(), 2),
    ("TW323", "tensorboard.local_path", {"tensorboard": {"s3_uri": "s3://b/t", "local_path": "logs"}}, image(), 2),
    ("TW323", "debugger.local_path", {"debugger": {"s3_uri": "s3://b/d", "local_path": "tensors"}}, image(), 2),
    *(
        (
            "TW324",
            "distribution.mpi.custom_mpi_options",
            dist({"mpi": {**MPI, "custom_mpi_options": options}}),
            image(),
            2,
        )
        for options in ("-x NCCL_DEBUG INFO", "-verbose -x", "-x -verbose", "-x A=b c -x D")
    ),
    ("TW325", "environment.PATH", {"environment": {"PATH": "/opt/bin:$PATH"}}, image(), 2),
    ("TW325", "environment.PATH", {"environment": {"PATH": "${HOME}/bin:/usr/bin"}}, image(), 2),
    ("TW325", "environment.PYTHONPATH", {"environment": {"PYTHONPATH": "/src:$PYTHONPATH"}}, image(), 2),
    ("TW321", "tuner.ranges.--lr", tuned(ranges={"--lr": {"min": 0.1, "max": 0.2}}), image(), 2),
    ("TW321", "hyperparameters.--epochs", {"hyperparameters": {"--epochs": 3}}, image(), 2),
    ("TW322", "output", {"output": "https://bucket.s3.us-west-2.amazonaws.com/models"}, image(), 2),
    ("TW320", "subnets", {"subnets": ["vpc-12345678"], "security_group_ids": ["sg-1"]}, image(), 2),
    ("TW320", "security_group_ids", {"subnets": ["subnet-1"], "security_group_ids": ["default"]}, image(), 2),
    ("TW320", "inputs.train", {"inputs": {"train": {**FSX, "file_system_id": "mt-0123456789abcdef0"}}}, image(), 2),
    ("TW320", "inputs.train", {"inputs": {"train": {**FSX, "file_system_id": FSX_NAME}}}, image(), 2),
    ("TW295", "inputs", {**grouped({}), "inputs": {"a": ON_GPU, "b": "s3://bucket/b"}}, image(), 2),
    ("TW295", "inputs", {**grouped({}), **ISOLATED, "inputs": {"a": ON_GPU}}, image(), 2),
    ("TW315", "distribution.torch_distributed", dist({"torch_distributed": ON}), old("pytorch", "1.12.1"), 2),
    ("TW315", "instance_groups", grouped({}), old("pytorch", "1.9.1"), 2),
    ("TW315", "instance_groups", grouped({}), old("tensorflow", "2.5.3"), 2),
    *storage_rule_cases.CASES,
    *algorithm_rule_cases.CASES,
]
# What stands in a job's way without any other rule knowing it is in test_check.py; silence: test_silence.py; what a
# script names: test_cluster_rules.py; what is in its folder: test_edges.py; versions: test_known_bad.py.
ELSEWHERE = {"TW219", "TW288", "TW289", "TW305", "TW326", "TW327", "TW328", "TW329"}


def test_every_code_has_a_case():
    others = (test_image_rules, test_distribution_rules, test_cluster_rules)
    cases = (*CASES, *(case for module in others for case in module.CASES))
    assert {case[0] for case in cases} | ELSEWHERE == set(CODES)


@pytest.mark.parametrize(("code", "path", "changes", "facts", "sdk"), CASES)
def test_a_rule_speaks_at_the_key(folder, code, path, changes, facts, sdk):
    spoken_at(folder, code, path, changes, facts, sdk)
