"""What can be built: image lines (``images/``) and components (``templates/components/``), as typed data.

Reading the catalog imports neither jinja2 nor docker nor boto3; ``plan`` and ``list`` are answered from here.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from trainwright.errors import RequestError, did_you_mean
from trainwright.paths import images_dir, own_catalog, templates_dir
from trainwright.records import Record, parse_record, read_yaml

Status = Literal["supported", "unmaintained", "end-of-support"]


class Evidence(Record):
    """How a row is known: where it was read or measured, when, and what it says."""

    source: str
    date: str
    says: str


class Selection(Record):
    """One component of an image line: who provides it, in which version.

    ``packages`` are Python requirements with exact versions (``torch==2.6.0``) that the component installs;
    ``index`` names a further Python package index that holds them.
    """

    provider: str
    version: str
    packages: tuple[str, ...] = ()
    index: str | None = None


class ImageLine(Record):
    """A known-good set for one framework version and one CUDA version."""

    framework: str
    version: str
    cuda: str
    python: str
    base: str
    status: Status
    components: dict[str, Selection]
    options: dict[str, Selection] = {}
    constraints: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...]

    @property
    def cuda_tag(self) -> str:
        """The CUDA version as the command line spells it: ``cu124`` or ``cpu``."""
        return cuda_tag(self.cuda)


class Line(Record):
    """An image line and the file it was read from (its lock lies beside it)."""

    line: ImageLine
    path: Path

    @property
    def lock_path(self) -> Path:
        """The lock of every Python package of the line."""
        return self.path.with_suffix(".lock.json")


# What a shell leaves alone between single quotes, and BuildKit and curl anywhere.
Url = Annotated[str, Field(pattern=r"^https?://[^\s'\"\\`$<>]+$")]


class Source(Record):
    """One downloaded input of a build stage: an archive (``url``, ``mirrors``: further places of the same bytes, tried
    in this order) or a file of a Debian source package (``package``: apt knows where)."""

    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+~-]*$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    url: Url | None = None
    mirrors: tuple[Url, ...] = ()
    package: str | None = None

    @model_validator(mode="after")
    def _comes_from_somewhere(self) -> Source:
        if bool(self.package) == bool(self.url or self.mirrors):
            raise ValueError(f"{self.file}: name where it comes from: either package, or url and mirrors")
        return self


class Version(Record):
    """What a provider needs for one version of its component."""

    sources: tuple[Source, ...] = ()
    values: dict[str, str] = {}

    @property
    def archives(self) -> tuple[Source, ...]:
        """The sources that are downloaded from a URL."""
        return tuple(source for source in self.sources if source.package is None)


class Apt(Record):
    """Debian packages: ``build`` only in build stages, ``run`` in the image."""

    build: tuple[str, ...] = ()
    run: tuple[str, ...] = ()


class ProbeStep(Record):
    """How the probe learns facts of a component inside the image.

    Either ``python``: a script whose last line of output is a JSON object of facts; or ``run``: a shell command,
    with ``match``: fact name to a regular expression whose first group is the fact.
    """

    python: str | None = None
    run: str | None = None
    match: dict[str, str] = {}


class Provider(Record):
    """One way to come by a component.

    ``versions`` lists what is known; where it is empty any version that the line's lock holds will do.
    ``expect`` maps a probed fact to what it must be; ``{version}`` and ``{cuda}`` are filled in from the plan and
    ``*`` at the end leaves the rest open.
    """

    about: str
    versions: dict[str, Version] = {}
    apt: Apt = Apt()
    compile_memory_gb: float = 1.0
    environment: dict[str, str] = {}
    expect: dict[str, str] = {}
    owns: tuple[str, ...] = ()


class Notice(Record):
    """Something a user should know of a component; left out where the component ``unless`` is chosen as well."""

    says: str
    unless: str | None = None


class Tied(Record):
    """A component whose version another one decides: it changes only together with that."""

    to: str
    why: str


class Component(Record):
    """A folder of ``templates/components``: what it is, needs, provides and how it is proven."""

    name: str
    summary: str
    order: int = Field(description="place of its layers: what changes least comes first")
    providers: dict[str, Provider]
    requires: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    tied: Tied | None = None
    probe: tuple[ProbeStep, ...] = ()
    notices: tuple[Notice, ...] = ()


class ComponentFolder(Record):
    """A component and the folder that holds its data, template and tests."""

    component: Component
    path: Path

    @cached_property
    def recipe(self) -> str:
        """A digest of everything in the folder that ends up in an image: template, data and files, not the tests."""
        digest = hashlib.sha256()
        for file in sorted(p for p in self.path.rglob("*") if p.is_file()):
            relative = file.relative_to(self.path)
            if relative.name.startswith("test_") or "__pycache__" in relative.parts:
                continue
            digest.update(f"{relative}\0".encode() + file.read_bytes() + b"\0")
        return digest.hexdigest()


# A version range in pip's words, such as ">=2.1, <3". Checked by its form here; read only where a rule needs it.
_RANGE = r"(==|!=|<=|>=|<|>|~=) ?\d+(\.\d+)*(\.\*)?"
Range = Annotated[str, StringConstraints(pattern=rf"^{_RANGE}( ?, ?{_RANGE})*$")]


class Match(Record):
    """A component of an image: there at all, and where named of this provider and in this range of versions."""

    version: Range | None = None
    provider: str | None = None


class When(Record):
    """The conditions of a rule; all that are named must hold. ``cuda`` is a range or ``cpu``; ``os`` holds patterns;
    ``packages`` are Python packages that the line or a component pins."""

    framework: str | None = None
    version: Range | None = None
    cuda: Range | Literal["cpu"] | None = None
    python: Range | None = None
    os: tuple[str, ...] = ()
    components: dict[str, Match] = {}
    packages: dict[str, Range] = {}

    @model_validator(mode="after")
    def _not_empty(self) -> When:
        if not self.model_fields_set:
            raise ValueError("a rule without conditions would hold for every image")
        return self


class Rule(Record):
    """An incompatibility that holds beyond single lines: what it refuses, or what it has a user know, and why."""

    name: str
    when: When
    refuse: str | None = None
    notice: str | None = None
    why: str
    evidence: Evidence

    @model_validator(mode="after")
    def _one_effect(self) -> Rule:
        if (self.refuse is None) == (self.notice is None):
            raise ValueError("a rule has either refuse or notice")
        return self


class RuleBook(Record):
    """``templates/rules.yaml``. ``foreseen`` are frameworks and components that rules name and that have no line or
    folder yet; any other unknown name in a rule is an error."""

    foreseen: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()


class Catalog:
    """All lines, components and rules; asks for a name that does not exist are errors with the nearest one."""

    def __init__(
        self, lines: list[Line], components: dict[str, ComponentFolder], rules: RuleBook | None = None
    ) -> None:
        self.lines = lines
        self.components = components
        self.rules = rules or RuleBook()

    def component(self, name: str, where: str) -> ComponentFolder:
        """The component of that name.

        Raises:
            RequestError: there is none; ``where`` says who named it.
        """
        if name not in self.components:
            givers = [n for n, folder in self.components.items() if name in folder.component.provides]
            hint = f"{' and '.join(givers)} provides {name}." if givers else did_you_mean(name, self.components)
            raise RequestError(
                f"{where}: no component {name!r}. {hint}",
                remedy="./invoke list --components shows every component.",
            )
        return self.components[name]

    def from_packages(self, entry: Line) -> bool:
        """Whether package registries alone are enough for an image line: a base of Debian's packages, no archives."""
        chosen = entry.line.components.items()
        providers = [(self.components[name].component.providers[s.provider], s.version) for name, s in chosen]
        archives = [a for p, version in providers if version in p.versions for a in p.versions[version].archives]
        return entry.line.base.startswith("debian") and not archives

    def frameworks(self) -> list[str]:
        """The names of the frameworks that have lines."""
        return sorted({entry.line.framework for entry in self.lines})


