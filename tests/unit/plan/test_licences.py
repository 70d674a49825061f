"""Licences: every provider has one, plans and images say what must not be passed on, public registries need a word."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.in_process import call
from trainwright.catalog.catalog import BASE, load_catalog
from trainwright.core.errors import RequestError
from trainwright.plan.licences import check_public
from trainwright.plan.plan import Plan
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()


def plan_of(cuda: str, version: str, base: str | None = None) -> Plan:
    return resolve(make_request(framework="pytorch", cuda=cuda, version=version, base=base), CATALOG)


def test_every_provider_names_its_licence():
    for folder in CATALOG.components.values():
        for name, provider in folder.component.providers.items():
            assert name == BASE or provider.licence or folder.component.licence, folder.component.name


# Spack's package repository, 1e8cf059 (2026-07-01): license(…) of metis, gdrcopy, boost, py-torchaudio, py-tensorflow
@pytest.mark.parametrize(
    ("name", "licence"),
    [
        ("metis", "Apache-2.0"),
        ("gdrcopy", "MIT"),
        ("boost", "BSL-1.0"),
        ("torchaudio", "BSD-2-Clause"),
        ("tensorflow", "Apache-2.0"),
    ],
)
def test_licences_of_others(name, licence):
    found = CATALOG.components[name].component.licence
    assert found
    assert (found.name, found.redistribute) == (licence, "yes")


def test_a_plan_says_what_must_not_be_passed_on():
    plan = plan_of("cu113", "1.10.2")
    assert plan.restricted("no") == ("smdistributed-dataparallel", "smdistributed-modelparallel")
    assert plan.restricted("conditions") == ("cuda", "pytorch")
    (said,) = [n for n in plan.notices if "/licenses" in n]
    assert "smdistributed-dataparallel, smdistributed-modelparallel must not be redistributed" in said
    assert not [n for n in plan_of("cpu", "2.13.0").notices if "/licenses" in n]
    assert plan_of("cu129", "2.8.0", "dlc").licences == []


# aws.amazon.com/service-terms, 1.1, of 2025-10-22. The container of 1.10.2 holds both smdistributed libraries and CUDA
# (pytorch/training/docker/1.10/py3/cu113/Dockerfile.sagemaker.gpu, f023343d).
@pytest.mark.parametrize(("cuda", "version"), [("cu129", "2.8.0"), ("cu113", "1.10.2"), ("cpu", "2.13.0")])
def test_containers_of_aws_must_not_be_passed_on(cuda, version):
    plan = plan_of(cuda, version, "dlc")
    (said,) = [n for n in plan.notices if "aws.amazon.com/service-terms" in n]
    assert "/license.txt" in said
    check_public(plan, "docker.io/me/x", allowed=True)
    check_public(plan, "123456789012.dkr.ecr.us-west-2.amazonaws.com/x", allowed=False)
    with pytest.raises(RequestError, match=f":{version}-"):
        check_public(plan, "docker.io/me/x", allowed=False)
    assert not [n for n in plan_of("cu129", "2.8.0").notices if "service-terms" in n]


def test_the_image_has_them(tmp_path):
    plan = plan_of("cu113", "1.10.2")
    (step,) = [s for s in render_dockerfile(plan, CATALOG).split("\nRUN ") if "components.txt" in s]
    command = (
        step.partition(" \\\n    && /mnt/settle-step")[0].rpartition("&& mkdir")[2].replace("/licenses", str(tmp_path))
    )
    subprocess.run(["sh", "-c", f"mkdir{command}"], check=True)
    lines = (tmp_path / "components.txt").read_text().splitlines()
    assert len(lines) == len(plan.components)
    assert "metis 5.1.0 (source): Apache-2.0; redistribution: yes" in lines


@pytest.mark.parametrize(
    ("repository", "public"),
    [
        ("docker.io/team/trainer", True),
        ("team/trainer", True),
        ("public.ecr.aws/alias/trainer", True),
        ("ghcr.io/team/trainer", True),
        ("123456789012.dkr.ecr.us-west-2.amazonaws.com/trainer", False),
        ("registry.example:5000/trainer", False),
        ("localhost/trainer", False),
    ],
)
def test_a_public_registry_needs_a_word(repository, public):
    plan = plan_of("cu113", "1.10.2")
    check_public(plan, repository, allowed=True)
    check_public(plan_of("cpu", "2.13.0"), repository, allowed=False)
    if not public:
        check_public(plan, repository, allowed=False)
        return
    with pytest.raises(RequestError) as refused:
        check_public(plan, repository, allowed=False)
    assert "smdistributed-modelparallel" in refused.value.message
    assert "--allow-redistribution" in refused.value.remedy


def test_build_refuses_before_it_asks_an_engine():
    words = ["--framework", "pytorch", "--cuda", "cu113", "--version", "1.10.2", "--registry", "docker.io/team/trainer"]
    done = call("build", *words)
    assert done.returncode == 2
    assert "docker.io is a public registry" in done.stderr
