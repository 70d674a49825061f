"""Extending an AWS Deep Learning Container. AWS's registry needs an account, so containers with the shape of AWS's
(``tests/doubles/dlc.py``) stand under the name of one; everything else is as it would be with the real one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.doubles.dlc import GENERATIONS, make_dlc
from trainwright.core.paths import images_dir
from trainwright.engine.engine import find_client

IMAGE = "pytorch:2.13.0-cu133-amzn2023-sagemaker"
CONTAINER = f"public.ecr.aws/deep-learning-containers/{IMAGE}"
LABEL = "io.trainwright.component"
JOB = """\
import os
import einops
import torch.distributed as dist
dist.init_process_group("gloo")
with open(os.path.join(os.environ["SM_MODEL_DIR"], f"rank-{dist.get_rank()}"), "w") as out:
    out.write(f"{einops.__version__} of {dist.get_world_size()}")
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The line of a published container, but for what differs in the stand-in: the distribution, Python and CUDA."""
    shipped = yaml.safe_load((images_dir() / "pytorch" / "cpu" / "line.yaml").read_text())
    claimed = {"python": {"provider": "base", "version": "3.11"}, "pytorch": {"provider": "base", "version": "2.13.0"}}
    base = {"kind": "dlc", "os": "debian-12", "image": IMAGE}
    line = {**shipped, "components": claimed, "options": {}, "base": base}
    folder = tmp_path_factory.mktemp("own") / "images" / "pytorch" / "2.13.0-cpu"
    folder.mkdir(parents=True)
    (folder / "line.yaml").write_text(yaml.safe_dump(line))
    (folder / "lock.json").write_text((images_dir() / "pytorch" / "cpu" / "lock.json").read_text())
    return folder.parents[2]


@pytest.fixture(scope="module", params=GENERATIONS)
def generation(
    request: pytest.FixtureRequest, cpu_image: str, docker: Callable, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A stand-in under the container's name."""
    make_dlc(request.param, cpu_image, CONTAINER, tmp_path_factory.mktemp("dlc"), find_client().path)
    try:
        yield request.param
    finally:
        docker("rmi", "-f", CONTAINER, check=False)


@pytest.fixture
def words(catalog: Path) -> list[str]:
    return [
        "--framework",
        "pytorch",
        "--version",
        "2.13.0",
        "--cuda",
        "cpu",
        "--base",
        "dlc",
        "--catalog",
        str(catalog),
    ]


def wants(folder: Path, *requirements: str) -> list[str]:
    (folder / "wanted.txt").write_text("\n".join([*requirements, ""]))
    return ["--with-requirements", str(folder / "wanted.txt")]