def load_catalog(images: Path | None = None, templates: Path | None = None) -> Catalog:
    """Read every image line, component and rule.

    What the user's own folder (:func:`trainwright.paths.own_catalog`) holds comes on top of what is shipped; a line or
    component with the path of a shipped one takes its place.

    Args:
        images: the folder of image lines alone; by default the shipped one and the user's.
        templates: the folder that holds ``components/`` and ``rules.yaml`` alone; by default the shipped one, and the
            user's for components.

    Raises:
        RequestError: a file is malformed, or names a component, provider or version that does not exist.
    """
    image_roots, template_roots = [images or images_dir()], [templates or templates_dir()]
    own = own_catalog() if images is None and templates is None else None
    if own is not None:
        if not (own / "images").is_dir() and not (own / "templates" / "components").is_dir():
            raise RequestError(
                f"{own}: holds neither images/ nor templates/components/",
                remedy="CONTRIBUTING.md says what a folder of your own image lines and components holds.",
            )
        image_roots.append(own / "images")
        template_roots.append(own / "templates")
    components: dict[str, ComponentFolder] = {}
    for path in [p for root in template_roots for p in sorted((root / "components").glob("*/component.yaml"))]:
        component = parse_record(Component, read_yaml(path), str(path))
        if component.name != path.parent.name:
            raise RequestError(f"{path}: name is {component.name!r} but the folder is {path.parent.name!r}")
        components[component.name] = ComponentFolder(component=component, path=path.parent)
    files = {path.relative_to(root): path for root in image_roots for path in sorted(root.glob("*/*.yaml"))}
    lines = [
        Line(line=parse_record(ImageLine, read_yaml(path), str(path)), path=path) for path in sorted(files.values())
    ]
    rules_file = (templates or templates_dir()) / "rules.yaml"
    rules = parse_record(RuleBook, read_yaml(rules_file), str(rules_file))
    catalog = Catalog(sorted(lines, key=_order), components, rules)
    for entry in catalog.lines:
        _check_line(catalog, entry)
    _check_rules(catalog, rules_file)
    return catalog


