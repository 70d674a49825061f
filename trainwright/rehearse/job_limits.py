"""What a rehearsal takes: the limits of CreateTrainingJob, of the container engine, and of one machine.

The numbers and patterns of the service are those of botocore's model of the SageMaker API (2017-07-24); a test holds
them against it. botocore itself is not loaded for them: that takes longer than all else before a rehearsal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from trainwright.core.errors import RequestError
from trainwright.core.text import fits
from trainwright.rehearse.rehearsed_job import MAX_HOSTS, RehearsedJob
from trainwright.sagemaker.instances import instance

# Shapes of the service: ChannelName and InputDataConfig, TrainingEnvironmentKey, -Value and -Map, HyperParameterKey,
# -Value and HyperParameters, InstanceGroups and InstanceGroupName.
CHANNEL, LONGEST_CHANNEL, MOST_CHANNELS = r"[A-Za-z0-9\.\-_]+", 64, 20
VARIABLE, LONGEST_VARIABLE, LONGEST_VALUE, MOST_VARIABLES = "[a-zA-Z_][a-zA-Z0-9_]*", 512, 512, 100
LONGEST_HYPERPARAMETER, LONGEST_HYPERPARAMETER_VALUE, MOST_HYPERPARAMETERS = 256, 2500, 100
MOST_GROUPS, LONGEST_GROUP = 5, 64
# "The maximum value is 28 days" (MaxRuntimeInSeconds, API reference of StoppingCondition).
LONGEST_RUN = 28 * 24 * 3600
MAX_PROCESSES = 256  # per host; ml.c7i.48xlarge has 192 CPUs
# The grammar of distribution/reference v0.6.0, and a bare id.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"[a-zA-Z0-9]+(?:[.-]+[a-zA-Z0-9]+)*(?::[0-9]{1,5})?"
IMAGE = rf"sha256:[0-9a-f]{{64}}|(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[\w][\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
# docker's own spelling of bytes (go-units RAMInBytes), and its least limit of a container.
_MEMORY = r"([0-9]{1,12}(?:\.[0-9]{1,3})?)([bkmgt]?)(?:i?b)?"
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
LEAST_MEMORY, MOST_MEMORY = 6 * 2**20, 2**45


def check_job(job: RehearsedJob) -> None:
    """Hold a job against what a rehearsal takes.

    Raises:
        RequestError: something is out of range; the message names the flag.
    """
    if not fits(IMAGE, job.image, limit=512):
        raise RequestError(
            f"--image {job.image}: not an image name", remedy="./invoke list --built shows the images built here."
        )
    _check_cluster(job)
    if not 0 < job.timeout <= LONGEST_RUN:
        raise RequestError(f"--timeout {job.timeout:g}: seconds, more than 0 and at most {LONGEST_RUN}")
    if job.stop_after is not None and not 0 <= job.stop_after < job.timeout:
        raise RequestError(
            f"--stop-after {job.stop_after:g}: seconds, from 0 to less than the --timeout, {job.timeout:g}"
        )
    if job.memory is not None:
        _check_memory(job.memory)
    _check_inputs(job)
    _check_environment(job.environment)
    _check_hyperparameters(job.hyperparameters)
    if job.requirements is not None and not job.requirements.is_file():
        raise RequestError(f"--requirements {job.requirements}: no such file")


def _check_cluster(job: RehearsedJob) -> None:
    if not 1 <= job.hosts <= MAX_HOSTS:
        flag = "--instance-groups: hosts" if job.groups else "--hosts"
        raise RequestError(f"{flag} {job.hosts}: from 1 to {MAX_HOSTS}")
    if len(job.groups) > MOST_GROUPS:
        raise RequestError(f"--instance-groups: {len(job.groups)} groups; the service takes {MOST_GROUPS}")
    for group in job.groups:
        if not fits(".+", group.name, limit=LONGEST_GROUP):
            raise RequestError(f"--instance-groups: {group.name!r}: a name has 1 to {LONGEST_GROUP} characters")
    if job.processes_per_host is not None and not 1 <= job.processes_per_host <= MAX_PROCESSES:
        raise RequestError(f"--processes-per-host {job.processes_per_host}: from 1 to {MAX_PROCESSES}")
    for name in (job.instance_type, *(group.instance_type for group in job.groups)):
        instance(name)


def read_memory(given: str) -> float:
    """The bytes of a size as docker writes it.

    Raises:
        RequestError: it is no such size.
    """
    read = re.fullmatch(_MEMORY, given.lower(), re.ASCII) if len(given) < 20 else None
    if read is None:
        raise RequestError(f"--memory {given}: not a number with b, k, m, g or t", remedy="For example: --memory 2g")
    return float(read[1]) * _UNITS[read[2]]


def _check_memory(given: str) -> None:
    if not LEAST_MEMORY <= read_memory(given) <= MOST_MEMORY:
        raise RequestError(
            f"--memory {given}: from 6m, which is the engine's least, to 32t", remedy="For example: --memory 2g"
        )


def _check_inputs(job: RehearsedJob) -> None:
    if len(job.inputs) > MOST_CHANNELS:
        raise RequestError(f"--input: {len(job.inputs)} channels; the service takes {MOST_CHANNELS}")
    for channel, path in job.inputs.items():
        # A channel is a folder of the container.
        if not fits(CHANNEL, channel, limit=LONGEST_CHANNEL) or channel in (".", ".."):
            raise RequestError(
                f"--input {channel}: a channel's name has 1 to {LONGEST_CHANNEL} letters, digits, dots, hyphens and "
                "underscores",
                remedy="For example: --input training=FOLDER",
            )
        if not path.exists():
            raise RequestError(f"--input {channel}={path}: no such folder")


def _check_environment(environment: Mapping[str, str]) -> None:
    if len(environment) > MOST_VARIABLES:
        raise RequestError(f"--env: {len(environment)} variables; the service takes {MOST_VARIABLES}")
    for name, value in environment.items():
        if not fits(VARIABLE, name, limit=LONGEST_VARIABLE):
            raise RequestError(
                f"--env {name}: a variable's name has letters, digits and underscores, and no digit in front"
            )
        if len(value) > LONGEST_VALUE:
            raise RequestError(f"--env {name}: {len(value)} characters; the service takes {LONGEST_VALUE}")


def _check_hyperparameters(given: Mapping[str, Any]) -> None:
    if len(given) > MOST_HYPERPARAMETERS:
        raise RequestError(f"--hyperparameters: {len(given)} of them; the service takes {MOST_HYPERPARAMETERS}")
    for name, value in given.items():
        if len(name) > LONGEST_HYPERPARAMETER:
            raise RequestError(
                f"--hyperparameters: the name {name} has {len(name)} characters; the service takes "
                f"{LONGEST_HYPERPARAMETER}"
            )
        if (length := len(json.dumps(value))) > LONGEST_HYPERPARAMETER_VALUE:
            raise RequestError(
                f"--hyperparameters: {name} has {length} characters; the service takes {LONGEST_HYPERPARAMETER_VALUE}",
                remedy="Put it into a file of --source-dir or of a channel, and pass its name.",
            )
