"""``--for``: where the jobs of an image run decides what starts them, and the default image stays what it is."""

from __future__ import annotations

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import Conflict, RequestError
from trainwright.plan.dockerfile import instructions, steps
from trainwright.plan.plan import FOR_LABEL, Plan
from trainwright.plan.project import Project, project_text
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()


def plan_of(**words) -> Plan:
    return resolve(make_request(**{"framework": "pytorch", "cuda": "cpu", **words}), CATALOG)


def names(plan: Plan) -> set[str]:
    return {component.name for component in plan.components}


def test_the_default_is_sagemaker():
    plain = plan_of()
    assert plan_of(for_="sagemaker").as_json() == plain.as_json()
    assert plain.destination == "sagemaker"
    assert FOR_LABEL not in plain.labels
    assert "cluster" not in names(plain)


@pytest.mark.parametrize("place", ["hyperpod", "ec2"])
def test_the_place_is_in_plan_id_tag_and_label(place):
    plan, plain = plan_of(for_=place), plan_of()
    assert plan.destination == place
    assert plan.labels[FOR_LABEL] == place
    assert plan.tags[0] == f"{plain.tags[0]}-{place}"
    assert len({plan.id, plain.id, plan_of(for_="ec2" if place == "hyperpod" else "hyperpod").id}) == 3


@pytest.mark.parametrize(("cuda", "version"), [("cu117", "1.13.1"), ("cu130", "2.13.0"), ("cpu", "2.13.0")])
def test_nothing_of_sagemaker_is_in_it(cuda, version):
    # What AWS's Dockerfile of 1.13 has in its stage `sagemaker`, and not in `ec2`.
    of_sagemaker = {"sagemaker-toolkit", "smdistributed-dataparallel", "smdistributed-modelparallel", "boost"}
    plan, plain = plan_of(cuda=cuda, version=version, for_="ec2"), plan_of(cuda=cuda, version=version)
    assert names(plain) - names(plan) == of_sagemaker & names(plain)
    assert names(plan) - names(plain) == {"cluster"}
    assert not [name for name in plan.environment if name.startswith("SAGEMAKER")]
    assert not any((source.package or "").startswith("sagemaker") for c in plan.components for source in c.sources)


def final(plan: Plan) -> list[str]:
    return [step.instruction for step in steps(render_dockerfile(plan, CATALOG)) if step.stage in ("packages", "final")]


@pytest.mark.parametrize(
    ("cuda", "version", "entry"), [("cu117", "1.13.1", "/usr/local/bin/cuda-compat"), ("cpu", "2.13.0", None)]
)
def test_a_job_s_command_is_the_first_process(cuda, version, entry):
    made = instructions(render_dockerfile(plan_of(cuda=cuda, version=version, for_="ec2"), CATALOG))
    started = [each for each in made if each.startswith("ENTRYPOINT")]
    # NVIDIA's images have a driver of their own, about which a program must decide; it then becomes the command.
    assert started == ([f'ENTRYPOINT ["{entry}"]'] if entry else [])
    assert 'CMD ["bash"]' in made


def test_code_in_the_image_is_there_without_the_toolkit_s_variables(tmp_path):
    (tmp_path / "train.py").touch()
    plan = plan_of(for_="hyperpod", code=str(tmp_path), entry_point="train.py")
    assert plan.labels["io.trainwright.entry-point"] == "train.py"
    assert not [name for name in plan.environment if name.startswith("SAGEMAKER")]
    assert any("/out/" in step and "user-code" in step for step in final(plan))
    # No toolkit, so none that ignores a source_dir.
    assert not [notice for notice in plan.notices if "source_dir" in notice]
    ours = plan_of(code=str(tmp_path), entry_point="train.py")
    assert [notice for notice in ours.notices if "source_dir" in notice]


@pytest.mark.parametrize(
    ("component", "cuda", "version"),
    [("sagemaker-toolkit", "cpu", "2.13.0"), ("smdistributed-dataparallel", "cu117", "1.13.1")],
)
def test_what_is_sagemaker_s_is_refused_elsewhere(component, cuda, version):
    with pytest.raises(Conflict) as refused:
        plan_of(cuda=cuda, version=version, for_="ec2", with_=component)
    assert component in refused.value.message
    offered = [row["command"] for row in refused.value.details["offers"]]
    assert offered
    assert all(("--for ec2" in command) != (f"--with {component}" in command) for command in offered)


def test_a_container_of_sagemaker_is_for_sagemaker():
    with pytest.raises(Conflict) as refused:
        plan_of(cuda=None, version="2.13.0", base="dlc", for_="ec2")
    assert any("-sagemaker" in row["constraint"] for row in refused.value.details["rows"])


@pytest.mark.parametrize("words", [{"with_": "cluster"}, {"without": "metis,cluster"}])
def test_the_component_comes_with_the_flag_alone(words):
    with pytest.raises(RequestError, match="comes with --for"):
        plan_of(**words)


def test_an_unknown_place_is_an_error_that_lists_the_known():
    with pytest.raises(RequestError) as refused:
        plan_of(for_="hyperpods")
    assert "Did you mean hyperpod" in refused.value.message
    assert all(word in str(refused.value.remedy) for word in ("sagemaker", "hyperpod", "ec2"))


def test_a_project_has_the_place():
    assert Project(framework="pytorch", for_="ec2").words()["for_"] == "ec2"
    assert 'for = "ec2"' in project_text({"framework": "pytorch", "for": "ec2"})
    assert make_request(framework="pytorch", for_="ec2").flags() == "--framework pytorch --for ec2"