def _order(entry: Line) -> tuple[str, int, tuple[int, ...]]:
    """CPU lines last, then by CUDA and framework version, oldest first."""
    line = entry.line
    return line.framework, line.cuda == "cpu", (*version_key(line.cuda), *version_key(line.version))


def _check_line(catalog: Catalog, entry: Line) -> None:
    for name, chosen in {**entry.line.components, **entry.line.options}.items():
        component = catalog.component(name, str(entry.path)).component
        if chosen.provider not in component.providers:
            raise RequestError(
                f"{entry.path}: component {name} has no provider {chosen.provider!r}. "
                f"{did_you_mean(chosen.provider, component.providers)}"
            )
        known = component.providers[chosen.provider].versions
        if known and chosen.version not in known:
            raise RequestError(
                f"{entry.path}: {name} ({chosen.provider}) has no version {chosen.version!r}. "
                f"{did_you_mean(chosen.version, known)}"
            )


def _check_rules(catalog: Catalog, file: Path) -> None:
    known = {*catalog.frameworks(), *catalog.components, *catalog.rules.foreseen}
    for rule in catalog.rules.rules:
        for name in (rule.when.framework, *rule.when.components):
            if name is not None and name not in known:
                raise RequestError(f"{file}: rule {rule.name} names {name!r}. {did_you_mean(name, known)}")
    for folder in catalog.components.values():
        tied = folder.component.tied
        if tied is not None and tied.to not in catalog.components:
            raise RequestError(
                f"{folder.path / 'component.yaml'}: tied to {tied.to!r}. {did_you_mean(tied.to, catalog.components)}"
            )


def cuda_tag(cuda: str) -> str:
    """``12.4`` as ``cu124``; ``cpu`` stays."""
    return cuda if cuda == "cpu" else "cu" + cuda.replace(".", "")


def version_key(version: str) -> tuple[int, ...]:
    """The numbers of a version, for an order that knows 1.9 from 1.10; ``cpu`` and other words give nothing."""
    numbers = []
    for part in version.split("+", maxsplit=1)[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
