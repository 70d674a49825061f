"""torchvision and torchaudio on the CPU line: the builds for the CPU, and never the package index's, made for CUDA."""

from __future__ import annotations

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RequestError
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()
# As public repositories record it of PyTorch's folder of wheels, beside the sha256 of this line's torch.
TORCHVISION = "1dad604dfc0177ecebe0891bd9701fe2c62ec3f7819a247be541b3fb6effee99"
TORCH = "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"


def plan_of(cuda="cpu", **words):
    return resolve(make_request(framework="pytorch", cuda=cuda, **words), CATALOG)


def test_the_options_are_builds_for_the_cpu():
    plan = plan_of(with_="torchvision,torchaudio")
    files = {s.file: s.sha256 for c in plan.components for s in c.archives}
    assert files["torchvision-0.28.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"] == TORCHVISION
    assert any(file.startswith("torchaudio-2.11.0+cpu-cp311-") for file in files)
    assert TORCH in {s.sha256 for c in plan.components for s in c.sources}
    # torchvision's own requirements, as its metadata has them: numpy, torch==2.13.0, pillow
    named = {s.package.partition("==")[0] for c in plan.components for s in c.sources if s.package}
    assert {"numpy", "torch", "pillow"} <= named


def test_without_them_nothing_of_them_is_there():
    plan = plan_of()
    assert plan.component("torchvision") is None
    assert not any("pillow" in (s.package or "") for c in plan.components for s in c.sources)


@pytest.mark.parametrize("line", ["torchvision", "TorchVision>=0.2", "torchaudio==2.11.0 --hash=sha256:" + 64 * "a"])
def test_those_of_the_index_are_refused(tmp_path, line):
    (tmp_path / "requirements.txt").write_text(f"numpy\n--no-binary tqdm\n{line}\n")
    with pytest.raises(RequestError) as caught:
        plan_of(requirements=str(tmp_path / "requirements.txt"))
    name = line.lower()[:10].rstrip("=")
    assert name in caught.value.message and f"--with {name}" in caught.value.remedy


def test_what_works_is_not_refused(tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("torchvision\n")
    assert plan_of(requirements=str(file), with_="torchvision").component("torchvision").provider == "index"
    assert plan_of(requirements=str(file), cuda="cu130").component("user")
    file.write_text("torchvision @ https://download.pytorch.org/whl/cpu/torchvision-0.28.0.whl\n")
    assert plan_of(requirements=str(file)).component("user")
