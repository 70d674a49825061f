"""The requests nearest to one that cannot be resolved: what a conflict offers, as command lines that were tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, product

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import Line, cuda_tag, version_key
from trainwright.catalog.incompatibilities import broken
from trainwright.catalog.platforms import AMD64
from trainwright.plan.destination import SAGEMAKER
from trainwright.plan.draft import Draft, facts_of, make_draft
from trainwright.plan.fit import FOR, GPUS, PLATFORM, Objection, keeps, objections, words_of
from trainwright.plan.plan import Plan
from trainwright.plan.request import Request

Attempt = Callable[[Request], Plan | None]


def offers(request: Request, catalog: Catalog, drafts: list[Draft], attempt: Attempt) -> list[dict[str, str]]:
    """The three nearest requests that resolve, as complete command lines; each was tried.

    If the first two leave out what ``--with`` adds, the third is of a line that has it. AWS's container of a version
    that no line has comes first."""
    found = _in_a_container(request, drafts, attempt)
    adding, added, later = [f"--with {name}" for name in request.with_], bool(found), list[Draft]()

    def near(draft: Draft) -> tuple[int, int, bool, float, bool, int]:
        ways = _left_out(request, catalog, draft)
        others = [distance(way, catalog, make_draft(way, catalog, draft.entry)) for way in ways]
        return min([distance(request, catalog, draft), *others])

    nearest = sorted(drafts, key=near)
    for draft in chain(nearest, later):
        if len(found) == 2 and not added and draft not in later and not all(keeps(word, draft) for word in adding):
            later.append(draft)
            continue
        ways = (*_untied(request, catalog, draft), *_left_out(request, catalog, draft))
        tries = [(each, True) for each in ways]
        for wanted, keep_required in [*tries, (request, True), (request, False)]:
            offer = _settle(wanted, catalog, draft.entry, keep_required=keep_required)
            if wanted is not request and (offer is None or offer.set_ != wanted.set_):
                continue  # a way of its own that this line does not have
            if offer is not None and (plan := attempt(offer)) is not None:
                found.setdefault(plan.id, f"./invoke build {offer.flags()}")
                added = added or offer.with_ == request.with_
            if len(found) == 3:
                return [{"command": command, "plan id": identity} for identity, command in found.items()]
    return [{"command": command, "plan id": identity} for identity, command in found.items()]


def _in_a_container(request: Request, drafts: list[Draft], attempt: Attempt) -> dict[str, str]:
    """The request in AWS's container, if no image line has its version: plan id → command."""
    word = f"--version {request.version}"
    if request.base is not None or request.version is None or any(keeps(word, draft) for draft in drafts):
        return {}
    plan = attempt(request.replace(base="dlc"))
    if plan is None:
        return {}
    offer = request.replace(base="dlc", cuda=plan.cuda, version=plan.version)
    return {plan.id: f"./invoke build {offer.flags()}"}


def _left_out(request: Request, catalog: Catalog, draft: Draft) -> Iterator[Request]:
    """The request without the components that, as rules say, are to be left out for one of its pins."""
    refused = broken(catalog.rules.rules, facts_of(request, catalog, draft))
    rules = [rule for rule, words in refused if any(word.startswith("--set ") for word in words)]
    gone = {name for rule in rules for name in rule.when.components if f"--without {name}" in rule.why}
    if gone:
        yield request.replace(without=tuple(dict.fromkeys((*request.without, *sorted(gone)))))


def _untied(request: Request, catalog: Catalog, draft: Draft) -> Iterator[Request]:
    """The request with components of their own in place of those whose version in a pinned installer is not known."""
    pins = dict(request.set_)
    ways: list[list[tuple[str, str]]] = []
    for name, chosen in draft.selections.items():
        providers = catalog.components[name].component.providers
        tied = providers[chosen.provider].tied
        if tied is not None and tied.to in pins and name not in pins and pins[tied.to] not in tied.versions:
            own = [key for key, each in providers.items() if each.tied is None and chosen.version in each.versions]
            ways.append([(name, key) for key in own])
    for way in product(*ways) if ways else ():
        yield request.replace(set_=tuple(sorted((*request.set_, *way))))


