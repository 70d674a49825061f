"""Pins, conflicts and what no image line has: reasons are the smallest set, offers resolve, and nothing is guessed."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.catalogs import packages_only
from tests.support.examples import some
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.wheel_lock import Lock
from trainwright.core.errors import Conflict, Failure, RequestError
from trainwright.core.paths import images_dir, templates_dir
from trainwright.lock import unproven
from trainwright.plan.conflict import smallest
from trainwright.plan.draft import make_draft
from trainwright.plan.fit import Objection
from trainwright.plan.plan import Plan
from trainwright.plan.render import render_dockerfile
from trainwright.plan.request import Request, make_request
from trainwright.plan.resolve import resolve

CATALOG = packages_only()
RULES = {rule.name: rule for rule in CATALOG.rules.rules}


def plan_of(*pins: str, catalog: Catalog = CATALOG, **words) -> Plan:
    return resolve(make_request(framework="pytorch", set_=pins, **words), catalog)


def conflict_of(*pins: str, catalog: Catalog = CATALOG, **words) -> Conflict:
    with pytest.raises(Conflict) as refused:
        plan_of(*pins, catalog=catalog, **words)
    return refused.value


def constraints(conflict: Conflict) -> list[str]:
    """The rows, without that of the framework: whether it plays a part depends on which other frameworks there are."""
    return [row["constraint"] for row in conflict.details["rows"] if not row["constraint"].startswith("--framework")]


def request_of(command: str) -> Request:
    """The request of an offered command line, read as a shell and the program would."""
    words = shlex.split(command)
    assert words[:2] == ["./invoke", "build"]
    given_: dict = {"set_": []}
    rest = words[2:]
    while rest:
        flag = rest.pop(0).removeprefix("--")
        if flag == "allow-unproven":
            given_["allow_unproven"] = True
        elif flag == "set":
            given_["set_"].append(rest.pop(0))
        else:
            name = {"with": "with_", "with-requirements": "requirements"}.get(flag, flag.replace("-", "_"))
            given_[name] = rest.pop(0)
    return make_request(**given_)


def assert_offers_resolve(conflict: Conflict, catalog: Catalog = CATALOG) -> None:
    for offer in conflict.details["offers"]:
        assert resolve(request_of(offer["command"]), catalog).id == offer["plan id"], offer["command"]


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
        ((), {"version": "2.5", "cuda": "cu113"}, ["--cuda cu113", "PyTorch 2 or newer with CUDA older than 11.7"]),
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
    assert rows(cuda="cu113", python="3.8") == rows(cuda="cu113")


def test_offers_are_complete(tmp_path):
    (tmp_path / "my requirements.txt").write_text("tqdm\n")
    conflict = conflict_of(cuda="cu113", requirements=str(tmp_path / "my requirements.txt"))
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
    again = packages_only()
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
        "from tests.support.catalogs import packages_only\n"
        "from trainwright.core.errors import Failure\n"
        "from trainwright.plan.request import make_request\n"
        "from trainwright.plan.resolve import resolve\n"
        "catalog = packages_only()\n"
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


# ---- --allow-unproven --------------------------------------------------------------------------------------------


def test_a_newer_version_is_refused_and_the_file_to_copy_named():
    conflict = conflict_of(version="2.16.0", cuda="cu132")
    assert "images/pytorch/cu132/line.yaml" in conflict.remedy
    assert "CONTRIBUTING.md" in conflict.remedy
    assert "--allow-unproven" in conflict.remedy
    assert_offers_resolve(conflict)


def test_an_older_version_is_not_offered_to_be_tried():
    assert "--allow-unproven" not in conflict_of(version="2.5.0", cuda="cu124").remedy
    with pytest.raises(Conflict):
        plan_of(version="2.5.0", cuda="cu124", allow_unproven=True)


def test_an_unproven_plan_says_so_and_locks_nothing():
    plan = plan_of(version="2.16.0", cuda="cu132", allow_unproven=True)
    line = plan_of(cuda="cu132")
    assert (plan.version, plan.cuda, plan.python) == ("2.16.0", line.cuda, line.python)
    assert plan.unproven == ("pytorch 2.16.0",)
    assert plan.labels["io.trainwright.unproven"] == "pytorch 2.16.0"
    assert plan.flavour == "unproven"
    assert all(tag.split(":")[1].startswith("2.16.0-cu132-py311-debian12-unproven") for tag in plan.tags)
    assert any("unproven" in notice for notice in plan.notices)
    assert any("no lock" in notice for notice in plan.notices)
    assert not any(s.package and "==" in s.package for c in plan.components for s in c.sources)
    asked = {c.name: c.packages for c in plan.components}
    assert asked["pytorch"] == ("torch==2.16.0", "numpy==2.4.6")
    assert asked["nccl"] == ("nvidia-nccl-cu13",)
    assert asked["cuda"] == ("nvidia-cuda-runtime==13.2.*",)
    assert plan.unlocked
    with pytest.raises(RequestError, match="no lock"):
        render_dockerfile(plan, CATALOG)


def test_the_cpu_build_keeps_its_local_version():
    component = plan_of(version="2.16.0", cuda="cpu", allow_unproven=True).component("pytorch")
    assert component is not None
    assert component.packages[0] == "torch==2.16.0+cpu"
    assert component.version == "2.16.0+cpu"


def test_what_a_line_proves_is_not_called_unproven():
    assert plan_of(cuda="cu124", allow_unproven=True).as_json() == plan_of(cuda="cu124").as_json()
    assert not plan_of(version="2.13", allow_unproven=True).unproven


def test_an_unproven_version_must_be_a_whole_one():
    with pytest.raises(RequestError, match="not a complete version"):
        plan_of(version="2.16", allow_unproven=True)


def test_rules_hold_for_what_is_tried_as_well():
    assert conflict_of("openmpi=5.0.7", version="2.16.0", allow_unproven=True).details["rows"]
    assert conflict_of("nccl=2.99.0", allow_unproven=True).details["rows"], "tied versions are not for trying"


def test_a_component_of_its_own_may_be_tried():
    plan = plan_of("rmm=25.2.0", cuda="cu126", allow_unproven=True)
    component = plan.component("rmm")
    assert component is not None
    assert component.packages == ("rmm-cu12==25.2.0", "librmm-cu12==25.2.0")
    assert plan.flavour == "rmm25.2.0-unproven"


def small_lock(draft) -> Lock:
    roots = {n: s.packages for n, s in draft.selections.items() if s.packages}
    names = {requirement.partition("==")[0]: name for name, packages in roots.items() for requirement in packages}
    packages = [
        {"name": name, "version": "2.31.0" if "nccl" in name else "1.0", "file": f"{name}-1.whl", "sha256": "0" * 64,
         "components": (component,)}
        for name, component in names.items()
    ]  # fmt: skip
    return Lock.model_validate({"python": "3.11", "platform": "x86_64-manylinux_2_28", "packages": packages})


def test_a_lock_completes_an_unproven_plan():
    request = make_request(framework="pytorch", version="2.16.0", cuda="cu132", allow_unproven=True)
    plan = resolve(request, CATALOG, locks=small_lock)
    assert not plan.unlocked
    component = plan.component("nccl")
    assert component is not None
    assert component.version == "2.31.0"
    assert any(e.component == "nccl" and e.value == "2.31.0" for e in plan.expect)
    assert not any("no lock" in notice for notice in plan.notices)
    assert "unproven" in render_dockerfile(plan, CATALOG)
    assert resolve(request, CATALOG, locks=small_lock).as_json() == plan.as_json()


def test_a_lock_is_made_once_and_used_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path))
    made = []

    def lock_line(needs):
        made.append(needs)
        return small_lock(make_draft(request, CATALOG, CATALOG.lines[-2]))

    monkeypatch.setattr(unproven, "lock_line", lock_line)
    request = make_request(framework="pytorch", version="2.16.0", cuda="cu132", allow_unproven=True)
    assert resolve(request, CATALOG, locks=unproven.stored_lock).unlocked
    told: list[str] = []
    first = resolve(request, CATALOG, locks=unproven.make_lock(told.append))
    second = resolve(request, CATALOG, locks=unproven.make_lock(told.append))
    third = resolve(request, CATALOG, locks=unproven.stored_lock)
    assert first.as_json() == second.as_json() == third.as_json()
    assert len(made) == len(told) == 1
    assert made[0]["components"]["pytorch"]["packages"] == ("torch==2.16.0", "numpy==2.4.6")
    other = make_request(framework="pytorch", version="2.17.0", cuda="cu132", allow_unproven=True)
    resolve(other, CATALOG, locks=unproven.make_lock(told.append))
    assert len(made) == 2


def test_packages_that_do_not_hold_together_are_a_conflict_with_offers(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path))

    def lock_line(needs):
        raise Conflict("no", rows=[{"constraint": "Python packages", "evidence": "no torch==2.16.0"}], offers=[])

    monkeypatch.setattr(unproven, "lock_line", lock_line)
    request = make_request(framework="pytorch", version="2.16.0", allow_unproven=True)
    with pytest.raises(Conflict, match=r"pytorch 2\.16\.0") as refused:
        resolve(request, CATALOG, locks=unproven.make_lock(lambda _: None))
    assert refused.value.details["offers"]
    assert_offers_resolve(refused.value)
    assert not list((tmp_path / "locks").glob("*.json"))
