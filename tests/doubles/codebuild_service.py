"""CodeBuild's API, its logs in CloudWatch and its bucket in S3, on loopback, as ``build --on codebuild`` meets them.

``codebuild_front.py`` has the door. Requests and answers are held to botocore's own service models. What a build does
is either told beforehand (:class:`Told`), or its buildspec is really run (:func:`really`), by the runner of
``tests/doubles/codebuild.py``.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import tempfile
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.doubles.codebuild import Build, run_build
from tests.doubles.service_models import misfits, shape_of

BUCKET = "trainwright-upload-bucket"
GROUP = "/aws/codebuild/trainwright-upload"
LINES_OF_A_PAGE = 3
_PHASES = {"install": "INSTALL", "pre_build": "PRE_BUILD", "build": "BUILD", "post_build": "POST_BUILD"}


@dataclass
class Told:
    """What a build does that nothing is run for.

    Attributes:
        status: that it ends with.
        phases: name, status and what it says of each phase.
        log: its lines.
        late: lines that CloudWatch has some time after the build has ended: when it has been asked for more in vain.
        exported: its exported variables.
        record: the files of its record; ``None`` for no artifact.
        looks: how many times it is looked at before it has ended.
    """

    status: str = "SUCCEEDED"
    phases: Sequence[tuple[str, str, str]] = (("BUILD", "SUCCEEDED", ""),)
    log: Sequence[str] = ()
    late: Sequence[str] = ()
    exported: Mapping[str, str] = field(default_factory=dict)
    record: Mapping[str, bytes] | bytes | None = None
    looks: int = 2


@dataclass
class _Build:
    id: str
    project: str
    source: str
    version: str
    variables: dict[str, str]
    told: Told
    began: float
    done: threading.Event | None = None
    looked: int = 0
    status: str = "IN_PROGRESS"
    ended: float = 0.0
    in_vain: bool = False

    @property
    def number(self) -> str:
        return self.id.partition(":")[2]


Runner = Callable[[bytes, Mapping[str, str]], Told]


@dataclass
class CodeBuildService:
    """The service.

    Attributes:
        endpoint: its address.
        account, region: that its ARNs name.
        projects: variables of each project, by its name.
        told: what the next builds do.
        runner: runs what was sent, in place of what was told.
        objects: contents by bucket, key and version.
        calls: the operations that were asked for, with their parameters.
        builds: by id.
        wrong: what did not keep to a service model.
        refuse: operations that are refused so many times: status, code, message.
        cut: operations whose connection is cut so many times.
        before: called with the name of each operation.
    """

    account: str = "123456789012"
    region: str = "us-west-2"
    endpoint: str = ""
    projects: dict[str, dict[str, str]] = field(default_factory=dict)
    told: Told = field(default_factory=Told)
    runner: Runner | None = None
    objects: dict[tuple[str, str], list[tuple[str, bytes]]] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    builds: dict[str, _Build] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    refuse: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    before: Callable[[str], None] = lambda _: None
    _tokens: dict[str, str] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which boto3 asks this for the three services, and nobody for anything else."""
        return {
            "AWS_ENDPOINT_URL_CODEBUILD": self.endpoint,
            "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            "AWS_ACCESS_KEY_ID": "AKIAEMULATEDEMULATED",
            "AWS_SECRET_ACCESS_KEY": "emulated",
            "AWS_DEFAULT_REGION": self.region,
            "AWS_REGION": self.region,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "*",
            "no_proxy": "*",
        }

    def fail(self, operation: str, code: str, message: str = "no", *, times: int = 1, status: int = 400) -> None:
        """Refuse the next calls of an operation."""
        self.refuse.setdefault(operation, []).extend([(status, code, message)] * times)

    def asked(self, operation: str) -> list[dict[str, Any]]:
        """The parameters of each call of an operation."""
        return [parameters for name, parameters in self.calls if name == operation]

    # ---- CodeBuild -------------------------------------------------------------------------------------------------

    def list_projects(self, asked: dict[str, Any]) -> dict[str, Any]:
        """A page of the names, two at a time."""
        names, begin = sorted(self.projects), int(asked.get("nextToken") or 0)
        more = {"nextToken": str(begin + 2)} if begin + 2 < len(names) else {}
        return {"projects": names[begin : begin + 2], **more}

    def batch_get_projects(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Those that there are."""
        rows = [self._project(name) for name in asked["names"] if name in self.projects]
        missing = [name for name in asked["names"] if name not in self.projects]
        return {"projects": rows, "projectsNotFound": missing}

    def _project(self, name: str) -> dict[str, Any]:
        rows = [{"name": k, "value": v, "type": "PLAINTEXT"} for k, v in self.projects[name].items()]
        machine = {"type": "LINUX_CONTAINER", "image": "i", "computeType": "BUILD_GENERAL1_LARGE"}
        arn = f"arn:aws:codebuild:{self.region}:{self.account}:project/{name}"
        return {"name": name, "arn": arn, "environment": {**machine, "environmentVariables": rows}}

    def start_build(self, asked: dict[str, Any]) -> dict[str, Any]:
        """A build of what was sent; the same one again for a token that was seen before."""
        name = asked["projectName"]
        if name not in self.projects:
            raise Refused(400, "ResourceNotFoundException", f"Project cannot be found: {name}")
        if again := self._tokens.get(asked.get("idempotencyToken", "")):
            return {"build": self._row(self.builds[again])}
        overrides = {row["name"]: row["value"] for row in asked.get("environmentVariablesOverride", ())}
        bucket, _, key = asked["sourceLocationOverride"].partition("/")
        content = self.get_object(bucket, key, asked.get("sourceVersion", ""))
        build = _Build(
            f"{name}:{uuid.uuid4()}",
            name,
            asked["sourceLocationOverride"],
            asked.get("sourceVersion", ""),
            {**self.projects[name], **overrides},
            self.told,
            time.time(),
        )
        self.builds[build.id] = build
        self._tokens[asked.get("idempotencyToken", build.id)] = build.id
        if self.runner is not None:
            build.done = threading.Event()
            thread = threading.Thread(target=self._run, args=(build, content, self.runner), name=build.id)
            self._threads.append(thread)
            thread.start()
        return {"build": self._row(build)}

    def _run(self, build: _Build, content: bytes, runner: Runner) -> None:
        assert build.done is not None
        try:
            build.told = runner(content, build.variables)
        except Exception as fault:
            build.told = Told("FAULT", [("BUILD", "FAULT", f"CLIENT_ERROR: {fault!r}")])
        finally:
            build.done.set()

    def batch_get_builds(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Those that there are; each look is nearer to the end."""
        rows = []
        for build in (self.builds[one] for one in asked["ids"] if one in self.builds):
            build.looked += 1
            over = build.looked > build.told.looks if build.done is None else build.done.is_set()
            if over and build.status == "IN_PROGRESS":
                self._end(build, build.told.status)
            rows.append(self._row(build))
        missing = [one for one in asked["ids"] if one not in self.builds]
        return {"builds": rows, "buildsNotFound": missing}

    def stop_build(self, asked: dict[str, Any]) -> dict[str, Any]:
        """It ends as stopped."""
        build = self.builds[asked["id"]]
        self._end(build, "STOPPED")
        return {"build": self._row(build)}

    def _end(self, build: _Build, status: str) -> None:
        build.status, build.ended = status, time.time()
        record = build.told.record
        if record is not None and status != "STOPPED":
            content = record if isinstance(record, bytes) else _zipped(record)
            self.objects[(BUCKET, f"records/{build.number}/record.zip")] = [("", content)]

    def _row(self, build: _Build) -> dict[str, Any]:
        over = build.status != "IN_PROGRESS"
        variables = [{"name": k, "value": v, "type": "PLAINTEXT"} for k, v in build.variables.items()]
        machine = {"type": "LINUX_CONTAINER", "image": "i", "computeType": "BUILD_GENERAL1_LARGE"}
        row: dict[str, Any] = {
            "id": build.id,
            "arn": f"arn:aws:codebuild:{self.region}:{self.account}:build/{build.id}",
            "projectName": build.project,
            "buildStatus": build.status,
            "buildComplete": over,
            "currentPhase": "COMPLETED" if over else "QUEUED" if build.looked < 2 else "BUILD",
            "startTime": build.began,
            "source": {"type": "S3", "location": build.source},
            "environment": {**machine, "environmentVariables": variables},
        }
        if build.looked > 1 or over:
            row["logs"] = {"groupName": GROUP, "streamName": build.number}
        if over:
            where = f"arn:aws:s3:::{BUCKET}/records/{build.number}/record.zip"
            row |= {"endTime": build.ended, "artifacts": {"location": where}}
            row["exportedEnvironmentVariables"] = [{"name": k, "value": v} for k, v in build.told.exported.items()]
            row["phases"] = [_phase(*each) for each in build.told.phases] + [{"phaseType": "COMPLETED"}]
        return row

    # ---- CloudWatch Logs -------------------------------------------------------------------------------------------

    def get_log_events(self, asked: dict[str, Any]) -> dict[str, Any]:
        """A page of the log; at its end, the token that was given."""
        build = next((one for one in self.builds.values() if one.number == asked["logStreamName"]), None)
        if build is None or asked["logGroupName"] != GROUP or (not build.told.log and not build.told.late):
            raise Refused(400, "ResourceNotFoundException", "The specified log stream does not exist.")
        lines = list(build.told.log)
        lines += build.told.late if build.in_vain else ()
        begin = int(asked["nextToken"].partition("/")[2]) if "nextToken" in asked else 0
        page = lines[begin : begin + LINES_OF_A_PAGE]
        build.in_vain = build.in_vain or (not page and build.status != "IN_PROGRESS")
        moment = int(time.time() * 1000)
        events = [{"timestamp": moment, "ingestionTime": moment, "message": f"{line}\n"} for line in page]
        token = f"f/{begin + len(page)}"
        return {"events": events, "nextForwardToken": token, "nextBackwardToken": f"b/{begin}"}

    # ---- S3 --------------------------------------------------------------------------------------------------------

    def get_object(self, bucket: str, key: str, version: str = "") -> bytes:
        """The newest version, or that one."""
        versions = self.objects.get((bucket, key), [])
        found = [content for number, content in versions if not version or number == version]
        if not found:
            raise Refused(404, "NoSuchKey", "The specified key does not exist.")
        return found[-1]

    def put_object(self, bucket: str, key: str, content: bytes, headers: Mapping[str, str]) -> str:
        """Keep an object; its version."""
        if bucket != BUCKET:
            raise Refused(404, "NoSuchBucket", "The specified bucket does not exist")
        if headers.get("x-amz-expected-bucket-owner", self.account) != self.account:
            raise Refused(403, "AccessDenied", "Access Denied")
        checksum = base64.b64encode(hashlib.sha256(content).digest()).decode()
        if headers.get("x-amz-checksum-sha256", checksum) != checksum:
            raise Refused(400, "BadDigest", "The SHA256 you specified did not match the calculated checksum.")
        versions = self.objects.setdefault((bucket, key), [])
        versions.append((f"v{len(versions) + 1}", content))
        return versions[-1][0]

    # ---- the models ------------------------------------------------------------------------------------------------

    def check(self, service: str, operation: str, document: dict[str, Any], side: str) -> None:
        """Hold a request or an answer to the service's model."""
        self.wrong += [f"{operation}, {side}{each}" for each in misfits(document, shape_of(service, operation, side))]

    def before_call(self, operation: str, parameters: dict[str, Any]) -> None:
        """Note a call, and refuse it if that is wanted."""
        self.calls.append((operation, parameters))
        self.before(operation)
        if self.cut.get(operation, 0) > 0:
            self.cut[operation] -= 1
            raise ConnectionAbortedError
        if self.refuse.get(operation):
            raise Refused(*self.refuse[operation].pop(0))

    def finish(self) -> None:
        """Wait for builds that run."""
        for thread in self._threads:
            thread.join()


class Refused(Exception):
    """A call that is answered with an error of AWS's."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def _phase(name: str, status: str, says: str) -> dict[str, Any]:
    contexts = [{"statusCode": says.partition(": ")[0], "message": says.partition(": ")[2]}] if says else []
    return {"phaseType": name, "phaseStatus": status, "durationInSeconds": 7, "contexts": contexts}


def _zipped(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return out.getvalue()


def really(
    environment: Callable[[Path], Mapping[str, str]] = lambda _: {},
    prepare: Callable[[Path], None] = lambda _: None,
    builds: list[Build] | None = None,
) -> Runner:
    """A runner that unpacks what was sent and runs its buildspec.

    Args:
        environment: more variables of the machine, from the source folder; they stand below those of the build.
        prepare: changes the source folder before the first phase.
        builds: gets what came of each.
    """

    def run(content: bytes, variables: Mapping[str, str]) -> Told:
        folder = Path(tempfile.mkdtemp(prefix="trainwright-codebuild-"))
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as packed:
                packed.extractall(folder)
            prepare(folder)
            build = run_build(folder, environment={**environment(folder), **variables})
            if builds is not None:
                builds.append(build)
            return _told(build)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return run


def _told(build: Build) -> Told:
    failed = next((f"{text}\nReason: exit status {code}" for text, code in build.commands if code), "")
    phases = []
    for name, status in build.phases.items():
        good = status == "succeeded"
        says = "" if good else f"COMMAND_EXECUTION_ERROR: Error while executing command: {failed}"
        phases.append((_PHASES[name], "SUCCEEDED" if good else "FAILED", says))
    record = {name: path.read_bytes() for name, path in build.artifacts.items()}
    return Told(
        "SUCCEEDED" if build.succeeded else "FAILED",
        phases,
        log=build.log.splitlines(),
        exported=build.exported,
        record=record or None,
    )
