"""What an image line would give for a request, whether it is consistent or not: the input of the resolver."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from trainwright.catalog.catalog import Catalog, target_of
from trainwright.catalog.component import BuildTarget
from trainwright.catalog.image_line import BASE, ImageLine, Line, Selection, begins, cuda_tag, version_key
from trainwright.catalog.incompatibilities import Composition, Fact, broken, within
from trainwright.plan.destination import CLUSTER, settle
from trainwright.plan.extend import extended, with_evidence
from trainwright.plan.request import Request

USER = "user"
INTERPRETER = "interpreter"
_AS_FOUND = Selection(provider=BASE)  # in a base image that nobody has looked into


class Draft(Struct, frozen=True):
    """An image line, adapted to a request.

    ``version`` is the framework's, ``selections`` are the chosen components in the order of their layers, and
    ``unproven`` lists what is in no image line (``pytorch 2.16.0``) and so needs a separate lock.
    """

    entry: Line
    version: str
    selections: dict[str, Selection]
    unproven: tuple[str, ...] = ()

    @property
    def line(self) -> ImageLine:
        """The image line as it is in its file."""
        return self.entry.line

    @property
    def file(self) -> str:
        """The line's file, as shown to users."""
        return self.entry.file


def make_draft(request: Request, catalog: Catalog, entry: Line) -> Draft:
    """The line with what the request adds, removes and pins, as far as possible.

    Raises:
        RequestError: the line names a component, provider or version that does not exist.
    """
    if request.base == "dlc" and entry.line.base.kind != "dlc":
        entry = extended(entry) or entry
    entry = with_evidence(entry)
    line = entry.line
    chosen = {n: s for n, s in line.components.items() if n not in request.without}
    chosen |= {name: line.options[name] for name in request.with_ if name in line.options}
    looks = _looks(request, catalog, line)
    chosen |= {name: _AS_FOUND for name in _wished(request, catalog, line) if looks and name not in chosen}
    chosen = settle(chosen, request.destination, request.with_)
    user = request.user
    if user.requirements or user.apt or user.run or user.code or USER in request.with_:
        chosen[USER] = Selection(provider="files", version="1")
    catalog.check_references(entry, chosen)
    brought = _brought(request, catalog, line, chosen)
    catalog.check_references(entry, brought)
    chosen |= brought
    unproven: list[str] = []
    version = line.version
    if _may_try(request, catalog, line):
        version = str(request.version)
        unproven.append(f"{line.framework} {version}")
        chosen = {name: _follow(catalog, name, selection, line, version) for name, selection in chosen.items()}
    for name, wanted in request.set_:
        has = chosen.get(name)
        if has is None or same_version(has.version, wanted):
            continue
        component = catalog.components[name].component
        if has == _AS_FOUND and looks:
            version_of = "" if wanted in component.providers else wanted
            chosen[name] = Selection(provider=BASE, version=version_of)  # the build looks whether it is so
            continue
        if wanted == has.provider:
            continue
        if wanted in component.providers and component.providers[wanted].own_versions:
            chosen = _installed(request, catalog, Draft(entry, version, chosen), name, wanted)
            continue
        if wanted in component.providers:
            _provide(catalog, chosen, name, wanted, target_of(line, version, request.platform))
            continue
        # Another minor version of Python needs other files of every package; another wheel needs another lock.
        other = _in_lock(has) or (INTERPRETER in component.provides and not begins(wanted, line.python))
        if wanted in component.providers[has.provider].versions and not other:
            chosen[name] = has.replace(version=wanted)
        elif request.allow_unproven and can_move(catalog, name, has, line):
            chosen[name] = _moved(has, wanted)
            unproven.append(f"{name} {wanted}")
    _follow_pins(request, catalog, chosen)
    ordered = sorted(chosen.items(), key=lambda item: (catalog.components[item[0]].component.order, item[0]))
    return Draft(entry=entry, version=version, selections=dict(ordered), unproven=tuple(unproven))


def _looks(request: Request, catalog: Catalog, line: ImageLine) -> bool:
    """Return whether a container of AWS is asked for, by --base or by a framework that has no other lines.

    What is wished of it the build looks for; nothing of it is known before. Another framework is no answer to a wish.
    """
    if request.base == "dlc":
        return True
    own = line.base.kind == "dlc" and request.framework == line.framework
    return own and all(each.line.base.kind == "dlc" for each in catalog.lines_of(line.framework))


def _wished(request: Request, catalog: Catalog, line: ImageLine) -> list[str]:
    """The components that a container of AWS is asked for, and that its line need not name."""
    pinned = (name for name, _ in request.set_ if name not in line.options)
    names = (name for name in (*request.with_, *pinned) if name in catalog.components)
    return [name for name in names if name != "cuda" or line.cuda != "cpu"]  # this is in a container's name


