"""What each source says of AWS's Deep Learning Containers, read into claims; ``refresh_dlc`` merges them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from trainwright.core.errors import RequestError
from trainwright.core.records import parse_record
from trainwright.sagemaker.dlc import FRAMEWORKS, SMP, Claim, Snapshot, Support

# sagemaker-core 2.27.0, image_uris.get_training_image_uri: what Hugging Face images without a container_version have.
HF_DEFAULT = "cu110-ubuntu18.04"

_TAG = re.compile(
    r"(?P<version>\d+\.\d+(?:\.\d+)?)(?:-transformers(?P<transformers>[\d.]+))?(?:-(?P<device>cpu|gpu))?"
    r"(?:-(?P<python>py\d+))?(?:-(?P<cuda>cu\d+))?(?:-(?P<os>(?:ubuntu|amzn)[\d.]+))?(?:-[a-z][\w.-]*)?"
)


@dataclass(frozen=True)
class Listed:
    """A claim of the SDK, with the account in each region where it lists the image."""

    claim: Claim
    accounts: Mapping[str, str]


def read_tag(tag: str) -> dict[str, str]:
    """The facts that a tag spells out; an image with a CUDA version is a GPU image.

    Raises:
        RequestError: it is no tag of a training image.
    """
    found = _TAG.fullmatch(tag)
    said = {} if found is None else {key: value for key, value in found.groupdict().items() if value}
    if "device" not in said and "cuda" in said:
        said["device"] = "gpu"
    if "device" not in said:
        raise RequestError(f"{tag!r} is not the tag of a training image")
    return said


def _claim(source: str, repository: str, tag: str | None, evidence: str, **facts: Any) -> Claim:
    """A claim whose fields are in the tag, or given; where both say a thing, they must agree."""
    said: dict[str, Any] = read_tag(tag) if tag else {}
    for field, value in facts.items():
        if value is None:
            continue
        known = said.get(field)
        if (
            known is not None
            and value != known
            and not (field in ("version", "transformers") and f"{value}.".startswith(f"{known}."))
        ):
            raise RequestError(f"{source}: {repository}:{tag} has {field} {value!r} beside it")
        said[field] = value
    return parse_record(
        Claim,
        {**said, "source": source, "repository": repository, "tag": tag, "evidence": evidence},
        f"{repository}:{tag}",
    )


def claims_of_core(configs: Mapping[str, bytes]) -> list[Listed]:
    """What sagemaker-core's ``image_uri_config`` files list as training images.

    Args:
        configs: file name → content. Images older than Deep Learning Containers (``sagemaker-pytorch``) are left out.
    """
    found: list[Listed] = []
    for file, content in sorted(configs.items()):
        config = json.loads(content)
        config = config.get("training", config)
        for version, entry in config["versions"].items():
            if "version_aliases" in entry:
                bases = {base: image for base, image in entry.items() if base != "version_aliases"}
                for base, image in bases.items():
                    number = re.sub("^(pytorch|tensorflow)", "", base)
                    found += _listed(file, number, image, config, transformers=version)
            elif "repository" in entry:
                for number in _smp_versions(config, version) if entry["repository"] == SMP else [version]:
                    found += _listed(file, number, entry, config)
            else:
                for python, image in entry.items():
                    found += _listed(file, version, {**image, "py_versions": [python]}, config)
    return found


def _smp_versions(config: Mapping[str, Any], version: str) -> list[str]:
    """The PyTorch versions that have this version of SMP; up to 2.1.2 the SDK names the two alike."""
    aliases = [alias for alias, of in config["version_aliases"].items() if of == version]
    full = [alias for alias in aliases if alias.count(".") == 2]
    return full or [version for alias in aliases[:1] if version.startswith(f"{alias}.")]


def _listed(
    file: str, version: str, image: Mapping[str, Any], config: Mapping[str, Any], transformers: str | None = None
) -> Iterator[Listed]:
    repository = image["repository"]
    if repository not in FRAMEWORKS:
        return
    pythons = image.get("py_versions") or [None]
    # Of a version that has both, py3 is another name of py36.
    pythons = [each for each in pythons if each != "py3" or pythons[-1] == "py3"]
    for python in pythons:
        for device in config["processors"]:
            suffix = image.get("container_version", {}).get(device)
            if repository.startswith("huggingface") and suffix is None:
                suffix = HF_DEFAULT
            prefix = f"{version}-transformers{transformers}" if transformers else image.get("tag_prefix", version)
            shown = device if image.get("processor_in_tag", True) else None
            # The SDK appends SMP's CUDA version in code; the release notes have the tags.
            tag = None if repository == SMP else "-".join(each for each in (prefix, shown, python, suffix) if each)
            facts = {"version": version, "device": device, "python": python, "transformers": transformers}
            yield Listed(
                _claim("sagemaker-core", repository, tag, f"sagemaker-core {file}", **facts), image["registries"]
            )


def claims_of_facts(content: Mapping[str, Any]) -> list[Claim]:
    """What AWS's Dockerfiles and buildspecs say, from the sections of the facts file."""
    found: list[Claim] = []
    sections = ("pytorch_sagemaker_gpu", "tensorflow_sagemaker_gpu", "huggingface_training_gpu")
    entries = [entry for name in sections for entry in content.get(name, ())]
    entries += content.get("training_compiler_gpu", {}).get("images", ())
    for entry in entries:
        tag, framework, source = entry.get("image_tag"), entry["framework"], entry["source"]
        if tag is None and "cuda_tag" not in entry:
            continue
        repository = f"{framework}-training"
        if framework == "pytorch" and source["branch"] == "main":
            repository = "pytorch"
        python = "py" + "".join(str(entry["python"]).split(".")[:2]) if "python" in entry else None
        found.append(
            _claim(
                "facts",
                repository,
                tag,
                f"aws/deep-learning-containers@{source['commit'][:12]} {source['path']} ({source['date']})",
                version=entry["framework_version"],
                transformers=entry.get("transformers"),
                device="gpu",
                python=python,
                cuda=entry.get("cuda_tag"),
                os=entry.get("os"),
            )
        )
    return found


