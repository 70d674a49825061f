"""``explain``: who decided a version, and what a change makes again."""

from __future__ import annotations

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.plan.explain import ExplainDocument, explain
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site

CATALOG = load_catalog()


def explained(**words: object) -> ExplainDocument:
    request = make_request(framework="pytorch", **words)
    return explain(resolve(request, CATALOG), CATALOG, Site(), request)


@pytest.mark.parametrize(
    ("cuda", "version", "expected"),
    [
        # Wheels are unpacked apart from each other, and METIS is compiled apart from them.
        ("cpu", "2.13.0", {}),
        # The plugin is configured with the folders of these three: README.md of aws-ofi-nccl v1.5.0.
        ("cu113", "1.11.0", dict.fromkeys(("efa", "openmpi", "nccl"), ("aws-ofi-nccl",))),
    ],
)
def test_a_change_makes_again_what_is_made_from_it(cuda, version, expected):
    document = explained(cuda=cuda, version=version)
    # Packages of the distribution are in the first layer, and CUDA may be the base: all that follows is made again.
    below = {"debian", "ubuntu", "nvidia"}
    rows = [row for row in document.components if row.provider not in below or row.name == "metis"]
    assert {row.name: row.rebuilds for row in rows if row.rebuilds} == expected
    ssh = next(row for row in document.components if row.name == "ssh")
    assert "pytorch" in ssh.rebuilds
    assert [part.name for part in ssh.remade][:2] == ["ssh", "os"]


def test_modules_are_compiled_again_after_a_change_of_what_is_below_them():
    rows = {row.name: [part.name for part in row.remade] for row in explained(cuda="cu124").components}
    assert rows["nccl"] == ["nccl", "bytecode"]
    assert rows["metis"] == ["metis"]  # copied into the image above the compiled modules
    own = {row.name: row for row in explained(cuda="cu124", version="2.4.0", base="nvidia").components}
    # The EFA installer contains it: a step of the image itself, below the modules.
    assert [part.name for part in own["openmpi"].remade] == ["openmpi", "bytecode"]
    # CUDA is the base image: everything is made from that.
    assert {"os", "pytorch", "bytecode"} <= {part.name for part in own["cuda"].remade}


def decided(**words: object) -> dict[str, str]:
    return {row.name: row.decided for row in explained(**words).components}


def test_who_decided_a_version():
    found = decided(cuda="cu124", with_="compiler")
    assert found["pytorch"] == "images/pytorch/cu124/line.yaml"
    assert found["nccl"].startswith("pytorch: the torch wheel pins the NCCL")
    assert found["compiler"] == "images/pytorch/cu124/line.yaml, an option that --with adds"
    assert decided(cuda="cu124", set_=("nccl=2.21.5",))["nccl"] == "--set nccl=2.21.5"
    assert decided(base="dlc", version="2.6.0")["pytorch"] == "the base image, which has it"
    tried = decided(cuda="cu124", version="2.6.9", allow_unproven=True)
    assert tried["pytorch"] == "the request (--allow-unproven): no image line has it"


def test_evidence_of_a_line_that_names_a_component_is_its_evidence():
    rows = {row.name: row for row in explained(cuda="cu124").components}
    assert [each.source for each in rows["rmm"].evidence] == ["metadata of rmm-cu12 26.10.0"]
    assert rows["metis"].evidence == ()
    assert len(rows["pytorch"].evidence) == 8
    # "Open MPI 4.1.1 from source" in that line's evidence.
    old = {row.name: row for row in explained(cuda="cu113", version="1.12.1", base="nvidia").components}
    assert len(old["openmpi"].evidence) == 1


def test_what_needs_a_component():
    rows = {row.name: row for row in explained(cuda="cu132").components}
    assert rows["nccl"].needed_by == ("aws-ofi-nccl",)
