"""What can be built: image lines (``images/``) and components (``templates/components/``), as typed data.

Reading the catalog imports neither jinja2 nor docker nor boto3, so ``plan`` and ``list`` start fast. They read
only what they need (:func:`open_catalog`): a plan reads the lines of its framework and the components it considers.
Whatever changes or publishes the catalog reads and checks all of it (:func:`load_catalog`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Generic, TypeVar

from trainwright.catalog.checks import check_lines, check_provable, refuse_old_layout
from trainwright.catalog.component import BuildTarget, Component, ComponentFolder, Provider
from trainwright.catalog.image_line import BASE, LINE_FILE, ImageLine, Line, Selection, version_key
from trainwright.catalog.incompatibilities import RuleBook
from trainwright.catalog.platforms import AMD64
from trainwright.core.data_files import read_text, read_yaml
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.paths import images_dir, own_catalog, templates_dir
from trainwright.core.records import parse_record
from trainwright.core.yaml_places import yaml_place

# What a component of the base image must be if its version is claimed: by the name of the image, or with --set.
IN_BASE = Provider(about="the base image contains it; its build looks for it there", expect={"version": "{version}"})


V = TypeVar("V")


class _OnDemand(Mapping[str, V], Generic[V]):
    """A mapping with known keys whose values are read on first access."""

    def __init__(self, names: Iterable[str], read: Callable[[str], V]) -> None:
        self._values: dict[str, V | None] = dict.fromkeys(names)
        self._read = read

    def __getitem__(self, name: str) -> V:
        value = self._values[name]
        if value is None:
            value = self._values[name] = self._read(name)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._values  # the method of Mapping would read the value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class _Shelves(_OnDemand[Sequence["Line"]]):
    """The image lines of each framework, read on first access."""

    def __init__(self, files: Mapping[str, Sequence[Path]]) -> None:
        super().__init__(files, lambda framework: _read_lines(files[framework]))
        self._files = files

    def some(self, framework: str, version: str) -> Sequence[Line]:
        """The lines of a framework whose files have the text of a version."""
        if self._values.get(framework) is not None:
            return self[framework]
        return _read_lines(path for path in self._files.get(framework, ()) if version in read_text(path))


class Catalog:
    """All lines, components and rules. An unknown name is an error that suggests the nearest one.

    Args:
        lines: the image lines, or those of each framework under its name.
        components: by name.
        rules: known incompatibilities, or what reads them.
        component_roots: the parent folders of the components' folders (default: those of ``components``).
    """

    def __init__(
        self,
        lines: Iterable[Line] | Mapping[str, Sequence[Line]],
        components: Mapping[str, ComponentFolder],
        rules: RuleBook | Callable[[], RuleBook] | None = None,
        component_roots: Iterable[Path] | None = None,
    ) -> None:
        if not isinstance(lines, Mapping):
            given, lines = list(lines), {}
            lines = {name: [e for e in given if e.line.framework == name] for name in {e.line.framework for e in given}}
        self._lines = lines
        self.components = components
        self._rules = rules or RuleBook()
        self._component_roots = component_roots

    @cached_property
    def rules(self) -> RuleBook:
        """The known incompatibilities."""
        return self._rules() if callable(self._rules) else self._rules

    @property
    def lines(self) -> list[Line]:
        """Every image line, sorted by framework, oldest first."""
        return [entry for framework in self.frameworks() for entry in self._lines[framework]]

    def lines_of(self, framework: str, version: str | None = None) -> Sequence[Line]:
        """The image lines of a framework, oldest first; empty if the framework is unknown.

        Args:
            framework: its name.
            version: only lines of this version, or of those that begin with it, are wanted: others may be missing.
        """
        if version is not None and isinstance(self._lines, _Shelves):
            return self._lines.some(framework, version)
        return self._lines.get(framework, ())

    def alone(self, entry: Line) -> Catalog:
        """A catalog with one line, so that a request for its version and CUDA means it and no other."""
        return Catalog([entry], self.components, lambda: self.rules, self._component_roots)

    def component(self, name: str, where: str) -> ComponentFolder:
        """The component of that name.

        Raises:
            RequestError: no such component; ``where`` says what named it.
        """
        if name not in self.components:
            if givers := [n for n, folder in self.components.items() if name in folder.component.provides]:
                hint = f"{' and '.join(givers)} provides {name}."
            elif installing := self._installing(name):
                hint = f"{name} is a package of {', '.join(installing)}."
            else:
                hint = did_you_mean(name, self.components)
            # A name that is not a component may be a package: deepspeed, ffmpeg.
            other = " --with-requirements FILE adds Python packages, --with-apt NAME those of the distribution."
            raise RequestError(
                f"{where}: no component {name!r}. {hint}",
                remedy=f"./invoke list --components shows every component.{other if where == '--with' else ''}",
            )
        return self.components[name]

    def _installing(self, package: str) -> list[str]:
        """The components that install a Python package in some image line."""
        chosen = (each for entry in self.lines for each in (entry.line.components | entry.line.options).items())
        return sorted({name for name, has in chosen if package in {each.partition("==")[0] for each in has.packages}})

    def from_packages(self, entry: Line) -> bool:
        """Whether an image line needs nothing but package registries: a Debian base and no archives."""
        return self.beside_packages(entry) == ()

    def beside_packages(self, entry: Line) -> tuple[str, ...] | None:
        """The components of an image line whose archives no package registry has; ``None`` if it has no such base."""
        if entry.line.base.kind != "debian" or not entry.line.components:
            return None
        chosen = entry.line.components
        self.check_references(entry, chosen)
        providers = [(n, self.components[n].component.providers[s.provider], s.version) for n, s in chosen.items()]
        sources = [(n, s) for n, p, version in providers for s in p.sources_for(version, target_of(entry.line)) or ()]
        return tuple(dict.fromkeys(name for name, source in sources if not source.package))

    def can_do_without(self, names: Iterable[str], chosen: Mapping[str, tuple[str, str]]) -> bool:
        """Whether an image needs some of its components: not its framework, and not what others require.

        Args:
            names: of these components.
            chosen: provider and version of every component of the image.
        """
        gone = set(names)
        known = {name: self.components[name].component for name in chosen}
        offered = {each for name in gone for each in (name, *known[name].provides)}
        needed = {*self.frameworks()}
        for name in chosen.keys() - gone:
            provider, version = chosen[name]
            needed |= {*known[name].requires, *known[name].providers[provider].requires_for(version)}
        return not offered & needed

    def template_folders(self) -> list[Path]:
        """The search path of templates; a user's components come first because they may replace shipped ones."""
        shipped = templates_dir() / "components"
        roots = self._component_roots
        if roots is None:
            roots = (folder.path.parent for folder in self.components.values())
        return [*sorted({*roots} - {shipped}), shipped, templates_dir()]

    def frameworks(self) -> list[str]:
        """The names of the frameworks that have lines."""
        return sorted(self._lines)

    def check_references(self, entry: Line, chosen: Mapping[str, Selection]) -> None:
        """Check that the components of a line exist.

        Args:
            entry: the line.
            chosen: the components to check in full; of all others only the name is checked, and no file is read.

        Raises:
            RequestError: a component, provider or version does not exist, or does not support such an image.
        """
        for name in (*entry.line.components, *entry.line.options):
            if name not in self.components:
                self.component(name, str(entry.path))
        for name, selection in chosen.items():
            provider = self.component(name, str(entry.path)).component.providers.get(selection.provider)
            if provider is None:
                known = self.components[name].component.providers
                raise RequestError(
                    f"{entry.path}: component {name} has no provider {selection.provider!r}. "
                    f"{did_you_mean(selection.provider, known)}"
                )
            versions = provider.versions
            if versions and selection.version not in versions:
                raise RequestError(
                    f"{entry.path}: {name} ({selection.provider}) has no version {selection.version!r}. "
                    f"{did_you_mean(selection.version, versions)}"
                )
            if provider.sources_for(selection.version, target_of(entry.line)) is None:
                made = ", ".join(build.made_for for build in versions[selection.version].builds)
                what = f"{name} {selection.version} ({selection.provider})"
                raise RequestError(f"{entry.path}: {what} supports only {made}")


