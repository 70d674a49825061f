"""Locked, mirrored and built without any network: first use, `lock`, `mirror pull`, `build --locked`, and its faults.

Real packages of Debian and of the Python index; the one archive of this test, whose checksum nobody publishes, lies on
a server of loopback. The build at the end runs in an engine of its own, with an empty cache and no network at all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from tests.e2e.conftest import SMALL_LINE
from tests.e2e.test_sources import archive, write_gadget
from tests.support import builds
from tests.support.loopback import Loopback, dead_url, loopback
from trainwright.build.options import BuildOptions
from trainwright.build.store import BuildRecord
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.core.errors import Failure, RequestError, SourceError
from trainwright.core.paths import images_dir, templates_dir
from trainwright.engine.engine import connect
from trainwright.lock import diff, mirror
from trainwright.lock.apt_packages import ask_apt
from trainwright.lock.make import make_lock, start_of
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import PlanLock, find_lock, lock_path, save_lock
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site, load_site
from trainwright.sources.fetch import first_use
from trainwright.sources.gather import gather, gather_locked, with_lock

TAG = "trainwright-test/mirror:1"
FILE = "gadget-1.0.tar.gz"
CONTENT = archive("what the test is about")
SHA = sha256(CONTENT).hexdigest()
FLAGS = "--framework pytorch --cuda cpu"


def quiet(_: str) -> None:
    """Nobody listens to the steps of a test."""


@dataclass(frozen=True)
class Bench:
    """A small catalog with an archive that has no checksum, and a lock of it with everything in a folder."""

    catalog: Catalog
    plan: Plan
    site: Site
    folder: Path
    lock: PlanLock
    server: Loopback

    @property
    def offline(self) -> Site:
        """The site of the folder, with nothing of this machine's own."""
        empty = {"HOME": str(self.folder), "PIP_CONFIG_FILE": os.devnull}
        return load_site(self.folder / "trainwright.toml", cwd=self.folder, environ=empty)

    def build(self, site: Site, *, strict: bool = True) -> BuildRecord:
        inputs = gather_locked(self.plan, self.catalog, site, FLAGS, strict=strict)
        inputs = first_use(inputs, say=quiet)
        options = BuildOptions(progress="none")
        return builds.build(inputs, connect(setup=False), options=options, say=quiet)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    own = tmp_path_factory.mktemp("mirror")
    with pytest.MonkeyPatch.context() as patch, loopback() as server:
        patch.setenv("TRAINWRIGHT_STATE", str(own / "state"))
        images = own / "catalog" / "images"
        (images / "pytorch" / "cpu").mkdir(parents=True)
        line = SMALL_LINE.replace("components:\n", 'components:\n  gadget: {provider: source, version: "1.0"}\n')
        (images / "pytorch" / "cpu" / "line.yaml").write_text(line)
        shutil.copy(images_dir() / "pytorch" / "cpu" / "lock.json", images / "pytorch" / "cpu")
        shutil.copytree(templates_dir(), own / "catalog" / "templates")
        source = {"file": FILE, "url": f"{dead_url()}/{FILE}", "mirrors": [f"{server.url}/{FILE}"]}
        write_gadget(own / "catalog" / "templates", source)
        catalog = load_catalog(images, own / "catalog" / "templates")
        # A package that needs nothing, so that its version is the only thing that is resolved.
        (own / "requirements.txt").write_text("toolz\n")
        requirements = str(own / "requirements.txt")
        plan = resolve(make_request(framework="pytorch", cuda="cpu", requirements=requirements), catalog)
        plan = plan.replace(tags=(TAG,))
        site = load_site().replace(locks=own / "locks")
        server.pages = {f"/{FILE}": CONTENT}
        engine = connect(setup=False)

        refused = pytest.raises(RequestError, match="--locked: plan")
        with refused as unlocked:
            gather_locked(plan, catalog, site, FLAGS, strict=True)
        assert unlocked.value.remedy == f"./invoke lock {FLAGS}"

        # First use: the checksum is recorded, and the lock is not whole.
        used = first_use(gather(plan, catalog, site, flags=FLAGS), say=quiet)
        found = find_lock(plan, site)
        assert found is not None and found.archives[0].sha256 == SHA
        assert next(a.path for a in used.archives if a.path).read_bytes() == CONTENT
        with refused as partial:
            gather_locked(plan, catalog, site, FLAGS, strict=True)
        assert "the base" in partial.value.message
        assert FILE not in partial.value.message

        lock = make_lock(gather_locked(plan, catalog, site, FLAGS, strict=False), engine, say=quiet)
        save_lock(lock, lock_path(plan, site))
        mirror.pull(lock, own / "pulled", site, engine, say=quiet)
        yield Bench(catalog, plan, site, own / "pulled", lock, server)


