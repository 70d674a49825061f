"""Turns the flags of ``rehearse`` into a :class:`~trainwright.rehearse.rehearsed_job.RehearsedJob`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from trainwright.core.data_files import parse_json
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.records import parse_record
from trainwright.core.text import fits
from trainwright.rehearse.job_limits import check_job
from trainwright.rehearse.rehearsed_job import RehearsedJob
from trainwright.rehearse.starts import check_start
from trainwright.rehearse.words import DEFAULT_INSTANCE, STARTS, RehearsalWords
from trainwright.sagemaker.job_parts import InstanceGroup

LONGEST_DOCUMENT = 2**20  # characters of a JSON document; the service takes 100 hyperparameters of 2500
# Words for common distributions; all others are given as JSON.
WORDS = ("mpi", "torch_distributed", "parameter_server", "multi_worker_mirrored_strategy", "pytorchxla")


def make_job(words: RehearsalWords) -> RehearsedJob:
    """The job that a command line describes.

    Raises:
        RequestError: a value is invalid; the message names the flag.
    """
    if not words.image:
        raise RequestError(
            "rehearse needs --image", remedy="./invoke list --built shows the images that were built here."
        )
    if not words.entry_point and (more := [flag for flag, given in _of_own_code(words).items() if given]):
        raise RequestError(
            f"{', '.join(more)}: only with --entry-point; without it, the image's own program runs, as it does for an "
            "Estimator without source code",
            remedy="For example: --entry-point train.py --source-dir src",
        )
    version: Literal[2, 3] = 2 if words.sdk == 2 else 3
    if words.sdk not in (2, 3):
        raise RequestError(f"--sdk {words.sdk}: must be 2 or 3")
    start = next((each for each in STARTS if each == words.start), None)
    if start is None:
        raise RequestError(f"--start {words.start}: unknown. {did_you_mean(words.start, STARTS)}")
    told = distribution_of(words.distribution)
    groups = _groups(words.instance_groups) if words.instance_groups else ()
    if groups and (words.hosts != 1 or words.instance_type != DEFAULT_INSTANCE):
        raise RequestError("--instance-groups cannot be combined with --hosts or --instance-type")
    if groups and words.sdk == 3:
        raise RequestError("--instance-groups: SDK 3 has no heterogeneous clusters", remedy="--sdk 2")
    ranked = _group_of_ranks(groups, told or {})
    job = RehearsedJob(
        image=words.image,
        entry_point=words.entry_point,
        source_dir=Path(words.source_dir) if words.source_dir else None,
        requirements=Path(words.requirements) if words.requirements else None,
        hosts=sum(group.instance_count for group in groups) or words.hosts,
        processes_per_host=words.processes_per_host or None,
        distribution=told,
        instance_type=ranked.instance_type if ranked else words.instance_type,
        groups=groups,
        hyperparameters=table_of("--hyperparameters", words.hyperparameters) if words.hyperparameters else {},
        inputs={name: Path(folder) for name, folder in pairs_of("--input", words.inputs).items()},
        sdk=version,
        launch_only=words.launch_only,
        timeout=words.timeout,
        stop_after=_seconds("--stop-after", words.stop_after),
        memory=words.memory,
        environment=pairs_of("--env", words.environment),
        start=start,
    )
    check_job(job)
    check_start(job)
    return job


def _of_own_code(words: RehearsalWords) -> dict[str, object]:
    """The flags that describe code that an estimator uploads, or how SageMaker's SDK starts it."""
    return {
        "--source-dir": words.source_dir,
        "--requirements": words.requirements,
        "--distribution": words.distribution,
        "--processes-per-host": words.processes_per_host,
        "--sdk 3": words.sdk == 3,
        "--launch-only": words.launch_only,
    }


