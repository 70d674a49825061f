"""The plan: the one resolved record from which Dockerfile, labels, tags and expectations are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainwright.catalog.budget import Budget
from trainwright.catalog.component import Licence, ProbeStep, SystemPackages
from trainwright.catalog.image_line import BASE, Evidence
from trainwright.catalog.platforms import AMD64, PLATFORMS
from trainwright.core.records import Field, Record
from trainwright.plan.destination import SAGEMAKER
from trainwright.user.files import UserFiles

SCHEMA = "trainwright/plan/1"
LABEL = "io.trainwright"
CODE = "/opt/ml/code"  # where the toolkit looks for code in the image
# Added to an image when it is built: a Dockerfile does not contain its id, which follows from it.
PLAN_LABEL = f"{LABEL}.plan"
# Where the jobs of an image run; missing of one for SageMaker's training jobs.
FOR_LABEL = f"{LABEL}.for"
GPUS_LABEL = f"{LABEL}.gpus"
# Missing of an image for linux/amd64.
PLATFORM_LABEL = f"{LABEL}.platform"


class Base(Record):
    """What the image starts from.

    Attributes:
        kind: ``debian``, ``nvidia`` or ``dlc``.
        os: distribution and release.
        image: a registry reference, or None if the root file system is made locally.
        digest: of ``image``, if the reference or a lock has it.
        build_image: what build stages start from, if that is another image.
        build_digest: of ``build_image``, if a lock has it.
    """

    kind: str
    os: str
    image: str | None = None
    digest: str | None = None
    build_image: str | None = None
    build_digest: str | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        """The images that are known by a tag alone, whose content may change."""
        named = ((self.image, self.digest), (self.build_image, self.build_digest))
        return tuple(image for image, digest in named if image and not digest and "@" not in image)

    @property
    def family(self) -> str:
        """How the distribution installs packages: ``apt`` or ``dnf``."""
        return "dnf" if self.os.startswith("amazonlinux") else "apt"


# The packages of the image, by which pip and uv install what a job asks for when it starts. The build makes the file.
CONSTRAINTS = "/etc/trainwright/constraints.txt"
JOB_CONSTRAINTS = {"PIP_CONSTRAINT": CONSTRAINTS, "UV_CONSTRAINT": CONSTRAINTS}


class PlannedSource(Record):
    """One input with its checksum: a Python package (``package`` and ``file``), an archive (``url``) or a file of a
    Debian source package (``package`` and ``file``, no URL: apt knows where).

    ``sha256`` is missing if it is neither published nor locked yet.
    """

    package: str | None = None
    file: str | None = None
    url: str | None = None
    mirrors: tuple[str, ...] = ()
    sha256: str | None
    size: int | None = None


class PlannedComponent(Record):
    """A component of the plan with everything its stages need.

    ``files``: its folder's files in the build context, mode and sha256 by name. ``version`` is empty if the base image
    may have it and nobody has looked yet; in a build record, if it does not have it.
    """

    name: str
    version: str
    provider: str
    order: int
    packages: tuple[str, ...] = ()
    index: str | None = None
    sources: tuple[PlannedSource, ...] = ()
    values: dict[str, str] = {}
    system: SystemPackages = SystemPackages()
    compile_memory_gb: float = 1.0
    gpus: tuple[str, ...] = Field(default=(), description="compute capabilities whose machine code is kept; empty: all")
    files: dict[str, str] = {}
    licence: Licence | None = None
    evidence: tuple[Evidence, ...] = ()

    @property
    def archives(self) -> tuple[PlannedSource, ...]:
        """The archives that a build stage downloads from a URL."""
        return tuple(s for s in self.sources if s.url or s.mirrors)

    @property
    def wheels(self) -> tuple[PlannedSource, ...]:
        """The Python packages that are installed from a wheel."""
        return tuple(s for s in self.sources if s.package and (s.file or "").endswith(".whl"))

    @property
    def wheel_archives(self) -> tuple[PlannedSource, ...]:
        """The archives that are Python wheels; they are installed without their dependencies."""
        return tuple(s for s in self.archives if (s.file or "").endswith(".whl"))

    @property
    def sdists(self) -> tuple[PlannedSource, ...]:
        """The Python packages that are built from source in the ``wheels`` stage."""
        python = [s for s in self.sources if s.package and "==" in s.package]
        return tuple(s for s in python if not (s.file or "").endswith(".whl"))

    @property
    def own_stage(self) -> bool:
        """Whether they are built in the component's own stage instead."""
        return self.values.get("sdists") == "own"


class Expectation(Record):
    """A fact that the probe must find in the image."""

    component: str
    fact: str
    value: str


class PlannedProbe(ProbeStep):
    """A probe step and the component it belongs to."""

    component: str


