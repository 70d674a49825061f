"""A component is added by adding a folder: the example of CONTRIBUTING.md is built and proven, and no Python file
outside of its folder names it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support import image_tests
from trainwright.core.paths import images_dir, templates_dir

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "tests" / "example"
FOLDERS = sorted((EXAMPLE / "templates" / "components").iterdir())


def test_only_its_folder_knows_the_component() -> None:
    assert FOLDERS
    for name in (folder.name for folder in FOLDERS):
        assert not (templates_dir() / "components" / name).exists()
        folders = (ROOT / top for top in ("trainwright", "devtools", "tests"))
        files = [*ROOT.glob("*.py"), *(file for folder in folders for file in folder.rglob("*.py"))]
        knowing = [f for f in files if name in f.read_text() and EXAMPLE not in f.parents]
        assert not knowing, f"{name} is named in {knowing}"


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """The example as a folder of one's own: its components, and the CPU line with them."""
    own = tmp_path / "catalog"
    shutil.copytree(EXAMPLE, own)
    line = yaml.safe_load((images_dir() / "pytorch" / "cpu" / "line.yaml").read_text())
    for folder in FOLDERS:
        ((provider, data),) = yaml.safe_load((folder / "component.yaml").read_text())["providers"].items()
        (version,) = data["versions"]
        line["components"][folder.name] = {"provider": provider, "version": version}
    (own / "images" / "pytorch" / "cpu").mkdir(parents=True)
    (own / "images" / "pytorch" / "cpu" / "line.yaml").write_text(yaml.safe_dump(line))
    shutil.copy(images_dir() / "pytorch" / "cpu" / "lock.json", own / "images" / "pytorch" / "cpu")
    return own


@pytest.mark.engine
@pytest.mark.usefixtures("proven")  # made before: this build moves the short tag of the CPU line
def test_build_probe_and_smoke_of_the_example(program: Callable, docker: Callable, catalog: Path) -> None:
    words = ("--catalog", str(catalog))
    done = program("build", "--framework", "pytorch", "--cuda", "cpu", *words, "--json")
    assert done.code == 0, done.err[-3000:]
    built = done.json
    try:
        for folder in FOLDERS:
            data = yaml.safe_load((folder / "component.yaml").read_text())
            (provider,) = data["providers"].values()
            assert built["probe"]["facts"][folder.name]["version"] in provider["versions"]
        # What the contract asks of every image holds with the component in it.
        contract = program("smoke", "--image", built["image_id"], *words, "--select", "contract/", "--json").json
        assert contract["failed"] == 0
        assert image_tests.reported(contract["rows"]) == image_tests.expected([])
        for folder in FOLDERS:
            own = ("--select", f"/{folder.name}/")
            smoked = program("smoke", "--image", built["image_id"], *words, *own, "--json").json
            assert {row["component"]: row["outcome"] for row in smoked["rows"]} == {folder.name: "passed"}
    finally:
        for tag in built["tags"]:
            docker("rmi", "-f", tag, check=False)
