"""The image lines of AWS's own images: every set of the compatibility table is there, resolves, and has a lock."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.image_line import ImageLine, Line
from trainwright.catalog.wheel_lock import Lock
from trainwright.lock.refresh import stale
from trainwright.plan.draft import make_draft
from trainwright.plan.fit import objections
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve


class Row(NamedTuple):
    """What AWS's image holds; ``-`` is nothing."""

    version: str
    cuda: str
    python: str
    os: str
    nccl: str
    efa: str
    smp: str
    smddp: str
    released: bool = True


def rows(text: str) -> list[Row]:
    """A row per line; a dagger says that nobody published it."""
    words = [line.split() for line in text.strip().splitlines()]
    return [Row(*each[:8], released=each[8:] != ["†"]) for each in words]


PYTORCH = rows("""
    1.6.0   cu110 3.6  u18.04 2.7.8  -      1.0.0  1.0.0
    1.7.1   cu110 3.6  u18.04 2.7.8  -      1.3.1  1.0.0
    1.8.0   cu111 3.6  u18.04 2.8.4  -      1.3.0  1.1.0
    1.8.1   cu111 3.6  u18.04 2.7.8  1.11.2 1.6.0  1.2.3
    1.9.1   cu111 3.8  u20.04 2.7.8  1.12.1 1.4.0  1.2.0
    1.10.0  cu113 3.8  u20.04 2.10.3 1.12.1 1.5.0  1.2.2
    1.10.2  cu113 3.8  u20.04 2.10.3 1.12.1 1.7.0  1.4.0
    1.10.2  cu113 3.8  u20.04 2.10.3 1.15.2 1.11.2 1.4.3
    1.11.0  cu113 3.8  u20.04 2.10.3 1.15.2 1.11.2 1.5.1
    1.11.0  cu115 3.8  u20.04 2.10.3 1.15.2 1.10.1 1.4.1 †
    1.12.1  cu113 3.8  u20.04 2.10.3 1.15.1 1.13.0 1.6.0
    1.12.1  cu116 3.8  u20.04 2.10.3 1.16.0 1.12.1 1.5.1 †
    1.13.0  cu113 3.8  u20.04 2.10.3 1.15.1 -      -     †
    1.13.0  cu116 3.8  u20.04 2.10.3 1.16.0 -      -     †
    1.13.1  cu117 3.9  u20.04 2.14.3 1.19.0 1.15.0 1.7.0
    2.0.1   cu118 3.10 u20.04 2.16.2 1.21.0 1.15.0 2.0.1
    2.0.1   cu121 3.10 u20.04 2.18.3 1.24.1 -      -
    2.1.0   cu118 3.10 u20.04 2.18.5 1.27.0 1.15.0 1.8.1 †
    2.1.0   cu121 3.10 u20.04 2.18.5 1.27.0 -      2.1.0
    2.2.0   cu121 3.10 u20.04 2.21.5 1.31.0 -      2.2.0
    2.3.0   cu121 3.11 u20.04 2.21.5 1.32.0 -      2.3.0
    2.4.0   cu124 3.11 u22.04 2.22.3 1.42.0 -      2.5.0
    2.5.1   cu124 3.11 u22.04 2.23.4 1.36.0 -      2.6.0
    2.6.0   cu126 3.12 u22.04 2.23.4 1.38.0 -      -
    2.7.1   cu128 3.12 u22.04 2.26.2 1.40.0 -      -
    2.8.0   cu129 3.12 u22.04 2.27.3 1.43.1 -      -
    2.9.0   cu130 3.12 u22.04 2.27.7 1.44.0 -      -
    2.10.0  cu130 3.13 u22.04 2.28.9 1.47.0 -      -
    2.11.0  cu130 3.12 al2023 2.28.9 1.49.0 -      -
    2.12.1  cu130 3.12 al2023 2.29.7 1.49.0 -      -
    2.13.0  cu133 3.12 al2023 2.29.7 1.49.0 -      -
""")
TENSORFLOW = rows("""
    2.3.4   cu110 3.7  u18.04 2.7.8  -      1.3.1  1.0.0
    2.4.3   cu110 3.7  u18.04 2.7.8  1.11.2 1.3.1  1.2.0
    2.5.3   cu112 3.7  u18.04 2.8.4  1.11.2 1.4.0  1.2.1
    2.6.3   cu112 3.8  u20.04 2.8.4  1.12.1 1.4.0  1.2.1
    2.7.1   cu112 3.8  u20.04 2.8.4  1.12.1 -      1.3.0
    2.8.4   cu112 3.9  u20.04 2.10.3 1.12.1 -      1.3.0
    2.9.3   cu112 3.9  u20.04 2.10.3 1.12.1 -      1.4.1
    2.10.1  cu112 3.9  u20.04 2.12.10 1.17.2 -     1.4.1
    2.11.1  cu112 3.9  u20.04 2.13.4 1.17.2 -      1.4.1
    2.12.0  cu118 3.10 u20.04 2.16.5 1.21.0 -      -
    2.13.0  cu118 3.10 u20.04 2.16.5 1.24.0 -      -
    2.14.1  cu118 3.10 u20.04 2.16.5 1.30.0 -      -
    2.16.2  cu123 3.10 u20.04 2.19.3 1.33.0 -      -
    2.18.0  cu125 3.10 u22.04 2.23.4 1.37.0 -      -
    2.19.0  cu125 3.12 u22.04 2.23.4 1.40.0 -      -
    2.21.0  cu129 3.12 al2023 2.30.7 1.49.0 -      -
""")
# Where a line has something else than AWS's image, and why (its evidence says it at length).
OTHERWISE = {
    ("pytorch", "1.10.2", "1.7.0"): {"efa": "1.14.1"},  # AWS's guide, not its Dockerfile
    ("pytorch", "1.11.0", "1.10.1"): {"smp": "-", "smddp": "-"},  # wheels for CUDA 11.3 in an image of 11.5
    ("pytorch", "1.12.1", "1.12.1"): {"smp": "-", "smddp": "-"},  # the same in one of 11.6
    ("pytorch", "2.1.0", "1.15.0"): {"smp": "-", "smddp": "-"},  # wheels for PyTorch 2.0
    ("pytorch", "2.10.0", "-"): {"efa": "1.49.0"},  # the plugin of 1.47.0 hangs (aws/deep-learning-containers#6668)
    ("pytorch", "2.1.0", "-"): {"nccl": "2.18.1"},  # torch's wheel pins its own
    ("pytorch", "2.2.0", "-"): {"nccl": "2.19.3"},
    ("pytorch", "2.3.0", "-"): {"nccl": "2.20.5"},
}
COMPILER = [
    ("huggingface-pytorch-trcomp", "1.9.0", "cu111", "3.8", "1.10+f8595cb", "4.11.0"),
    ("huggingface-pytorch-trcomp", "1.10.2", "cu113", "3.8", "1.10.0", "4.17.0"),
    ("huggingface-pytorch-trcomp", "1.11.0", "cu113", "3.8", "1.11.0", "4.21.1"),
    ("pytorch-trcomp", "1.12.0", "cu113", "3.8", "1.12", "-"),
    ("pytorch-trcomp", "1.13.1", "cu117", "3.9", "1.13", "-"),
    ("huggingface-tensorflow-trcomp", "2.6.3", "cu112", "3.8", "-", "4.17.0"),
]
HUGGING_FACE = {
    "huggingface-pytorch": {
        ("1.6.0", "4.5.0", "3.6"),
        ("1.7.1", "4.6.1", "3.6"),
        ("1.8.1", "4.10.2", "3.6"),
        ("1.9.1", "4.12.3", "3.8"),
        ("1.10.2", "4.17.0", "3.8"),
        ("1.13.1", "4.26.0", "3.9"),
        ("2.0.0", "4.28.1", "3.10"),
        ("2.1.0", "4.36.0", "3.10"),
        ("2.3.0", "4.48.0", "3.11"),
        ("2.5.1", "4.49.0", "3.11"),
        ("2.6.0", "4.51.3", "3.12"),
        ("2.7.1", "4.55.0", "3.12"),
        ("2.8.0", "4.56.2", "3.12"),
        ("2.9.0", "5.3.0", "3.12"),
        ("2.11.0", "5.13.1", "3.12"),
    },
    "huggingface-tensorflow": {
        ("2.3.2", "4.5.0", "3.7"),
        ("2.4.3", "4.10.2", "3.7"),
        ("2.5.3", "4.12.3", "3.7"),
        ("2.6.3", "4.17.0", "3.8"),
        ("2.11.1", "4.26.0", "3.9"),
    },
}
OS = {"u18.04": "ubuntu-18.04", "u20.04": "ubuntu-20.04", "u22.04": "ubuntu-22.04", "al2023": "amazonlinux-2023"}
# What has no wheel anywhere and is built in a stage of the image; everything else must be a wheel.
FROM_SOURCE = {
    "inotify-simple",
    "sagemaker-training",
    "sagemaker-pytorch-training",
    "sagemaker-tensorflow-training",
    "mpi4py",  # for Python 3.6 and 3.7
    "wrapt",  # with clang and termcolor: of TensorFlow 2.4 to 2.6, which bind them to one minor version
    "clang",
    "termcolor",
}

