"""A job's requirements.txt against what its image carries; the meaning of a line is PEP 508's and PEP 440's."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.support.build_records import record_of
from tests.support.in_process import call
from trainwright.build import store
from trainwright.catalog.catalog import open_catalog
from trainwright.core.errors import RequestError
from trainwright.plan.of_line import plan_of
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.preflight.carried import Carried, carried, of_plan
from trainwright.preflight.requirements import check

pytestmark = pytest.mark.usefixtures("own_places")
IMAGE = Carried("img:1", "3.11.2", {"torch": "2.13.0+cpu", "typing-extensions": "4.15.0", "numpy": "2.4.6"})


@pytest.mark.parametrize(
    ("line", "pair"),
    [
        ("torch>=2.14", ("torch>=2.14", "torch 2.13.0+cpu")),
        ("torch==2.12.*", ("torch==2.12.*", "torch 2.13.0+cpu")),
        ("Torch[opt] <2.13  # old", ("Torch<2.13", "Torch 2.13.0+cpu")),
        ("typing_extensions==4.1", ("typing_extensions==4.1", "typing_extensions 4.15.0")),
        ("numpy<2 --hash=sha256:ab", ("numpy<2", "numpy 2.4.6")),
        ("torch @ https://example.org/torch.whl", ("torch from https://example.org/torch.whl", "torch 2.13.0+cpu")),
        ('numpy<2; python_version >= "3.11"', ("numpy<2", "numpy 2.4.6")),
        # PEP 440: a public version matches a local one.
        ("torch==2.13.0", None),
        ("torch", None),
        ("torch~=2.13", None),
        ('numpy<2; python_version < "3.11"', None),
        ('numpy<2; sys_platform == "win32"', None),
        ("transformers==4.0", None),
        ("# torch==1.0", None),
        ("-r other.txt", None),
        ("git+https://example.org/torch", None),
        ("", None),
        # pip's "Requirements File Format": a backslash goes on in the next line.
        ("numpy<2 \\\n    --hash=sha256:ab", ("numpy<2", "numpy 2.4.6")),
        # METADATA of torchvision 0.28.0: Requires-Dist: torch (==2.13.0). PyTorch's own table has one for each torch.
        ("torchvision==0.22.1", ("torchvision==0.22.1", "torch 2.13.0+cpu; torchvision 0.28.0")),
        ("torchvision<0.28", ("torchvision<0.28", "torch 2.13.0+cpu; torchvision 0.28.0")),
        ("torchvision==0.28.0+cpu", None),
        ("torchvision @ https://example.org/torchvision.whl", None),
    ],
)
def test_a_line_that_needs_a_change_is_a_pair(tmp_path, line, pair):
    path = tmp_path / "requirements.txt"
    path.write_text(f"einops\n{line}\n")
    found = check(path, "src/requirements.txt", IMAGE)
    assert [(f.code, f.line, f.path) for f in found] == ([("TW199", 2, "src/requirements.txt")] if pair else [])
    for part in pair or ():
        assert part in found[0].message


# Requires-Dist of each as in the source of the rule: torchvision 0.28.0 `torch (==2.13.0)`, fastai `torchvision>=0.11`,
# xformers 0.0.33.post2 `torch==2.9.1`; torchaudio 2.11.0 has none, so 2.11.0 is not the only one for torch 2.13.
@pytest.mark.parametrize(
    ("line", "torch", "severity", "fits"),
    [
        ("torchvision", "2.13.0+cpu", "warning", "torchvision 0.28.0"),
        ("torchvision", "2.13.0", "note", "torchvision 0.28.0"),
        ("TorchVision>=0.20", "2.7.1", "note", "torchvision 0.22.1"),
        ("fastai", "2.13.0+cpu", "warning", "torchvision 0.28.0"),
        ("torchaudio==2.9.1", "2.13.0", "note", "torchaudio 2.11.0"),
        ("torchvision==0.29.0", "2.15.0", "note", "torchvision 0.29.2"),
        ("xformers==0.0.31", "2.9.1", "note", "xformers 0.0.33.post2"),
        ("vllm", "2.13.0", "note", ""),
        ("torchvision", "2.3.1", "note", ""),
        ("torchvision", "", "", ""),
        ("einops", "2.13.0+cpu", "", ""),
    ],
)
def test_a_package_that_goes_with_one_torch(tmp_path, line, torch, severity, fits):
    path = tmp_path / "requirements.txt"
    path.write_text(f"{line}\n")
    found = check(path, "requirements.txt", Carried("img:1", "3.11.2", {"torch": torch} if torch else {}))
    assert [(f.code, f.severity) for f in found] == ([("TW475", severity)] if severity else [])
    for each in found:
        assert f"torch {torch}" in each.message and ("is made for it" in each.message) == bool(fits)
        assert fits in each.message
        assert ("--with-requirements" in each.remedy) == (not fits)


@pytest.mark.parametrize("line", ["torchvision", "torchvision==0.1", "timm"])
def test_a_package_of_one_torch_that_the_image_has(tmp_path, line):
    path = tmp_path / "requirements.txt"
    path.write_text(f"{line}\n")
    found = check(path, "requirements.txt", Carried("img:1", "3.11.2", {"torch": "2.13.0", "torchvision": "0.28.0"}))
    assert [f.code for f in found] == (["TW199"] if "=" in line else [])


OF_AWS = "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.6.0-gpu-py312-cu126-ubuntu22.04-sagemaker"


# The lock of the line and torch's own table of versions say what it carries, without a build.
def test_the_plan_of_a_job_says_what_its_image_carries(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("print(1)\n")
    (tmp_path / "src/requirements.txt").write_text("torch>=2.14\ntorchvision\n")
    job = tmp_path / "job.yaml"
    job.write_text("entry_point: train.py\nsource_dir: src\nplan: {framework: pytorch, cuda: cpu}\n")
    document = json.loads(call("preflight", "--job", "job.yaml", "--json", cwd=tmp_path).stdout)
    assert [(f["code"], f["severity"], f["line"]) for f in document["findings"]] == [
        ("TW199", "error", 1),
        ("TW475", "warning", 2),
    ]
    with_it = "plan: {framework: pytorch, cuda: cpu, with: [torchvision]}"
    job.write_text(f"entry_point: train.py\nsource_dir: src\n{with_it}\n")
    document = json.loads(call("preflight", "--job", "job.yaml", "--json", cwd=tmp_path).stdout)
    assert [f["code"] for f in document["findings"]] == ["TW199"]


def test_a_record_of_the_plan_is_better_than_its_lock(built):
    store.save(msgspec.structs.replace(built, probe={**built.probe, "distributions": {"torch": "9.9"}}))
    known = of_plan(built.plan)
    assert (known.packages, known.python) == ({"torch": "9.9"}, built.probe["interpreter"]["version"])


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("image: team/trainer:2", "was not built here"),
        ("plan: {framework: pytorch, cuda: cu113, base: dlc}", "AWS's base image"),
        ("plan: {framework: pytorch, version: 99.0.0}", "99.0.0"),
        (f"image: {OF_AWS}\nplan: {{framework: pytorch, cuda: cpu}}", "a container of AWS"),
        (
            "image: public.ecr.aws/deep-learning-containers/pytorch-training:2.6\nplan: {framework: pytorch}",
            "a container of AWS",
        ),
        ("", ""),
    ],
)
def test_what_was_not_compared_is_a_note(tmp_path, image, why):
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "job.yaml").write_text(f"entry_point: train.py\nsource_dir: .\n{image}\n")
    quiet = json.loads(call("preflight", "--job", "job.yaml", "--json", cwd=tmp_path).stdout)
    assert "TW476" not in [f["code"] for f in quiet["findings"]]
    (tmp_path / "requirements.txt").write_text("numpy==1.0\n")
    found = json.loads(call("preflight", "--job", "job.yaml", "--json", cwd=tmp_path).stdout)["findings"]
    assert [(f["code"], f["severity"]) for f in found] == ([("TW476", "note")] if image else [])
    assert all(why in f["message"] for f in found)


@pytest.mark.parametrize(
    ("lines", "line"),
    [("einops\ntorchvision\nxformers\n", 2), ("timm\n", 1), ("torch>=2\n", 1), ("einops\nnumpy\n", None)],
)
def test_what_belongs_to_one_torch_asks_for_the_image(tmp_path, lines, line):
    (tmp_path / "requirements.txt").write_text(lines)
    (tmp_path / "train.py").write_text("import torch\n")
    document = json.loads(call("preflight", str(tmp_path / "train.py"), "--json").stdout)
    found = [(row["code"], row["severity"], row["line"]) for row in document["findings"]]
    assert found == ([("TW476", "note", line)] if line else [])


def test_the_packages_of_each_plan_have_its_framework():
    catalog = open_catalog()
    for entry in catalog.lines:
        if entry.line.base.kind != "dlc" and "pytorch" in entry.line.components:
            known = of_plan(plan_of(entry, catalog)).packages
            assert known["torch"].partition("+")[0] == entry.line.version, entry.line


@pytest.fixture
def built(tmp_path: Path) -> store.BuildRecord:
    """The record of an image that was built here."""
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), open_catalog())
    record = record_of(plan, f"sha256:{'ab' * 32}", tag="team/trainer:1")
    store.save(record)
    return record


@pytest.mark.parametrize("name", ["team/trainer:1", "ab" * 6, f"sha256:{'ab' * 32}"])
def test_an_image_is_known_by_its_record(built, name):
    assert carried(name).packages["torch"] == built.probe["distributions"]["torch"]


@pytest.mark.parametrize("name", ["team/trainer:2", "sha256:", "", "b" * 12])
def test_an_image_of_others_is_not_known(built, name):
    with pytest.raises(RequestError, match="was not built here"):
        carried(name)


@pytest.mark.parametrize("folder", [True, False])
def test_preflight_reads_the_file_of_the_job(built, tmp_path, folder):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("print(1)\n")
    (tmp_path / "src/requirements.txt").write_text("torch>=99\n")
    words = ["train.py", "--source-dir", "src"] if folder else ["src/train.py"]
    done = call("preflight", *words, "--image", "team/trainer:1", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert [f["code"] for f in document["findings"]] == ["TW199"]
    assert "src/requirements.txt" in document["files"]
    (tmp_path / "job.yaml").write_text("entry_point: train.py\nsource_dir: src\nimage: team/trainer:1\n")
    by_job = json.loads(call("preflight", *words, "--job", "job.yaml", "--json", cwd=tmp_path).stdout)
    assert "TW199" in [f["code"] for f in by_job["findings"]]
    plain = json.loads(call("preflight", *words, "--json", cwd=tmp_path).stdout)
    assert [f["code"] for f in plain["findings"]] == ["TW476"]
