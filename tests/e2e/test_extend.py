"""Extending an AWS Deep Learning Container. AWS's registry needs an account, so the CPU image stands for the container,
under the container's name; everything else is as it would be with the real one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from trainwright.core.paths import images_dir

IMAGE = "pytorch:2.13.0-cu133-amzn2023-sagemaker"
CONTAINER = f"public.ecr.aws/deep-learning-containers/{IMAGE}"


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """The line of a published container, but for what differs in the stand-in: the distribution, Python and CUDA."""
    shipped = yaml.safe_load((images_dir() / "pytorch" / "cpu" / "line.yaml").read_text())
    held = {name: {"provider": "base", "version": chosen["version"]} for name, chosen in shipped["components"].items()}
    line = {**shipped, "components": held, "options": {}, "base": {"kind": "dlc", "os": "debian-12", "image": IMAGE}}
    folder = tmp_path / "catalog" / "images" / "pytorch" / "2.13.0-cpu"
    folder.mkdir(parents=True)
    (folder / "line.yaml").write_text(yaml.safe_dump(line))
    lock = json.loads((images_dir() / "pytorch" / "cpu" / "lock.json").read_text())
    (folder / "lock.json").write_text(json.dumps(lock))
    return tmp_path / "catalog"


@pytest.fixture
def container(program: Callable, docker: Callable) -> Iterator[str]:
    """The stand-in under the container's name."""
    built = program("build", "--framework", "pytorch", "--cuda", "cpu", "--json")
    assert built.code == 0, built.err[-2000:]
    docker("tag", built.json["tags"][0], CONTAINER)
    try:
        yield CONTAINER
    finally:
        docker("rmi", CONTAINER, check=False)


@pytest.mark.usefixtures("container")
def test_packages_and_code_on_top_of_a_container(
    program: Callable, docker: Callable, catalog: Path, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("import einops; print('einops', einops.__version__)\n")
    (tmp_path / "wanted.txt").write_text("einops==0.8.1\n")
    words = ["--framework", "pytorch", "--cuda", "cpu", "--base", "dlc", "--catalog", str(catalog)]
    words += ["--with-requirements", str(tmp_path / "wanted.txt"), "--code", str(code), "--entry-point", "train.py"]
    planned = program("plan", *words, "--json").json
    assert planned["base"]["image"] == CONTAINER
    done = program("build", *words, "--smoke", "--json")
    assert done.code == 0, done.err[-3000:]
    tags = done.json["tags"]
    try:
        assert docker("run", "--rm", tags[0], "python3", "/opt/ml/code/train.py") == "einops 0.8.1"
        layers = json.loads(docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", tags[0]))
        below = json.loads(docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", CONTAINER))
        assert layers[: len(below)] == below, "the container's own layers are kept as they are"
    finally:
        for tag in tags:
            docker("rmi", "-f", tag, check=False)
