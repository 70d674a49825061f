"""The verb ``estimator``, as a user runs it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest

from tests.support.documents import validated
from tests.support.estimator_jobs import IMAGE, ROOT
from tests.support.in_process import call
from trainwright.estimator.service_limits import violations

JOB = """\
plan: {framework: pytorch, cuda: cu124}
entry_point: train.py
source_dir: src
instance_type: ml.p3.16xlarge
instance_count: 2
role: arn:aws:iam::123456789012:role/training
distribution: {torch_distributed: {enabled: true}}
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return call("estimator", *words, cwd=folder)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def test_a_plan_is_checked_without_image_and_engine(place):
    done = run(place, "--job", "job.yaml", "--check-only", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    schema = json.loads((ROOT / "trainwright/schemas/estimator.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(told)
    assert told["image"]["origin"] == "plan"
    assert told["figures"]["processes"] == 16
    assert told["generated"] == {}


def test_errors_end_with_1_and_nothing_is_generated(place):
    wrong = JOB.replace("torch_distributed: {enabled: true}", "mpi: {enabled: true, process_per_host: 8}")
    (place / "job.yaml").write_text(wrong)
    done = run(place, "--job", "job.yaml", "--image", IMAGE, "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert [each["code"] for each in told["findings"] if each["severity"] == "error"] == ["TW200"]
    assert told["generated"] == {}
    # Nor is anything written into a file: `> start.py` stays empty, --output makes none.
    done = run(place, "--job", "job.yaml", "--image", IMAGE)
    assert (done.returncode, done.stdout) == (1, "")
    assert "TW200" in done.stderr
    done = run(place, "--job", "job.yaml", "--image", IMAGE, "--output", "start.py")
    assert done.returncode == 1
    assert not (place / "start.py").exists()


def test_what_is_generated_has_standard_output_for_itself(place):
    done = run(place, "--job", "job.yaml", "--image", IMAGE)
    assert done.returncode == 0, done.stderr
    ast.parse(done.stdout)
    assert "0 errors" in done.stderr
    (place / "request.json").unlink(missing_ok=True)
    done = run(place, "--job", "job.yaml", "--image", IMAGE, "--format", "request", "--output", "request.json")
    assert done.returncode == 0, done.stderr
    assert violations(json.loads((place / "request.json").read_text())) == []


def test_an_unknown_key_of_the_file_is_refused_with_the_nearest(place):
    (place / "job.yaml").write_text(JOB + "instance_typ: x\n")
    done = run(place, "--job", "job.yaml", "--json")
    assert done.returncode == 2
    assert "instance_type" in json.loads(done.stdout)["message"]


MISSPELT = JOB.replace("torch_distributed: {enabled: true}", "mpi: {enabled: true, process_per_host: 8}")


def test_an_empty_address_of_an_image_is_refused_with_its_key(place):
    (place / "job.yaml").write_text('image: ""\nentry_point: train.py\ninstance_type: ml.g5.2xlarge\n')
    told = run(place, "--job", "job.yaml", "--check-only")
    assert told.returncode == 2
    assert "image" in told.stderr


def test_findings_in_the_formats_of_preflight(place):
    (place / "job.yaml").write_text(MISSPELT)
    done = run(place, "--job", "job.yaml", "--check-only", "--findings", "sarif")
    assert done.returncode == 1
    (log,) = json.loads(done.stdout)["runs"]
    (result,) = [each for each in log["results"] if each["ruleId"] == "TW200"]
    place_of_it = result["locations"][0]["physicalLocation"]
    assert (place_of_it["artifactLocation"]["uri"], place_of_it["region"]["startLine"]) == ("job.yaml", 7)
    assert result["message"]["text"].startswith("distribution.mpi.process_per_host: unknown key")
    assert log["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "TW200"
    done = run(place, "--job", "job.yaml", "--check-only", "--findings", "github")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        "::error title=TW200,file=job.yaml,line=7::distribution.mpi.process_per_host: unknown key"
    )
    assert lines[-1].startswith("estimator: 1 error, ")
    done = run(place, "--job", "job.yaml", "--check-only", "--findings", "xml")
    assert done.returncode == 2
    assert "--format xml: unknown format" in done.stderr


def test_a_baseline_accepts_findings_until_they_are_gone(place):
    (place / "job.yaml").write_text(MISSPELT)
    done = run(place, "--job", "job.yaml", "--check-only", "--baseline", "known.json", "--write-baseline")
    assert done.returncode == 0, done.stdout
    done = run(place, "--job", "job.yaml", "--check-only", "--baseline", "known.json")
    assert done.returncode == 0
    assert "TW200" not in done.stdout
    assert " known" in done.stdout.splitlines()[-1]
    # Another mistake of the same rule is new.
    (place / "job.yaml").write_text(MISSPELT.replace("process_per_host: 8", "process_per_host: 8, option: x"))
    done = run(place, "--job", "job.yaml", "--check-only", "--baseline", "known.json", "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert [each["path"] for each in told["findings"] if each["code"] == "TW200"] == ["distribution.mpi.option"]
    assert "TW200" in {each["code"] for each in told["known"]}
    (place / "job.yaml").write_text(JOB)
    done = run(place, "--job", "job.yaml", "--check-only", "--baseline", "known.json")
    assert "job.yaml: no longer there: TW200: distribution.mpi.process_per_host" in done.stdout
    assert run(place, "--job", "job.yaml", "--write-baseline").returncode == 2


@pytest.mark.parametrize(("form", "begins"), [("pytorchjob", "# "), ("hyperpod", "# "), ("slurm", "#!/bin/bash\n")])
def test_a_cluster_starts_the_same_job_file(place, form, begins):
    done = run(place, "--job", "job.yaml", "--image", IMAGE, "--format", form)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(begins)
    assert "# Not carried over: role: " in done.stdout
    assert re.search(r"^job.yaml:\d+: note TW302: role: not carried over", done.stderr, re.M)
    done = run(place, "--job", "job.yaml", "--image", IMAGE, "--format", form, "--json")
    told = validated(done.stdout)
    assert (told["format"], told["generated"]["job"].startswith(begins)) == (form, True)


def test_what_is_about_sagemaker_does_not_go_with_a_cluster(place):
    for words in (("--sdk", "3"), ("--compare",)):
        done = run(place, "--job", "job.yaml", "--image", IMAGE, "--format", "slurm", *words)
        assert done.returncode == 2
        assert " ".join(words) in done.stderr
    (place / "job.yaml").write_text(MISSPELT.replace("process_per_host", "processes_per_host"))
    done = run(place, "--job", "job.yaml", "--image", IMAGE, "--format", "pytorchjob")
    assert (done.returncode, done.stdout) == (1, "")
    assert "job.yaml:7: error TW300: distribution" in done.stderr


@pytest.mark.parametrize(("form", "more"), [("pytorchjob", set()), ("hyperpod", {"TW308"}), ("slurm", set())])
def test_what_is_only_checked_is_checked_for_the_format(place, form, more):
    words = ("--job", "job.yaml", "--image", IMAGE, "--format", form, "--json")
    whole, checked = (validated(run(place, *words, *only).stdout) for only in ((), ("--check-only",)))
    assert (checked["format"], checked["generated"]) == (None, {})
    assert checked["findings"] == whole["findings"]
    assert {"TW302", "TW307"} | more <= {each["code"] for each in checked["findings"]}
    done = run(place, "--job", "job.yaml", "--check-only", "--format", form, "--sdk", "3")
    assert (done.returncode, "--sdk 3" in done.stderr) == (2, True)
