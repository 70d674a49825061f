"""Lock a plan: ask the registry, the archives, the index and the distribution once, and record what they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from trainwright.build.store import all_records
from trainwright.catalog.image_line import ImageLine
from trainwright.catalog.wheel_lock import LockedPackage, normalise
from trainwright.core.errors import Conflict, RequestError, did_you_mean
from trainwright.core.heartbeat import heartbeat, waiting
from trainwright.core.say import Say
from trainwright.engine.engine import Engine
from trainwright.lock.apt_packages import Answer, Start, ask_apt
from trainwright.lock.wheels import resolve_lock
from trainwright.plan.plan import Plan, PlannedSource
from trainwright.plan.plan_lock import LockedBase, LockedPython, PlanLock, completed
from trainwright.plan.rendered import render_dockerfile
from trainwright.site.apt_sources import DEBIAN_SUITES
from trainwright.site.site import Site
from trainwright.site.uv_settings import index_settings, insecure_hosts, insecure_words
from trainwright.sources import base_image, rootfs
from trainwright.sources.debian_base import make_base
from trainwright.sources.fetch import fetch_unchecked, locked_archive, new_lock, unpublished, with_archives
from trainwright.sources.gather import gather_base, with_lock
from trainwright.sources.inputs import Inputs

# In a step in which an installer calls apt itself (run_installer in templates/macros.j2).
OWN_APT = "/mnt/apt-run "
BASE, APT, TOOLS, USER = "base", "apt", "tools", "user"


def make_lock(inputs: Inputs, engine: Engine, *, upgrade: Sequence[str] = (), say: Say) -> PlanLock:
    """The complete lock of a plan. What is locked already stays, except what ``upgrade`` names.

    Args:
        inputs: the plan, and its lock if it has one.
        engine: pulls base images and asks apt.
        upgrade: ``base``, ``apt``, ``tools``, a component whose archives have no published checksum, or a Python
            package.
        say: progress callback.

    Raises:
        RequestError: a name in ``upgrade`` is unknown, or its version follows from the image line.
        Conflict: Python packages conflict.
        SourceError: a source does not answer, or lacks something.
    """
    plan = inputs.resolved
    if plan.unlocked:
        raise RequestError(
            f"plan {plan.id[:12]} has no lock of its Python packages yet", remedy="./invoke build makes it."
        )
    old = inputs.lock or new_lock(plan, inputs.flags)
    names = {normalise(name) for name in upgrade}
    _check_names(names, plan, old)
    lock = old.replace(request=inputs.flags)
    # What the sources have, whatever is locked already.
    today = with_lock(inputs, None)
    lock = _archives(lock, today, names, say)
    if lock.base is None or BASE in names:
        lock = lock.replace(base=lock_base(today, engine, refresh=BASE in names, say=say))
    # Packages are chosen for one base.
    if lock.system is None or {BASE, APT} & names or lock.base != old.base:
        lock = _system(lock, today, engine, say=say)
    if lock.tools is None or TOOLS in names:
        lock = lock.replace(tools=_locked((TOOLS, p.source) for p in today.python if p.owner == TOOLS))
    return _python(lock, today, names, say=say)


def _check_names(names: set[str], plan: Plan, lock: PlanLock) -> None:
    """Refuse what cannot be upgraded within a plan."""
    unpublished = {c.name for c in plan.components if any(s.sha256 is None for s in c.archives)}
    python = {p.name for p in (*(lock.python or plan_python(plan)), *(lock.user or ()))}
    roots = {normalise(p.partition("==")[0]): c.name for c in plan.components for p in c.packages}
    for name in sorted(names - {BASE, APT, TOOLS, USER} - unpublished):
        if name in roots:
            raise RequestError(
                f"--upgrade {name}: its version is the image line's ({roots[name]}), not the lock's",
                remedy="./invoke list shows image lines with other versions; ask for one with --set or --version.",
            )
        if plan.component(name) is not None:
            raise RequestError(
                f"--upgrade {name}: the checksums of its files are published, so there is nothing to upgrade",
                remedy="Ask for another version of a component with --set.",
            )
        if name not in python:
            raise RequestError(
                f"--upgrade {name}: not in the lock. {did_you_mean(name, {BASE, APT, TOOLS, *unpublished, *python})}"
            )


def _archives(lock: PlanLock, today: Inputs, names: set[str], say: Say) -> PlanLock:
    held = {(a.component, a.file) for a in lock.archives}
    made = [locked_archive(a.owner, a.source, a.sha256, a.source.size) for a in today.archives if a.sha256]
    missing = [a for a in unpublished(today) if (a.owner, a.file) not in held or a.owner in names]
    return with_archives(lock, [*made, *fetch_unchecked(missing, today.site, say=say)])


def lock_base(inputs: Inputs, engine: Engine, *, refresh: bool, say: Say) -> LockedBase:
    """The base of a plan, as its registry or archive has it today.

    Raises:
        SourceError: no registry has the image, or the root file system cannot be made.
    """
    base = inputs.plan.base
    facts: dict[str, Any] = {"kind": base.kind, "os": base.os, "image": base.image, "build_image": base.build_image}
    if base.image is None:
        made = make_base(DEBIAN_SUITES[base.os], inputs.site, say=say, refresh=refresh)
        rootfs.keep(made.path, made.sha256)
        facts |= {"sha256": made.sha256, "size": made.size}
    else:
        for image in inputs.images:
            pulled = base_image.pull(engine, image.pinned, say=say)
            prefix = "" if image.argument == "BASE_IMAGE" else "build_"
            digest = pulled.digest or (base.digest if not prefix else None)
            facts |= {f"{prefix}digest": digest, f"{prefix}image_id": pulled.image_id}
    return LockedBase(**facts)


def start_of(lock: PlanLock, site: Site, engine: Engine, *, say: Say) -> Start:
    """Where apt is run for a lock: in the locked base, wherever its tags point today.

    Raises:
        SourceError: the base is no longer available.
    """
    assert lock.base is not None
    base = gather_base(lock.base, site)
    path = rootfs.locked_rootfs(base.rootfs, lock.base.os, site, say=say) if base.rootfs is not None else None
    named = {image.argument: image.pinned for image in base.images}
    return Start(lock.base.as_base(), path, named | base_image.build_arguments(base.images, engine, say=say))


def ask_today(lock: PlanLock, inputs: Inputs, engine: Engine, *, say: Say) -> Answer | None:
    """What apt would install today; None if the distribution has another package manager."""
    plan, site = inputs.resolved, inputs.site
    if plan.base.family != "apt":
        return None
    dockerfile = render_dockerfile(completed(plan, lock), inputs.catalog)
    also = _fetched_by_installers(plan, lock) if OWN_APT in dockerfile else {}
    if OWN_APT in dockerfile and not also:
        say("an installer of this plan fetches packages with apt; build once, then lock again to pin those as well")
    start = start_of(lock, site, engine, say=say)
    return ask_apt(dockerfile, start, site, engine, also=also, named=plan.user.apt, say=say)


def _fetched_by_installers(plan: Plan, lock: PlanLock) -> dict[str, str]:
    """The packages, with versions, that a finished image of the plan has in addition to its base; locked versions take
    precedence."""
    built: Mapping[str, str] = next((r.probe.get("packages", {}) for r in all_records() if r.plan.id == plan.id), {})
    base = {p.name for p in lock.base.packages} if lock.base is not None else set()
    return {name: version for name, version in built.items() if name not in base} | {
        p.name: p.version for p in lock.system or () if p.name in built
    }


def _system(lock: PlanLock, inputs: Inputs, engine: Engine, *, say: Say) -> PlanLock:
    answer = ask_today(lock, inputs, engine, say=say)
    if answer is None:
        say("Amazon Linux's repositories are versioned with its image, so its packages follow from the base's digest")
        return lock.replace(system=())
    assert lock.base is not None
    return lock.replace(system=answer.packages, base=lock.base.replace(packages=answer.installed))


# ---- Python packages -----------------------------------------------------------------------------------------------


def plan_python(plan: Plan) -> tuple[LockedPython, ...]:
    """The Python packages of a plan, as in the lock of its image line."""
    return _locked((c.name, s) for c in plan.components for s in c.sources if s.package and "==" in s.package)


def _locked(packages: Iterable[tuple[str, PlannedSource]]) -> tuple[LockedPython, ...]:
    """Python packages of a plan in the form of a lock, each with its component."""
    found = [
        LockedPython(
            name=str(s.package).partition("==")[0],
            version=str(s.package).partition("==")[2],
            file=str(s.file),
            sha256=str(s.sha256),
            size=s.size,
            component=component,
        )
        for component, s in packages
    ]
    return tuple(sorted(found, key=lambda p: (p.component, p.name)))


def _python(lock: PlanLock, inputs: Inputs, names: set[str], *, say: Say) -> PlanLock:
    plan, site = inputs.resolved, inputs.site
    python = lock.python if lock.python is not None else plan_python(plan)
    if mine := names & {p.name for p in python}:
        say(f"resolving {', '.join(sorted(mine))} again")
        with heartbeat(say, waiting("resolving")):
            python = upgraded(inputs, python, mine, lock=lock)
        lock = _with_insecure_hosts(lock, site, say)
    lock = lock.replace(python=python)
    if plan.user.requirements is None:
        return lock
    again = names & {USER, *(p.name for p in lock.user or ())}
    if lock.user is None or again or mine:
        say("resolving the packages of --with-requirements")
        keep = [p for p in lock.user or () if p.name not in again and USER not in again]
        with heartbeat(say, waiting("resolving")):
            lock = lock.replace(user=resolve_user(inputs, lock, keep))
        lock = _with_insecure_hosts(lock, site, say)
    return lock


def _with_insecure_hosts(lock: PlanLock, site: Site, say: Say) -> PlanLock:
    """The lock with the hosts whose certificates were not checked by uv, now or earlier (packages of earlier runs may
    still be in it)."""
    hosts = insecure_hosts(index_settings(lock.indexes, site)[0])
    if hosts:
        say(insecure_words(hosts))
    return lock.replace(insecure_hosts=tuple(sorted({*lock.insecure_hosts, *hosts})))


def upgraded(
    inputs: Inputs, python: Sequence[LockedPython], names: set[str], *, lock: PlanLock
) -> tuple[LockedPython, ...]:
    """The Python packages of an image line, some upgraded to the newest versions that fit the others.

    Args:
        names: the packages to upgrade; if empty, everything but the components' own pins is upgraded (to see what is
            available).

    Raises:
        Conflict: no newer version fits.
    """
    plan = inputs.resolved
    pins = [f"{p.name}==={p.version}" for p in python if names and p.name not in names]
    roots = {c.name: c.packages for c in plan.components if c.packages}
    if not roots:
        return tuple(python)
    lines = _lines(inputs)
    bounds = [*dict.fromkeys(bound for line in lines for bound in line.constraints), *pins]
    made = _resolve(roots, bounds, inputs, lock)
    owners = {p.name: p.component for p in python}
    asked = next((owners[name] for name in sorted(names)), next(iter(roots), ""))
    found = [_of(package, owners.get(package.name, asked)) for package in made]
    return tuple(sorted(found, key=lambda p: (p.component, p.name)))


def resolve_user(inputs: Inputs, lock: PlanLock, keep: Sequence[LockedPython] = ()) -> tuple[LockedPython, ...]:
    """What a user's requirements add to the packages of a plan, pinned.

    Args:
        keep: packages of an earlier resolution whose versions stay.

    Raises:
        RequestError: the base image contains Python packages that are not listed.
        Conflict: the requirements conflict with the plan.
        SourceError: no index answers.
    """
    plan = inputs.resolved
    if plan.base.kind == "dlc":
        raise RequestError(
            "--with-requirements cannot be locked on a Deep Learning Container, whose own packages are not locked",
            remedy="Remove --with-requirements and install the packages when the job starts, or build without a lock.",
        )
    own = lock.python or ()
    constraints = [f"{p.name}==={p.version}" for p in (*own, *keep)]
    roots = {USER: inputs.requirements}
    made = _resolve(roots, constraints, inputs, lock)
    names = {p.name for p in own}
    return tuple(_of(package, USER) for package in made if package.name not in names)


def _resolve(
    roots: Mapping[str, Sequence[str]],
    constraints: Sequence[str],
    inputs: Inputs,
    lock: PlanLock,
) -> tuple[LockedPackage, ...]:
    """uv's answer; the image line's further indexes are asked only if the site's own are not enough."""
    lines = _lines(inputs)
    ask = partial(
        resolve_lock,
        roots,
        constraints,
        lock.python_version,
        lock.platform,
        excluded=_elsewhere(inputs.resolved, lines),
        stated=_stated(lines),
        site=inputs.site,
    )
    try:
        return ask().packages
    except Conflict:
        if not lock.indexes:
            raise
    return ask(indexes=lock.indexes).packages


def _lines(inputs: Inputs) -> list[ImageLine]:
    """The image lines of the plan's framework, version and CUDA; they have bounds that are not in the plan."""
    plan = inputs.resolved
    lines = [e.line for e in inputs.catalog.lines if (e.line.framework, e.line.cuda) == (plan.framework, plan.cuda)]
    return [line for line in lines if line.version == plan.version] or lines


def _stated(lines: Sequence[ImageLine]) -> dict[str, tuple[str, ...]]:
    """What image lines say about packages that would have to be built to say it themselves."""
    selections = [each for line in lines for each in (*line.components.values(), *line.options.values())]
    return {normalise(name): needs for each in selections for name, needs in each.needs.items()}


def _elsewhere(plan: Plan, lines: Sequence[ImageLine]) -> list[str]:
    """Python packages that an image has without a lock: wheels by URL, and what the image line says about its base."""
    wheels = {normalise(str(s.file).partition("-")[0]) for c in plan.components for s in c.wheel_archives}
    return sorted(wheels | {normalise(name) for line in lines for name in line.excluded})


def _of(package: LockedPackage, component: str) -> LockedPython:
    return LockedPython(**{**package.as_json(), "components": (), "component": component})
