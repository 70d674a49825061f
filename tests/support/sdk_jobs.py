"""Jobs whose requests the estimator writes and the real SDKs send, each with the facts of its image."""

from __future__ import annotations

from typing import Any

from tests.doubles.sdk_requests import ACCOUNT, BUCKET, REGION
from trainwright.estimator.image import ImageFacts

IMAGE = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/team/training:1"
ENABLED = {"enabled": True}
P4D = {"instance_type": "ml.p4d.24xlarge", "instance_count": 2}
GB200 = {"instance_type": "ml.p6e-gb200.36xlarge", "instance_count": 2}
P3 = {"instance_type": "ml.p3.16xlarge", "instance_count": 2}
MPI = {"enabled": True, "processes_per_host": 8}
GROUPS = [
    {"name": "gpu", "instance_type": "ml.p3.16xlarge", "instance_count": 2},
    {"name": "data", "instance_type": "ml.m5.xlarge", "instance_count": 1},
]
TOOLKIT = ("sagemaker-toolkit", "openmpi", "ssh", "mpi4py", "aws-ofi-nccl")
LIBRARIES = ("smdistributed-dataparallel", "smdistributed-modelparallel", "torch-xla")


def image(framework: str, version: str, cuda: str, components: dict[str, str], **more: Any) -> ImageFacts:
    versions = {**dict.fromkeys((*TOOLKIT, "pytorch"), "1 (test)"), "openmpi": "4.1.4 (debian)", **components}
    return ImageFacts(
        reference=IMAGE,
        origin="labels",
        framework=framework,
        version=version,
        cuda=cuda,
        python="3.9",
        components=versions,
        **more,
    )


