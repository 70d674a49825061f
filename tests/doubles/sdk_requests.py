"""Requests that SageMaker's SDKs send to AWS: runs programs against an emulated API on loopback, and records them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("sdk_worker.py")
ACCOUNT, REGION, BUCKET, ROLE_NAME = "123456789012", "us-west-2", "bucket", "training"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/{ROLE_NAME}"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


@contextmanager
def emulated_api() -> Iterator[str]:
    """The URL of an emulated AWS with a bucket and a role, gone on the way out."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        session = boto3.Session(aws_access_key_id="none", aws_secret_access_key="none", region_name=REGION)
        place = {"LocationConstraint": REGION}
        s3, iam = session.client("s3", endpoint_url=url), session.client("iam", endpoint_url=url)
        # What moto knows is the process's, not the server's: an earlier server may have made both.
        with suppress(s3.exceptions.BucketAlreadyOwnedByYou):
            s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration=place)
        with suppress(iam.exceptions.EntityAlreadyExistsException):
            iam.create_role(RoleName=ROLE_NAME, AssumeRolePolicyDocument=json.dumps(TRUST))
        yield url
    finally:
        server.stop()


def variables(url: str) -> dict[str, str]:
    """The environment of a program that is to know no other AWS than the emulated one."""
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "LANG", "TMPDIR") if name in os.environ}
    return kept | {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "*",
        "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
    }


@dataclass
class Sdk:
    """A running worker of one SDK."""

    process: subprocess.Popen[str]
    log: Path

    def ask(self, **asked: Any) -> dict[str, Any]:
        """The worker's answer; see ``sdk_worker.py``."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the worker died: {self.log.read_text()[-3000:]}"
        told: dict[str, Any] = json.loads(line)
        return told

    def sends(self, source: str, folder: Path) -> dict[str, Any]:
        """The one request of a program: for a training job, or for a tuning job."""
        told = self.ask(do="program", source=source, folder=str(folder))
        assert "error" not in told, told["trace"]
        assert len(told["sent"]) == 1, told
        request: dict[str, Any] = told["sent"][0]
        name = "HyperParameterTuningJobName" if "HyperParameterTuningJobName" in request else "TrainingJobName"
        assert request[name] in told["said"]
        return request


@contextmanager
def sdk(python: Path, url: str, folder: Path) -> Iterator[Sdk]:
    """A worker in an environment that has an SDK."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "worker.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [str(python), str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=variables(url),
            cwd=folder,
        )
        try:
            yield Sdk(process, log)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    pipe.close()