def load_catalog(images: Path | None = None, templates: Path | None = None) -> Catalog:
    """Read every image line, component and rule, and check all of it.

    Args:
        images: the only folder of image lines to read; by default the shipped one and the user's.
        templates: the only folder with ``components/`` and ``rules.yaml`` to read; by default the shipped one and the
            user's.

    Raises:
        RequestError: a file is malformed, or names a component, provider or version that does not exist; a component
            cannot be proven; two lines are equivalent, or a folder's name does not match its line.
    """
    catalog, _ = _open(images, templates)
    _check(catalog)
    return catalog


def _check(catalog: Catalog) -> None:
    _ = catalog.rules
    for entry in catalog.lines:
        catalog.check_references(entry, {**entry.line.components, **entry.line.options})
    _check_requirements(catalog)


def open_catalog() -> Catalog:
    """The catalog; rules, lines and components are read on first access.

    A user's own folder (``--catalog``) is work in progress, so if there is one, everything is read and checked.

    Returns:
        A catalog that raises RequestError when it reads a malformed file, as :func:`load_catalog` does.

    Raises:
        RequestError: the user's folder is not a catalog.
    """
    catalog, own = _open(None, None)
    if own:
        _check(catalog)
    return catalog


def _open(images: Path | None, templates: Path | None) -> tuple[Catalog, bool]:
    """The catalog that reads on demand, and whether it includes a folder of the user's.

    The user's folder (:func:`trainwright.core.paths.own_catalog`) is an overlay on what is shipped: a line, component
    or rule file replaces the shipped one of the same path.
    """
    image_roots, template_roots = [images or images_dir()], [templates or templates_dir()]
    own = own_catalog() if images is None and templates is None else None
    if own is not None:
        if not (own / "images").is_dir() and not (own / "templates" / "components").is_dir():
            raise RequestError(
                f"{own}: contains neither images/ nor templates/components/",
                remedy="CONTRIBUTING.md describes the layout of a folder with your own image lines and components.",
            )
        image_roots.append(own / "images")
        template_roots.append(own / "templates")
    folders = {
        file.parent.name: file
        for root in template_roots
        for file in sorted((root / "components").glob("*/component.yaml"))
    }
    for root in image_roots:
        refuse_old_layout(root)
    files = {path.relative_to(root): path for root in image_roots for path in sorted(root.glob(f"*/*/{LINE_FILE}"))}
    shelves: dict[str, list[Path]] = {}
    for path in sorted(files.values()):
        shelves.setdefault(path.parent.parent.name, []).append(path)
    rules_file = next(p for root in reversed(template_roots) if (p := root / "rules.yaml").is_file())
    known = {*shelves, *folders}
    catalog = Catalog(
        _Shelves(shelves),
        _OnDemand(folders, lambda name: _read_component(folders[name])),
        lambda: _read_rules(rules_file, known),
        {file.parent.parent for file in folders.values()},
    )
    return catalog, own is not None