def test_a_lock_names_everything_and_no_host(bench):
    assert gather_locked(bench.plan, bench.catalog, bench.site, FLAGS, strict=True).lock == bench.lock
    assert [a.sha256 for a in bench.lock.archives] == [SHA]
    assert [p.name for p in bench.lock.user or ()] == ["toolz"]
    assert bench.lock.base is not None and bench.lock.base.sha256
    assert {"libc6", "dpkg"} <= {p.name for p in bench.lock.base.packages}
    by_name = {p.name: p for p in bench.lock.system or ()}
    assert "os" in by_name["openssh-server"].stages
    assert by_name["gcc"].stages == ("toolchain",)
    assert by_name["python3-venv"].stages == ("tools",)
    text = lock_path(bench.plan, bench.site).read_text()
    hosts = {part.partition("/")[0] for part in text.split("://")[1:]}
    assert hosts <= {
        url.partition("://")[2].partition("/")[0] for a in bench.lock.archives for url in (a.url, *a.mirrors)
    }


def test_a_second_lock_is_the_same_and_upgrade_takes_one_thing_anew(bench):
    engine = connect(setup=False)
    inputs = gather_locked(bench.plan, bench.catalog, bench.site, FLAGS, strict=False)
    again = make_lock(inputs, engine, say=quiet)
    assert again.dump() == bench.lock.dump()
    other = archive("something else")
    bench.server.pages[f"/{FILE}"] = other
    try:
        kept = make_lock(inputs, engine, say=quiet)
        assert kept.dump() == bench.lock.dump(), "what is locked stays"
        newer = make_lock(inputs, engine, upgrade=["gadget"], say=quiet)
    finally:
        bench.server.pages[f"/{FILE}"] = CONTENT
    rows = diff.changes(bench.lock, newer)
    assert [(row.name, row.locked, row.now, row.state) for row in rows] == [
        (f"gadget/{FILE}", SHA, sha256(other).hexdigest(), "changed")
    ]


def test_a_check_finds_what_is_gone_and_what_is_newer(bench):
    engine = connect(setup=False)
    inputs = gather_locked(bench.plan, bench.catalog, bench.site, FLAGS, strict=False)
    rows = diff.compare(inputs, engine, say=quiet)
    assert not [row for row in rows if row.is_fault]
    system = [p.replace(version="0.1-1") if p.name == "gcc" else p for p in bench.lock.system or ()]
    user = [p.replace(version="0.11.2") for p in bench.lock.user or ()]
    stale = with_lock(inputs, bench.lock.replace(system=tuple(system), user=tuple(user)))
    bench.server.pages[f"/{FILE}"] = CONTENT + b"more"
    try:
        rows = diff.compare(stale, engine, say=quiet)
    finally:
        bench.server.pages[f"/{FILE}"] = CONTENT
    found = {(row.kind, row.name): row.state for row in rows if row.is_fault or row.state == "newer"}
    assert found["package", "gcc"] == "gone"
    assert found["archive", f"gadget/{FILE}"] == "differs"
    assert found["python", "toolz"] in ("gone", "newer")
    assert diff.document(bench.plan, Path("lock"), rows).faults >= 2


def test_what_an_installer_had_apt_fetch_is_pinned_too(bench):
    engine = connect(setup=False)
    dockerfile = render_dockerfile(bench.plan, bench.catalog)
    start = start_of(bench.lock, bench.site, engine, say=quiet)
    also = {"bzip2": "0", "libfabric-aws": "1.9"}
    answer = ask_apt(dockerfile, start, bench.site, engine, also=also, say=quiet)
    found = {p.name: p for p in answer.packages}
    assert "os" in found["bzip2"].stages
    assert found["bzip2"].version != "0", "the archive has another"
    assert "libfabric-aws" not in found, "that came with the installer"


