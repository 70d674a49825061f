"""What the sources of a lock have today, asked without an engine: base, packages of the distribution and of Python."""

from __future__ import annotations

import lzma

import pytest

from tests.support.build_records import record_of
from tests.support.loopback import Loopback
from tests.unit.fresh.test_base_today import LAYERS, Hub
from trainwright.catalog.catalog import load_catalog
from trainwright.fresh import sources_today
from trainwright.fresh.sources_today import SourcesToday
from trainwright.lock.diff import row
from trainwright.pipeline.images import choose
from trainwright.plan.plan_lock import LockedBase, LockedSystemPackage, PlanLock
from trainwright.site.site import Site

ON_UBUNTU = "pytorch-2.5.1-cu124-nvidia"


def package(name: str, version: str) -> LockedSystemPackage:
    return LockedSystemPackage(
        name=name, version=version, architecture="amd64", sha256="a" * 64, size=1, stages=("os",)
    )


def test_what_a_lock_could_take(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = choose(ON_UBUNTU, load_catalog(), Site())
    reference = str(line.plan.base.image)
    name, _, tag = reference.rpartition(":")
    hub = Hub(server, name, tag, LAYERS)
    packages = b"Package: openssh-server\nVersion: 1:9.2\n\nPackage: curl\nVersion: 7\n"
    server.pages["/ubuntu/dists/jammy/main/binary-amd64/Packages.xz"] = lzma.compress(packages)
    base = LockedBase(kind="nvidia", os=line.plan.base.os, image=reference, digest="sha256:" + "e" * 64)
    lock = PlanLock(
        plan=line.plan.id,
        request="",
        python_version=line.plan.python,
        platform="x86_64-manylinux_2_28",
        base=base,
        system=(package("openssh-server", "1:9.1"), package("curl", "7")),
    )
    made = record_of(line.plan, f"sha256:{1:064x}")
    made = made.replace(probe={**made.probe, "apt_sources": {"sources.list": f"deb {server.url}/ubuntu jammy main\n"}})
    # uv is asked elsewhere: tests/unit/lock.
    monkeypatch.setattr(sources_today, "newer_python", lambda *_: [row("python", "numpy", "1", "2", "newer")])
    today = SourcesToday(load_catalog(), Site(registries={"docker.io": hub.host}), say=lambda _: None)
    rows = today.upgrades(line, lock, made)
    assert [(each.kind, each.name, each.now) for each in rows] == [
        ("base", reference, hub.digest),
        ("package", "openssh-server", "1:9.2"),
        ("python", "numpy", "2"),
    ]
    assert today.unknown == []
    same = lock.replace(base=base.replace(digest=hub.digest), system=())
    assert [each.kind for each in today.upgrades(line, same, made)] == ["python"]
