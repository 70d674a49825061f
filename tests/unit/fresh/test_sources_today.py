"""What the sources of a lock have today, asked without an engine: base, packages of the distribution and of Python."""

from __future__ import annotations

import lzma
from typing import Any

import pytest

from tests.support.build_records import record_of
from tests.support.loopback import Loopback
from tests.unit.fresh.test_base_today import LAYERS, Hub
from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.wheel_lock import Lock
from trainwright.core.errors import SourceError
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


CPU = "pytorch-2.13.0-cpu-debian"


def test_what_fits_a_supported_line(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = choose(CPU, load_catalog(), Site())
    (old,) = choose("pytorch-2.6.0-cu124-debian", load_catalog(), Site())
    (entry,) = [e for e in load_catalog().lines if e.line.framework == "pytorch" and e.path.parent.name == "cpu"]
    held = Lock.load(entry.lock_path)
    first, *rest = held.packages
    asked: list[Any] = []

    def lock_line(*given: Any) -> Lock:
        asked.append(given)
        return held.replace(packages=(first.replace(version="99"), *rest))

    monkeypatch.setattr(sources_today, "lock_line", lock_line)
    today = SourcesToday(load_catalog(), Site(), say=lambda _: None)
    assert today.of_line(line) == [f"{first.name} {first.version} → 99"]
    assert today.of_line(old) == ()  # nobody makes new locks of a line that is not maintained
    assert len(asked) == 1

    def refuses(*_: Any) -> Lock:
        raise SourceError("the index does not answer\nin detail")

    monkeypatch.setattr(sources_today, "lock_line", refuses)
    assert today.of_line(line) == ()
    assert today.unknown == [f"Python packages of {CPU}: the index does not answer"]