def distribution_of(given: str | None) -> dict[str, Any] | None:
    """The ``distribution`` of a flag: a word of :data:`WORDS`, JSON, or a file of JSON.

    Raises:
        RequestError: it is neither.
    """
    if not given:
        return None
    if given in WORDS:
        return {given: {"enabled": True}}
    if not given.lstrip().startswith("{") and not Path(given).is_file():
        raise RequestError(
            f"--distribution {given}: neither a file, nor JSON, nor one of {', '.join(WORDS)}. "
            + did_you_mean(given, WORDS)
        )
    return table_of("--distribution", given)


def _groups(given: str) -> tuple[InstanceGroup, ...]:
    """The instance groups of a heterogeneous cluster, in order."""
    flag = "--instance-groups"
    value = _json(flag, given)
    if not isinstance(value, list) or not value:
        example = '[{"name": "gpu", "instance_type": "ml.p4d.24xlarge", "instance_count": 2}, ...]'
        raise RequestError(f"{flag}: must be a JSON list of groups, not {json.dumps(value)[:60]}", remedy=example)
    groups = tuple(parse_record(InstanceGroup, each, f"{flag}[{number}]") for number, each in enumerate(value))
    names = [group.name for group in groups]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RequestError(f"{flag}: {', '.join(twice)} is given twice; groups need different names")
    return groups


def _group_of_ranks(groups: tuple[InstanceGroup, ...], distribution: Mapping[str, Any]) -> InstanceGroup | None:
    """The group whose hosts have ranks; without a distribution the first one; ``None`` if there are no groups.

    If there are several, SDK 2 (2.257.7, ``fw_utils.validate_distribution``) requires one name. If the cluster has no
    groups, the toolkit would find none of that name and start one process per host.
    """
    named = distribution.get("instance_groups", [])
    names = [group.name for group in groups]
    where = "--distribution: instance_groups"
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise RequestError(f"{where} must be a list of names of instance groups")
    for name in named:
        if name not in names:
            hint = did_you_mean(name, names) if names else "Define the groups with --instance-groups."
            raise RequestError(f"{where}: the cluster has no group {name}", remedy=hint)
    if len(groups) > 1 and distribution and len(named) != 1:
        raise RequestError(
            f"{where} must name one of the {len(groups)} groups: the one whose hosts have ranks",
            remedy=f'--distribution \'{{"mpi": {{"enabled": true}}, "instance_groups": ["{names[0]}"]}}\'',
        )
    return next((group for group in groups if not named or group.name in named), None)


def table_of(flag: str, given: str) -> dict[str, Any]:
    """A JSON object: the text itself, or the content of the file that it names."""
    value = _json(flag, given)
    if not isinstance(value, dict):
        raise RequestError(f"{flag}: must be a JSON object, not {json.dumps(value)[:60]}")
    return value


def _json(flag: str, given: str) -> Any:
    """The value of a JSON text, or of the JSON file that it names."""
    text, where = given, flag
    if not given.lstrip().startswith(("{", "[")):
        where = f"{flag} {given}"
        try:
            with Path(given).open() as file:  # may be a pipe, such as `<(command)`
                text = file.read(LONGEST_DOCUMENT + 1)
        except (OSError, ValueError) as error:
            raise RequestError(f"{where}: neither JSON nor a readable file ({error})") from None
    if len(text) > LONGEST_DOCUMENT:
        raise RequestError(f"{where}: more than {LONGEST_DOCUMENT} characters")
    return parse_json(text, where)


def pairs_of(flag: str, given: Iterable[str]) -> dict[str, str]:
    """The ``NAME=VALUE`` pairs of a flag that may be repeated.

    Raises:
        RequestError: one has no name or no equals sign, or a name is repeated.
    """
    pairs: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise RequestError(f"{flag} {pair}: not NAME=VALUE")
        if name in pairs:
            raise RequestError(f"{flag} {name}=… is given twice", remedy="Give it once.")
        pairs[name] = value
    return pairs


def _seconds(flag: str, given: str | None) -> float | None:
    if given is None:
        return None
    if not fits(r"[0-9]{1,9}(\.[0-9]{1,9})?", given):
        raise RequestError(f"{flag} {given}: not a number of seconds", remedy=f"For example: {flag} 30")
    return float(given)
