"""Tuning jobs: the objective, the ranges, and what a tuning job does not pass on to its training jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from trainwright.core.errors import did_you_mean
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.subject import Subject
from trainwright.estimator.tuning import combinations, jobs_of
from trainwright.sagemaker.job_parts import TunedRange, Tuner

API = "AWS's API reference"
OBJECTIVE = Rule(
    code="TW215",
    severity="error",
    title="a tuner whose objective is not among the job's metrics",
    source=f"{API}, HyperParameterAlgorithmSpecification: your own image needs MetricDefinitions, the objective among "
    "them; AWS's developer guide, define metrics and environment variables: a built-in algorithm has its own",
    remedy='metrics: {loss: "loss=([0-9.]+)"}, with a regular expression for the line that the script prints.',
)
RANGE = Rule(
    code="TW216",
    severity="error",
    title="a range or a strategy of a tuner that the service refuses",
    source="AWS's developer guide, Define Hyperparameter Ranges (scaling); "
    "Resource Limits for Automatic Model Tuning (jobs, metrics, ranges); "
    f"{API}, HyperParameterTuningJobConfig and ResourceLimits (Grid takes categorical ranges alone; Hyperband stops "
    "jobs itself), HyperbandStrategyConfig (it must know the largest resource: at most 20,000 epochs); "
    "aws/amazon-sagemaker-operator-for-k8s #123 (the service's message: at least MaxNumberOfJobs combinations); "
    "aws/amazon-sagemaker-feedback #195 (ranges of one number, values given twice)",
    remedy="Keep to the range or choice in the message.",
)
NOT_PASSED_ON = Rule(
    code="TW217",
    severity="error",
    title="an option that the training jobs of a tuner cannot have",
    source=f"{API}, HyperParameterTrainingJobDefinition; sagemaker 2.257.7, tuner.py, which drops it",
    remedy="Remove it, or the tuner.",
)
SDK3 = Rule(
    code="TW218",
    severity="error",
    title="an option or a distribution that SDK 3's tuner drops",
    source="sagemaker 3.27.0, train/tuner.py: a tuning job cannot name a command, so its driver never runs; its "
    "request lacks it",
    remedy="Use --sdk 2.",
)
FIXED = Rule(
    code="TW279",
    severity="warning",
    title="a hyperparameter with a fixed value that the tuner replaces",
    source="sagemaker 2.257.7, tuner.py: the range replaces the value",
    remedy="Remove it from hyperparameters, or from tuner.ranges.",
)
RULES = (OBJECTIVE, RANGE, NOT_PASSED_ON, SDK3, FIXED)
# Keys of the job file without a member in HyperParameterTrainingJobDefinition or its resources.
_NOT_PASSED_ON = (
    *("instance_groups", "keep_alive", "training_plan", "placement"),
    *("registry", "tensorboard", "debugger", "profiler", "remote_debug", "session_tags"),
)
# What the service takes for the largest resource of Hyperband, and its limit.
EPOCHS = {"epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs"}
LARGEST_RESOURCE = 20_000
# Training jobs of one tuning job: the quota of random search alone can be raised.
MOST_JOBS, FEWER_JOBS = {"Random": 10_000}, 750
# Strategies of which it is known that the service counts the combinations: Hyperband may run one again for longer.
COUNTED = ("Bayesian", "Random")
_DROPPED_BY_SDK3 = ("distribution", "network_isolation", "encrypt_traffic", "volume_kms_key")


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family; a job without a tuner has no findings."""
    job, tuner = subject.job, subject.job.tuner
    if tuner is None:
        return
    if tuner.metric not in job.metrics and not (subject.algorithm and not job.metrics):
        hint = did_you_mean(tuner.metric, job.metrics) if job.metrics else "metrics is empty."
        yield OBJECTIVE.finding(f"{tuner.metric!r} is not in metrics. {hint}", path="tuner.metric")
    yield from _strategy(tuner)
    yield from _limits(tuner, len(job.metrics))
    yield from _hyperband(tuner, set(job.hyperparameters) - set(tuner.ranges))
    for name, each in tuner.ranges.items():
        path = f"tuner.ranges.{name}"
        yield from (RANGE.finding(message, path=path) for message in _wrong(each))
        if name in job.hyperparameters:
            yield FIXED.finding(f"{name} is {job.hyperparameters[name]!r} and has a range", path=path)
    for key in _NOT_PASSED_ON:
        if getattr(job, key):
            yield NOT_PASSED_ON.finding(f"{key}: a tuner's training jobs cannot have it", path=key)
    if subject.sdk == 3:
        for key in _DROPPED_BY_SDK3:
            if getattr(job, key):
                yield SDK3.finding(f"SDK 3's tuner drops {key}", path=key)


