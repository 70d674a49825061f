"""The tables of README and docs that no program makes, against the data that they are about."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.image_line import Line, version_key
from trainwright.catalog.wheel_lock import Lock
from trainwright.core.data_files import read_yaml
from trainwright.push import attest
from trainwright.sagemaker.causes import load_book

ROOT = Path(__file__).resolve().parents[3]
CATALOG = load_catalog()


def table(page: str, head: str) -> list[list[str]]:
    """The cells of the rows below a head line."""
    below = (ROOT / page).read_text().partition(f"{head}\n")[2].splitlines()[1:]
    rows = below[: next(number for number, line in enumerate([*below, ""]) if not line.startswith("|"))]
    assert rows, f"{page} has no table {head}"
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def words(cell: str) -> list[str]:
    """What is in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def of_debian(number: int) -> list[Line]:
    return [
        entry
        for entry in CATALOG.lines
        if entry.line.base.kind == "debian" and entry.line.base.os == f"debian-{number}"
    ]


@pytest.mark.parametrize(("column", "number"), [(1, 12), (2, 13)])
def test_what_the_two_debians_have(column: int, number: int) -> None:
    said = {row[0]: row[column] for row in table("docs/images.md", "| | Debian 12 | Debian 13 |")}
    lines = of_debian(number)
    assert lines
    assert {entry.line.python for entry in lines} == {said["Python"]}

    def versions(component: str) -> set[str]:
        return {c.version for entry in lines for name, c in entry.line.components.items() if name == component}

    assert versions("openmpi") == {said["Open MPI"].partition(",")[0]}
    libfabric = said["libfabric, rdma-core"].partition(",")[0]
    assert {version for version in versions("efa") if not f"{version}.".startswith(f"{libfabric}.")} == set()
    plugin = versions("aws-ofi-nccl")
    assert plugin == ({said["NCCL between hosts"].rpartition(" ")[2]} if number == 13 else set())
    # "PyTorch with CUDA 12.6, 12.8, 13.0 and 13.2, TensorFlow with …": of PyTorch alone.
    torch = [entry.line for entry in lines if entry.line.framework == "pytorch" and entry.line.cuda != "cpu"]
    assert torch
    if number == 12:
        newest = re.match(r"PyTorch up to ([\d.]+) ", said["lines"])
        assert newest and max(version_key(line.version)[:2] for line in torch) == version_key(newest[1])
    else:
        named = said["lines"].partition(", TensorFlow")[0]
        assert {line.cuda for line in torch} == set(re.findall(r"\d+\.\d+", named))


def test_versions_on_the_page_are_those_of_the_lines() -> None:
    text = " ".join(
        (ROOT / "docs/images.md").read_text().partition("## What is in an image\n")[2].strip().split("\n\n")[0].split()
    )
    named = {
        "aws-ofi-nccl": r"\(aws-ofi-nccl ([\d.]+)\)",
        "openmpi": r"Open MPI ([\d.]+),",
        "metis": r"METIS ([\d.]+) built from source",
        "sagemaker-toolkit": r"sagemaker-training ([\d.]+) with",
    }
    lines = [entry for number in (12, 13) for entry in of_debian(number) if entry.line.framework == "pytorch"]
    for component, pattern in named.items():
        match = re.search(pattern, text)
        assert match, pattern
        found = {entry.line.components[component].version for entry in lines if component in entry.line.components}
        assert found, component
        assert {version for version in found if not f"{version}.".startswith(f"{match[1]}.")} == set()


def test_each_set_of_toolkits_is_that_of_its_lines() -> None:
    rows = {
        (row[2], row[3].rpartition(" ")[2])
        for row in table(
            "docs/images.md", "| Python | framework | sagemaker-training | framework's toolkit | protobuf |"
        )
    }
    found = set()
    for entry in CATALOG.lines:
        if not entry.lock_path.is_file():
            continue
        packages = {package.name: package.version for package in Lock.load(entry.lock_path).packages}
        module = packages.get("sagemaker-pytorch-training") or packages.get("sagemaker-tensorflow-training")
        if "sagemaker-training" in packages and module:
            found.add((packages["sagemaker-training"], module))
    assert found == rows


def test_every_cause_of_a_rehearsal_that_is_listed_exists() -> None:
    known = {cause.id for cause in load_book().rehearsal}
    for path in (ROOT / "trainwright" / "rehearse").glob("*.py"):
        tree = ast.parse(path.read_text())
        known |= {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
    listed = [name for row in table("docs/rehearse.md", "| cause | what is wrong |") for name in words(row[0])]
    assert len(listed) > 20
    assert [name for name in listed if name not in known and name not in ("entry-point-…", "diagnose")] == []


class Loader(yaml.SafeLoader):
    """Reads CloudFormation's own tags as text."""


Loader.add_multi_constructor("!", lambda _loader, _tag, node: str(node.value))  # type: ignore[no-untyped-call]


def test_parameters_of_the_stack_have_the_defaults_that_the_page_says() -> None:
    parameters = yaml.load((ROOT / "infra/trainwright.yaml").read_text(), Loader)["Parameters"]
    named: dict[str, str] = {}
    for names, defaults, _ in table("docs/setup-aws.md", "| parameter | default | |"):
        values = ["" if each == "none" else re.sub(r"`| minutes", "", each) for each in defaults.split(", ")]
        named |= dict(zip(words(names), values, strict=True))
    assert len(named) >= 12
    assert named == {name: str(parameters[name]["Default"]) for name in named}


def test_variables_of_the_pipeline_have_the_defaults_that_the_page_says() -> None:
    variables: dict[str, Any] = read_yaml(ROOT / "buildspec.yml")["env"]["variables"]
    for names, defaults, _ in table("docs/pipeline.md", "| variable | default | |"):
        said = words(defaults)
        for number, name in enumerate(words(names)):
            # An empty REPOSITORY is made from two others in the commands.
            expected = said[number] if number < len(said) and name != "REPOSITORY" else ""
            assert variables[name] == expected, name


def test_types_of_attached_documents() -> None:
    said = {words(row[0])[0]: row[1] for row in table("docs/push.md", "| document | predicate type |")}
    assert words(said["record"])[0] == attest.RECORD
    assert words(said["provenance"])[0] == attest.PROVENANCE
    assert words(said["smoke"])[0] == attest.TEST_RESULT


def test_shares_follow_from_the_counts() -> None:
    head = "| scripts | findings | true and useful | not false | errors not false | scripts with a false error |"
    rows = [row for row in table("docs/preflight.md", head) if row[1]]
    assert rows
    for _, every, useful, right, *_ in rows:
        for cell in filter(None, (useful, right)):
            match = re.fullmatch(r"(\d+) \((\d+) %\)", cell)
            assert match
            assert round(100 * int(match[1]) / int(every)) == int(match[2])
