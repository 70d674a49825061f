"""CodeBuild's API as ``build --on codebuild`` uses it: a project, what is sent to it, a build, its log, its record."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainwright.core.errors import Failure, RegistryRefused, RequestError, did_you_mean
from trainwright.core.text import fits
from trainwright.pipeline.upload import Upload
from trainwright.push.ecr import aws_client
from trainwright.push.refusals import aws_failure
from trainwright.site.site import Site

MARK = "UPLOAD_BUCKET"  # the environment variable that a project of infra/upload.yaml has
STACK = (
    "aws cloudformation deploy --stack-name trainwright-upload --template-file infra/upload.yaml "
    "--capabilities CAPABILITY_IAM   # docs/setup-aws.md"
)
PAGE = "docs/setup-aws.md"
LARGEST_RECORD = 200_000_000  # bytes of a record.zip; that of an image has some hundred kilobytes
_PROJECTS_AT_ONCE = 100  # names in one BatchGetProjects: CodeBuild's service model, ProjectNames
# The forms of CodeBuild's service model: the name of a project, and the id of a build, which begins with it.
PROJECT_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{1,254}"
BUILD_ID = rf"{PROJECT_NAME}:[0-9a-fA-F-]{{1,64}}"


@dataclass(frozen=True)
class UploadProject:
    """A project that builds what is sent to it. ``account`` is twelve digits; ``variables`` are those of its builds."""

    name: str
    region: str
    account: str
    bucket: str
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Phase:
    """A phase of a build. ``status`` is CodeBuild's, empty while it runs; ``says`` is why it failed."""

    name: str
    status: str
    seconds: int
    says: str


@dataclass(frozen=True)
class BuildState:
    """What CodeBuild says of a build.

    Attributes:
        status: ``IN_PROGRESS``, ``SUCCEEDED``, ``FAILED``, ``FAULT``, ``TIMED_OUT`` or ``STOPPED``.
        complete: whether it has ended, its artifacts included.
        phase: that it is in.
        log_group, log_stream: of its log in CloudWatch; empty before it has one.
        record: bucket and key of its artifact; empty before it has one.
        variables: of its environment, plain ones alone.
        exported: its exported variables.
        seconds: from its start to its end, or so far.
    """

    id: str
    status: str
    complete: bool
    phase: str
    phases: tuple[Phase, ...]
    log_group: str
    log_stream: str
    record: tuple[str, str]
    variables: Mapping[str, str]
    exported: Mapping[str, str]
    seconds: float


@dataclass(frozen=True)
class LogPage:
    """Lines of a log. ``token`` asks for the lines after them; it stays the same until there are new ones."""

    lines: tuple[str, ...]
    token: str