def _read_component(file: Path) -> ComponentFolder:
    component = parse_record(Component, read_yaml(file), str(file))
    if component.name != file.parent.name:
        raise RequestError(f"{file}: name is {component.name!r} but the folder is {file.parent.name!r}")
    check_provable(component, file)
    providers = {BASE: IN_BASE, **component.providers}
    return ComponentFolder(component=component.replace(providers=providers), path=file.parent)


def _read_line(file: Path) -> Line:
    return Line(line=ImageLine.read(read_yaml(file), str(file), partial(yaml_place, file)), path=file)


def _read_lines(files: Iterable[Path]) -> list[Line]:
    """The image lines of one framework."""
    lines = [_read_line(file) for file in files]
    check_lines(lines)
    return sorted(lines, key=_order)


def _order(entry: Line) -> tuple[bool, tuple[int, ...]]:
    """CPU lines last, then by CUDA and framework version, oldest first."""
    line = entry.line
    return line.cuda == "cpu", (*version_key(line.cuda), *version_key(line.version))


def target_of(line: ImageLine, version: str | None = None, platform: str = AMD64) -> BuildTarget:
    """What an image of a line is built for (``version``: for another version of the framework)."""
    return BuildTarget(line.framework, version or line.version, line.cuda, line.python, platform)


def _read_rules(file: Path, known: set[str]) -> RuleBook:
    """The rules in a file, which name only frameworks and components that are known or foreseen."""
    book = parse_record(RuleBook, read_yaml(file), str(file))
    known |= {*book.foreseen}
    named = [(f"rule {rule.name}", (rule.when.framework, *rule.when.components)) for rule in book.rules]
    named += [("wheels", (each.framework,)) for each in book.wheels]
    for what, names in named:
        for name in names:
            if name is not None and name not in known:
                raise RequestError(f"{file}: {what} names {name!r}. {did_you_mean(name, known)}")
    return book


def _check_requirements(catalog: Catalog) -> None:
    """Check that everything that a component requires exists."""
    parts = [folder.component for folder in catalog.components.values()]
    provided = {*catalog.components, *(name for part in parts for name in part.provides)}
    for folder in catalog.components.values():
        for provider in folder.component.providers.values():
            ranged = (name for each in provider.ranges for name in each.requires)
            names = (*provider.requires, *ranged, *((provider.tied.to,) if provider.tied else ()))
            for name in (*folder.component.requires, *names):
                if name not in provided:
                    where = folder.path / "component.yaml"
                    raise RequestError(f"{where}: no component {name!r}. {did_you_mean(name, provided)}")
