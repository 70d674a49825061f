"""The GPUs of SageMaker's instances: compute capability, and the CUDA versions that compile for it."""

from __future__ import annotations

from typing import NamedTuple

from trainwright.catalog.image_line import version_key
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.text import fits


class Gpu(NamedTuple):
    """A GPU, by EC2's name of it."""

    capability: str
    first: str | None = None  # the first CUDA version that compiles for it; None: older than all lines
    gone: str | None = None  # the first CUDA version that no longer supports it


# NVIDIA's table of compute capabilities, and its release notes of CUDA, which name the versions that added and dropped
# each.
GPUS = {
    "K80": Gpu("3.7", gone="12.0"),
    "V100": Gpu("7.0", gone="13.0"),
    "T4": Gpu("7.5"),
    "A100": Gpu("8.0", first="11.0"),
    "A10G": Gpu("8.6", first="11.1"),
    "L4": Gpu("8.9", first="11.8"),
    "L40S": Gpu("8.9", first="11.8"),
    "H100": Gpu("9.0", first="11.8"),
    "H200": Gpu("9.0", first="11.8"),
    "B200": Gpu("10.0", first="12.8"),
    "B300": Gpu("10.3", first="12.9"),
    "RTX PRO Server 6000": Gpu("12.0", first="12.8"),
    "RTX PRO 4500": Gpu("12.0", first="12.8"),
}

_EXAMPLE = "--for-gpus A100,H100 or --for-gpus ml.p4d,ml.p5"


def read_gpus(text: str) -> tuple[str, ...]:
    """Compute capabilities, sorted, of words with commas between: ``8.0``, ``A100`` or ``ml.p4d.24xlarge``.

    Raises:
        RequestError: there is no such GPU, or an instance type has none.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise RequestError(f"--for-gpus {text!r}: an empty name", remedy=f"For example: {_EXAMPLE}")
    return tuple(sorted({_capability(word) for word in words}, key=version_key))


def _capability(word: str) -> str:
    from trainwright.sagemaker.instances import load_instances  # a help page that lists the names does without

    known = {gpu.capability for gpu in GPUS.values()}
    names = {name.lower(): gpu.capability for name, gpu in GPUS.items()}
    of_instances = {kind.name: names.get((kind.gpu or "").lower()) for kind in load_instances().values()}
    of_families = {name.rpartition(".")[0]: found for name, found in of_instances.items()}
    by_word = {**{each: each for each in known}, **names, **of_families, **of_instances}
    found = by_word.get(word.lower())
    if found is not None:
        return found
    if word.lower() in by_word:
        raise RequestError(f"--for-gpus {word}: it has no GPU", remedy=f"For example: {_EXAMPLE}")
    what = "no GPU of SageMaker's instances has it" if fits(r"[0-9]{1,2}\.[0-9]", word) else "no such GPU"
    near = did_you_mean(word.lower() if word.lower().startswith("ml.") else word.upper(), {*known, *GPUS, *of_families})
    raise RequestError(
        f"--for-gpus {word}: {what}. {near}",
        remedy=f"Write compute capabilities, names of GPUs or instance types: --for-gpus 8.0,9.0, {_EXAMPLE}",
    )


def unfit(capability: str, cuda: str) -> str | None:
    """Why a CUDA version compiles nothing for GPUs of a compute capability; None if it does."""
    same = [gpu for gpu in GPUS.values() if gpu.capability == capability]
    for gpu in same:
        if gpu.first and version_key(cuda) < version_key(gpu.first):
            return f"CUDA {cuda} does not compile for GPUs of compute capability {capability}, CUDA {gpu.first} does"
        if gpu.gone and version_key(cuda) >= version_key(gpu.gone):
            return f"CUDA {gpu.gone} and newer do not compile for GPUs of compute capability {capability}"
    return None


def first_of_generation(gpu: Gpu, since: int) -> str | None:
    """The first CUDA version that compiles for a GPU with the same major version; None of those before ``since``."""
    major = version_key(gpu.capability)[0]
    firsts = [other.first for other in GPUS.values() if other.first and version_key(other.capability)[0] == major]
    return min(firsts, key=version_key) if major >= since else None


def runs_on(capability: str, gpu: str) -> bool:
    """Whether a GPU runs machine code of a compute capability: the same, or a later one of its series.

    Source: CUDA C++ Programming Guide, binary compatibility.
    """
    (major, minor), (own, later) = version_key(capability), version_key(gpu)
    return major == own and minor <= later
