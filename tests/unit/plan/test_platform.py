"""``--platform linux/arm64``: wheels, base and tools of that processor in plan and id; the default stays what it is."""

from __future__ import annotations

import re

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.platforms import here
from trainwright.catalog.tools import load_tools, stale_tools, tools_lock
from trainwright.core.errors import Conflict, EngineError, RequestError
from trainwright.engine import platforms
from trainwright.engine.engine import Client, Engine
from trainwright.engine.platforms import check_engine
from trainwright.estimator.check import check
from trainwright.estimator.image import facts_of_plan
from trainwright.estimator.subject import Subject
from trainwright.lock.refresh import stale
from trainwright.plan.dockerfile import instructions
from trainwright.plan.plan import PLATFORM_LABEL, Plan
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.sagemaker.job import Job
from trainwright.user.requirements import required_pins

CATALOG = load_catalog()
ARM = [entry for entry in CATALOG.lines if entry.lock_for("linux/arm64").is_file()]
# Of the tags of wheels (PEP 425) and of Python's own build.
OF_ANOTHER = re.compile(r"x86_64|amd64|i686|win|macosx")


def plan_of(**words) -> Plan:
    return resolve(make_request(**{"framework": "pytorch", "cuda": "cu130", "version": "2.13.0", **words}), CATALOG)


def test_the_default_is_amd64():
    plain = plan_of()
    assert plan_of(platform="linux/amd64").as_json() == plain.as_json()
    assert plain.platform == "linux/amd64"
    assert PLATFORM_LABEL not in plain.labels


def test_the_platform_is_in_plan_id_tag_and_label():
    plan, plain = plan_of(platform="linux/arm64"), plan_of()
    assert plan.platform == "linux/arm64"
    assert plan.labels[PLATFORM_LABEL] == "linux/arm64"
    assert plan.id != plain.id
    assert plan.tags[0] == f"{plain.tags[0]}-arm64"
    assert any("unproven" in notice and "arm64" in notice for notice in plan.notices)
    assert plan_of(platform="arm64").id == plan.id


@pytest.mark.parametrize("entry", ARM, ids=lambda entry: entry.name)
def test_every_file_of_such_a_lock_is_for_that_processor(entry):
    added = ",".join(entry.line.options)
    line = {"version": entry.line.version, "cuda": entry.line.cuda, "python": entry.line.python}
    plan = plan_of(platform="linux/arm64", with_=added, **line)
    wheels = (s for component in plan.components for s in component.sources if s.package or s.file.endswith(".whl"))
    files = [source.file for source in wheels]
    files += [package.file for package in tools_lock(plan.python, plan.platform).packages]
    assert not [file for file in files if OF_ANOTHER.search(file)]
    torch = next(s for s in plan.component("pytorch").sources if s.file.startswith("torch-"))
    assert "aarch64" in torch.file
    # torch for aarch64 without CUDA has 100 MB in the index, with CUDA more than four times as much.
    assert "+cpu" in torch.file if entry.line.cuda == "cpu" else torch.size > 300_000_000
    assert stale(entry, "linux/arm64") == []
    assert stale_tools(load_tools(), plan.python, "linux/arm64") == []


def test_a_request_for_it_alone_takes_a_line_that_has_it():
    plan = resolve(make_request(framework="pytorch", platform="linux/arm64"), CATALOG)
    assert (plan.platform, plan.version) == ("linux/arm64", max(e.line.version for e in ARM))


def test_the_wheels_of_torch_are_no_reason_for_another_framework():
    with pytest.raises(Conflict) as refused:
        plan_of(framework="tensorflow", version=None, cuda="cu129", platform="linux/arm64")
    rows = {row["constraint"]: row["evidence"] for row in refused.value.details["rows"]}
    known = rows["tensorflow 2.21.0 with cu129 has no lock for linux/arm64"]
    assert known == "no line of tensorflow was resolved for another processor"


