"""Makes ``trainwright/sagemaker/dlc_contents.json``: what AWS's Dockerfiles and locks install, a row per image.

The facts file has one entry per Dockerfile that was read. Of several for one image, the latest counts. Its SSH server
and the training toolkit are in every Dockerfile of a SageMaker training image (checked at each commit that is named),
without a version of their own in most; all other components are those of the entry. Further Python packages are quoted
only (``also``): what is among the components of an image decides the ids of plans on it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from devtools.dlc_dockerfiles import Dockerfiles
from trainwright.core.records import parse_record
from trainwright.sagemaker.dlc import PublishedImage
from trainwright.sagemaker.dlc_contents import DlcContents

SECTIONS = ("pytorch_sagemaker_gpu", "tensorflow_sagemaker_gpu")
# Component → key of an entry.
KEYS = {
    "efa": "efa",
    "openmpi": "openmpi",
    "gdrcopy": "gdrcopy",
    "nccl": "nccl",
    "aws-ofi-nccl": "aws_ofi_nccl",
    "metis": "metis",
    "rmm": "rmm",
    "boost": "boost",
}
EVERYWHERE = ("ssh", "sagemaker-toolkit")
ALSO = ("torchvision", "torchaudio", "flash-attn", "transformer-engine", "deepspeed")
# What a lock has that the entry does not repeat: repository, version → component → version. Read at the entry's commit.
LOCKED = {("tensorflow-training", "2.21.0"): {"mpi4py": "4.1.1"}}
# The CPU images of main, which have no entries: Dockerfile.cpu and docker/pytorch/<version>/cpu/uv.lock at that commit.
# Version → what else the lock has.
CPU = {
    "path": "docker/pytorch/Dockerfile.cpu",
    "commit": "7b00481ebb",
    "date": "2026-08-13",
    "components": {"openmpi": "", "mpi4py": "4.1.1", "ssh": "", "sagemaker-toolkit": "5.1.1"},
}
CPU_ALSO = {
    "2.11.0": {"torchvision": "0.26.0", "torchaudio": "2.11.0", "deepspeed": "0.18.8"},
    "2.12.1": {"torchvision": "0.27.1", "torchaudio": "2.11.0", "deepspeed": "0.18.8"},
    "2.13.0": {"torchvision": "0.28.0", "torchaudio": "2.11.0", "deepspeed": "0.19.2"},
}


def contents_of_facts(facts: Mapping[str, Any]) -> list[DlcContents]:
    """A row per image, from the entries of a facts file.

    Raises:
        KeyError: an entry lacks its source, or a field that every entry has.
    """
    latest: dict[tuple[str, str, str | None], DlcContents] = {}
    for section in SECTIONS:
        for entry in facts.get(section, ()):
            row = _row(entry)
            key = _image(row)
            if key not in latest or latest[key].date <= row.date:
                latest[key] = row
    for version, also in CPU_ALSO.items():
        given = {"repository": "pytorch", "version": version, "cuda": None, **CPU, "also": also}
        row = parse_record(DlcContents, given, version)
        latest[_image(row)] = row
    return _ordered(latest.values())


def merged(rows: Iterable[DlcContents], kept: Iterable[DlcContents]) -> list[DlcContents]:
    """The rows, and those that are kept of other images."""
    return _ordered(({_image(row): row for row in kept} | {_image(row): row for row in rows}).values())


def filled(
    rows: Iterable[DlcContents], images: Iterable[PublishedImage], dockerfiles: Dockerfiles
) -> list[DlcContents]:
    """The rows, and one of each further image whose Dockerfile a clone has."""
    known = {_image(row): row for row in rows}
    for image in images:
        known_cuda = image.device == "cpu" or image.cuda
        if known_cuda and _image(image) not in known and (row := dockerfiles.of(image)) is not None:
            known[_image(row)] = row
    return _ordered(known.values())


def _ordered(rows: Iterable[DlcContents]) -> list[DlcContents]:
    """The rows of a table in the order in which it is written."""
    return sorted(rows, key=lambda row: str(_image(row)))


def _image(row: DlcContents | PublishedImage) -> tuple[str, str, str | None]:
    return row.repository, row.version, row.cuda


def _row(entry: Mapping[str, Any]) -> DlcContents:
    source = entry["source"]
    own = entry["framework"] == "pytorch" and source["branch"] == "main"
    repository = "pytorch" if own else f"{entry['framework']}-training"
    return parse_record(
        DlcContents,
        {
            "repository": repository,
            "version": entry["framework_version"],
            "cuda": entry.get("cuda_tag"),
            "path": source["path"],
            "commit": source["commit"],
            "date": str(source["date"]),
            "components": dict(_components(entry)) | LOCKED.get((repository, entry["framework_version"]), {}),
            "also": dict(_also(entry)),
        },
        str(entry["id"]),
    )


def _components(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, key in KEYS.items():
        if found := entry.get(key):
            yield name, _number(found.get("version") if isinstance(found, Mapping) else found)
    if found := entry.get("mpi4py"):
        yield "mpi4py", str(found).partition("==")[2]
    locked = entry.get("locked", {})
    for name in EVERYWHERE:
        yield name, str(locked.get("sagemaker-training", "")) if name == "sagemaker-toolkit" else ""
    for library, each in (entry.get("smdistributed") or {}).items():
        yield f"smdistributed-{library}", str(each["version"])


def _also(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The further packages that an entry has a key for, or names among its specifications and wheels."""
    torch = entry.get("torch", {})
    wheels = [torch.get("torchvision_wheel", ""), torch.get("torchaudio_wheel", ""), *entry.get("other_wheels", ())]
    files = [str(each["url"] if isinstance(each, Mapping) else each).rpartition("/")[2] for each in wheels]
    specs = [*files, *torch.get("pip_specs", ()), *torch.get("conda_specs", ())]
    for name in ALSO:
        package = re.compile(rf"{name.replace('-', '[-_]')}(?![a-z])[=-]*(.*)")
        named = [found[1] for spec in specs if (found := package.match(str(spec)))]
        own = entry.get(name.replace("-", "_"))
        if own or named:
            versions = (re.search(r"\d+(\.\d+)+((a|b|rc|\.post)\d+)?", str(text)) for text in (own or "", *named))
            yield name, next((found.group() for found in versions if found), "")


def _number(text: object) -> str:
    """The version at the beginning of a text (``1.2.0-aws``, ``4.1.7 and 5.0.8``); empty if AWS pins none."""
    found = re.match(r"\d+(\.\d+)+", str(text or ""))
    return found.group() if found else ""


def contents_text(rows: Sequence[DlcContents]) -> str:
    """The content of ``dlc_contents.json``: a line per image, so that a change reads well in a review."""
    lines = ",\n".join(json.dumps(row.as_json()) for row in rows)
    return f'{{"schema": "trainwright/dlc-contents/1", "images": [\n{lines}\n]}}\n'
