"""Asking for the sources of image lines: what is missing, who needs it, what nobody pins; each asked for once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.catalogs import write_hello
from tests.support.loopback import Loopback, loopback, status
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.image_line import Line
from trainwright.core.errors import SourceError
from trainwright.core.paths import images_dir, templates_dir
from trainwright.engine.engine import Client, Engine
from trainwright.site.site import Site
from trainwright.sources import reachability
from trainwright.sources import survey as surveying
from trainwright.sources.inputs import Input, Inputs
from trainwright.sources.survey import LineSources, SourcesDocument, survey

# A program that answers nothing, so no test asks the machine's own engine.
ENGINE = Engine(Client("/bin/false", "builtin", "20.10", "plain"), "20.10")
LINE = """\
framework: pytorch
version: {version}
cuda: cpu
python: "3.11"
base: debian-12
status: supported
components:
  python: {{provider: debian, version: "3.11"}}
  hello: {{provider: archive, version: "2.10"}}
evidence: [{{source: this test, date: "2026-11-22", says: small}}]
"""


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path / "cache"))
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as running:
        yield running


@pytest.fixture
def catalog(tmp_path: Path, server: Loopback) -> Catalog:
    """Two lines with one archive, which is on a server of this machine."""
    templates = tmp_path / "templates"
    shutil.copytree(templates_dir(), templates)
    file = write_hello(templates) / "component.yaml"
    source = f"{{file: hello-2.10.tar.gz, url: '{server.url}/hello-2.10.tar.gz'}}"
    provider = f"  archive:\n    about: hello\n    versions: {{'2.10': {{sources: [{source}]}}}}\n"
    own = file.read_text().replace("providers:\n", f"providers:\n{provider}    expect: {{version: '{{version}}'}}\n")
    file.write_text(own)
    for version in ("2.13.0", "2.12.0"):
        line = tmp_path / "images" / "pytorch" / f"{version}-cpu"
        line.mkdir(parents=True)
        (line / "line.yaml").write_text(LINE.format(version=version))
        shutil.copy(images_dir() / "pytorch" / "cpu" / "lock.json", line)
    return load_catalog(tmp_path / "images", templates)


def nothing(_: Line, __: Inputs) -> Iterable[Input]:
    return ()


def asked(catalog: Catalog, missing=nothing) -> SourcesDocument:
    return survey(catalog.lines, catalog, Site(), ENGINE, missing, say=lambda _: None)


def rows(document: SourcesDocument) -> list[LineSources]:
    return sorted(document.lines, key=lambda line: line.version)


def test_an_archive_of_two_lines_is_asked_for_once(catalog: Catalog, server: Loopback) -> None:
    server.pages["/hello-2.10.tar.gz"] = b"bytes"
    document = asked(catalog)
    assert [(row.version, row.unavailable, row.problem) for row in rows(document)] == [
        ("2.12.0", (), ""),
        ("2.13.0", (), ""),
    ]
    assert [row.unpinned for row in rows(document)] == [("hello-2.10.tar.gz",)] * 2
    assert len(server.asked) == 1


def test_what_is_gone_is_named_with_its_place_and_who_needs_it(catalog: Catalog, server: Loopback) -> None:
    server.pages["/hello-2.10.tar.gz"] = status(410)
    for row in rows(asked(catalog)):
        (gone,) = row.unavailable
        assert (gone.kind, gone.name, gone.needed_by) == ("archive", "hello-2.10.tar.gz", "hello")
        ((place, why),) = gone.places.items()
        assert place == f"{server.url}/hello-2.10.tar.gz"
        assert "410" in why


def test_a_package_that_no_index_has_is_missing_in_its_line_alone(catalog: Catalog, server: Loopback) -> None:
    server.pages["/hello-2.10.tar.gz"] = b"bytes"

    def first(entry: Line, inputs: Inputs) -> Iterable[Input]:
        return [next(file for file in inputs.python if file.owner == "tools")] if entry.line.version == "2.12.0" else ()

    old, new = rows(asked(catalog, first))
    assert [(gone.kind, gone.needed_by) for gone in old.unavailable] == [("python package", "tools")]
    assert new.unavailable == ()


def test_an_index_that_does_not_answer_is_the_problem_of_a_line(catalog: Catalog, server: Loopback) -> None:
    server.pages["/hello-2.10.tar.gz"] = b"bytes"

    def silent(_: Line, __: Inputs) -> Iterable[Input]:
        raise SourceError("the index does not answer", remedy="")

    assert [row.problem for row in rows(asked(catalog, silent))] == ["the index does not answer"] * 2


def test_each_line_is_reported_as_soon_as_it_is_checked(catalog: Catalog, server: Loopback) -> None:
    """The result of the first line is reported while the second is still being checked."""
    server.pages["/hello-2.10.tar.gz"] = b"bytes"
    told: list[str] = []
    first_told = threading.Event()

    def say(line: str) -> None:
        told.append(line)
        if "(1 of 2 lines)" in line:
            first_told.set()

    second = catalog.lines[1].line.version

    def slow(entry: Line, inputs: Inputs) -> Iterable[Input]:
        if entry.line.version == second:
            assert first_told.wait(30), "the first line waited for the second"
            return [file for file in inputs.python if file.owner == "tools"][:1]
        return ()

    survey(catalog.lines, catalog, Site(), ENGINE, slow, say=say)
    one, two = [line for line in told if " lines)" in line]
    assert "sources answer" in one
    assert "missing: " in two


# What an engine says of a tag that a registry does not have (distribution's errcode MANIFEST_UNKNOWN).
UNKNOWN = "manifest unknown: manifest unknown"


@pytest.mark.parametrize("also_gone", [False, True])
def test_an_image_of_nvidia_is_asked_for_at_its_other_registry(
    monkeypatch: pytest.MonkeyPatch, also_gone: bool
) -> None:
    shipped = load_catalog()
    entry = next(each for each in shipped.lines if each.line.base.kind == "nvidia")
    asked_for = []

    def registry(_: Engine, image: str) -> str:
        asked_for.append(image)
        return UNKNOWN if also_gone or not image.startswith("nvcr.io/") else ""

    monkeypatch.setattr(reachability, "_ask_registry", registry)
    monkeypatch.setattr(surveying, "archive_sources", lambda *_: [])
    (line,) = survey([entry], shipped, Site(), ENGINE, nothing, say=lambda _: None).lines
    images = {one.name for one in line.unavailable}
    others = {f"nvcr.io/{image}" for image in images}
    assert images
    assert set(asked_for) == images | others
    for one in line.unavailable:
        other, plain = f"nvcr.io/{one.name}", one.name.partition("@")[0]
        assert one.places[one.name] == UNKNOWN
        found = f"has it: docker pull nvcr.io/{plain} && docker tag nvcr.io/{plain} {plain}"
        assert one.places[f"nvcr.io/{plain}"] == (UNKNOWN if also_gone else found), other
