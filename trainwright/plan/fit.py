"""Whether a draft answers its request: all objections to it, for the resolver and for a conflict; which is best."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from trainwright.catalog import incompatibilities
from trainwright.catalog.catalog import Catalog, target_of
from trainwright.catalog.image_line import BASE, begins, cuda_tag, version_key
from trainwright.catalog.incompatibilities import Fact, Incompatibility, When
from trainwright.catalog.platforms import AMD64
from trainwright.plan.destination import SAGEMAKER
from trainwright.plan.differences import pinned, provided
from trainwright.plan.draft import Draft, facts_of, same_version
from trainwright.plan.request import Request

Reason = tuple[str, str]  # constraint, evidence
WITH_APT = "--with-apt"
FOR = "--for"
PLATFORM = "--platform"
GPUS = "--for-gpus"


class Objection(Struct, frozen=True):
    """A reason why a draft does not answer its request: words of the request, and the facts that contradict them.

    ``closed`` means that only the current catalog contradicts them; another image line could have it.
    ``requiring`` is the component that lacks another.
    ``foreign`` means that nothing but the framework contradicts them, so that no other version or CUDA would help.
    """

    words: frozenset[str]
    facts: frozenset[Reason] = frozenset()
    closed: bool = False
    requiring: str | None = None
    foreign: bool = False

    @property
    def elements(self) -> frozenset[str | Reason]:
        """Everything that the objection depends on."""
        return self.words | self.facts


def objections(request: Request, catalog: Catalog, draft: Draft) -> Iterator[Objection]:
    """Everything that keeps a draft from answering the request, the cheapest checks first; empty if it does."""
    if request.framework != draft.line.framework:
        yield Objection(frozenset({f"--framework {request.framework}"}), foreign=True)
    yield from _not_in_line(request, catalog, draft)
    yield from _broken_requirements(request, catalog, draft)
    yield from _of_another_framework(request, catalog, draft)
    yield from _made_for_others(request, catalog, draft)
    yield from _without_gpu_code(request, catalog, draft)
    yield from _torn_ties(request, catalog, draft)
    facts = facts_of(request, catalog, draft, wished=False)  # the publisher of a base image decides what works there
    for rule, words in incompatibilities.broken(catalog.rules.rules, facts):
        alone = When(framework=rule.when.framework, components=rule.when.components)
        foreign = rule.when.framework is not None and rule.when == alone
        yield Objection(words, frozenset({reason_of(rule)}), foreign=foreign)


def _not_in_line(request: Request, catalog: Catalog, draft: Draft) -> Iterator[Objection]:
    for word in words_of(request)[1:]:  # the framework is first
        if keeps(word, draft):
            continue
        flag, _, value = word.partition(" ")
        facts: frozenset[Reason] = frozenset()
        if flag == "--set":
            name = value.partition("=")[0]
            has = draft.selections.get(name)
            tied = has and catalog.components[name].component.providers[has.provider].tied
            if tied:
                facts = frozenset({(f"{name} is tied to {tied.to}", tied.why)})
        if flag == "--version" and request.allow_unproven:
            facts = _wheels(value, catalog, draft)
        if flag == FOR:
            facts = frozenset(
                {(f"{draft.line.base.image} is for SageMaker", "its toolkit and its entry point are in it")}
            )
        if flag == PLATFORM:
            facts = frozenset({_no_wheels(draft)})
        if flag == WITH_APT:
            facts = frozenset({(f"{draft.line.base.os} has no apt", "its package manager is dnf, with other names")})
        yield Objection(frozenset({word}), facts, closed=True)


def reason_of(rule: Incompatibility) -> Reason:
    """What a rule refuses, and why."""
    return str(rule.refuse), f"{rule.why} ({rule.evidence.source}, {rule.evidence.date}: {rule.evidence.says})"


def rules_against(name: str, catalog: Catalog, draft: Draft) -> list[Incompatibility]:
    """The rules that refuse a component, which a draft need not have, beside what is in its line."""
    bare = facts_of(Request(framework=draft.line.framework), catalog, draft)
    found = []
    for rule in catalog.rules.rules:
        if rule.refuse and [*rule.when.components] == [name]:
            named = rule.when.components[name].provider
            component = Fact(None, provider=named[0] if isinstance(named, tuple) else named)
            facts = replace(bare, components={name: component})
            found += [rule] if incompatibilities.applies(rule.when, facts) is not None else []
    return found


def _wheels(version: str, catalog: Catalog, draft: Draft) -> frozenset[Reason]:
    """Why a version is not tried on a line whose framework is a wheel of an index."""
    line = draft.line
    wheels = catalog.rules.wheels_of(line.framework, line.components[line.main].provider, version)
    if wheels is None or line.cuda == "cpu":
        return frozenset()
    known = wheels.evidence
    what = f"the package index's wheels of {line.framework} {wheels.version} are for CUDA {wheels.cuda.lstrip('=')}"
    return frozenset({(what, f"{known.source}, {known.date}: {known.says}")})


def _made_so(flag: str, value: str, draft: Draft) -> bool:
    """Whether the images of a line can be for a place or a platform, or have packages of apt."""
    if flag == PLATFORM:
        return not draft.unproven and draft.entry.lock_for(value).is_file()
    base = draft.line.base
    return base.kind != "dlc" if flag == FOR else not base.os.startswith("amazonlinux")


def _no_wheels(draft: Draft) -> Reason:
    """Why a line cannot be had for another processor."""
    line = draft.line
    if line.base.kind != "debian":
        return f"{line.base.os} is made for linux/amd64", "no line of its kind was resolved for another processor"
    what = f"{line.main} {line.version} with {line.cuda_tag} has no lock for linux/arm64"
    if line.main != "pytorch":
        return what, f"no line of {line.main} was resolved for another processor"
    return (
        what,
        "the package index, 2026-11-28: its wheels for aarch64 have CUDA in torch 2.11.0 (420 MB) to 2.15.0 (484 MB), "
        "not in 2.7.1 (99 MB), 2.9.1 (104 MB) and 2.10.0 (146 MB); other lines were not resolved",
    )


def words_of(request: Request) -> list[str]:
    """The constraints of a request, each as one flag with one value."""
    words = [f"--framework {request.framework}"]
    if request.cuda is not None:
        words.append(f"--cuda {cuda_tag(request.cuda)}")
    for flag, value in (("--version", request.version), ("--python", request.python), ("--base", request.base)):
        if value is not None:
            words.append(f"{flag} {value}")
    words += [f"{FOR} {request.destination}"] if request.destination != SAGEMAKER else []
    words += [f"{PLATFORM} {request.platform}"] if request.platform != AMD64 else []
    words += [f"{WITH_APT} {','.join(request.user.apt)}"] if request.user.apt else []
    words += [f"--with {name}" for name in request.with_]
    words += [f"--without {name}" for name in request.without]
    words += [f"--set {name}={version}" for name, version in request.set_]
    return words + ([f"{GPUS} {','.join(request.gpus)}"] if request.gpus else [])


def keeps(word: str, draft: Draft) -> bool:
    """Whether a draft keeps one word of its request."""
    flag, _, value = word.partition(" ")
    line = draft.line
    if flag == "--version":
        return begins(draft.version, value)
    if flag == "--cuda":
        return line.goes_by_cuda(value)
    if flag in (FOR, PLATFORM, WITH_APT):
        return _made_so(flag, value, draft)
    if flag == "--with":
        return value in draft.selections or value in line.components or value in line.options
    if flag == "--set":
        name, _, version = value.partition("=")
        has = draft.selections.get(name)
        return has is not None and (has.provider == version or same_version(has.version, version))
    own = {
        "--framework": line.framework,
        "--python": line.python,
        "--base": line.base.kind,
    }
    return flag in ("--without", GPUS) or value == own[flag]


def _broken_requirements(request: Request, catalog: Catalog, draft: Draft) -> Iterator[Objection]:
    """Every ``requires`` that is violated."""
    known = {name: catalog.components[name].component for name in {*draft.selections, *draft.line.components}}
    stands_for = {name: {name, *component.provides} for name, component in known.items()}
    offered = {other for name in draft.selections for other in stands_for[name]}
    for name in draft.selections:
        added = {f"--with {name}"} if name in request.with_ and name not in draft.line.components else set()
        chosen = draft.selections[name]
        needs = (*known[name].requires, *known[name].providers[chosen.provider].requires_for(chosen.version))
        for need in needs if chosen.provider != BASE else ():  # the publisher of a base image decides what works there
            if need not in offered:
                gone = {f"--without {n}" for n in request.without if need in stands_for.get(n, ())}
                fact = (f"{name} requires {need}", f"{name}: {known[name].summary}")
                yield Objection(frozenset(gone | added), frozenset({fact}), requiring=name)


def _of_another_framework(request: Request, catalog: Catalog, draft: Draft) -> Iterator[Objection]:
    """Every component that the line does not list, and could not: it requires another framework."""
    frameworks = {*catalog.frameworks()} - {draft.line.main}
    for name in request.with_:
        if name in catalog.components and name not in draft.selections:
            component = catalog.components[name].component
            for need in frameworks.intersection(component.requires):
                fact = (f"{name} requires {need}", f"{name}: {component.summary}")
                yield Objection(frozenset({f"--with {name}"}), frozenset({fact}), requiring=name, foreign=True)


def _made_for_others(request: Request, catalog: Catalog, draft: Draft) -> Iterator[Objection]:
    """Every component whose files are for another framework version, CUDA or Python than the draft's, or for GPUs."""
    target = target_of(draft.line, draft.version, request.platform)
    for name, chosen in draft.selections.items():
        provider = catalog.components[name].component.providers[chosen.provider]
        if provider.for_gpus and not draft.line.architectures:
            made = "image lines that name the GPUs to compile for (architectures)"
        elif provider.sources_for(chosen.version, target) is None:
            made = " or ".join(build.made_for for build in provider.versions[chosen.version].builds)
        else:
            continue
        words = {f"--set {n}={v}" for n, v in request.set_ if n == name}
        words |= {f"--with {name}"} if name in request.with_ and name not in draft.line.components else set()
        words |= {f"--version {request.version}"} if draft.version != draft.line.version else set()
        fact = (f"{name} {chosen.version} supports only {made}", f"templates/components/{name}: {provider.about}")
        yield Objection(frozenset(words), frozenset({fact}))


