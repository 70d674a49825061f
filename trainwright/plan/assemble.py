"""The plan of a draft: what each component brings, the facts that the image must have, and what users are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from trainwright.catalog import incompatibilities
from trainwright.catalog.budget import Budget
from trainwright.catalog.catalog import Catalog, target_of
from trainwright.catalog.component import Provider, SystemPackages, fill
from trainwright.catalog.image_line import BASE, ImageLine, Selection
from trainwright.catalog.nvidia_images import cudnn_in, image_notice
from trainwright.catalog.platforms import AMD64
from trainwright.catalog.wheel_lock import Lock, LockedPackage, normalise
from trainwright.core.errors import RequestError
from trainwright.plan.destination import SAGEMAKER
from trainwright.plan.differences import differences, flavour
from trainwright.plan.draft import OPEN, Draft, facts_of
from trainwright.plan.extend import bad_versions, notes_of
from trainwright.plan.identity import identify
from trainwright.plan.licences import redistribution
from trainwright.plan.loaded import expected, loaded, other_toolkit, series, unused
from trainwright.plan.plan import (
    CODE,
    JOB_CONSTRAINTS,
    Base,
    Expectation,
    Plan,
    PlannedComponent,
    PlannedProbe,
    PlannedSource,
    finish,
)
from trainwright.plan.request import Request
from trainwright.plan.required import check_required

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class _Parts(Struct):
    """What the components of a plan add to it, in the order of their layers."""

    components: list[PlannedComponent] = []
    environment: dict[str, str] = {}
    path: list[str] = []
    expect: list[Expectation] = []
    probes: list[PlannedProbe] = []
    notices: list[str] = []


def make_plan(
    request: Request, catalog: Catalog, draft: Draft, lock: Lock | None, *, image: str | None, notices: Sequence[str]
) -> Plan:
    """The plan of a draft that is consistent.

    Args:
        request: what the draft answers.
        catalog: lines, components and rules.
        draft: what is chosen.
        lock: its Python packages; without it the plan has none and cannot be built.
        image: the reference of the base image, if it comes from a registry.
        notices: what else to tell the user.

    Raises:
        RequestError: the user's files or flags do not fit what is chosen.
    """
    line = draft.line
    selections = {name: _closed(chosen, lock) for name, chosen in draft.selections.items()}
    providers = {n: catalog.components[n].component.providers[s.provider] for n, s in selections.items()}
    versions = {name: chosen.version for name, chosen in selections.items()}
    framework = providers.get(line.main) if line.cuda != "cpu" else None
    target = target_of(line, draft.version, request.platform)
    loads = loaded(line.main, framework, lock.packages if lock else (), versions, target) if framework else {}
    found = {library: expected(library, loads) for library in ("nccl", "cudnn")}
    found["cudnn_series"] = series("cudnn", loads)
    found["base_cudnn"] = cudnn_in(line.base.image)
    found["code"] = request.user.code_sha256 or "*"
    owned = _share_out(catalog, draft, lock, selections)
    parts = _parts(catalog, draft, selections, owned, found, platform=request.platform, gpus=request.gpus)
    told = [*line.notices, *notes_of(line, request), *parts.notices, *_unchecked(selections, providers)]
    told += [*unused(line.main, loads, versions), *other_toolkit(line, versions)]
    if deleted := image_notice(*dict.fromkeys((line.base.image, line.base.build_image))):
        told.append(deleted)
    base = Base(
        kind=line.base.kind,
        os=line.base.os,
        image=image,
        digest=image.rpartition("@")[2] if image and "@" in image else None,
        build_image=line.base.build_image if line.base.build_image != image else None,
    )
    told += redistribution(parts.components, base)
    if kept := [each.name for each in parts.components if each.gpus]:
        told.append(
            f"machine code in {', '.join(kept)} is for GPUs of compute capability {', '.join(request.gpus)} alone; on "
            'others kernels fail with "no kernel image is available"'
        )
    environment = parts.environment
    if parts.path:
        # A Deep Learning Container keeps its own PATH.
        rest = DEFAULT_PATH if line.base.kind != "dlc" else "${PATH}"
        environment = {"PATH": ":".join([*parts.path, rest]), **environment}
    environment |= JOB_CONSTRAINTS
    if request.user.entry_point:
        # As AWS's guide to one's own containers sets them, also in front of a Deep Learning Container's PATH.
        environment = {**environment, "PATH": f"{CODE}:{environment.get('PATH', '${PATH}')}"}
        if request.destination == SAGEMAKER:
            environment |= {"SAGEMAKER_PROGRAM": request.user.entry_point, "SAGEMAKER_SUBMIT_DIRECTORY": CODE}
    check_required(request, catalog, draft, parts.components)
    told += _user_notices(request, line)
    if line.status != "supported" and draft.version == line.version:
        status = line.status.replace("-", " ")
        told.append(f"{line.framework} {line.version} is {status}: no fixes come from upstream")
    facts = facts_of(request, catalog, draft)
    told += incompatibilities.notices(catalog.rules.rules, facts)
    told += bad_versions(line, catalog.rules.rules, facts)
    told += differences(request, catalog, draft, lock)
    if request.platform != AMD64:
        told.append(f"unproven: no image for {request.platform} was built or run")
    told += notices
    fields: dict[str, Any] = {
        "framework": line.framework,
        "version": draft.version,
        "cuda": line.cuda,
        "python": line.python,
        "base": base,
        "destination": request.destination,
        "platform": request.platform,
        "flavour": flavour(draft, request.gpus),
        "unproven": draft.unproven,
        "components": tuple(parts.components),
        "loads": loads,
        "environment": environment,
        "notices": tuple(told),
        "expect": tuple(parts.expect),
        "probes": tuple(parts.probes),
        "user": request.user,
        "budget": _budget(request, draft),
    }
    return finish(fields, lambda plan: identify(plan, catalog))


def _budget(request: Request, draft: Draft) -> Budget | None:
    """The line's size budget, which is for its own image: what was added, left out or replaced has another size."""
    own = (
        flavour(draft, request.gpus) == draft.line.variant
        and request.platform == AMD64
        and draft.line.base.kind != "dlc"
    )
    return Budget(bytes=draft.line.budget, file=draft.file) if own and draft.line.budget is not None else None


