"""AWS's built-in algorithms, and the names in a tuning job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.estimator.subject import Subject
from trainwright.estimator.tuning import LONGEST_NAME

GUIDE = "AWS's developer guide"
NO_CHANNEL = Rule(
    code="TW332",
    severity="error",
    title="a tuner of a built-in algorithm whose objective is computed on a channel that the job lacks",
    source=f"{GUIDE}, the pages on tuning of the algorithms: validation:… is computed on the validation data, test:… "
    "on the test data; aws/sagemaker-xgboost-container, algorithm_mode/train.py: only the channels there are watched",
    remedy="Add the channel to inputs, or tune by a metric of a channel that is there.",
)
DIRECTION = Rule(
    code="TW333",
    severity="warning",
    title="a tuner that looks for the worst model by the name of its objective",
    source=f"{GUIDE}, the pages on tuning of the algorithms, column Optimization Direction",
    remedy="Change tuner.goal, or rename the metric.",
)
LONG_WAIT = Rule(
    code="TW334",
    severity="error",
    title="a built-in algorithm without checkpoints that waits more than an hour for spot capacity",
    source=f"{GUIDE}, managed spot training: algorithms that do not checkpoint are limited to a MaxWaitTimeInSeconds "
    "of 3600 seconds; model checkpoints: the algorithms that do",
    remedy="max_wait: 3600 with max_run at most that, or no spot.",
)
LONG_NAME = Rule(
    code="TW335",
    severity="warning",
    title="a tuning job whose name is cut",
    source="botocore's model of the SageMaker API, HyperParameterTuningJobName; sagemaker 2.257.7, name_from_base",
    remedy="Use a shorter name: the time follows it.",
)
UNSUPPORTED = Rule(
    code="TW338",
    severity="error",
    title="a built-in algorithm with instances or data that it does not take",
    source=f"{GUIDE}, common information about built-in algorithms: channel name, instance class; LDA: only "
    "single-instance CPU training; Random Cut Forest: the train channel only supports ShardedByS3Key, test only "
    "FullyReplicated; XGBoost: valid inputs are text/libsvm (default) or text/csv; image classification, object "
    "detection and semantic segmentation with an augmented manifest: RecordWrapperType must be RecordIO",
    remedy="Change the job as the message says.",
)
REQUIRED = Rule(
    code="TW342",
    severity="error",
    title="a built-in algorithm without a hyperparameter that it requires",
    source=f"{GUIDE}, the pages on the hyperparameters of the algorithms: Required",
    remedy="Add it to hyperparameters, or to tuner.ranges.",
)
RULES = (NO_CHANNEL, DIRECTION, LONG_WAIT, LONG_NAME, UNSUPPORTED, REQUIRED)
# The columns of the guide's table.
ON_CPUS = {"lda", "randomcutforest"}
ON_IMAGES = {"image-classification", "object-detection", "semantic-segmentation"}
ON_GPUS = {*ON_IMAGES, "seq2seq"}
ON_ONE_HOST = {"lda", "object2vec", "semantic-segmentation", "seq2seq"}
ON_ONE_HOST_WITH_GPUS = {"blazingtext"}
CHECKPOINTING = {*ON_IMAGES, "sagemaker-xgboost", "xgboost"}
LONGEST_WAIT = 3600
_CHANNELS = {
    "image-classification": ("train", "validation"),
    "object-detection": ("train", "validation"),
    "semantic-segmentation": ("train", "validation", "train_annotation", "validation_annotation"),
    "seq2seq": ("train", "validation", "vocab"),
}
_CLASSES = ("num_classes", "num_training_samples")
_NEEDED = {
    "blazingtext": ("mode",),
    "factorization-machines": ("feature_dim", "num_factors", "predictor_type"),
    "forecasting-deepar": ("context_length", "epochs", "prediction_length", "time_freq"),
    "image-classification": _CLASSES,
    "ipinsights": ("num_entity_vectors", "vector_dim"),
    "kmeans": ("feature_dim", "k"),
    "knn": ("feature_dim", "k", "predictor_type", "sample_size"),
    "lda": ("feature_dim", "mini_batch_size", "num_topics"),
    "linear-learner": ("predictor_type",),
    "ntm": ("feature_dim", "num_topics"),
    "object-detection": _CLASSES,
    "object2vec": ("enc0_max_seq_len", "enc0_vocab_size"),
    "pca": ("feature_dim", "mini_batch_size", "num_components"),
    "randomcutforest": ("feature_dim",),
    "sagemaker-xgboost": ("num_round",),
    "semantic-segmentation": _CLASSES,
    "xgboost": ("num_round",),
}
# (hyperparameter, value) → what it requires; the value is a regular expression.
_NEEDED_WITH = {
    "knn": ("dimension_reduction_type", ".+", "dimension_reduction_target"),
    "linear-learner": ("predictor_type", "multiclass_classifier", "num_classes"),
    "sagemaker-xgboost": ("objective", "multi:.+", "num_class"),
    "xgboost": ("objective", "multi:.+", "num_class"),
}
# Words of the metrics in the guide's tables, and of those that are near them.
_SMALL = {"loss", "error", "rmse", "mse", "mae", "mape", "logloss", "mlogloss", "merror", "perplexity", "entropy"}
_SMALL |= {"wer", "cer", "msd", "ssd"}
_LARGE = {"accuracy", "acc", "auc", "f1", "precision", "recall", "map", "ndcg", "dcg", "bleu", "miou", "iou"}


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    job, tuner = subject.job, subject.job.tuner
    if tuner is not None:
        data, _, metric = tuner.metric.rpartition(":")
        words = set(re.findall(r"[a-z]+1?", metric.lower()))
        small, large = words & _SMALL, words & _LARGE
        if (small and not large and tuner.goal == "Maximize") or (large and not small and tuner.goal == "Minimize"):
            yield DIRECTION.finding(f"{tuner.goal} {tuner.metric}", path="tuner.goal")
        if job.name and len(job.name) > LONGEST_NAME:
            told = f"name has {len(job.name)} characters; a tuning job's has at most {LONGEST_NAME}, the time included"
            yield LONG_NAME.finding(told, path="name")
        if subject.algorithm and data in ("validation", "test") and job.inputs and data not in job.inputs:
            yield NO_CHANNEL.finding(f"{tuner.metric} needs the channel {data!r}", path="tuner.metric")
    name, wait = subject.algorithm, job.max_wait or 0
    if name:
        yield from _instances(subject, name)
        yield from _data(subject, name)
        yield from _required(subject, name)
    if name and job.spot and name not in CHECKPOINTING and wait > LONGEST_WAIT:
        yield LONG_WAIT.finding(f"max_wait is {wait}; {name} saves no checkpoints", path="max_wait")


def _instances(subject: Subject, name: str) -> Iterator[Finding]:
    for path, kind, _ in subject.instances:
        if name in ON_GPUS and not kind.gpus:
            yield UNSUPPORTED.finding(f"{name} needs GPUs; {kind.name} has none", path=path)
        if name in ON_CPUS and kind.gpus:
            severity: Severity | None = None if name in ON_ONE_HOST else "warning"
            yield UNSUPPORTED.finding(f"{name} uses no GPU; {kind.name} has {kind.gpus}", path=path, severity=severity)
        alone = name in ON_ONE_HOST or (name in ON_ONE_HOST_WITH_GPUS and kind.gpus)
        if alone and subject.hosts > 1:
            yield UNSUPPORTED.finding(f"{name} trains on one host, not on {subject.hosts}", path="instance_count")
            return


def _data(subject: Subject, name: str) -> Iterator[Finding]:
    lacks = [each for each in _CHANNELS.get(name, ("train",)) if each not in subject.job.inputs]
    if lacks and subject.job.inputs and subject.job.entry_point is None:
        yield UNSUPPORTED.finding(f"{name} needs the channel {lacks[0]!r}", path="inputs")
    for channel, given in subject.job.inputs.items():
        options = given if isinstance(given, Mapping) else {"s3_data": given}
        path, address = f"inputs.{channel}", str(options.get("s3_data", ""))
        if name == "randomcutforest" and address and channel in ("train", "test"):
            wanted = "ShardedByS3Key" if channel == "train" else "FullyReplicated"
            if (chosen := options.get("distribution", "FullyReplicated")) != wanted:
                yield UNSUPPORTED.finding(f"its distribution is {chosen}; {name} takes {wanted} alone", path=path)
        streamed = name in ON_IMAGES and options.get("s3_data_type") == "AugmentedManifestFile"
        if streamed and options.get("record_wrapping") != "RecordIO":
            told = f"{name} reads an augmented manifest with record_wrapping: RecordIO alone"
            yield UNSUPPORTED.finding(told, path=path)
        unnamed = name in ("xgboost", "sagemaker-xgboost") and not options.get("content_type")
        if unnamed and address.endswith((".csv", ".csv.gz")):
            told = f"{address.rpartition('/')[2]} would be read as libsvm; set content_type: text/csv"
            yield UNSUPPORTED.finding(told, path=path)


def _required(subject: Subject, name: str) -> Iterator[Finding]:
    job = subject.job
    if job.entry_point is not None:  # XGBoost's image as a framework: the script decides
        return
    has = {*job.hyperparameters, *(job.tuner.ranges if job.tuner else ())}
    needed = [(each, "") for each in _NEEDED.get(name, ())]
    if name in _NEEDED_WITH:
        given, value, more = _NEEDED_WITH[name]
        said = str(job.hyperparameters.get(given, ""))
        needed += [(more, f" with {given}: {said}")] if re.fullmatch(value, said) else []
    for each, why in needed:
        if each not in has:
            yield REQUIRED.finding(f"{name} requires {each}{why}", path="hyperparameters")
