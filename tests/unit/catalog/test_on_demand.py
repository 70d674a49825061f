"""What `plan` and `list` read of the catalog: what they ask for, and no more."""

from __future__ import annotations

import shutil

import pytest

from trainwright.catalog import catalog as module
from trainwright.catalog.catalog import Catalog, load_catalog, open_catalog
from trainwright.catalog.image_line import begins
from trainwright.core.errors import RequestError
from trainwright.core.paths import images_dir, templates_dir
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve


@pytest.fixture
def read(monkeypatch):
    """The files that are read, by folder and name."""
    files = []
    real = module.read_yaml.__wrapped__
    for name in ("_read_line", "_read_component"):
        monkeypatch.setattr(module, name, getattr(module, name).__wrapped__)
    monkeypatch.setattr(module, "read_yaml", lambda path: files.append("/".join(path.parts[-3:])) or real(path))
    return files


def test_opening_the_catalog_reads_nothing_and_asking_for_rules_reads_them_once(read):
    catalog = open_catalog()
    assert catalog.frameworks()
    assert "nccl" in catalog.components
    assert "ncl" not in catalog.components
    assert read == []
    assert catalog.rules.rules == catalog.rules.rules
    assert [name.rpartition("/")[2] for name in read] == ["rules.yaml"]


def test_a_catalog_of_one_line_reads_no_rules_anew(read):
    catalog = open_catalog()
    alone = [catalog.alone(entry) for entry in catalog.lines_of("tensorflow")]
    read.clear()
    assert {len(each.rules.rules) for each in alone} == {len(catalog.rules.rules)}
    assert [name.rpartition("/")[2] for name in read] == ["rules.yaml"]


def test_a_plan_reads_the_lines_of_its_framework_and_each_file_once(read):
    catalog = open_catalog()
    resolve(make_request(framework="pytorch-trcomp"), catalog)
    lines = [name for name in read if name.endswith("/line.yaml")]
    assert len(lines) == len(catalog.lines_of("pytorch-trcomp")) > 0
    assert {name.partition("/")[0] for name in lines} == {"pytorch-trcomp"}
    assert len(read) == len(set(read))
    assert sum(name.endswith("/component.yaml") for name in read) < len(catalog.components)


def test_a_plan_of_a_version_reads_the_lines_that_name_it(read):
    resolve(make_request(framework="pytorch", version="1.12", cuda="cu113"), open_catalog())
    lines = [name for name in read if name.endswith("/line.yaml")]
    assert 0 < len(lines) < len(load_catalog().lines_of("pytorch"))


@pytest.mark.parametrize("length", [1, 2, 3])
def test_no_line_of_a_version_is_missed(length):
    whole = load_catalog().lines_of("pytorch")
    for version in {".".join(entry.line.version.split(".")[:length]) for entry in whole}:
        found = open_catalog().lines_of("pytorch", version)
        assert [e for e in found if begins(e.line.version, version)] == [
            e for e in whole if begins(e.line.version, version)
        ]


def test_a_catalog_read_on_demand_is_the_catalog_read_whole():
    whole, opened = load_catalog(), open_catalog()
    assert opened.lines == whole.lines
    assert dict(opened.components) == dict(whole.components)
    for request in (make_request(framework="pytorch", cuda="cu124"), make_request(framework="tensorflow", base="dlc")):
        assert resolve(request, open_catalog()) == resolve(request, whole)


def test_a_catalog_is_made_of_any_lines_in_the_usual_order():
    whole = load_catalog()
    again = Catalog(whole.lines, whole.components, whole.rules)
    assert again.lines == whole.lines
    assert again.lines_of("pytorch") == whole.lines_of("pytorch")
    assert again.lines_of("nothing") == ()


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A copy of the shipped data in which a test breaks something."""
    shutil.copytree(images_dir(), tmp_path / "images")
    shutil.copytree(templates_dir(), tmp_path / "templates")
    monkeypatch.setattr("trainwright.core.paths.data_root", lambda: tmp_path)
    return tmp_path


def test_a_broken_line_of_another_framework_stops_no_plan(shipped):
    next((shipped / "images" / "tensorflow").glob("*/line.yaml")).write_text("framework: [\n")
    assert resolve(make_request(framework="pytorch-trcomp"), open_catalog()).framework == "pytorch-trcomp"
    with pytest.raises(RequestError, match="not readable as YAML"):
        resolve(make_request(framework="tensorflow"), open_catalog())
    with pytest.raises(RequestError, match="not readable as YAML"):
        load_catalog()


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("provider: wheel", "provider: whel", "has no provider 'whel'. Did you mean wheel"),
        ("  nccl:", "  ncl:", "no component 'ncl'. Did you mean nccl"),
    ],
)
def test_what_a_line_names_is_held_to_what_there_is_before_it_is_used(shipped, old, new, wrong):
    path = shipped / "images" / "pytorch" / "cu124" / "line.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(RequestError, match=wrong):
        resolve(make_request(framework="pytorch", cuda="cu124"), open_catalog())
    with pytest.raises(RequestError, match=wrong):
        catalog = open_catalog()
        [catalog.from_packages(entry) for entry in catalog.lines]


def test_a_folder_of_the_users_own_is_checked_whole(shipped, tmp_path, monkeypatch):
    own = tmp_path / "own"
    target = own / "images" / "tensorflow" / "cpu" / "line.yaml"
    target.parent.mkdir(parents=True)
    target.write_text("framework: tensorflow\n")
    monkeypatch.setenv("TRAINWRIGHT_CATALOG", str(own))
    with pytest.raises(RequestError, match="is missing"):
        open_catalog()
