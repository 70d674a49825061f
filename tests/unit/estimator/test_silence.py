"""Findings that a job file accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.estimator_jobs import IMAGE, ON, ROLE, ROOT, facts
from trainwright.core.records import read_record
from trainwright.estimator.estimate import EstimatorDocument, estimate, read_words
from trainwright.estimator.estimate_text import estimator_text
from trainwright.sagemaker.job import Job

ALONE = "the script starts its own processes"


def checked(silence: dict[str, str], **changes: Any) -> EstimatorDocument:
    given = {"image": IMAGE, "instance_type": "ml.p4d.24xlarge", "entry_point": "train.py", "silence": silence}
    job = read_record(Job, {**given, **changes})
    return estimate(job, Path(ROOT, "examples", "ddp"), check_only=True, strict=True, look=lambda _: facts())


def test_an_accepted_finding_does_not_count_and_is_told():
    assert checked({}).exit_code == 1
    made = checked({"TW275": ALONE})
    assert (made.exit_code, made.warnings) == (0, 0)
    assert [(each.code, each.path, each.reason) for each in made.silenced] == [("TW275", "distribution", ALONE)]
    assert f"distribution: silenced TW275: {ALONE}" in estimator_text(made).splitlines()


def test_only_the_code_that_is_named_is_accepted():
    made = checked({"TW275": ALONE}, spot=True)
    assert [each.code for each in made.findings] == ["TW269"]


def test_an_error_may_be_accepted():
    off = {"torch_distributed": {}}
    assert {each.code for each in checked({}, distribution=off).findings} == {"TW203", "TW275"}
    assert checked({"TW203": ALONE, "TW275": ALONE}, distribution=off).exit_code == 0


@pytest.mark.parametrize(
    ("silence", "code", "message"),
    [
        ({"TW276": ALONE}, "TW289", "no TW276"),
        ({"TW2755": ALONE}, "TW288", "TW275"),  # did you mean
        ({"TW100": ALONE}, "TW288", "unknown code"),
        ({"TW275": " "}, "TW288", "no reason"),
    ],
)
def test_a_stale_or_wrong_silence_is_a_finding(silence, code, message):
    made = checked(silence, **({} if "TW275" in silence else {"distribution": {"torch_distributed": ON}}))
    (finding,) = [each for each in made.findings if each.code != "TW275"]
    assert (finding.code, finding.path) == (code, f"silence.{next(iter(silence))}")
    assert message in finding.message
    assert made.exit_code == 1


def test_a_silence_without_a_reason_hides_nothing():
    assert {each.code for each in checked({"TW275": ""}).findings} == {"TW275", "TW288"}


# RFC 8259, section 6: "Numeric values that cannot be represented in the grammar below (such as Infinity and NaN) are
# not permitted"; YAML 1.1 reads a date without quotes as a timestamp.
@pytest.mark.parametrize("value", ["2026-11-21", ".nan", "[1, .inf]"])
def test_a_value_of_a_file_that_json_does_not_have_is_found_and_may_be_accepted(tmp_path, value):
    (tmp_path / "job.yaml").write_text(f"image: {IMAGE}\nrole: {ROLE}\nhyperparameters: {{since: {value}}}\n")
    job, _ = read_words(str(tmp_path / "job.yaml"), {"instance_type": "ml.g5.xlarge"})
    baked = facts(entry_point="train.py")
    found = estimate(job, tmp_path, look=lambda _: baked)
    assert [(each.code, each.path) for each in found.findings] == [("TW278", "hyperparameters.since")]
    quoted = estimate(job.replace(silence={"TW278": ALONE}), tmp_path, form="request", look=lambda _: baked)
    assert not quoted.findings
    assert json.loads(quoted.generated["job"]["HyperParameters"]["since"]) in ("2026-11-21", None, [1, None])
