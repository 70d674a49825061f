"""Components (``templates/components/<name>/``): what each is, who provides it, in which versions, from which bytes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from trainwright.catalog.image_line import begins
from trainwright.catalog.incompatibilities import Range, within
from trainwright.catalog.platforms import AMD64
from trainwright.core.fields import (
    AnyVersion,
    FileName,
    FilledFileName,
    Folder,
    Name,
    OneLine,
    Prose,
    Sha256,
    SystemName,
    Url,
    VariableName,
)
from trainwright.core.records import Field, Record, parse_record
from trainwright.user.files import component_files


class SourceFile(Record):
    """One downloaded input of a build stage: an archive (``url``, ``mirrors``: further URLs of the same bytes, tried
    in this order) or a file of a Debian source package (``package``: apt knows where).

    An archive without a ``sha256`` is one whose checksum nobody publishes: the first use records it (``lock``). A file
    that ends in ``.whl`` is a Python wheel; it is installed without its dependencies.
    """

    file: FileName
    sha256: Sha256 | None = None
    url: Url | None = None
    mirrors: tuple[Url, ...] = ()
    package: SystemName | None = None

    def __post_init__(self) -> None:
        if bool(self.package) == bool(self.url or self.mirrors):
            raise ValueError(f"{self.file}: give its source: either package, or url and mirrors")
        if self.package and self.sha256 is None:
            raise ValueError(f"{self.file}: a file of a Debian source package needs its sha256")


class ArchiveTemplate(Record):
    """Where to find the archive of a version that states only its checksum; ``{version}`` and the provider's values
    are filled in."""

    file: FilledFileName
    url: Url
    mirrors: tuple[Url, ...] = ()


class BuildTarget(NamedTuple):
    """What an image is built for: the properties that select between the files of a version."""

    framework: str
    framework_version: str
    cuda: str
    python: str
    platform: str = AMD64


class Build(Record):
    """The files of a version for images of one kind: each property must equal the image's, or be its beginning.

    ``platform`` is that of the image; by default linux/amd64. ``holds``: versions of libraries inside these files.
    """

    framework: Name | None = None
    framework_version: AnyVersion | None = None
    cuda: AnyVersion | None = None
    python: AnyVersion | None = None
    platform: Literal["linux/amd64", "linux/arm64"] = AMD64
    sources: tuple[SourceFile, ...]
    holds: dict[Name, AnyVersion] = {}

    def fits(self, target: BuildTarget) -> bool:
        """Whether these files are for such an image."""
        pairs = ((getattr(self, name), getattr(target, name)) for name in BuildTarget._fields)
        return all(wanted is None or begins(has, wanted) for wanted, has in pairs)

    @property
    def made_for(self) -> str:
        """What the files are for, in words."""
        names = {"framework": "", "framework_version": "", "cuda": "CUDA ", "python": "Python "}
        words = [f"{word}{value}" for key, word in names.items() if (value := getattr(self, key))]
        return " ".join(words + ([] if self.platform == AMD64 else [self.platform]))


class VersionFiles(Record):
    """What a provider needs for one version of its component.

    Either the ``sha256`` of the provider's ``archive`` (if it has one), or ``sources`` in full, or ``builds``: files by
    framework, CUDA, Python and platform, if a version has several.
    """

    sha256: Sha256 | None = None
    sources: tuple[SourceFile, ...] = ()
    builds: tuple[Build, ...] = ()
    values: dict[VariableName, OneLine] = {}

    def __post_init__(self) -> None:
        if sum(map(bool, (self.sha256, self.sources, self.builds))) > 1:
            raise ValueError("give one of sha256, sources and builds")


class VersionRange(Record):
    """What applies to a range of versions: ``values`` for the template, another ``archive``, further ``requires``, and
    ``expect`` in place of the provider's."""

    versions: Range
    values: dict[VariableName, OneLine] = {}
    expect: dict[VariableName, OneLine] = {}
    archive: ArchiveTemplate | None = None
    requires: tuple[Name, ...] = ()


class SystemPackages(Record):
    """Packages of the distribution: ``build`` only in build stages, ``run`` in the image. ``{python}`` and the
    provider's values are filled in."""

    build: tuple[SystemName, ...] = ()
    run: tuple[SystemName, ...] = ()


