"""``--for-gpus``: machine code for some GPUs alone is asked for, named everywhere, and refused where it cannot be."""

from __future__ import annotations

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import Conflict
from trainwright.plan.dockerfile import instructions
from trainwright.plan.plan import GPUS_LABEL, Plan
from trainwright.plan.project import Project
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()


def plan_of(**words) -> Plan:
    return resolve(make_request(**{"framework": "pytorch", "cuda": "cu124", "version": "2.6.0", **words}), CATALOG)


def steps(plan: Plan) -> list[str]:
    return [step for step in instructions(render_dockerfile(plan, CATALOG)) if "keep_gpus" in step]


def test_it_is_in_plan_id_tag_label_and_notice():
    plan, plain = plan_of(for_gpus="ml.p5,A100"), plan_of()
    assert plan.labels[GPUS_LABEL] == "8.0, 9.0" and GPUS_LABEL not in plain.labels
    assert plan.tags[0] == f"{plain.tags[0]}-gpu80-90"
    assert plan.id != plain.id and plan_of(for_gpus="9.0,8.0").id == plan.id
    assert any("8.0, 9.0" in notice and "no kernel image" in notice for notice in plan.notices)
    assert plan.budget is None  # the line's is for its own image


def test_only_libraries_that_may_be_changed_are():
    # CUDA's own libraries are under NVIDIA's EULA; the rest of this line has no machine code.
    plan = plan_of(for_gpus="8.0,9.0", with_="torchvision")
    assert {c.name for c in plan.components if c.gpus} == {"nccl", "pytorch", "torchvision"}
    told = steps(plan)
    assert len(told) == 3 and all("/mnt/keep_gpus 8.0 9.0 " in step for step in told)
    assert steps(plan_of()) == []


def test_what_is_compiled_is_compiled_for_them():
    words = {"cuda": "cu130", "version": "2.13.0", "with_": "flash-attn"}
    ours, all_of_them = plan_of(**words, for_gpus="9.0"), plan_of(**words)
    found = [plan.component("flash-attn").values["architectures"] for plan in (ours, all_of_them)]
    assert found[0] == "9.0" and len(found[1].split()) > 1


def test_the_request_can_be_typed_again():
    request = make_request(framework="pytorch", cuda="cu124", for_gpus="H100,8.0")
    assert request.flags() == "--framework pytorch --cuda cu124 --for-gpus 8.0,9.0"
    assert make_request(**Project(framework="pytorch", cuda="cu124", for_gpus=("9.0", "A100")).words()) == request


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"cuda": "cpu", "version": "2.13.0"}, "no machine code for GPUs"),
        ({"for_gpus": "10.0"}, "CUDA 12.8 does"),
        (
            {"cuda": "cu130", "version": "2.13.0", "for_gpus": "V100"},
            "do not compile for GPUs of compute capability 7.0",
        ),
        ({"cuda": "cu113", "version": "1.11.0"}, "(aws) keeps its machine code"),
        ({"base": "dlc", "cuda": None, "version": None}, "(base) keeps its machine code"),
    ],
)
def test_where_it_cannot_be(words, says):
    with pytest.raises(Conflict) as refused:
        plan_of(**{"for_gpus": "8.0", **words})
    assert says in str(refused.value.details) + refused.value.message
    assert refused.value.details["offers"]


def test_it_decides_which_line_is_meant():
    # Without a CUDA version, one is chosen that has code for the GPU.
    plan = resolve(make_request(framework="pytorch", version="2.4", for_gpus="9.0"), CATALOG)
    assert plan.version.startswith("2.4") and plan.cuda != "cpu"
