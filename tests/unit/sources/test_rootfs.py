"""The root file system of a lock: where one is looked for, and that another one is never taken for it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.support.loopback import loopback, truncated
from trainwright.core.errors import EngineError, SourceError
from trainwright.core.paths import cache_dir
from trainwright.plan.plan_lock import LockedBase
from trainwright.site.site import Site
from trainwright.sources import rootfs
from trainwright.sources.debian_base import RootFileSystem
from trainwright.sources.gather import gather_base

GOOD = b"a root file system" * 100
SHA = hashlib.sha256(GOOD).hexdigest()


def quiet(_: str) -> None:
    """Nobody listens."""


class Maker:
    """Stands in for mmdebstrap: what it makes, the first time and anew."""

    def __init__(self, folder: Path, *contents: bytes) -> None:
        self.folder, self.contents = folder, list(contents)
        self.refreshed: list[bool] = []

    def __call__(self, *_: object, refresh: bool = False, **__: object) -> RootFileSystem:
        self.refreshed.append(refresh)
        if not self.contents:
            raise EngineError("mmdebstrap is not installed")
        path = self.folder / f"made-{len(self.refreshed)}.tar"
        path.write_bytes(self.contents.pop(0))
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        return RootFileSystem(path, sha256, 1, "2026-11-21T00:00:00+00:00", cached=False, stale=False, size=1)


@pytest.fixture(autouse=True)
def maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path / "cache"))
    made = Maker(tmp_path)
    monkeypatch.setattr(rootfs, "make_base", made)
    return made


def find(site: Site | None = None) -> Path:
    base = LockedBase(kind="debian", os="debian-12", sha256=SHA)
    gathered = gather_base(base, site or Site()).rootfs
    assert gathered is not None
    return rootfs.locked_rootfs(gathered, "debian-12", site or Site(), say=quiet)


def place(path: Path, content: bytes = GOOD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_the_folder_of_the_site_comes_first(tmp_path):
    place(rootfs.store().path(rootfs.FILE, SHA))
    here = place(tmp_path / "m" / SHA[:2] / SHA / rootfs.FILE)
    assert find(Site(artifact_folder=tmp_path / "m")) == here


def test_a_kept_one_is_taken_though_the_base_was_made_anew():
    path = place(cache_dir() / "base" / "x" / rootfs.FILE)
    rootfs.keep(path, SHA)
    path.unlink()
    place(path, b"a newer one")
    assert find().read_bytes() == GOOD


def test_the_base_of_the_cache_is_known_by_its_note():
    path = place(cache_dir() / "base" / "x" / rootfs.FILE)
    note = place(path.with_name("base.json"), b"{")
    with pytest.raises(SourceError):
        find()
    note.write_text(json.dumps({"sha256": SHA}))
    assert find() == path


def test_the_mirror_of_the_site_is_asked_and_what_it_has_is_kept():
    with loopback() as server:
        server.pages = {f"/m/{SHA[:2]}/{SHA}/{rootfs.FILE}": GOOD}
        site = Site(artifact_mirror=f"{server.url}/m")
        assert find(site).read_bytes() == GOOD
        server.pages.clear()
        assert find(site).read_bytes() == GOOD
        assert len(server.asked) == 1


def test_one_that_is_made_anew_is_taken_where_it_is_the_same(tmp_path, maker):
    maker.contents = [b"of last month", GOOD]
    assert find().read_bytes() == GOOD
    assert maker.refreshed == [False, True]
    assert rootfs.store().path(rootfs.FILE, SHA).read_bytes() == GOOD


@pytest.mark.parametrize("contents", [[], [b"today's", b"today's"]])
def test_another_one_is_never_taken(tmp_path, maker, contents):
    maker.contents = list(contents)
    path = place(tmp_path / "m" / SHA[:2] / SHA / rootfs.FILE, GOOD[:-1])
    with loopback() as server:
        server.pages = {f"/{rootfs.FILE}": truncated(GOOD)}
        site = Site(artifact_folder=tmp_path / "m", artifact_mirror=server.url)
        with pytest.raises(SourceError) as refused:
            find(site)
    failure = refused.value
    assert failure.exit_code == 8
    assert (failure.details["component"], failure.details["file"]) == ("base", rootfs.FILE)
    assert failure.details["expected"] == SHA
    assert f"{path}: has the sha256" in failure.message
    assert f"{server.url}/{rootfs.FILE}" in failure.message
    assert ("archive has changed" in failure.message) == bool(contents)
    assert "--upgrade base" in failure.remedy