def _parts(
    catalog: Catalog,
    draft: Draft,
    selections: Mapping[str, Selection],
    owned: Mapping[str, list[LockedPackage]],
    found: dict[str, str],
    *,
    platform: str,
    gpus: tuple[str, ...],
) -> _Parts:
    """What each chosen component adds.

    ``owned`` has each component's locked packages, ``found`` the values of expectations that no component chooses.
    """
    line, parts = draft.line, _Parts()
    for name, chosen in selections.items():
        folder = catalog.components[name]
        provider = folder.component.providers[chosen.provider]
        known = {
            "version": chosen.version,
            "cuda": line.cuda,
            "python": line.python,
            "framework": line.main,
            "architectures": " ".join(gpus or line.architectures),
        }
        values = known | {key: fill(text, known) for key, text in provider.values_for(chosen.version).items()}
        sources = provider.sources_for(chosen.version, target_of(line, draft.version, platform)) or ()
        parts.components.append(
            PlannedComponent(
                name=name,
                version=chosen.version,
                provider=chosen.provider,
                order=folder.component.order,
                packages=chosen.packages,
                index=chosen.index,
                sources=(*(_source(s) for s in sources), *(_locked(p) for p in owned[name])),
                values=values,
                system=_system_packages(provider, line, values),
                compile_memory_gb=provider.compile_memory_gb,
                gpus=gpus if provider.gpu_code else (),
                files=folder.files,
                licence=None if chosen.provider == BASE else provider.licence or folder.component.licence,
                evidence=line.evidence if name == line.main and not draft.unproven else (),
            )
        )
        parts.environment |= {key: fill(text, values) for key, text in provider.environment.items()}
        parts.path += [directory for directory in provider.path if directory not in parts.path]
        # What has no version is not claimed: the build looks for it.
        wanted = provider.expect_for(chosen.version) if chosen.version else {}
        parts.expect += [
            Expectation(component=name, fact=fact, value=fill(text, values | found)) for fact, text in wanted.items()
        ]
        steps = provider.probe or folder.component.probe if wanted or provider.expect else ()
        parts.probes += [PlannedProbe(component=name, **step.as_json()) for step in steps]
        if chosen.provider != BASE:
            notices = folder.component.notices
            parts.notices += [note.says for note in notices if note.applies(chosen.version, selections)]
    return parts