def _brought(
    request: Request, catalog: Catalog, line: ImageLine, chosen: Mapping[str, Selection]
) -> dict[str, Selection]:
    """The options of a line that those of ``--with`` require: nothing else would do, so they are meant as well."""
    brought: dict[str, Selection] = {}
    pending = [name for name in request.with_ if name in line.options]
    while pending:
        component = catalog.components[name := pending.pop()].component
        provider = component.providers[line.options[name].provider]
        has = {*chosen, *brought}
        has |= {each for other in has for each in catalog.components[other].component.provides}
        for need in (*component.requires, *provider.requires_for(line.options[name].version)):
            if need not in has and need in line.options and need not in request.without:
                brought[need] = line.options[need]
                pending.append(need)
    return brought


def _provide(catalog: Catalog, chosen: dict[str, Selection], name: str, wanted: str, target: BuildTarget) -> None:
    """Take a component, and all that are tied to it, from another provider that has their versions for the image."""

    def tied_to(other: str) -> bool:
        tied = catalog.components[other].component.providers[chosen[other].provider].tied
        return tied is not None and tied.to == name

    moved = [name, *(other for other in chosen if tied_to(other) and chosen[other].provider == chosen[name].provider)]
    for other in moved:
        provider = catalog.components[other].component.providers.get(wanted)
        if provider is None or not provider.sources_for(chosen[other].version, target):
            return
    chosen.update({other: chosen[other].replace(provider=wanted) for other in moved})


def _installed(request: Request, catalog: Catalog, draft: Draft, name: str, wanted: str) -> dict[str, Selection]:
    """A draft's components with one of them from an installer: in its newest version that no rule refuses for the
    image, with what comes inside it in place of what cannot be used with it."""
    rules = [rule for rule in catalog.rules.rules if rule.refuse and name in rule.when.components]

    def refused(chosen: dict[str, Selection]) -> set[str]:
        """The components of the rules that refuse this."""
        facts = facts_of(request, catalog, Draft(draft.entry, draft.version, chosen))
        return {each for rule, _ in broken(tuple(rules), facts) for each in rule.when.components}

    def inside(other: str, version: str) -> Selection | None:
        """A component as a version of the installer has it."""
        for key, provider in catalog.components[other].component.providers.items():
            if provider.tied is not None and provider.tied.to == name and version in provider.tied.versions:
                return draft.selections[other].replace(provider=key, version=provider.tied.versions[version])
        return None

    versions = catalog.components[name].component.providers[wanted].versions
    newest_first = sorted(versions, key=version_key, reverse=True)
    for version in newest_first:
        chosen = draft.selections | {name: Selection(provider=wanted, version=version)}
        for other in refused(chosen) - {name}:
            chosen[other] = inside(other, version) or chosen[other]
        if not refused(chosen):
            return chosen
    return draft.selections | {name: Selection(provider=wanted, version=newest_first[0])}


def _follow_pins(request: Request, catalog: Catalog, chosen: dict[str, Selection]) -> None:
    """Give every component that is tied to a pinned one the version that this one brings, if that is known."""
    pins = dict(request.set_)
    for name, has in chosen.items():
        provider = catalog.components[name].component.providers[has.provider]
        tied = provider.tied
        if tied is None or name in pins or tied.to not in chosen or chosen[tied.to].version != pins.get(tied.to):
            continue
        brought = tied.versions.get(pins[tied.to])
        if brought in provider.versions:
            chosen[name] = has.replace(version=brought)


def can_move(catalog: Catalog, name: str, selection: Selection, line: ImageLine) -> bool:
    """Whether a separate lock could give a component another version: its packages have its version, and neither
    another component nor the framework decides it."""
    return (
        catalog.components[name].component.providers[selection.provider].tied is None
        and name != line.main
        and _in_lock(selection)
    )


def _in_lock(selection: Selection) -> bool:
    """Whether the component's version is pinned by the line's Python packages."""
    return any(requirement.endswith(f"=={selection.version}") for requirement in selection.packages)


def _may_try(request: Request, catalog: Catalog, line: ImageLine) -> bool:
    """Whether the request asks for a version that may be tried based on this line, whose framework is a wheel: one for
    the line's CUDA, or a newer one if that is not known."""
    if not request.allow_unproven or request.version is None or request.framework != line.framework:
        return False
    if begins(line.version, request.version) or not is_whole(request.version, line):
        return False
    main = line.components[line.main]
    wheels = catalog.rules.wheels_of(line.framework, main.provider, request.version)
    if wheels is not None and line.cuda != "cpu":
        return within(line.cuda, wheels.cuda)
    return _in_lock(main) and version_key(request.version) > version_key(line.version)


def is_whole(version: str, line: ImageLine) -> bool:
    """Whether a version is complete: it has as many numbers as the line's."""
    return version.count(".") + 1 == len(version_key(version)) == len(version_key(line.version))


