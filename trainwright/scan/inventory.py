"""What a scan looks for: the packages of an image or an image line, under the names that vulnerability records use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.catalog.wheel_lock import normalise
from trainwright.core.data_files import parse_json
from trainwright.core.errors import RequestError
from trainwright.plan.plan import LABEL, Plan
from trainwright.plan.plan_lock import PlanLock
from trainwright.scan.ecosystems import PYTHON, of_distribution

_OF_IMAGE = frozenset({"os", "packages", "final"})  # the stages that an image consists of; see templates/Dockerfile.j2


@dataclass(frozen=True)
class Package:
    """A package by the name and version of what it was made from; ``parts`` are its packages that are installed.

    Records about distributions name source packages; the source of a package of Python is the package.
    """

    ecosystem: str
    name: str
    version: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inventory:
    """The packages of something, and what of it no record can be about.

    Attributes:
        subject: its name, as the user named it.
        plan: id of its plan, if that is known.
        image: digest or id of the image; empty for an image line.
        packages: each once.
        unscanned: what no database has, in words.
        notes: what makes the answer less sure.
    """

    subject: str
    plan: str
    image: str
    packages: tuple[Package, ...]
    unscanned: tuple[str, ...]
    notes: tuple[str, ...]


def of_sbom(text: str, subject: str, image: str = "") -> Inventory:
    """What a bill of materials lists.

    Args:
        text: a CycloneDX document (JSON), of any program that names packages by purl.
        subject: its name.
        image: digest or id of its image; by default what the document says.

    Raises:
        RequestError: it is something else.
    """
    from packageurl import PackageURL

    data = parse_json(text, subject)
    if not isinstance(data, dict) or data.get("bomFormat") != "CycloneDX":
        raise RequestError(f"{subject}: not a bill of materials (CycloneDX, JSON)")
    about = _mapping(_mapping(data.get("metadata")).get("component"))
    properties = {each.get("name"): each.get("value") for each in map(_mapping, _list(about.get("properties")))}
    gathered = _Gathered()
    for component in map(_mapping, _list(data.get("components"))):
        try:
            purl = PackageURL.from_string(str(component.get("purl") or ""))
        except ValueError:
            continue  # the distribution itself, files
        _place(gathered, purl)
    return Inventory(
        subject=subject,
        plan=str(properties.get(f"{LABEL}.plan") or ""),
        image=image or str(about.get("bom-ref") or ""),
        packages=gathered.packages(),
        unscanned=tuple(gathered.unscanned),
        notes=gathered.notes(),
    )


def of_plan(plan: Plan, lock: PlanLock | None, subject: str) -> Inventory:
    """What an image of a plan will contain, as far as that is known before it is built.

    Args:
        plan: of an image line or a request.
        lock: of the plan, which also pins the distribution's packages.
        subject: its name.
    """
    from packaging.utils import parse_wheel_filename

    gathered = _Gathered()
    if lock is not None and lock.python is not None:
        python = [(each.name, each.version) for each in (*lock.python, *(lock.user or ()))]
    else:
        pinned = [
            s.package.partition("==") for c in plan.components for s in c.sources if s.package and "==" in s.package
        ]
        python = [(normalise(name), version) for name, _, version in pinned]
    for name, version in python:
        gathered.add(PYTHON, name, version, name)
    system_name, _, system_release = plan.base.os.partition("-")
    system = lock.system if lock is not None else None
    notes = []
    if lock is not None and system is not None:
        installed = {
            each.name: each.version for each in (*(lock.base.packages if lock.base else ()), *_in_image(system))
        }
        for name, version in installed.items():
            gathered.system(system_name, system_release, name, version, "")
    else:
        notes.append(f"packages of {plan.base.os} are not known before a build; ./invoke lock pins them")
    if plan.base.kind == "dlc":
        notes.append(f"what {plan.base.image} contains is not known before a build")
    for component in plan.components:
        for wheel in component.wheel_archives:
            distribution, release, *_ = parse_wheel_filename(str(wheel.file))
            gathered.add(PYTHON, str(distribution), str(release), str(distribution))
        if len(component.archives) > len(component.wheel_archives):
            gathered.unscanned.append(f"{component.name} {component.version}")
    return Inventory(
        subject=subject,
        plan=plan.id,
        image="",
        packages=gathered.packages(),
        unscanned=tuple(gathered.unscanned),
        notes=(*gathered.notes(), *notes),
    )


class _Gathered:
    """Installed packages, put together by what they were made from."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str, str], list[str]] = {}
        self._by_own_name = 0
        self._foreign: dict[str, int] = {}
        self.unscanned: list[str] = []

    def add(self, ecosystem: str, name: str, version: str, part: str) -> None:
        """A package of an ecosystem, which was installed as ``part``."""
        self._parts.setdefault((ecosystem, name, version), []).append(part)

    def system(self, distribution: str, release: str, name: str, version: str, source: str) -> None:
        """A package of a distribution; ``source`` is ``name`` or ``name@version`` of its source package, if known."""
        ecosystem = of_distribution(distribution, release)
        if not ecosystem:
            place = f"{distribution}-{release}"
            self._foreign[place] = self._foreign.get(place, 0) + 1
            return
        self._by_own_name += not source
        made_from, _, of = source.partition("@")
        self.add(ecosystem, made_from or name, of or version, name)

    def packages(self) -> tuple[Package, ...]:
        """The packages, sorted."""
        return tuple(Package(*key, tuple(sorted(set(parts)))) for key, parts in sorted(self._parts.items()))

    def notes(self) -> tuple[str, ...]:
        """What makes the answer less sure."""
        notes = [
            f"{count} packages of {place} are not scanned: no database has them"
            for place, count in self._foreign.items()
        ]
        if self._by_own_name:
            notes.append(
                f"the source packages of {self._by_own_name} packages are not known, and records name "
                "those: these are looked up by their own names, so some vulnerabilities may be missing"
            )
        return tuple(notes)


def _place(gathered: _Gathered, purl: Any) -> None:
    """One component of a bill of materials."""
    version = str(purl.version or "")
    qualifiers: Mapping[str, str] = purl.qualifiers if isinstance(purl.qualifiers, dict) else {}
    if purl.type == "pypi":
        gathered.add(PYTHON, normalise(purl.name), version, purl.name)
    elif purl.type == "deb":
        # debian-12, as we and others write it; only the release is also usual.
        distribution, _, release = str(qualifiers.get("distro") or "").rpartition("-")
        gathered.system(
            distribution or str(purl.namespace), release, purl.name, version, str(qualifiers.get("upstream") or "")
        )
    else:
        gathered.unscanned.append(f"{purl.name} {version}".strip())


def _in_image(system: Iterable[Any]) -> Iterable[Any]:
    """The packages that a lock pins for the image itself, and not only for build stages."""
    return (each for each in system if not _OF_IMAGE.isdisjoint(each.stages))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
