"""What is known of an image without running it: from its plan, from its labels, or from AWS's name for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from trainwright.core.errors import EngineError
from trainwright.core.records import Record
from trainwright.plan.plan import LABEL, Plan
from trainwright.sagemaker.dlc import FRAMEWORKS, load_dlc

# account.dkr.ecr.region.amazonaws.com/repository:tag, also with a digest; other partitions have other suffixes.
ECR = re.compile(
    r"(?P<account>[0-9]{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.(?P<domain>[a-z0-9.-]+)/(?P<repository>[^:@]+)"
    r"(?::(?P<tag>[^@]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
FactOrigin = Literal["plan", "labels", "name"]


class ImageFacts(Record):
    """What is known of an image.

    ``components`` is null where nobody knows what the image holds (an image of AWS's known by its name alone).
    """

    reference: str = Field(description="an image, or the plan that it would be built from")
    origin: FactOrigin = Field(description="how it is known: a plan, the image's labels, AWS's table of its images")
    framework: str
    version: str
    cuda: str | None = Field(description="such as 12.4, or cpu; null: no source says")
    python: str | None
    base: str | None = None
    components: Mapping[str, str] | None = Field(description="component → version and provider")
    entry_point: str | None = Field(default=None, description="of code that is baked into the image")
    plan_id: str | None = None

    @property
    def family(self) -> Literal["pytorch", "tensorflow"] | None:
        """The framework whose module of the training toolkit the image has."""
        if "tensorflow" in self.framework:
            return "tensorflow"
        return "pytorch" if "pytorch" in self.framework else None

    @property
    def baked(self) -> bool:
        """The image holds the user's code, so ``source_dir`` is ignored."""
        return self.entry_point is not None

    def has(self, component: str) -> bool | None:
        """Whether a component is in the image; ``None``: nobody knows."""
        return None if self.components is None else component in self.components

    def version_of(self, component: str) -> str | None:
        """The version of a component; ``None``: it is not there, or nobody knows."""
        said = (self.components or {}).get(component)
        return said.partition(" ")[0] if said else None


def facts_of_labels(reference: str, labels: Mapping[str, str], origin: FactOrigin = "labels") -> ImageFacts | None:
    """What the labels of an image say; nothing where Trainwright did not make them."""
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
        components={name.removeprefix(prefix): text for name, text in labels.items() if name.startswith(prefix)},
        entry_point=labels.get(f"{LABEL}.entry-point"),
        plan_id=labels.get(f"{LABEL}.plan"),
    )


def facts_of_plan(plan: Plan) -> ImageFacts:
    """What an image of this plan will hold."""
    facts = facts_of_labels(plan.tags[0], plan.labels, "plan")
    assert facts is not None  # every plan labels its framework
    return facts


def facts_of_name(reference: str) -> ImageFacts | None:
    """What AWS's table says of one of AWS's own training images; nothing for other images."""
    found = ECR.fullmatch(reference)
    repository = found["repository"] if found else reference.partition(":")[0].removeprefix("public.ecr.aws/")
    repository = repository.removeprefix("deep-learning-containers/")
    tag = found["tag"] if found else reference.partition(":")[2]
    if repository not in FRAMEWORKS or not tag:
        return None
    # AWS has shorter names for an image, and longer ones with "-sagemaker", a version of the image or a date behind.
    known = [each for each in load_dlc().images if each.repository == repository]
    longer = [each for each in known if f"{tag}-".startswith(f"{each.tag}-")]
    shorter = [each for each in known if each.tag.startswith(f"{tag}-")]
    if not longer and len(shorter) != 1:
        return None
    image = max(longer or shorter, key=lambda each: len(each.tag))
    cuda = "cpu" if image.device == "cpu" else None
    if image.cuda is not None:
        cuda = f"{image.cuda[2:-1]}.{image.cuda[-1]}"
    python = None if image.python in (None, "py2", "py3") else f"{str(image.python)[2]}.{str(image.python)[3:]}"
    return ImageFacts(
        reference=reference,
        origin="name",
        framework=image.framework,
        version=image.version,
        cuda=cuda,
        python=python,
        base=image.os,
        components=None,
    )


def facts_of_image(reference: str) -> ImageFacts | None:
    """What can be found out about an image: its labels in the engine, else in its registry, else AWS's name for it.

    Nothing is pulled and no engine is set up. ``None``: nobody knows anything of it.
    """
    for labels in (_engine_labels, _registry_labels):
        found = labels(reference)
        if found is not None and (facts := facts_of_labels(reference, found)):
            return facts
    return facts_of_name(reference)


def _engine_labels(reference: str) -> Mapping[str, str] | None:
    """The labels of an image that the engine has."""
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
    """The labels of an image in ECR, read with the AWS credentials of this machine."""
    from trainwright.estimator.image_labels import ecr_labels
    from trainwright.push.references import Place
    from trainwright.site.site import load_site

    found = ECR.fullmatch(reference)
    if found is None:
        return None
    place = Place(found["account"], found["region"], found["repository"])
    return ecr_labels(place, load_site(), tag=found["tag"] or "latest", digest=found["digest"])
