"""A job's requirements.txt against what its image carries; the meaning of a line is PEP 508's and PEP 440's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.build_records import record_of
from tests.support.in_process import call
from trainwright.build import store
from trainwright.catalog.catalog import open_catalog
from trainwright.core.errors import RequestError
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.preflight.requirements import Carried, carried, check

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
    ],
)
def test_a_line_that_needs_a_change_is_a_pair(tmp_path, line, pair):
    path = tmp_path / "requirements.txt"
    path.write_text(f"einops\n{line}\n")
    found = check(path, "src/requirements.txt", IMAGE)
    assert [(f.code, f.line, f.path) for f in found] == ([("TW199", 2, "src/requirements.txt")] if pair else [])
    for part in pair or ():
        assert part in found[0].message


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
    assert plain["findings"] == []