def _without_gpu_code(request: Request, catalog: Catalog, draft: Draft) -> Iterator[Objection]:
    """Why no machine code of a draft can be kept for the GPUs of a request alone."""
    line, has = draft.line, draft.selections.get(draft.line.main)
    if not request.gpus or has is None:
        return
    from trainwright.sagemaker.gpus import unfit

    if line.cuda == "cpu":
        facts = {(f"{line.main} for the CPU has no machine code for GPUs", "it is built without CUDA")}
    elif not (provider := catalog.components[line.main].component.providers[has.provider]).gpu_code:
        facts = {
            (
                f"{line.main} ({has.provider}) keeps its machine code for all GPUs",
                f"templates/components/{line.main}: {provider.about}",
            )
        }
    else:
        why = [reason for each in request.gpus if (reason := unfit(each, line.cuda))]
        facts = {(reason, "NVIDIA's release notes of CUDA") for reason in why}
    if facts:
        yield Objection(frozenset({f"{GPUS} {','.join(request.gpus)}"}), frozenset(facts))


def _torn_ties(request: Request, catalog: Catalog, draft: Draft) -> Iterator[Objection]:
    """Every pin that separates a component from the one that decides its version: both are pinned, or neither."""
    pins = dict(request.set_)
    own = {**draft.line.options, **draft.line.components}
    moved = {n for n, version in pins.items() if n in own and not same_version(own[n].version, version)}
    for name, chosen in draft.selections.items():
        tied = catalog.components[name].component.providers[chosen.provider].tied
        # What is tied to the framework follows it, or has no other version.
        if tied is None or tied.to == draft.line.main or tied.to not in draft.selections:
            continue
        torn = tied.to if tied.to in moved else name
        known = tied.versions.get(draft.selections[tied.to].version) == chosen.version
        if torn in moved and not (torn == tied.to and (known or name in pins)):
            fact = (f"{name} is tied to {tied.to}", tied.why)
            yield Objection(frozenset({f"--set {torn}={pins[torn]}"}), frozenset({fact}))


def worth(draft: Draft) -> tuple[Any, ...]:
    """The sort key of drafts, most important first: proven by a line, published as an image, CUDA, fewer versions that
    differ from the line's (those that come with another provider do not count), newer versions; then nothing that
    differs, the preferred line, a base made from packages, the latest line."""
    line, moved = draft.line, pinned(draft)
    return (
        not draft.unproven,
        line.released,
        line.cuda != "cpu",
        -len(moved.keys() - provided(draft).keys()),
        version_key(line.cuda),
        version_key(line.version),
        not moved,
        line.preferred,
        line.base.kind == "debian",
        max(each.date for each in line.evidence),
        draft.file,
    )
