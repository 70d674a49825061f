"""Resolves a request against the catalog to a plan, or to a conflict that offers what does resolve.

Imports neither jinja2 nor docker nor boto3: ``plan`` does not need them if the plan's id is cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import BASE, ImageLine, Line, begins, cuda_tag, version_key
from trainwright.catalog.platforms import AMD64
from trainwright.catalog.wheel_lock import Lock
from trainwright.core.errors import Conflict, Failure, RequestError, did_you_mean
from trainwright.core.text import fits
from trainwright.plan.assemble import make_plan
from trainwright.plan.conflict import conflict, own_of, packaged_pythons
from trainwright.plan.destination import SAGEMAKER
from trainwright.plan.draft import Draft, is_whole, make_draft
from trainwright.plan.extend import SMP_FRAMEWORK, published, registry_reference
from trainwright.plan.fit import FOR, GPUS, PLATFORM, WITH_APT, keeps, objections, rules_against, words_of, worth
from trainwright.plan.offers import offers
from trainwright.plan.plan import Plan
from trainwright.plan.request import PROVIDER, Request

BASES = {"debian": "Debian root file system", "nvidia": "nvidia/cuda image", "dlc": "AWS Deep Learning Container"}
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
        image = line.base.image
        if image is None:  # a root file system of Debian's
            return base_image
        return registry_reference(image, region) if line.base.kind == "dlc" else image

    def made(asked: Request, found: Draft, locks: Locks | None) -> Plan:
        lock = _lock_of(found, asked.platform, locks)
        others = [
            *_two_ways(asked, catalog, found),
            *_others(asked, catalog, found),
            *_elsewhere(asked, catalog, found),
            *_given_up(asked, catalog, found),
        ]
        return make_plan(asked, catalog, found, lock, image=base(found.line), notices=others)

    def attempt(other: Request) -> Plan | None:
        try:
            _check_names(other, catalog)
            found = _find(other, catalog)
            return None if found is None else made(other, found, None)
        except Failure:
            return None

    _check_names(request, catalog)
    draft = _find(request, catalog)
    if draft is None:
        _check_pins(request, catalog)
        more = _entries(request, catalog)[len(catalog.lines_of(request.framework)) :]
        drafts = [make_draft(request, catalog, entry) for entry in (*catalog.lines, *more)]
        raise conflict(request, catalog, drafts, attempt)
    try:
        return made(request, draft, locks)
    except Conflict as refused:
        # No image line is to blame: uv found no packages for what was tried.
        own = [make_draft(request, catalog, entry) for entry in catalog.lines_of(request.framework)]
        raise Conflict(
            f"{', '.join(draft.unproven)}: {refused.message}",
            remedy="Use one of the commands above, or another version, as the reason says.",
            rows=refused.details["rows"],
            offers=offers(request, catalog, own, attempt),
        ) from None


def entry_taken(request: Request, catalog: Catalog) -> Line | None:
    """The image line that a request takes, with its file; ``None`` if no line answers it."""
    found = _find(request, catalog)
    return None if found is None else found.entry


def bare_of(catalog: Catalog, frameworks: Iterable[str] | None = None) -> set[Path]:
    """The files of the image lines that requests of a framework alone take.

    Args:
        catalog: has the lines.
        frameworks: by default all.
    """
    names = catalog.frameworks() if frameworks is None else frameworks
    taken = (entry_taken(Request(framework=name), catalog) for name in names)
    return {entry.path for entry in taken if entry is not None}


def line_taken(request: Request, catalog: Catalog) -> ImageLine | None:
    """As :func:`entry_taken`, without its file."""
    found = entry_taken(request, catalog)
    return None if found is None else found.line


def _find(request: Request, catalog: Catalog) -> Draft | None:
    """The best draft that answers the request: proven before unproven, CUDA before CPU, then the newest."""
    best_first = sorted(_in_line(request, catalog), key=worth, reverse=True)
    return next((draft for draft in best_first if _answers(request, catalog, draft)), None)


def _lock_of(draft: Draft, platform: str, locks: Locks | None) -> Lock | None:
    """Return the line's lock, or the one made for an unlisted draft; ``None`` if the base image provides everything."""
    if draft.unproven:
        return None if locks is None else locks(draft)
    if all(chosen.provider == BASE for chosen in draft.line.components.values()):
        return None
    return Lock.load(draft.entry.lock_for(platform))


def _fitting(request: Request, catalog: Catalog) -> list[Draft]:
    """Every draft that answers the request."""
    return [draft for draft in _in_line(request, catalog) if _answers(request, catalog, draft)]


