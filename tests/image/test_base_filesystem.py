"""The real Debian base: made twice by mmdebstrap, the same to the byte, and fit to build on."""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwright.core import runner
from trainwright.site.site import Site, load_site
from trainwright.sources.debian_base import RootFileSystem, make_base

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="mmdebstrap is not installed"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RootFileSystem, str]]:
    """A base made anew, and the digest of another making: the one that builds here take, unless it is out of date."""
    folder = tmp_path_factory.mktemp("base")
    site = load_site(cwd=folder)
    first = make_base("bookworm", site, say=print).sha256
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_CACHE", str(folder))
        second = make_base("bookworm", site, say=print)
        if second.sha256 != first:
            first, second = second.sha256, make_base("bookworm", site, say=print, refresh=True)
        yield second, first
    shutil.rmtree(folder)


def test_two_makings_are_the_same_to_the_byte(made: tuple[RootFileSystem, str]) -> None:
    assert made[0].sha256 == made[1]
    assert 80 <= made[0].packages <= 120
    assert made[0].size < 160_000_000


def test_it_holds_no_devices_documents_logs_or_lists(made: tuple[RootFileSystem, str]) -> None:
    with tarfile.open(made[0].path) as tar:
        members = {member.name.removeprefix("./"): member for member in tar}
        sources = tar.extractfile("./etc/apt/sources.list")
        assert sources is not None
        suites = {line.split()[-2] for line in sources.read().decode().splitlines() if line.startswith("deb ")}
    assert suites == {"bookworm", "bookworm-updates", "bookworm-security"}
    assert not any(member.ischr() or member.isblk() or member.isfifo() for member in members.values())
    assert members["dev"].isdir() and not any(name.startswith("dev/") for name in members)
    files = [name for name, member in members.items() if not member.isdir()]
    unwanted = re.compile(r"var/log/|var/lib/apt/lists/|var/cache/(apt|ldconfig)/|usr/share/man/|.*-old$|run/")
    assert [name for name in files if unwanted.match(name)] == []
    documents = [name for name in files if name.startswith("usr/share/doc/") and members[name].isreg()]
    assert documents and all(name.endswith("/copyright") for name in documents)
    assert all(members[f"etc/{name}"].size == 0 for name in ("hostname", "resolv.conf", "machine-id"))
    assert "etc/ssl/certs/ca-certificates.crt" in members


def test_a_mirror_gives_the_same_packages_and_no_trace(made: tuple[RootFileSystem, str], tmp_path: Path) -> None:
    # The default archive under its own name stands in for a mirror; where it lies is read, never written, here.
    with tarfile.open(made[0].path) as tar:
        sources = tar.extractfile("./etc/apt/sources.list")
        assert sources is not None
        urls = re.findall(r"https?://\S+", sources.read().decode())
    site = Site(apt_mirror=urls[0], apt_security_mirror=urls[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_CACHE", str(tmp_path))
        base = make_base("bookworm", site, say=print)
    with tarfile.open(base.path) as tar:
        assert tar.getmember("./etc/apt/sources.list").size == 0
    assert base.packages == made[0].packages


def test_a_container_runs_in_it(made: tuple[RootFileSystem, str]) -> None:
    docker = os.environ.get("TRAINWRIGHT_DOCKER", "docker")
    tag = f"trainwright-test-base:{os.getpid()}"
    if not runner.run([docker, "info"], timeout=30).ok:
        pytest.skip("no container engine answers")
    try:
        imported = runner.run([docker, "import", str(made[0].path), tag])
        assert imported.ok, imported.tail()
        script = (
            "set -e; test -c /dev/null; dpkg --audit; test -s /etc/ssl/certs/ca-certificates.crt; . /etc/os-release"
        )
        script += "; echo $ID"
        ran = runner.run([docker, "run", "--rm", "--network=none", tag, "/bin/sh", "-c", script])
        assert ran.ok, ran.tail()
        assert ran.stdout.splitlines()[-1] == "debian"
    finally:
        runner.run([docker, "rmi", tag])