CATALOG = load_catalog()
AWS = [entry for entry in CATALOG.lines if entry.line.base.kind != "debian"]


def name(entry: Line) -> str:
    return f"{entry.line.framework}/{entry.name}"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return CATALOG


def holds(line: ImageLine, component: str) -> str:
    """The version of a component, or ``-``."""
    chosen = line.components.get(component)
    return "-" if chosen is None else chosen.version


def as_row(line: ImageLine) -> Row:
    """A line in the words of the table."""
    return Row(
        version=line.version,
        cuda=line.published_cuda or line.cuda_tag,
        python=line.python,
        os=next(short for short, full in OS.items() if full == line.base.os),
        nccl=holds(line, "nccl"),
        efa=holds(line, "efa"),
        smp=holds(line, "smdistributed-modelparallel"),
        smddp=holds(line, "smdistributed-dataparallel"),
        released=line.released,
    )


DLC_ALONE = {("1.13.0", "cu113"), ("2.0.1", "cu121")}


@pytest.mark.parametrize(("framework", "table"), [("pytorch", PYTORCH), ("tensorflow", TENSORFLOW)])
def test_every_image_of_aws_is_a_line_with_its_versions(framework: str, table: list[Row]) -> None:
    wanted = []
    for row in table:
        changes = OTHERWISE.get((framework, row.version, row.smp), {})
        if framework == "tensorflow":  # AWS supports its libraries in custom images for PyTorch alone
            changes = {"smp": "-", "smddp": "-"}
        if (row.version, row.cuda) in DLC_ALONE:  # what these hold is found by their build
            changes = {**changes, "nccl": "", "efa": ""}
        wanted.append(row._replace(**changes))
    found = [as_row(entry.line) for entry in AWS if entry.line.framework == framework]
    assert sorted(found) == sorted(wanted)