def _answers(request: Request, catalog: Catalog, draft: Draft) -> bool:
    return next(objections(request, catalog, draft), None) is None


def _in_line(request: Request, catalog: Catalog) -> Iterator[Draft]:
    """A draft of each line that could answer the request, judged by the line alone."""
    version = None if request.allow_unproven else request.version
    lines = (entry for entry in _entries(request, catalog, version) if _in_question(request, entry.line))
    return (make_draft(request, catalog, entry) for entry in lines)


def _entries(request: Request, catalog: Catalog, version: str | None = None) -> list[Line]:
    """The image lines of a request's framework, and AWS's containers that it may mean and that have none.

    With ``version``, lines of other versions may be missing.
    """
    found = list(catalog.lines_of(request.framework, version))
    if request.base == "dlc" or (not found and request.framework == SMP_FRAMEWORK):
        lines = (entry.line for entry in found if entry.line.base.kind != "debian")
        own = {(line.version, line.published_cuda or line.cuda_tag) for line in lines}
        found += [each for each in published(request.framework) if not _described(each.line, own)]
    return found


def _described(container: ImageLine, own: set[tuple[str, str]]) -> bool:
    """Whether one of AWS's containers is that of an image line (version, and CUDA in AWS's tag); some of AWS's tags
    have the minor version alone."""
    return any(cuda == container.cuda_tag and begins(version, container.version) for version, cuda in own)


def _in_question(request: Request, line: ImageLine) -> bool:
    """Whether a line could answer a request, judged without reading components."""
    return (
        (request.cuda is None or line.goes_by_cuda(cuda_tag(request.cuda)))
        and request.python in (None, line.python)
        and (request.version is None or request.allow_unproven or begins(line.version, request.version))
    )


def _check_names(request: Request, catalog: Catalog) -> None:
    frameworks = [*catalog.frameworks(), SMP_FRAMEWORK]
    if request.framework not in frameworks:
        raise RequestError(
            f"no framework {request.framework!r}. {did_you_mean(request.framework, frameworks)}",
            remedy="./invoke list shows every image line.",
        )
    if request.base is not None and request.base not in BASES:
        raise RequestError(f"--base {request.base}: no such base. {did_you_mean(request.base, BASES)}")
    pinned = tuple(name for name, _ in request.set_)
    for name, wanted in request.set_:
        providers = catalog.components[name].component.providers if name in catalog.components else {}
        if providers and fits(PROVIDER, wanted) and wanted not in providers:
            raise RequestError(
                f"--set {name}={wanted}: not NAME=VERSION, and {name} has no provider {wanted}. "
                f"{did_you_mean(wanted, providers)}",
                remedy=f"For example: --set {name}={next(iter(providers))}",
            )
    for flag, names in (("--with", request.with_), ("--without", request.without), ("--set", pinned)):
        for name in names:
            # Names that rules foresee are valid: the answer is a conflict with the rule, not "no such component".
            if flag == "--without" or name not in catalog.rules.foreseen or name in catalog.frameworks():
                catalog.component(name, flag)
    for other, names in (("--with", request.with_), ("--set", pinned)):
        both = sorted(set(names) & set(request.without))
        if both:
            raise RequestError(f"{', '.join(both)}: named by both {other} and --without")
    mains = {entry.line.main for entry in _entries(request, catalog)} if request.without else set()
    if gone := sorted(mains & set(request.without)):
        raise RequestError(
            f"--without {gone[0]}: it is the framework of {request.framework} images",
            remedy="Omit that flag, or name another --framework: ./invoke list",
        )
    version = request.version if request.allow_unproven else None
    lines = [entry.line for entry in _entries(request, catalog)] if version else []
    if version and not any(begins(line.version, version) or is_whole(version, line) for line in lines):
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
    fitting = [make_draft(request, catalog, each.entry) for each in _fitting(request.replace(set_=()), catalog)]
    for name, version in request.set_ if fitting else ():
        if any(name in draft.selections for draft in fitting):
            continue
        optional = any(name in draft.line.options for draft in fitting)
        raise RequestError(
            f"--set {name}={version}: {name} is not in the plan",
            remedy=f"--with {name} adds it." if optional else "./invoke plan shows what is.",
        )


def _others(request: Request, catalog: Catalog, draft: Draft) -> list[str]:
    """A notice that the request, which has a CUDA version but no framework version, would match others as well."""
    if request.version is not None or request.cuda is None:
        return []
    fitting = [each for each in _fitting(request, catalog) if each.line.released]
    versions = {each.version for each in fitting} - {draft.version}
    if not versions:
        return []
    alike = (each.version for each in fitting if each.line.cuda == draft.line.cuda)
    newest = not any(version_key(version) > version_key(draft.version) for version in alike)
    how = "is the newest" if newest else "was chosen"
    named = ", ".join(sorted((v.partition("+")[0] for v in versions), key=version_key, reverse=True))
    return [f"{draft.line.framework} {draft.version} {how} for {draft.line.cuda_tag}; --version takes {named}"]


