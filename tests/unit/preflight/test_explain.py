"""``preflight --explain``, and the page of rules with examples."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from devtools.rule_examples import fix, in_yaml, rule_examples
from tests.support.in_process import call
from tests.support.job_corpus import Pair
from trainwright.estimator.check import CODES as OF_JOBS
from trainwright.preflight.explain import examples
from trainwright.preflight.preflight import CODES

ROOT = Path(__file__).resolve().parents[3]


def test_an_example_is_the_difference_of_two_scripts():
    wrong = "def f():\n    a\n    b\n    save()\n    c\n    d\n    e\n    g\n    h\n    i\n"
    right = wrong.replace("    save()\n", "    if rank == 0:\n        save()\n").replace("    i\n", "")
    assert fix(wrong, right) == " a\n b\n-save()\n+if rank == 0:\n+    save()\n c\n d\n…\n g\n h\n-i"


def test_an_example_of_a_job_is_the_difference_of_two_job_files():
    """With the keys that change or are shown, the flags, and what is beside the file."""
    shared = {"image": "a", "role": "b", "labels": {"cuda": "12.4"}}
    wrong = {**shared, "files": {"src/train.py": "x\ny\n"}, "tuner": {"metric": "loss", "ranges": {"lr": {"min": 1}}}}
    right = {**shared, "spot": True, "tuner": {"metric": "loss", "ranges": {"lr": {"min": 2}}}}
    text = in_yaml(Pair("TW200", wrong, right, ("image", "labels", "files", "tuner", "spot"), {"sdk": 3}))
    assert text.split("\n") == [
        " # --sdk 3",
        " image: a",
        " # the image's label io.trainwright.cuda: 12.4",
        "-# src/train.py: x",
        "-# src/train.py: y",
        " tuner:",
        "   metric: loss",
        "   ranges:",
        "-    lr: {min: 1}",
        "+    lr: {min: 2}",
        "+spot: true",
    ]


def test_examples_apply_to_their_rules():
    made = rule_examples()
    assert made == examples()
    assert set(CODES) <= set(made) <= set(CODES) | set(OF_JOBS)
    assert "-        dist.barrier()" in made["TW128"] or "-    dist.barrier()" in made["TW128"]
    for code, text in made.items():
        assert {row[:1] for row in text.split("\n")} <= {" ", "-", "+", "…", ""}, code
        of_job = code in OF_JOBS or text.startswith(" # train.py: ")
        assert (0 if of_job else 2) <= text.count("\n") < (12 if of_job else 40), code


@pytest.mark.parametrize(("name", "rules"), [("rules.md", CODES), ("job-rules.md", OF_JOBS)])
def test_the_page_has_a_section_for_each_rule(name, rules):
    page = (ROOT / "docs" / name).read_text()
    listed = (ROOT / "docs" / "findings.md").read_text()
    for rule in rules.values():
        assert f"[{rule.code}]({name}#{rule.code.lower()})" in listed
        section = page.partition(f"\n## {rule.code}\n")[2].partition("\n## ")[0]
        assert rule.remedy in section and rule.source in section, rule.code
        assert ("```diff" in section) == (rule.code in examples())


def test_a_mistake_beside_the_script_is_a_difference_of_jobs():
    """With the line that it is about, and what the job's image or requirements.txt have to do with it."""
    made = rule_examples()
    assert made["TW500"].split("\n") == [
        ' # train.py: device = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
        "-instance_type: ml.trn1.2xlarge",
        "+instance_type: ml.g5.2xlarge",
    ]
    assert "\n-# requirements.txt: torch==2.6.0\n" in made["TW199"] and "\n   cuda: cu128\n" in made["TW199"]


def test_the_verb_explains_a_rule(tmp_path):
    done = call("preflight", "--explain", "tw128", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("TW128 error: ") and "fix: " in done.stdout and "-    " in done.stdout
    assert "# trainwright: ignore[TW128]" in done.stdout
    told = json.loads(call("preflight", "--explain", "TW128", "--json").stdout)
    schema = json.loads((ROOT / "trainwright" / "schemas" / "rule.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(told)
    assert told["example"] == examples()["TW128"]


def test_a_rule_of_scripts_is_silenced_in_the_script():
    done = call("preflight", "--explain", "TW462")
    assert done.returncode == 0 and "silence: # trainwright: ignore[TW462] the reason" in done.stdout


def test_rules_of_job_files_are_explained_as_well():
    done = call("preflight", "--explain", "TW230")
    assert done.returncode == 0 and 'silence: {TW230: "the reason"}' in done.stdout
    assert "    -  mpi: {enabled: true, processes_per_host: 16}\n" in done.stdout


@pytest.mark.parametrize(("code", "near"), [("TW1210", "TW121"), ("128", "TW128"), ("T\x1bW", "control character")])
def test_an_unknown_rule_is_refused_with_the_nearest(code, near):
    done = call("preflight", "--explain", code)
    assert done.returncode == 2 and near in done.stderr
