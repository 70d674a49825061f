"""The packages of ``--with-apt`` in a finished image: there, and in their version."""

from __future__ import annotations

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.wheel_lock import PLATFORM
from trainwright.core.errors import ProofFailed
from trainwright.plan.plan_lock import LockedSystemPackage, PlanLock
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.prove.system_check import check_system_packages
from trainwright.site.site import Site
from trainwright.sources.inputs import Inputs

CATALOG = load_catalog()
PLAN = resolve(make_request(framework="pytorch", cuda="cpu", apt=("jq=1.6-2", "ffmpeg")), CATALOG)


def inputs(version: str | None = None, *, strict: bool = False) -> Inputs:
    lock = None
    if version is not None:
        row = {"architecture": "amd64", "sha256": "a" * 64, "size": 1}
        system = (
            LockedSystemPackage(name="ffmpeg", version=version, stages=("final",), **row),
            LockedSystemPackage(name="gcc", version="12", stages=("toolchain",), **row),
        )
        lock = PlanLock(plan=PLAN.id, request="x", python_version="3.11", platform=PLATFORM, system=system)
    return Inputs(resolved=PLAN, plan=PLAN, catalog=CATALOG, site=Site(), lock=lock, strict=strict)


def test_as_planned():
    check_system_packages(inputs(), {"packages": {"jq": "1.6-2", "ffmpeg": "7:5.1"}})
    check_system_packages(inputs("7:5.1", strict=True), {"packages": {"jq": "1.6-2", "ffmpeg": "7:5.1"}})


@pytest.mark.parametrize(
    ("locked", "packages", "said"),
    [
        (None, {"jq": "1.6-2"}, "ffmpeg: the plan has it in any version, the image none"),
        (None, {"jq": "1.6-3", "ffmpeg": "7:5.1"}, "jq: the plan has 1.6-2, the image 1.6-3"),
        ("7:5.1", {"jq": "1.6-2", "ffmpeg": "7:5.2"}, "ffmpeg: the plan has 7:5.1, the image 7:5.2"),
    ],
)
def test_another_version_or_none(locked, packages, said):
    with pytest.raises(ProofFailed) as caught:
        check_system_packages(inputs(locked), {"packages": packages})
    assert said in caught.value.message and caught.value.remedy