def _two_ways(request: Request, catalog: Catalog, draft: Draft) -> list[str]:
    """A notice that another base has the same versions, and what is missing there; AWS's containers, which hold
    what they hold, do not count."""
    line = draft.line
    if request.base is not None or line.base.kind == "dlc" or request.allow_unproven:
        return []
    fitting = [each for each in _fitting(request, catalog) if each.line.base.kind not in ("dlc", line.base.kind)]
    same = [each for each in fitting if (each.line.version, each.line.cuda) == (line.version, line.cuda)]
    if not same:
        return []
    other = max(same, key=worth).line
    here, there = (each.base.image or each.base.os for each in (line, other))
    missing = ", ".join(sorted(line.components.keys() - other.components.keys()))
    return [
        f"two lines have {line.framework} {line.version} with {line.cuda_tag}: this one starts from {here}, that of "
        f"--base {other.base.kind} from {there}" + (f", without {missing}" if missing else "")
    ]


def _elsewhere(request: Request, catalog: Catalog, draft: Draft) -> list[str]:
    """A notice that the requested Python is the reason why an image is not made from packages."""
    image = draft.line.base.image
    if request.python is None or request.base is not None or image is None:
        return []
    words = packaged_pythons(each.line for each in catalog.lines_of(request.framework))
    return [f"Python {request.python} comes with {image}; {words}"]


def _given_up(request: Request, catalog: Catalog, draft: Draft) -> list[str]:
    """A notice for each version or CUDA that the request would get without some of its words, and why the line that has
    it does not do: first without all of them, then with those that rule out the best line, and so on."""
    told, kept = list[str](), set[str]()
    while True:
        bare = _with_only(request, kept)
        try:
            best = None if bare == request else _find(bare, catalog)
        except RequestError:  # a line is only right without what the request leaves out
            return told
        if best is None or (best.line.version, best.line.cuda) == (draft.line.version, draft.line.cuda):
            return told
        words, why = _ruled_out(request, catalog, best)
        if kept.issuperset(words):
            return told
        if draft.line.cuda == "cpu" != best.line.cuda:
            why.append("this image is for CPUs only")
        elif draft.line.base.kind == "dlc" != best.line.base.kind:
            why.append(f"this image extends an {BASES['dlc']}")
        what = f"{best.line.framework} {best.version} with {best.line.cuda_tag}"
        told.append(f"{what} was given up for {', '.join(words)}: {'; '.join(why)}")
        kept.update(words)


def _with_only(request: Request, words: set[str]) -> Request:
    """The request without all words that choose between lines of the same framework, version, CUDA and base, except
    these."""

    def named(flag: str, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if f"{flag} {name}" in words)

    apt = any(word.startswith(f"{WITH_APT} ") for word in words)
    return request.replace(
        python=request.python if f"--python {request.python}" in words else None,
        destination=request.destination if f"{FOR} {request.destination}" in words else SAGEMAKER,
        platform=request.platform if f"{PLATFORM} {request.platform}" in words else AMD64,
        with_=named("--with", request.with_),
        without=named("--without", request.without),
        set_=tuple(pin for pin in request.set_ if f"--set {'='.join(pin)}" in words),
        gpus=request.gpus if f"{GPUS} {','.join(request.gpus)}" in words else (),
        user=request.user if apt else request.user.replace(apt=()),
    )


def _ruled_out(request: Request, catalog: Catalog, best: Draft) -> tuple[list[str], list[str]]:
    """The words of a request that a line cannot have, and why."""
    wanted = make_draft(request, catalog, best.entry)
    found = list(objections(request, catalog, wanted))
    words = [word for word in words_of(request) if any(word in each.words for each in found)]
    told_by_facts = (FOR, PLATFORM, WITH_APT)
    missing = [w for w in words if not keeps(w, wanted) and w.partition(" ")[0] not in told_by_facts]
    why = [f"{best.file} has {own_of(word, wanted)}" for word in missing]
    why += sorted({constraint for each in found for constraint, _ in each.facts})
    added = (name for name in request.with_ if f"--with {name}" in words)
    rules = [rule for name in added for rule in rules_against(name, catalog, best)][:1]
    why = [each for each in why if each not in {rule.refuse for rule in rules}]
    return words, why + [f"{rule.refuse}: {rule.why}" for rule in rules]
