"""Check the versions in the image against those that are known to be bad (``templates/rules.yaml``)."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.catalog.catalog import open_catalog
from trainwright.catalog.incompatibilities import Composition, Fact, applies, known_bad
from trainwright.core.findings import Finding, Rule
from trainwright.estimator.image import ImageFacts
from trainwright.estimator.subject import Subject

KNOWN_BAD = Rule(
    code="TW328",
    severity="warning",
    title="a component of the image has a version that is known to be bad",
    source="notices of templates/rules.yaml, each with its own; of AWS's images, versions are those of its Dockerfile",
    remedy="Use an image with another version, as the finding says; ./invoke plan shows the versions of each line. "
    "AWS replaces its images under the same tag: build on it (--base dlc), which reads what it holds.",
)
RULES = (KNOWN_BAD,)
# What only NCCL between hosts with EFA loads.
PLUGIN = "aws-ofi-nccl"


def check(subject: Subject) -> Iterator[Finding]:
    """Check the rules of this family."""
    image = subject.image
    if image is None or image.components is None:
        return
    facts = _composition(image)
    efa = subject.hosts > 1 and any(kind.efa and kind.gpus for _, kind, _ in subject.instances)
    for rule in known_bad(open_catalog().rules.rules):
        if (efa or PLUGIN not in rule.when.components) and applies(rule.when, facts) is not None:
            has = f"{image.evidence} installs it" if image.evidence else "the image has it"
            yield KNOWN_BAD.finding(f"{rule.notice}; {has}", path="image")


def _composition(image: ImageFacts) -> Composition:
    names = image.components or {}
    return Composition(
        framework=Fact(image.framework),
        version=Fact(image.version),
        cuda=Fact(image.cuda),
        python=Fact(image.python),
        os=Fact(image.base),
        components={
            name: Fact(image.version_of(name) or None, provider=text.partition("(")[2].rstrip(")"))
            for name, text in names.items()
        },
    )