def test_every_image_with_the_training_compiler_is_a_line() -> None:
    found = [
        (e.framework, e.version, e.cuda_tag, e.python, holds(e, "torch-xla"), holds(e, "huggingface"))
        for e in (entry.line for entry in AWS)
        if e.framework.endswith("-trcomp")
    ]
    assert sorted(found) == sorted(COMPILER)


@pytest.mark.parametrize("framework", HUGGING_FACE)
def test_every_hugging_face_image_is_a_line(framework: str) -> None:
    lines = [entry.line for entry in AWS if entry.line.framework == framework]
    assert {(e.version, holds(e, "huggingface"), e.python) for e in lines} == HUGGING_FACE[framework]
    assert len(lines) == len(HUGGING_FACE[framework])


@pytest.mark.parametrize("entry", AWS, ids=name)
def test_a_line_says_where_it_is_from(entry: Line) -> None:
    line = entry.line
    first = line.evidence[0]
    where = r"^aws/deep-learning-containers, (master|main) [0-9a-f]{8}, \S+Dockerfile\S*$|^AWS developer guide, "
    assert re.match(where, first.source), first
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", row.date) and row.says for row in line.evidence)
    assert line.version in entry.name
    assert (line.published_cuda or line.cuda_tag) in entry.name
    unmade = {"smdistributed-modelparallel", "smdistributed-dataparallel"} & set(line.components)
    assert not (line.main == "tensorflow" and any(line.components[n].provider != "base" for n in unmade))


