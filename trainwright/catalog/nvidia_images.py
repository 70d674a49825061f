"""NVIDIA's CUDA images (``templates/nvidia_images.yaml``): their registries, the tags that NVIDIA deletes, the
cuDNN in them."""

from __future__ import annotations

import re
from functools import lru_cache

from trainwright.catalog.image_line import Evidence
from trainwright.catalog.incompatibilities import Range, within
from trainwright.core.data_files import read_yaml
from trainwright.core.paths import templates_dir
from trainwright.core.records import Record, parse_record


class NvidiaImages(Record):
    """The data file. ``deleted``: a CUDA version to the one of the same minor release whose tags stayed; ``cudnn``: to
    the cuDNN of all its tags that name cuDNN."""

    repository: str
    places: tuple[str, ...]
    deleted: dict[str, str]
    condemned: Range
    cudnn: dict[str, str]
    evidence: tuple[Evidence, ...]


@lru_cache
def nvidia_images() -> NvidiaImages:
    """The data file, read once."""
    path = templates_dir() / "nvidia_images.yaml"
    return parse_record(NvidiaImages, read_yaml(path), str(path))


def successor(image: str) -> str | None:
    """The image that replaces one whose tag NVIDIA deleted, such as ``nvidia/cuda:11.2.2-base-ubuntu20.04``; None for
    all others."""
    cuda = _cuda(image)
    later = nvidia_images().deleted.get(cuda) if cuda else None
    return image.partition("@")[0].replace(f":{cuda}-", f":{later}-") if later else None


def other_places(image: str) -> list[str]:
    """The names of an image of NVIDIA's in the other registries; empty for all others."""
    data = nvidia_images()
    if _cuda(image) is None:
        return []
    tag = image.partition("@")[0].rpartition(":")[2]
    return [f"{place}:{tag}" for place in data.places[1:]]


def cudnn_in(image: str | None) -> str:
    """The cuDNN that must be found in an image: three numbers, ``8.*`` if only the major version follows from its tag,
    ``*`` if nothing does."""
    if image is None or (cuda := _cuda(image)) is None:
        return "*"
    named = re.search(r"-cudnn(\d*)-", image)
    if not named:
        return "*"
    if known := nvidia_images().cudnn.get(cuda):
        return ".".join(known.split(".")[:3])
    return f"{named[1]}.*" if named[1] else "*"


def image_notice(*images: str | None) -> str | None:
    """What a plan says about images of NVIDIA's that are gone or will go, with the commands that keep a copy.

    Args:
        images: those that one line names, all of one CUDA version; of None and of other images nothing is said.
    """
    found = [image.partition("@")[0] for image in images if image is not None and _cuda(image) is not None]
    if not found:
        return None
    cuda = str(_cuda(found[0]))
    if successor(found[0]):
        later = ", ".join(str(successor(image)) for image in found)
        return (
            f"NVIDIA deleted {' and '.join(found)}; of the same CUDA minor version: {later}. If a machine still has "
            f"them: {copy_command(*found)}"
        )
    if within(cuda, nvidia_images().condemned):
        one = "docker pull $i && docker tag $i REGISTRY/$i && docker push REGISTRY/$i"
        copied = f"for i in {' '.join(found)}; do {one}; done"
        return (
            f"NVIDIA deletes its images of CUDA {cuda.partition('.')[0]} without further notice. Copy them to a "
            f"registry of yours now, and name that under [registries] (docs/site.md): {copied}"
        )
    return None


def copy_command(*images: str) -> str:
    """How to copy images that no registry has any more."""
    return f"docker save {' '.join(images)} -o FILE there, docker load -i FILE here"


def _cuda(image: str) -> str | None:
    """The CUDA version in the tag of an image of NVIDIA's, None if it is another image."""
    data = nvidia_images()
    name, _, tag = image.partition("@")[0].rpartition(":")
    if name not in (data.repository, *data.places):
        return None
    return tag.partition("-")[0]