class CodeBuild:
    """CodeBuild, its log and its bucket in one region.

    Every call raises :class:`RegistryRefused` if AWS refuses or does not answer.
    """

    def __init__(self, region: str, site: Site) -> None:
        self.region = region
        self._builds = aws_client("codebuild", region, site)
        self._logs = aws_client("logs", region, site)
        self._objects = aws_client("s3", region, site)

    def project(self, name: str | None) -> UploadProject:
        """The project of a name, or the only one that builds what is sent to it.

        Raises:
            RequestError: the name is invalid or unknown, or the region has no such project or several.
        """
        if name is not None and not fits(PROJECT_NAME, name, limit=255):
            raise RequestError(f"--project {name}: not the name of a CodeBuild project")
        names = self._names() if name is None else [name]
        found = {project.name: project for project in self._described(names)}
        takers = [project for project in found.values() if project.bucket]
        if name is None and len(takers) > 1:
            named = ", ".join(sorted(project.name for project in takers))
            raise RequestError(
                f"{self.region} has more than one project that builds what is sent to it: {named}",
                remedy=f"Name one of them: --project {sorted(project.name for project in takers)[0]}",
            )
        if takers:
            return takers[0]
        if name is None:
            raise RequestError(
                f"no CodeBuild project in {self.region} builds what is sent to it", remedy=f"{STACK}\nOr name --region."
            )
        if name in found:
            raise RequestError(
                f"--project {name}: has no variable {MARK}, so it does not build what is sent to it",
                remedy=f"Name a project of infra/upload.yaml, or make one:\n{STACK}",
            )
        raise RequestError(
            f"--project {name}: there is no such project in {self.region}. {self._nearest(name)}".strip(),
            remedy=f"{STACK}\nOr name --region.",
        )

    def send(self, project: UploadProject, upload: Upload) -> tuple[str, str]:
        """Put a file into a project's bucket; its place (``bucket/key``) and its version, if the bucket keeps them."""
        key = f"uploads/{upload.sha256}.zip"
        checksum = base64.b64encode(bytes.fromhex(upload.sha256)).decode()
        with upload.path.open("rb") as content:
            answer = self._call(
                self._objects,
                "put_object",
                f"s3://{project.bucket}/{key}",
                Bucket=project.bucket,
                Key=key,
                Body=content,
                ContentLength=upload.size,
                ChecksumSHA256=checksum,
                ExpectedBucketOwner=project.account,
            )
        return f"{project.bucket}/{key}", str(answer.get("VersionId", ""))

    def start(self, project: UploadProject, source: tuple[str, str], variables: Mapping[str, str]) -> str:
        """Start a build of what was sent; its id.

        Args:
            project: that builds.
            source: place and version of what was sent.
            variables: of the build, above those of the project.
        """
        place, version = source
        more: dict[str, Any] = {"sourceVersion": version} if version and version != "null" else {}
        answer = self._call(
            self._builds,
            "start_build",
            project.name,
            projectName=project.name,
            sourceTypeOverride="S3",
            sourceLocationOverride=place,
            environmentVariablesOverride=[
                {"name": name, "value": value, "type": "PLAINTEXT"} for name, value in variables.items()
            ],
            # botocore may send this again where the answer is lost; two builds would cost twice.
            idempotencyToken=uuid.uuid4().hex,
            **more,
        )
        return str(answer["build"]["id"])

    def state(self, build: str) -> BuildState:
        """What CodeBuild says of a build.

        Raises:
            RequestError: there is no such build.
        """
        found = self._call(self._builds, "batch_get_builds", build, ids=[build]).get("builds", ())
        if not found:
            raise RequestError(
                f"{build}: CodeBuild knows no such build in {self.region}",
                remedy=f"aws codebuild list-builds-for-project --region {self.region} "
                f"--project-name {build.partition(':')[0]}",
            )
        return _state(found[0])

    def stop(self, build: str) -> None:
        """Stop a build."""
        self._call(self._builds, "stop_build", build, id=build)

    def log(self, group: str, stream: str, token: str) -> LogPage:
        """The next lines of a log.

        Args:
            group, stream: of the log; there may be none of them yet.
            token: of the page before; empty for the first one.
        """
        more: dict[str, Any] = {"nextToken": token} if token else {}
        answer = self._call(
            self._logs,
            "get_log_events",
            f"{group}/{stream}",
            ("ResourceNotFoundException",),
            logGroupName=group,
            logStreamName=stream,
            startFromHead=True,
            **more,
        )
        if answer is None:
            return LogPage((), token)
        lines = tuple(str(event["message"]).rstrip("\r\n") for event in answer.get("events", ()))
        return LogPage(lines, str(answer.get("nextForwardToken", token)))

    def fetch(self, place: tuple[str, str]) -> bytes | None:
        """An object; ``None`` if there is none.

        Raises:
            RegistryRefused: it is larger than any record.
        """
        bucket, key = place
        where = f"s3://{bucket}/{key}"
        answer = self._call(self._objects, "get_object", where, ("NoSuchKey",), Bucket=bucket, Key=key)
        if answer is None:
            return None
        if answer["ContentLength"] > LARGEST_RECORD:
            raise RegistryRefused(
                f"{where}: {answer['ContentLength']} bytes; the record of a build is smaller", remedy=PAGE
            )
        from botocore.exceptions import BotoCoreError
        from urllib3.exceptions import HTTPError

        try:
            content: bytes = answer["Body"].read()
        except (BotoCoreError, HTTPError, OSError) as error:
            raise _failure(error, "s3:GetObject", where) from None
        return content

    def _names(self) -> list[str]:
        """The names of all projects."""
        found: list[str] = []
        more: dict[str, Any] = {}
        while True:
            answer = self._call(self._builds, "list_projects", f"CodeBuild in {self.region}", **more)
            found += answer.get("projects", ())
            if not answer.get("nextToken"):
                return found
            more = {"nextToken": answer["nextToken"]}

    def _described(self, names: Sequence[str]) -> list[UploadProject]:
        rows: list[Mapping[str, Any]] = []
        for begin in range(0, len(names), _PROJECTS_AT_ONCE):
            some = list(names[begin : begin + _PROJECTS_AT_ONCE])
            where = some[0] if len(some) == 1 else f"CodeBuild in {self.region}"
            rows += self._call(self._builds, "batch_get_projects", where, names=some).get("projects", ())
        return [_project(row, self.region) for row in rows]

    def _nearest(self, name: str) -> str:
        try:
            return did_you_mean(name, self._names())
        except RegistryRefused:  # who names a project need not be allowed to list them
            return ""

    def _call(self, client: Any, operation: str, where: str, expected: tuple[str, ...] = (), **arguments: Any) -> Any:
        """One call; ``None`` if AWS answers with an expected error code."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(client, operation)(**arguments)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in expected:
                return None
            raise _failure(error, _action(client, operation), where) from None
        except BotoCoreError as error:
            raise _failure(error, _action(client, operation), where) from None


def _action(client: Any, operation: str) -> str:
    """The IAM action of a call, such as ``codebuild:StartBuild``."""
    return f"{client.meta.service_model.signing_name}:{client.meta.method_to_api_mapping[operation]}"


_AGAIN = "Run the same command again."
_REMEDIES = {
    "AccountLimitExceededException": "CodeBuild starts no more builds in this account: wait for others to end, or ask "
    'for a higher quota (Service Quotas, CodeBuild, "Concurrently running builds").',
    "ResourceNotFoundException": f"Name a project or build that there is, or make a project:\n{STACK}",
    "NoSuchBucket": f"The bucket of the project is gone: delete the stack and deploy it again.\n{STACK}",
    "InvalidInputException": f"The project is not as infra/upload.yaml makes it: deploy the stack again.\n{STACK}",
    "PermanentRedirect": "The bucket is in another region: name that with --region.",
}


def _failure(error: Exception, action: str, where: str) -> Failure:
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        # S3 answers a HEAD and some others by the status alone.
        if remedy := _REMEDIES.get(code):
            text = error.response.get("Error", {}).get("Message", "")
            return RegistryRefused(f"{where}: {action}: {code}: {text}", remedy=remedy, cause=code, place=where)
    return aws_failure(error, action=action, where=where, page=PAGE, again=_AGAIN)


def _project(row: Mapping[str, Any], region: str) -> UploadProject:
    variables = _plain(row.get("environment", {}).get("environmentVariables", ()))
    return UploadProject(row["name"], region, row["arn"].split(":")[4], variables.get(MARK, ""), variables)


def _plain(rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {row["name"]: row["value"] for row in rows if row.get("type", "PLAINTEXT") == "PLAINTEXT"}


def _state(row: Mapping[str, Any]) -> BuildState:
    logs = row.get("logs", {})
    # arn:aws:s3:::BUCKET/KEY
    bucket, _, key = row.get("artifacts", {}).get("location", "").partition(":::")[2].partition("/")
    began, ended = row.get("startTime"), row.get("endTime")
    now = ended or (datetime.now(began.tzinfo) if began is not None else None)
    return BuildState(
        id=row["id"],
        status=row.get("buildStatus", ""),
        complete=bool(row.get("buildComplete")),
        phase=row.get("currentPhase", ""),
        phases=tuple(map(_phase, row.get("phases", ()))),
        log_group=logs.get("groupName", ""),
        log_stream=logs.get("streamName", ""),
        record=(bucket, key) if key else ("", ""),
        variables=_plain(row.get("environment", {}).get("environmentVariables", ())),
        exported={each["name"]: each["value"] for each in row.get("exportedEnvironmentVariables", ())},
        seconds=0.0 if began is None or now is None else (now - began).total_seconds(),
    )


def _phase(row: Mapping[str, Any]) -> Phase:
    contexts = [f"{each.get('statusCode', '')}: {each.get('message', '')}" for each in row.get("contexts", ())]
    says = "; ".join(" ".join(text.split()) for text in contexts if text.strip(": "))
    return Phase(row["phaseType"], row.get("phaseStatus", ""), int(row.get("durationInSeconds", 0)), says)
