"""The software bill of materials of an image (CycloneDX), from what the probe read inside it. Needs no network.

The probe asked the image's own dpkg and Python what is installed. What was compiled or unpacked is in no package
database, so a scanner would not find it: it comes from the plan, which the probe compared with the image.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from trainwright import __version__
from trainwright.core.records import Document, Field
from trainwright.plan.plan import LABEL, Plan, PlannedComponent

if TYPE_CHECKING:
    from cyclonedx.model.component import Component

MEDIA_TYPE = "application/vnd.cyclonedx+json"
FILE = "sbom.cdx.json"
_SPACE = uuid.UUID("5d1c0a52-6f3e-5f0e-9a55-6b1a1d1f6a0e")  # of serial numbers; any fixed one will do


def make_sbom(plan: Plan, probe: Mapping[str, Any], image_id: str, built: datetime) -> str:
    """The CycloneDX 1.6 document (JSON) of an image. Equal arguments give an equal document.

    Args:
        plan: of the image; the document lists its archives with their checksums.
        probe: what the probe found in it.
        image_id: ``sha256:…``.
        built: time of the build.
    """
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6

    digest = image_id.removeprefix("sha256:")
    image = Component(
        type=ComponentType.CONTAINER,
        name=f"{plan.framework}-training",
        version=plan.version,
        bom_ref=image_id,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        properties=[
            Property(name=f"{LABEL}.plan", value=plan.id),
            *(
                Property(name=name, value=value)
                for name, value in sorted(plan.labels.items())
                if name.startswith(LABEL)
            ),
        ],
    )
    components = {str(one.bom_ref.value): one for one in _components(plan, probe)}
    bom = Bom(components=components.values(), serial_number=uuid.uuid5(_SPACE, digest))
    bom.metadata.component = image
    bom.metadata.timestamp = built
    bom.metadata.tools.components.add(
        Component(type=ComponentType.APPLICATION, name="trainwright", version=__version__, bom_ref="trainwright")
    )
    bom.register_dependency(image, components.values())
    return str(JsonV1Dot6(bom).output_as_string(indent=1)) + "\n"


class Ingredient(Document):
    """A part of an image that can be named. ``bytes`` and ``licence`` are empty if the image does not say."""

    kind: Literal["system", "python", "built"] = Field(
        description="a package of the distribution, of Python, or what is in no package database"
    )
    name: str
    version: str
    licence: str = ""
    bytes: int | None = None
    source: str = Field(
        default="", description="name@version of the distribution's source package that it is made from"
    )


def ingredients(plan: Plan, probe: Mapping[str, Any]) -> Iterator[Ingredient]:
    """What an image is made of: its packages as the probe found them, and what was compiled or unpacked.

    Args:
        plan: of the image.
        probe: what the probe found in it; earlier ones did not ask for sizes, licences and source packages.
    """
    databases: tuple[tuple[Literal["system", "python"], str, str], ...] = (
        ("system", "packages", "package"),
        ("python", "distributions", "distribution"),
    )
    for kind, versions, of in databases:
        sizes, licences, sources = (probe.get(f"{of}_{what}", {}) for what in ("bytes", "licences", "sources"))
        for name, version in sorted(probe.get(versions, {}).items()):
            own = {"licence": licences.get(name, ""), "bytes": sizes.get(name) or None, "source": sources.get(name, "")}
            yield Ingredient(kind=kind, name=name, version=version, **own)
    for component in plan.components:
        # A source package of the distribution that was compiled is not an installed package either.
        compiled = any(s.package and "==" not in s.package for s in component.sources)
        if component.archives or compiled or component.provider in ("source", "base"):
            licence = component.licence.name if component.licence is not None else ""
            yield Ingredient(kind="built", name=component.name, version=component.version, licence=licence)


def _components(plan: Plan, probe: Mapping[str, Any]) -> Iterator[Component]:
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    release: Mapping[str, str] = probe.get("os", {})
    name, version = release.get("ID", ""), release.get("VERSION_ID", "")
    if name:
        yield Component(
            type=ComponentType.OPERATING_SYSTEM, name=name, version=version or None, bom_ref=f"os:{name}-{version}"
        )
    distro = {"distro": f"{name}-{version}"} if version else {}
    for each in ingredients(plan, probe):
        if each.kind == "built":
            yield _built(next(c for c in plan.components if c.name == each.name))
            continue
        # Records of vulnerabilities name source packages; scanners read them from this qualifier (syft's, Grype's).
        source = {"upstream": each.source} if each.source else {}
        purl = (
            PackageURL("deb", name or "debian", each.name, each.version, {**distro, **source})
            if each.kind == "system"
            else PackageURL("pypi", None, each.name, each.version)
        )
        yield Component(
            type=ComponentType.LIBRARY,
            name=each.name,
            version=each.version,
            purl=purl,
            bom_ref=purl.to_string(),
            licenses=[LicenseFactory().make_from_string(each.licence)] if each.licence else None,
        )


def _built(component: PlannedComponent) -> Component:
    """A component in no package database: compiled, unpacked, or from the base image."""
    from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    purl = PackageURL("generic", None, component.name, component.version)
    references = [
        ExternalReference(
            type=ExternalReferenceType.SOURCE_DISTRIBUTION,
            url=XsUri(re.sub(r"(?<=://)[^/@]*@", "", source.url or source.mirrors[0])),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=source.sha256)] if source.sha256 else None,
        )
        for source in component.archives
    ]
    return Component(
        type=ComponentType.LIBRARY,
        name=component.name,
        version=component.version,
        purl=purl,
        bom_ref=purl.to_string(),
        external_references=references,
        properties=[
            Property(name=f"{LABEL}.provider", value=component.provider),
            *(
                Property(name=f"{LABEL}.source", value=f"{source.file} sha256:{source.sha256}")
                for source in component.sources
                if source.package and "==" not in source.package and source.file
            ),
        ],
    )