def distance(request: Request, catalog: Catalog, draft: Draft) -> tuple[int, int, bool, float, bool, int]:
    """How far a line is from the request: by words that it cannot keep (``--set`` weighs more), by being unpublished,
    by the distance of CUDA and framework versions; then CUDA before CPU, newest first."""
    line = draft.line
    lost = {word for objection in objections(request, catalog, draft) for word in objection.words}
    # Another pin gives what such a word asks for.
    lost -= {f"--set {name}={version}" for name, version in request.set_ if _bringing(catalog, draft, name, version)}
    apart = 0.0
    if request.cuda is not None and request.cuda != line.cuda:
        wanted, has = version_key(request.cuda), version_key(line.cuda)
        apart = abs((wanted[0] * 10 + wanted[1]) - (has[0] * 10 + has[1])) if wanted and has else 1000.0
        if line.cuda_tag.startswith(cuda_tag(request.cuda)):  # cu12 means one of cu121, cu124, ...
            apart = 0.0
    if request.version is not None:
        wanted, has = version_key(request.version), version_key(line.version)
        # The first number that differs is the distance; 1.10 is no nearer to 2.5 than 1.12 is.
        places = enumerate(zip(wanted, has, strict=False))
        apart += next((abs(a - b) * 100.0 ** (1 - place) for place, (a, b) in places if a != b), 0.0)
    age = version_key(line.version)
    newness = sum(number * 1000 ** (2 - place) for place, number in enumerate(age))
    pins = sum(word.startswith("--set") for word in lost)
    # Another version can be used instead, another processor cannot.
    cannot = len(lost) + 2 * any(word.startswith(PLATFORM) for word in lost)
    return cannot, pins, not line.released, apart, line.cuda == "cpu", -newness


def _settle(request: Request, catalog: Catalog, entry: Line, *, keep_required: bool) -> Request | None:
    """The nearest request that this line answers, or None if it answers no such request.

    Args:
        request: what was asked for.
        catalog: lines and components.
        entry: the line that is to answer.
        keep_required: keep what a component requires; otherwise leave out the component.
    """
    line = entry.line
    offer = request.replace(
        cuda=line.cuda,
        version=line.version.partition("+")[0],
        python=None if request.python is None else line.python,
        base=None if request.base is None else line.base.kind,
        allow_unproven=False,
    )
    # Each round removes words or adds components to leave out, so there are at most as many rounds as these.
    for _ in range(len(words_of(request)) + len(catalog.components)):
        draft = make_draft(offer, catalog, entry)
        found = list(objections(offer, catalog, draft))
        if not found:
            return offer
        changed = _mend(offer, catalog, draft, found, keep_required=keep_required)
        if changed == offer or line.main in changed.without:
            return None
        offer = changed
    return None


def _mend(offer: Request, catalog: Catalog, draft: Draft, found: list[Objection], *, keep_required: bool) -> Request:
    lost = {word for objection in found for word in objection.words}
    with_ = tuple(name for name in offer.with_ if f"--with {name}" not in lost)
    place = SAGEMAKER if f"{FOR} {offer.destination}" in lost else offer.destination
    platform = AMD64 if f"{PLATFORM} {offer.platform}" in lost else offer.platform
    gpus = () if f"{GPUS} {','.join(offer.gpus)}" in lost else offer.gpus
    without = offer.without
    if keep_required:
        without = tuple(name for name in offer.without if f"--without {name}" not in lost)
    elif any(f"--without {name}" in lost for name in offer.without):
        requiring = {objection.requiring for objection in found if objection.requiring}
        with_ = tuple(name for name in with_ if name not in requiring)
        without = tuple(dict.fromkeys((*without, *sorted(requiring & draft.selections.keys()))))
    pins = []
    for name, version in offer.set_:
        if f"--set {name}={version}" not in lost:
            pins.append((name, version))
        elif bringing := _bringing(catalog, draft, name, version):
            pins.append(bringing)
        elif near := _nearest_known(catalog, draft, name, version):
            pins.append((name, near))
    return offer.replace(
        destination=place,
        platform=platform,
        with_=with_,
        without=without,
        set_=tuple(sorted(set(pins))),
        gpus=gpus,
    )


def _bringing(catalog: Catalog, draft: Draft, name: str, version: str) -> tuple[str, str] | None:
    """The pin of another component that brings the requested version along, if one is known."""
    own = draft.selections.get(name)
    tied = catalog.components[name].component.providers[own.provider].tied if own else None
    bringing = [other for other, brought in tied.versions.items() if brought == version] if tied else []
    return (tied.to, max(bringing, key=version_key)) if tied and bringing else None


def _nearest_known(catalog: Catalog, draft: Draft, name: str, version: str) -> str | None:
    """The listed version of a component nearest to the requested one, if it differs from the line's."""
    own = draft.selections.get(name)
    if own is None:
        return None
    known = catalog.components[name].component.providers[own.provider].versions

    def apart(other: str) -> list[int]:
        pairs = zip(version_key(version), version_key(other), strict=False)
        return [abs(a - b) for a, b in pairs]

    near = min(known, key=apart, default=None)
    return None if near in (version, own.version) else near
