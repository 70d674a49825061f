"""The shell script that starts a job with the AWS command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from trainwright.estimator.create_training_job import ARCHIVE, code_address, region_of
from trainwright.estimator.python_source import folder_of
from trainwright.estimator.subject import Subject

MARK = "END_OF_REQUEST"  # the JSON is indented, so no line of it equals this


def script(subject: Subject, request: Mapping[str, Any]) -> str:
    """Return a script that uploads the code and sends the request; job names are unique, so it runs once.

    Args:
        subject: the job, under SDK 2's contract.
        request: its request, from :func:`~trainwright.estimator.create_training_job.make_request`.
    """
    job = subject.job
    tuned = job.tuner is not None
    kind = "tuning" if tuned else "training"
    name = request["HyperParameterTuningJobName" if tuned else "TrainingJobName"]
    region = region_of(subject)
    where = f" --region {shlex.quote(region)}" if region else ""
    lines = [
        "#!/bin/sh",
        f"# Starts the {kind} job {name} with the AWS command line. Written by Trainwright.",
        "set -eu",
        "work=$(mktemp -d)",
        "trap 'rm -rf \"$work\"' EXIT",
    ]
    if job.entry_point is not None and not (job.source_dir or "").startswith("s3://"):
        what = "." if job.source_dir else shlex.quote(job.entry_point)
        lines += [
            f'tar -C {shlex.quote(folder_of(subject))} -czf "$work/{ARCHIVE}" {what}',
            f'aws s3 cp --quiet{where} "$work/{ARCHIVE}" {shlex.quote(_code(subject, request))}',
        ]
    lines += [
        f"cat > \"$work/request.json\" <<'{MARK}'",
        json.dumps(request, indent=2),
        MARK,
        f"aws sagemaker create-{'hyper-parameter-tuning' if tuned else 'training'}-job{where} "
        f'--cli-input-json "file://$work/request.json"',
    ]
    return "\n".join(lines) + "\n"


def _code(subject: Subject, request: Mapping[str, Any]) -> str:
    """Where the request expects the code; a tuning job has the name of a training job in that address alone."""
    if subject.job.tuner is None:
        return code_address(subject, request["TrainingJobName"])
    definition = request["TrainingJobDefinition"]
    channels = {each["ChannelName"]: each for each in definition.get("InputDataConfig", ())}
    if subject.job.network_isolation:
        return str(channels["code"]["DataSource"]["S3DataSource"]["S3Uri"])
    return str(json.loads(definition["StaticHyperParameters"]["sagemaker_submit_directory"]))
