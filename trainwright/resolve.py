"""From a request and the catalog to a plan, or to a conflict that offers what does hold together.

Imports neither jinja2 nor docker nor boto3: ``plan`` is answered without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from trainwright import plan as planning
from trainwright.catalog import Catalog, Line, Provider, Selection, cuda_tag, version_key
from trainwright.errors import Conflict, Failure, RequestError, did_you_mean
from trainwright.lock import Lock, LockedPackage
from trainwright.paths import templates_dir
from trainwright.plan import Base, Expectation, Plan, PlannedComponent, PlannedProbe, PlannedSource
from trainwright.request import Request

BASES = {"debian": "Debian root file system", "nvidia": "nvidia/cuda image", "dlc": "AWS Deep Learning Container"}
USER = "user"


def resolve(request: Request, catalog: Catalog, base_image: str | None = None) -> Plan:
    """The plan for a request.

    Args:
        request: what is asked for.
        catalog: lines and components.
        base_image: a registry reference that stands for the Debian base, where the site names one.

    Raises:
        RequestError: a name that the catalog does not know.
        Conflict: names that are known but do not hold together; with the reasons and the nearest sets that do.
    """
    _check_names(request, catalog)
    entry = _find_line(request, catalog)
    selections = _select(request, catalog, entry)
    _check_together(request, catalog, entry, selections)
    return _make_plan(request, catalog, entry, selections, base_image)


def _check_names(request: Request, catalog: Catalog) -> None:
    if request.framework not in catalog.frameworks():
        raise RequestError(
            f"no framework {request.framework!r}. {did_you_mean(request.framework, catalog.frameworks())}",
            remedy="./invoke list shows every image line.",
        )
    if request.base is not None and request.base not in BASES:
        raise RequestError(f"--base {request.base}: no such kind of base. {did_you_mean(request.base, BASES)}")
    for flag, names in (("--with", request.with_), ("--without", request.without)):
        for name in names:
            catalog.component(name, flag)
    both = sorted(set(request.with_) & set(request.without))
    if both:
        raise RequestError(f"{', '.join(both)}: named by both --with and --without")


def nearest_from_packages(plan: Plan, catalog: Catalog) -> str | None:
    """The command line of the image line nearest to a plan that package registries alone can build, if there is one."""
    like = Request(framework=plan.framework, cuda=plan.cuda, version=plan.version)
    fitting = [entry for entry in catalog.lines if catalog.from_packages(entry)]
    best = min(fitting, key=lambda e: (e.line.framework != plan.framework, _distance(like, e)), default=None)
    if best is None:
        return None
    line = best.line
    return f"./invoke build --framework {line.framework} --cuda {line.cuda_tag} --version {line.version.split('+')[0]}"


def _mismatches(request: Request, entry: Line) -> list[tuple[str, str]]:
    """What keeps a line from answering the request: (constraint, what the line has)."""
    line = entry.line
    found = []
    if request.cuda is not None and request.cuda != line.cuda:
        found.append((f"--cuda {cuda_tag(request.cuda)}", line.cuda_tag))
    if request.version is not None and not _begins(line.version, request.version):
        found.append((f"--version {request.version}", line.version))
    if request.python is not None and request.python != line.python:
        found.append((f"--python {request.python}", line.python))
    if request.base is not None and request.base != line.base.split("-")[0]:
        found.append((f"--base {request.base}", line.base))
    found.extend(
        (f"--with {name}", f"no provider of {name} is known for this line")
        for name in request.with_
        if name != USER and name not in line.components and name not in line.options
    )
    return found


def _begins(version: str, prefix: str) -> bool:
    """Whether a version is, or begins with, the parts of another: 2.6.0 begins with 2.6, not with 2."""
    plain = version.split("+", maxsplit=1)[0]
    return prefix in (version, plain) or plain.startswith(prefix + ".")


def _find_line(request: Request, catalog: Catalog) -> Line:
    lines = [entry for entry in catalog.lines if entry.line.framework == request.framework]
    fitting = [entry for entry in lines if not _mismatches(request, entry)]
    if fitting:
        # Without --cuda the CPU line is never meant: the newest CUDA line is. Lines are sorted oldest first.
        with_cuda = [entry for entry in fitting if entry.line.cuda != "cpu"]
        return (with_cuda or fitting)[-1]
    near = sorted(lines, key=lambda entry: _distance(request, entry))
    raise _conflict(request, catalog, near)


def _distance(request: Request, entry: Line) -> tuple[int, float]:
    """How far a line is from the request: number of differences, then how far apart the CUDA versions are."""
    apart = 0.0
    if request.cuda is not None and request.cuda != entry.line.cuda:
        wanted, has = version_key(request.cuda), version_key(entry.line.cuda)
        apart = abs((wanted[0] * 10 + wanted[1]) - (has[0] * 10 + has[1])) if wanted and has else 1000.0
    if request.version is not None:
        wanted, has = version_key(request.version), version_key(entry.line.version)
        apart += sum(abs(a - b) * 100.0 ** (1 - i) for i, (a, b) in enumerate(zip(wanted, has, strict=False)))
    return len(_mismatches(request, entry)), apart


def _conflict(request: Request, catalog: Catalog, near: list[Line]) -> Conflict:
    wanted = " ".join(_flags(request))
    asked = {constraint for entry in near for constraint, _ in _mismatches(request, entry)}
    rows = []
    for constraint in sorted(asked):
        has = sorted({text for entry in near for c, text in _mismatches(request, entry) if c == constraint})
        single = all(_mismatches(request, e) and any(c == constraint for c, _ in _mismatches(request, e)) for e in near)
        why = "no image line has it" if single else "no image line has it together with the rest"
        rows.append({"constraint": constraint, "evidence": f"{why}; lines have {', '.join(has)}"})
    return Conflict(
        f"no image line for {wanted}",
        remedy="Take one of the offers, or add an image line (CONTRIBUTING.md says how).",
        rows=rows,
        offers=_offers(request, catalog, near),
    )


def _offers(request: Request, catalog: Catalog, near: Iterable[Line], count: int = 3) -> list[dict[str, str]]:
    """The nearest requests that do resolve, as complete command lines."""
    offers = []
    for entry in near:
        line = entry.line
        kept = tuple(n for n in request.with_ if n == USER or n in line.components or n in line.options)
        offered = request.model_copy(
            update={"cuda": line.cuda, "version": None, "python": None, "base": None, "with_": kept}
        )
        try:
            plan = _make_plan(offered, catalog, entry, _select(offered, catalog, entry), None)
        except Failure:
            continue
        words = ["./invoke build", *_flags(offered), f"--version {line.version.split('+')[0]}"]
        offers.append({"command": " ".join(words), "plan id": plan.id})
        if len(offers) == count:
            break
    return offers


def _flags(request: Request) -> list[str]:
    words = [f"--framework {request.framework}"]
    if request.cuda is not None:
        words.append(f"--cuda {cuda_tag(request.cuda)}")
    for flag, value in (("--version", request.version), ("--python", request.python), ("--base", request.base)):
        if value is not None:
            words.append(f"{flag} {value}")
    if request.with_:
        words.append(f"--with {','.join(request.with_)}")
    if request.without:
        words.append(f"--without {','.join(request.without)}")
    return words


def _select(request: Request, catalog: Catalog, entry: Line) -> dict[str, Selection]:
    """The chosen components, in the order of their layers."""
    chosen = {n: s for n, s in entry.line.components.items() if n not in request.without}
    for name in request.with_:
        if name in entry.line.options:
            chosen[name] = entry.line.options[name]
    user = request.user
    if user.requirements or user.code or USER in request.with_:
        chosen[USER] = Selection(provider="files", version="1")
    return dict(sorted(chosen.items(), key=lambda item: (catalog.components[item[0]].component.order, item[0])))


def _broken_rules(catalog: Catalog, selections: dict[str, Selection]) -> list[tuple[str, str, str]]:
    """Every ``requires`` and ``excludes`` that does not hold: (component, rule, other)."""
    offered = {name for chosen in selections for name in (chosen, *catalog.components[chosen].component.provides)}
    rules = []
    for name in selections:
        component = catalog.components[name].component
        rules += [(name, "requires", need) for need in component.requires if need not in offered]
        rules += [(name, "excludes", other) for other in component.excludes if other in offered and other != name]
    return rules


def _check_together(request: Request, catalog: Catalog, entry: Line, selections: dict[str, Selection]) -> None:
    """Refuse components that do not hold together; offer to keep what is required, or to leave out what requires it."""
    rules = _broken_rules(catalog, selections)
    if not rules:
        return
    rows = [
        {"constraint": " ".join(rule), "evidence": f"{rule[0]}: {catalog.components[rule[0]].component.summary}"}
        for rule in rules
    ]
    offers = []
    for keep in (True, False):
        offer = _settle(request, catalog, entry, keep_required=keep)
        if offer is not None:
            plan = _make_plan(offer, catalog, entry, _select(offer, catalog, entry), None)
            offers.append({"command": " ".join(["./invoke build", *_flags(offer)]), "plan id": plan.id})
    raise Conflict(
        "; ".join(row["constraint"] for row in rows),
        remedy=f"Keep what is required, or leave out what requires it ({entry.path.name}).",
        rows=rows,
        offers=offers,
    )


def _settle(request: Request, catalog: Catalog, entry: Line, *, keep_required: bool) -> Request | None:
    """The nearest request whose components hold together, or nothing where a rule cannot be met this way."""
    offer = request
    # Each round changes the request or ends the search, so there are no more rounds than components.
    for _ in catalog.components:
        rules = _broken_rules(catalog, _select(offer, catalog, entry))
        if not rules:
            return offer
        if keep_required:
            needed = {other for _, rule, other in rules if rule == "requires"}
            kept = tuple(name for name in offer.without if name not in needed)
            if kept == offer.without:
                return None
            offer = offer.model_copy(update={"without": kept})
        else:
            broken = {name for name, _, _ in rules}
            offer = offer.model_copy(
                update={
                    "without": tuple(dict.fromkeys((*offer.without, *sorted(broken)))),
                    "with_": tuple(name for name in offer.with_ if name not in broken),
                }
            )
    return None


def _make_plan(
    request: Request, catalog: Catalog, entry: Line, selections: dict[str, Selection], base_image: str | None
) -> Plan:
    line = entry.line
    providers = {n: catalog.components[n].component.providers[s.provider] for n, s in selections.items()}
    owned = _share_out(Lock.load(entry.lock_path), selections, providers)
    components: list[PlannedComponent] = []
    environment: dict[str, str] = {}
    notices = list(line.notices)
    expect: list[Expectation] = []
    probes: list[PlannedProbe] = []
    for name, chosen in selections.items():
        folder, provider = catalog.components[name], providers[name]
        known = provider.versions.get(chosen.version)
        values = {
            "version": chosen.version,
            "cuda": line.cuda,
            "python": line.python,
            **(known.values if known else {}),
        }
        components.append(
            PlannedComponent(
                name=name,
                version=chosen.version,
                provider=chosen.provider,
                order=folder.component.order,
                packages=chosen.packages,
                index=chosen.index,
                sources=(*(_source(s) for s in (known.sources if known else ())), *(_locked(p) for p in owned[name])),
                values=values,
                apt=provider.apt,
                compile_memory_gb=provider.compile_memory_gb,
                recipe=folder.recipe,
                evidence=line.evidence if name == line.framework else (),
            )
        )
        environment |= {key: _fill(text, values) for key, text in provider.environment.items()}
        expect += [
            Expectation(component=name, fact=fact, value=_fill(text, values)) for fact, text in provider.expect.items()
        ]
        probes += [PlannedProbe(component=name, **step.model_dump()) for step in folder.component.probe]
        notices += [note.says for note in folder.component.notices if note.unless not in selections]
    if request.user.entry_point:
        environment["SAGEMAKER_PROGRAM"] = request.user.entry_point
        notices.append("code is baked into /opt/ml/code: an estimator's source_dir would be ignored by the toolkit")
    if line.status != "supported":
        notices.append(
            f"{line.framework} {line.version} is {line.status.replace('-', ' ')}: no fixes come from upstream"
        )
    fields: dict[str, Any] = {
        "framework": line.framework,
        "version": line.version,
        "cuda": line.cuda,
        "python": line.python,
        "base": Base(
            kind=line.base.split("-")[0],
            os=line.base,
            image=base_image,
            digest=base_image.rpartition("@")[2] if base_image and "@" in base_image else None,
        ),
        "flavour": "-".join(
            [n for n in sorted(selections) if n not in line.components]
            + [f"no-{n}" for n in sorted(line.components) if n not in selections]
        ),
        "components": tuple(components),
        "environment": environment,
        "notices": tuple(notices),
        "expect": tuple(expect),
        "probes": tuple(probes),
        "user": request.user,
        "skeleton": _skeleton_recipe(),
    }
    return planning.finish(fields)


def _share_out(
    lock: Lock, selections: dict[str, Selection], providers: dict[str, Provider]
) -> dict[str, list[LockedPackage]]:
    """Each locked package that a chosen component needs, given to exactly one of them.

    The owner by pattern (the longest that matches) takes it; otherwise the first, in the order of layers, that needs
    it. So CUDA's libraries share one layer however many components ask for them.
    """
    owned: dict[str, list[LockedPackage]] = {name: [] for name in selections}
    for package in lock.packages:
        needing = [name for name in selections if name in package.components]
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
    return PlannedSource(**source.model_dump())


def _fill(text: str, values: dict[str, str]) -> str:
    for key, value in values.items():
        text = text.replace("{" + key + "}", value)
    return text


def _skeleton_recipe() -> str:
    """A digest of the templates that every Dockerfile shares."""
    import hashlib

    digest = hashlib.sha256()
    for path in sorted(p for p in templates_dir().iterdir() if p.suffix in (".j2", ".sh")):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()
