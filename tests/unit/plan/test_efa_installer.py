"""AWS's EFA installer in place of Debian's libfabric (``--set efa=aws``)."""

from __future__ import annotations

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import Conflict
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()


def plan_of(line: str, *pins: str) -> Plan:
    return resolve(make_request(request=line, set_=list(pins)), CATALOG)


def parts(plan: Plan) -> dict[str, tuple[str, str]]:
    return {component.name: (component.version, component.provider) for component in plan.components}


# AWS's release notes of the installer (EC2 user guide, efa-changelog): "Support Debian 11" in 1.24.0, "Add support for
# Debian 12" in 1.36.0, "Add Support for Debian 13" in 1.46.0; 1.51.0: "Discontinue support for Debian 11. The last EFA
# installer version supporting Debian 11 is 1.50.0."
@pytest.mark.parametrize(
    ("line", "base", "newest"),
    [
        ("pytorch:cu113-debian", "debian-11", "1.50.0"),
        ("pytorch:cu126-py311-debian", "debian-12", "1.51.0"),
        ("pytorch:cu132", "debian-13", "1.51.0"),
    ],
)
def test_the_newest_installer_with_packages_for_the_release(line, base, newest):
    plan = plan_of(line, "efa=aws")
    assert plan.base.os == base
    assert parts(plan)["efa"] == (newest, "aws")
    assert "libfabric1" not in {package for c in plan.components for package in c.system.run}


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("pytorch", "pytorch:cu132"),
        ("pytorch:debian", "pytorch:cu132"),
        ("pytorch:cu126", "pytorch:2.7.1-cu126"),
        ("pytorch:cu124", "pytorch:2.6.0-cu124"),
        ("pytorch:cu130", "pytorch:2.14.1-cu130"),
        ("pytorch:2.13", "pytorch:2.13.0-cu133-nvidia"),  # as new as that of Debian, and it has the installer
    ],
)
def test_the_newest_line_takes_the_installer(line, taken):
    assert plan_of(line, "efa=aws").id == plan_of(taken, "efa=aws").id


# 1.51.0: "Upgrade to Amazon OFI NCCL Plugin 1.22.0"; 1.46.0: "Add libnccl-ofi on RHEL 9, Rocky Linux 9, and Debian 13".
def test_on_debian_13_the_plugin_of_the_installer_comes_with_it():
    plan = plan_of("pytorch:cu132", "efa=aws")
    assert parts(plan)["aws-ofi-nccl"] == ("1.22.0", "efa")
    assert parts(plan)["openmpi"] == parts(plan_of("pytorch:cu132"))["openmpi"]


def test_a_line_that_has_the_installer_keeps_its_version():
    assert parts(plan_of("pytorch:2.13.0-cu133", "efa=aws")) == parts(plan_of("pytorch:2.13.0-cu133"))


def test_a_plugin_that_the_installer_cannot_serve_is_refused():
    with pytest.raises(Conflict) as refused:
        plan_of("pytorch:cu132", "efa=aws", "aws-ofi-nccl=debian")
    assert "--set efa=aws" in str(refused.value.details["offers"])
