"""``preflight --explain``, and the page of rules with examples."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from devtools.rule_examples import fix, rule_examples
from tests.support.in_process import call
from trainwright.preflight.explain import examples
from trainwright.preflight.preflight import CODES

ROOT = Path(__file__).resolve().parents[3]


def test_an_example_is_the_difference_of_two_scripts():
    wrong = "def f():\n    a\n    b\n    save()\n    c\n    d\n    e\n    g\n    h\n    i\n"
    right = wrong.replace("    save()\n", "    if rank == 0:\n        save()\n").replace("    i\n", "")
    assert fix(wrong, right) == " a\n b\n-save()\n+if rank == 0:\n+    save()\n c\n d\n…\n g\n h\n-i"


def test_examples_apply_to_their_rules():
    made = rule_examples()
    assert made == examples()
    assert set(made) <= set(CODES) and len(made) > 85
    assert "-        dist.barrier()" in made["TW128"] or "-    dist.barrier()" in made["TW128"]
    for code, text in made.items():
        assert {row[:1] for row in text.split("\n")} <= {" ", "-", "+", "…", ""}, code
        assert 2 <= text.count("\n") < 40, code


def test_the_page_has_a_section_for_each_rule():
    page = (ROOT / "docs" / "rules.md").read_text()
    for rule in CODES.values():
        section = page.partition(f"\n## {rule.code}\n")[2].partition("\n## ")[0]
        assert rule.remedy in section and rule.source in section, rule.code
        assert ("```diff" in section) == (rule.code in examples())


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


@pytest.mark.parametrize(("code", "near"), [("TW1210", "TW121"), ("128", "TW128"), ("T\x1bW", "control character")])
def test_an_unknown_rule_is_refused_with_the_nearest(code, near):
    done = call("preflight", "--explain", code)
    assert done.returncode == 2 and near in done.stderr
