"""``fresh``: what of an image line is newer than its newest image."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from trainwright.build.labels import OCI
from trainwright.build.store import BuildRecord
from trainwright.core.errors import RequestError
from trainwright.core.findings import FOUND
from trainwright.fresh.archive_today import NewerPackage, renewed
from trainwright.fresh.documents import FreshDocument, FreshRow, Stale
from trainwright.fresh.images import NewestImage
from trainwright.lock.documents import LockRow
from trainwright.pipeline.images import ChosenImage
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import PlanLock, find_lock
from trainwright.scan.documents import ScanDocument, Vulnerability
from trainwright.scan.ecosystems import PYTHON
from trainwright.site.site import Site

_SHOWN = 3  # names of what differs; the document of `diff`, `lock --check` or `scan` has all
_UNITS = {"h": 1, "d": 24, "w": 7 * 24}


@dataclass(frozen=True)
class Questions:
    """What is asked beyond records, plans and locks; ``None`` is not asked.

    Attributes:
        vulnerabilities: scans an image.
        sources: what registries, archives and indexes have today.
        max_age: of an image.
    """

    vulnerabilities: Callable[[BuildRecord], ScanDocument] | None = None
    sources: Sources | None = None
    max_age: timedelta | None = None


class Sources(Protocol):
    """Asks where the content of images comes from; what gives no answer is in ``unknown``, in words."""

    unknown: list[str]

    def base(self, plan: Plan, record: BuildRecord) -> str:
        """How the base image of an image has changed in its registry; empty if it has not."""

    def packages(self, record: BuildRecord, packages: Mapping[str, str]) -> Sequence[NewerPackage]:
        """Which of these packages of an image the distribution has in newer versions."""

    def upgrades(self, image: ChosenImage, lock: PlanLock, record: BuildRecord) -> Sequence[LockRow]:
        """How the lock of a plan differs from what its sources have."""

    def of_line(self, image: ChosenImage) -> Sequence[str]:
        """Python packages in the lock of an image line of which the index has newer versions that fit."""


def read_age(word: str | None) -> timedelta | None:
    """An age that a flag names: ``30d``, ``12h``, ``8w``.

    Raises:
        RequestError: it is something else.
    """
    if word is None:
        return None
    match = re.fullmatch(r"([0-9]{1,5})([hdw])", word)
    if match is None or int(match[1]) == 0:
        raise RequestError(f"--max-age {word}: not an age", remedy="For example: --max-age 30d   (h, d or w)")
    return timedelta(hours=int(match[1]) * _UNITS[match[2]])


def look(
    images: Sequence[ChosenImage],
    newest: Mapping[str, NewestImage],
    site: Site,
    questions: Questions,
    *,
    now: datetime,
    notes: Sequence[str] = (),
) -> FreshDocument:
    """Which lines are stale, and why.

    Args:
        images: the lines, with the plans that they have today.
        newest: the newest image of each, by name.
        site: where locks are.
        questions: what else is asked.
        now: the moment at which ages end.
        notes: what is not looked at.

    Raises:
        RequestError: a lock is broken.
        Failure: as the questions raise.
    """
    rows = [_row(image, newest.get(image.name), site, questions, now) for image in images]
    hints, unknown = [*_hints(images, newest, site, questions)], list[str]()
    if questions.sources is not None:
        unknown = [*dict.fromkeys(questions.sources.unknown)]
    stale = sum(bool(row.reasons) for row in rows)
    document = FreshDocument(
        schema="trainwright/fresh/1",
        lines=tuple(rows),
        stale=stale,
        next="",
        notes=(*notes, *unknown, *hints),
        exit_code=FOUND if stale else 0,
    )
    names = ",".join(document.names)
    return document.replace(next=f"./invoke build --images {shlex.quote(names)}" if names else "")


def _hints(
    images: Sequence[ChosenImage], newest: Mapping[str, NewestImage], site: Site, questions: Questions
) -> Iterator[str]:
    """What a new lock of a line would take: its images are what the line says, so they are not stale."""
    for image in images if questions.sources is not None else ():
        if image.name in newest and find_lock(image.plan, site) is None:
            assert questions.sources is not None
            if newer := questions.sources.of_line(image):
                yield f"{image.name}: ./invoke lock-lines would take {_few(newer)}"


def _row(image: ChosenImage, newest: NewestImage | None, site: Site, questions: Questions, now: datetime) -> FreshRow:
    reasons = [Stale(cause="never", says="never built")]
    if newest is not None:
        reasons = [*_reasons(image, newest.record, find_lock(image.plan, site), questions, now)]
        reasons += [Stale(cause="job", says=newest.lacking)] if newest.lacking else []
    return FreshRow(
        name=image.name,
        plan=image.plan.id,
        image=None if newest is None else newest.address,
        built_at=None if newest is None else newest.record.built_at,
        reasons=tuple(reasons),
    )


def _reasons(
    image: ChosenImage, record: BuildRecord, lock: PlanLock | None, questions: Questions, now: datetime
) -> Iterator[Stale]:
    if record.plan.id != image.plan.id:
        yield Stale(cause="plan", says=_plan_says(record.plan, image.plan))
    sources = questions.sources
    before, after = _base_of(record), base_now(image.plan, lock)
    if before and after and before != after:
        yield Stale(cause="base", says=f"base image {before[7:19]}, now {after[7:19]}")
    elif not after and sources is not None and (moved := sources.base(image.plan, record)):
        yield Stale(cause="base", says=moved)
    if lock is not None:
        yield from _of_lock(image, lock, record, sources)
    installed_anew = renewed(image.plan, lock, record)
    taken: Collection[str] = installed_anew.keys()
    if sources is not None and installed_anew:
        newer = sources.packages(record, installed_anew)
        if newer:
            yield Stale(cause="package", says=f"newer packages: {_few([str(each) for each in newer])}")
        if not sources.unknown:
            taken = {each.name for each in newer}
    if questions.vulnerabilities is not None:
        found = [row for row in questions.vulnerabilities(record).vulnerabilities if row.counts and row.fixed]
        yield from _of_vulnerabilities(found, taken)
    age = now - datetime.fromisoformat(record.built_at)
    if questions.max_age is not None and age > questions.max_age:
        yield Stale(cause="age", says=f"{age.days} days old" if age.days else f"{age.seconds // 3600} hours old")


def _of_lock(image: ChosenImage, lock: PlanLock, record: BuildRecord, sources: Sources | None) -> Iterator[Stale]:
    if differing := _unlike(record, lock):
        yield Stale(cause="lock", says=f"its lock has since changed: {_few(differing)}")
    if sources is not None:
        upgrades = [
            f"{row.name} {_short(row.locked)} → {_short(row.now)}"
            for row in sources.upgrades(image, lock, record)
            if row.state == "newer"
        ]
        if upgrades:
            yield Stale(cause="upgrade", says=f"its lock can be upgraded: {_few(upgrades)}", renews=False)


def _of_vulnerabilities(found: Sequence[Vulnerability], taken: Collection[str]) -> Iterator[Stale]:
    """``taken``: the packages that another build takes in a newer version. Those of Python are the line's, and stay."""
    ordered = sorted(found, key=lambda row: not _is_renewed(row, taken))
    if ordered:
        says = _few([f"{row.id} ({row.level}, {row.package} {row.version} → {row.fixed})" for row in ordered])
        yield Stale(cause="vulnerability", says=f"fixable: {says}", renews=_is_renewed(ordered[0], taken))