@pytest.mark.parametrize(
    "words", [{"cuda": "cu124", "version": "2.6.0"}, {"cuda": "cu113", "version": "1.10.2"}, {"base": "dlc"}]
)
def test_a_line_without_such_a_lock_is_a_conflict_that_offers_one(words):
    with pytest.raises(Conflict) as refused:
        plan_of(platform="linux/arm64", **words)
    assert any("linux/a" in row["constraint"] for row in refused.value.details["rows"])
    offers = [row["command"] for row in refused.value.details["offers"]]
    assert offers
    assert any("--platform linux/arm64" in command for command in offers)


def test_what_no_line_has_is_not_tried_on_it():
    with pytest.raises(Conflict):
        plan_of(version="2.99.0", allow_unproven=True, platform="linux/arm64")


def test_an_unknown_platform_is_an_error():
    with pytest.raises(RequestError, match="linux/arm65"):
        plan_of(platform="linux/arm65")


def test_its_dockerfile_is_the_same_but_for_its_labels():
    arm, amd = (instructions(render_dockerfile(plan_of(platform=p), CATALOG)) for p in ("linux/arm64", "linux/amd64"))
    assert [a for a, b in zip(arm, amd, strict=True) if a != b and not a.startswith("LABEL")] == []
    assert "docker build --platform linux/arm64 ." in render_dockerfile(plan_of(platform="linux/arm64"), CATALOG)


def test_a_mark_of_a_requirement_is_for_the_image_s_processor():
    lines = ["a==1; platform_machine == 'aarch64'", "b==1; platform_machine == 'x86_64'"]
    assert required_pins(lines, "3.13", "aarch64") == {"a": "1"}
    assert required_pins(lines, "3.13") == {"b": "1"}


@pytest.mark.parametrize(
    ("machine", "platform", "fits"),
    [
        ("x86_64", "linux/amd64", True),
        ("x86_64", "linux/arm64", False),
        ("aarch64", "linux/arm64", True),
        ("aarch64", "linux/amd64", False),
        ("riscv64", "linux/amd64", False),
        ("", "linux/arm64", True),
    ],
)
def test_an_engine_of_another_processor_is_refused_at_once(machine, platform, fits):
    engine = Engine(Client("docker", "builtin", "20.10", "plain"), "20.10", processor=machine)
    if fits:
        check_engine(engine, platform)
        return
    with pytest.raises(EngineError) as refused:
        check_engine(engine, platform)
    assert refused.value.exit_code == 4
    assert machine in refused.value.message


@pytest.mark.parametrize(("processor", "fits"), [("aarch64", True), ("x86_64", True), ("riscv64", False)])
def test_a_base_for_arm_is_made_on_arm_or_where_mmdebstrap_can(monkeypatch, processor, fits):
    monkeypatch.setattr(platforms.platform, "system", lambda: "Linux")
    monkeypatch.setattr(platforms.platform, "machine", lambda: processor)
    if fits:
        platforms.check_machine("linux/arm64")
        return
    with pytest.raises(EngineError, match=processor):
        platforms.check_machine("linux/arm64")


@pytest.mark.parametrize(("said", "platform"), [("aarch64", "linux/arm64"), ("arm64", "linux/arm64"), ("sparc", None)])
def test_a_machine_s_name_says_its_platform(said, platform):
    assert here(said) == platform


@pytest.mark.parametrize(
    ("instance", "platform", "fits"),
    [
        ("ml.p6e-gb200.36xlarge", "linux/arm64", True),
        ("ml.p6e-gb200.36xlarge", "linux/amd64", False),
        ("ml.p5.48xlarge", "linux/arm64", False),
        ("ml.p5.48xlarge", "linux/amd64", True),
    ],
)
def test_a_job_on_another_processor_is_found(instance, platform, fits):
    job = Job(instance_type=instance, instance_count=1, entry_point="train.py")
    found = check(Subject(job, facts_of_plan(plan_of(platform=platform))))
    assert (not [each for each in found if each.code == "TW248"]) == fits