class Plan(Record):
    """The resolved record. Equal requests and equal catalogs give equal plans, byte for byte."""

    schema: str = SCHEMA
    id: str
    framework: str
    version: str
    cuda: str
    python: str
    base: Base
    destination: str = Field(default=SAGEMAKER, description="where its jobs run: sagemaker, hyperpod or ec2")
    platform: str = Field(default=AMD64, description="operating system and processor, as in OCI images")
    flavour: str = Field(default="", description="what distinguishes it from its image line, as in tags")
    unproven: tuple[str, ...] = Field(default=(), description="what is in no image line, such as pytorch 2.16.0")
    components: tuple[PlannedComponent, ...]
    loads: dict[str, str] = Field(
        default={}, description="libraries that the framework loads: version, or where it is if that is not known"
    )
    environment: dict[str, str]
    labels: dict[str, str]
    tags: tuple[str, ...]
    notices: tuple[str, ...]
    expect: tuple[Expectation, ...]
    probes: tuple[PlannedProbe, ...]
    user: UserFiles = UserFiles()
    budget: Budget | None = Field(default=None, description="a much larger image gets no tag; no part of the id")

    @property
    def unlocked(self) -> bool:
        """Whether its Python packages are not locked yet; such a plan cannot be built."""
        python = any(s.package and "==" in s.package for c in self.components for s in c.sources)
        return bool(self.unproven) and not python

    @property
    def licences(self) -> list[str]:
        """A line per component whose licence is known: what it is and what it comes under."""
        rows = ((f"{c.name} {c.version} ({c.provider})", c.licence) for c in self.components)
        return [
            f"{what}: {own.name}{f', {own.text}' if own.text else ''}; redistribution: {own.redistribute}"
            for what, own in rows
            if own is not None
        ]

    def restricted(self, word: str) -> tuple[str, ...]:
        """The components whose licence says so of redistribution: ``conditions`` or ``no``."""
        return tuple(c.name for c in self.components if c.licence is not None and c.licence.redistribute == word)

    @property
    def unpinned(self) -> tuple[str, ...]:
        """The files that a build downloads without a checksum, as nobody publishes one."""
        return tuple(str(each.file) for c in self.components for each in c.archives if each.sha256 is None)

    @property
    def compiled(self) -> tuple[PlannedComponent, ...]:
        """The components whose wheels are compiled and worth keeping.

        These are those with a stage of their own, compiled against PyTorch, and all of the stage in which packages of
        the user's are compiled. Image lines as they are shipped compile for seconds, if at all.
        """
        users = self.component("user")
        shared = users is not None and bool(users.sdists)
        return tuple(c for c in self.components if c.sdists and (c.own_stage or shared))

    def component(self, name: str) -> PlannedComponent | None:
        """The component of that name, or None."""
        return next((c for c in self.components if c.name == name), None)


def finish(fields: Mapping[str, Any], identify: Callable[[Plan], str]) -> Plan:
    """A plan with its id, labels and tags, which follow from the other fields.

    Args:
        fields: all others.
        identify: returns the id of a plan that has its labels, see :mod:`trainwright.plan.identity`.
    """
    draft = Plan(id="", labels={}, tags=(), **fields)
    draft = draft.replace(labels=_labels(draft))
    identity = identify(draft)
    labels = {**draft.labels, PLAN_LABEL: identity}
    return draft.replace(id=identity, labels=labels, tags=_tags(draft, identity))


def _labels(plan: Plan) -> dict[str, str]:
    labels = {
        "org.opencontainers.image.title": f"{plan.framework}-training",
        "org.opencontainers.image.version": plan.version,
        f"{LABEL}.framework": plan.framework,
        f"{LABEL}.framework-version": plan.version,
        f"{LABEL}.cuda": plan.cuda,
        f"{LABEL}.python": plan.python,
        f"{LABEL}.base": plan.base.os,
    }
    labels |= {name: text for component in plan.components for name, text in component_label(component).items()}
    labels |= {f"{LABEL}.loads.{name}": version for name, version in plan.loads.items()}
    if plan.destination != SAGEMAKER:
        labels[FOR_LABEL] = plan.destination
    if plan.platform != AMD64:
        labels[PLATFORM_LABEL] = plan.platform
    if gpus := next((component.gpus for component in plan.components if component.gpus), ()):
        labels[GPUS_LABEL] = ", ".join(gpus)
    if plan.unproven:
        labels[f"{LABEL}.unproven"] = ", ".join(plan.unproven)
    if plan.user.entry_point:
        labels[f"{LABEL}.entry-point"] = plan.user.entry_point
    return labels


def component_label(component: PlannedComponent) -> dict[str, str]:
    """The label of a component; none if its version is not known."""
    version = f"{component.version} ({component.provider})"
    return {f"{LABEL}.component.{component.name}": version} if component.version else {}


def found_labels(plan: Plan) -> dict[str, str]:
    """The labels of what was found in the base image, which its Dockerfile does not know."""
    base = (component for component in plan.components if component.provider == BASE)
    return {name: text for component in base for name, text in component_label(component).items()}


def variant(plan: Plan) -> str:
    """What distinguishes images of one framework, as in tags: ``2.6.0-cu124-py311-debian12``, followed by what was
    added (``-compiler``) or removed (``-no-rmm``)."""
    # "+" is invalid in a tag; a local version such as 2.13.0+cpu only repeats the CUDA part.
    from trainwright.catalog.image_line import cuda_tag

    version = plan.version.split("+", maxsplit=1)[0]
    name = f"{version}-{cuda_tag(plan.cuda)}-py{plan.python.replace('.', '')}-{plan.base.os.replace('-', '')}"
    if plan.base.kind == "dlc":
        name += "-dlc"
    if plan.platform != AMD64:
        name += f"-{PLATFORMS[plan.platform].debian}"
    return f"{name}-{plan.flavour}" if plan.flavour else name


def _tags(plan: Plan, identity: str) -> tuple[str, ...]:
    name = f"trainwright/{plan.framework}:{variant(plan)}"
    return (name, f"{name}-{identity[:12]}")
