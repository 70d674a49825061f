"""GPUs by capability, name and instance type, and which CUDA versions compile for them."""

from __future__ import annotations

import pytest

from trainwright.core.errors import RequestError
from trainwright.sagemaker.gpus import GPUS, read_gpus, runs_on, unfit
from trainwright.sagemaker.instances import load_instances


@pytest.mark.parametrize(
    ("text", "capabilities"),
    [
        ("8.0", ("8.0",)),
        ("9.0, 8.0,9.0", ("8.0", "9.0")),
        ("a100,H100", ("8.0", "9.0")),
        ("ml.p4d.24xlarge,ml.p5", ("8.0", "9.0")),
        ("ml.p6-b200.48xlarge", ("10.0",)),
        ("10.3,8.6", ("8.6", "10.3")),  # by number, not by letter
        ("RTX PRO 4500", ("12.0",)),
        ("L4,L40S", ("8.9",)),
    ],
)
def test_spellings(text: str, capabilities: tuple[str, ...]) -> None:
    assert read_gpus(text) == capabilities


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("9.1", "9.0"),
        ("ml.p9", "ml.p5"),
        ("h1000", "H100"),
        ("ml.m5.xlarge", "it has no GPU"),
        ("ml.trn1.32xlarge", "it has no GPU"),
        ("", "an empty name"),
        ("8.0,,9.0", "an empty name"),
    ],
)
def test_what_is_no_gpu(text: str, says: str) -> None:
    with pytest.raises(RequestError, match="--for-gpus") as refused:
        read_gpus(text)
    assert says in refused.value.message and refused.value.remedy


def test_every_gpu_of_an_instance_is_known() -> None:
    named = {kind.gpu for kind in load_instances().values() if kind.gpu}
    assert named == set(GPUS)


# NVIDIA's release notes: CUDA 11.8 added Ada and Hopper, 12.8 Blackwell; 12.0 dropped Kepler, 13.0 Volta.
@pytest.mark.parametrize(
    ("capability", "cuda", "fits"),
    [
        ("9.0", "11.7", False),
        ("9.0", "11.8", True),
        ("10.0", "12.6", False),
        ("10.0", "12.8", True),
        ("7.0", "12.9", True),
        ("7.0", "13.0", False),
        ("7.5", "13.2", True),
        ("8.0", "11.3", True),
    ],
)
def test_cuda_compiles_for_some(capability: str, cuda: str, fits: bool) -> None:
    assert (unfit(capability, cuda) is None) == fits


@pytest.mark.parametrize(
    ("code", "gpu", "runs"),
    [("8.0", "8.0", True), ("8.0", "8.6", True), ("8.6", "8.0", False), ("8.0", "9.0", False), ("10.0", "10.3", True)],
)
def test_machine_code_runs_within_a_major_version(code: str, gpu: str, runs: bool) -> None:
    assert runs_on(code, gpu) == runs
