"""Explains why a request cannot be resolved: the smallest set of reasons, and the nearest requests that can be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, product

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import ImageLine, Line, begins, cuda_tag, version_key
from trainwright.catalog.platforms import AMD64
from trainwright.core.errors import Conflict
from trainwright.plan import unlisted
from trainwright.plan.destination import SAGEMAKER
from trainwright.plan.draft import Draft, make_draft
from trainwright.plan.extend import not_enough_known
from trainwright.plan.fit import FOR, PLATFORM, WITH_APT, Objection, Reason, keeps, objections, rules_against, words_of
from trainwright.plan.plan import Plan
from trainwright.plan.request import Request

Attempt = Callable[[Request], Plan | None]


# ---- the smallest set of reasons ---------------------------------------------------------------------------------


def smallest(per_draft: Sequence[Sequence[Objection]]) -> list[str | Reason] | None:
    """A minimal set of words and facts that rules out every draft, found by leaving out one after the other.

    Args:
        per_draft: the objections of each draft.

    Returns:
        The set, in no particular order; ``None`` if a draft escapes all of them.
    """
    if not all(per_draft):
        return None
    kept = {element for draft in per_draft for objection in draft for element in objection.elements}
    for element in sorted(kept, key=_order):
        rest = kept - {element}
        if all(any(objection.elements <= rest for objection in draft) for draft in per_draft):
            kept = rest
    return sorted(kept, key=_order)


def _told(request: Request, found: Sequence[tuple[Draft, list[Objection]]]) -> list[list[Objection]]:
    """The objections to each draft, without rules that refuse only another version, CUDA, Python or base."""
    asked = [word for word in words_of(request) if word.partition(" ")[0] in ("--framework", *_OF_LINES)]
    near = [each for draft, each in found if all(keeps(word, draft) for word in asked)]
    facts = {fact for each in near for objection in each for fact in objection.facts}
    return [[o for o in each if not near or o.closed or o.facts <= facts] for _, each in found]


_OF_LINES = ("--base", "--python", "--cuda", "--version")
# If there is a choice, the least informative is left out first.
_ORDER = [
    "--framework",
    WITH_APT,
    FOR,
    PLATFORM,
    "--with",
    "--without",
    "--set",
    *_OF_LINES,
]


def _order(element: str | Reason) -> tuple[int, str]:
    if isinstance(element, str):
        return _ORDER.index(element.partition(" ")[0]), element
    return len(_ORDER), " ".join(element)


def conflict(request: Request, catalog: Catalog, drafts: Sequence[Draft], attempt: Attempt) -> Conflict:
    """The failure that explains why no draft answers the request, and offers what does resolve.

    A rule or requirement beyond single lines is reported if it alone decides, that is, if even an image line with all
    the words would be refused.

    Args:
        request: what was asked for.
        catalog: that it was resolved against.
        drafts: every image line's draft for the request; each has an objection.
        attempt: returns the plan of another request, or None.
    """
    per_draft = [list(objections(request, catalog, draft)) for draft in drafts]
    open_ = smallest([[o for o in found if not o.closed] for found in per_draft])
    core = open_ if open_ is not None else smallest(_told(request, list(zip(drafts, per_draft, strict=True))))
    assert core is not None
    own = [draft for draft in drafts if draft.line.framework == request.framework]
    words = [word for word in words_of(request) if word in core]
    everything = [objection for found in per_draft for objection in found]
    facts = list(dict.fromkeys(_whole(row, everything) for row in core if not isinstance(row, str)))
    if open_ is None:
        facts += [fact for fact in _why_not(words, list(zip(drafts, per_draft, strict=True))) if fact not in facts]
    rows = [(word, _evidence(word, words, catalog, own, _beside(word, request, own))) for word in words] + facts
    added = [word.partition(" ")[2] for word in words if _unlisted(word, catalog, own)]
    message = f"no image line for {request.flags()}"
    if open_ is not None:
        # If no line has a word anyway, the rule explains why none can.
        held = all(any(keeps(word, draft) for draft in own) for word in words)
        told = request.flags() if held else message
        message = f"{told}: {'; '.join(constraint for constraint, _ in facts)}"
    remedy = _remedy(request, own, closed=open_ is None, attempt=attempt)
    if added and open_ is None:
        nearest = min(own, key=lambda draft: _distance(request, catalog, draft))
        remedy = "\n".join(
            [*(unlisted.how_to_list(name, catalog, nearest) for name in added), "Or use one of the commands above."]
        )
    return Conflict(
        message,
        remedy=remedy,
        rows=[{"constraint": constraint, "evidence": evidence} for constraint, evidence in rows],
        offers=offers(request, catalog, own, attempt),
    )


def _why_not(words: list[str], found: list[tuple[Draft, list[Objection]]]) -> list[Reason]:
    """The facts beyond single lines that keep a word apart from all lines with the others: why there is no line."""
    facts: list[Reason] = []
    # Of three words each two have a line, so no rule keeps one of them apart.
    asked = [word for word in words if not word.startswith("--framework ")]
    for word in words if len(words) > 1 and len(asked) < 3 else ():
        others = [other for other in words if other != word]
        near = [(draft, objections) for draft, objections in found if all(keeps(other, draft) for other in others)]
        having = [objections for draft, objections in near if draft.line.released or not _released(near)]
        told = [{fact for o in each if word in o.words for fact in o.facts} for each in having]
        facts += sorted(set.intersection(*told))
    return list(dict.fromkeys(facts))


def _released(found: list[tuple[Draft, list[Objection]]]) -> bool:
    return any(draft.line.released for draft, _ in found)


def _whole(fact: Reason, found: list[Objection]) -> Reason:
    """A requirement together with all others that the same words violate: fixing only one would not help."""
    own = next((objection for objection in found if fact in objection.facts and objection.requiring), None)
    if own is None:
        return fact
    alike = [o for o in found if o.words == own.words and o.requiring]
    every = sorted({row for objection in alike for row in objection.facts})
    return ", ".join(row[0] for row in every), "; ".join(row[1] for row in every)


def packaged_pythons(lines: Iterable[ImageLine]) -> str:
    """Which Pythons image lines have whose base is made from packages, in words."""
    own = {line.python: line.base.os for line in lines if not line.base.image}
    each = [f"{python} ({own[python]})" for python in sorted(own, key=version_key)]
    named = " and ".join(filter(None, [", ".join(each[:-1]), *each[-1:]]))
    return f"image lines that are made from packages have {named}" if own else "no image line is made from packages"


def _beside(word: str, request: Request, drafts: list[Draft]) -> list[Draft]:
    """The drafts that keep all other words of the request; all of them if none does."""
    others = [other for other in words_of(request) if other != word]
    return [draft for draft in drafts if all(keeps(other, draft) for other in others)] or drafts


def _evidence(word: str, others: list[str], catalog: Catalog, drafts: list[Draft], near: list[Draft]) -> str:
    """What the image lines have for a word of the request; those ``near`` it would have all others."""
    flag, _, value = word.partition(" ")
    if flag == "--without":
        return "the request leaves it out"
    # What --allow-unproven would try is in no line.
    having = [d for d in drafts if keeps(word, d) and (flag != "--version" or begins(d.line.version, value))]
    if not having:
        of_aws = flag == "--version" and all(draft.line.base.kind == "dlc" for draft in near)
        unknown = not_enough_known(drafts[0].line.framework, value) if of_aws else ""
        return f"no image line has it; {unknown or _what_there_is(flag, value, catalog, drafts, near)}"
    if len(having) > 3:
        counted = f"{len(having)} image lines have it"
        if flag != "--python" or any(draft.line.base.image is None for draft in having):
            return counted
        return f"{counted}, none of them made from packages; {packaged_pythons(draft.line for draft in drafts)}"
    lacking = [o for o in others if not any(keeps(o, draft) for draft in having)]
    files = (f"{draft.file} ({', '.join([own_of(o, draft) for o in lacking])})" for draft in having)
    return f"only in {', '.join(file.removesuffix(' ()') for file in files)}"


def _unlisted(word: str, catalog: Catalog, drafts: list[Draft]) -> bool:
    """Whether a word adds a component that exists but that no line of the framework lists."""
    flag, _, name = word.partition(" ")
    return flag == "--with" and name in catalog.components and not any(keeps(word, draft) for draft in drafts)


def _refusals_of(name: str, catalog: Catalog, drafts: list[Draft]) -> Iterator[str]:
    """The rules by which a component that no line has would be refused in some of these drafts."""
    for draft in drafts:
        for rule in rules_against(name, catalog, draft):
            yield f"{rule.refuse}: {rule.why} ({rule.evidence.source}, {rule.evidence.date}: {rule.evidence.says})"


def _what_there_is(flag: str, value: str, catalog: Catalog, drafts: list[Draft], near: list[Draft]) -> str:
    name = value.partition("=")[0]
    if flag in ("--with", "--set") and name not in catalog.components:
        return next(_refusals_of(name, catalog, near), f"templates/components has no {name} yet")
    if flag == "--with":
        return f"templates/components/{name} exists: {unlisted.providers(catalog, name)}"
    if flag == "--set":
        providers = {d.selections[name].provider for d in drafts if name in d.selections}
        known = [
            f"templates/components/{name} knows {', '.join(sorted(versions, key=version_key))} from {provider}"
            for provider, entry in sorted(catalog.components[name].component.providers.items())
            if provider in providers and (versions := entry.versions)
        ]
        if known:
            return "; ".join(known)
        held = [d.line.components.get(name) or d.line.options.get(name) for d in drafts]
        return f"their locks hold {', '.join(dict.fromkeys(has.version for has in held if has))}"
    own = {own_of(f"{flag} {value}", d) for d in drafts}
    return f"lines have {', '.join(sorted(own, key=_in_order))}"


def _in_order(text: str) -> tuple[bool, str, list[int]]:
    """Sorts cu113 before cu124, Python 3.8 before Python 3.11, and cpu, which has no number, behind them."""
    name, *numbers = re.split(r"[^a-zA-Z0-9]*([0-9]+)", text)
    return not numbers, name, [int(number) for number in numbers if number.isdigit()]


def own_of(word: str, draft: Draft) -> str:
    """What a line has in place of a word of the request."""
    flag, _, value = word.partition(" ")
    line = draft.line
    if flag in ("--with", "--set"):
        name = value.partition("=")[0]
        has = {**line.options, **line.components}.get(name)
        return f"no {name}" if has is None else f"{name} {has.version}"
    return {
        "--cuda": line.cuda_tag,
        "--version": line.version,
        "--python": f"Python {line.python}" if flag == "--python" else line.python,
        "--base": line.base.os,
        FOR: line.base.os,
        PLATFORM: "linux/amd64",
        WITH_APT: line.base.os,
    }[flag]


def _remedy(request: Request, drafts: list[Draft], *, closed: bool, attempt: Attempt) -> str:
    if not closed:
        return "Use one of the commands above."
    if not request.allow_unproven:
        bold = request.replace(allow_unproven=True)
        if attempt(bold) is not None:
            return (
                "No image line has that version. Use one of the commands above, or add an image line beside "
                f"{_nearest(request, drafts).file} (see CONTRIBUTING.md), or try it unproven: --allow-unproven"
            )
    folder = f"images/{request.framework}"
    return f"Use one of the commands above, or add an image line in {folder}/ (see CONTRIBUTING.md)."


# ---- offers ------------------------------------------------------------------------------------------------------


def offers(request: Request, catalog: Catalog, drafts: list[Draft], attempt: Attempt) -> list[dict[str, str]]:
    """The three nearest requests that resolve, as complete command lines; each was tried.

    If the first two leave out what ``--with`` adds, the third is of a line that has it."""
    found: dict[str, str] = {}
    adding, added, later = [f"--with {name}" for name in request.with_], False, list[Draft]()
    nearest = sorted(drafts, key=lambda draft: _distance(request, catalog, draft))
    for draft in chain(nearest, later):
        if len(found) == 2 and not added and draft not in later and not all(keeps(word, draft) for word in adding):
            later.append(draft)
            continue
        tries = [(each, True) for each in _untied(request, catalog, draft)]
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


def _nearest(request: Request, drafts: list[Draft]) -> Draft:
    """The line to copy a new one from: of the requested CUDA version, or the newest."""
    cuda = [draft for draft in drafts if draft.line.cuda == request.cuda]
    return (cuda or [draft for draft in drafts if draft.line.cuda != "cpu"] or drafts)[-1]


def _distance(request: Request, catalog: Catalog, draft: Draft) -> tuple[int, int, bool, float, bool, int]:
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
        destination=place, platform=platform, with_=with_, without=without, set_=tuple(sorted(set(pins)))
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
