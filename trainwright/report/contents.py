"""What an image, a plan or a lock contains, in the one form in which two of them are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.build.ledger import BuiltLayer
from trainwright.build.store import BuildRecord, find_record
from trainwright.catalog.catalog import Catalog
from trainwright.catalog.listing import named
from trainwright.catalog.wheel_lock import Lock, normalise
from trainwright.core.data_files import read_json
from trainwright.core.errors import RequestError
from trainwright.core.records import parse_record
from trainwright.plan.of_line import plan_of
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import PlanLock
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

SOURCES = "sources"  # the checksums of what an image is made from
_KINDS: dict[str, type[Any]] = {
    **{"trainwright/record/1": BuildRecord, "trainwright/plan/1": Plan},
    **{"trainwright/plan-lock/1": PlanLock, "trainwright/lock/1": Lock},
}


@dataclass(frozen=True)
class Contents:
    """What something contains: part, such as ``Python packages``, to name to value.

    Only images have layers, and bytes by component or shared stage.
    """

    name: str
    parts: Mapping[str, Mapping[str, str]]
    layers: tuple[BuiltLayer, ...] = ()
    image_id: str = ""
    weights: Mapping[str, int] = field(default_factory=dict)


def read(word: str, catalog: Catalog) -> Contents:
    """What a word of the command line means.

    Args:
        word: a file (a lock, a plan, a build record), the tag or id of an image that was built here, an image line
            (``pytorch/cu126``), or a request (``pytorch:cu126``).
        catalog: has the lines.

    Raises:
        RequestError: nothing has that name, or a file has another form.
        Conflict: the request has no plan.
    """
    path = Path(word)
    if path.is_file():
        return of_file(path)
    if path.suffix == ".json":
        raise RequestError(f"{word}: no such file", remedy="./invoke help diff shows what can be compared.")
    try:
        return of_record(find_record(word), word)
    except RequestError as unbuilt:
        try:
            entries = named(catalog, [word]) if "/" in word and ":" not in word else []
            if len(entries) == 1:
                return of_plan(plan_of(entries[0], catalog), word)
            if not entries:
                return of_plan(resolve(make_request(short=word), catalog), word)
        except RequestError as unknown:
            # A tag of ours is looked for among images; anything else reads as a request.
            raise (unbuilt if word.startswith("trainwright/") else unknown) from None
        raise RequestError(
            f"{word}: {len(entries)} image lines; name a single one", remedy="For example: pytorch/cu126"
        ) from None


def of_file(path: Path) -> Contents:
    """The contents of a lock, a plan or a build record.

    Raises:
        RequestError: the file has another form.
    """
    data = read_json(path, remedy="./invoke help diff shows what can be compared.")
    kind = _KINDS.get(str(data.get("schema", ""))) if isinstance(data, dict) else None
    if kind is None:
        raise RequestError(
            f"{path}: neither a lock nor a plan nor a build record", remedy=f"One of {', '.join(_KINDS)}"
        )
    if kind is Plan:
        data = {key: value for key, value in data.items() if key != "proof"}  # `plan --json` adds it
    found = parse_record(kind, data, str(path))
    if isinstance(found, BuildRecord):
        return of_record(found, str(path))
    return of_plan(found, str(path)) if isinstance(found, Plan) else of_lock(found, str(path))


def of_record(record: BuildRecord, name: str) -> Contents:
    """What the probe found in an image."""
    probe, plan = record.probe, record.plan
    config = probe.get("image", {})
    start = {key: config.get(key) for key in ("entrypoint", "cmd", "user", "working_dir")}
    return Contents(
        name=name,
        parts={
            **_of_both(plan),
            "Python packages": dict(probe.get("distributions", {})),
            "system packages": dict(probe.get("packages", {})),
            "environment": {str(k): str(v) for k, v in config.get("environment", plan.environment).items()},
            "labels": {str(k): str(v) for k, v in config.get("labels", plan.labels).items()},
            "start": {
                key: " ".join(value) if isinstance(value, list) else str(value or "-") for key, value in start.items()
            },
        },
        layers=record.layers,
        image_id=record.image_id,
        weights={row.name: row.bytes for row in record.ledger},
    )


def of_plan(plan: Plan, name: str) -> Contents:
    """What an image of a plan will contain, as far as that is known before it is built."""
    sources = [source for component in plan.components for source in component.sources]
    pinned = (str(source.package).partition("==") for source in sources if source.package and "==" in source.package)
    return Contents(
        name=name,
        parts={
            **_of_both(plan),
            "Python packages": {normalise(package): version for package, _, version in pinned},
            SOURCES: {str(source.file): source.sha256[:12] for source in sources if source.file and source.sha256},
            "environment": dict(plan.environment),
            "labels": dict(plan.labels),
        },
    )


def of_lock(lock: PlanLock | Lock, name: str) -> Contents:
    """What a lock pins."""
    packages = lock.packages if isinstance(lock, Lock) else lock.python_files
    parts = {
        "Python packages": {package.name: package.version for package in packages},
        SOURCES: {package.file: package.sha256[:12] for package in packages},
    }
    if isinstance(lock, PlanLock):
        parts[SOURCES] |= {archive.file: archive.sha256[:12] for archive in lock.archives}
        parts["system packages"] = {package.name: package.version for package in lock.system or ()}
    return Contents(name=name, parts=parts)


def _of_both(plan: Plan) -> dict[str, dict[str, str]]:
    about = {"framework": f"{plan.framework} {plan.version}", "CUDA": plan.cuda, "Python": plan.python}
    about |= {"base": plan.base.image or plan.base.os}
    return {
        "image": about,
        "components": {each.name: f"{each.version or 'as found'} ({each.provider})" for each in plan.components},
        "loads": dict(plan.loads),
    }
