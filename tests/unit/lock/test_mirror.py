"""Mirrors: what is refused before anything is fetched, which places are asked, how a file that is nowhere is told."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support.loopback import truncated
from trainwright.catalog.wheel_lock import PLATFORM
from trainwright.core.errors import Conflict, RequestError, SourceError
from trainwright.engine.engine import Client, Engine
from trainwright.lock import mirror, python_files
from trainwright.plan.plan_lock import LockedArchive, LockedBase, LockedPython, PlanLock
from trainwright.site.site import Site, load_site
from trainwright.sources.gather import gather_lock
from trainwright.sources.inputs import Materials
from trainwright.sources.locations import Store

GOOD = b"the right bytes" * 100
SHA = hashlib.sha256(GOOD).hexdigest()
FILE = "thing-1.0.tar.gz"
WHEEL = "thing-1.0-py3-none-any.whl"
ENGINE = Engine(Client("/bin/false", "builtin", "20.10", "plain"), "20.10")
PLAN = "f" * 64


pytestmark = pytest.mark.usefixtures("own_places")


def lock(**update: object) -> PlanLock:
    base = LockedBase(kind="debian", os="debian-12", sha256="b" * 64)
    made = PlanLock(plan=PLAN, request="--framework x", python_version="3.11", platform=PLATFORM, base=base)
    return made.replace(**{"python": (), "tools": (), "system": ()} | update)


def archive(url: str) -> LockedArchive:
    return LockedArchive(component="thing", file=FILE, url=url, sha256=SHA)


def package(name: str = "thing") -> LockedPython:
    return LockedPython(name=name, version="1.0", file=f"{name}-1.0-py3-none-any.whl", sha256=SHA, component="user")


def gathered(made: PlanLock, site: Site) -> Materials:
    assert made.base is not None
    return gather_lock(made, made.base, site)


def pull_archive(url: str, folder: Path, site: Site) -> None:
    mirror._archives(gathered(lock(archives=(archive(url),)), site).archives, folder, site, quiet)


def pull_wheels(made: PlanLock, folder: Path, site: Site) -> int:
    return mirror._wheels(gathered(made, site).python, made, folder, site, quiet)


def quiet(_: str) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("what", ["base", "python", "tools", "system"])
def test_a_lock_that_is_not_whole_is_refused(tmp_path, what):
    with pytest.raises(RequestError, match="is incomplete") as refused:
        mirror.pull(lock(**{what: None}), tmp_path / "m", Site(), ENGINE, say=quiet)
    assert refused.value.remedy == "./invoke lock --framework x"
    assert not (tmp_path / "m").exists()


def test_a_distribution_with_another_installer_is_refused(tmp_path):
    base = LockedBase(kind="dlc", os="amazonlinux-2023", image="a/b:1", image_id="sha256:" + "1" * 64)
    with pytest.raises(RequestError, match="cannot be mirrored"):
        mirror.pull(lock(base=base), tmp_path / "m", Site(), ENGINE, say=quiet)


@pytest.mark.parametrize("kind", ["missing", "truncated", "changed"])
def test_an_archive_that_is_not_to_be_had_ends_with_8(server, tmp_path, kind):
    pages = {"truncated": truncated(GOOD), "changed": b"else"}
    server.pages = {"/t": pages[kind]} if kind in pages else {}
    with pytest.raises(SourceError) as refused:
        pull_archive(f"{server.url}/t", tmp_path, Site())
    assert refused.value.exit_code == 8
    assert refused.value.details["component"] == "thing"
    assert refused.value.details["urls"] == [f"{server.url}/t"]
    assert list(tmp_path.rglob(FILE)) == []


def test_archives_come_from_the_sites_own_mirror_first(server, tmp_path):
    server.pages = {f"/m/{FILE}": GOOD}
    site = Site(artifact_mirror=f"{server.url}/m")
    pull_archive(f"{server.url}/up", tmp_path, site)
    assert (tmp_path / "archives" / SHA[:2] / SHA / FILE).read_bytes() == GOOD
    assert "/up" not in server.asked


def test_a_file_of_this_machine_is_copied_and_never_shared(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / FILE).write_bytes(GOOD)
    site = Site(artifact_folder=tmp_path / "own")
    pull_archive("http://127.0.0.1:9/t", tmp_path / "m", site)
    path = tmp_path / "m" / "archives" / SHA[:2] / SHA / FILE
    path.write_bytes(b"spoilt")
    assert (tmp_path / "own" / FILE).read_bytes() == GOOD


def test_wheels_come_from_folders_then_from_where_an_index_says(server, tmp_path, monkeypatch):
    (tmp_path / "wheels").mkdir()
    here, there = package("here"), package("there")
    (tmp_path / "wheels" / here.file).write_bytes(GOOD)
    server.pages = {"/w": GOOD}
    asked: list[str] = []

    def addresses(packages, *_, **__):
        asked.extend(p.name for p in packages)
        return {there.file: f"{server.url}/w"} if packages else {}

    monkeypatch.setattr(mirror, "addresses", addresses)
    site = Site(find_links=(tmp_path / "wheels",))
    assert pull_wheels(lock(python=(here, there)), tmp_path / "m", site) == 2
    assert asked == ["there"]
    for each in (here, there):
        assert (tmp_path / "m" / "wheels" / each.file).read_bytes() == GOOD


def test_a_wheel_that_no_index_offers_is_named_with_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(mirror, "addresses", lambda *_, **__: {})
    site = Site(find_links=(tmp_path,), index_url="https://me:s3cret@index.example/simple")
    with pytest.raises(SourceError) as refused:
        pull_wheels(lock(python=(package(),)), tmp_path / "m", site)
    details = refused.value.details
    assert (details["component"], details["file"], details["expected"]) == ("user", WHEEL, SHA)
    assert details["urls"] == [str(tmp_path / WHEEL), "https://***@index.example/simple"]


def pylock(*rows: tuple[str, str, str]) -> str:
    text = 'lock-version = "1.0"\ncreated-by = "uv"\n'
    for name, sha256, base in rows:
        wheel = f'{{ url = "{base}/{name}-1.0-py3-none-any.whl", hashes = {{ sha256 = "{sha256}" }} }}'
        text += f'\n[[packages]]\nname = "{name}"\nversion = "1.0"\nwheels = [{wheel}]\n'
    return text


def test_each_index_is_asked_alone_for_what_the_first_answer_lacks(monkeypatch):
    """An extra index with some files of a version hides the others of the default one."""
    seen: list[tuple[str | None, tuple[str, ...], list[str]]] = []

    def answer(pins, *_, site, **__):
        seen.append((site.index_url, site.extra_index_urls, sorted(pins)))
        if site.extra_index_urls:
            return pylock(("a", SHA, "https://extra.example"), ("b", "0" * 64, "https://extra.example"))
        return pylock(("b", SHA, "https://default.example"))

    monkeypatch.setattr(python_files, "compile_pins", answer)
    site = Site(extra_index_urls=("https://extra.example/simple",))
    found = python_files.addresses([package("a"), package("b")], "3.11", PLATFORM, site)
    assert found == {
        "a-1.0-py3-none-any.whl": "https://extra.example/a-1.0-py3-none-any.whl",
        "b-1.0-py3-none-any.whl": "https://default.example/b-1.0-py3-none-any.whl",
    }
    assert seen == [(None, ("https://extra.example/simple",), ["a", "b"]), (None, (), ["b"])]


def test_a_package_that_is_gone_does_not_hide_the_others(monkeypatch):
    def answer(pins, *_, **__):
        if "gone" in pins:
            raise Conflict("no such thing", rows=[], offers=[])
        return pylock(*((name, SHA, "https://i.example") for name in pins))

    monkeypatch.setattr(python_files, "compile_pins", answer)
    names = ["a", "b", "gone", "c", "d"]
    found = python_files.addresses([package(name) for name in names], "3.11", PLATFORM, Site(no_index=True))
    assert sorted(found) == [f"{name}-1.0-py3-none-any.whl" for name in "abcd"]


def test_the_site_of_a_mirror_names_its_folders_and_nothing_else(tmp_path):
    for name in ("archives", "wheels", "apt", "images"):
        (tmp_path / name).mkdir()
    (tmp_path / "trainwright.toml").write_text(mirror.SITE_TEXT.format(path=tmp_path))
    site = load_site(tmp_path / "trainwright.toml", cwd=tmp_path, environ={"HOME": "/", "PIP_CONFIG_FILE": "/dev/null"})
    assert (site.no_index, site.build_network) == (True, "none")
    assert site.locks == tmp_path / "locks"
    assert site.find_links == (tmp_path / "wheels",)
    assert (site.artifact_folder, site.artifact_mirror) == (tmp_path / "archives", None)
    assert site.image_sources("ubuntu-20.04") == "deb [trusted=yes] file:/mnt/apt/repository ubuntu-20.04 main\n"
    assert Store(tmp_path / "archives").path(FILE, SHA) == tmp_path / "archives" / SHA[:2] / SHA / FILE
