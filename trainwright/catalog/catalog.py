"""What can be built: image lines (``images/``) and components (``templates/components/``), as typed data.

Reading the catalog imports neither jinja2 nor docker nor boto3; ``plan`` and ``list`` are answered from here.
"""

from __future__ import annotations

from pathlib import Path

from trainwright.catalog.checks import check_lines, check_provable
from trainwright.catalog.component import BuildTarget, Component, ComponentFolder, Provider
from trainwright.catalog.image_line import ImageLine, Line, version_key
from trainwright.catalog.incompatibilities import RuleBook
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.paths import images_dir, own_catalog, templates_dir
from trainwright.core.records import parse_record, read_yaml

# The provider that every component has: nothing is installed, as the base image holds it.
BASE = "base"
IN_BASE = Provider(
    about="the base image already holds it",
    unchecked="its version is the one that the publisher of the base image names",
)


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
        sources = [s for p, version in providers for s in p.sources_for(version, target_of(entry.line)) or ()]
        return entry.line.base.kind == "debian" and all(source.package for source in sources)

    def frameworks(self) -> list[str]:
        """The names of the frameworks that have lines."""
        return sorted({entry.line.framework for entry in self.lines})


def load_catalog(images: Path | None = None, templates: Path | None = None) -> Catalog:
    """Read every image line, component and rule.

    What the user's own folder (:func:`trainwright.core.paths.own_catalog`) holds comes on top of what is shipped; a
    line, component or rule file with the path of a shipped one takes its place.

    Args:
        images: the folder of image lines alone; by default the shipped one and the user's.
        templates: the folder that holds ``components/`` and ``rules.yaml`` alone; by default the shipped one and the
            user's.

    Raises:
        RequestError: a file is malformed, or names a component, provider or version that does not exist; a component
            cannot be proven; two lines mean the same, or a file's name says something else than its line.
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
        check_provable(component, path)
        providers = {BASE: IN_BASE, **component.providers}
        component = component.model_copy(update={"providers": providers})
        components[component.name] = ComponentFolder(component=component, path=path.parent)
    files = {path.relative_to(root): path for root in image_roots for path in sorted(root.glob("*/*.yaml"))}
    lines = [
        Line(line=parse_record(ImageLine, read_yaml(path), str(path)), path=path) for path in sorted(files.values())
    ]
    rules_file = next(p for root in reversed(template_roots) if (p := root / "rules.yaml").is_file())
    rules = parse_record(RuleBook, read_yaml(rules_file), str(rules_file))
    check_lines(lines)
    catalog = Catalog(sorted(lines, key=_order), components, rules)
    for entry in catalog.lines:
        _check_line(catalog, entry)
    _check_rules(catalog, rules_file)
    return catalog


def _order(entry: Line) -> tuple[str, int, tuple[int, ...]]:
    """CPU lines last, then by CUDA and framework version, oldest first."""
    line = entry.line
    return line.framework, line.cuda == "cpu", (*version_key(line.cuda), *version_key(line.version))


def target_of(line: ImageLine, version: str | None = None) -> BuildTarget:
    """What an image of a line is made for (``version``: of another version of the framework)."""
    return BuildTarget(line.framework, version or line.version, line.cuda, line.python)


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
        if component.providers[chosen.provider].sources_for(chosen.version, target_of(entry.line)) is None:
            made = ", ".join(build.made_for for build in known[chosen.version].builds)
            raise RequestError(f"{entry.path}: {name} {chosen.version} ({chosen.provider}) is made for {made} alone")


def _check_rules(catalog: Catalog, file: Path) -> None:
    known = {*catalog.frameworks(), *catalog.components, *catalog.rules.foreseen}
    for rule in catalog.rules.rules:
        for name in (rule.when.framework, *rule.when.components):
            if name is not None and name not in known:
                raise RequestError(f"{file}: rule {rule.name} names {name!r}. {did_you_mean(name, known)}")
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