def claims_of_documents(content: Mapping[str, Any]) -> list[Claim]:
    """What AWS's own tables list as published, from the sections ``published_images`` and ``smp_images``."""
    found: list[Claim] = []
    for entry in content.get("published_images", ()):
        path, commit = entry["source"]["path"], entry["source"]["commit"]
        found.append(
            _claim(
                "documents",
                Path(path).parent.name,
                entry["tags"][0],
                f"aws/deep-learning-containers@{commit[:12]} {path}",
                transformers=entry.get("transformers"),
                device=entry["accelerator"],
                python=entry["python"],
                cuda=entry.get("cuda"),
                os=entry["os"],
                gallery=entry.get("public_registry", False),
                released=entry.get("ga"),
                end_of_patch=entry.get("eop"),
            )
        )
    for entry in content.get("smp_images", ()):
        page = entry["source"]
        evidence = f"{page['page']}, {page['release']} ({page['date']})"
        found.append(_claim("documents", SMP, entry["tag"], evidence))
    return found


def support_of(content: Mapping[str, Any]) -> list[Support]:
    """The dates of frameworks whose images the tables list no more, from the section ``support``."""
    return [
        Support(
            repository=f"{entry['framework']}-training",
            version=entry["version"],
            released=date.fromisoformat(entry["ga"]),
            end_of_patch=date.fromisoformat(entry["eop"]),
            evidence=f"aws/deep-learning-containers@{entry['source']['commit'][:12]} {entry['source']['path']}",
        )
        for entry in content.get("support", ())
    ]


def snapshots_of(content: Mapping[str, Any]) -> list[Snapshot]:
    """What ``meta.snapshot`` says the facts were read from.

    Raises:
        RequestError: there is no such section, or no date in it.
    """
    snapshot = content.get("meta", {}).get("snapshot", {})
    states = {name: state for name, state in snapshot.items() if isinstance(state, Mapping)}
    if not states:
        raise RequestError("a facts file needs meta.snapshot, which says what it was read from and when")
    return [
        parse_record(
            Snapshot,
            {
                "repository": snapshot.get("repository"),
                "branch": name.removeprefix("branch_") if name.startswith("branch_") else None,
                **state,
            },
            f"meta.snapshot.{name}",
        )
        for name, state in states.items()
    ]
