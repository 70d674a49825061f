"""Begun components and image lines: refused until they are filled, taken as they are then; nothing is overwritten."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from devtools.scaffold import new_component, new_line
from tests.support.catalogs import write_hello
from tests.support.in_process import call
from trainwright.catalog.catalog import load_catalog
from trainwright.core.data_files import read_yaml
from trainwright.core.errors import Conflict, RequestError
from trainwright.core.paths import images_dir, templates_dir
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

ROOT = Path(__file__).resolve().parents[3]
LIKE = str(images_dir() / "pytorch" / "cu126")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's own catalog, which is not there yet."""
    monkeypatch.setenv("TRAINWRIGHT_CATALOG", str(tmp_path / "own"))
    return tmp_path / "own"


@pytest.fixture
def said() -> list[str]:
    return []


def refusal() -> str:
    with pytest.raises(RequestError) as refused:
        load_catalog()
    return refused.value.message


def filled(file: Path, **values: object) -> None:
    """Write the values of a file anew: what is filled in, and what was there."""
    file.write_text(yaml.safe_dump(read_yaml(file) | values))


# ---- components ------------------------------------------------------------------------------------------------------


def test_a_begun_component_is_refused_until_every_part_is_filled(own: Path, said: list[str]) -> None:
    files = new_component("tiny-attn", str(own), say=said.append)
    folder = own / "templates" / "components" / "tiny-attn"
    data, template, tests = folder / "component.yaml", folder / "Dockerfile.j2", folder / "test_tiny_attn.py"
    assert set(files) == {data, template, tests} == set(folder.iterdir())
    assert all(field in refusal() for field in (str(data), "summary", "order", "about", "expect", "probe"))
    provider = {"about": "wheels", "expect": {"version": "{version}"}}
    filled(data, summary="attention", order=60)
    assert all(field in refusal() for field in (str(data), "about", "expect", "probe"))
    filled(data, providers={"wheel": provider | {"expect": {}}}, probe=[])
    assert all(word in refusal() for word in (str(data), "provider wheel", "expect"))
    filled(data, providers={"wheel": provider})
    assert all(word in refusal() for word in (str(data), "provider wheel", "probe"))
    filled(data, probe=[{"run": "pip show tiny-attn", "match": {"version": "^Version: (.+)$"}}])
    assert str(tests) in refusal()
    tests.write_text(tests.read_text() + "\n\ndef test_it(host):\n    assert host\n")
    assert "tiny-attn" in load_catalog().components


def named_command(said: list[str]) -> subprocess.CompletedProcess[str]:
    """What the command answers that a scaffold names for what is still missing."""
    (command,) = [m[1] for line in said if (m := re.search(r"\./invoke (.+) says what is still missing", line))]
    return call(*shlex.split(command))


def test_the_command_that_a_begun_component_names_says_what_is_missing(own: Path, said: list[str]) -> None:
    new_component("tiny-attn", str(own), say=said.append)
    answer = named_command(said)
    assert answer.returncode == 2
    assert all(field in answer.stderr for field in ("tiny-attn/component.yaml", "summary", "order", "probe"))


def test_of_a_component_that_is_to_be_shipped_too(
    said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the shipped folder, unlike of the user's own, only what is asked for is read."""
    for folder in (images_dir(), templates_dir()):
        shutil.copytree(folder, tmp_path / folder.name)
    for module in ("trainwright.core.paths", "devtools.scaffold"):
        monkeypatch.setattr(f"{module}.data_root", lambda: tmp_path)
    new_component("tiny-attn", None, say=said.append)
    answer = named_command(said)
    assert answer.returncode == 2
    assert all(field in answer.stderr for field in ("tiny-attn/component.yaml", "summary", "order", "probe"))


def test_the_command_that_a_begun_line_names_says_what_is_missing(own: Path, said: list[str]) -> None:
    new_line(str(images_dir() / "pytorch" / "cpu"), "9.9.9", str(own), say=said.append)
    answer = named_command(said)
    assert answer.returncode == 2
    assert all(field in answer.stderr for field in ("9.9.9-cpu/line.yaml", "status", "evidence"))


def test_the_template_of_a_begun_component_installs_its_wheels(own: Path, said: list[str]) -> None:
    new_component("tqdm", str(own), say=said.append)
    folder = own / "templates" / "components" / "tqdm"
    provider = {"about": "wheels", "expect": {"version": "{version}"}}
    probe = [{"python": "import json, tqdm; print(json.dumps({'version': tqdm.__version__}))"}]
    filled(folder / "component.yaml", summary="bars", order=60, providers={"wheel": provider}, probe=probe)
    (folder / "test_tqdm.py").write_text("def test_tqdm(host):\n    host.check_output('tqdm --version')\n")
    line = read_yaml(images_dir() / "pytorch" / "cpu" / "line.yaml")
    lock = yaml.safe_load((images_dir() / "pytorch" / "cpu" / "lock.json").read_text())
    (package,) = [package for package in lock["packages"] if package["name"] == "tqdm"]
    chosen = {"provider": "wheel", "version": package["version"], "packages": [f"tqdm=={package['version']}"]}
    path = own / "images" / "pytorch" / "cpu" / "line.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump({**line, "components": {**line["components"], "tqdm": chosen}}))
    package["components"] = [*package["components"], "tqdm"]
    path.with_name("lock.json").write_text(json.dumps(lock))
    catalog = load_catalog()
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), catalog)
    assert "requirements/tqdm.txt" in render_dockerfile(plan, catalog)


