"""From the words of the command line to a :class:`~trainwright.rehearse.rehearsed_job.RehearsedJob`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.records import parse_json, parse_record
from trainwright.core.text import fits
from trainwright.rehearse.job_limits import check_job
from trainwright.rehearse.rehearsed_job import DEFAULT_INSTANCE, RehearsedJob
from trainwright.sagemaker.job import InstanceGroup

LONGEST_DOCUMENT = 2**20  # characters of a JSON document; the service takes 100 hyperparameters of 2500
# One word for what is most often wanted; the rest is JSON.
WORDS = ("mpi", "torch_distributed", "parameter_server", "multi_worker_mirrored_strategy", "pytorchxla")


def make_job(
    *,
    image: str,
    entry_point: str,
    source_dir: str | None,
    requirements: str | None,
    hosts: int,
    processes_per_host: int,
    distribution: str | None,
    instance_type: str,
    instance_groups: str | None,
    hyperparameters: str | None,
    inputs: Iterable[str],
    environment: Iterable[str],
    sdk: int,
    launch_only: bool,
    timeout: float,
    stop_after: str | None,
    memory: str | None,
) -> RehearsedJob:
    """The job that a command line describes; a number 0 or a missing text means: not given.

    Raises:
        RequestError: a word is wrong; the message names the flag.
    """
    if not image:
        raise RequestError(
            "rehearse needs --image", remedy="./invoke list --built shows the images that were built here."
        )
    if not entry_point:
        raise RequestError(
            "rehearse needs --entry-point", remedy="For example: --entry-point train.py --source-dir src"
        )
    version: Literal[2, 3] = 2 if sdk == 2 else 3
    if sdk not in (2, 3):
        raise RequestError(f"--sdk {sdk}: 2 or 3")
    told = distribution_of(distribution)
    groups = _groups(instance_groups) if instance_groups else ()
    if groups and (hosts != 1 or instance_type != DEFAULT_INSTANCE):
        raise RequestError(
            "--instance-groups says how many hosts of which type there are: leave --hosts and --instance-type"
        )
    if groups and sdk == 3:
        raise RequestError("--instance-groups: SDK 3 has no such clusters", remedy="--sdk 2")
    ranked = _group_of_ranks(groups, told or {})
    job = RehearsedJob(
        image=image,
        entry_point=entry_point,
        source_dir=Path(source_dir) if source_dir else None,
        requirements=Path(requirements) if requirements else None,
        hosts=sum(group.instance_count for group in groups) or hosts,
        processes_per_host=processes_per_host or None,
        distribution=told,
        instance_type=ranked.instance_type if ranked else instance_type,
        groups=groups,
        hyperparameters=table_of("--hyperparameters", hyperparameters) if hyperparameters else {},
        inputs={name: Path(folder) for name, folder in pairs_of("--input", inputs).items()},
        sdk=version,
        launch_only=launch_only,
        timeout=timeout,
        stop_after=_seconds("--stop-after", stop_after),
        memory=memory,
        environment=pairs_of("--env", environment),
    )
    check_job(job)
    return job


def distribution_of(given: str | None) -> dict[str, Any] | None:
    """The ``distribution`` of a flag: a word of :data:`WORDS`, JSON, or a file of JSON.

    Raises:
        RequestError: it is none of these.
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
    """The instance groups of a heterogeneous cluster, in their order."""
    flag = "--instance-groups"
    value = _json(flag, given)
    if not isinstance(value, list) or not value:
        example = '[{"name": "gpu", "instance_type": "ml.p4d.24xlarge", "instance_count": 2}, ...]'
        raise RequestError(f"{flag}: a JSON list of groups is wanted, not {json.dumps(value)[:60]}", remedy=example)
    groups = tuple(parse_record(InstanceGroup, each, f"{flag}[{number}]") for number, each in enumerate(value))
    names = [group.name for group in groups]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RequestError(f"{flag}: {', '.join(twice)} is there twice; groups are told apart by their names")
    return groups


def _group_of_ranks(groups: tuple[InstanceGroup, ...], distribution: Mapping[str, Any]) -> InstanceGroup | None:
    """The group on whose hosts the launcher starts ranks; without a distribution the first; ``None``: there are none.

    SDK 2 (2.257.7, ``fw_utils.validate_distribution``) wants one group named where there are several; where the cluster
    has no groups, the toolkit would know none of that name and start one process per host.
    """
    named = distribution.get("instance_groups", [])
    names = [group.name for group in groups]
    where = "--distribution: instance_groups"
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise RequestError(f"{where} is a list of the names of instance groups")
    for name in named:
        if name not in names:
            hint = did_you_mean(name, names) if names else "Say which there are with --instance-groups."
            raise RequestError(f"{where}: the cluster has no group {name}", remedy=hint)
    if len(groups) > 1 and distribution and len(named) != 1:
        raise RequestError(
            f"{where} has to name one of the {len(groups)} groups: the one whose hosts have ranks",
            remedy=f'--distribution \'{{"mpi": {{"enabled": true}}, "instance_groups": ["{names[0]}"]}}\'',
        )
    return next((group for group in groups if not named or group.name in named), None)


def table_of(flag: str, given: str) -> dict[str, Any]:
    """A JSON object: the text itself, or the content of the file that it names."""
    value = _json(flag, given)
    if not isinstance(value, dict):
        raise RequestError(f"{flag}: a JSON object is wanted, not {json.dumps(value)[:60]}")
    return value


def _json(flag: str, given: str) -> Any:
    """What a text of JSON says, or the file that it names."""
    text, where = given, flag
    if not given.lstrip().startswith(("{", "[")):
        where = f"{flag} {given}"
        try:
            with Path(given).open() as file:  # a pipe will do, as `<(command)` is one
                text = file.read(LONGEST_DOCUMENT + 1)
        except (OSError, ValueError) as error:
            raise RequestError(f"{where}: neither JSON nor a file that can be read ({error})") from None
    if len(text) > LONGEST_DOCUMENT:
        raise RequestError(f"{where}: more than {LONGEST_DOCUMENT} characters")
    return parse_json(text, where)


def pairs_of(flag: str, given: Iterable[str]) -> dict[str, str]:
    """The ``NAME=VALUE`` pairs of a flag that may be repeated.

    Raises:
        RequestError: one has no name or no equals sign, or a name is there twice.
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
