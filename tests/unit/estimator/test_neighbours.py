"""Beside each wrong job, the nearest right one, on which the rule is silent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import algorithm_rule_cases, storage_rule_cases
from tests.support.rule_jobs import (
    BAKED,
    COMPILER,
    DATA,
    DLC,
    FSX,
    GROUPS,
    LABELS,
    MPI,
    NEWER,
    OLDER,
    ON,
    OWN,
    P3,
    P4,
    REFERENCE,
    SECOND,
    SECOND_OF_AWS,
    TENSORFLOW,
    dist,
    found,
    grouped,
    image,
    old,
    ranged,
    smp,
    source_folder,
    tensorflow,
    tuned,
    without,
)
from tests.unit.estimator import test_cluster_rules
from trainwright.estimator.check import CODES
from trainwright.estimator.image import ImageFacts

folder = pytest.fixture(scope="module")(source_folder)

P5, P3DN, P38 = "ml.p5.48xlarge", "ml.p3dn.24xlarge", "ml.p3.8xlarge"
PAIR = {"instance_count": 2}
XLA = {"instance_type": P38, "compiler": ON, "distribution": {"pytorchxla": ON}}
G6 = {"instance_type": "ml.g6.48xlarge", "instance_count": 2}
# Whether 1.13 can do what 1.11 cannot is not known, so nothing is said of it.
THIRTEEN = without("smdistributed-modelparallel", **{"smdistributed-modelparallel": "1.13 (aws)"})


PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/plan-1"
PLANNED = [{**GROUPS[0], "instance_type": P4}, GROUPS[1]]
ON_GPU = {"s3_data": "s3://bucket/a", "instance_groups": ["gpu"]}
XGBOOST = "246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-xgboost:1.7-1"
HTTPS = "https://bucket.s3.us-west-2.amazonaws.com/models"
BAKED_IN = {"entry_point": None, "source_dir": None}
MIRRORED_AND_MPI = {"multi_worker_mirrored_strategy": ON, "mpi": {"enabled": False}}
PS_AND_MPI = {"parameter_server": ON, "mpi": MPI}


def mpi(options: str) -> dict[str, Any]:
    return {"mpi": {**MPI, "custom_mpi_options": options}}


# code, what is changed in a good job, image, SDK
NEIGHBOURS: list[tuple[str, dict[str, Any], ImageFacts | None, int]] = [
    ("TW200", dist({"mpi": MPI, "torch_distributed": {"enabled": False}}), image(), 2),
    ("TW201", dist({"mpi": MPI}), image(), 2),
    ("TW202", dist({"parameter_server": ON}), TENSORFLOW, 2),
    ("TW203", dist({"mpi": MPI}), image(), 2),
    ("TW204", dist(DATA), image(), 2),
    ("TW205", dist({"mpi": MPI, "torch_distributed": {"enabled": False}}), image(), 2),
    ("TW206", dist({"pytorchddp": ON}), image(), 2),
    ("TW206", dist({"parameter_server": ON}), TENSORFLOW, 2),
    ("TW207", grouped({"mpi": MPI, "instance_groups": ["gpu"]}), image(), 2),
    ("TW207", grouped({**DATA, "instance_groups": ["gpu"]}), image(), 2),
    ("TW207", grouped({"pytorchddp": ON, "instance_groups": ["gpu"]}), image(), 2),
    ("TW207", {"instance_type": None, "instance_groups": GROUPS[:1], "distribution": {"mpi": MPI}}, image(), 2),
    ("TW208", {"instance_type": "ml.trn1.32xlarge", "distribution": {"torch_distributed": ON}}, image(), 2),
    ("TW209", dist({"mpi": MPI}, entry_point="run.sh"), image(), 2),
    ("TW210", {"instance_type": P5, "distribution": smp({"torch_distributed": ON}, hybrid_shard_degree=2)}, SECOND, 2),
    ("TW211", {"instance_type": P38, "instance_count": 2, "distribution": {"mpi": ON}}, TENSORFLOW, 2),
    ("TW212", dist({"multi_worker_mirrored_strategy": ON}), tensorflow("2.9.1"), 2),
    ("TW213", {"instance_type": "ml.g5.xlarge", "distribution": {"torch_distributed": ON}}, image(), 2),
    ("TW214", {"instance_count": 2, "distribution": {"parameter_server": ON}}, TENSORFLOW, 2),
    ("TW215", tuned(metric="loss"), image(), 2),
    ("TW215", {**tuned(metric="validation:auc"), "metrics": {}, "image": XGBOOST}, None, 2),
    ("TW217", {"keep_alive": 60}, image(), 2),
    ("TW221", dist(smp(microbatches=4, pipeline_parallel_degree=2)), image(), 2),
    ("TW222", dist(smp({"mpi": MPI}, pipeline_parallel_degree=2)), image(), 2),
    ("TW223", dist(smp(partitions=2)), OLDER, 2),
    ("TW225", dist(smp(sharded_data_parallel_degree=2)), NEWER, 2),
    ("TW227", dist(smp(pipeline_parallel_degree=4)), image(), 2),
    ("TW226", dist(smp(pipeline_parallel_degree=2, placement_strategy="DPT")), image(), 2),
    ("TW228", dist(smp(pipeline_parallel_degree=2, placement_strategy="spread")), image(), 2),
    ("TW228", dist(smp(partitions=2, auto_partition=False, default_partition=0)), OLDER, 2),
    ("TW229", dist(smp(pipeline_parallel_degree=2, microbatches=4), batch={"per_replica": 12}), image(), 2),
    ("TW230", dist({"mpi": {**MPI, "processes_per_host": 8}}), image(), 2),
    ("TW231", dist({"mpi": {**MPI, "processes_per_host": 8}}), image(), 2),
    ("TW230", {"instance_type": "ml.g5.xlarge", "distribution": {"mpi": {**MPI, "processes_per_host": 1}}}, image(), 2),
    ("TW232", dist(mpi("-verbose --mca btl_openib_warn_no_device_params_found 0")), image(), 2),
    ("TW232", dist(mpi("--mca plm_rsh_num_concurrent 4")), image(), 2),
    ("TW233", dist(mpi("-x A=b")), image(), 2),
    ("TW233", dist(mpi('-x A="b"')), image(), 3),  # the request has them split as a shell does
    ("TW234", dist(mpi("-x NP=16")), image(), 2),
    ("TW235", dist({"mpi": MPI}, environment={"FI_PROVIDER": "efa"}), image(), 2),
    ("TW236", {"instance_type": P4, "instance_count": 2, "distribution": {"torch_distributed": ON}}, image(), 2),
    ("TW236", {**G6, "distribution": {"torch_distributed": ON}, "environment": {"FI_PROVIDER": "efa"}}, image(), 2),
    ("TW236", {**G6, "distribution": DATA}, image(), 2),
    ("TW236", {**G6, "instance_count": 1, "distribution": {"torch_distributed": ON}}, image(), 2),
    ("TW237", dist(mpi("-x FI_EFA_USE_DEVICE_RDMA=1")), image(), 2),
    ("TW238", {"instance_type": P4, "distribution": {"torch_distributed": ON}}, without("aws-ofi-nccl"), 2),
    ("TW239", dist(mpi("-x RDMAV_FORK_SAFE=1")), image(), 2),
    ("TW239", {**G6, "distribution": {"mpi": MPI}}, image(), 2),
    ("TW239", dist({"torch_distributed": ON}), image(), 2),
    ("TW240", {}, image(), 2),
    ("TW242", {"region": "us-west-2"}, image(), 2),
    ("TW243", dist({"torch_distributed": ON}), without("mpi4py"), 2),
    ("TW244", dist({"mpi": MPI}), image(framework="jax"), 2),
    ("TW245", dist({"mpi": MPI}), without("openmpi", openmpi="4.1.7 (source)"), 2),
    ("TW245", {"instance_type": P4, "distribution": {"mpi": MPI}}, without("openmpi", openmpi="5.0.11 (source)"), 2),
    ("TW246", {"source_dir": None, "entry_point": None}, BAKED, 2),
    ("TW247", {"entry_point": "train.py"}, BAKED, 2),
    ("TW248", {"instance_type": "ml.g5.2xlarge"}, image(), 2),
    ("TW249", {"instance_type": "ml.m5.xlarge"}, image(cuda="cpu"), 2),
    ("TW249", {"instance_type": P5}, image(cuda="12.4", gpus=("8.0", "9.0")), 2),
    ("TW250", {"instance_type": P5}, image(cuda="11.8"), 2),
    ("TW250", {"instance_type": P3}, image(cuda="12.9"), 2),
    ("TW251", {"instance_type": "ml.p3.2xlarge"}, COMPILER, 2),
    ("TW252", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, COMPILER, 2),
    ("TW253", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, COMPILER, 2),
    ("TW253", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, tensorflow("2.9.1"), 2),
    ("TW253", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, tensorflow("2.11.1"), 2),
    ("TW253", {"instance_type": "ml.p3.2xlarge", "compiler": ON}, without(**{"torch-xla": "1.13 (wheel)"}), 2),
    (
        "TW253",
        {"instance_type": "ml.p3.2xlarge", "compiler": ON},
        image(framework="huggingface-tensorflow-trcomp", version="2.6.3"),
        2,
    ),
    ("TW254", {**XLA}, COMPILER, 2),
    ("TW254", {**XLA, "distribution": {"mpi": MPI}}, tensorflow("2.9.1"), 2),
    ("TW255", {"instance_type": "ml.p3.2xlarge", "compiler": {"enabled": False}}, COMPILER, 2),
    ("TW256", {**XLA}, COMPILER, 2),
    ("TW257", {**XLA}, COMPILER, 2),
    ("TW258", {**XLA, "environment": {"GPU_NUM_DEVICES": "4"}}, COMPILER, 2),
    ("TW259", {**XLA, "instance_type": P3DN, "instance_count": 2}, COMPILER, 2),
    ("TW259", {**XLA, "instance_count": 1}, COMPILER, 2),
    ("TW260", {"source_dir": None, "entry_point": "src/train.py"}, image(), 2),
    ("TW261", {"entry_point": "train.py", "source_dir": "src"}, image(), 2),
    ("TW262", {"instance_type": P4}, image(), 2),
    ("TW263", {"instance_type": None, "instance_groups": GROUPS}, image(), 2),
    ("TW264", {"entry_point": None, "source_dir": None}, BAKED, 2),
    ("TW265", {"hyperparameters": {"sagemaker_s3_output": "s3://b/k", "my_sagemaker_program": "a.py"}}, image(), 2),
    ("TW266", {"hyperparameters": {"optimizer/learning-rate_0.x": 1}}, image(), 2),
    ("TW267", {"environment": {"SAGEMAKER_CONTAINER_LOG_LEVEL": "20", "SAGEMAKER_PROGRAM": "train.py"}}, image(), 2),
    ("TW268", {"spot": True, "max_run": 100, "max_wait": 100}, image(), 2),
    ("TW269", {"spot": True, "checkpoint": {"s3_uri": "s3://bucket/c"}}, image(), 2),
    ("TW287", {"inputs": {"train": LABELS}}, image(), 2),
    ("TW287", {"inputs": {"train": {"s3_data": "s3://b/k", "s3_data_type": "ManifestFile"}}}, image(), 2),
    ("TW270", {"inputs": {"train": LABELS}}, image(), 3),
    ("TW270", {"inputs": {"train": FSX, "test": {"s3_data": "s3://b/k", "input_mode": "FastFile"}}}, image(), 2),
    ("TW272", dist({"torch_distributed": ON}, batch={"global": 128, "per_replica": 8, "micro": 4}), image(), 2),
    ("TW273", dist({"torch_distributed": ON}, model={"parameters": 1e9}), image(), 2),
    ("TW274", {"instance_type": P3, "instance_count": 1, "distribution": {"mpi": MPI}}, image(), 2),
    ("TW275", dist({"torch_distributed": ON}), image(), 2),
    ("TW276", {"hyperparameters": {"x": ""}, "environment": {"SUBMIT_DIRECTORY": "/opt/ml/code"}}, image(), 2),
    ("TW277", dist(DATA), image(), 2),
    ("TW277", grouped({**DATA, "instance_groups": ["gpu"]}), image(), 2),  # the other group has no GPUs
    ("TW275", {**PAIR, "image": XGBOOST}, None, 2),
    ("TW277", {"instance_type": P3, "distribution": DATA}, image(), 2),
    ("TW277", {"instance_type": P38, "distribution": {"pytorchddp": ON}}, image(), 2),
    ("TW278", {"hyperparameters": {"since": "2026-11-21"}}, image(), 2),
    ("TW279", {**tuned(), "hyperparameters": {"momentum": 0.1}}, image(), 2),
    ("TW280", dist({"torch_distributed": ON}), image(), 3),
    ("TW281", {"instance_type": "ml.p3.2xlarge"}, COMPILER, 3),
    ("TW282", {"source_dir": "src", "entry_point": "run.sh"}, image(), 3),
    ("TW283", {"instance_type": P4, "distribution": {"mpi": MPI}}, image(), 3),
    ("TW283", {"instance_type": "ml.q1.large", "instance_count": 2, "distribution": {"mpi": ON}}, image(), 3),
    ("TW284", dist({"mpi": MPI}), image(), 3),
    ("TW285", {"debugger": {"s3_uri": "s3://bucket/t"}, "profiler": {"s3_uri": "s3://bucket/p"}}, image(), 2),
    ("TW286", {"instance_type": P3, "volume_kms_key": "alias/volumes"}, image(), 2),
    ("TW290", {"name": "my-job", "role": "arn:aws:iam::123456789012:role/team/training"}, image(), 2),
    ("TW290", {"keep_alive": 21600, "environment": {"LONG": "x" * 512}}, image(), 2),
    ("TW291", {"hyperparameters": {"text": "x" * 2498}}, image(), 2),
    ("TW292", {"max_run": 28 * 86400, "volume_gb": 16384}, image(), 2),
    ("TW292", {"tags": {"team:aws:ml": "x", "aws": "y", "awsome": "aws:z"}}, image(), 2),
    ("TW293", {"inputs": {"train": FSX}, "subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}, image(), 2),
    ("TW203", dist({"torch_distributed": {"enabled": False}}), image(), 2),
    ("TW226", dist(smp(partitions=2, default_partition=0, auto_partition=True)), image(), 2),
    ("TW226", dist(smp(partitions=2, default_partition=1, auto_partition=False)), image(), 2),
    ("TW275", dist({"smdistributed": {"modelparallel": {"enabled": False, "parameters": {}}}}), image(), 2),
    ("TW241", {"image": "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/team/training:1"}, image(), 2),
    ("TW241", OWN, image(), 2),
    ("TW241", {**OWN, "image": "registry.example.com:5000/training@sha256:" + "a" * 64}, image(), 3),
    ("TW242", OWN, image(), 2),
    ("TW217", OWN, image(), 2),
    ("TW264", OWN, image(), 2),
    ("TW341", {"entry_point": None, "source_dir": None}, BAKED, 2),
    ("TW264", {**OWN, "image": REFERENCE, "region": None}, image(), 2),
    ("TW290", OWN, image(), 2),
    ("TW293", OWN, image(), 2),
    ("TW293", {"registry": {"access_mode": "Platform"}}, image(), 2),
    ("TW271", {"inputs": {"code": "s3://bucket/code"}}, image(), 2),
    ("TW271", {"inputs": {"data": "s3://bucket/data"}, "network_isolation": True}, image(), 2),
    ("TW285", {"tensorboard": {"s3_uri": "s3://bucket/t"}}, image(), 3),
    ("TW216", {**tuned(strategy="Hyperband"), "hyperparameters": {"epochs": 3}}, image(), 2),
    ("TW216", tuned(strategy="Hyperband", hyperband={"max_resource": 20_000, "min_resource": 20_000}), image(), 2),
    (
        "TW290",
        tuned(max_runtime=120, warm_start={"type": "TransferLearning", "parents": [f"p{n}" for n in range(5)]}),
        image(),
        2,
    ),
    ("TW216", ranged(min=0.0, max=0.9, scaling="ReverseLogarithmic"), image(), 2),
    ("TW216", tuned(strategy="Grid", ranges={"lr": {"values": [1, 2]}}), image(), 2),
    ("TW216", tuned(strategy="Grid", ranges={"lr": {"values": [1, 2]}}, max_jobs=2, max_parallel_jobs=2), image(), 2),
    ("TW216", tuned(max_jobs=3, max_parallel_jobs=3), image(), 2),
    ("TW216", tuned(ranges={"layers": {"min": 1, "max": 3}, "o": {"values": ["a", "b"]}}, max_jobs=6), image(), 2),
    ("TW216", tuned(ranges={"layers": {"min": 1, "max": 3}, "lr": {"min": 0.1, "max": 0.2}}, max_jobs=90), image(), 2),
    # A single value, and values that are equal only as numbers.
    ("TW216", tuned(ranges={"lr": {"min": 0.1, "max": 0.2}, "o": {"values": ["a"]}}), image(), 2),
    ("TW216", ranged(values=[1, "1"]), image(), 2),
    # Hyperband may run a combination again for longer; whether the service counts them is not known.
    (
        "TW216",
        tuned(ranges={"layers": {"min": 1, "max": 3}}, max_jobs=9, strategy="Hyperband", hyperband={"max_resource": 9}),
        image(),
        2,
    ),
    ("TW218", dist({"torch_distributed": ON}, **tuned()), image(), 2),
    ("TW294", {"image": DLC}, image(), 2),
    ("TW294", {"image": REFERENCE.replace("training", "two-inference")}, image(), 2),
    ("TW295", {"keep_alive": 60}, image(), 2),
    ("TW295", {"inputs": {"a": {"s3_data": "s3://b/k.gz", "compression": "Gzip", "input_mode": "Pipe"}}}, image(), 2),
    ("TW295", {"inputs": {"a": {"s3_data": "s3://b/k.gz", "compression": "None", "input_mode": "File"}}}, image(), 2),
    ("TW224", dist(smp(partitions=2, deterministic_server=True)), image(), 2),
    ("TW224", dist(smp(partitions=2, static_mode=True, _match_weights=True)), NEWER, 2),
    ("TW296", dist(smp(partitions=2)), OLDER, 2),
    # 1.6.0 is the release that renamed it.
    ("TW296", dist(smp(microbatches=4)), without(**{"smdistributed-modelparallel": "1.6.0 (aws)"}), 2),
    ("TW296", dist(smp(sharded_data_parallel_degree=2, ddp=True)), NEWER, 2),
    ("TW297", dist(smp(partitions=2, pipeline_parallel_degree=2)), image(), 2),
    ("TW297", dist(smp(sharded_data_parallel_degree=2, tensor_parallel_degree=2, ddp=True)), NEWER, 2),
    ("TW297", dist(smp(partitions=2, ddp=True, bf16=True, fp16=False)), NEWER, 2),
    ("TW296", dist(smp({"torch_distributed": ON}, hybrid_shard_degree=2)), SECOND, 2),
    ("TW220", dist(smp({"torch_distributed": ON}, hybrid_shard_degree=2)), SECOND, 2),
    ("TW220", dist(smp(partitions=2)), image(), 2),
    ("TW220", dist(smp(partitions=2)), None, 2),
    ("TW220", dist(smp({"torch_distributed": ON}, hybrid_shard_degree=2)), SECOND_OF_AWS, 2),
    ("TW224", dist(smp({"torch_distributed": ON}, hybrid_shard_degree=2)), SECOND_OF_AWS, 2),
    ("TW224", dist(smp({"torch_distributed": ON}, delayed_parameter_initialization=True)), SECOND, 2),
    ("TW297", dist(smp(pipeline_parallel_degree=2, sharded_data_parallel_degree=1)), NEWER, 2),
    ("TW298", dist(smp(partitions=2, horovod=True, contiguous=True)), TENSORFLOW, 2),
    ("TW298", dist(smp(partitions=2, ddp=True)), None, 2),
    ("TW297", dist(smp(sharded_data_parallel_degree=2, tensor_parallel_degree=2, ddp=True)), THIRTEEN, 2),
    ("TW229", dist(smp(pipeline_parallel_degree=2, microbatches=0), batch={"per_replica": 12}), image(), 2),
    ("TW299", dist(smp(pipeline_parallel_degree=1, sharded_data_parallel_degree=2)), NEWER, 2),
    ("TW205", {**dist(PS_AND_MPI), "instance_count": 1}, TENSORFLOW, 2),
    ("TW227", dist(smp({"torch_distributed": ON}, context_parallel_degree=4, expert_parallel_degree=2)), SECOND, 2),
    ("TW241", {"image": "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/team/a_b-c.d/training:1"}, image(), 2),
    ("TW241", {"image": "123456789012.dkr-ecr.us-west-2.on.aws/team/training:1"}, image(), 2),
    ("TW241", {"image": "123456789012.dkr.ecr.xx-new-1.amazonaws.com/team/training:1"}, image(), 2),
    ("TW294", {"image": f"{DLC}-cu126-ubuntu22.04-sagemaker"}, image(), 2),
    ("TW294", {"image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.6.0-ec2"}, image(), 2),
    ("TW270", {"inputs": {"a": {"s3_data": "s3://b/k.jsonl", "s3_data_type": "Converse"}}}, image(), 2),
    ("TW287", {"inputs": {"a": {"s3_data": "s3://b/k/", "s3_data_type": "Converse"}}}, image(), 2),
    ("TW295", {"inputs": {"a": {**LABELS, "record_wrapping": "RecordIO"}}}, image(), 2),
    ("TW295", {**PAIR, "instance_type": "ml.p6e-gb200.36xlarge", "placement": {"ultra_servers": {"u": 2}}}, image(), 2),
    ("TW216", tuned(max_jobs=750, max_parallel_jobs=100), image(), 2),
    ("TW216", tuned(strategy="Random", max_jobs=10_000), image(), 2),
    ("TW216", {**tuned(), "metrics": {"loss": "(.)", **{f"m{n}": "(.)" for n in range(19)}}}, image(), 2),
    ("TW241", {"image": REFERENCE.replace(":1", f":_v1.0-{'a' * 122}")}, image(), 2),
    ("TW241", {"image": REFERENCE.replace(":1", f":1@sha256:{'0a' * 32}")}, image(), 2),
    ("TW266", tuned(ranges={"learning-rate": {"min": 0.1, "max": 1.0}}), image(), 2),
    ("TW270", {"inputs": {"train": {**FSX, "directory_path": "/fsx"}}}, image(), 2),
    ("TW270", {"inputs": {"train": {**FSX, "file_system_type": "EFS", "directory_path": "/"}}}, image(), 2),
    ("TW270", {"inputs": {"train": {"s3_data": "s3://bucket/a", "record_wrapping": "None"}}}, image(), 2),
    ("TW295", {"inputs": {"train": {"s3_data": "s3://bucket/a", "record_wrapping": "None"}}}, image(), 2),
    ("TW205", {**dist(MIRRORED_AND_MPI), "instance_type": "ml.g5.xlarge"}, TENSORFLOW, 2),
    ("TW249", dist({"torch_distributed": ON}), image(), 2),
    ("TW263", {**grouped({}), "instance_count": 1}, image(), 2),
    ("TW286", {"instance_type": "ml.r8i.large", "volume_kms_key": "alias/volumes"}, image(cuda="cpu"), 2),
    ("TW287", {"inputs": {"a": {"s3_data": "s3://bucket/a", "s3_data_type": "ManifestFile"}}}, image(), 2),
    ("TW287", {"inputs": {"a": "s3://bucket/a/", "b": "s3://bucket"}}, image(), 2),
    ("TW292", {"role": "arn:aws:iam::123456789012:role/service-role/training"}, image(), 2),
    ("TW295", {"instance_type": P4, "training_plan": PLAN}, image(), 2),
    ("TW295", {**grouped({}), "instance_groups": PLANNED, "training_plan": PLAN}, image(), 2),
    ("TW310", {"output": "s3://192.168.5.x4/models"}, image(), 2),
    ("TW310", {"output": "s3://my.bucket-1/Models_1"}, image(), 2),
    ("TW310", {"output": "s3://my-bucket--usw2-az1--x-s3/models"}, image(), 2),
    ("TW310", {"output": "s3://arn:aws:s3:us-west-2:123456789012:accesspoint/Data/x"}, image(), 2),
    # Before March 2018, us-east-1 took such names.
    ("TW310", {"output": "s3://My_Bucket/models", "image": REFERENCE.replace("us-west-2", "us-east-1")}, image(), 2),
    ("TW310", {"output": "s3://My_Bucket/models", "image": "training:1"}, image(), 2),
    ("TW311", {"training_plan": "arn:aws:sagemaker:us-west-2:123456789012:training-plan/plan-1"}, image(), 2),
    # The models' bucket may be in another region, and its key is there.
    ("TW311", {"output_kms_key": "arn:aws:kms:us-east-1:123456789012:key/1", "output": "s3://bucket/m"}, image(), 2),
    ("TW311", {"region": "cn-north-1", "role": "arn:aws-cn:iam::123456789012:role/training"}, image(), 2),
    ("TW312", {"region": "me-south-1", "debugger": {"s3_uri": "s3://bucket/t"}}, image(), 2),
    ("TW312", {"region": "me-central-1", "tensorboard": {"s3_uri": "s3://bucket/t"}}, image(), 2),
    ("TW312", {"region": "me-central-1", "debugger": {"s3_uri": "s3://bucket/t"}}, image(), 3),
    ("TW313", {"image": DLC.replace("us-west-2", "me-south-1").replace("763104351884", "217643126080")}, image(), 2),
    ("TW313", {"image": DLC.replace("763104351884", "123456789012").replace("py312", "py38")}, image(), 2),
    ("TW313", {"image": DLC.replace("2.6.0", "9.9.0")}, image(), 2),
    ("TW313", {"image": DLC.replace("2.6.0-gpu-py312", "1.8.1-cpu-py3")}, image(), 2),
    (
        "TW313",
        {"image": DLC.replace("pytorch-training:2.6.0-gpu-py312", "tensorflow-training:2.1.3-gpu-py3")},
        image(),
        2,
    ),
    ("TW314", {"metrics": {"loss": r"loss: (?<v>[0-9.]+)", "a": r"\Q(a\E=(.*)", "b": "acc=([0-9.]++)"}}, image(), 2),
    *(
        ("TW314", {"metrics": {"loss": expression}}, image(), 2)
        for expression in (
            *(
                r"loss=(.*?);",
                r"loss=(.*?)$",
                r"loss=(.*)",
                r"loss=([0-9.]+)",
                r"loss=(\S+?)\s",
                r"loss=(.*?),? ",
                "(.)",
            ),
            *(
                r"\(loss\)=([0-9.]+)",
                r"[(loss)]([0-9]+)",
                r"loss=(-?[0-9]+?)",
                r"(loss|acc)=([0-9]+)",
                r"loss=(\p{N}+)",
                r"(train)_loss=([0-9.]+)",
                r"(?:\(loss):([0-9]+)",
            ),
        )
    ),
    ("TW316", {"hyperparameters": {"model_dir": "s3://bucket/models"}}, TENSORFLOW, 2),
    ("TW316", {"network_isolation": True, "hyperparameters": {"model_dir": "/opt/ml/model"}}, TENSORFLOW, 2),
    ("TW316", {"network_isolation": True, "hyperparameters": {"name": "s3-copy", "n": 1}}, image(), 2),
    *(
        ("TW317", {"tensorboard": {"s3_uri": "s3://bucket/t", "local_path": path}}, image(), 2)
        for path in (None, "/opt/ml/output/tensorboard", "/opt/ml/output/tensorboard/run", "/tensorboard", "/tmpfs/tb")
    ),
    ("TW317", {"checkpoint": {"s3_uri": "s3://bucket/c", "local_path": "/opt/ml/checkpoints"}}, image(), 2),
    *(
        ("TW318", dist(how, environment={"CUDA_VISIBLE_DEVICES": seen}), image(), 2)
        for how, seen in (
            *(({"torch_distributed": ON}, "7,6,5,4,3,2,1,0"), ({"torch_distributed": ON}, "GPU-8932f937")),
            *(({"mpi": {**MPI, "processes_per_host": 2}}, "0, 1"), ({}, "0"), ({}, "")),
        )
    ),
    ("TW318", {"instance_count": 2, "environment": {"NCCL_SOCKET_IFNAME": "^lo,docker"}}, image(), 2),
    ("TW318", {"environment": {"GLOO_SOCKET_IFNAME": "lo"}}, image(), 2),
    ("TW343", {"environment": {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}}, image(), 2),
    ("TW343", {"environment": {"XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_dump_to=/tmp/tf_hlo"}}, image(), 2),
    # The toolkit sets it for these launchers.
    ("TW318", dist({"torch_distributed": ON}, environment={"NCCL_SOCKET_IFNAME": "lo"}, instance_count=2), image(), 2),
    ("TW323", {"checkpoint": {"s3_uri": "s3://b/c"}, "tensorboard": {"s3_uri": "s3://b/t"}}, image(), 2),
    ("TW323", {"checkpoint": {"s3_uri": "s3://b/c", "local_path": "/ckpt"}}, image(), 2),
    ("TW324", dist(mpi("-x A -x B=c --tag-output -x D")), image(), 2),
    ("TW324", dist(mpi("-x 'A=b c' -x D")), image(), 3),
    ("TW324", dist(mpi("--NCCL_DEBUG INFO -verbose")), image(), 2),
    ("TW325", {"environment": {"PATH": "/opt/bin:/usr/bin", "HINT": "$PATH", "COST_PATH": "/us$5"}}, image(), 2),
    ("TW321", {"hyperparameters": {"n-epochs": 3}}, image(), 2),
    ("TW321", {**BAKED_IN, "hyperparameters": {"--epochs": 3}}, BAKED, 2),
    ("TW322", {"output": "s3://bucket/models"}, image(), 2),
    ("TW322", {"output": HTTPS, "source_dir": "s3://bucket/code.tar.gz"}, image(), 2),
    ("TW322", {**BAKED_IN, "output": HTTPS}, BAKED, 2),
    ("TW322", {"output": HTTPS}, image(), 3),
    ("TW320", {"subnets": ["subnet-1"], "security_group_ids": ["sg-1", "sg-0123456789abcdef0"]}, image(), 2),
    ("TW320", {"inputs": {"train": FSX}}, image(), 2),
    ("TW295", {**grouped({}), "inputs": {"a": ON_GPU, "b": ON_GPU, "c": FSX}}, image(), 2),
    ("TW295", {**grouped({}), "inputs": {"a": "s3://bucket/a", "b": "s3://bucket/b"}}, image(), 2),
    ("TW295", {**grouped({}), "network_isolation": True, "inputs": {"a": ON_GPU}}, image(), 3),
    ("TW295", {**grouped({}), **BAKED_IN, "network_isolation": True, "inputs": {"a": ON_GPU}}, image(), 2),
    ("TW319", {"hyperparameters": {"key": "AKIA", "name": "MASIAIOSFODNN7EXAMPLE"}}, image(), 2),
    ("TW315", dist({"torch_distributed": ON}), old("pytorch", "1.13.1"), 2),
    ("TW315", dist({"torch_distributed": ON}), image(version="1.12.1"), 2),
    ("TW315", grouped({}), old("pytorch", "1.10.0"), 2),
    ("TW315", grouped({}), old("tensorflow", "2.6.3"), 2),
    *storage_rule_cases.NEIGHBOURS,
    *algorithm_rule_cases.NEIGHBOURS,
]
# What stands in a job's way without any other rule knowing it is in test_check.py; silence: test_silence.py;
# what is in its folder: test_edges.py; versions: test_known_bad.py.
ELSEWHERE = {"TW219", "TW288", "TW289", "TW326", "TW327", "TW328", "TW329"}


def test_every_rule_has_its_right_neighbour():
    tables = (NEIGHBOURS, test_cluster_rules.NEIGHBOURS)
    assert {code for table in tables for code, *_ in table} == set(CODES) - ELSEWHERE


@pytest.mark.parametrize(("code", "changes", "facts", "sdk"), NEIGHBOURS)
def test_a_rule_is_silent_on_the_right_neighbour(folder, code, changes, facts, sdk):
    assert code not in {each.code for each in found(folder, changes, facts, sdk)}