@pytest.mark.parametrize("name", ["", "Flash", "../flash", "flash attn", "flash/attn", "-x", "a" * 65, "é"])
def test_names_that_are_no_names(own: Path, said: list[str], name: str) -> None:
    with pytest.raises(RequestError):
        new_component(name, str(own), say=said.append)
    assert not own.exists()


@pytest.mark.parametrize("name", ["123", "on", "null", "1e3"])
def test_names_that_yaml_would_read_as_something_else(own: Path, said: list[str], name: str) -> None:
    (data, *_) = new_component(name, str(own), say=said.append)
    assert read_yaml(data)["name"] == name


@pytest.mark.parametrize("name", ["hello", "openmpi"])
def test_a_component_that_is_there_is_left_alone(own: Path, said: list[str], name: str) -> None:
    write_hello(own / "templates")
    before = {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}
    with pytest.raises(RequestError, match=name):
        new_component(name, str(own), say=said.append)
    assert before == {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}


# ---- lines -----------------------------------------------------------------------------------------------------------


def test_a_begun_line_is_refused_until_it_is_filled(own: Path, said: list[str]) -> None:
    path = new_line(LIKE, "2.7.0", str(own), say=said.append)
    assert path == own / "images" / "pytorch" / "2.7.0-cu126" / "line.yaml"
    empty = ("status", "components.nccl.version", "components.cuda.packages", "options.torchvision.version", "evidence")
    assert all(field in refusal() for field in (str(path), *empty))
    filled(path, status="unmaintained", options={})
    assert "components.nccl.version" in refusal()
    line = read_yaml(path)
    nccl = {"provider": "wheel", "version": "2.26.2", "packages": ["nvidia-nccl-cu12==2.26.2"]}
    cuda = {"provider": "wheel", "version": "12.6", "packages": ["nvidia-cuda-runtime-cu12==12.6.77"]}
    filled(path, components=line["components"] | {"nccl": nccl, "cuda": cuda})
    assert "evidence" in refusal()
    filled(path, evidence=[{"source": "a wheel's metadata", "date": "2026-11-21", "says": "pins NCCL 2.26.2"}])
    (entry,) = [entry for entry in load_catalog().lines if entry.path == path]
    assert entry.line.components["pytorch"].packages == ("torch==2.7.0", "numpy==2.4.6", "setuptools==81.0.0")


@pytest.mark.parametrize(
    "like", sorted(images_dir().glob("*/*/line.yaml")), ids=lambda path: f"{path.parents[1].name}-{path.parent.name}"
)
def test_nothing_that_was_known_of_the_old_version_is_claimed_of_the_new_one(
    tmp_path: Path, said: list[str], like: Path
) -> None:
    """The lines are of every kind of base; a new one of each has the old one's shape and none of its evidence."""
    path = new_line(str(like), "9.9.9", str(tmp_path), say=said.append)
    old, new = read_yaml(like), read_yaml(path)
    assert new["version"] == "9.9.9" in path.parent.name
    assert new["evidence"] is None
    assert new["status"] is None
    assert not {"preferred", "as_of", "notices", "budget"} & set(new)
    assert "\n# budget: " in path.read_text(), "the scaffold mentions it"
    assert set(new["components"]) == set(old["components"])
    assert set(new) <= set(old) | {"options"}
    text = path.read_text()
    assert not any(row["says"].strip() in text for row in old["evidence"])
    if isinstance(old["base"], dict) and old["base"]["kind"] == "dlc":
        assert new["base"]["image"] is None


@pytest.mark.parametrize(
    ("like", "version", "word"),
    [
        ("nothing.yaml", "2.7.0", "nothing.yaml"),
        (LIKE, "2.7.1", "2.7.1"),
        (LIKE, "../x", "../x"),
        (LIKE, "", "--version"),
        (None, "2.7.0", "--like"),
        (LIKE, None, "--version"),
        (str(ROOT / "templates" / "rules.yaml"), "2.7.0", "rules.yaml"),
    ],
)
def test_what_no_line_can_begin_from(
    own: Path, said: list[str], like: str | None, version: str | None, word: str
) -> None:
    with pytest.raises(RequestError, match=word):
        new_line(like, version, str(own), say=said.append)
    assert not own.exists()


