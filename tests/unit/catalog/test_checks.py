"""What a catalog refuses: components that no build could prove, lines that nothing tells apart, misleading names."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.catalogs import write_hello
from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.component import ProbeStep
from trainwright.core.data_files import read_yaml
from trainwright.core.errors import RequestError
from trainwright.core.paths import images_dir, templates_dir
from trainwright.core.records import parse_record
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.user.files import code_files, digest_of

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = load_catalog()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog of a user's own: one whole component, and no line yet."""
    write_hello(tmp_path / "own" / "templates")
    (tmp_path / "own" / "images" / "pytorch").mkdir(parents=True)
    monkeypatch.setenv("TRAINWRIGHT_CATALOG", str(tmp_path / "own"))
    return tmp_path / "own"


def refusal() -> RequestError:
    with pytest.raises(RequestError) as refused:
        load_catalog()
    assert refused.value.remedy
    return refused.value


# ---- components ------------------------------------------------------------------------------------------------------


def test_a_whole_component_is_taken(own: Path) -> None:
    assert "hello" in load_catalog().components


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    expect: {version: '{version}'}\n", "", ["provider debian", "expect"]),
        ("expect: {version: '{version}'}", "expect: {}", ["provider debian", "expect"]),
        ("expect: {version: '{version}'}", "expect: {version: '*'}", ["provider debian", "expect"]),
        ("expect: {version: '{version}'}", "expect: {version: '{version}', home: x}", ["provider debian", "home"]),
        ("match: {version:", "match: {release:", ["provider debian", "version"]),
        ("expect: {version: '{version}'}", "expect: {version: '{version}'}\n    unchecked: why", ["provider debian"]),
    ],
)
def test_a_provider_that_no_build_could_prove_is_refused(own: Path, old: str, new: str, words: list[str]) -> None:
    file = own / "templates" / "components" / "hello" / "component.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    refused = refusal()
    assert all(word in refused.message for word in [str(file), *words])


@pytest.mark.parametrize(
    ("expect", "words"),
    [("{home: x}", ["no expectation follows"]), ("{home: '{version}'}", ["no step of its probe", "home"])],
)
def test_a_range_of_versions_is_held_to_the_same(own: Path, expect: str, words: list[str]) -> None:
    file = own / "templates" / "components" / "hello" / "component.yaml"
    old = "    expect: {version: '{version}'}\n"
    file.write_text(file.read_text().replace(old, f"{old}    ranges: [{{versions: '<2', expect: {expect}}}]\n"))
    refused = refusal()
    assert all(word in refused.message for word in [str(file), "provider debian", *words])


def test_a_component_without_a_probe_is_refused(own: Path) -> None:
    file = own / "templates" / "components" / "hello" / "component.yaml"
    file.write_text(file.read_text().partition("probe:")[0])
    refused = refusal()
    assert all(word in refused.message for word in [str(file), "provider debian", "probe"])


@pytest.mark.parametrize("text", [None, "", '"""Nothing."""\nimport os\n', "# def test_not_really(host): ...\n"])
def test_a_component_without_an_image_test_is_refused(own: Path, text: str | None) -> None:
    file = own / "templates" / "components" / "hello" / "test_hello.py"
    file.unlink()
    if text is not None:
        file.write_text(text)
    assert str(file) in refusal().message


@pytest.mark.parametrize("script", ["print({'version': 1})", "print(json.dumps(dict(version=1)))"])
def test_a_script_may_learn_what_is_expected(own: Path, script: str) -> None:
    file = own / "templates" / "components" / "hello" / "component.yaml"
    data = read_yaml(file)
    data["probe"] = [{"python": script}]
    file.write_text(yaml.safe_dump(data))
    assert "hello" in load_catalog().components
    data["probe"] = [{"python": script.replace("version", "release")}]
    file.write_text(yaml.safe_dump(data))
    assert "version" in refusal().message


