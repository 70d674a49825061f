"""What fetched wheels require is read from their METADATA, before anything is compiled."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.core.paths import templates_dir
from trainwright.plan.dockerfile import stages
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()
PROGRAM = templates_dir() / "tools" / "build" / "wheel-needs"
SMDISTRIBUTED = {"smdistributed-dataparallel", "smdistributed-modelparallel"}
# The shape of core metadata (PEP 566, PEP 508): headers, an empty line, a description that may quote headers.
METADATA = """Metadata-Version: 2.1
Name: smdistributed-modelparallel
Version: 1.7.0
Requires-Dist: torch (>=1.10)
Requires-Dist: Typing_Extensions
Requires-Dist: {need}
Requires-Dist: pytest ; extra == 'test'
Requires-Dist: dataclasses ; python_version < "3.7"

Requires-Dist: only a description
"""


def wheel_needs(folder: Path, need: str) -> subprocess.CompletedProcess[str]:
    with zipfile.ZipFile(folder / "smdistributed_modelparallel-1.7.0-cp38-cp38-linux_x86_64.whl", "w") as wheel:
        wheel.writestr("smdistributed_modelparallel-1.7.0.dist-info/METADATA", METADATA.format(need=need))
    (folder / "constraints.txt").write_text("numpy==1.22.2\ntyping-extensions==4.13.2\n")
    argv = [sys.executable, str(PROGRAM), "constraints.txt", "torch", "smdistributed_modelparallel"]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("need", ["numpy", "numpy>=1.19,<2", "torch", "NumPy[extra]"])
def test_what_is_locked_or_fetched_is_enough(tmp_path, need):
    done = wheel_needs(tmp_path, need)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("need", ["sagemaker>=2", "pybind11"])
def test_what_is_missing_is_named(tmp_path, need):
    done = wheel_needs(tmp_path, need)
    assert done.returncode == 1
    assert f"requires {need}" in done.stderr
    assert "smdistributed_modelparallel-1.7.0" in done.stderr
    assert "lock-lines" in done.stderr
    assert "pytest" not in done.stderr
    assert "dataclasses" not in done.stderr


@pytest.mark.parametrize(
    ("framework", "version", "base", "checked"),
    [
        ("pytorch", "1.10.2", "nvidia", {"pytorch", "torchvision", *SMDISTRIBUTED}),
        ("pytorch", "2.6.0", "debian", set()),
        ("pytorch-trcomp", "1.12.0", "dlc", set()),
    ],
)
def test_every_fetched_wheel_is_read_except_in_a_container_of_aws(framework, version, base, checked):
    plan = resolve(make_request(framework=framework, version=version, base=base), CATALOG)
    found = stages(render_dockerfile(plan, CATALOG))
    assert {each.name for each in found if any(" wheel-needs " in step for step in each.instructions)} == checked