def _user_notices(request: Request, line: ImageLine) -> list[str]:
    """What the user's own files and flags do to the image.

    Raises:
        RequestError: a flag does not fit the base.
    """
    notices = []
    if request.user.entry_point and request.destination == SAGEMAKER:
        notices.append("code is baked into /opt/ml/code: an estimator's source_dir would be ignored by the toolkit")
    if request.user.allow_change:
        notices.append(_allowed(request, line))
    if request.user.run:
        notices.append(f"{request.user.run.name} runs last, as root (--with-run); what it changes is not in the plan")
    if request.user.secrets:
        notices.append(f"because of --allow-secrets, these enter the image: {', '.join(request.user.secrets)}")
    return notices


# The Python package that is a framework.
_MAIN_PACKAGES = {"pytorch": "torch", "tensorflow": "tensorflow"}


def _allowed(request: Request, line: ImageLine) -> str:
    """The notice of ``--allow-change``.

    Raises:
        RequestError: the image does not extend one of AWS's, or the framework itself would change.
    """
    names = ", ".join(request.user.allow_change)
    if line.base.kind != "dlc":
        raise RequestError(
            f"--allow-change {names}: only for images that extend another one; here every package is in the lock",
            remedy="Use --set NAME=VERSION, or an image line with other versions.",
        )
    if (main := _MAIN_PACKAGES.get(line.main)) in request.user.allow_change:
        raise RequestError(
            f"--allow-change {main}: the image is named by the version of {main}",
            remedy="Extend the container of another version: --version",
        )
    return f"because of --allow-change, --with-requirements may change these packages of the base image: {names}"


def _unchecked(selections: Mapping[str, Selection], providers: Mapping[str, Provider]) -> list[str]:
    """The versions of a plan that no probe checks, and why."""
    reasons: dict[str, list[str]] = {}
    for name, chosen in selections.items():
        if why := providers[name].unchecked:
            reasons.setdefault(why, []).append(f"{name} {chosen.version}")
    return [f"not checked inside the image: {', '.join(found)} ({why})" for why, found in reasons.items()]


def _closed(selection: Selection, lock: Lock | None) -> Selection:
    """A selection whose version follows from the lock, with that version."""
    if selection.version != OPEN or lock is None:
        return selection
    locked = {package.name: package.version for package in lock.packages}
    return selection.replace(version=locked.get(normalise(selection.packages[0]), OPEN))


def _share_out(
    catalog: Catalog, draft: Draft, lock: Lock | None, selections: dict[str, Selection]
) -> dict[str, list[LockedPackage]]:
    """Each locked package that a chosen component needs, given to exactly one of them.

    The owner by pattern (the longest match) gets it; otherwise the first component, in the order of layers, that needs
    it. So CUDA's libraries share one layer, however many components need them. What is needed by build stages alone
    goes to one of their components (``builds_with``), and is not in the image.
    """
    providers = {n: catalog.components[n].component.providers[s.provider] for n, s in selections.items()}

    def left_behind(name: str, package: str) -> bool:
        """Whether a package is what the line's own provider of a component is, and another one was asked for."""
        own = draft.line.components.get(name)
        if own is None or own.provider in (BASE, selections[name].provider):
            return False
        line_s = catalog.components[name].component.providers[own.provider]
        return line_s.takes(package) and not providers[name].takes(package)

    owned: dict[str, list[LockedPackage]] = {name: [] for name in selections}
    owners = [(name, provider) for name, provider in providers.items() if provider.owns]
    for package in lock.packages if lock is not None else ():
        needing = [
            name
            for name, chosen in selections.items()
            if name in package.components and chosen.provider != BASE and not left_behind(name, package.name)
        ]
        if not needing:
            continue
        fits = [(providers[name].building(package.name), name) for name in needing]
        if not all(strength for strength, _ in fits):
            fits = [(provider.owning(package.name), name) for name, provider in owners]
        strength, owner = max(fits, default=(0, ""))
        owned[owner if strength else needing[0]].append(package)
    return owned


@lru_cache(maxsize=4096)  # lines share most of their packages
def _locked(package: LockedPackage) -> PlannedSource:
    return PlannedSource(
        package=f"{package.name}=={package.version}", file=package.file, sha256=package.sha256, size=package.size
    )


def _source(source: Any) -> PlannedSource:
    return PlannedSource(**source.as_json())


def _system_packages(provider: Provider, line: ImageLine, values: dict[str, str]) -> SystemPackages:
    """The distribution packages in the image."""
    chosen = provider.dnf if line.base.os.startswith("amazonlinux") else provider.apt
    return SystemPackages(
        build=tuple(fill(name, values) for name in chosen.build), run=tuple(fill(name, values) for name in chosen.run)
    )