def test_a_pull_is_repeated_without_fetching_anything(bench):
    before = {path: path.stat().st_mtime_ns for path in bench.folder.rglob("*.*") if path.is_file()}
    asked = len(bench.server.asked)
    mirror.pull(bench.lock, bench.folder, bench.site, connect(setup=False), say=quiet)
    assert len(bench.server.asked) == asked
    changed = [p for p, when in before.items() if p.stat().st_mtime_ns != when]
    assert {p.name for p in changed} <= {"trainwright.toml", f"{bench.plan.id}.lock.json"}


@contextlib.contextmanager
def spoilt(path: Path, how: str) -> Iterator[None]:
    """A file of the mirror that is missing, cut or changed for a while."""
    content = path.read_bytes()
    try:
        if how == "missing":
            path.unlink()
        else:
            half = len(content) // 2
            changed = content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]
            path.write_bytes(content[:half] if how == "truncated" else changed)
        yield
    finally:
        path.write_bytes(content)


PARTS: dict[str, tuple[str, str]] = {
    "archive": ("archives/*/*/gadget-1.0.tar.gz", "gadget"),
    "wheel": ("wheels/toolz-*.whl", "user"),
    "tool": ("wheels/uv-*.whl", "tools"),
    "package": ("apt/pool/openssh-server_*.deb", "os"),
    "base": ("archives/*/*/rootfs.tar", "base"),
}


@pytest.mark.parametrize("how", ["missing", "truncated", "changed"])
@pytest.mark.parametrize("part", PARTS)
def test_a_spoilt_mirror_ends_with_8_and_names_the_file(bench, tmp_path, monkeypatch, part, how):
    # Neither this machine's caches nor its archive can help out.
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("trainwright.sources.rootfs.make_base", no_archive)
    pattern, component = PARTS[part]
    (path,) = bench.folder.glob(pattern)
    with spoilt(path, how), pytest.raises(SourceError) as refused:
        bench.build(bench.offline)
    failure = refused.value
    assert failure.exit_code == 8
    assert failure.details["file"] == path.name
    assert component in (failure.details["component"] or "")
    assert str(path) in failure.message, "the path in the mirror"
    assert failure.details["urls"]


def no_archive(*_: object, **__: object) -> None:
    raise SourceError("Debian's archive does not answer")


def test_the_mirror_builds_without_any_network(bench, spare_engine, monkeypatch, tmp_path, docker):
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path / "cache"))
    asked = len(bench.server.asked)
    with spare_engine() as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.endpoint)
        record = bench.build(bench.offline)
        shown = docker("run", "--rm", "--network", "none", record.image_id, "cat", "/opt/gadget")
        said = docker("run", "--rm", "--network", "none", record.image_id, "python", "-c", "import toolz; print(toolz)")
    assert shown == "what the test is about"
    assert "/opt/venv" in said
    assert len(bench.server.asked) == asked
    # The lock leaves no trace in what identifies the image, and pins what is in it.
    assert record.plan.id == bench.plan.id
    installed = record.probe["packages"]
    assert all(installed[p.name] == p.version for p in bench.lock.system or () if "os" in p.stages)
    assert {p.name: p.version for p in bench.lock.base.packages}.items() <= installed.items()


def test_a_version_that_the_archive_has_no_longer_ends_with_8(bench, docker: Callable[..., str]):
    """Not from the mirror: Debian's archive has only one version of a package, and it is not the locked one."""
    system = [p.replace(version="1:0.1-1") if p.name == "openssh-server" else p for p in bench.lock.system]
    lock = bench.lock.replace(system=tuple(system))
    inputs = gather(bench.plan, bench.catalog, bench.site, lock, strict=True)
    options = BuildOptions(progress="none")
    with pytest.raises(Failure) as refused:
        builds.build(inputs, connect(setup=False), options=options, say=quiet)
    assert refused.value.exit_code == 8
    assert "openssh-server" in refused.value.message
    assert "1:0.1-1" in refused.value.message
    assert "--upgrade apt" in refused.value.remedy
    assert not docker("images", "--quiet", TAG)
