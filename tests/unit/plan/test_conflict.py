"""Pins, conflicts and what no image line has: reasons are the smallest set, offers resolve, and nothing is guessed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.catalogs import debian_lines
from tests.support.conflicts import CATALOG, assert_offers_resolve, conflict_of, constraints, plan_of
from tests.support.examples import some
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.image_line import version_key
from trainwright.core.errors import Conflict, Failure, RequestError
from trainwright.core.paths import images_dir, templates_dir
from trainwright.plan.conflict import smallest
from trainwright.plan.fit import Objection
from trainwright.plan.plan import Plan
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

RULES = {rule.name: rule for rule in CATALOG.rules.rules}


# ---- --set -------------------------------------------------------------------------------------------------------


def test_the_version_of_the_line_is_no_change():
    assert plan_of("nccl=2.21.5", "openmpi=4.1.4", cuda="cu124").as_json() == plan_of(cuda="cu124").as_json()
    assert plan_of("pytorch=2.13.0", cuda="cpu").id == plan_of(cuda="cpu").id


def test_a_pin_chooses_the_line_that_has_it():
    assert plan_of("nccl=2.21.5").cuda == "12.4"


def test_a_tied_version_is_refused_and_its_line_offered():
    conflict = conflict_of("nccl=2.21.5", cuda="cu126")
    assert constraints(conflict) == ["--cuda cu126", "--set nccl=2.21.5", "nccl is tied to pytorch"]
    evidence = {row["constraint"]: row["evidence"] for row in conflict.details["rows"]}
    assert "cu126/line.yaml (nccl 2.26.2)" in evidence["--cuda cu126"]
    assert "cu124/line.yaml" in evidence["--set nccl=2.21.5"]
    first = conflict.details["offers"][0]["command"]
    assert "--cuda cu124" in first
    assert "--set nccl=2.21.5" in first
    assert_offers_resolve(conflict)


def test_a_version_that_no_provider_knows_is_refused_with_those_it_knows():
    conflict = conflict_of("metis=5.2.1", cuda="cpu")
    assert constraints(conflict) == ["--set metis=5.2.1"]
    assert "5.1.0" in conflict.details["rows"][0]["evidence"]
    assert_offers_resolve(conflict)


@pytest.mark.parametrize(
    ("pin", "words", "told"),
    [
        ("mettis=5.1.0", {}, "metis"),
        ("nccl=2.21.5", {"cuda": "cpu"}, "not in the plan"),
        ("cuda-compiler=12.4.131", {"cuda": "cu124"}, "not in the plan"),
        ("rmm=26.10.0", {"without": "rmm"}, "--without"),
        ("nccl", {}, "NAME=VERSION"),
        ("nccl=", {}, "NAME=VERSION"),
        ("=1.2", {}, "NAME=VERSION"),
        ("nccl=new", {}, "NAME=VERSION"),
    ],
)
def test_a_pin_of_what_is_not_there_is_a_wrong_request(pin, words, told):
    with pytest.raises(RequestError, match=told) as refused:
        plan_of(pin, **words)
    assert refused.value.exit_code == 2


def test_two_versions_of_one_component():
    with pytest.raises(RequestError, match="which one"):
        plan_of("nccl=2.21.5", "nccl=2.26.2")


def test_the_order_of_pins_says_nothing():
    assert plan_of("nccl=2.21.5", "openmpi=4.1.4").as_json() == plan_of("openmpi=4.1.4", "nccl=2.21.5").as_json()


@pytest.fixture
def two_openmpis(tmp_path: Path) -> Catalog:
    """The shipped catalog with a second Open MPI 4 that the provider knows."""
    shutil.copytree(templates_dir(), tmp_path / "templates")
    path = tmp_path / "templates" / "components" / "openmpi" / "component.yaml"
    path.write_text(path.read_text().replace('      "4.1.4": {}\n', '      "4.1.4": {}\n      "4.1.6": {}\n'))
    return load_catalog(images_dir(), tmp_path / "templates")


def test_another_version_that_the_provider_knows(two_openmpis):
    plain, pinned = (
        plan_of(cuda="cu124", catalog=two_openmpis),
        plan_of("openmpi=4.1.6", cuda="cu124", catalog=two_openmpis),
    )
    component = pinned.component("openmpi")
    assert component is not None
    assert component.version == "4.1.6"
    assert pinned.tags[0] == f"{plain.tags[0]}-openmpi4.1.6"
    assert any(e.component == "openmpi" and e.value == "4.1.6" for e in pinned.expect)
    assert any("openmpi 4.1.6" in notice and "4.1.4" in notice for notice in pinned.notices)
    assert pinned.id != plain.id
    assert 'io.trainwright.component.openmpi="4.1.6 (debian)"' in render_dockerfile(pinned, two_openmpis)


def test_the_nearest_known_version_is_offered(two_openmpis):
    conflict = conflict_of("openmpi=4.1.9", cuda="cu124", catalog=two_openmpis)
    assert "--set openmpi=4.1.6" in conflict.details["offers"][0]["command"]
    assert_offers_resolve(conflict, two_openmpis)


# ---- rules and reasons -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pins", "words", "expected"),
    [
        (
            (),
            {"version": "2.5", "cuda": "cu113"},
            ["--cuda cu113", "--version 2.5", "PyTorch 2 or newer with CUDA older than 11.7"],
        ),
        (("openmpi=5.0.7",), {}, ["--set openmpi=5.0.7", "Open MPI 5 with SageMaker's training toolkit"]),
        (
            (),
            {"version": "2.7", "with_": "smdistributed-dataparallel"},
            ["--version 2.7", "--with smdistributed-dataparallel", RULES["smddp-torch"].refuse],
        ),
    ],
)
def test_a_rule_explains_what_no_line_has(pins, words, expected):
    conflict = conflict_of(*pins, **words)
    assert constraints(conflict) == expected
    assert expected[-1] in conflict.message
    assert len(conflict.details["offers"]) == 3
    assert_offers_resolve(conflict)


def test_a_foreseen_component_is_refused_by_its_rules():
    conflict = conflict_of(with_="smdistributed-modelparallel")
    assert constraints(conflict)[0] == "--with smdistributed-modelparallel"
    assert "smdistributed-modelparallel with PyTorch 2.1 or newer" in constraints(conflict)
    for row in conflict.details["rows"][1:]:
        assert "aws/deep-learning-containers" in row["evidence"]
    assert_offers_resolve(conflict)


def test_the_framework_is_a_reason_where_another_one_would_do(tmp_path):
    for entry in CATALOG.lines:
        folder = tmp_path / "images" / "pytorch" / entry.name
        folder.mkdir(parents=True, exist_ok=True)
        for file in (entry.path, entry.lock_path):
            shutil.copy(file, folder)
    (tmp_path / "images" / "tensorflow" / "cu125").mkdir(parents=True)
    (tmp_path / "images" / "tensorflow" / "cu125" / "line.yaml").write_text(
        "framework: tensorflow\nversion: 2.18.0\ncuda: '12.5'\npython: '3.11'\nbase: debian-12\nstatus: supported\n"
        "components: {ssh: {provider: debian, version: '9.2'}}\n"
        "evidence: [{source: a test, date: '2026-11-21', says: nothing}]\n"
    )
    catalog = load_catalog(tmp_path / "images", templates_dir())

    def rows(**words) -> list[str]:
        return [row["constraint"] for row in conflict_of(catalog=catalog, **words).details["rows"]]

    assert rows(version="2.18") == ["--framework pytorch", "--version 2.18"]
    assert rows(cuda="cu125") == ["--framework pytorch", "--cuda cu125"]
    assert rows(cuda="cu999") == ["--cuda cu999"]
    assert rows(cuda="cu111", python="3.8") == rows(cuda="cu111")


def test_offers_are_complete(tmp_path):
    (tmp_path / "my requirements.txt").write_text("tqdm\n")
    conflict = conflict_of(cuda="cu111", requirements=str(tmp_path / "my requirements.txt"))
    assert all("--with-requirements" in offer["command"] for offer in conflict.details["offers"])
    assert_offers_resolve(conflict)


def test_the_smallest_set_of_reasons():
    a, b, c = (Objection(frozenset({f"--set {name}=1"})) for name in "abc")
    ab = Objection(a.words | b.words)
    assert smallest([[a, b], [b]]) == ["--set b=1"]
    assert smallest([[a], [b]]) == ["--set a=1", "--set b=1"]
    assert smallest([[ab, c], [c]]) == ["--set c=1"]
    assert smallest([[a], []]) is None


ADDED = ["compiler", "cuda-compiler", "smdistributed-modelparallel", "efa"]
LEFT_OUT = ["rmm", "openmpi", "mpi4py", "sagemaker-toolkit", "cuda"]
PINS = ["nccl=2.21.5", "nccl=2.99.0", "openmpi=5.0.7", "openmpi=4.1.4", "metis=5.2.1", "rmm=25.2.0", "cuda=12.6"]
WORDS = {
    "cuda": st.sampled_from([None, "cpu", "cu117", "cu124", "cu126", "cu132", "cu113", "cu999"]),
    "version": st.sampled_from([None, "2", "2.6", "2.7.1", "2.5", "1.12", "2.16.0"]),
    "python": st.sampled_from([None, "3.11", "3.8"]),
    "base": st.sampled_from([None, "debian", "nvidia"]),
    "with_": st.lists(st.sampled_from(ADDED), unique=True, max_size=2),
    "without": st.lists(st.sampled_from(LEFT_OUT), unique=True, max_size=3),
    "set_": st.lists(st.sampled_from(PINS), unique_by=lambda pin: pin.split("=")[0], max_size=2),
    "allow_unproven": st.booleans(),
}

PINNED = {"cuda": "cu124", "with_": [], "without": [], "set_": ["nccl=2.21.5"], "allow_unproven": False}


def outcome(words: dict) -> Plan | Failure:
    asked = {key: ",".join(value) or None if key in ("with_", "without") else value for key, value in words.items()}
    try:
        return resolve(make_request(framework="pytorch", **asked), CATALOG)
    except Failure as refused:
        return refused


def without_word(words: dict, constraint: str) -> dict:
    """The request without the word that a row names."""
    flag, _, value = constraint.partition(" ")
    key = {"--with": "with_", "--set": "set_"}.get(flag, flag.removeprefix("--"))
    left = [each for each in words[key] if each != value] if isinstance(words[key], list) else None
    assert left != words[key], constraint
    return {**words, key: left}


@settings(deadline=None, max_examples=some(250))
@given(words=st.fixed_dictionaries(WORDS))
@example(words={**dict.fromkeys(WORDS), **PINNED})
def test_any_request_gives_a_sound_plan_or_the_smallest_reasons(words):
    result = outcome(words)
    if isinstance(result, Plan):
        for name, _, version in (pin.partition("=") for pin in words["set_"]):
            component = result.component(name)
            assert component is not None
            assert component.version == version
        return
    assert result.exit_code in (2, 3)
    assert result.message
    if not isinstance(result, Conflict):
        return
    assert 1 <= len(result.details["offers"]) <= 3
    assert_offers_resolve(result)
    rows = set(constraints(result))
    assert rows
    for constraint in rows:
        if constraint.startswith("--"):
            changed = outcome(without_word(words, constraint))
            assert not isinstance(changed, Conflict) or set(constraints(changed)) != rows - {constraint}


@settings(deadline=None, max_examples=25)
@given(words=st.fixed_dictionaries(WORDS))
def test_same_request_same_answer_byte_for_byte(words):
    again = debian_lines()
    first, second = outcome(words), None
    asked = {key: ",".join(value) or None if key in ("with_", "without") else value for key, value in words.items()}
    try:
        second = resolve(make_request(framework="pytorch", **asked), again)
    except Failure as refused:
        second = refused
    assert json.dumps(first.as_json()) == json.dumps(second.as_json())


def test_answers_do_not_depend_on_the_hash_seed():
    """Sets of words have another order in each process; what is printed must not follow it."""
    code = (
        "import json\n"
        "from tests.support.catalogs import debian_lines\n"
        "from trainwright.core.errors import Failure\n"
        "from trainwright.plan.request import make_request\n"
        "from trainwright.plan.resolve import resolve\n"
        "catalog = debian_lines()\n"
        "for words in ({'without': 'python'}, {'cuda': 'cu126', 'set_': ['nccl=2.21.5', 'metis=9']},\n"
        "              {'with_': 'smdistributed-modelparallel,efa'}, {'cuda': 'cu124', 'without': 'cuda,openmpi'}):\n"
        "    try:\n        resolve(make_request(framework='pytorch', **words), catalog)\n"
        "    except Failure as refused:\n        print(json.dumps(refused.as_json()))\n"
    )
    root = Path(__file__).resolve().parents[3]
    printed = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONPATH": str(root), "PYTHONHASHSEED": seed}, capture_output=True,
            text=True, check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }  # fmt: skip
    assert len(printed) == 1
    assert printed.pop().count("\n") == 4


def test_evidence_counts_the_lines_or_says_what_there_is_instead():
    with pytest.raises(Conflict) as refused:
        resolve(make_request(framework="tensorflow", cuda="cu113"), load_catalog())
    files = [path.read_text() for path in (images_dir() / "tensorflow").glob("*/line.yaml")]
    cuda = {re.findall(r"(?m)^cuda: \"?([0-9.]+|cpu)\"?$", text)[0] for text in files}
    evidence = {row["constraint"]: row["evidence"] for row in refused.value.details["rows"]}
    assert evidence["--framework tensorflow"] == f"{len(files)} image lines have it"
    what, _, there = evidence["--cuda cu113"].partition("; lines have ")
    assert what == "no image line has it"
    assert set(there.split(", ")) == {"cpu" if each == "cpu" else f"cu{each.replace('.', '')}" for each in cuda}


def test_the_beginning_of_a_cuda_version_is_answered_by_a_line_that_goes_on_from_it():
    for begun in ("cu11", "cu12", "cu13"):
        offers = [offer["command"] for offer in conflict_of(cuda=begun).details["offers"]]
        assert f"--cuda {begun}" in offers[0]


def test_what_lines_have_is_in_order():
    (row,) = [
        row
        for row in conflict_of(version="99", catalog=load_catalog()).details["rows"]
        if row["constraint"] == "--version 99"
    ]
    versions = row["evidence"].rpartition("lines have ")[2].split(", ")
    assert versions == sorted(versions, key=version_key)


def test_fewer_than_three_offers_are_whole_offers():
    whole = load_catalog()
    two = [entry for entry in whole.lines if entry.name in ("2.4.0-cu124", "2.5.1-cu124")]
    catalog = Catalog(two, whole.components, whole.rules)
    conflict = conflict_of(cuda="cu113", catalog=catalog)
    assert len(conflict.details["offers"]) == len(two) == 2
    assert_offers_resolve(conflict, catalog)