def _follow(catalog: Catalog, name: str, selection: Selection, line: ImageLine, version: str) -> Selection:
    """A component of a line whose framework version is changed."""
    if name == line.main:
        # A CPU build is a local version of the same release: 2.13.0+cpu.
        return _moved(selection, version + "".join(selection.version.partition("+")[1:]))
    tied = catalog.components[name].component.providers[selection.provider].tied
    if tied is None or tied.to != line.main or not selection.packages:
        return selection
    # The framework's wheel decides. If the pins are finer than the component's version (CUDA 13.2, runtime
    # 13.2.86), that version is still right; if they are that version (NCCL 2.30.7), it is unknown until the lock.
    if _in_lock(selection):
        names = tuple(requirement.partition("==")[0] for requirement in selection.packages)
        return selection.replace(packages=names, version=OPEN)
    loose = tuple(f"{r.partition('==')[0]}=={selection.version}.*" for r in selection.packages)
    return selection.replace(packages=loose)


# A version that follows from the lock of an unproven plan.
OPEN = "open"


def _moved(selection: Selection, version: str) -> Selection:
    """The selection in another version, including those of its packages that had the old one."""
    packages = tuple(
        f"{name}=={version}" if has == selection.version else f"{name}=={has}"
        for name, _, has in (requirement.partition("==") for requirement in selection.packages)
    )
    return selection.replace(version=version, packages=packages)


def same_version(version: str, wanted: str) -> bool:
    """Whether a version is the requested one; a local part (``+cpu``) may be omitted."""
    return wanted in (version, version.split("+", maxsplit=1)[0])


def facts_of(request: Request, catalog: Catalog, draft: Draft, *, wished: bool = True) -> Composition:
    """What the image would consist of if everything in the request were available: the request's words replace the
    line's, and a component that the line does not have brings what each of its providers requires.

    Args:
        request: what is asked for.
        catalog: components and rules.
        draft: of the request.
        wished: with the versions that a container of AWS is asked for; only its build knows whether it has them.
    """
    line = draft.line
    looks = _looks(request, catalog, line)
    pins = dict(request.set_)
    components: dict[str, Fact] = {}
    packages: dict[str, Fact] = {}
    for name, selection in draft.selections.items():
        own = {**line.options, **line.components}.get(name, _AS_FOUND if selection.provider == BASE else selection)
        if own == _AS_FOUND and looks and not (wished and name in pins):
            continue  # nobody knows it yet, and rules are for images of one's own
        added = frozenset({f"--with {name}"} if name in request.with_ and name not in line.components else ())
        if name == CLUSTER:
            added = frozenset({f"--for {request.destination}"})
        if name in pins and selection.provider != pins[name] and not same_version(own.version, pins[name]):
            words = frozenset({f"--set {name}={pins[name]}"})
            components[name] = Fact(pins[name], words, own.version, added, selection.provider)
        elif selection.provider != own.provider and pins.get(name) == selection.provider:
            words = frozenset({f"--set {name}={selection.provider}"})
            components[name] = Fact(selection.version, added=added | words, provider=selection.provider)
        else:
            has = None if selection.version in (OPEN, "") else selection.version
            components[name] = Fact(has, added=added, provider=selection.provider)
        for requirement in selection.packages:
            package, _, pinned = requirement.partition("==")
            packages[package] = Fact(pinned or None, added=added)
    for name in request.with_:
        if name not in components and name not in draft.selections:
            words = frozenset({f"--set {name}={pins[name]}"} if name in pins else ())
            added = frozenset({f"--with {name}"})
            components[name] = Fact(pins.get(name), words, added=added)
            for need in _always_required(catalog, name) - draft.selections.keys() - set(request.with_):
                components[need] = Fact(None, added=added)
    cuda = None if request.cuda is None else cuda_tag(request.cuda)
    # A line may go by the CUDA of AWS's tag as well.
    other_cuda = None if cuda is None or line.goes_by_cuda(cuda) else request.cuda
    return Composition(
        framework=Fact(line.framework),
        version=_asked(f"--version {request.version}", request.version, line.version),
        cuda=_asked(f"--cuda {cuda}", other_cuda, line.cuda),
        python=_asked(f"--python {request.python}", request.python, line.python),
        os=Fact(line.base.os),
        components=components,
        packages=packages,
    )


def _always_required(catalog: Catalog, name: str) -> set[str]:
    """What a component requires whoever provides it, beside what every provider has in common."""
    if name not in catalog.components:  # one that the rules foresee
        return set()
    providers = catalog.components[name].component.providers
    return set.intersection(*({*each.requires} for key, each in providers.items() if key != BASE))


def _asked(word: str, wanted: str | None, has: str) -> Fact:
    return Fact(has) if wanted is None or begins(has, wanted) else Fact(wanted, frozenset({word}), has)