@pytest.mark.parametrize("entry", AWS, ids=name)
def test_a_line_holds_together_and_has_a_lock(entry: Line, catalog: Catalog) -> None:
    line = entry.line
    request = make_request(framework=line.framework, cuda=line.cuda_tag, version=line.version, python=line.python)
    assert list(objections(request, catalog, make_draft(request, catalog, entry))) == []
    assert stale(entry) == []


@pytest.mark.parametrize("entry", AWS, ids=name)
def test_a_lock_fits_its_line_and_nothing_more(entry: Line) -> None:
    line, text = entry.line, entry.lock_path.read_text()
    lock = Lock.load(entry.lock_path)
    assert text == lock.dump()
    assert len(text) < 60_000
    assert "://" not in text
    assert lock.python == line.python
    assert lock.platform == f"x86_64-manylinux_2_{17 if line.base.os == 'ubuntu-18.04' else 28}"
    packages = {package.name: package for package in lock.packages}
    assert not set(packages) & set(line.excluded)
    assert {n for n, package in packages.items() if package.sdist} <= FROM_SOURCE
    known = {*line.components, *line.options}
    assert all(set(package.components) <= known and package.components for package in packages.values())
    if line.components[line.main].provider in ("aws", "index", "base"):
        assert not set(packages) & {"torch", "tensorflow", "tensorflow-gpu"}, "it comes by its address, or is there"


def plan(catalog: Catalog, **words: str) -> Plan:
    return resolve(make_request(framework="pytorch", **words), catalog)  # type: ignore[arg-type]


def test_the_guide_s_set_is_what_its_version_means(catalog: Catalog) -> None:
    found = plan(catalog, cuda="cu113", version="1.10.2")
    versions = {c.name: (c.provider, c.version) for c in found.components}
    assert found.base.build_image == "nvidia/cuda:11.3.1-cudnn8-devel-ubuntu20.04"
    assert found.python == "3.8"
    assert versions["nccl"] == ("source", "2.10.3")
    assert versions["efa"] == ("aws", "1.14.1")
    assert versions["aws-ofi-nccl"] == ("source", "1.1.3")
    assert versions["metis"] == ("source", "5.1.0")
    assert versions["rmm"] == ("source", "0.15.0")
    assert versions["smdistributed-modelparallel"] == ("aws", "1.7.0")
    assert versions["smdistributed-dataparallel"] == ("aws", "1.4.0")


def test_cuda_11_3_alone_means_the_newest_complete_line_and_says_that_there_are_others(catalog: Catalog) -> None:
    found = plan(catalog, cuda="cu113")
    assert found.version == "1.12.1", "1.13.0 was never published"
    assert any("1.11.0" in notice and "1.10.2" in notice for notice in found.notices)


def test_a_line_answers_to_the_cuda_version_that_aws_calls_it_by(catalog: Catalog) -> None:
    found = plan(catalog, cuda="cu133", version="2.13.0")
    assert (found.version, found.cuda, found.base.os) == ("2.13.0", "13.0", "amazonlinux-2023")
    assert plan(catalog, cuda="cu130", version="2.13.0").base.os == "debian-13", "which is made from packages"
