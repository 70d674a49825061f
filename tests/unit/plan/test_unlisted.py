"""A component that exists but that no line of the framework lists: what is said of it, and where it could be listed.

What is expected was read in the files of the lines and components; that bitsandbytes, DeepSpeed, FlashAttention,
torchvision, Transformer Engine, xFormers, and Triton as PyTorch brings it need PyTorch stands in their documentation.
"""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import Conflict
from trainwright.plan.request import make_request
from trainwright.plan.resolve import line_taken, resolve

CATALOG = load_catalog()


def conflict_of(framework: str, **words: Any) -> Conflict:
    with pytest.raises(Conflict) as refused:
        resolve(make_request(framework=framework, **words), CATALOG)
    return refused.value


def rows(conflict: Conflict) -> dict[str, str]:
    return {row["constraint"]: row["evidence"] for row in conflict.details["rows"]}


@pytest.mark.parametrize(
    "name", ["bitsandbytes", "deepspeed", "flash-attn", "torchvision", "transformer-engine", "triton", "xformers"]
)
@pytest.mark.parametrize("words", [{}, {"cuda": "cu129"}, {"cuda": "cpu"}, {"version": "2.21.0"}])
def test_what_requires_pytorch_is_not_to_be_added_to_a_line_of_tensorflow(name: str, words: dict[str, str]) -> None:
    conflict = conflict_of("tensorflow", with_=name, **words)
    assert list(rows(conflict)) == ["--framework tensorflow", f"--with {name}", f"{name} requires pytorch"]
    assert rows(conflict)[f"--with {name}"] == "no image line of tensorflow has it; those of pytorch do"
    assert conflict.message.endswith(f" --with {name}: {name} requires pytorch")
    assert conflict.remedy == "Use one of the commands above."


def test_a_rule_about_the_framework_is_told_before_one_about_its_cuda() -> None:
    """AWS has smdistributed-modelparallel in custom images of PyTorch alone, and wheels of it for CUDA 11 alone."""
    conflict = conflict_of("tensorflow", cuda="cu129", with_="smdistributed-modelparallel")
    assert list(rows(conflict)) == [
        "--framework tensorflow",
        "--with smdistributed-modelparallel",
        "smdistributed-modelparallel with TensorFlow in a custom image",
    ]


@pytest.mark.parametrize("words", [{}, {"cuda": "cu129"}, {"cuda": "cpu"}, {"cuda": "cu129", "python": "3.12"}])
def test_the_line_to_add_to_is_the_one_that_the_request_would_get(words: dict[str, str]) -> None:
    remedy = conflict_of("tensorflow", with_="huggingface", **words).remedy
    line = line_taken(make_request(framework="tensorflow", **words), CATALOG)
    assert line is not None
    file = next(entry.file for entry in CATALOG.lines if entry.line == line)
    assert str(remedy).startswith(f"Add huggingface to {file}, under options:")


def test_the_packages_of_an_entry_are_those_that_have_the_version_of_the_component() -> None:
    """The version of ``huggingface`` is that of transformers, as its provider says."""
    remedy = str(conflict_of("tensorflow", with_="huggingface").remedy)
    assert '  huggingface: {provider: wheel, version: "VERSION", packages: ["transformers==VERSION"]}\n' in remedy
    assert remedy.endswith("\nOr use one of the commands above.")


@pytest.mark.parametrize(
    ("framework", "words", "why"),
    [
        (
            "tensorflow",
            {"cuda": "cpu", "with_": "cuda-compiler"},
            "cuda-compiler requires cuda, which images/tensorflow/cpu/line.yaml does not have.",
        ),
        (
            "pytorch",
            {"cuda": "cu132", "with_": "torch-xla"},  # AWS's last is for PyTorch 1.13.1
            "No version of torch-xla is for images/pytorch/cu132/line.yaml: pytorch 2.15.0, cu132.",
        ),
    ],
)
def test_what_a_line_could_not_have_is_not_to_be_added_to_it(framework: str, words: dict[str, str], why: str) -> None:
    assert conflict_of(framework, **words).remedy == f"{why}\nUse one of the commands above."
