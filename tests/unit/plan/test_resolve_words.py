"""What a request may name, which image line it selects when several fit, and the notices about the others."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.core.errors import RequestError
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

WHOLE = load_catalog()
ADDS = "--with compiler adds it."


def plan_of(*names: str, **words: Any) -> Plan:
    """The plan of a request, by the lines of these names alone."""
    lines = [entry for entry in WHOLE.lines if entry.line.framework == "pytorch" and entry.name in names]
    assert len(lines) == len(names)
    region = words.pop("region", None)
    catalog = Catalog(lines, WHOLE.components, WHOLE.rules) if names else WHOLE
    return resolve(make_request(framework="pytorch", **words), catalog, region=region)


@pytest.mark.parametrize(
    ("words", "message", "remedy"),
    [
        ({"with_": "metiss"}, "--with: no component 'metiss'. Did you mean metis", "list --components"),
        # Packages of huggingface in images/pytorch/cu126/line.yaml, and of no component's name.
        ({"with_": "accelerate"}, "--with: no component 'accelerate'. accelerate is a package of huggingface.", ""),
        ({"with_": "datasets"}, "--with: no component 'datasets'. datasets is a package of huggingface.", ""),
        ({"with_": "transformers"},
         "--with: no component 'transformers'. transformers is a package of huggingface.", ""),
        ({"without": "metiss"}, "--without: no component 'metiss'. Did you mean metis", "list --components"),
        ({"set_": ["metiss=1"]}, "--set: no component 'metiss'. Did you mean metis", "list --components"),
        # A rule foresees the name, but nothing can be left out that does not exist.
        ({"base": "debain"}, "--base debain: no such base. Did you mean debian?", ""),
        ({"with_": "metis", "without": "metis"}, "metis: named by both --with and --without", ""),
        ({"set_": ["metis=5.1.0"], "without": "metis"}, "metis: named by both --set and --without", ""),
        ({"set_": ["metis=sorce"]}, "--set metis=sorce: not NAME=VERSION, and metis has no provider sorce", "metis="),
        ({"set_": ["compiler=12.2"], "cuda": "cpu"}, "--set compiler=12.2: compiler is not in the plan", ADDS),
        ({"set_": ["rmm=25.2.0"], "cuda": "cpu"}, "--set rmm=25.2.0: rmm is not in the plan", "./invoke plan shows"),
        ({"version": "3", "allow_unproven": True}, "--version 3: not a complete version", "Write the complete version"),
    ],
)  # fmt: skip
def test_what_a_request_may_not_name(words: dict[str, Any], message: str, remedy: str) -> None:
    with pytest.raises(RequestError) as refused:
        plan_of("cpu", "cu126", **words)
    assert refused.value.message.startswith(message)
    assert remedy in refused.value.remedy


@pytest.mark.parametrize(
    ("names", "words", "version", "kind"),
    [
        (("cpu", "cu126"), {}, "2.7.1", "debian"),  # CUDA before CPU, whatever the version
        (("2.5.1-cu124", "2.4.0-cu124"), {}, "2.5.1", "nvidia"),  # the newest
        (("2.5.1-cu124", "2.4.0-cu124"), {"version": "2.4"}, "2.4.0", "nvidia"),
        (("2.5.1-cu124", "cu126"), {}, "2.7.1", "debian"),  # the newest CUDA
        # The newest is 2.10.0, not 2.9.0: versions are no text.
        (("2.9.0-cu130", "2.10.0-cu130"), {}, "2.10.0", "nvidia"),
    ],
)
def test_the_line_that_answers(names: tuple[str, ...], words: dict[str, Any], version: str, kind: str) -> None:
    plan = plan_of(*names, **words)
    assert (plan.version, plan.base.kind) == (version, kind)


@pytest.mark.parametrize(("preferred", "kind"), [(False, "debian"), (True, "nvidia")])
def test_of_the_same_versions_the_preferred_line_answers_then_the_one_made_from_packages(preferred, kind) -> None:
    lines = {entry.name: entry for entry in WHOLE.lines if entry.line.framework == "pytorch"}
    debian, image = lines["cu130"], lines["2.13.0-cu133"]
    assert (debian.line.cuda, debian.line.version) == (image.line.cuda, image.line.version)
    image = image.replace(line=image.line.replace(preferred=preferred))
    for entries in ([debian, image], [image, debian]):
        plan = resolve(make_request(framework="pytorch"), Catalog(entries, WHOLE.components, WHOLE.rules))
        assert plan.base.kind == kind


def test_of_two_alike_the_one_made_from_packages_answers_even_if_it_was_looked_at_before() -> None:
    lines = {entry.name: entry for entry in WHOLE.lines if entry.line.framework == "pytorch"}
    debian, image = lines["cu130"], lines["2.13.0-cu133"]
    early, late = (debian.line.evidence[0].replace(date=date) for date in ("2020-01-01", "2030-01-01"))
    image = image.replace(line=image.line.replace(evidence=(late,)))
    debian = debian.replace(line=debian.line.replace(evidence=(early,)))
    plan = resolve(make_request(framework="pytorch"), Catalog([debian, image], WHOLE.components, WHOLE.rules))
    assert plan.base.kind == "debian"
    # Of two made from packages it is the one that was looked at last, by its newest evidence.
    other = debian.replace(line=debian.line.replace(variant="other", evidence=(early, late)))
    between = early.replace(date="2025-01-01")
    debian = debian.replace(line=debian.line.replace(evidence=(between,)))
    for entries in ([debian, other], [other, debian]):
        plan = resolve(make_request(framework="pytorch"), Catalog(entries, WHOLE.components, WHOLE.rules))
        assert "other" in plan.tags[0]


def test_a_framework_without_image_lines_is_that_of_aws_s_containers() -> None:
    """pytorch-smp: AWS publishes the model parallel library 2 as a container of its own, and no line repeats it."""
    plan = resolve(make_request(framework="pytorch-smp", version="2.5.1"), WHOLE)
    assert (plan.framework, plan.base.kind) == ("pytorch-smp", "dlc")
    # Of every other framework, a container of AWS has to be asked for.
    assert plan_of(cuda="cu126", version="2.7.1").base.kind == "debian"


def two_ways(plan: Plan) -> list[str]:
    return [notice for notice in plan.notices if notice.startswith("two lines have")]


def test_cuda_11_says_which_of_its_two_ways_it_takes() -> None:
    """AWS's complete set needs an image that NVIDIA deletes; the other way lacks what needs AWS's PyTorch."""
    plan = plan_of(cuda="cu113")
    assert (plan.base.image, plan.version) == ("nvidia/cuda:11.3.1-cudnn8-runtime-ubuntu20.04", "1.12.1")
    assert {c.name for c in plan.components} >= {"smdistributed-modelparallel", "smdistributed-dataparallel"}
    (notice,) = two_ways(plan)
    for word in (plan.base.image, "--base debian", "debian-11", "smdistributed-modelparallel", "nccl"):
        assert str(word) in notice


@pytest.mark.parametrize("kind", ["debian", "nvidia"])
def test_who_says_which_way_is_not_told_of_the_other(kind: str) -> None:
    plan = plan_of(cuda="cu113", base=kind)
    assert (plan.base.kind, plan.version, two_ways(plan)) == (kind, "1.12.1", [])


def test_the_way_without_nvidia_s_image_says_what_it_cannot_have() -> None:
    plan = plan_of(cuda="cu113", base="debian")
    names = {c.name: c.provider for c in plan.components}
    assert names["pytorch"] == "index"
    assert {"openmpi", "metis", "rmm", "sagemaker-toolkit", "efa", "mpi4py"} <= names.keys()
    assert not [name for name in names if name.startswith("smdistributed")]
    assert [notice for notice in plan.notices if "no smdistributed-modelparallel" in notice]


def test_versions_of_one_line_alone_have_one_way() -> None:
    for words in ({"cuda": "cu113", "version": "1.10.2"}, {"cuda": "cu124"}, {"cuda": "cpu"}):
        assert two_ways(plan_of(**words)) == []


def test_an_image_in_place_of_debians_base_is_for_lines_on_debian() -> None:
    """A site's own base image (``docs/site.md``) replaces no image that an image line names."""
    own = "registry.example/debian:12"
    for name, base, image in (
        ("cpu", own, own),
        ("cpu", None, None),
        ("2.5.1-cu124", own, "nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04"),
        ("2.5.1-cu124", None, "nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04"),
    ):
        (entry,) = [each for each in WHOLE.lines if each.line.framework == "pytorch" and each.name == name]
        catalog = Catalog([entry], WHOLE.components, WHOLE.rules)
        found = resolve(make_request(framework="pytorch"), catalog, base_image=base).base.image
        assert found == image, name


def test_other_versions_for_the_same_cuda_are_told_of() -> None:
    names = ("2.5.1-cu124", "2.4.0-cu124", "cu126")
    told = "pytorch 2.5.1 is the newest for cu124; --version takes 2.4.0"
    assert told in plan_of(*names, cuda="cu124").notices
    for words in ({}, {"cuda": "cu124", "version": "2.5.1"}, {"cuda": "cu126"}):
        assert not [each for each in plan_of(*names, **words).notices if "is the newest for" in each]


def test_a_container_of_aws_comes_from_the_registry_of_the_region() -> None:
    """AWS's list of Deep Learning Containers: account 763104351884 in most regions, and a public gallery."""
    words = {"cuda": "cpu", "base": "dlc"}
    named = plan_of(region="eu-west-1", **words).base.image
    assert named is not None
    assert named.startswith("763104351884.dkr.ecr.eu-west-1.amazonaws.com/")
    plain = plan_of(**words).base.image
    assert plain is not None
    assert "eu-west-1" not in plain
    assert plain.rpartition(":")[2] == named.rpartition(":")[2]
