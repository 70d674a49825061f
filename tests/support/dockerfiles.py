"""The Dockerfiles of the shipped image lines, rendered once for all tests of a process."""

from __future__ import annotations

from functools import cache

from devtools.variants import Variant, dockerfiles_of
from trainwright.catalog.catalog import load_catalog
from trainwright.core.paths import images_dir, templates_dir

CATALOG = load_catalog(images_dir(), templates_dir())
LINES = {f"{entry.line.framework}/{entry.name}": entry for entry in CATALOG.lines}


@cache
def rendered(name: str) -> tuple[str, tuple[Variant, ...]]:
    """The Dockerfile of a line as it is, and of the line with each thing that it leaves open."""
    plain, variants = dockerfiles_of(LINES[name], CATALOG)
    return plain, tuple(variants)


def of_the_image(text: str) -> str:
    """A Dockerfile without the stages of the image's proof."""
    image, proof, _ = text.partition("\n# The image's proof")
    assert proof, "there are such stages"
    return image


def every_dockerfile(name: str) -> dict[str, str]:
    """The same by what was chosen; the plain one by the empty name."""
    plain, variants = rendered(name)
    return {"": plain, **{each.option: each.text for each in variants}}
