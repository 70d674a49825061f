"""NVIDIA's images: no line starts from a tag that is gone, and a plan says which tags go next."""

from __future__ import annotations

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.nvidia_images import image_notice, other_places, successor
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()
# NVIDIA's list of CUDA 11, quoted in NVIDIA/cudf-spark-examples#311 (2023-07-11).
DELETED = {
    *("11.2.0", "11.2.1", "11.3.0", "11.4.0", "11.4.1", "11.4.2"),
    *("11.5.0", "11.5.1", "11.6.0", "11.6.1", "11.7.0"),
}
# What replicate/cog's table of Docker Hub has of the minor versions of lines (1f1c0559, 2026-05-05), up to CUDA 12.4.
THERE = {
    *("11.0.3", "11.1.1", "11.2.2", "11.3.1", "11.4.3", "11.5.2", "11.6.2", "11.7.1", "11.8.0"),
    *("12.0.0", "12.0.1", "12.1.0", "12.1.1", "12.2.2", "12.3.2", "12.4.1"),
}


def test_lines_start_from_tags_that_are_there():
    images = {i for each in CATALOG.lines for i in (each.line.base.image, each.line.base.build_image) if i}
    versions = {i.partition(":")[2].partition("-")[0] for i in images if i.startswith("nvidia/cuda:")}
    assert len(versions) > 15
    assert {v for v in versions if tuple(map(int, v.split("."))) < (12, 5)} <= THERE


@pytest.mark.parametrize("version", sorted(DELETED))
def test_successor_is_there_and_of_the_same_minor_version(version):
    later = successor(f"nvidia/cuda:{version}-cudnn8-devel-ubuntu20.04")
    assert later
    name, _, tag = later.partition(":")
    found, _, rest = tag.partition("-")
    assert (name, rest) == ("nvidia/cuda", "cudnn8-devel-ubuntu20.04")
    assert found in THERE
    assert found.rpartition(".")[0] == version.rpartition(".")[0]


@pytest.mark.parametrize("image", ["nvidia/cuda:11.3.1-base-ubuntu20.04", "debian:12", "team/cuda:11.2.1-base", None])
def test_others_have_no_successor(image):
    assert image is None or successor(image) is None
    assert "deleted nvidia" not in (image_notice(image) or "")


def test_the_other_place_is_ngc_s_registry():
    assert other_places("nvidia/cuda:12.1.0-base-ubuntu20.04") == ["nvcr.io/nvidia/cuda:12.1.0-base-ubuntu20.04"]
    assert other_places("public.ecr.aws/a/b:1") == []


@pytest.mark.parametrize(("cuda", "version", "goes"), [("cu113", "1.10.2", True), ("cu121", "2.3.0", False)])
def test_a_plan_says_whose_tags_go(cuda, version, goes):
    plan = resolve(make_request(framework="pytorch", cuda=cuda, version=version), CATALOG)
    said = [n for n in plan.notices if "NVIDIA deletes" in n]
    assert len(said) == goes
    assert all(str(plan.base.image) in n and "[registries]" in n for n in said)


def test_a_line_of_a_deleted_tag_gets_a_note():
    said = image_notice("nvidia/cuda:11.2.1-base-ubuntu20.04")
    assert said
    assert "nvidia/cuda:11.2.2-base-ubuntu20.04" in said


def test_metis_comes_from_the_host_that_answers_first():
    (source,) = CATALOG.components["metis"].component.providers["source"].versions["5.1.0"].sources
    assert source.url
    assert source.url.startswith("https://karypis.github.io/")
    assert [url.partition("//")[2].partition("/")[0] for url in source.mirrors] == ["glaros.dtc.umn.edu"]