class ProbeStep(Record):
    """How the probe finds facts about a component inside the image.

    Either ``python``: a script whose last line of output is a JSON object of facts; or ``run``: a shell command,
    with ``match``: fact name to a regular expression whose first group is the fact.
    """

    python: str | None = None
    run: str | None = None
    match: dict[str, str] = {}

    def __post_init__(self) -> None:
        if bool(self.python) == bool(self.run) or bool(self.run) != bool(self.match):
            raise ValueError("give either python, or run and match")
        for fact, pattern in self.match.items():
            try:
                groups = re.compile(pattern).groups
            except re.error as wrong:
                raise ValueError(f"match of {fact} is not a regular expression: {wrong}") from None
            if not groups:
                raise ValueError(f"match of {fact} has no group: put the fact in parentheses")


class Tied(Record):
    """A component whose version follows from another one: it changes only together with that. ``versions``: the known
    ones, by version of the other."""

    to: Name
    why: Prose
    versions: dict[AnyVersion, AnyVersion] = {}


class Licence(Record):
    """The licence of what a provider puts into an image.

    Attributes:
        name: an SPDX identifier, or the name that its owner gives it.
        redistribute: whether the bytes may be passed on, as in a public registry: ``conditions`` if only under
            conditions beyond a notice; ``no`` also if no permission is published.
        text: where the text is, for licences without an SPDX identifier.
    """

    name: OneLine
    redistribute: Literal["yes", "conditions", "no"] = "yes"
    text: Url | None = None


class Provider(Record):
    """One way to get a component.

    Attributes:
        about: what a user should know about it, in one line.
        versions: the known versions; if empty, any version in the line's lock is valid.
        archive: the archive of a version that states only its checksum.
        ranges: what applies to ranges of versions, compared as versions; later ones win.
        values: for the template, for every version.
        requires: components (or what they provide) that this provider needs in addition to those of the component.
        apt: packages of Debian and Ubuntu.
        dnf: packages of Amazon Linux.
        compile_memory_gb: of one compile job.
        for_gpus: compiled for the GPUs that an image line names (``architectures``); other lines cannot have it.
        gpu_code: its wheels have machine code for several GPUs, and their licences let it be left out (``--for-gpus``).
        environment: of the image; ``{version}``, ``{cuda}``, ``{python}`` and values are filled in.
        path: directories of programs, prepended to ``PATH``.
        expect: what the probe must find, by fact; filled in as well; ``*`` at the end matches anything. ``{code}`` is
            the digest of the user's code, ``{nccl}`` and ``{cudnn}`` are what the framework loads, ``{cudnn_series}``
            is ``9*`` for cuDNN 9, ``{base_cudnn}`` is what NVIDIA's base image has; ``*`` if unknown.
        unchecked: instead of ``expect``: why the probe does not check its version; shown in plans.
        probe: replaces the component's probe.
        loads: for a framework: where it finds a library (``nccl``, ``cudnn``) of which the lock has no wheel:
            ``inside`` its own wheel, in the ``base`` image, or as the ``component`` of that name.
        licence: if it differs from the component's.
        owns: patterns of the Python packages in its layer.
        builds_with: patterns of the Python packages that only its build stages need; the layer of another component has
            them if one needs them in the image.
        tied: the component that decides its version, if any.
        own_versions: its versions are of an installer, not of what it installs, so those of other providers mean
            nothing to it.
    """

    about: Prose
    versions: dict[AnyVersion, VersionFiles] = {}
    archive: ArchiveTemplate | None = None
    ranges: tuple[VersionRange, ...] = ()
    values: dict[VariableName, OneLine] = {}
    requires: tuple[Name, ...] = ()
    apt: SystemPackages = SystemPackages()
    dnf: SystemPackages = SystemPackages()
    compile_memory_gb: float = 1.0
    for_gpus: bool = False
    gpu_code: bool = False
    environment: dict[VariableName, OneLine] = {}
    path: tuple[Folder, ...] = ()
    expect: dict[VariableName, OneLine] = {}
    unchecked: Prose | None = None
    probe: tuple[ProbeStep, ...] = ()
    loads: dict[Name, Literal["inside", "base", "component"]] = {}
    licence: Licence | None = None
    owns: tuple[OneLine, ...] = ()
    builds_with: tuple[OneLine, ...] = ()
    tied: Tied | None = None
    own_versions: bool = False

    def owning(self, package: str) -> int:
        """How specific the pattern is by which this provider owns a Python package: its length, else 0."""
        return _fit(self.owns, package)

    def building(self, package: str) -> int:
        """The same of a package that only its build stages need."""
        return _fit(self.builds_with, package)

    def takes(self, package: str) -> bool:
        """Whether a package is one of this provider's, in its layer or in its build stages."""
        return self.owning(package) > 0 or self.building(package) > 0

    def values_for(self, version: str) -> dict[str, str]:
        """The values of a version: the provider's, those of its ranges, and its own."""
        values = dict(self.values)
        for each in self._ranges_of(version):
            values |= each.values
        known = self.versions.get(version)
        return values | (known.values if known else {})

    def expect_for(self, version: str) -> dict[str, str]:
        """What the probe must find of a version, by fact."""
        return next((r.expect for r in reversed(self._ranges_of(version)) if r.expect), self.expect)

    def requires_for(self, version: str) -> tuple[str, ...]:
        """The components that a version needs in addition to those that every version needs."""
        return (*self.requires, *(name for each in self._ranges_of(version) for name in each.requires))

    def build_for(self, version: str, target: BuildTarget) -> Build | None:
        """The build of a version that fits an image; ``None`` if none does, or the version has no builds."""
        known = self.versions.get(version)
        return next((build for build in known.builds if build.fits(target)), None) if known is not None else None

    def sources_for(self, version: str, target: BuildTarget) -> tuple[SourceFile, ...] | None:
        """What a version is made from in an image; ``None`` if it has files but none for such an image."""
        known = self.versions.get(version)
        if known is None:
            return ()
        if known.builds:
            build = self.build_for(version, target)
            return build.sources if build is not None else None
        if known.sources:
            return known.sources
        archive = next((r.archive for r in reversed(self._ranges_of(version)) if r.archive), self.archive)
        if archive is None:
            return ()
        values = {**self.values_for(version), "version": version}
        mirrors = tuple(fill(url, values) for url in archive.mirrors)
        filled = {"file": fill(archive.file, values), "url": fill(archive.url, values), "mirrors": mirrors}
        return (parse_record(SourceFile, {**filled, "sha256": known.sha256}, f"the archive of version {version}"),)

    def _ranges_of(self, version: str) -> list[VersionRange]:
        return [each for each in self.ranges if within(version, each.versions)]


