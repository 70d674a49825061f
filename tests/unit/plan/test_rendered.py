"""Dockerfiles that an earlier run rendered: used while all that they come from is as it was, and never in the way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.core import paths
from trainwright.core.paths import data_root
from trainwright.plan import render, rendered
from trainwright.plan.plan import Plan
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

METIS = "templates/components/metis/Dockerfile.j2"


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what is shipped, of one line, that stands for it; the cache is empty."""
    root = tmp_path / "shipped"
    shutil.copytree(data_root() / "templates", root / "templates")
    for folder in ("images/pytorch/cpu", "images/tools"):
        shutil.copytree(data_root() / folder, root / folder)
    shutil.copy(data_root() / "images" / "tools.yaml", root / "images")
    monkeypatch.setattr(paths, "data_root", lambda: root)
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path / "cache"))
    return root


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the plans that were rendered rather than read."""
    ids: list[str] = []
    real: Callable[..., str] = render.render

    def seen(plan: Plan, catalog: object) -> str:
        ids.append(plan.id)
        return real(plan, catalog)

    monkeypatch.setattr(render, "render", seen)
    return ids


def text(**more: str) -> str:
    """The Dockerfile, as a process makes it that has just started."""
    catalog = load_catalog()
    return render_dockerfile(resolve(make_request(framework="pytorch", cuda="cpu", **more), catalog), catalog)


def kept(shipped: Path) -> list[Path]:
    return sorted((shipped.parent / "cache" / "dockerfiles").iterdir())


def test_what_was_rendered_is_not_rendered_again(shipped, fresh):
    first = text()
    fresh.clear()
    assert text() == first and not fresh
    assert "AS metis" in first and first.endswith((shipped / "templates/proof/Dockerfile").read_text())


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (METIS, "# Both archives", "# The archives"),
        ("templates/Dockerfile.j2", "# The loader gets to", "# Now the loader gets to"),
        ("templates/proof/Dockerfile", "", "# At last\n"),
    ],
)
def test_a_changed_template_is_seen_even_where_the_id_stays(shipped, file, old, new):
    first = text()
    place = shipped / file
    assert old in place.read_text()
    place.write_text(place.read_text().replace(old, new, 1))
    assert new.strip() in text() and new.strip() not in first


def test_another_plan_has_its_own(shipped):
    assert text() != text(with_="compiler")


@pytest.mark.parametrize("damage", [lambda _: "", lambda said: said[:-9], lambda said: said.replace("RUN", "RUM", 1)])
def test_a_damaged_one_is_rendered_anew(shipped, fresh, damage):
    first = text()
    (file,) = kept(shipped)
    file.write_text(damage(file.read_text()))
    fresh.clear()
    assert text() == first and fresh


def test_where_nothing_can_be_kept_nothing_is(shipped, fresh):
    (shipped.parent / "cache").mkdir()
    (shipped.parent / "cache" / "dockerfiles").write_text("not a folder")
    assert text() == text()
    assert len(fresh) >= 2


def test_the_oldest_go(shipped, monkeypatch):
    monkeypatch.setattr(rendered, "KEPT", 2)
    text()
    (first,) = kept(shipped)
    os.utime(first, (1, 1))
    text(with_="compiler")
    text(with_="torchaudio")
    assert len(kept(shipped)) == 2 and first not in kept(shipped)
