"""Checks of a job as a whole: whatever it says, and with the files that it is of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.estimator_jobs import IMAGE, ON, ROLE, ROOT, facts, subject
from tests.support.examples import some
from trainwright.core.errors import RequestError
from trainwright.estimator import rules_distribution
from trainwright.estimator.check import check
from trainwright.estimator.estimate import estimate, read_words
from trainwright.estimator.estimate_text import estimator_text
from trainwright.estimator.figures import figures
from trainwright.estimator.subject import Subject
from trainwright.sagemaker.distribution import STRATEGIES
from trainwright.sagemaker.job import Job


def test_what_only_rehearse_refuses_is_found(monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise RequestError("no such thing")

    monkeypatch.setattr("trainwright.estimator.check.compile_distribution", refuse)
    job = Job(image=IMAGE, role=ROLE, instance_type="ml.g5.xlarge", entry_point="train.py")
    found = check(Subject(job, facts(), folder=Path(ROOT, "examples", "ddp")))
    assert [(each.code, each.severity) for each in found] == [(rules_distribution.REFUSED.code, "error")]


def test_a_key_for_the_models_needs_no_bucket_while_a_job_is_only_checked(tmp_path):
    job = Job(image="training:1", output_kms_key="alias/models", instance_type="ml.g5.2xlarge")
    assert "TW290" not in {finding.code for finding in check(Subject(job, facts(), 2, tmp_path, False))}


tables = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 20) | st.text("abc-x =\"'", max_size=8) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*STRATEGIES, "enabled", "processes_per_host", "custom_mpi_options", "modelparallel"])
            | st.sampled_from(["dataparallel", "parameters", "microbatches", "pipeline_parallel_degree", "partitions"])
            | st.text("ab", min_size=1, max_size=2)
            | st.integers(0, 2)
            | st.booleans(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None, max_examples=some(300))  # the first call reads the model of the API
@given(
    distribution=st.dictionaries(st.sampled_from([*STRATEGIES, "torchxla"]), tables, max_size=4),
    sdk=st.sampled_from([2, 3]),
    kind=st.sampled_from(["ml.p4d.24xlarge", "ml.trn1.32xlarge", "ml.m5.xlarge", "ml.nothing"]),
)
def test_no_distribution_breaks_the_check(distribution, sdk, kind):
    made = subject(sdk=sdk, instance_type=kind, distribution=distribution)
    for each in check(made):
        assert each.message
    assert figures(made).hosts == 1


@pytest.mark.parametrize("sdk", [2, 3])
@pytest.mark.parametrize(
    "distribution",
    [
        {"mpi": {**ON, "custom_mpi_options": 5}},
        {"mpi": {**ON, "custom_mpi_options": "-x 'A=b"}},
        {"mpi": {**ON, "processes_per_host": "8"}},
        {"torch_distributed": ON, "smdistributed": 5},
        {"torch_distributed": ON, "smdistributed": {"modelparallel": 5}},
        {"torch_distributed": ON, "smdistributed": {"modelparallel": {**ON, "parameters": [1]}}},
        {"mpi": ON, "instance_groups": "gpu"},
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error(distribution, sdk):
    found = check(subject(sdk=sdk, instance_count=2, distribution=distribution))
    assert any(each.severity == "error" and each.path.startswith("distribution") for each in found)


def test_flags_override_the_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        "image: a\nplan: {framework: pytorch, cuda: cu124, python: '3.11'}\nhyperparameters: {lr: 1, epochs: 3}\n"
        "instance_groups: [{name: g, instance_type: ml.m5.xlarge, instance_count: 2}]\nsource_dir: src\n"
    )
    words = {
        "image": "b",
        "plan": {"cuda": "cu121"},
        "hyperparameters": {"lr": 2},
        "instance_type": "ml.g5.xlarge",
        "entry_point": "train.py",
        "spot": False,
        "role": None,
    }
    job, folder = read_words(str(path), words)
    assert folder == tmp_path
    assert (job.image, job.instance_type, job.instance_groups) == ("b", "ml.g5.xlarge", ())
    assert job.hyperparameters == {"lr": 2, "epochs": 3}
    assert job.plan is not None
    assert (job.plan.framework, job.plan.cuda, job.plan.python) == ("pytorch", "cu121", "3.11")
    assert (job.source_dir, job.entry_point) == ("src", "train.py")
    assert read_words(str(path), {"plan": {"framework": "tensorflow"}})[0].plan.cuda is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, {}),
        ({"image": IMAGE}, {"sdk": 4}),
        ({"image": IMAGE}, {"form": "yaml"}),
        ({"image": IMAGE}, {"sdk": 3, "form": "cli"}),
    ],
)
def test_words_that_mean_nothing_are_refused(given, options):
    with pytest.raises(RequestError) as refused:
        estimate(Job(**given), Path(), look=lambda _: None, **options)
    assert refused.value.exit_code == 2


def test_warnings_count_under_strict():
    job = Job(image=IMAGE, instance_type="ml.p4d.24xlarge", entry_point="train.py")
    here = Path(ROOT, "examples", "ddp")
    assert estimate(job, here, check_only=True, look=lambda _: facts()).exit_code == 0
    strict = estimate(job, here, check_only=True, strict=True, look=lambda _: facts())
    assert (strict.exit_code, strict.generated) == (1, {})
    assert "TW275" in estimator_text(strict)


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*/job.yaml")), ids=lambda path: path.parent.name)
def test_the_examples_have_no_errors_and_no_warnings(path):
    job, folder = read_words(str(path), {})
    found = estimate(job, folder, form="hyperparameters", strict=True)
    assert found.exit_code == 0, found.findings
    assert found.generated


def test_every_example_has_a_job():
    assert {path.parent for path in ROOT.glob("examples/*/train.py")} == {
        path.parent for path in ROOT.glob("examples/*/job.yaml")
    }


def test_parameters_of_the_model_parallel_library_may_lie_in_a_file(tmp_path):
    (tmp_path / "smp.json").write_text('{"pipeline_parallel_degree": 2, "microbatches": 4}')
    mpi = {"enabled": True, "processes_per_host": 8}
    distribution = {"smdistributed": {"modelparallel": {**ON, "parameters": "smp.json"}}, "mpi": mpi}
    job = Job(image=IMAGE, instance_type="ml.p3.16xlarge", entry_point="smp.json", distribution=distribution)
    made = estimate(job, tmp_path, form="hyperparameters", look=lambda _: facts())
    assert made.exit_code == 0, made.findings
    parameters = made.generated["job"]["mp_parameters"]
    assert json.loads(parameters) == {"pipeline_parallel_degree": 2, "microbatches": 4}
    (tmp_path / "smp.json").unlink()
    with pytest.raises(RequestError):
        estimate(job, tmp_path, check_only=True, look=lambda _: facts())
