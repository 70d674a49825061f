"""Resolves a request against the catalog to a plan, or to a conflict that offers what does resolve.

Imports neither jinja2 nor docker nor boto3: ``plan`` does not need them if the plan's id is cached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from trainwright.catalog import incompatibilities
from trainwright.catalog.catalog import BASE, Catalog, target_of
from trainwright.catalog.component import Provider, SystemPackages, fill
from trainwright.catalog.image_line import ImageLine, Selection, begins, cuda_tag, version_key
from trainwright.catalog.wheel_lock import Lock, LockedPackage, normalise
from trainwright.core.errors import Conflict, Failure, RequestError, did_you_mean
from trainwright.plan.conflict import conflict, offers
from trainwright.plan.draft import OPEN, Draft, facts_of, is_whole, make_draft
from trainwright.plan.extend import registry_reference
from trainwright.plan.fit import objections
from trainwright.plan.identity import identify
from trainwright.plan.plan import (
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

BASES = {"debian": "Debian root file system", "nvidia": "nvidia/cuda image", "dlc": "AWS Deep Learning Container"}
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Returns the lock of a draft that is in no image line, if there is one.
Locks = Callable[[Draft], Lock | None]


def resolve(
    request: Request,
    catalog: Catalog,
    base_image: str | None = None,
    locks: Locks | None = None,
    region: str | None = None,
) -> Plan:
    """The plan for a request.

    Args:
        request: what is asked for.
        catalog: lines, components and rules.
        base_image: a registry reference that replaces the Debian base, if the site has one.
        locks: returns the lock of what no image line has (``--allow-unproven``); without it the plan has no Python
            packages and cannot be built.
        region: of the registry of Deep Learning Containers; by default the public gallery or us-west-2.

    Raises:
        RequestError: a name is unknown, or a pinned component is not in the plan.
        Conflict: the names are known but incompatible; with the reasons and the nearest compatible sets.
    """

    def base(line: ImageLine) -> str | None:
        if line.base.kind == "dlc" and line.base.image is not None:
            return registry_reference(line.base.image, region)
        return line.base.image or (base_image if line.base.kind == "debian" else None)

    def attempt(other: Request) -> Plan | None:
        try:
            _check_names(other, catalog)
            found = _find(other, catalog)
            return None if found is None else _make_plan(other, catalog, found, _lock_of(found, None), base)
        except Failure:
            return None

    _check_names(request, catalog)
    draft = _find(request, catalog)
    if draft is None:
        _check_pins(request, catalog)
        raise conflict(request, catalog, [make_draft(request, catalog, entry) for entry in catalog.lines], attempt)
    try:
        return _make_plan(request, catalog, draft, _lock_of(draft, locks), base)
    except Conflict as refused:
        # No image line is to blame: uv found no packages for what was tried.
        own = [make_draft(request, catalog, entry) for entry in catalog.lines_of(request.framework)]
        raise Conflict(
            f"{', '.join(draft.unproven)}: {refused.message}",
            remedy="Use one of the commands above, or another version, as the reason says.",
            rows=refused.details["rows"],
            offers=offers(request, catalog, own, attempt),
        ) from None


def _find(request: Request, catalog: Catalog) -> Draft | None:
    """The best draft that answers the request: proven before unproven, CUDA before CPU, then the newest."""
    return max(_fitting(request, catalog), key=_worth, default=None)


def _lock_of(draft: Draft, locks: Locks | None) -> Lock | None:
    """The lock of the line, or if the draft is in no line, the one made for it."""
    if draft.unproven:
        return None if locks is None else locks(draft)
    return Lock.load(draft.entry.lock_path)


def _worth(draft: Draft) -> tuple[Any, ...]:
    """The sort key of drafts, most important first: proven by a line, published as an image, CUDA, fewer components
    that differ from their line, newer versions; then a base made from packages, and of AWS's own variants the
    preferred or latest line."""
    line = draft.line
    return (
        not draft.unproven,
        line.released,
        line.cuda != "cpu",
        -len(_pinned(draft)),
        version_key(line.cuda),
        version_key(line.version),
        line.base.kind == "debian",
        line.preferred,
        max(each.date for each in line.evidence),
        draft.file,
    )


def _fitting(request: Request, catalog: Catalog) -> list[Draft]:
    version = None if request.allow_unproven else request.version
    lines = (entry for entry in catalog.lines_of(request.framework, version) if _in_question(request, entry.line))
    drafts = (make_draft(request, catalog, entry) for entry in lines)
    return [draft for draft in drafts if next(objections(request, catalog, draft), None) is None]


def _in_question(request: Request, line: ImageLine) -> bool:
    """Whether a line could answer a request, judged without reading components."""
    return (
        (request.cuda is None or line.goes_by_cuda(cuda_tag(request.cuda)))
        and request.python in (None, line.python)
        and (request.version is None or request.allow_unproven or begins(line.version, request.version))
    )


def _check_names(request: Request, catalog: Catalog) -> None:
    if request.framework not in catalog.frameworks():
        raise RequestError(
            f"no framework {request.framework!r}. {did_you_mean(request.framework, catalog.frameworks())}",
            remedy="./invoke list shows every image line.",
        )
    if request.base is not None and request.base not in BASES:
        raise RequestError(f"--base {request.base}: no such kind of base. {did_you_mean(request.base, BASES)}")
    pinned = tuple(name for name, _ in request.set_)
    for flag, names in (("--with", request.with_), ("--without", request.without), ("--set", pinned)):
        for name in names:
            # Names that rules foresee are valid: the answer is a conflict with the rule, not "no such component".
            if flag == "--without" or name not in catalog.rules.foreseen or name in catalog.frameworks():
                catalog.component(name, flag)
    for other, names in (("--with", request.with_), ("--set", pinned)):
        both = sorted(set(names) & set(request.without))
        if both:
            raise RequestError(f"{', '.join(both)}: named by both {other} and --without")
    version = request.version
    lines = [entry.line for entry in catalog.lines_of(request.framework)] if request.allow_unproven and version else []
    if lines and version and not any(begins(line.version, version) or is_whole(version, line) for line in lines):
        newest = max((line.version for line in lines), key=version_key)
        raise RequestError(
            f"--version {version}: not a complete version, so --allow-unproven cannot try it",
            remedy=f"Write the complete version, as in --version {newest}.",
        )


def _check_pins(request: Request, catalog: Catalog) -> None:
    """Refuse to pin what is not in the plan: the rest of the request resolves, and no draft contains it.

    Raises:
        RequestError: a component of ``--set`` is missing.
    """
    fitting = _fitting(request.replace(set_=()), catalog)
    for name, version in request.set_ if fitting else ():
        if any(name in draft.selections for draft in fitting):
            continue
        optional = any(name in draft.line.options for draft in fitting)
        raise RequestError(
            f"--set {name}={version}: {name} is not in the plan",
            remedy=f"--with {name} adds it." if optional else "./invoke plan shows what is.",
        )


def _make_plan(
    request: Request, catalog: Catalog, draft: Draft, lock: Lock | None, base: Callable[[ImageLine], str | None]
) -> Plan:
    line = draft.line
    selections = {name: _closed(chosen, lock) for name, chosen in draft.selections.items()}
    providers = {n: catalog.components[n].component.providers[s.provider] for n, s in selections.items()}
    owned = _share_out(lock, selections, providers)
    components: list[PlannedComponent] = []
    environment: dict[str, str] = {}
    path: list[str] = []
    notices = list(line.notices)
    expect: list[Expectation] = []
    probes: list[PlannedProbe] = []
    for name, chosen in selections.items():
        folder, provider = catalog.components[name], providers[name]
        known = {
            "version": chosen.version,
            "cuda": line.cuda,
            "python": line.python,
            "framework": line.main,
            "architectures": " ".join(line.architectures),
        }
        values = known | {key: fill(text, known) for key, text in provider.values_for(chosen.version).items()}
        sources = provider.sources_for(chosen.version, target_of(line, draft.version)) or ()
        components.append(
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
                files=folder.files,
                evidence=line.evidence if name == line.main and not draft.unproven else (),
            )
        )
        environment |= {key: fill(text, values) for key, text in provider.environment.items()}
        path += [directory for directory in provider.path if directory not in path]
        told = values | {"code": request.user.code_sha256 or "*"}
        expect += [
            Expectation(component=name, fact=fact, value=fill(text, told)) for fact, text in provider.expect.items()
        ]
        steps = provider.probe or folder.component.probe if provider.expect else ()
        probes += [PlannedProbe(component=name, **step.as_json()) for step in steps]
        if chosen.provider != BASE:
            notices += [note.says for note in folder.component.notices if note.unless not in selections]
    notices += _unchecked(selections, providers)
    if path:
        # A Deep Learning Container keeps its own PATH.
        rest = DEFAULT_PATH if line.base.kind != "dlc" else "${PATH}"
        environment = {"PATH": ":".join([*path, rest]), **environment}
    environment |= JOB_CONSTRAINTS
    if request.user.entry_point:
        environment["SAGEMAKER_PROGRAM"] = request.user.entry_point
        notices.append("code is baked into /opt/ml/code: an estimator's source_dir would be ignored by the toolkit")
    if request.user.secrets:
        notices.append(f"because of --allow-secrets, these enter the image: {', '.join(request.user.secrets)}")
    if line.status != "supported" and draft.version == line.version:
        notices.append(
            f"{line.framework} {line.version} is {line.status.replace('-', ' ')}: no fixes come from upstream"
        )
    notices += incompatibilities.notices(catalog.rules.rules, facts_of(request, draft))
    notices += _differences(draft, lock)
    notices += _others(request, catalog, draft)
    image = base(line)
    fields: dict[str, Any] = {
        "framework": line.framework,
        "version": draft.version,
        "cuda": line.cuda,
        "python": line.python,
        "base": Base(
            kind=line.base.kind,
            os=line.base.os,
            image=image,
            digest=image.rpartition("@")[2] if image and "@" in image else None,
            build_image=line.base.build_image if line.base.build_image != image else None,
        ),
        "flavour": _flavour(draft),
        "unproven": draft.unproven,
        "components": tuple(components),
        "environment": environment,
        "notices": tuple(notices),
        "expect": tuple(expect),
        "probes": tuple(probes),
        "user": request.user,
    }
    return finish(fields, lambda plan: identify(plan, catalog))


def _unchecked(selections: Mapping[str, Selection], providers: Mapping[str, Provider]) -> list[str]:
    """The versions of a plan that no probe checks, and why."""
    reasons: dict[str, list[str]] = {}
    for name, chosen in selections.items():
        if why := providers[name].unchecked:
            reasons.setdefault(why, []).append(f"{name} {chosen.version}")
    return [f"not checked inside the image: {', '.join(found)} ({why})" for why, found in reasons.items()]


def _others(request: Request, catalog: Catalog, draft: Draft) -> list[str]:
    """A notice that the request, which has a CUDA version but no framework version, would match others as well."""
    if request.version is not None or request.cuda is None:
        return []
    versions = {each.version for each in _fitting(request, catalog) if each.line.released} - {draft.version}
    if not versions:
        return []
    named = ", ".join(sorted((v.partition("+")[0] for v in versions), key=version_key, reverse=True))
    return [f"{draft.line.framework} {draft.version} is the newest for {draft.line.cuda_tag}; --version takes {named}"]


def _pinned(draft: Draft) -> dict[str, tuple[str, str]]:
    """Components changed by ``--set``: the line's version and the pinned one."""
    own = {**draft.line.options, **draft.line.components}
    return {
        name: (own[name].version, chosen.version)
        for name, chosen in draft.selections.items()
        if name in own and name != draft.line.main and chosen.version not in (own[name].version, OPEN)
    }


