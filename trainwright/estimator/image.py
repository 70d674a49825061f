"""What is known about an image without running it: from its plan, its labels, or AWS's name for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from trainwright.catalog.image_line import BASE, version_key
from trainwright.catalog.platforms import AMD64
from trainwright.core.errors import EngineError
from trainwright.core.records import Field, Record
from trainwright.plan.plan import GPUS_LABEL, LABEL, PLATFORM_LABEL, Plan
from trainwright.sagemaker.dlc import FRAMEWORKS, PublishedImage, load_dlc
from trainwright.sagemaker.dlc_contents import contents_of

# account.dkr.ecr.region.amazonaws.com/repository:tag, also with a digest; other partitions have other suffixes. What a
# tag may consist of is in the OCI distribution specification.
ECR = re.compile(
    r"(?P<account>[0-9]{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.(?P<domain>[a-z0-9.-]+)/(?P<repository>[^:@]+)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_MINOR = re.compile(r"(?:^|(?<=-transformers))[0-9]+[.][0-9]+(?=-)")
FactOrigin = Literal["plan", "labels", "name"]


class ImageFacts(Record):
    """What is known about an image.

    ``components`` is null if unknown. Of one of AWS's images that nobody has looked into, and of a plan on top of it,
    they are what AWS's own Dockerfile installs: ``evidence`` names it.
    """

    reference: str = Field(description="an image, or the plan that it would be built from")
    origin: FactOrigin = Field(description="the source: a plan, the image's labels, or AWS's table of its images")
    framework: str
    version: str
    cuda: str | None = Field(description="such as 12.4, or cpu; null: unknown")
    python: str | None
    base: str | None = None
    platform: str = Field(default=AMD64, description="operating system and processor")
    components: Mapping[str, str] | None = Field(description="component → version and provider")
    entry_point: str | None = Field(default=None, description="of code built into the image")
    plan_id: str | None = None
    gpus: tuple[str, ...] = Field(default=(), description="compute capabilities of its machine code; empty: all")
    evidence: str | None = Field(default=None, description="AWS's Dockerfile that components are from, if any")

    @property
    def family(self) -> Literal["pytorch", "tensorflow"] | None:
        """The framework whose training toolkit module the image contains; None for other frameworks."""
        if "tensorflow" in self.framework:
            return "tensorflow"
        return "pytorch" if "pytorch" in self.framework else None

    @property
    def baked(self) -> bool:
        """Whether the image contains the user's code, so that ``source_dir`` is ignored."""
        return self.entry_point is not None

    def has(self, component: str) -> bool | None:
        """Return whether a component is in the image; None if unknown."""
        return None if self.components is None else component in self.components

    def version_of(self, component: str) -> str | None:
        """Return the version of a component; None if missing or unknown."""
        version = (self.components or {}).get(component)
        return version.partition(" ")[0] if version else None


def facts_of_labels(reference: str, labels: Mapping[str, str], origin: FactOrigin = "labels") -> ImageFacts | None:
    """Return the facts in an image's labels; None if Trainwright did not set them."""
    if f"{LABEL}.framework" not in labels:
        return None
    prefix = f"{LABEL}.component."
    return ImageFacts(
        reference=reference,
        origin=origin,
        framework=labels[f"{LABEL}.framework"],
        version=labels.get(f"{LABEL}.framework-version", ""),
        cuda=labels.get(f"{LABEL}.cuda"),
        python=labels.get(f"{LABEL}.python"),
        base=labels.get(f"{LABEL}.base"),
        platform=labels.get(PLATFORM_LABEL, AMD64),
        components={name.removeprefix(prefix): text for name, text in labels.items() if name.startswith(prefix)},
        entry_point=labels.get(f"{LABEL}.entry-point"),
        plan_id=labels.get(f"{LABEL}.plan"),
        gpus=tuple(labels[GPUS_LABEL].split(", ")) if GPUS_LABEL in labels else (),
    )


def facts_of_plan(plan: Plan) -> ImageFacts:
    """Return the facts about the image that this plan builds."""
    facts = facts_of_labels(plan.tags[0], plan.labels, "plan")
    assert facts is not None  # every plan labels its framework
    if plan.base.kind != "dlc":
        return facts
    held, evidence = _held(str(plan.base.image))
    own = {c.name: f"{c.version} ({c.provider})" for c in plan.components if c.provider != BASE}
    # Versions of the base that the plan states are its name's or the user's.
    return facts.replace(
        components=None if held is None else held | own | dict(facts.components or {}), evidence=evidence
    )


def packages_of(plan: Plan) -> frozenset[str] | None:
    """Normalized names of the Python packages in the image of a plan; None if not all are known.

    AWS's images bring packages that no plan names.
    """
    from packaging.utils import canonicalize_name

    if plan.base.kind == "dlc" or plan.unlocked:
        return None
    sources = [source for component in plan.components for source in component.sources]
    named = [each.package.partition("==")[0] if each.package else str(each.file).partition("-")[0] for each in sources]
    own = ["pip", "setuptools", "wheel", *(component.name for component in plan.components)]
    return frozenset(str(canonicalize_name(name)) for name in (*named, *own))


