"""``--artifacts``: where archives are, for one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.cli.flags import Verb
from trainwright.core.errors import RequestError
from trainwright.site.site import Site, load_site
from trainwright.verbs.render import RenderFlags

FILE = 'artifact_mirror = "https://mirror.example/archives"\n'


def seen(folder: Path, place: str | None) -> Site:
    """The site of a verb that was given a place."""
    sites: list[Site] = []

    def look(flags: RenderFlags) -> None:
        sites.append(load_site(cwd=folder))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_ARTIFACTS", "")  # what the verb sets is undone with it
        Verb(look).run({} if place is None else {"artifacts": place})
    return sites[0]


def places(site: Site) -> tuple[Path | None, str | None]:
    return site.artifact_folder, site.artifact_mirror


@pytest.mark.parametrize("text", ["", FILE, 'artifact_mirror = "other"\n'], ids=["no file", "a mirror", "a folder"])
def test_a_folder_is_the_only_place(tmp_path, text):
    (tmp_path / "archives").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "trainwright.toml").write_text(text)
    assert places(seen(tmp_path, "archives")) == (tmp_path / "archives", None)
    assert places(seen(tmp_path, str(tmp_path / "archives"))) == (tmp_path / "archives", None)


def test_an_address_is_the_only_place(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "trainwright.toml").write_text('artifact_mirror = "other"\n')
    assert places(seen(tmp_path, "https://mine.example/a")) == (None, "https://mine.example/a")


def test_without_it_the_file_counts(tmp_path):
    (tmp_path / "trainwright.toml").write_text(FILE)
    assert places(seen(tmp_path, None)) == (None, "https://mirror.example/archives")


@pytest.mark.parametrize("place", ["missing", "ftp://mine.example/a"])
def test_a_wrong_place_is_named(tmp_path, place):
    with pytest.raises(RequestError) as refused:
        seen(tmp_path, place)
    assert "--artifacts" in refused.value.message
    assert place.rpartition("/")[2] in refused.value.message
