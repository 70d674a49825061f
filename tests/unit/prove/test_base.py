"""What was found in a base image: what it means for claims, for the plan, and for the image on top of it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import Conflict, ProofFailed
from trainwright.engine.engine import Client, Engine
from trainwright.plan.plan import Plan, found_labels
from trainwright.plan.request import Request, make_request
from trainwright.plan.resolve import resolve
from trainwright.prove import base, probe
from trainwright.prove.differences import differences
from trainwright.sources.base_image import PulledImage

CATALOG = load_catalog()
ENGINE = Engine(Client("/bin/false", "builtin", "20.10", "plain"), "20.10")
LABEL = "io.trainwright.component"
# pytorch-training 1.10.2 as AWS's Dockerfile of 2022-09-20 (f023343d) makes it, without EFA, and with METIS.
LOOKED: dict[str, Any] = {
    "image": {"id": "sha256:" + "1" * 64, "layers": ["sha256:a", "sha256:b"]},
    "facts": {
        "python": {"version": "3.8.13"},
        "pytorch": {"version": "1.10.2"},
        "cuda": {"version": "11.3"},
        "openmpi": {"version": "4.1.1"},
        "mpi4py": {"version": "3.0.3"},
        "ssh": {"version": "8.2"},
        "metis": {"version": "5.1.0"},
        "efa": {"error": "no such file"},
        "huggingface": {"version": ""},
    },
    "distributions": {"torch": "1.10.2", "numpy": "1.22.2", "mpi4py": "3.0.3"},
    "environment": {},
    "left_overs": {"ssh host keys": ["/etc/ssh/ssh_host_rsa_key"]},
    "driver_libraries": ["/usr/local/cuda-11.3/compat/libcuda.so.1"],
    "compilers": {"gcc": "/usr/bin/gcc"},
    "duplicates": {},
}


def ask(**words: Any) -> Request:
    return make_request(framework="pytorch", version="1.10.2", cuda="cu113", base="dlc", **words)


def planned(**words: Any) -> tuple[Plan, Request]:
    request = ask(**words)
    return resolve(request, CATALOG), request


def looked(**facts: Any) -> dict[str, Any]:
    found = copy.deepcopy(LOOKED)
    found["facts"] |= facts
    return found


def test_a_component_is_there_if_its_probe_reports_a_version() -> None:
    assert base.versions(LOOKED) == {
        "python": "3.8.13",
        "pytorch": "1.10.2",
        "cuda": "11.3",
        "openmpi": "4.1.1",
        "mpi4py": "3.0.3",
        "ssh": "8.2",
        "metis": "5.1.0",
    }


def test_a_base_that_is_what_its_name_says() -> None:
    base.check_claims(*planned(), LOOKED)
    base.check_claims(*planned(with_="metis", set_=("openmpi=4.1.1", "mpi4py=base")), LOOKED)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"with_": "gdrcopy"}, "--with gdrcopy"),
        ({"with_": "efa"}, "--with efa"),
        ({"set_": ("openmpi=4.1.5",)}, "has openmpi 4.1.1"),
        ({"set_": ("efa=1.15.2",)}, "--set efa=1.15.2"),
        ({"set_": ("efa=base",)}, "efa is not in"),
        ({"set_": ("flash-attn=2.8.3",)}, "flash-attn is not in"),
        ({"without": "openmpi"}, "--without openmpi"),
    ],
)
def test_what_the_user_asked_for_and_the_base_has_not(words: dict[str, Any], said: str) -> None:
    with pytest.raises(Conflict) as refused:
        base.check_claims(*planned(**words), LOOKED)
    assert said in "".join(f"{row['constraint']}: {row['evidence']}" for row in refused.value.details["rows"])


@pytest.mark.parametrize(
    ("facts", "component"),
    [
        ({"pytorch": {"version": "1.10.0"}}, "pytorch"),
        ({"pytorch": {"error": "no torch"}}, "pytorch"),
        ({"python": {"version": "3.9.1"}}, "python"),
        ({"cuda": {"version": "11.1"}}, "cuda"),
    ],
)
def test_a_base_that_is_not_what_its_name_says(facts: dict[str, Any], component: str) -> None:
    with pytest.raises(ProofFailed, match=f"{component}: version should be"):
        base.check_claims(*planned(), looked(**facts))


# /etc/os-release of ubuntu:20.04 and debian:11, and of both releases of Amazon Linux (dylanaraps/pfetch #218).
UBUNTU = {"ID": "ubuntu", "VERSION_ID": "20.04"}
DEBIAN = {"ID": "debian", "VERSION_ID": "11"}
AMAZON = {"ID": "amzn", "VERSION_ID": "2023"}
AMAZON_2 = {"ID": "amzn", "VERSION_ID": "2"}


@pytest.mark.parametrize(
    ("claimed", "release"),
    [
        ("ubuntu-20.04", UBUNTU),
        ("debian-11", DEBIAN),
        ("amazonlinux-2023", AMAZON),
        ("amazonlinux-2", AMAZON_2),
        ("ubuntu-20.04", {}),
    ],
)
def test_a_base_of_the_distribution_of_its_line(claimed: str, release: dict[str, str]) -> None:
    plan, request = planned()
    base.check_claims(plan.replace(base=plan.base.replace(os=claimed)), request, {**LOOKED, "os": release})


@pytest.mark.parametrize(
    ("claimed", "release", "has"),
    [
        ("ubuntu-22.04", UBUNTU, "ubuntu-20.04"),
        ("ubuntu-20.04", DEBIAN, "debian-11"),
        ("ubuntu-20.04", AMAZON, "amazonlinux-2023"),
        ("amazonlinux-2023", AMAZON_2, "amazonlinux-2"),
    ],
)
def test_a_base_of_another_distribution(claimed: str, release: dict[str, str], has: str) -> None:
    plan, request = planned()
    with pytest.raises(ProofFailed, match=f"os should be {claimed}, the image has {has}"):
        base.check_claims(plan.replace(base=plan.base.replace(os=claimed)), request, {**LOOKED, "os": release})


# libgdrapi.so.2.5 is of GDRCopy 2.5 and of 2.5.1 (NVIDIA/gdrcopy 117f1f4f, src/Makefile: LIB_VER); the binaries of
# aws-ofi-nccl before 1.2 and of RMM 0.15 hold no version.
@pytest.mark.parametrize(
    ("asked", "found"), [("gdrcopy=2.5.1", "2.5"), ("aws-ofi-nccl=1.1.3", "unknown"), ("rmm=0.15.0", "unknown")]
)
def test_a_base_that_says_less_than_what_was_asked_for(asked: str, found: str) -> None:
    name, _, version = asked.partition("=")
    plan, request = planned(with_=name, set_=(asked,))
    there = looked(**{name: {"version": found}})
    base.check_claims(plan, request, there)
    proven = base.with_found(plan, there, CATALOG)
    assert proven.labels[f"{LABEL}.{name}"] == f"{version} (base)"
    assert {e.value for e in proven.expect if e.component == name} == {found}
    assert in_image(proven, facts=there["facts"]) == []
    assert f"--set {asked}: the base image only says that it has {name} {found}" in proven.notices
    unasked = base.with_found(planned()[0], there, CATALOG)
    assert unasked.labels[f"{LABEL}.{name}"] == f"{found} (base)"
    assert not [notice for notice in unasked.notices if "--set" in notice]


@pytest.mark.parametrize("found", ["2.5.0", "2.4", "2.5.1.1", "2.50"])
def test_a_base_that_says_otherwise_than_what_was_asked_for(found: str) -> None:
    with pytest.raises(Conflict, match=r"--set gdrcopy=2\.5\.1"):
        base.check_claims(*planned(with_="gdrcopy", set_=("gdrcopy=2.5.1",)), looked(gdrcopy={"version": found}))


def test_the_plan_says_what_was_found_and_stays_the_same_plan() -> None:
    plan, _ = planned()
    found = base.with_found(plan, LOOKED, CATALOG)
    assert (found.id, found.tags) == (plan.id, plan.tags)
    assert plan.labels.items() <= found.labels.items()
    assert f"{LABEL}.openmpi" not in plan.labels
    assert found.labels[f"{LABEL}.openmpi"] == "4.1.1 (base)"
    assert found.labels[f"{LABEL}.metis"] == "5.1.0 (base)", "nobody knew that it is there"
    assert f"{LABEL}.efa" not in found.labels
    assert found_labels(found)[f"{LABEL}.metis"] == "5.1.0 (base)"
    absent = {c.name for c in found.components if not c.version}
    assert {"efa", "rmm", "smdistributed-modelparallel"} <= absent
    expected = {(e.component, e.value) for e in found.expect}
    assert {("openmpi", "4.1.1"), ("metis", "5.1.0")} <= expected
    assert {"openmpi", "metis"} <= {step.component for step in found.probes}


def hang(plan: Plan) -> list[str]:
    return [notice for notice in plan.notices if "aws/deep-learning-containers#6668" in notice]


def test_known_bad_versions_are_told_of_what_was_found() -> None:
    plan, _ = planned()
    assert hang(plan) == hang(base.with_found(plan, LOOKED, CATALOG)) == []
    bad = base.with_found(plan, looked(**{"aws-ofi-nccl": {"version": "1.18.0"}}), CATALOG)
    (told,) = hang(bad)
    assert told.endswith("(found in the base image)")
    assert set(plan.notices) < set(bad.notices)


def test_what_was_found_replaces_what_the_dockerfile_says() -> None:
    plan = resolve(make_request(framework="pytorch", version="2.11.0", base="dlc"), CATALOG)
    assert len(hang(plan)) == 1
    assert hang(base.with_found(plan, looked(**{"aws-ofi-nccl": {"version": "1.20.0"}}), CATALOG)) == []
    (told,) = hang(base.with_found(plan, looked(**{"aws-ofi-nccl": {"version": "1.18.0"}}), CATALOG))
    assert told.endswith("(found in the base image)")


def in_image(plan: Plan, layers: str = "abc", **changes: Any) -> list[tuple[str, str]]:
    """The differences of an image on top of the base, in which this was changed."""
    found = {**copy.deepcopy(LOOKED), **changes, "base": base.summary(LOOKED)}
    found["environment"] = plan.environment
    found["image"] = {"labels": plan.labels, "layers": [f"sha256:{layer}" for layer in layers]}
    return [(d.component, d.fact) for d in differences(plan.as_json(), found)]


def test_what_the_base_has_is_no_fault_of_the_image() -> None:
    plan = base.with_found(planned()[0], LOOKED, CATALOG)
    assert in_image(plan) == []
    assert in_image(plan, compilers={"gcc": "/usr/bin/gcc", "g++": "/usr/bin/g++"}) == [("compilers", "g++")]
    assert in_image(plan, driver_libraries=["/usr/lib/libcuda.so.1"]) == [("driver", "/usr/lib/libcuda.so.1")]
    more = {"ssh host keys": ["/etc/ssh/ssh_host_rsa_key"], "apt lists": ["/var/lib/apt/lists/x_y"]}
    assert in_image(plan, left_overs=more) == [("left-overs", "apt lists")]


@pytest.mark.parametrize("layers", ["axc", "a", "cab"])
def test_an_image_on_top_of_another_base_is_none_of_the_plan(layers: str) -> None:
    plan = base.with_found(planned()[0], LOOKED, CATALOG)
    assert in_image(plan, layers=layers) == [("base image", "layers")]


def test_a_package_of_the_base_that_changed_is_named() -> None:
    plan = base.with_found(planned()[0], LOOKED, CATALOG)
    other = {**LOOKED["distributions"], "numpy": "2.0.0", "einops": "0.8.1"}
    assert in_image(plan, distributions=other) == [("base image", "Python package numpy")]
    gone = {name: version for name, version in LOOKED["distributions"].items() if name != "numpy"}
    assert in_image(plan, distributions=gone) == [("base image", "Python package numpy")]
    assert in_image(plan, facts=looked(openmpi={"version": "5.0.8"})["facts"]) == [("openmpi", "version")]


def test_a_package_may_change_by_name(tmp_path: Path) -> None:
    (tmp_path / "wanted.txt").write_text("mpi4py==4.1.2\n")
    plan, _ = planned(requirements=str(tmp_path / "wanted.txt"), allow_change="MPI4Py")
    assert plan.id != planned(requirements=str(tmp_path / "wanted.txt"))[0].id
    assert any("--allow-change" in notice and "mpi4py" in notice for notice in plan.notices)
    found = base.with_found(plan, LOOKED, CATALOG)
    other = {**LOOKED["distributions"], "mpi4py": "4.1.2"}
    facts = looked(mpi4py={"version": "4.1.2"}, user={"code": "none"})["facts"]
    assert in_image(found, distributions=other, facts=facts) == []


def test_a_base_is_looked_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path))
    asked: list[Any] = []

    def run(client: str, image: str, request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return copy.deepcopy(LOOKED)

    monkeypatch.setattr(probe, "probe", run)
    image = PulledImage(LOOKED["image"]["id"], None)
    monkeypatch.setattr("trainwright.sources.base_image.inspect", lambda *_: image)
    plan, _ = planned()
    first = base.look(ENGINE, "it", plan, CATALOG, say=lambda _: None)
    assert base.look(ENGINE, "it", plan, CATALOG, say=lambda _: None) == first == LOOKED
    (request,) = asked
    assert {"metis", "torchvision", "gdrcopy"} <= {step["component"] for step in request["probes"]}
    for kept in (tmp_path / "bases").iterdir():
        kept.write_text("{")
    base.look(ENGINE, "it", plan, CATALOG, say=lambda _: None)
    assert len(asked) == 2, "a broken file is no knowledge"
