"""Reads AWS's Dockerfiles of training images from a clone of aws/deep-learning-containers, in all of its history.

They are ``pytorch/training/docker/2.0/py3/cu118/Dockerfile.gpu`` and ``…/Dockerfile.cpu``; until 1.13, PyTorch had
files of its own for SageMaker (``Dockerfile.sagemaker.gpu``). Of several commits with one version of the framework the
last counts, as that is what the image with this version was last built from.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwright.core.records import parse_record
from trainwright.sagemaker.dlc import PublishedImage
from trainwright.sagemaker.dlc_contents import DlcContents

BRANCHES = ("main", "master")  # master has the layout of before 2026
# Older Dockerfiles are written in other ways. Those of PyTorch 1.10 begin from an image that is in no file.
_OLDEST = {"pytorch-training": (1, 9), "tensorflow-training": (2, 4)}
_PUBLIC = ("ubuntu:", "nvidia/cuda:")
# Component → what sets its version, the first that is found; a component without a pattern's group has no version.
_VERSIONS = {
    "openmpi": (r"^(?:ARG|ENV) (?:OPEN_MPI_VERSION|OMPI_VERSION)[= ]([\d.]+)", r"/openmpi-(\d[\d.]+\d)\.tar"),
    "efa": (r"^(?:ARG|ENV) EFA_VERSION[= ]([\d.]+)",),
    "nccl": (r"^(?:ARG|ENV) NCCL_VERSION[= ]v?([\d.]+)",),
    # conda's package beside PyTorch's, or its branch.
    "aws-ofi-nccl": (
        r" torchtext aws-ofi-nccl(?:=([\d.]+))? ",
        r"^(?:ARG|ENV) (?:BRANCH_OFI|OFI_NCCL_VERSION)[= ]v?(\d[\d.]+\d)",
    ),
    "gdrcopy": (r"^(?:ARG|ENV) GDRCOPY_VERSION[= ]v?([\d.]+)", r"^(?:ARG|ENV) GDRCOPY_VERSION"),
    "metis": (r"/metis-(\d[\d.]+\d)\.tar", r"^ARG METIS=metis-([\d.]+\d)", r"/METIS\.git"),
    "rmm": (r"^(?:ARG|ENV) RMM_VERSION[= ]([\d.]+)",),
    "boost": (r"boost_(\d+_\d+_\d+)\.tar",),
    "mpi4py": (r"\bmpi4py==([\d.]+)", r"^ *(?:&& )?.*\bmpi4py\b"),
    "smdistributed-modelparallel": (r"smdistributed_modelparallel-([\d.]+)-",),
    "smdistributed-dataparallel": (r"smdistributed_dataparallel-([\d.]+)-",),
    "ssh": (r"\bopenssh-server\b",),
    "sagemaker-toolkit": (r"\bsagemaker-training==([\d.]+)", r"\bsagemaker-(?:pytorch-|tensorflow-)?training\b"),
}
_ALSO = {
    "torchvision": (r"\btorchvision[-=]=?(\d[\d.]+\d)", r"\btorchvision\b"),
    "torchaudio": (r"\btorchaudio[-=]=?(\d[\d.]+\d)", r"\btorchaudio\b"),
    "flash-attn": (r"\bflash-attn==([\d.]+\d)", r"\bflash-attn\b"),
    "deepspeed": (r"\bdeepspeed[-=]=?(\d[\d.]+\d)", r"\bdeepspeed\b"),
}


class Dockerfiles:
    """The Dockerfiles in the history of a clone.

    Args:
        clone: a clone, also without a work tree.
    """

    def __init__(self, clone: Path) -> None:
        self._clone = clone
        names = self._git("log", *BRANCHES, "--format=", "--name-only", "--diff-filter=AR", "--", "*/training/docker/*")
        self._paths = sorted({name for name in names.splitlines() if "/Dockerfile." in name})

    def of(self, image: PublishedImage) -> DlcContents | None:
        """What the last Dockerfile of an image installs; None if no Dockerfile lists all of it."""
        if _number(image.version) < _OLDEST.get(image.repository, (99,)):
            return None
        found = [each for path in self._candidates(image) for each in self._versions(path, image)]
        row = max(found, key=lambda each: str(each["date"]), default=None)
        return parse_record(DlcContents, row, f"{image.repository}:{image.tag}") if row else None

    def _candidates(self, image: PublishedImage) -> Iterator[str]:
        framework = image.repository.partition("-")[0]
        minor = ".".join(image.version.split(".")[:2])
        kind = "gpu" if image.cuda else "cpu"
        cuda = rf"(?:{image.cuda}/)?" if image.cuda else ""
        shape = re.compile(
            rf"{framework}/training/docker/(?:{re.escape(image.version)}|{re.escape(minor)})/(?:py[0-9]+/)?{cuda}"
            rf"Dockerfile(?:\.sagemaker)?\.{kind}"
        )
        older = "py2" in image.tag.split("-")
        yield from (path for path in self._paths if shape.fullmatch(path) and ("/py2" in path) == older)

    def _versions(self, path: str, image: PublishedImage) -> Iterator[dict[str, Any]]:
        """The newest text of a file that is of the image's version."""
        for line in self._git("log", *BRANCHES, "--format=%h %cs", "--diff-filter=AMR", "--", path).splitlines():
            commit, date = line.split()
            text = self._git("show", f"{commit}:{path}")
            if made_for(text, image):
                own = {"repository": image.repository, "version": image.version, "cuda": image.cuda, "path": path}
                if says := contents_of(text):
                    yield {**own, "commit": commit, "date": date, **says}
                return

    def _git(self, *words: str) -> str:
        argv = ["git", "-C", str(self._clone), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout  # noqa: S603 - argv is ours


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def made_for(text: str, image: PublishedImage) -> bool:
    """Whether a Dockerfile is of an image's version of the framework, and of its CUDA."""
    name = {"pytorch": "PYTORCH", "tensorflow": "TF"}[image.repository.partition("-")[0]]
    versions = re.findall(rf"^(?:ARG|ENV) {name}_VERSION(?:_SM)?[= ]([\d.]+)", text, re.M)
    versions += re.findall(r"/(?:torch|tensorflow)(?:_cpu|_gpu)?-(\d+\.\d+\.\d+)[-+%]", text)
    return image.version in versions


def contents_of(text: str) -> dict[str, Mapping[str, str]] | None:
    """What a Dockerfile installs for SageMaker: ``components`` and ``also``, each name with its version or nothing.

    Stages that the one for SageMaker, or the last one, is not made from are left out.

    Returns:
        None if it begins from an image of AWS's own, which has some of the components.
    """
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    head, *stages = re.split(r"^(?=FROM )", text, flags=re.M)
    begins = [re.match(r"FROM (\S+)(?: (?:AS|as) (\S+))?", stage) for stage in stages]
    named = {found[2]: (found[1], stage) for found, stage in zip(begins, stages, strict=True) if found and found[2]}
    last = "sagemaker" if "sagemaker" in named else next(reversed(named), "")
    chain = [head, *([] if last else stages)]
    while last in named:
        last, stage = named[last]
        chain.append(stage)
    if not (last or text.partition("FROM ")[2]).startswith(_PUBLIC):
        return None
    text = "".join(chain)
    return {"components": dict(_found(text, _VERSIONS)), "also": dict(_found(text, _ALSO))}


def _found(text: str, table: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    for name, patterns in table.items():
        matches = (re.search(pattern, text, re.M) for pattern in patterns)
        if (match := next(filter(None, matches), None)) is not None:
            yield name, ((match[1] or "") if match.re.groups else "").replace("_", ".").strip(".")