@pytest.mark.parametrize(
    "step",
    [
        {},
        {"python": "print()", "run": "true", "match": {"a": "(a)"}},
        {"run": "true"},
        {"match": {"a": "(a)"}},
        {"run": "true", "match": {"a": "no group"}},
        {"run": "true", "match": {"a": "(open"}},
    ],
)
def test_a_probe_step_that_can_learn_nothing_is_refused(step: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        parse_record(ProbeStep, step, "the test")


def test_every_provider_that_installs_something_is_checked() -> None:
    unchecked = {
        (name, provider)
        for name, folder in SHIPPED.components.items()
        for provider, entry in folder.component.providers.items()
        if not entry.expect
    }
    assert unchecked == set()


def test_a_plan_says_which_versions_nobody_checked(own: Path) -> None:
    file = own / "templates" / "components" / "hello" / "component.yaml"
    file.write_text(file.read_text().replace("expect: {version: '{version}'}", "unchecked: it has no version"))
    line = read_yaml(images_dir() / "pytorch" / "cpu" / "line.yaml")
    line["components"]["hello"] = {"provider": "debian", "version": "2.10"}
    folder = own / "images" / "pytorch" / "cpu"
    folder.mkdir()
    (folder / "line.yaml").write_text(yaml.safe_dump(line))
    (folder / "lock.json").write_text((images_dir() / "pytorch" / "cpu" / "lock.json").read_text())
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())
    (notice,) = [notice for notice in plan.notices if "not checked" in notice]
    assert "hello" in notice
    assert "it has no version" in notice


def test_a_plan_on_an_image_of_aws_says_where_its_knowledge_is_from() -> None:
    plan = resolve(make_request(framework="huggingface-pytorch", version="2.9.0"), SHIPPED)
    (notice,) = [notice for notice in plan.notices if "AWS's Dockerfile" in notice]
    # NCCL_VERSION of pytorch/training/docker/2.9/py3/cu130/Dockerfile.gpu's base at 959ce8a4
    assert "nccl 2.27.7" in notice
    assert plan.component("nccl").version == ""  # type: ignore[union-attr]
    assert "io.trainwright.component.nccl" not in plan.labels


# ---- the user's own code ---------------------------------------------------------------------------------------------


def probe_code(folder: Path) -> str:
    """What the probe of the component finds, where the code lies in another folder than in an image."""
    (step,) = SHIPPED.components["user"].component.probe
    script = str(step.python)
    assert "/opt/ml/code" in script
    done = subprocess.run(
        [sys.executable, "-c", script.replace("/opt/ml/code", str(folder))], capture_output=True, text=True, check=True
    )
    return str(json.loads(done.stdout)["code"])


def write_code(folder: Path) -> Path:
    for name in ("train.py", "a-b.py", "a/x.py", "a/b/größe.txt", "run.sh"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "run.sh").chmod(0o755)
    return folder


def test_the_probe_finds_the_code_that_the_plan_names(tmp_path: Path) -> None:
    code = write_code(tmp_path / "code")
    plan = resolve(make_request(framework="pytorch", cuda="cu124", code=str(code), entry_point="train.py"), SHIPPED)
    (expected,) = [each.value for each in plan.expect if each.component == "user"]
    assert probe_code(code) == expected == digest_of(code_files(code))
    assert len([step for step in plan.probes if step.component == "user"]) == 1


@pytest.mark.parametrize("change", ["more", "less", "other", "bit"])
def test_other_code_in_the_image_is_a_difference(tmp_path: Path, change: str) -> None:
    code, image = write_code(tmp_path / "code"), write_code(tmp_path / "image")
    file = image / "a" / "x.py"
    if change == "more":
        (image / "stale.py").write_text("")
    elif change == "less":
        file.unlink()
    elif change == "other":
        file.write_text("other")
    else:
        file.chmod(0o755)
    assert probe_code(image) != digest_of(code_files(code))


def test_without_code_the_probe_has_an_answer_and_the_plan_asks_for_none(tmp_path: Path) -> None:
    (tmp_path / "wanted.txt").write_text("tqdm\n")
    plan = resolve(make_request(framework="pytorch", cuda="cu124", requirements=str(tmp_path / "wanted.txt")), SHIPPED)
    assert [each.value for each in plan.expect if each.component == "user"] == ["*"]
    assert probe_code(tmp_path / "nothing") == "none"