def test_packages_on_top_of_a_container(
    generation: str, program: Callable, docker: Callable, words: list[str], tmp_path: Path, aws
) -> None:
    (tmp_path / "train.py").write_text(JOB)
    words += wants(tmp_path, "einops==0.8.1")
    planned = program("plan", *words, "--json").json
    assert planned["base"]["image"] == CONTAINER
    assert f"{LABEL}.mpi4py" not in planned["labels"], "nobody has looked yet"
    done = program("build", *words, "--smoke", "--json")
    assert done.code == 0, done.err[-6000:]
    tags = done.json["tags"]
    try:
        config = json.loads(docker("image", "inspect", "--format", "{{json .Config}}", tags[0]))
        below = json.loads(docker("image", "inspect", "--format", "{{json .Config}}", CONTAINER))
        assert config["Entrypoint"] == below["Entrypoint"]
        layers, own = (
            json.loads(docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", name))
            for name in (tags[0], CONTAINER)
        )
        assert layers[: len(own)] == own, "the container's own layers are kept as they are"
        # What the stand-in was made with is what the labels say: by its Dockerfile, not by a probe.
        assert config["Labels"][f"{LABEL}.openmpi"] == "4.1.4 (base)"
        assert config["Labels"][f"{LABEL}.sagemaker-toolkit"] == "5.1.4 (base)"
        assert (f"{LABEL}.mpi4py" in config["Labels"]) == (generation != "uv")
        record = json.loads(Path(done.json["record"]).read_text())
        rows = {(row["component"], row["check"]): row for row in record["smoke"]["rows"]}
        assert rows["gdrcopy", "all"]["reason"] == "not in the base image"
        wrapped = rows["contract", "test_entrypoint_becomes_the_command"]
        assert wrapped["outcome"] == "skipped"
        assert wrapped["reason"].startswith("of the base image, where it fails, too")
        assert rows["contract", "test_no_host_keys"]["outcome"] == "skipped"
        assert rows["contract", "test_entrypoint_hands_the_command_on"]["outcome"] == "passed"
        job = ("--hosts", "2", "--distribution", "torch_distributed", "--instance-type", "ml.m5.xlarge")
        rehearsed = program("rehearse", "--image", tags[0], *job, "--entry-point", str(tmp_path / "train.py"), "--json")
        assert rehearsed.code == 0, rehearsed.err[-4000:]
        push = ("push", "--image", tags[0], "--repository", f"extended-{generation}", "--create", "--json")
        with aws.mounting():  # what the generations share is sent once
            pushed = program(*push, **aws.environment)
        assert pushed.code == 0, pushed.err[-4000:]
        held = aws.client("ecr").describe_images(repositoryName=f"extended-{generation}")["imageDetails"]
        assert pushed.json["images"][0]["uri"].rpartition("@")[2] in {each["imageDigest"] for each in held}
        # A second build does not look again, and makes the same image.
        again = program("build", *words, "--json")
        assert again.json["image_id"] == done.json["image_id"]
        assert "looking at what" in done.err
        assert "looking at what" not in again.err
    finally:
        for tag in tags:
            docker("rmi", "-f", tag, check=False)


def test_nothing_of_the_container_changes_in_silence(
    generation: str, program: Callable, docker: Callable, words: list[str], tmp_path: Path
) -> None:
    inside = docker("run", "--rm", "--entrypoint", "python3", CONTAINER, "-m", "pip", "list", "--format", "json")
    has = {package["name"].lower(): package["version"] for package in json.loads(inside)}
    assert has["idna"] != "3.7"
    other = wants(tmp_path, "idna==3.7")
    refused = program("build", *words, *other, "--json")
    assert refused.code == 5, refused.err[-2000:]
    assert "--allow-change" in refused.err
    assert f"idna=={has['idna']}" in refused.err, "both sides of the contradiction are named"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("import idna\n")
    own = ("--code", str(tmp_path / "code"), "--entry-point", "train.py")
    allowed = program("build", *words, *other, "--allow-change", "idna", *own, "--json")
    assert allowed.code == 0, allowed.err[-4000:]
    try:
        assert allowed.json["probe"]["distributions"]["idna"] == "3.7"
        # The toolkit of every generation finds the code and runs it.
        smoked = program("smoke", "--image", allowed.json["tags"][0], "--select", "user/", "--json")
        assert smoked.code == 0, smoked.err[-4000:]
        assert {row["component"] for row in smoked.json["rows"] if row["outcome"] == "passed"} == {"user"}
    finally:
        for tag in allowed.json["tags"]:
            docker("rmi", "-f", tag, check=False)


def test_what_the_container_lacks_is_a_conflict_before_anything_is_built(
    generation: str, program: Callable, words: list[str]
) -> None:
    for more, name in ((["--with", "gdrcopy"], "gdrcopy"), (["--set", "openmpi=5.0.8"], "openmpi")):
        refused = program("build", *words, *more, "--json")
        assert refused.code == 3, refused.err[-2000:]
        assert name in refused.json["message"]
        assert "#1 " not in refused.err, "no build step ran"


def test_a_container_of_another_distribution_than_its_line_is_refused_before_anything_is_built(
    generation: str, program: Callable, words: list[str], catalog: Path, tmp_path: Path
) -> None:
    own = shutil.copytree(catalog, tmp_path / "own")
    (file,) = own.glob("images/*/*/line.yaml")
    line = yaml.safe_load(file.read_text())
    line["base"]["os"] = "ubuntu-22.04"
    file.write_text(yaml.safe_dump(line))
    refused = program("build", *words[:-1], str(own), "--json")
    assert refused.code == 6, refused.err[-2000:]
    assert "os should be ubuntu-22.04, the image has debian-12" in refused.json["message"]
    assert "#1 " not in refused.err, "no build step ran"
