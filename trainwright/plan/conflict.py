"""Explains why a request cannot be resolved: the smallest set of reasons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import ImageLine, begins, version_key
from trainwright.core.errors import Conflict
from trainwright.core.text import fits
from trainwright.plan import unlisted
from trainwright.plan.draft import Draft
from trainwright.plan.extend import not_enough_known
from trainwright.plan.fit import (
    FOR,
    GPUS,
    PLATFORM,
    WITH_APT,
    Objection,
    Reason,
    keeps,
    objections,
    reason_of,
    rules_against,
    words_of,
    worth,
)
from trainwright.plan.offers import Attempt, distance, offers
from trainwright.plan.request import PROVIDER, Request


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
    GPUS,
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
    open_ = smallest([[o for o in found if o.foreign] for found in per_draft])
    open_ = open_ or smallest([[o for o in found if not o.closed] for found in per_draft])
    core = open_ if open_ is not None else smallest(_told(request, list(zip(drafts, per_draft, strict=True))))
    assert core is not None
    own = [draft for draft in drafts if draft.line.framework == request.framework]
    words = [word for word in words_of(request) if word in core]
    everything = [objection for found in per_draft for objection in found]
    facts = list(dict.fromkeys(_whole(row, everything) for row in core if not isinstance(row, str)))
    if open_ is None:
        facts += [fact for fact in _why_not(words, list(zip(drafts, per_draft, strict=True))) if fact not in facts]
    rows = [(word, _evidence(word, words, catalog, own, _beside(word, request, own))) for word in words]
    # A component that only rules know has such a rule as its evidence.
    rows += [fact for fact in facts if not any(evidence.endswith(": ".join(fact)) for _, evidence in rows)]
    added = [word.partition(" ")[2] for word in words if _unlisted(word, catalog, own)]
    message = f"no image line for {request.flags()}"
    if open_ is not None:
        # If no line has a word anyway, the rule explains why none can.
        held = all(any(keeps(word, draft) for draft in own) for word in words)
        told = request.flags() if held else message
        message = f"{told}: {'; '.join(constraint for constraint, _ in facts)}"
    remedy = _remedy(request, own, closed=open_ is None, attempt=attempt)
    if added and open_ is None:
        # Of lines that are equally near, the one that the request would get without what no line has.
        best_first = sorted(own, key=worth, reverse=True)
        nearest = min(best_first, key=lambda draft: distance(request, catalog, draft))
        obstacles = [unlisted.obstacle(name, catalog, nearest) for name in added]
        ways = [why or unlisted.how_to_list(n, catalog, nearest) for n, why in zip(added, obstacles, strict=True)]
        ways.append("Use one of the commands above." if all(obstacles) else "Or use one of the commands above.")
        remedy = "\n".join(ways)
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
    alike = [o for o in found if o.words == own.words and o.requiring and o.foreign == own.foreign]
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
    if flag == GPUS:
        return "where the wheel of the framework has machine code for them"
    # What --allow-unproven would try is in no line.
    having = [d for d in drafts if keeps(word, d) and (flag != "--version" or begins(d.line.version, value))]
    if not having:
        framework = drafts[0].line.framework
        if flag == "--with" and (elsewhere := unlisted.frameworks_with(value, catalog)):
            return f"no image line of {framework} has it; those of {', '.join(elsewhere)} do"
        of_aws = flag == "--version" and all(draft.line.base.kind == "dlc" for draft in near)
        unknown = not_enough_known(framework, value) if of_aws else ""
        return f"no image line has it; {unknown or _what_there_is(flag, value, catalog, drafts, near)}"
    more = ""
    if flag == "--python" and all(draft.line.base.image for draft in having):
        more = f", none of them made from packages; {packaged_pythons(draft.line for draft in drafts)}"
    if len(having) > 3:
        return f"{len(having)} image lines have it{more}"
    lacking = [o for o in others if not any(keeps(o, draft) for draft in having)]
    files = (f"{draft.file} ({', '.join([own_of(o, draft) for o in lacking])})" for draft in having)
    return f"only in {', '.join(file.removesuffix(' ()') for file in files)}{more}"


def _unlisted(word: str, catalog: Catalog, drafts: list[Draft]) -> bool:
    """Whether a word adds a component that exists but that no line of the framework lists."""
    flag, _, name = word.partition(" ")
    return flag == "--with" and name in catalog.components and not any(keeps(word, draft) for draft in drafts)


def _refusals_of(name: str, catalog: Catalog, drafts: list[Draft]) -> Iterator[str]:
    """The rules by which a component that no line has would be refused in some of these drafts."""
    for draft in drafts:
        for rule in rules_against(name, catalog, draft):
            yield ": ".join(reason_of(rule))


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
        name, _, wanted = value.partition("=")
        has = {**line.options, **line.components}.get(name)
        if has is None:
            return f"no {name}"
        return f"{name} from {has.provider}" if fits(PROVIDER, wanted) else f"{name} {has.version}"
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


def _nearest(request: Request, drafts: list[Draft]) -> Draft:
    """The line to copy a new one from: of the requested CUDA version, or the newest."""
    cuda = [draft for draft in drafts if draft.line.cuda == request.cuda]
    return (cuda or [draft for draft in drafts if draft.line.cuda != "cpu"] or drafts)[-1]
