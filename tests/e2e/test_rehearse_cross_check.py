"""The same script in the same image, rehearsed and in SageMaker SDK 2's own local mode: it has to see the same.

Local mode is other people's code. What it does differently on purpose is left out of the comparison: it mounts the code
instead of sending an archive, calls its hosts algo-1-<random>, and has no instance type, groups or job's region.
"""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.sagemaker_sdk import SDK2, Sdk, interpreter_with, nothing_left, programs
from tests.support.small_wheel import NAME, wheel
from trainwright.engine.engine import find_client

SCRIPT = """
import json, os, sys
seen = {name: value for name, value in os.environ.items() if name.startswith("SM_")}
seen.update(argv=sys.argv, cwd=os.getcwd(), data=open(os.environ["SM_CHANNEL_TRAINING"] + "/data.txt").read())
json.dump(seen, open(os.environ["SM_MODEL_DIR"] + "/seen.json", "w"))
"""
FAILS = """
import os
import twprivate
with open(os.environ["SM_OUTPUT_DATA_DIR"] + "/answer.txt", "w") as kept:
    kept.write(str(twprivate.ANSWER))
raise ValueError("bad learning rate: \u2603 émoji")
"""
FIT = """
import json, sys
import boto3
from sagemaker.local import LocalSession
from sagemaker.pytorch import PyTorch
image, work, hyperparameters = sys.argv[1:]
session = LocalSession(boto_session=boto3.Session(region_name="us-west-2"))
session.config = {"local": {"local_code": True, "container_root": work + "/root"}}
estimator = PyTorch(
    image_uri=image, role="arn:aws:iam::123456789012:role/none", instance_count=1, instance_type="local",
    sagemaker_session=session, source_dir=work + "/src", entry_point="train.py",
    hyperparameters=json.loads(hyperparameters),
    output_path="file://" + work + "/out",
)
try:
    estimator.fit({"training": "file://" + work + "/data"})
except RuntimeError as error:
    print("fit:", error)
"""
# Also what a shell, a command line or JSON could read in another way.
HYPERPARAMETERS = json.dumps(
    {
        "epochs": 3,
        "lr": 0.1,
        "low": -1e-12,
        "name": "a b",
        "quoted": 'it\'s "$HOME" \\ ☃',
        "empty": "",
        "digits": "07",
        "flag": True,
        "deep": {"k": 1},
        "list": [1, "x"],
    }
)
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


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Sdk:
    return Sdk(interpreter_with(SDK2), programs(tmp_path_factory.mktemp("programs"), find_client().path), {})


def in_local_mode(sdk: Sdk, docker: Any, image: str, script: str, folder: Path) -> str:
    """Run a script of ``folder/src`` in the SDK's local mode; what its program said."""
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "train.py").write_text(script)
    (folder / "data").mkdir()
    (folder / "data" / "data.txt").write_text("numbers")
    for name in ("root", "out"):
        (folder / name).mkdir()
    with nothing_left(docker, image):
        return sdk.run(FIT, image, str(folder), HYPERPARAMETERS, folder=folder)


def test_a_script_sees_the_same_in_the_sdks_local_mode(rehearse, cpu_image, docker, sdk, tmp_path):
    said = in_local_mode(sdk, docker, cpu_image, SCRIPT, tmp_path)
    assert "fit:" not in said
    theirs = json.loads(content(tmp_path / "out" / "model.tar.gz", "seen.json"))

    words = ["--hyperparameters", HYPERPARAMETERS, "--input", f"training={tmp_path / 'data'}"]
    done = rehearse(SCRIPT, *words)
    assert done.code == 0, done.err[-3000:]
    ours = json.loads(content(Path(done.json["artifacts"]["model"]["path"]), "seen.json"))

    assert {name: ours[name] for name in SAME} == {name: theirs[name] for name in SAME}
    # Every variable that the one has the other has, too; a hyperparameter would be missing here, or a channel.
    assert set(ours) == set(theirs)
    assert re.fullmatch(r"algo-1-\w+", theirs["SM_CURRENT_HOST"])
    assert ours["SM_CURRENT_HOST"] == "algo-1"


def test_a_script_with_requirements_fails_the_same_in_the_sdks_local_mode(program, cpu_image, docker, sdk, tmp_path):
    source = tmp_path / "src"
    source.mkdir()
    (source / NAME).write_bytes(wheel())
    (source / "requirements.txt").write_text(f"--no-index\n./{NAME}\n")
    said = in_local_mode(sdk, docker, cpu_image, FAILS, tmp_path)
    assert "fit:" in said
    theirs = tmp_path / "out" / "output.tar.gz"

    words = ["--image", cpu_image, "--entry-point", "train.py", "--source-dir", str(source), "--json"]
    words += ["--hyperparameters", HYPERPARAMETERS, "--input", f"training={tmp_path / 'data'}"]
    done = program("rehearse", *words)
    assert done.code == 9, done.err[-3000:]
    report = json.loads(Path(done.json["report"]).read_text())
    (host,) = report["hosts"]

    failure = words_of(content(theirs, "failure"))
    assert words_of("ValueError: bad learning rate: ☃ émoji") in failure
    assert words_of(host["failure"]) == failure
    # The module of the requirement was there for both.
    kept = content(Path(report["artifacts"]["output"]["path"]), "answer.txt")
    assert kept == content(theirs, "data/answer.txt") == "42"


def words_of(failure: str) -> str:
    """A failure without blanks and punctuation. The toolkit strips each piece of standard error that it happens to read
    at once, and puts a line break after it (sagemaker_training/process.py, ``watch``)."""
    return " ".join(re.findall(r"\w+", failure))


def content(path: Path, name: str) -> str:
    """The text of a file in an archive of a job's results."""
    with tarfile.open(path) as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read().decode()
