"""From build to Estimator.fit(): an image of ours, smoke-tested, pushed to ECR, pulled by digest and trained in.

The SDKs are SageMaker's own, in environments of their own: they ask the API for a token, log the engine in, pull and
train in local mode, on one host and on two. They pull into a second engine, which has never seen the image.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import docker as docker_sdk
import pytest

from tests.doubles.sagemaker_sdk import SDK2, SDK3, Sdk, interpreter_with, programs
from tests.e2e.conftest import SpareEngine
from trainwright.engine.engine import find_client

REPOSITORY = "trainwright/proof"
PULLED = 300_000_000  # bytes at least, compressed: all of the image
BUILD = ("build", "--framework", "pytorch", "--cuda", "cpu", "--smoke", "--json", "--progress", "plain")

# y = 2 x + 1, each rank with rows of its own: without the others' gradients it ends elsewhere on every rank. It ends
# without Python's own end: a thread of Gloo that still holds the last work would abort the process there, here about
# once in 15 jobs of a busy machine (pytorch/pytorch#179291; pt_gloo_runloop in TensorImpl::decref_pyobject).
TRAIN = """
import argparse, json, os, socket, sys
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
lr = parser.parse_args().lr
slope, intercept = json.load(open(os.environ["SM_CHANNEL_TRAINING"] + "/line.json"))
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
torch.manual_seed(dist.get_rank())
for step in range(200):
    x = torch.rand(32, 1) * 2 - 1
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), slope * x + intercept).backward()
    optimizer.step()
weights = [round(float(p), 2) for p in model.parameters()]
seen = [None] * dist.get_world_size()
dist.all_gather_object(seen, {"host": os.environ["SM_CURRENT_HOST"], "name": socket.gethostname(), "weights": weights})
if dist.get_rank() == 0:
    with open(os.environ["SM_MODEL_DIR"] + "/seen.json", "w") as file:
        json.dump({"torch": torch.__version__, "ranks": seen}, file)
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""

FIT_2 = """
import sys
import boto3
from sagemaker.local import LocalSession
from sagemaker.pytorch import PyTorch

image, role, work, hosts = sys.argv[1:]
session = LocalSession(boto_session=boto3.Session())
session.config = {"local": {"local_code": True, "container_root": work + "/root"}}
estimator = PyTorch(
    image_uri=image, role=role, instance_count=int(hosts), instance_type="local", sagemaker_session=session,
    source_dir=work + "/src", entry_point="train.py", hyperparameters={"lr": 0.2},
    distribution={"torch_distributed": {"enabled": True}}, output_path="file://" + work + "/out",
)
estimator.fit({"training": "file://" + work + "/data"})
"""

FIT_3 = """
import sys
from sagemaker.train.configs import Compute, InputData, SourceCode
from sagemaker.train.distributed import Torchrun
from sagemaker.train.model_trainer import Mode, ModelTrainer

image, role, work, hosts = sys.argv[1:]
trainer = ModelTrainer(
    training_mode=Mode.LOCAL_CONTAINER, training_image=image, role=role,
    compute=Compute(instance_type="local_cpu", instance_count=int(hosts)),
    source_code=SourceCode(source_dir=work + "/src", entry_script="train.py"), hyperparameters={"lr": 0.2},
    distributed=Torchrun(process_count_per_node=1), local_container_root=work + "/root",
)
trainer.train(input_data_config=[InputData(channel_name="training", data_source=work + "/data")])
"""


@dataclass(frozen=True)
class Shipped:
    """An image of ours in the emulated ECR."""

    image_id: str
    uri: str
    digest: str


@pytest.fixture(scope="module")
def shipped(program, proven, cloud) -> Shipped:
    """Built again, which changes nothing, and sent by the one command that does it all."""
    image = proven["build"]["image_id"]
    cloud.client("ecr").create_repository(repositoryName=REPOSITORY)
    built = program(*BUILD, "--push", REPOSITORY, **cloud.environment)
    assert built.code == 0, built.err[-4000:]
    assert built.json["image_id"] == image
    (row,) = built.json["push"]["images"]
    assert row["proven"]
    assert row["uri"] == f"{cloud.host()}/{REPOSITORY}@{row['digest']}"
    return Shipped(image, row["uri"], row["digest"])


@pytest.fixture(scope="module")
def machine(spare_engine) -> Iterator[SpareEngine]:
    """The machine of a data scientist: its engine holds nothing."""
    with spare_engine(networks=True) as engine:
        yield engine


@pytest.fixture(scope="module")
def train(cloud, shipped, machine, tmp_path_factory) -> Callable[..., list[dict]]:
    """Train with an SDK on one host and on two, from an engine without the image: what the ranks saw, by hosts."""
    folder = programs(tmp_path_factory.mktemp("programs"), find_client().path)

    def run(requirement: str, script: str, work: Path, model: str, hosts: int) -> list[dict]:
        sdk = Sdk(interpreter_with(requirement), folder, {**cloud.environment, "DOCKER_HOST": machine.endpoint})
        for name in ("src", "data", "root", "out"):
            (work / name).mkdir(parents=True)
        (work / "src" / "train.py").write_text(TRAIN)
        (work / "data" / "line.json").write_text("[2, 1]")
        role = f"arn:aws:iam::{cloud.account}:role/none"
        sdk.run(script, shipped.uri, role, str(work), str(hosts), folder=work)
        with tarfile.open(work / model) as archive:
            file = archive.extractfile("seen.json")
            assert file is not None
            ranks: list[dict] = json.load(file)["ranks"]
            return ranks

    return run


@pytest.mark.parametrize(
    ("requirement", "script", "model"),
    [
        pytest.param(SDK2, FIT_2, "out/model.tar.gz", id="sdk-2"),
        pytest.param(SDK3, FIT_3, "root/compressed_artifacts/model.tar.gz", id="sdk-3"),
    ],
)
def test_an_estimator_logs_in_pulls_by_digest_and_trains(
    cloud, shipped, machine, train, tmp_path, requirement, script, model
):
    engine = docker_sdk.DockerClient(machine.endpoint)
    try:
        fresh = not engine.images.list()
        if not fresh:
            # The other SDK was here. The layers stay, which saves a minute; the name has to be pulled again.
            engine.images.get(shipped.uri).tag("kept")
            engine.images.remove(shipped.uri)
        cloud.requests.clear()
        cloud.calls.clear()
        for hosts in (1, 2):
            ranks = train(requirement, script, tmp_path / str(hosts), model, hosts)
            assert [rank["weights"] for rank in ranks] == [[2.0, 1.0]] * hosts
            assert len({rank["name"] for rank in ranks}) == hosts
            # Logged in and pulled once, by digest: what was built here is what trained there.
            assert cloud.calls.count("GetAuthorizationToken") == 1
            assert ("/v2/", 200) in {(asked.path, asked.status) for asked in cloud.requests}
            assert engine.images.get(shipped.uri).id == shipped.image_id
        manifests = {asked.path for asked in cloud.requests if "/manifests/" in asked.path}
        assert manifests <= {f"/v2/{REPOSITORY}/manifests/{shipped.digest}"}
        if fresh:
            assert manifests
            assert sum(asked.sent for asked in cloud.requests if "/blobs/" in asked.path) > PULLED
    finally:
        engine.close()
