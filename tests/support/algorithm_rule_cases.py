"""Built-in algorithms, tuning jobs by their names, expressions of metrics, and variables that nothing reads."""

from __future__ import annotations

from typing import Any

from tests.support.rule_jobs import P4, TENSORFLOW, image, tuned
from trainwright.estimator.image import ImageFacts

# Addresses: sagemaker 2.257.7, image_uri_config. The metrics and their directions are those of the guide's tables.
XGBOOST = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
LINEAR = "382416733822.dkr.ecr.us-east-1.amazonaws.com/linear-learner:1"
TRAIN, BOTH = {"train": "s3://bucket/train"}, {"train": "s3://bucket/train", "validation": "s3://bucket/validation"}


def algorithm(address: str, **more: Any) -> dict[str, Any]:
    """A job of a built-in algorithm, which has no script."""
    return {"image": address, "entry_point": None, "source_dir": None, "metrics": {}, **more}


def by(metric: str, goal: str, **more: Any) -> dict[str, Any]:
    """A tuner that goes by a metric."""
    return algorithm(XGBOOST, **tuned(metric=metric, goal=goal), **more) | {"metrics": {}}


def waiting(address: str, seconds: int) -> dict[str, Any]:
    """A job on spot capacity."""
    return algorithm(address, spot=True, max_run=3600, max_wait=seconds)


def logged(expression: str) -> dict[str, Any]:
    """A job with a metric."""
    return {"metrics": {"loss": expression}}


def smp2(**parameters: Any) -> dict[str, Any]:
    """A job with version 2 of the model parallel library."""
    both = {"torch_distributed": {"enabled": True}, "smdistributed": {"modelparallel": {"enabled": True}}}
    both["smdistributed"]["modelparallel"]["parameters"] = parameters
    return {"instance_type": P4, "instance_count": 2, "distribution": both}


SMP = "distribution.smdistributed.modelparallel.parameters"


def told(name: str, value: str) -> dict[str, Any]:
    """A job on GPUs with a variable."""
    return {"instance_type": P4, "environment": {name: value}}


ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
TENSORS = {"debugger": {"s3_uri": "s3://bucket/debug"}}
SERVERS = {"parameter_server": {"enabled": True}}
TRACED = {**TENSORS, "checkpoint": {"s3_uri": "s3://bucket/checkpoints"}}
FOREST = "174872318107.dkr.ecr.us-west-2.amazonaws.com/randomcutforest:1"
LDA = "266724342769.dkr.ecr.us-west-2.amazonaws.com/lda:1"
IMAGES = "811284229777.dkr.ecr.us-east-1.amazonaws.com/image-classification:1"
MANIFEST = {"s3_data": "s3://bucket/train.manifest", "s3_data_type": "AugmentedManifestFile", "input_mode": "Pipe"}
MANIFEST |= {"attribute_names": ["source-ref", "class"], "content_type": "application/x-recordio"}  # type: ignore[dict-item]
MANIFESTS = {"train": MANIFEST, "validation": "s3://bucket/validation"}
WRAPPED = {"train": {**MANIFEST, "record_wrapping": "RecordIO"}, "validation": "s3://bucket/validation"}
SHARED = {"s3_data": "s3://bucket/train", "distribution": "ShardedByS3Key"}
CSV = "s3://bucket/train/train.csv"
SOFTMAX, MANY = "multi:softmax", "multiclass_classifier"


def over_efa(**variables: str) -> dict[str, Any]:
    """A job on two hosts with EFA and variables."""
    both = {"torch_distributed": {"enabled": True}}
    return {"instance_type": P4, "instance_count": 2, "distribution": both, "environment": variables}


