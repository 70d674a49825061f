"""The shell script that starts a job with the AWS command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from trainwright.estimator.create_training_job import ARCHIVE, code_address, region_of
from trainwright.estimator.python_source import folder_of
from trainwright.estimator.subject import Subject

MARK = "END_OF_REQUEST"  # JSON is indented here, so no line of it is this word


def script(subject: Subject, request: Mapping[str, Any]) -> str:
    """A script that uploads the code and sends the request; each run needs a name of its own, so it is for one run.

    Args:
        subject: the job, for SDK 2's contract.
        request: what :func:`~trainwright.estimator.create_training_job.make_request` made of it.
    """
    job = subject.job
    name = request["TrainingJobName"]
    region = region_of(subject)
    where = f" --region {shlex.quote(region)}" if region else ""
    lines = [
        "#!/bin/sh",
        f"# Starts the training job {name} with the AWS command line. Written by Trainwright.",
        "set -eu",
        "work=$(mktemp -d)",
        "trap 'rm -rf \"$work\"' EXIT",
    ]
    if job.entry_point is not None and not (job.source_dir or "").startswith("s3://"):
        what = "." if job.source_dir else shlex.quote(job.entry_point)
        lines += [
            f'tar -C {shlex.quote(folder_of(subject))} -czf "$work/{ARCHIVE}" {what}',
            f'aws s3 cp --quiet{where} "$work/{ARCHIVE}" {shlex.quote(code_address(subject, name))}',
        ]
    lines += [
        f"cat > \"$work/request.json\" <<'{MARK}'",
        json.dumps(request, indent=2),
        MARK,
        f'aws sagemaker create-training-job{where} --cli-input-json "file://$work/request.json"',
    ]
    return "\n".join(lines) + "\n"
