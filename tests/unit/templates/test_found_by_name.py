"""What other people's programs look for by name is where they look: METIS's tools, NCCL, the platform's folder."""

from __future__ import annotations

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.plan.dockerfile import stages
from trainwright.plan.plan import Plan
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()


def plan_of(cuda: str, version: str) -> Plan:
    return resolve(make_request(framework="pytorch", cuda=cuda, version=version), CATALOG)


@pytest.mark.parametrize(("cuda", "version", "provider"), [("cpu", "2.13.0", "debian"), ("cu113", "1.10.2", "source")])
def test_metis_s_programs_are_on_path(cuda, version, provider):
    plan = plan_of(cuda, version)
    assert plan.component("metis").provider == provider
    assert "/opt/metis/bin" in plan.environment["PATH"].split(":")


def test_nccl_of_the_wheel_is_on_the_loader_path():
    made = {s.name: s for s in stages(render_dockerfile(plan_of("cu124", "2.6.0"), CATALOG))}
    # Where NVIDIA's wheel has it: nvidia_nccl_cu12-2.21.5's RECORD lists nvidia/nccl/lib/libnccl.so.2.
    there = "&& on-loader-path nccl /opt/venv/lib/python3.11/site-packages/nvidia/nccl/lib && settle"
    assert made["nccl-layer"].instructions[-1].endswith(there)


@pytest.mark.parametrize(("cuda", "version"), [("cpu", "2.13.0"), ("cu113", "1.10.2")])
def test_the_folder_of_the_platform_is_there(cuda, version):
    made = {s.name: s for s in stages(render_dockerfile(plan_of(cuda, version), CATALOG))}
    assert "mkdir -p /out/opt/ml && " in made["sagemaker-toolkit-layer"].instructions[-1]