PYTORCH = image("pytorch", "2.6.0", "12.4", {})
ARM = image("pytorch", "2.9.0", "13.0", {}, platform="linux/arm64")
LIBRARIED = image("pytorch", "1.10.2", "11.3", dict.fromkeys(LIBRARIES, "1.7.0 (aws)"))
SECOND = image("pytorch", "2.3.0", "12.1", {"smdistributed-modelparallel": "2.4.0 (aws)"})
COMPILER = image("pytorch-trcomp", "1.13.1", "11.7", {"torch-xla": "1.13 (aws)"})
TENSORFLOW = image("tensorflow", "2.11.1", "11.2", {})
BAKED = image("pytorch", "2.6.0", "12.4", {}, entry_point="train.py")
SPOT = {
    "spot": True,
    "max_run": 3600,
    "max_wait": 7200,
    "checkpoint": {"s3_uri": f"s3://{BUCKET}/checkpoints", "local_path": "/opt/ml/checkpoints"},
}
EVERYTHING = {
    "hyperparameters": {"lr": 0.1, "name": "a \"b\" 'c'", "on": True, "deep": {"k": [1, None]}, "text": "ü\\"},
    "environment": {"NCCL_DEBUG": "INFO", "QUOTED": 'it\'s "so"'},
    "tags": {"team": "vision"},
    "metrics": {"loss": r"loss=([0-9.]+)"},
    "subnets": ["subnet-1"],
    "security_group_ids": ["sg-1", "sg-2"],
    "volume_gb": 200,
    "name": "vision-run",
    "output": f"s3://{BUCKET}/a/prefix/",
}
CHANNELS = {
    "train": f"s3://{BUCKET}/train",
    "test": {"s3_data": f"s3://{BUCKET}/test", "distribution": "ShardedByS3Key", "input_mode": "FastFile"},
    "list": {"s3_data": f"s3://{BUCKET}/list", "s3_data_type": "ManifestFile", "content_type": "text/csv"},
    "labels": {
        "s3_data": f"s3://{BUCKET}/labels.manifest",
        "s3_data_type": "AugmentedManifestFile",
        "input_mode": "Pipe",
        "record_wrapping": "RecordIO",
        "attribute_names": ["source-ref", "class"],
    },
}
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/12345678-1234-1234-1234-123456789012"
FILE_SYSTEMS = {
    "subnets": ["subnet-1"],
    "security_group_ids": ["sg-1"],
    "inputs": {
        "fsx": {
            "file_system_id": "fs-0123456789abcdef0",
            "file_system_type": "FSxLustre",
            "directory_path": "/abcd1234/train",
        },
        "efs": {
            "file_system_id": "fs-0123456789abcdef1",
            "file_system_type": "EFS",
            "directory_path": "/test",
            "file_system_access_mode": "rw",
        },
    },
}
OPTIONS = {
    "volume_kms_key": KEY,
    "output_kms_key": KEY,
    "disable_output_compression": True,
    "encrypt_traffic": True,
    "keep_alive": 1800,
    "retries": 3,
    "tensorboard": {"s3_uri": f"s3://{BUCKET}/tensorboard", "local_path": "/opt/ml/output/tensorboard"},
    "remote_debug": True,
    "session_tags": True,
}
# An image outside of ECR, as in AWS's guide for images in a private Docker registry.
OWN_REGISTRY = {
    "image": "registry.example.com/team/training:1",
    "region": REGION,
    "subnets": ["subnet-1"],
    "security_group_ids": ["sg-1"],
    "registry": {"credentials_provider": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:credentials"},
}
PLAN = {
    "training_plan": f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-plan/plan-1",
    "placement": {"multiple_jobs": True, "ultra_servers": {"ultra-1": 2}},
}
DEBUGGED = {
    "debugger": {"s3_uri": f"s3://{BUCKET}/tensors", "local_path": "/opt/ml/output/tensors"},
    "profiler": {"s3_uri": f"s3://{BUCKET}/profile", "interval_ms": 500},
}

TUNED = {
    "metrics": {"loss": r"loss=([0-9.]+)", "accuracy": r"accuracy=([0-9.]+)"},
    "hyperparameters": {"lr": 0.1, "epochs": 3, "name": "x"},
    "tuner": {
        "metric": "loss",
        "goal": "Minimize",
        "ranges": {
            "lr": {"min": 0.0001, "max": 0.1, "scaling": "Logarithmic"},
            "batch": {"min": 16, "max": 128},
            "optimizer": {"values": ["sgd", "adam"]},
        },
        "max_jobs": 20,
        "max_parallel_jobs": 4,
        "early_stopping": True,
    },
}
GRID = {
    "metrics": {"loss": r"loss=([0-9.]+)"},
    "tuner": {
        "metric": "loss",
        "goal": "Minimize",
        "strategy": "Grid",
        "ranges": {"a": {"values": ["1", "2"]}, "b": {"values": [3, 4]}},
    },
}
EPOCHS = {"metrics": {"loss": r"loss=([0-9.]+)"}, "hyperparameters": {"epochs": 9}}
HYPERBAND = {
    **EPOCHS,
    "tuner": {
        "metric": "loss",
        "goal": "Minimize",
        "strategy": "Hyperband",
        "ranges": {"lr": {"min": 0.0001, "max": 0.1}},
        "max_jobs": 20,
        "hyperband": {"min_resource": 2, "max_resource": 9},
        "max_runtime": 7200,
    },
}
WARM = {
    **EPOCHS,
    "tuner": {
        "metric": "loss",
        "goal": "Minimize",
        "ranges": {"lr": {"min": 0.0001, "max": 0.1}},
        "max_jobs": 20,
        "warm_start": {"type": "TransferLearning", "parents": ["vision-240101-0101"]},
    },
}
KEPT = {"output_kms_key": KEY, "retries": 3, "tags": {"team": "vision"}, "environment": {"NCCL_DEBUG": "INFO"}}


def smp(**parameters: Any) -> dict[str, Any]:
    return {"modelparallel": {"enabled": True, "parameters": parameters}}


# name: the image, and what differs from one ml.m5.xlarge with a script in a folder.
BUILT_IN: dict[str, Any] = {
    "image": "246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-xgboost:1.7-1",
    "entry_point": None,
    "source_dir": None,
    "instance_type": "ml.m5.xlarge",
    "hyperparameters": {"objective": "reg:squarederror", "num_round": 50, "eta": 0.2},
    "keep_alive": 0,
}
JOBS_2: dict[str, tuple[ImageFacts | None, dict[str, Any]]] = {
    "plain": (PYTORCH, {"instance_type": "ml.g5.xlarge"}),
    "everything": (PYTORCH, {"instance_type": "ml.g5.xlarge", **EVERYTHING}),
    "channels": (PYTORCH, {"instance_type": "ml.g5.xlarge", "inputs": CHANNELS}),
    "spot": (PYTORCH, {"instance_type": "ml.g5.xlarge", **SPOT}),
    "isolated": (PYTORCH, {"instance_type": "ml.g5.xlarge", "network_isolation": True, "inputs": CHANNELS}),
    "script alone": (PYTORCH, {"instance_type": "ml.g5.xlarge", "source_dir": None, "entry_point": "src/train.py"}),
    "code in s3": (PYTORCH, {"instance_type": "ml.g5.xlarge", "source_dir": f"s3://{BUCKET}/code/sourcedir.tar.gz"}),
    "mpi": (PYTORCH, {**P4D, "distribution": {"mpi": {**MPI, "custom_mpi_options": "-x RDMAV_FORK_SAFE=1"}}}),
    "torchrun": (PYTORCH, {**P4D, "distribution": {"torch_distributed": ENABLED}}),
    "dataparallel": (LIBRARIED, {**P4D, "distribution": {"smdistributed": {"dataparallel": ENABLED}}}),
    "pytorchddp": (LIBRARIED, {**P4D, "distribution": {"pytorchddp": ENABLED}}),
    "model parallel 1": (
        LIBRARIED,
        {
            **P4D,
            "distribution": {
                "smdistributed": smp(pipeline_parallel_degree=4, microbatches=4, ddp=True, optimize="speed"),
                "mpi": MPI,
            },
        },
    ),
    "default partition": (
        LIBRARIED,
        {
            **P4D,
            "distribution": {
                "smdistributed": smp(
                    pipeline_parallel_degree=2, auto_partition=False, default_partition=1, microbatches=4, ddp=True
                ),
                "mpi": MPI,
            },
        },
    ),
    "model parallel 2": (
        SECOND,
        {
            **P4D,
            "distribution": {
                "torch_distributed": ENABLED,
                "smdistributed": smp(hybrid_shard_degree=2, tensor_parallel_degree=4),
            },
        },
    ),
    "groups": (
        PYTORCH,
        {
            "instance_groups": GROUPS,
            "distribution": {"mpi": MPI, "instance_groups": ["gpu"]},
            "inputs": {"train": {"s3_data": f"s3://{BUCKET}/train", "instance_groups": ["gpu"]}},
        },
    ),
    "groups with dataparallel": (
        LIBRARIED,
        {
            "instance_groups": GROUPS,
            "distribution": {"smdistributed": {"dataparallel": ENABLED}, "instance_groups": ["gpu"]},
        },
    ),
    "options": (PYTORCH, {"instance_type": "ml.p3.2xlarge", **OPTIONS}),
    "options with a launcher": (PYTORCH, {**P3, "distribution": {"torch_distributed": ENABLED}, **OPTIONS}),
    "file systems": (PYTORCH, {"instance_type": "ml.g5.xlarge", **FILE_SYSTEMS}),
    # Placement is for UltraServers alone.
    "training plan": (ARM, {**GB200, "distribution": {"torch_distributed": ENABLED}, **PLAN}),
    "own registry": (PYTORCH, {"instance_type": "ml.g5.xlarge", **OWN_REGISTRY}),
    "own registry, open": (None, {"instance_type": "ml.g5.xlarge", **OWN_REGISTRY, "registry": {}}),
    "registry of the platform": (PYTORCH, {"instance_type": "ml.g5.xlarge", "registry": {"access_mode": "Platform"}}),
    "debugger": (PYTORCH, {"instance_type": "ml.g5.xlarge", **DEBUGGED}),
    "tuner": (PYTORCH, {"instance_type": "ml.g5.xlarge", "inputs": CHANNELS, **SPOT, **KEPT, **TUNED}),
    "tuner with a launcher": (
        PYTORCH,
        {
            **P3,
            "distribution": {"torch_distributed": ENABLED},
            "volume_kms_key": KEY,
            "encrypt_traffic": True,
            "network_isolation": True,
            "subnets": ["subnet-1"],
            "security_group_ids": ["sg-1"],
            **TUNED,
        },
    ),
    "grid": (PYTORCH, {"instance_type": "ml.g5.xlarge", **GRID}),
    "hyperband": (PYTORCH, {"instance_type": "ml.g5.xlarge", **HYPERBAND}),
    "warm start": (PYTORCH, {"instance_type": "ml.g5.xlarge", **WARM}),
    "tuner of tensorflow": (TENSORFLOW, {"instance_type": "ml.g5.xlarge", **TUNED}),
    "built-in algorithm": (None, BUILT_IN),
    "tuner of a built-in algorithm": (
        None,
        {**BUILT_IN, **TUNED, "metrics": {}, "hyperparameters": BUILT_IN["hyperparameters"] | TUNED["hyperparameters"]},
    ),
    "tuner of an unknown image": (None, {**P4D, "distribution": {"mpi": MPI}, **TUNED}),
    "compiler": (COMPILER, {"instance_type": "ml.p3.2xlarge", "compiler": {"enabled": True, "debug": True}}),
    "compiler on several": (
        COMPILER,
        {
            "instance_type": "ml.p4d.24xlarge",
            "compiler": {"enabled": True},
            "distribution": {"pytorchxla": ENABLED},
        },
    ),
    "tensorflow": (TENSORFLOW, {"instance_type": "ml.g5.xlarge", "hyperparameters": {"model_dir": "/opt/ml/model/1"}}),
    "parameter server": (
        TENSORFLOW,
        {"instance_type": "ml.g5.xlarge", "instance_count": 2, "distribution": {"parameter_server": ENABLED}},
    ),
    "mirrored": (
        TENSORFLOW,
        {
            "instance_type": "ml.g5.xlarge",
            "instance_count": 2,
            "distribution": {"multi_worker_mirrored_strategy": ENABLED},
        },
    ),
    "unknown image": (None, {**P4D, "distribution": {"mpi": MPI}, "hyperparameters": {"lr": 0.1}}),
    "code in the image": (
        BAKED,
        {
            "instance_type": "ml.g5.xlarge",
            "source_dir": None,
            "entry_point": None,
            "hyperparameters": {"lr": 0.1, "name": "x", "on": True},
        },
    ),
    "options with code in the image": (
        BAKED,
        {"instance_type": "ml.p3.2xlarge", "source_dir": None, "entry_point": None, **OPTIONS, **DEBUGGED},
    ),
}
JOBS_3: dict[str, tuple[ImageFacts | None, dict[str, Any]]] = {
    "plain": (PYTORCH, {"instance_type": "ml.g5.xlarge"}),
    "everything": (PYTORCH, {"instance_type": "ml.g5.xlarge", **EVERYTHING}),
    "channels": (PYTORCH, {"instance_type": "ml.g5.xlarge", "inputs": CHANNELS}),
    "spot": (PYTORCH, {"instance_type": "ml.g5.xlarge", **SPOT}),
    "mpi": (PYTORCH, {**P4D, "distribution": {"mpi": {**MPI, "custom_mpi_options": "-x RDMAV_FORK_SAFE=1"}}}),
    "torchrun": (PYTORCH, {**P4D, "distribution": {"torch_distributed": ENABLED}}),
    "model parallel 2": JOBS_2["model parallel 2"],
    "groups": (PYTORCH, {"instance_groups": GROUPS[:1], "distribution": {"torch_distributed": ENABLED}}),
    "isolated": (PYTORCH, {"instance_type": "ml.g5.xlarge", "network_isolation": True}),
    "unknown image": JOBS_2["unknown image"],
    "options": JOBS_2["options"],
    "options with a launcher": JOBS_2["options with a launcher"],
    "file systems": JOBS_2["file systems"],
    "own registry": JOBS_2["own registry"],
    "own registry, open": JOBS_2["own registry, open"],
    "registry of the platform": JOBS_2["registry of the platform"],
    "training plan": JOBS_2["training plan"],
    "tuner": JOBS_2["tuner"],
    "grid": JOBS_2["grid"],
    "hyperband": JOBS_2["hyperband"],
    "warm start": JOBS_2["warm start"],
}