def _flavour(draft: Draft) -> str:
    """What distinguishes the image from its line, as in a tag."""
    own = draft.line.components
    parts = [draft.line.variant] if draft.line.variant else []
    parts += [name for name in sorted(draft.selections) if name not in own]
    parts += [f"no-{name}" for name in sorted(own) if name not in draft.selections]
    parts += [f"{name}{version.replace('+', '.')}" for name, (_, version) in sorted(_pinned(draft).items())]
    return "-".join([*parts, "unproven"] if draft.unproven else parts)


def _differences(draft: Draft, lock: Lock | None) -> list[str]:
    """What a user should know about a plan that differs from its line."""
    told = [
        f"{name} {version} was asked for; {draft.file} has {own}"
        for name, (own, version) in sorted(_pinned(draft).items())
    ]
    if draft.unproven:
        told.append(
            f"unproven: {', '.join(draft.unproven)}; the rest is as in {draft.file}, and this combination is untested"
        )
        if lock is None:
            told.append(
                "its Python packages have no lock yet; build and render make one, which needs the package index"
            )
    return told


def _closed(selection: Selection, lock: Lock | None) -> Selection:
    """A selection whose version follows from the lock, with that version."""
    if selection.version != OPEN or lock is None:
        return selection
    locked = {package.name: package.version for package in lock.packages}
    return selection.replace(version=locked.get(normalise(selection.packages[0]), OPEN))


def _share_out(
    lock: Lock | None, selections: dict[str, Selection], providers: dict[str, Provider]
) -> dict[str, list[LockedPackage]]:
    """Each locked package that a chosen component needs, given to exactly one of them.

    The owner by pattern (the longest match) gets it; otherwise the first component, in the order of layers, that needs
    it. So CUDA's libraries share one layer, however many components need them.
    """
    owned: dict[str, list[LockedPackage]] = {name: [] for name in selections}
    for package in lock.packages if lock is not None else ():
        needing = [n for n, chosen in selections.items() if n in package.components and chosen.provider != BASE]
        if not needing:
            continue
        patterns = [
            (len(pattern), name)
            for name, provider in providers.items()
            for pattern in provider.owns
            if fnmatchcase(package.name, pattern)
        ]
        owned[max(patterns)[1] if patterns else needing[0]].append(package)
    return owned


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
