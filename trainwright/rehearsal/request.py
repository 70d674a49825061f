"""From the words of the command line to a :class:`~trainwright.rehearsal.job.Job`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from trainwright.errors import RequestError, did_you_mean
from trainwright.rehearsal.job import Job

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
    hyperparameters: str | None,
    inputs: Iterable[str],
    environment: Iterable[str],
    sdk: int,
    launch_only: bool,
    timeout: float,
    stop_after: str | None,
    memory: str | None,
) -> Job:
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
    return Job(
        image=image,
        entry_point=entry_point,
        source_dir=Path(source_dir) if source_dir else None,
        requirements=Path(requirements) if requirements else None,
        hosts=hosts,
        processes_per_host=processes_per_host or None,
        distribution=distribution_of(distribution),
        instance_type=instance_type,
        hyperparameters=table_of("--hyperparameters", hyperparameters) if hyperparameters else {},
        inputs={name: Path(folder) for name, folder in pairs_of("--input", inputs)},
        sdk=version,
        launch_only=launch_only,
        timeout=timeout,
        stop_after=_seconds("--stop-after", stop_after),
        memory=memory,
        environment=dict(pairs_of("--env", environment)),
    )


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


def table_of(flag: str, given: str) -> dict[str, Any]:
    """A JSON object: the text itself, or the content of the file that it names."""
    text = given
    if not given.lstrip().startswith("{"):
        try:
            text = Path(given).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"{flag} {given}: neither a JSON object nor a file that can be read ({error})") from None
    try:
        value = json.loads(text)
    except ValueError as wrong:
        raise RequestError(f"{flag}: not JSON: {wrong}") from None
    if not isinstance(value, dict):
        raise RequestError(f"{flag}: a JSON object is wanted, not {json.dumps(value)[:60]}")
    return value


def pairs_of(flag: str, given: Iterable[str]) -> Iterable[tuple[str, str]]:
    """The ``NAME=VALUE`` pairs of a flag that may be repeated.

    Raises:
        RequestError: one has no name or no equals sign.
    """
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise RequestError(f"{flag} {pair}: NAME=VALUE is wanted")
        yield name, value


def _seconds(flag: str, given: str | None) -> float | None:
    if given is None:
        return None
    try:
        return float(given)
    except ValueError:
        raise RequestError(f"{flag} {given}: a number of seconds") from None