class Notice(Record):
    """Something a user should know about a component; omitted if a component of ``unless`` is chosen as well, or one of
    ``when`` is not.

    ``versions``: of the component that it is about; all without it.
    """

    says: Prose
    when: tuple[Name, ...] = ()
    unless: tuple[Name, ...] = ()
    versions: Range | None = None

    def applies(self, version: str, others: Collection[str]) -> bool:
        """Whether it is about a version of its component in an image with these other components."""
        fits = set(self.when) <= set(others) and not set(self.unless) & set(others)
        return fits and (not self.versions or not version or within(version, self.versions))


class Component(Record):
    """A folder of ``templates/components``: what it is, needs, provides and how it is proven."""

    name: Name
    summary: Prose
    order: int = Field(description="position of its layers: what changes least comes first")
    providers: dict[Name, Provider]
    licence: Licence | None = None
    requires: tuple[Name, ...] = ()
    provides: tuple[Name, ...] = ()
    probe: tuple[ProbeStep, ...] = ()
    notices: tuple[Notice, ...] = ()


class ComponentFolder(Record, dict=True):
    """A component and the folder of its data, template and tests."""

    component: Component
    path: Path

    @cached_property
    def files(self) -> dict[str, str]:
        """The folder's files in a build context: mode and sha256 by name.

        Raises:
            RequestError: one cannot enter a context.
        """
        found = component_files(self.path, allow_secrets=True)  # write_context refuses credentials
        return {file.name: f"{'755' if file.executable else '644'} {file.sha256()}" for file in found}


@lru_cache(maxsize=65536)  # every plan asks the same of its packages
def _fit(patterns: tuple[str, ...], package: str) -> int:
    return max((len(pattern) for pattern in patterns if fnmatchcase(package, pattern)), default=0)


def fill(text: str, values: Mapping[str, str]) -> str:
    """``text`` with ``{name}`` replaced for every value; other braces stay."""
    if "{" not in text:
        return text
    for key, value in values.items():
        text = text.replace("{" + key + "}", value)
    return text
