"""``report`` and ``diff`` at the command line: where a page goes, what is refused, and documents by their schemas."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.support.in_process import call
from tests.support.report_records import IMAGE, OTHER, full_record
from trainwright.build import store
from trainwright.core.paths import images_dir

SCHEMAS = Path(__file__).resolve().parents[3] / "trainwright" / "schemas"


@pytest.fixture
def here(tmp_path, own_places):
    """A folder in which two images were built; the newest is IMAGE."""
    store.save(full_record(OTHER).replace(built_at="2026-01-01T00:00:00+00:00"))
    store.save(full_record(changed="nccl"))
    return tmp_path


def check(name: str, text: str) -> dict:
    document = json.loads(text)
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text())).validate(document)
    return document


def test_a_page_of_the_newest_image_by_default(here):
    done = call("report", cwd=here)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(here / "report.html")
    assert IMAGE in (here / "report.html").read_text()
    assert call("report", cwd=here).returncode == 0, "its own page is replaced"


@pytest.mark.parametrize("form", ["html", "markdown", "json"])
def test_a_file_that_is_no_report_is_left_alone(here, form):
    mine = here / "mine"
    mine.write_text("dear diary")
    done = call("report", "--format", form, "--output", "mine", cwd=here)
    assert done.returncode == 2
    assert mine.read_text() == "dear diary"


@pytest.mark.parametrize("form", ["html", "markdown", "json"])
@pytest.mark.parametrize("words", [["--lines"], [IMAGE[7:19]]])
def test_each_form_replaces_what_it_wrote(here, form, words):
    for _ in range(2):
        done = call("report", *words, "--format", form, "--output", "out", cwd=here)
        assert done.returncode == 0, done.stderr


def test_json_by_its_schema(here):
    document = check("report", call("report", "--json", cwd=here).stdout)
    assert (document["image_id"], document["against"]) == (IMAGE, None)
    document = check("report", call("report", "--format", "json", "--against", OTHER, cwd=here).stdout)
    assert document["against"]["pull"]["new_layers"] == 1
    assert len(check("catalog", call("report", "--lines", "--json", cwd=here).stdout)["lines"]) > 50
    lock = str(images_dir() / "pytorch" / "cu124" / "lock.json")
    for words in (("pytorch:cu124", "pytorch:cu126"), (IMAGE, OTHER), (lock, "pytorch/cu126")):
        assert check("diff", call("diff", *words, "--json", cwd=here).stdout)["compared"]


def test_the_diff_of_a_terminal(here):
    said = call("diff", OTHER[7:19], IMAGE[7:19], cwd=here).stdout
    assert "nothing differs in" in said
    assert "in 1 of 13 layers by containerd" in said
    said = call("diff", "pytorch:cu124", "pytorch:cu126", cwd=here).stdout
    assert "  ~  framework  pytorch 2.6.0 → pytorch 2.7.1" in said
    assert "  +  nvidia-cufile-cu12" in said


@pytest.mark.parametrize(
    "words",
    [
        ["report", "gone"],
        ["report", "--format", "pdf"],
        ["report", "--files"],
        ["report", "--lines", "x"],
        ["report", "--lines", "--against", "gone.json"],
        ["report", "--against", "gone"],
        ["diff", "pytorch:cu124"],
        ["diff", "pytorch:cu124", "pytorch:cu126", "--files"],
    ],
)
def test_what_cannot_be_shown_is_a_mistake_in_the_request(here, words):
    done = call(*words, cwd=here)
    assert done.returncode == 2, done.stdout
    assert not (here / "report.html").exists()


def test_without_any_image(tmp_path, own_places):
    done = call("report", cwd=tmp_path)
    assert done.returncode == 2
    assert "./invoke build pytorch:cpu" in done.stderr


def test_a_change_s_cost_is_that_of_the_last_build(here):
    said = call("explain", "pytorch:cu124", "--component", "nccl", cwd=here).stdout
    assert "a change  makes again nccl 3.0s, bytecode; as last built here on 20" in said
    said = call("explain", "pytorch:cu124", "--component", "ssh", cwd=here).stdout
    # os, and the nine components that are more than packages of the first layer; tools, toolchain, wheels and bytecode
    # have no time in the record.
    assert "3.0s and 11 more; 30.0s of work in all" in said


def test_all_components_are_a_line_each(tmp_path):
    said = call("explain", "pytorch:cu124", cwd=tmp_path).stdout
    assert len(said.splitlines()) == 11 + 5  # components; head, line, what says more
    assert "note:" in call("explain", "pytorch:cu124", "--all", cwd=tmp_path).stdout


def test_why_one_component_is_in_its_version(tmp_path):
    said = call("explain", "pytorch:cu124", "--component", "nccl", cwd=tmp_path).stdout
    assert "nccl 2.21.5 from wheel" in said
    assert "openmpi" not in said
    assert "decided   by pytorch: the torch wheel pins the NCCL" in said
    assert "a change  makes again nccl, bytecode; no build here has measured how long that takes" in said
    assert len(said.splitlines()) <= 10
    told = call("explain", "pytorch:cu124", "--component", "pytorch", cwd=tmp_path).stdout
    assert (told.count("evidence"), told.count("==")) == (2, 4)
    assert "and 6 more: --all" in told
    whole = call("explain", "pytorch:cu124", "--component", "pytorch", "--all", cwd=tmp_path).stdout
    assert (whole.count("evidence  "), "more" in whole) == (8, False)
    done = call("explain", "pytorch:cu124", "--component", "nncl", cwd=tmp_path)
    assert done.returncode == 2
    assert "Did you mean nccl" in done.stderr