def _held(reference: str) -> tuple[dict[str, str] | None, str | None]:
    """The components in one of AWS's images by AWS's own Dockerfile, and which that is; None if neither is known."""
    found = contents_of(reference)
    if found is None:
        return None, None
    held = {
        "python": "",
        "pytorch" if "pytorch" in found.repository else "tensorflow": found.version,
        **found.components,
    }
    return {name: f"{version} ({BASE})" for name, version in held.items()}, found.source


def facts_of_name(reference: str) -> ImageFacts | None:
    """Return what AWS's table says about one of AWS's training images; None for other images."""
    found = ECR.fullmatch(reference)
    repository = found["repository"] if found else reference.partition(":")[0].removeprefix("public.ecr.aws/")
    repository = repository.removeprefix("deep-learning-containers/")
    tag = found["tag"] if found else reference.partition(":")[2]
    if repository not in FRAMEWORKS or not tag:
        return None
    # AWS also uses shorter tags, and longer ones that end in "-sagemaker", an image version or a date.
    known = [each for each in load_dlc().images if each.repository == repository]
    tag = _with_patches(tag, known)
    longer = [each for each in known if f"{tag}-".startswith(f"{each.tag}-")]
    shorter = [each for each in known if each.tag.startswith(f"{tag}-")]
    if not longer and not shorter:
        return None
    longest = max((len(each.tag) for each in longer), default=0)
    fitting = [each for each in longer if len(each.tag) == longest] or shorter
    if len({(each.version, each.device, each.transformers) for each in fitting}) > 1:
        return None
    # The SDKs build 2.0.1-gpu-py310 (sagemaker's image_uris.py), AWS's other name of one of its images with a CUDA
    # version in the tag. Where that can be several, a component of one may be there, and no version is known that
    # differs.
    held = [_held(f"{repository}:{each.tag}") for each in fitting]
    lists = [components for components, _ in held if components is not None]
    evidence = {text for _, text in held if text is not None}
    components = None
    if len(lists) == len(held):
        names = sorted({name for each in lists for name in each})
        found_in = {name: {each[name] for each in lists if name in each} for name in names}
        components = {name: next(iter(texts)) if len(texts) == 1 else f" ({BASE})" for name, texts in found_in.items()}
    return ImageFacts(
        reference=reference,
        origin="name",
        framework=fitting[0].framework,
        version=fitting[0].version,
        cuda=_only({"cpu" if each.device == "cpu" else _dotted(each.cuda) for each in fitting}),
        python=_only({_python(each.python) for each in fitting}),
        base=_only({each.os for each in fitting}),
        components=components,
        evidence=" and ".join(sorted(evidence)) or None,
    )


def _with_patches(tag: str, known: Sequence[PublishedImage]) -> str:
    """A tag with whole versions: the SDKs also build 2.14-gpu-py310, AWS's name of its newest image of 2.14."""

    def newest(minor: re.Match[str]) -> str:
        versions = [each.transformers if minor.start() else each.version for each in known]
        fitting = [each for each in versions if each and each.startswith(f"{minor[0]}.")]
        return max(fitting, key=version_key, default=minor[0])

    return _MINOR.sub(newest, tag)


def _only(values: set[str | None]) -> str | None:
    """The one value; None if there are several."""
    return next(iter(values)) if len(values) == 1 else None


def _dotted(cuda: str | None) -> str | None:
    return f"{cuda[2:-1]}.{cuda[-1]}" if cuda else None


def _python(tag: str | None) -> str | None:
    return None if tag in (None, "py2", "py3") else f"{str(tag)[2]}.{str(tag)[3:]}"


def facts_of_image(reference: str) -> ImageFacts | None:
    """Return the facts about an image: from its labels in the engine, else in ECR, else from AWS's name for it.

    Nothing is pulled and no engine is set up. None if nothing is known.
    """
    for labels in (_engine_labels, _registry_labels):
        found = labels(reference)
        if found is not None and (facts := facts_of_labels(reference, found)):
            return facts
    return facts_of_name(reference)


def _engine_labels(reference: str) -> Mapping[str, str] | None:
    """Return the labels of a local image; None if the engine does not have it."""
    from docker.errors import APIError, ImageNotFound
    from requests.exceptions import RequestException

    from trainwright.engine.engine import connect, sdk

    try:
        image = sdk(connect(setup=False)).images.get(reference)
    except (EngineError, APIError, ImageNotFound, RequestException):
        return None
    labels: Mapping[str, str] = image.labels
    return labels


def _registry_labels(reference: str) -> Mapping[str, str] | None:
    """Return the labels of an image in ECR, read with this machine's AWS credentials."""
    from trainwright.estimator.image_labels import ecr_labels
    from trainwright.push.references import PushPlace
    from trainwright.site.site import load_site

    found = ECR.fullmatch(reference)
    if found is None:
        return None
    place = PushPlace(found["account"], found["region"], found["repository"])
    return ecr_labels(place, load_site(), tag=found["tag"] or "latest", digest=found["digest"])
