"""The same script in the same image, rehearsed and in SageMaker SDK 2's own local mode: it has to see the same.

Local mode is other people's code. What it does differently on purpose is left out of the comparison: it mounts the code
instead of sending an archive, calls its hosts algo-1-<random>, and has no instance type, groups or job's region.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

SDK = "sagemaker==2.257.7"
SCRIPT = """
import json, os, sys
seen = {name: value for name, value in os.environ.items() if name.startswith("SM_")}
seen.update(argv=sys.argv, cwd=os.getcwd(), data=open(os.environ["SM_CHANNEL_TRAINING"] + "/data.txt").read())
json.dump(seen, open(os.environ["SM_MODEL_DIR"] + "/seen.json", "w"))
"""
FIT = """
import sys
import boto3
from sagemaker.local import LocalSession
from sagemaker.pytorch import PyTorch
image, work = sys.argv[1:]
session = LocalSession(boto_session=boto3.Session(region_name="us-west-2"))
session.config = {"local": {"local_code": True, "container_root": work + "/root"}}
estimator = PyTorch(
    image_uri=image, role="arn:aws:iam::123456789012:role/none", instance_count=1, instance_type="local",
    sagemaker_session=session, source_dir=work + "/src", entry_point="train.py",
    hyperparameters={"epochs": 3, "lr": 0.1, "name": "a b", "flag": True, "deep": {"k": 1}},
    output_path="file://" + work + "/out",
)
estimator.fit({"training": "file://" + work + "/data"})
"""
HYPERPARAMETERS = '{"epochs": 3, "lr": 0.1, "name": "a b", "flag": true, "deep": {"k": 1}}'
SAME = (
    "argv",
    "cwd",
    "data",
    "SM_HPS",
    "SM_USER_ARGS",
    "SM_CHANNELS",
    "SM_CHANNEL_TRAINING",
    "SM_USER_ENTRY_POINT",
    "SM_MODULE_NAME",
    "SM_MODEL_DIR",
    "SM_INPUT_DIR",
    "SM_INPUT_CONFIG_DIR",
    "SM_OUTPUT_DIR",
    "SM_OUTPUT_DATA_DIR",
    "SM_OUTPUT_INTERMEDIATE_DIR",
    "SM_NETWORK_INTERFACE_NAME",
    "SM_NUM_GPUS",
    "SM_NUM_CPUS",
    "SM_NUM_NEURONS",
    "SM_LOG_LEVEL",
    "SM_FRAMEWORK_PARAMS",
    "SM_FRAMEWORK_MODULE",
    "SM_IS_HETERO",
)


def checked(*argv: str, **options: object) -> str:
    done = subprocess.run(list(argv), capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return str(done.stdout)


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``docker-compose``: this machine's, or the one of the Debian release that has version 2."""
    if found := shutil.which("docker-compose"):
        return Path(found).parent
    if not shutil.which("apt-get"):
        pytest.skip("no docker-compose, and no apt to get one with")
    work = tmp_path_factory.mktemp("compose")
    archive = checked("apt-get", "indextargets", "--format", "$(REPO_URI)").split()[0]
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (work / "sources.list").write_text(f"deb [signed-by={keys}] {archive} trixie main\n")
    (work / "lists" / "partial").mkdir(parents=True)
    (work / "cache" / "archives" / "partial").mkdir(parents=True)
    places = {
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": work / "lists",
        "Dir::Cache": work / "cache",
        "APT::Sandbox::User": "root",
    }
    options = [word for name, value in places.items() for word in ("-o", f"{name}={value}")]
    checked("apt-get", *options, "update")
    checked("apt-get", *options, "download", "docker-compose", cwd=work)
    checked("dpkg-deb", "-x", str(next(work.glob("docker-compose_*.deb"))), str(work / "package"))
    # Not as the plugin: the SDK looks for "v2" in its version, which Debian's does not say.
    program = work / "bin" / "docker-compose"
    program.parent.mkdir()
    shutil.copy(work / "package/usr/libexec/docker/cli-plugins/docker-compose", program)
    program.chmod(0o755)
    return program.parent


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment of the SDK's own."""
    folder = tmp_path_factory.mktemp("sdk")
    uv = str(Path(sys.executable).with_name("uv"))
    checked(uv, "venv", "--quiet", "--python", sys.executable, str(folder / "venv"))
    python = folder / "venv" / "bin" / "python"
    checked(uv, "pip", "install", "--quiet", "--python", str(python), SDK)
    return python


def test_a_script_sees_the_same_in_the_sdks_local_mode(rehearse, cpu_image, docker, compose, sdk, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(SCRIPT)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "data.txt").write_text("numbers")
    for folder in ("root", "out"):
        (tmp_path / folder).mkdir()
    (tmp_path / "fit.py").write_text(FIT)
    (tmp_path / "sagemaker.yaml").write_text(
        "SchemaVersion: '1.0'\nSageMaker: {PythonSDK: {Modules: {TelemetryOptOut: true}}}\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {
        "PATH": f"{compose}:/usr/bin:/bin",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-west-2",
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(tmp_path / "sagemaker.yaml"),
        "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
    }
    networks = docker("network", "ls", "--format", "{{.Name}}").split()
    try:
        checked(str(sdk), "fit.py", cpu_image, str(tmp_path), cwd=tmp_path, env=environment, timeout=600)
    finally:
        # Compose stops the containers and leaves them, and the SDK its network.
        made = ["--filter", f"ancestor={cpu_image}", "--filter", "label=com.docker.compose.service"]
        for container in docker("ps", "-aq", *made).split():
            docker("rm", "-f", "-v", container)
        if "sagemaker-local" not in networks:
            docker("network", "rm", "sagemaker-local", check=False)
    theirs = seen(tmp_path / "out" / "model.tar.gz")

    words = ["--hyperparameters", HYPERPARAMETERS, "--input", f"training={tmp_path / 'data'}"]
    done = rehearse(SCRIPT, *words)
    assert done.code == 0, done.err[-3000:]
    ours = seen(Path(done.json["artifacts"]["model"]["path"]))

    assert {name: ours[name] for name in SAME} == {name: theirs[name] for name in SAME}
    # Every variable that the one has the other has, too; a hyperparameter would be missing here, or a channel.
    assert set(ours) == set(theirs)
    assert re.fullmatch(r"algo-1-\w+", theirs["SM_CURRENT_HOST"])
    assert ours["SM_CURRENT_HOST"] == "algo-1"


def seen(path: Path) -> dict:
    with tarfile.open(path) as archive:
        file = archive.extractfile("seen.json")
        assert file is not None
        return dict(json.load(file))