def _strategy(tuner: Tuner) -> Iterator[Finding]:
    if not tuner.ranges:
        yield RANGE.finding("there is no range to search", path="tuner.ranges")
    if tuner.strategy == "Hyperband" and tuner.early_stopping:
        yield RANGE.finding("Hyperband stops jobs itself; early_stopping must be false", path="tuner.early_stopping")
    if tuner.strategy == "Grid":
        for name, each in tuner.ranges.items():
            if each.kind != "Categorical":
                yield RANGE.finding("grid search takes categorical ranges alone: values", path=f"tuner.ranges.{name}")
                return
        every = jobs_of(tuner.replace(max_jobs=None))
        if tuner.max_jobs not in (None, every):
            yield RANGE.finding(
                f"max_jobs is {tuner.max_jobs}; the grid has {every} combinations", path="tuner.max_jobs"
            )
    possible = combinations(tuner) if tuner.strategy in COUNTED else None
    if possible is not None and possible < jobs_of(tuner):
        yield RANGE.finding(
            f"{jobs_of(tuner)} jobs, but the ranges have {possible} combinations",
            path="tuner.max_jobs",
            remedy=f"max_jobs: {possible}, or a wider range.",
        )
    if tuner.max_parallel_jobs > jobs_of(tuner) > 0:
        yield RANGE.finding(
            f"{tuner.max_parallel_jobs} jobs at a time, but {jobs_of(tuner)} in all", path="tuner.max_parallel_jobs"
        )


def _limits(tuner: Tuner, metrics: int) -> Iterator[Finding]:
    """Check the numbers of which the service grants nobody more."""
    for path, has, most, what in (
        ("tuner.max_jobs", jobs_of(tuner), MOST_JOBS.get(tuner.strategy, FEWER_JOBS), f"jobs of {tuner.strategy}"),
        ("tuner.max_parallel_jobs", tuner.max_parallel_jobs, 100, "jobs at a time"),
        ("tuner.ranges", len(tuner.ranges), 30, "ranges"),
        ("metrics", metrics, 20, "metrics of a tuning job"),
    ):
        if has > most:
            yield RANGE.finding(f"{has} {what}; at most {most}", path=path)


def _hyperband(tuner: Tuner, fixed: set[str]) -> Iterator[Finding]:
    """Check the resources of a Hyperband search; ``fixed``: hyperparameters that have one value."""
    path, given = "tuner.hyperband", tuner.hyperband
    if given is not None and tuner.strategy != "Hyperband":
        yield RANGE.finding(f"hyperband, but the strategy is {tuner.strategy}", path=path)
    elif given is not None and given.max_resource > LARGEST_RESOURCE:
        yield RANGE.finding(f"max_resource is {given.max_resource}; at most {LARGEST_RESOURCE}", path=path)
    elif given is not None and given.min_resource > given.max_resource:
        yield RANGE.finding(f"min_resource {given.min_resource} is above max_resource {given.max_resource}", path=path)
    elif given is None and tuner.strategy == "Hyperband" and not fixed & EPOCHS:
        names = ", ".join(sorted(EPOCHS))
        yield RANGE.finding(
            f"Hyperband needs the largest number of epochs, and no fixed hyperparameter is named {names}",
            path=path,
            remedy="tuner: {hyperband: {max_resource: <epochs>}}, or a fixed hyperparameter `epochs`.",
        )


def _wrong(each: TunedRange) -> Iterator[str]:
    """What is wrong with one range."""
    if each.kind == "Categorical":
        given = Counter(json.dumps(value, default=str) for value in each.values)
        twice = sorted(value for value, times in given.items() if times > 1)
        if twice:
            yield f"{' and '.join(twice)} given more than once"
        if each.min is not None or each.max is not None or each.scaling != "Auto":
            yield "it has values, and also min, max or scaling"
        return
    if each.min is None or each.max is None:
        yield "it has neither values nor both min and max"
        return
    if each.min > each.max:
        yield f"min {each.min} is above max {each.max}"
    elif each.min == each.max:
        yield f"min and max are both {each.min}: there is nothing to choose; make it a fixed hyperparameter"
    if each.scaling == "Logarithmic" and each.min <= 0:
        yield f"logarithmic scaling needs values above 0; min is {each.min}"
    if each.scaling == "ReverseLogarithmic":
        if each.kind == "Integer":
            yield "reverse logarithmic scaling is for continuous ranges; write min and max with a point"
        elif each.min < 0 or each.max >= 1:
            yield f"reverse logarithmic scaling needs 0 <= values < 1, not {each.min} to {each.max}"
