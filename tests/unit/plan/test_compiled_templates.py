"""Templates that an earlier run compiled: used while they are as they were, and never in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import jinja2
import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.plan import render
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()
PLAN = resolve(make_request(framework="pytorch", cuda="cpu"), CATALOG)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The cache folder of this test."""
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    render._loaded.cache_clear()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The templates that were compiled."""
    names: list[str] = []
    real: Callable[..., object] = jinja2.Environment.compile

    def seen(self: jinja2.Environment, source: str, name: str, *more: object, **words: object) -> object:
        names.append(name)
        return real(self, source, name, *more, **words)

    monkeypatch.setattr(jinja2.Environment, "compile", seen)
    return names


def rendered() -> str:
    """As a process does that has just started."""
    render._loaded.cache_clear()
    return render.render(PLAN, CATALOG)


def test_a_second_process_compiles_nothing(cache, compiled):
    first = rendered()
    assert "macros.j2" in compiled
    compiled.clear()
    assert rendered() == first and not compiled


def test_a_changed_template_is_compiled_anew(cache, tmp_path, compiled):
    (tmp_path / "a.j2").write_text("before")

    def text() -> str:
        render._loaded.cache_clear()
        return render._environment((tmp_path,)).get_template("a.j2").render()

    assert text() == "before"
    (tmp_path / "a.j2").write_text("after")
    assert (text(), text()) == ("after", "after") and compiled == ["a.j2", "a.j2"]


@pytest.mark.parametrize("keep", [0, 3, 40])
def test_what_a_killed_run_left_is_compiled_anew(cache, compiled, keep):
    first = rendered()
    for file in (cache / "templates").iterdir():
        file.write_bytes(file.read_bytes()[:keep])
    compiled.clear()
    assert rendered() == first and "macros.j2" in compiled


def test_where_nothing_can_be_kept_nothing_is(cache, compiled, monkeypatch):
    first = rendered()

    def full(self: object, bucket: object) -> None:
        raise OSError(28, "No space left on device")

    for file in (cache / "templates").iterdir():
        file.unlink()
    monkeypatch.setattr(jinja2.FileSystemBytecodeCache, "dump_bytecode", full)
    assert rendered() == first
    (cache / "templates").rmdir()
    (cache / "templates").write_text("not a folder")
    assert rendered() == first
