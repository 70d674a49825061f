"""A user's own folder of image lines and components, beside the shipped ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.catalogs import write_own
from tests.support.in_process import call
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import Conflict, RequestError
from trainwright.core.paths import images_dir, templates_dir
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.prove.smoke import collect

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one component and one line that holds it."""
    monkeypatch.setenv("TRAINWRIGHT_CATALOG", str(tmp_path / "own"))
    return write_own(tmp_path / "own")


def test_own_lines_and_components_come_on_top(own):
    catalog = load_catalog()
    shipped = load_catalog(images_dir(), templates_dir())
    assert {e.path for e in shipped.lines} < {e.path for e in catalog.lines}
    assert set(catalog.components) - set(shipped.components) == {"hello"}
    plan = resolve(make_request(framework="pytorch", cuda="cpu", python="3.12"), catalog)
    assert "RUN hello" in render_dockerfile(plan, catalog)
    unchanged = resolve(make_request(framework="pytorch", cuda="cu124"), catalog)
    assert unchanged == resolve(make_request(framework="pytorch", cuda="cu124"), shipped)


def test_an_own_rule_file_takes_the_place_of_the_shipped_one(own):
    """Who has wheels of their own for what AWS never compiled says so in a rule file of their own."""
    rules = own / "templates" / "rules.yaml"
    assert len(load_catalog().rules.rules) > 1
    rules.write_text(
        "rules:\n- name: no-hello\n  when: {components: {hello: {}}}\n  refuse: hello\n  why: nobody is there\n"
        "  evidence: {source: here, date: '2026-11-21', says: nobody}\n"
    )
    assert [rule.name for rule in load_catalog().rules.rules] == ["no-hello"]
    with pytest.raises(Conflict, match="no image line"):
        resolve(make_request(framework="pytorch", cuda="cpu", python="3.12"), load_catalog())


def test_an_own_component_takes_the_place_of_a_shipped_one(own):
    folder = own / "templates" / "components" / "metis"
    shutil.copytree(templates_dir() / "components" / "metis", folder)
    template = folder / "Dockerfile.j2"
    template.write_text(template.read_text().replace("{% macro residue(c) %}", "{% macro residue(c) %}\nRUN mine"))
    catalog = load_catalog()
    plan = resolve(make_request(framework="pytorch", cuda="cu124"), catalog)
    assert "RUN mine" in render_dockerfile(plan, catalog)


def test_image_tests_of_own_components_are_collected(own):
    catalog = load_catalog()
    folders = {name: folder.path for name, folder in catalog.components.items()}
    files, untested = collect(templates_dir(), ["metis", "hello"], folders)
    assert own / "templates" / "components" / "hello" / "test_hello.py" in files
    assert not untested


def test_an_empty_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINWRIGHT_CATALOG", str(tmp_path))
    with pytest.raises(RequestError, match="neither"):
        load_catalog()


def test_the_flag_does_what_the_variable_does(own, monkeypatch):
    monkeypatch.delenv("TRAINWRIGHT_CATALOG")
    words = ["plan", "--framework", "pytorch", "--cuda", "cpu", "--python", "3.12", "--json"]

    assert call(*words, cwd=own).returncode == 3
    done = call(*words, "--catalog", str(own), cwd=own)
    assert done.returncode == 0, done.stderr
    assert "hello" in [component["name"] for component in json.loads(done.stdout)["components"]]