def _is_renewed(row: Vulnerability, packages: Collection[str]) -> bool:
    """Whether a vulnerability is in one of the packages that another build installs in a newer version."""
    return row.ecosystem != PYTHON and not set(packages).isdisjoint(row.installed)


def _plan_says(before: Plan, after: Plan) -> str:
    """The ids, and which components have other versions or providers."""
    was, now = ({c.name: f"{c.version} ({c.provider})" for c in plan.components} for plan in (before, after))
    changed = [
        f"{name} {was.get(name, 'none')} → {now.get(name, 'none')}"
        for name in sorted(was.keys() | now.keys())
        if was.get(name) != now.get(name)
    ]
    return f"plan {before.id[:12]}, now {after.id[:12]}" + (f": {_few(changed)}" if changed else "")


def _base_of(record: BuildRecord) -> str:
    """The digest of the base image that an image says of itself; empty if its base has none."""
    labels: Mapping[str, str] = record.probe.get("image", {}).get("labels", {})
    return labels.get(f"{OCI}.base.digest", "") or base_now(record.plan, None)


def base_now(plan: Plan, lock: PlanLock | None) -> str:
    """The digest of a plan's base image, by its lock, otherwise by its reference; empty if neither has one."""
    locked = lock.base.digest if lock is not None and lock.base is not None else None
    named = (plan.base.image or "").partition("@")[2]
    return locked or plan.base.digest or named


def _unlike(record: BuildRecord, lock: PlanLock) -> list[str]:
    """The packages that an image has in another version than a lock."""
    locked = [(each.name, each.version, "distributions") for each in (*(lock.python or ()), *(lock.user or ()))]
    base = lock.base.packages if lock.base is not None and lock.base.image is None else ()
    locked += [(each.name, each.version, "packages") for each in base]
    # What a stage of the build alone installs is not in the image; what is there under its name may be the base's.
    locked += [(each.name, each.version, "packages") for each in lock.system or () if "os" in each.stages]
    found = []
    for name, version, where in dict.fromkeys(locked):
        held = record.probe.get(where, {}).get(name)
        if held is not None and held != version:
            found.append(f"{name} {held} → {version}")
    return found


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _short(value: str | None) -> str:
    """A version, or the beginning of a digest."""
    return (value or "-").removeprefix("sha256:")[:20]
