"""Sets that cannot work, as users ask for them: each is refused with the reason, and every offer resolves."""

from __future__ import annotations

import shlex

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import Conflict
from trainwright.plan.request import Request, make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()


def request_of(flags: str) -> Request:
    words: dict[str, object] = {"set_": []}
    parts = shlex.split(flags)
    for flag, value in zip(parts[::2], parts[1::2], strict=True):
        name = flag.removeprefix("--").replace("-", "_")
        if name == "set":
            words["set_"] = [*words["set_"], value]  # type: ignore[misc]
        else:
            words[{"with": "with_"}.get(name, name)] = value
    return make_request(**words)  # type: ignore[arg-type]


def refusal(flags: str) -> Conflict:
    with pytest.raises(Conflict) as refused:
        resolve(request_of(flags), CATALOG)
    return refused.value


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (
            "--framework pytorch --version 2.1 --with smdistributed-modelparallel",
            "smdistributed-modelparallel with PyTorch",
        ),
        ("--framework tensorflow --version 2.11 --with smdistributed-dataparallel", "TensorFlow in a custom image"),
        ("--framework pytorch --version 2.5 --cuda cu113", "CUDA older than 11.7"),
        ("--framework pytorch --cuda cu113 --set openmpi=5.0.7", "Open MPI 5"),
        ("--framework pytorch --cuda cu113 --set efa=1.43.0", "Ubuntu 20.04"),
        ("--framework tensorflow --version 2.16 --set sagemaker-toolkit=5.1.4", "TensorFlow 2.17 or older"),
        ("--framework pytorch --version 1.12.1 --python 3.9 --with smdistributed-modelparallel", "Python than 3.8"),
    ],
)
def test_the_reason_is_named_and_every_offer_resolves(flags: str, reason: str) -> None:
    refused = refusal(flags)
    told = " ".join([refused.message, *(row["constraint"] for row in refused.details["rows"])])
    assert reason in told
    assert all(row["evidence"] for row in refused.details["rows"])
    assert refused.details["offers"], "there is always something near"
    for offer in refused.details["offers"]:
        words = offer["command"].removeprefix("./invoke build ")
        assert resolve(request_of(words), CATALOG).id == offer["plan id"]


def test_the_guide_s_set() -> None:
    plan = resolve(request_of("--framework pytorch --cuda cu113 --version 1.10.2"), CATALOG)
    versions = {component.name: component.version for component in plan.components}
    wanted = {"nccl": "2.10.3", "efa": "1.14.1", "aws-ofi-nccl": "1.1.3", "metis": "5.1.0", "rmm": "0.15.0"}
    wanted |= {"smdistributed-modelparallel": "1.7.0", "smdistributed-dataparallel": "1.4.0"}
    assert wanted.items() <= versions.items()
    assert plan.python == "3.8"
    assert plan.base.build_image == "nvidia/cuda:11.3.1-cudnn8-devel-ubuntu20.04"


def test_without_a_version_the_newest_released_set_and_a_word_on_the_others() -> None:
    plan = resolve(request_of("--framework pytorch --cuda cu113"), CATALOG)
    assert plan.version == "1.12.1"
    assert any("1.10.2" in notice and "--version" in notice for notice in plan.notices)


def test_a_component_may_be_pinned_to_another_version_of_its_table() -> None:
    plan = resolve(request_of("--framework pytorch --cuda cu113 --set nccl=2.21.5"), CATALOG)
    assert {c.name: c.version for c in plan.components}["nccl"] == "2.21.5"
    assert any("nccl 2.21.5 was asked for" in notice for notice in plan.notices)


def test_a_pin_finds_the_set_that_has_it() -> None:
    plan = resolve(request_of("--framework pytorch --version 1.10.2 --set smdistributed-modelparallel=1.11.2"), CATALOG)
    assert {c.name: c.version for c in plan.components}["efa"] == "1.15.2"


def test_a_pin_leads_to_the_set_that_has_it_before_a_newer_one_that_could_move() -> None:
    plan = resolve(request_of("--framework pytorch --set nccl=2.21.5"), CATALOG)
    assert (plan.version, plan.cuda) == ("2.6.0", "12.4"), "its torch was built with that NCCL"
    assert not plan.flavour
    moved = resolve(request_of("--framework pytorch --cuda cu126 --set nccl=2.21.5"), CATALOG)
    assert moved.flavour == "nccl2.21.5", "no line of that CUDA version has it"


def test_offers_name_the_newest_of_a_cuda_version_and_what_was_published_first() -> None:
    commands = [
        offer["command"] for offer in refusal("--framework pytorch --version 2.5 --cuda cu113").details["offers"]
    ]
    assert commands[0].endswith("--cuda cu124 --version 2.5.1")
    assert commands[1].endswith("--cuda cu113 --version 1.12.1")
    with_smp = "--framework pytorch --version 2.1 --with smdistributed-modelparallel"
    first = refusal(with_smp).details["offers"][0]["command"]
    assert first.endswith("--cuda cu121 --version 2.1.0"), "nobody published 2.1.0 for CUDA 11.8"
