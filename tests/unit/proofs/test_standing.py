"""Whether a line is proven today: by a proof of its plan, by one of a twin; not by one of another plan."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.in_process import call
from tests.support.proofs import line_of, proof_of
from trainwright.catalog.catalog import open_catalog
from trainwright.catalog.listing import NEVER
from trainwright.core.errors import RequestError
from trainwright.plan.of_line import plan_of
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.proofs import standing as judging
from trainwright.proofs.home import save
from trainwright.proofs.proof import LineProof
from trainwright.proofs.standing import judge, of_lines, of_plan

pytestmark = pytest.mark.usefixtures("own_places")
OTHER = "0" * 64


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of proofs of this test."""
    for module in ("places", "home"):
        monkeypatch.setattr(f"trainwright.proofs.{module}.roots", lambda: [tmp_path / "proofs"])
    return tmp_path / "proofs"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "proven"),
        ({"outcome": "failed"}, "failed"),
        ({"plan": OTHER}, "stale"),
        ({"plan": OTHER, "outcome": "failed"}, "stale"),
        ({"plan": OTHER, "stands_for": "{plan}"}, "twin"),
        ({"stands_for": OTHER}, "stale"),
    ],
)
def test_a_proof_is_of_a_plan_or_stale(changes, state):
    proof: LineProof = proof_of().replace(date="2026-11-23T10:00:00+00:00")
    plan = proof.plan
    proof = proof.replace(**{key: value.format(plan=plan) for key, value in changes.items()})
    assert judge(proof, plan).state == state
    assert judge(proof, plan).date == "2026-11-23"
    save(proof)
    catalog = open_catalog()
    entry = line_of("pytorch/cpu", catalog)
    assert of_lines(catalog.lines, catalog) == {entry.path: judge(proof, plan)}
    assert of_plan(plan_of(entry, catalog)) == judge(proof, plan)


def test_a_plan_that_is_no_line_s_is_not_proven_by_that_line():
    save(proof_of())
    catalog = open_catalog()
    without = resolve(make_request(framework="pytorch", cuda="cpu", without="metis"), catalog)
    assert of_plan(without) == NEVER
    other = resolve(make_request(framework="pytorch", cuda="cu124"), catalog)
    assert of_plan(other) == NEVER


def test_a_plan_for_another_processor_is_not_stale():
    """No proof is of an image for linux/arm64, so none is stale (docs/images.md: "Unproven")."""
    save(proof_of("pytorch/cu130").replace(plan=OTHER))
    for platform, state in (("linux/amd64", "stale"), ("linux/arm64", "never")):
        plan = resolve(make_request(request="pytorch:2.13.0-cu130", platform=platform), open_catalog())
        assert of_plan(plan).state == state


def test_what_was_found_is_kept_until_a_file_changes(monkeypatch, folder):
    path = save(proof_of())
    catalog = open_catalog()
    first = of_lines(catalog.lines, catalog)
    monkeypatch.setattr(judging, "_judged", lambda *_: pytest.fail("a plan was made again"))
    assert of_lines(catalog.lines, catalog) == first
    os.utime(path, ns=(1, 1))
    with pytest.raises(pytest.fail.Exception):
        of_lines(catalog.lines, catalog)


def test_an_edited_proof_is_an_error_of_list_and_plan():
    path = save(proof_of())
    path.write_text(path.read_text().replace('"gpu": false', '"gpu": true'))
    catalog = open_catalog()
    with pytest.raises(RequestError, match="was edited"):
        of_lines(catalog.lines, catalog)
    with pytest.raises(RequestError, match="was edited"):
        of_plan(plan_of(line_of("pytorch/cpu"), catalog))


def test_list_and_plan_say_it(folder):
    save(proof_of())
    date = proof_of().date[:10]
    listed = json.loads(call("list", "--framework", "pytorch", "--json").stdout)["lines"]
    assert {row["proof"]["state"] for row in listed} == {"proven", "never"}
    (row,) = [row for row in listed if row["proof"]["state"] == "proven"]
    assert (row["cuda"], row["proof"]["date"]) == ("cpu", date)
    text = call("list", "--framework", "pytorch", "--cuda", "cpu", "--python", "3.11").stdout.splitlines()
    at = text[0].index("proven")
    assert [line[at:].split()[0] for line in text[1 : text.index("")]] == [date]
    planned = call("plan", "--framework", "pytorch", "--cuda", "cpu")
    assert f"\nproof on {date}\n" in planned.stdout
    as_json = json.loads(call("plan", "--framework", "pytorch", "--cuda", "cu124", "--json").stdout)
    assert as_json["proof"] == {"state": "never", "date": "", "step": ""}


def test_list_and_plan_say_which_step_failed():
    failed = {"outcome": "failed", "failed_step": "build", "image": None, "size_bytes": None}
    save(proof_of().replace(**failed))
    date = proof_of().date[:10]
    assert f"  failed {date} (build)  " in call("list", "--framework", "pytorch", "--cuda", "cpu").stdout
    planned = call("plan", "--framework", "pytorch", "--cuda", "cpu").stdout
    assert f"\nproof failed on {date} (build)\n" in planned
    assert "\nimage     not known: not built here, and no proof\n" in planned
    (row,) = json.loads(
        call("list", "--framework", "pytorch", "--needs", "packages", "--cuda", "cpu", "--json").stdout
    )["lines"]
    assert (row["size_bytes"], row["proof"]) == (None, {"state": "failed", "date": date, "step": "build"})
