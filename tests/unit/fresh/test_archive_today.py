"""Newer packages of a distribution: from its indexes, by the image's own list of sources, and which a build renews."""

from __future__ import annotations

import gzip
import lzma
from typing import Any

import pytest

from tests.support.build_records import record_of
from tests.support.loopback import Loopback, status, truncated
from trainwright.build.store import BuildRecord
from trainwright.catalog.catalog import load_catalog
from trainwright.fresh.archive_today import Archives, renewed
from trainwright.pipeline.images import choose
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import LockedSystemPackage, PlanLock
from trainwright.site.site import Site

DEBIAN, NVIDIA = "pytorch-2.13.0-cpu-debian", "pytorch-2.13.0-cu130-nvidia"
HELD = {"openssl": "3.0.15-1~deb12u1", "libc6": "2.36-9", "bash": "5.2-1"}
MAIN = "/debian/dists/bookworm/main/binary-amd64/Packages"
SECURITY = "/security/dists/bookworm-security/main/binary-amd64/Packages"


def plan_of(name: str) -> Plan:
    (image,) = choose(name, load_catalog(), Site())
    return image.plan


def index(**versions: str) -> bytes:
    return "\n".join(f"Package: {name}\nVersion: {version}\nSize: 1\n" for name, version in versions.items()).encode()


def record(server: Loopback, name: str = DEBIAN, **sources: str) -> BuildRecord:
    text = f"deb {server.url}/debian bookworm main\ndeb [arch=amd64] {server.url}/security bookworm-security main\n"
    made = record_of(plan_of(name), f"sha256:{1:064x}")
    return made.replace(probe={**made.probe, "apt_sources": sources or {"sources.list": text}, "packages": HELD})


@pytest.fixture
def archive(server: Loopback) -> Loopback:
    server.pages = {
        f"{MAIN}.xz": lzma.compress(index(openssl="3.0.15-1~deb12u1", libc6="2.36-9", bash="5.2-0")),
        f"{SECURITY}.xz": lzma.compress(index(openssl="3.0.17-1~deb12u2", other="9")),
    }
    return server


def newer(server: Loopback, made: BuildRecord | None = None, site: Site | None = None) -> tuple[list[str], list[str]]:
    rows, unknown = Archives(site or Site()).newer(made or record(server), HELD)
    return [str(row) for row in rows], unknown


def test_a_fix_in_one_of_the_suites_is_seen(archive: Loopback) -> None:
    assert newer(archive) == (["openssl 3.0.15-1~deb12u1 → 3.0.17-1~deb12u2"], [])


def test_each_index_is_read_once(archive: Loopback) -> None:
    asked = Archives(Site())
    for _ in range(2):
        asked.newer(record(archive), HELD)
    assert archive.asked == [f"{MAIN}.xz", f"{SECURITY}.xz"]


def test_an_archive_that_packs_by_gzip(archive: Loopback) -> None:
    archive.pages = {f"{MAIN}.gz": gzip.compress(index(libc6="2.36-10")), f"{SECURITY}.gz": gzip.compress(b"")}
    assert newer(archive) == (["libc6 2.36-9 → 2.36-10"], [])


def test_sources_in_the_newer_format_without_backports_and_local_folders(archive: Loopback) -> None:
    text = f"""Types: deb deb-src
URIs: {archive.url}/debian
Suites: bookworm bookworm-backports
Components: main

Types: deb
URIs: file:/srv/packages
Suites: ./
"""
    assert newer(archive, record(archive, **{"debian.sources": text})) == ([], [])
    assert archive.asked == [f"{MAIN}.xz"]


def test_a_mirror_of_the_site_is_asked_instead(archive: Loopback) -> None:
    site = Site(apt_mirror=f"{archive.url}/debian", apt_security_mirror=f"{archive.url}/security")
    archive.pages["/debian/dists/bookworm-updates/main/binary-amd64/Packages.xz"] = lzma.compress(b"")
    made = record(archive, **{"sources.list": "deb http://archive.invalid/x bookworm main\n"})
    assert newer(archive, made, site) == (["openssl 3.0.15-1~deb12u1 → 3.0.17-1~deb12u2"], [])


@pytest.mark.parametrize(
    ("page", "says"), [(status(503), "status 503"), (b"no archive", "format"), (truncated(b"x" * 999), "")]
)
def test_what_gives_no_answer_is_said_and_hides_nothing_else(archive: Loopback, page: Any, says: str) -> None:
    archive.pages[f"{MAIN}.xz"] = page
    rows, (unknown,) = newer(archive)
    assert rows == ["openssl 3.0.15-1~deb12u1 → 3.0.17-1~deb12u2"]
    assert unknown.startswith(f"{archive.url}{MAIN}: ") and says in unknown


def test_an_image_of_an_earlier_version_says_so(server: Loopback) -> None:
    made = record(server)
    made = made.replace(probe={key: value for key, value in made.probe.items() if key != "apt_sources"})
    rows, (unknown,) = newer(server, made)
    assert rows == [] and "build it again" in unknown


def test_what_a_build_renews(server: Loopback) -> None:
    debian, nvidia = plan_of(DEBIAN), plan_of(NVIDIA)
    held = {"libc6": "1", "openssh-server": "2"}
    made = record(server)
    made = made.replace(probe={**made.probe, "packages": held})
    assert renewed(debian, None, made) == held
    ubuntu = nvidia.replace(base=nvidia.base.replace(os="ubuntu-22.04"))
    assert renewed(ubuntu, None, made) == {"openssh-server": "2"}  # of the base, nothing else
    lock = PlanLock(plan=debian.id, request="", python_version="3.11", platform="x86_64-manylinux_2_28")
    assert renewed(debian, lock, made) == held
    package = LockedSystemPackage(name="a", version="1", architecture="all", sha256="a" * 64, size=1, stages=("os",))
    assert renewed(debian, lock.replace(system=(package,)), made) == {}