def test_a_line_that_is_there_is_left_alone(own: Path, said: list[str]) -> None:
    path = new_line(LIKE, "2.7.0", str(own), say=said.append)
    filled(path, status="supported")
    before = path.read_bytes()
    with pytest.raises(RequestError, match=r"2\.7\.0-cu126"):
        new_line(LIKE, "2.7.0", str(own), say=said.append)
    assert path.read_bytes() == before


# ---- the verbs -------------------------------------------------------------------------------------------------------


def test_the_verbs_write_where_the_flag_says_and_name_what_comes_next(tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "TRAINWRIGHT_CATALOG"}
        return subprocess.run(
            [sys.executable, str(ROOT / "tasks.py"), *words],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    line = run("new-line", "--like", "images/pytorch/cu126", "--version", "2.7.0", "--catalog", "own")
    assert line.returncode == 0, line.stderr
    assert (tmp_path / "own" / "images" / "pytorch" / "2.7.0-cu126" / "line.yaml").is_file()
    assert "lock-lines --framework pytorch --version 2.7.0 --catalog own" in line.stderr
    assert "--smoke" in line.stderr
    listed = run("list", "--catalog", "own")
    assert (listed.returncode, "2.7.0-cu126/line.yaml" in listed.stderr) == (2, True)
    component = run("new-component", "tiny-attn", "--catalog", "own")
    assert component.returncode == 0, component.stderr
    assert run("new-component", "tiny-attn", "--catalog", "own").returncode == 2
    assert run("new-line", "--like", "images/pytorch/cu126").returncode == 2


# ---- a component that no line lists ----------------------------------------------------------------------------------


def list_in(own: Path, conflict: Conflict, file: str, name: str) -> None:
    """Do what the remedy says: put its entry under ``options:`` of the file."""
    assert f"images/pytorch/{file}/line.yaml" in conflict.remedy
    (entry,) = [text for text in conflict.remedy.splitlines() if text.startswith(f"  {name}: ")]
    path = own / "images" / "pytorch" / file / "line.yaml"
    path.parent.mkdir(parents=True)
    shipped = images_dir() / "pytorch" / file
    text = (shipped / "line.yaml").read_text()
    assert text.count("\noptions:\n") == 1
    path.write_text(text.replace("\noptions:\n", f"\noptions:\n{entry}\n"))
    path.with_name("lock.json").write_text((shipped / "lock.json").read_text())


def test_a_component_that_no_line_lists_is_listed_as_the_remedy_says(own: Path) -> None:
    write_hello(own / "templates")
    request = make_request(framework="pytorch", cuda="cu124", with_="hello")
    with pytest.raises(Conflict) as refused:
        resolve(request, load_catalog())
    (row,) = refused.value.details["rows"]
    assert all(word in row["evidence"] for word in ("hello", "debian", "2.10"))
    list_in(own, refused.value, "cu124", "hello")
    hello = resolve(request, load_catalog()).component("hello")
    assert hello is not None
    assert (hello.provider, hello.version) == ("debian", "2.10")


def test_the_nearest_line_is_the_one_that_has_everything_else(own: Path) -> None:
    write_hello(own / "templates")
    for words, file in (({"version": "2.5.1"}, "2.5.1-cu124"), ({"cuda": "cpu"}, "cpu"), ({"cuda": "cu132"}, "cu132")):
        with pytest.raises(Conflict) as refused:
            resolve(make_request(framework="pytorch", with_="hello", **words), load_catalog())  # type: ignore[arg-type]
        assert f"images/pytorch/{file}/line.yaml" in refused.value.remedy


def test_without_a_table_of_versions_the_user_fills_in_the_package(own: Path) -> None:
    folder = write_hello(own / "templates")
    file = folder / "component.yaml"
    file.write_text(file.read_text().replace("    versions: {'2.10': {}}\n", ""))
    with pytest.raises(Conflict) as refused:
        resolve(make_request(framework="pytorch", cuda="cu124", with_="hello"), load_catalog())
    (entry,) = [text for text in refused.value.remedy.splitlines() if text.startswith("  hello: ")]
    assert yaml.safe_load(entry)["hello"]["packages"] == ["hello==VERSION"]


def test_a_component_of_other_frameworks_is_no_secret() -> None:
    with pytest.raises(Conflict) as refused:
        resolve(make_request(framework="tensorflow", cuda="cpu", with_="torchvision"), load_catalog())
    assert "torchvision" in refused.value.message