CASES: list[tuple[str, str, dict[str, Any], ImageFacts | None, int]] = [
    ("TW332", "tuner.metric", by("validation:rmse", "Minimize", inputs=TRAIN), None, 2),
    ("TW333", "tuner.goal", by("validation:auc", "Minimize", inputs=BOTH), None, 2),
    ("TW333", "tuner.goal", by("validation:mlogloss", "Maximize", inputs=BOTH), None, 2),
    ("TW334", "max_wait", waiting(LINEAR, 7200), None, 2),
    ("TW314", "metrics.loss", logged("loss (val): ([0-9.]+)"), image(), 2),
    ("TW314", "metrics.loss", logged("\bloss=([0-9.]+)"), image(), 2),
    ("TW314", "metrics.loss", logged(r"epoch \\d+ loss=([0-9.]+)"), image(), 2),
    ("TW335", "name", {**tuned(), "name": "xformer-click-tuning-2024-11-night"}, image(), 2),
    ("TW297", f"{SMP}.context_parallel_degree", smp2(hybrid_shard_degree=4, context_parallel_degree=8), image(), 2),
    # aws/sagemaker-pytorch-training-toolkit, training.py; bitsandbytes-foundation/bitsandbytes #306
    ("TW336", "environment.NCCL_DEBUG", told("NCCL_DEBUG", "INFO"), image(), 2),
    ("TW336", "environment.NCCL_SOCKET_IFNAME", told("NCCL_SOCKET_IFNAME", "efa0"), image(), 2),
    ("TW337", f"environment.{ALLOCATOR}", told(ALLOCATOR, "max_split_size_mb=128"), image(), 2),
    ("TW295", "debugger", {**TRACED, "instance_count": 2}, image(), 2),
    ("TW295", "debugger", {**TENSORS, "distribution": SERVERS}, TENSORFLOW, 2),
    ("TW336", "environment.SM_MODEL_DIR", told("SM_MODEL_DIR", "/opt/ml/checkpoints/best"), image(), 2),
    ("TW336", "environment.SM_HP_LR", {**told("SM_HP_LR", "1"), "hyperparameters": {"lr": 2}}, image(), 2),
    ("TW338", "inputs.train", algorithm(FOREST, inputs=TRAIN), None, 2),
    ("TW338", "inputs.test", algorithm(FOREST, inputs={"train": SHARED, "test": SHARED}), None, 2),
    ("TW338", "instance_type", algorithm(LDA, instance_type="ml.g4dn.2xlarge"), None, 2),
    ("TW338", "instance_count", algorithm(LDA, instance_type="ml.c5.4xlarge", instance_count=2), None, 2),
    ("TW338", "instance_type", algorithm(IMAGES, instance_type="ml.c5.4xlarge"), None, 2),
    ("TW338", "inputs.train", algorithm(XGBOOST, inputs={"train": CSV}), None, 2),
    ("TW338", "inputs.train", algorithm(IMAGES, instance_type="ml.p3.2xlarge", inputs=MANIFESTS), None, 2),
    ("TW338", "inputs", algorithm(XGBOOST, inputs={"training": "s3://bucket/train"}), None, 2),
    ("TW338", "inputs", algorithm(IMAGES, instance_type="ml.p3.2xlarge", inputs=TRAIN), None, 2),
    ("TW316", "source_dir", {"network_isolation": True, "source_dir": "s3://bucket/code.tar.gz"}, image(), 2),
    ("TW342", "hyperparameters", algorithm(XGBOOST, hyperparameters={"max_depth": 6}), None, 2),
    ("TW342", "hyperparameters", algorithm(XGBOOST, hyperparameters={"num_round": 9, "objective": SOFTMAX}), None, 2),
    ("TW342", "hyperparameters", algorithm(LINEAR, hyperparameters={"predictor_type": MANY}), None, 2),
    ("TW342", "hyperparameters", algorithm(LDA, hyperparameters={"num_topics": 5, "feature_dim": 50}), None, 2),
    ("TW340", "environment.NCCL_NET", over_efa(NCCL_NET="Socket"), image(), 2),
    ("TW340", "environment.NCCL_NET_PLUGIN", over_efa(NCCL_NET_PLUGIN="none"), image(), 2),
]
NEIGHBOURS: list[tuple[str, dict[str, Any], ImageFacts | None, int]] = [
    ("TW332", by("validation:rmse", "Minimize", inputs=BOTH), None, 2),
    ("TW332", by("train:rmse", "Minimize", inputs=TRAIN), None, 2),
    ("TW333", by("validation:auc", "Maximize", inputs=BOTH), None, 2),
    ("TW333", by("validation:binary_f_beta", "Minimize", inputs=BOTH), None, 2),
    ("TW333", by("validation:accuracy_loss", "Minimize", inputs=BOTH), None, 2),
    ("TW334", waiting(LINEAR, 3600), None, 2),
    ("TW269", waiting(LINEAR, 3600), None, 2),
    ("TW334", waiting(XGBOOST, 36000), None, 2),
    ("TW314", logged(r"loss \(val\): ([0-9.]+)"), image(), 2),
    ("TW314", logged(r"\bloss=([0-9.]+)"), image(), 2),
    ("TW314", logged("\tloss=([0-9.]+)"), image(), 2),
    ("TW314", logged("(?:train|eval) loss=([0-9.]+)"), image(), 2),
    ("TW314", logged(r"epoch \d+ loss=([0-9.]+)"), image(), 2),
    ("TW314", logged(r"C:\\models loss=([0-9.]+)"), image(), 2),
    ("TW335", {**tuned(), "name": "xformer-click-tuning"}, image(), 2),
    ("TW335", {"name": "xformer-click-tuning-2024-11-night"}, image(), 2),
    ("TW297", smp2(hybrid_shard_degree=8, context_parallel_degree=8), image(), 2),
    ("TW297", smp2(hybrid_shard_degree=0, context_parallel_degree=8), image(), 2),
    ("TW336", told("NCCL_DEBUG", "warn"), image(), 2),
    ("TW336", told("NCCL_SOCKET_IFNAME", "eth0"), image(), 2),
    ("TW336", told("NCCL_DEBUG_SUBSYS", "INIT"), image(), 2),
    ("TW336", {**told("NCCL_DEBUG", "INFO"), "instance_type": "ml.c5.xlarge"}, image(), 2),
    ("TW336", told("NCCL_DEBUG", "INFO"), TENSORFLOW, 2),
    ("TW337", told(ALLOCATOR, "max_split_size_mb:128,expandable_segments:True"), image(), 2),
    ("TW337", told(ALLOCATOR, "roundup_power2_divisions:[256:1,512:2,>:8]"), image(), 2),
    ("TW295", TRACED, image(), 2),
    ("TW295", {**TENSORS, "distribution": {"parameter_server": {"enabled": False}}}, TENSORFLOW, 2),
    ("TW336", told("SM_CHANNEL_EXTRA", "/opt/data"), image(), 2),
    ("TW336", told("SM_CUSTOM", "1"), image(), 2),
    (
        "TW338",
        algorithm(FOREST, inputs={"train": SHARED, "test": "s3://bucket/test"}, instance_type="ml.m5.xlarge"),
        None,
        2,
    ),
    ("TW338", algorithm(LDA, instance_type="ml.c5.4xlarge"), None, 2),
    ("TW338", algorithm(IMAGES, instance_type="ml.p3.2xlarge", inputs=BOTH), None, 2),
    ("TW338", algorithm(IMAGES, instance_type="ml.p3.2xlarge", inputs=WRAPPED), None, 2),
    ("TW338", {"image": XGBOOST, "inputs": {"training": "s3://bucket/train"}}, None, 2),
    ("TW316", {"network_isolation": True, "source_dir": "s3://bucket/run/sourcedir.tar.gz"}, image(), 2),
    ("TW338", algorithm(IMAGES, instance_type="ml.p3.2xlarge", instance_count=2), None, 2),
    ("TW338", algorithm(XGBOOST, inputs={"train": {"s3_data": CSV, "content_type": "text/csv"}}), None, 2),
    ("TW338", algorithm(XGBOOST, inputs={"train": "s3://bucket/train/train.libsvm"}), None, 2),
    ("TW338", algorithm("team/lda:1", instance_type="ml.g4dn.2xlarge"), None, 2),
    ("TW342", algorithm(XGBOOST, hyperparameters={"num_round": 9, "objective": "reg:squarederror"}), None, 2),
    ("TW342", algorithm(XGBOOST, **tuned(metric="train:auc", ranges={"num_round": {"min": 1, "max": 9}})), None, 2),
    ("TW342", {"image": XGBOOST, "hyperparameters": {"max_depth": 6}}, None, 2),
    ("TW342", algorithm(LINEAR, hyperparameters={"predictor_type": MANY, "num_classes": 7}), None, 2),
    ("TW342", algorithm("team/xgboost:1"), None, 2),
    ("TW340", over_efa(NCCL_NET="AWS Libfabric"), image(), 2),
    ("TW340", {**over_efa(NCCL_NET="Socket"), "instance_count": 1}, image(), 2),
    ("TW340", {**over_efa(NCCL_NET="Socket"), "instance_type": "ml.p3.16xlarge"}, image(), 2),
]
