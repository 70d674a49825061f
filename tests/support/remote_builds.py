"""What tests of ``build --on codebuild`` share, as a plugin of pytest: an emulated CodeBuild, builds that end well."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader

from tests.doubles.codebuild_front import codebuild_service
from tests.doubles.codebuild_service import CodeBuildService, Told
from tests.support.build_records import record_of
from trainwright.catalog.catalog import load_catalog
from trainwright.pipeline import follow, upload
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push.documents import PushDocument, PushedImage, PushedTag

LINE = ("build", "pytorch:cpu", "--on", "codebuild")
IMAGE, DIGEST = f"sha256:{'ab' * 32}", f"sha256:{'cd' * 32}"
URI = f"123456789012.dkr.ecr.us-west-2.amazonaws.com/trainwright-upload/images@{DIGEST}"
FAILED = "COMMAND_EXECUTION_ERROR: Error while executing command: ../program/invoke smoke. Reason: exit status 6"


@cache
def plan(cuda: str = "cpu") -> Plan:
    return resolve(make_request(framework="pytorch", cuda=cuda), load_catalog())


def record(of: Plan, *, digest: str = DIGEST, smoke: bool = True) -> dict[str, bytes]:
    """The files that a build which ended well sends home."""
    image = PushedImage(
        image="trainwright/candidate:upload",
        image_id=IMAGE,
        plan=of.id,
        uri=URI,
        digest=digest,
        account="123456789012",
        region="us-west-2",
        repository="trainwright-upload/images",
        proven=True,
        cuda="cpu",
        entry_point=None,
        tags=(PushedTag(tag="2.13.0-cpu", kind="moving", state="made", says=""),),
        sent_bytes=1,
        layers_sent=1,
        layers_present=0,
        seconds=1.0,
        sbom="sbom.json",
        sbom_digest=DIGEST,
        proof={"plan": DIGEST},
        record="record.json",
    )
    pushed = PushDocument(schema="trainwright/push/1", images=(image,), notices=())
    built = record_of(of, IMAGE, smoke=smoke)
    return {
        "push.json": json.dumps(pushed.as_json()).encode(),
        f"images/{IMAGE[7:23]}/record.json": json.dumps(built.as_json()).encode(),
    }


def good(**more: Any) -> Told:
    return Told(exported={"IMAGE_DIGEST": DIGEST, "IMAGE_URI": URI}, **{"record": record(plan()), **more})


@pytest.fixture(scope="session")
def models() -> Iterator[None]:
    """botocore's files of services are read once, not by each client."""
    with pytest.MonkeyPatch.context() as patch:
        read = cache(partial(JSONFileLoader.load_file, JSONFileLoader()))
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: read(path))
        yield


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, models: None) -> Iterator[CodeBuildService]:
    """An emulated CodeBuild that this process asks, with a build that ends well."""
    door = {name: file for name, file in upload.program_files().items() if "/" not in name}
    monkeypatch.setattr(upload, "program_files", lambda: door)
    monkeypatch.setattr(follow, "PAUSE", 0.01)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with codebuild_service(told=good()) as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


def home(tmp_path: Path, service: CodeBuildService) -> Path:
    (build,) = service.builds
    return tmp_path / "state" / "remote" / build.partition(":")[2]


def said(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stderr
    return done.stderr
