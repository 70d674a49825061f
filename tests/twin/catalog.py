"""The twin's catalog: the seed line and its components with other data, and the templates as they are shipped."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.twin.bases import OS, Bases
from tests.twin.standins import PYTHON, Inputs, StandIn, make
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.core.data_files import read_yaml
from trainwright.core.paths import images_dir, templates_dir
from trainwright.lock.wheels import lock_line
from trainwright.plan.plan import Plan, PlannedComponent
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

SEED = ("pytorch", "cu113", "1.10.2")
SEED_LINE = "pytorch/1.10.2-cu113/line.yaml"
# What Debian 11 has in other versions than Ubuntu 20.04 and the real installer: component, version.
VERSIONS = {"python": PYTHON, "ssh": "8.4", "openmpi": "4.1.0"}
# Newest releases that have a wheel for the twin's Python.
CONSTRAINTS = ("gevent<26",)
# AWS compiled its libraries for Python 3.8 alone, the stand-ins are compiled for the twin's.
RULES = ("smp-cp38", "smddp-cp38")
# The release that Debian 11 stands for has packages in the installer that the stand-in is named after.
FOR_UBUNTU = "efa-1.24-bullseye"
LIBFABRIC = "1.11.0"


@dataclass(frozen=True)
class Twin:
    """A catalog folder, the folder of archives that stands for a mirror, and what is in it."""

    catalog: Path
    mirror: Path
    line: Path
    standins: tuple[StandIn, ...]

    def table(self) -> str:
        """What stands in for what, for people."""
        rows = [
            ("component", "archive", "stands in"),
            ("base", "nvidia/cuda:11.3.1-cudnn8-runtime-ubuntu20.04", "Debian 11 and small libraries of CUDA's names"),
            ("base", "nvidia/cuda:11.3.1-cudnn8-devel-ubuntu20.04", "the same with headers, stubs and a small nvcc"),
            ("python", "python3.8 of Ubuntu 20.04", f"python{PYTHON} of Debian 11"),
            *((each.component, each.file, each.made_of) for each in self.standins),
        ]
        widths = [max(len(row[n]) for row in rows) for n in range(2)]
        return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows)


def seed_plan() -> tuple[Plan, Catalog]:
    """The plan of the shipped line."""
    catalog = load_catalog()
    framework, cuda, version = SEED
    return resolve(make_request(framework=framework, cuda=cuda, version=version), catalog), catalog


def make_twin(folder: Path, bases: Bases) -> Twin:
    """Make the catalog and the mirror.

    Args:
        folder: takes both.
        bases: the base images.
    """
    plan, shipped = seed_plan()
    mirror, root = folder / "mirror", folder / "catalog"
    mirror.mkdir(parents=True)
    values = {"LIBFABRIC": LIBFABRIC, "OPENMPI": VERSIONS["openmpi"]}
    wheels = folder / "wheels"
    wheels.mkdir()
    inputs = Inputs(metis=bases.metis, wheels=wheels, values=values)
    standins: list[StandIn] = []
    for component in plan.components:
        files = [archive.file or "" for archive in component.archives]
        own = [make(component.name, component.version, file, mirror, inputs) for file in files]
        standins += own
        if own or component.name in VERSIONS:
            version = VERSIONS.get(component.name, component.version)
            _component(shipped.components[component.name].path, root, component, version, own)
    shutil.rmtree(wheels)
    _rules(root)
    line = _line(images_dir() / SEED_LINE, root, bases)
    return Twin(root, mirror, line, tuple(standins))


def _component(source: Path, root: Path, planned: PlannedComponent, version: str, standins: Sequence[StandIn]) -> None:
    """A copy of a component's folder in which one version of one provider has the stand-ins as its sources."""
    target = root / "templates" / "components" / source.name
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    data = read_yaml(source / "component.yaml")
    versions = data["providers"][planned.provider].setdefault("versions", {})
    row = {"values": versions.get(version, {}).get("values", {})}
    pairs = zip(standins, planned.archives, strict=True)
    if sources := [{"file": own.file, "url": upstream.url, "sha256": own.sha256} for own, upstream in pairs]:
        row["sources"] = sources
    versions[version] = row
    (target / "component.yaml").write_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


def _line(source: Path, root: Path, bases: Bases) -> Path:
    """The seed line on the twin's base, with a lock for the twin's Python."""
    target = root / "images" / Path(*source.parts[-3:])
    target.parent.mkdir(parents=True)
    data = read_yaml(source)
    data["python"] = PYTHON
    data["base"] |= {"os": OS, "image": bases.runtime, "build_image": bases.devel}
    data["constraints"] = [*data.get("constraints", ()), *CONSTRAINTS]
    for name, version in VERSIONS.items():
        data["components"][name]["version"] = version
    target.write_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    target.with_name("lock.json").write_text(lock_line(data).dump())
    return target


def _rules(root: Path) -> None:
    """The shipped rules, where those for the Python of AWS's wheels name the twin's, and Debian 11 is no Debian."""
    data = read_yaml(templates_dir() / "rules.yaml")
    for rule in data["rules"]:
        if rule["name"] in RULES:
            rule["when"]["python"] = f"!={PYTHON}"
        if rule["name"] == FOR_UBUNTU:
            rule["when"]["os"] = ["ubuntu-20.04"]
            rule["when"]["components"]["efa"]["version"] = "<1.8"  # the first with packages for it is older
    (root / "templates" / "rules.yaml").write_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


def changed_rules(twin: Twin) -> list[str]:
    """The names of the rules that differ from the shipped ones."""
    own, shipped = (read_yaml(folder / "rules.yaml") for folder in (twin.catalog / "templates", templates_dir()))
    assert {k: v for k, v in own.items() if k != "rules"} == {k: v for k, v in shipped.items() if k != "rules"}
    pairs = zip(own["rules"], shipped["rules"], strict=True)
    return [new["name"] for new, old in pairs if new != old]


def changed_templates(twin: Twin) -> list[str]:
    """Files of the twin's components that differ from the shipped ones in more than their table of versions."""
    different = []
    for folder in sorted((twin.catalog / "templates" / "components").iterdir()):
        shipped = templates_dir() / "components" / folder.name
        names = {p.relative_to(r) for r in (folder, shipped) for p in r.rglob("*") if p.is_file()}
        for name in sorted(n for n in names if "__pycache__" not in n.parts):
            if str(name) == "component.yaml":
                same = _without_versions(folder / name) == _without_versions(shipped / name)
            else:
                same = (folder / name).read_bytes() == (shipped / name).read_bytes()
            different += [] if same else [f"{folder.name}/{name}"]
    return different


def _without_versions(path: Path) -> Any:
    data = read_yaml(path)
    for provider in data["providers"].values():
        provider.pop("versions", None)
    return data
