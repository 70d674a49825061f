"""NVIDIA's images: no line starts from a tag that is gone, and a plan says which tags go next."""

from __future__ import annotations

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.nvidia_images import cudnn_in, image_notice, other_places, successor
from trainwright.plan.of_line import plan_of
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
    images = f"for i in {plan.base.image} {plan.base.build_image}; do docker pull $i"
    assert all(images in n and "[registries]" in n for n in said)


def test_a_line_of_a_deleted_tag_gets_a_note():
    said = image_notice("nvidia/cuda:11.2.1-base-ubuntu20.04", None)
    assert said
    assert "nvidia/cuda:11.2.2-base-ubuntu20.04" in said
    assert "docker save nvidia/cuda:11.2.1-base-ubuntu20.04" in said
    assert image_notice(None, "debian:12") is None


def test_metis_comes_from_the_host_that_answers_first():
    (source,) = CATALOG.components["metis"].component.providers["source"].versions["5.1.0"].sources
    assert source.url
    assert source.url.startswith("https://karypis.github.io/")
    assert [url.partition("//")[2].partition("/")[0] for url in source.mirrors] == ["glaros.dtc.umn.edu"]


# NV_CUDNN_VERSION of NVIDIA's Dockerfiles (gitlab.com/nvidia/container-images/cuda, dist/, to 57b6e780, 2024-12-03).
@pytest.mark.parametrize(
    ("tag", "version"),
    [
        ("11.0.3-cudnn8-runtime-ubuntu18.04", "8.0.5"),
        ("11.1.1-cudnn8-devel-ubuntu20.04", "8.0.5"),
        ("11.2.2-cudnn8-runtime-ubuntu20.04", "8.1.1"),
        ("11.7.1-cudnn8-runtime-ubuntu20.04", "8.5.0"),
        ("12.4.1-cudnn-runtime-ubuntu22.04", "9.1.0"),
        ("12.6.3-cudnn-runtime-ubuntu22.04", "9.5.1"),
        ("11.3.1-cudnn8-runtime-ubuntu20.04", "8.*"),  # 8.2.0.53, 8.9.5.30 and 8.2.1.32, one after the other
        ("11.8.0-cudnn8-runtime-ubuntu20.04", "8.*"),  # 8.6.0.163 to 8.9.6.50
        ("11.8.0-base-ubuntu20.04", "*"),
        ("99.0.0-cudnn-runtime-ubuntu26.04", "*"),
    ],
)
def test_cudnn_follows_from_the_tag_as_far_as_nvidia_kept_it(tag, version):
    assert cudnn_in(f"nvidia/cuda:{tag}") == version
    assert cudnn_in(f"nvidia/cuda:{tag}@sha256:{'0' * 64}") == version
    assert cudnn_in(f"team/cuda:{tag}") == "*"


def test_every_line_that_loads_the_base_s_cudnn_is_held_to_it():
    held = {}
    for entry in CATALOG.lines:
        plan = plan_of(entry, CATALOG)
        if plan.base.kind == "nvidia" and plan.loads.get("cudnn") == "of the base image":
            held[f"{entry.line.framework}/{entry.name}"] = {
                e.value for e in plan.expect if (e.component, e.fact) == ("cuda", "cudnn")
            }
    assert len(held) > 20
    assert [name for name, values in held.items() if not values or "*" in values] == []