@settings(deadline=None, max_examples=20)  # each starts a process
@given(names=st.lists(st.sampled_from(["a", "b", "a.b", "a-b", "a0"]), min_size=1, max_size=6, unique=True))
def test_any_tree_has_one_digest(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    folder = tmp_path_factory.mktemp("code")
    for name in names:
        (folder / name).mkdir()
        (folder / name / "x").write_text(name)
        (folder / f"{name}.py").write_text(hashlib.sha256(name.encode()).hexdigest())
    assert probe_code(folder) == digest_of(code_files(folder))


# ---- image lines -----------------------------------------------------------------------------------------------------


def add_line(own: Path, name: str, shipped: str = "cu126", framework: str = "pytorch", **changes: object) -> Path:
    """A shipped line with other values under a name."""
    line = read_yaml(images_dir() / "pytorch" / shipped / "line.yaml")
    path = own / "images" / framework / name / "line.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({**line, **changes}))
    shutil.copy(images_dir() / "pytorch" / shipped / "lock.json", path.parent)
    return path


def test_a_line_with_the_path_of_a_shipped_one_takes_its_place(own: Path) -> None:
    path = add_line(own, "cu126", status="supported")
    assert len(load_catalog().lines) == len(SHIPPED.lines)
    assert path in [entry.path for entry in load_catalog().lines]


@pytest.mark.parametrize("lock", [True, False])
def test_a_line_that_is_a_file_is_refused_with_the_commands_that_move_it(own: Path, lock: bool) -> None:
    shipped, old = images_dir() / "pytorch" / "cu126", own / "images" / "pytorch" / "cu126.yaml"
    shutil.copy(shipped / "line.yaml", old)
    if lock:
        shutil.copy(shipped / "lock.json", old.with_suffix(".lock.json"))
    refused = refusal()
    assert str(old) in refused.message
    subprocess.run(refused.remedy.removeprefix("Move it: "), shell=True, check=True)
    new = own / "images" / "pytorch" / "cu126"
    assert {path.name for path in new.iterdir()} == ({"line.yaml", "lock.json"} if lock else {"line.yaml"})
    assert new / "line.yaml" in [entry.path for entry in load_catalog().lines]
    assert [path.name for path in new.parent.iterdir()] == ["cu126"]


def test_a_line_that_is_there_twice_names_both_files(own: Path) -> None:
    path = add_line(own, "2.7.1-cu126")
    refused = refusal()
    assert str(path) in refused.message
    assert str(images_dir() / "pytorch" / "cu126" / "line.yaml") in refused.message


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("2.7.1-cu126-mine", {"variant": "mine"}),
        ("2.7.1-mine-cu126", {"variant": "mine"}),
        ("cu126-mine", {"variant": "mine"}),
        ("cu126-py312", {"python": "3.12"}),
        ("2.7.1-cu126-py312", {"python": "3.12"}),
        ("2.7.1-cu126", {"base": "debian-13"}),
        ("2.7.0-cu126", {"version": "2.7.0"}),
    ],
)
def test_lines_that_differ_have_names_that_say_so(own: Path, name: str, changes: dict[str, object]) -> None:
    path = add_line(own, name, **changes)
    assert path in [entry.path for entry in load_catalog().lines]


@pytest.mark.parametrize(
    ("name", "changes", "right"),
    [
        ("banana", {}, "cu126"),
        ("2.7.1-cu128", {}, "cu126"),
        ("2.7.2-cu126", {}, "cu126"),
        ("2.7-cu126", {}, "cu126"),
        ("cu126", {"variant": "mine"}, "cu126-mine"),
        ("cu126-mine", {}, "cu126"),
        ("cu126-py312", {}, "cu126"),
        ("cu126.old", {}, "cu126"),
    ],
)
def test_a_name_that_says_something_else_is_refused_with_the_right_one(
    own: Path, name: str, changes: dict[str, object], right: str
) -> None:
    path = add_line(own, name, **changes)
    refused = refusal()
    assert str(path) in refused.message
    assert f"{path.parent} to {path.parent.with_name(right)}," in refused.remedy


def test_a_line_of_another_folder_s_framework_is_refused(own: Path) -> None:
    path = add_line(own, "2.7.0-cu126", framework="tensorflow", version="2.7.0")
    assert str(path) in refusal().message
    assert "images/pytorch" in refusal().remedy


def test_only_lines_from_packages_go_by_cuda_alone(own: Path) -> None:
    path = add_line(own, "cu124", shipped="2.5.1-cu124", version="2.5.2")
    assert str(path) in refusal().message


def test_a_line_needs_evidence_that_says_something(own: Path) -> None:
    for evidence in ([], [{"source": "", "date": "2026-11-21", "says": "x"}], None):
        path = add_line(own, "2.7.0-cu126", version="2.7.0", evidence=evidence)
        refused = refusal()
        assert str(path) in refused.message
        assert "evidence" in refused.message


def test_the_tour_counts_the_lines() -> None:
    counted = re.findall(r"(\d+) image lines, among them", (ROOT / "docs/tour.md").read_text())
    files = list((ROOT / "images").glob("*/*/line.yaml"))
    assert counted == [str(len(files))]
    assert len(files) == len(load_catalog(images_dir(), templates_dir()).lines)
