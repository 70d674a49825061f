"""AWS's API by moto, except for ECR operations that moto answers differently; refusals on demand, a log of calls."""

from __future__ import annotations

import base64
import io
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from werkzeug.serving import WSGIRequestHandler, make_server

from tests.doubles.faults import Faults
from tests.doubles.images import Images, Refused, digest_of
from tests.doubles.jobs import Jobs
from tests.doubles.kms import signed_digest
from tests.doubles.lifecycle import faults
from tests.doubles.names import Registry
from tests.doubles.tokens import Tokens

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

ECR = "AmazonEC2ContainerRegistry_V20150921"
KMS = "TrentService"
SCOPE = re.compile(r"Credential=[^/]+/\d+/([^/]+)/")


class Api:
    """A WSGI application: what is ours is answered here, the rest by moto."""

    def __init__(self, account: str, images: Images, tokens: Tokens, faults: Faults) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self.account = account
        self.images = images
        self.tokens = tokens
        self.faults = faults
        self.jobs = Jobs()
        # Called before each call, with its name: what somebody else does just then.
        self.meanwhile: Callable[[str], None] = lambda _: None
        # What DescribeImageReplicationStatus says next, in place of what was copied; moto does not have it.
        self.copies: list[list[dict[str, str]]] = []
        self.token_seconds: Callable[[], float] = lambda: 0.0
        self._moto = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        service, _, operation = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")
        if not operation and "form-urlencoded" in environ.get("CONTENT_TYPE", ""):
            operation = parse_qs(body.decode()).get("Action", [""])[0]
        if operation:
            self.faults.calls.append(operation)
        self.meanwhile(operation)
        if refusal := self.faults.of_api(operation):
            return _refuse(start, *refusal, xml=not service)
        asked = json.loads(body or b"{}") if service in (ECR, KMS, "SageMaker") else {}
        account = asked.get("registryId") or self.account
        region = found[1] if (found := SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))) else "us-east-1"
        try:
            document = self._answer(service, operation, asked, Registry(account, region))
            if document is not None:
                return _json(start, document)
        except Refused as refused:
            return _refuse(start, refused.code, refused.message, 400, xml=False)
        environ["HTTP_X_MOTO_ACCOUNT_ID"] = account
        answer: Iterable[bytes] = self._moto.get_application(environ)(environ, start)
        return answer

    def _answer(self, service: str, operation: str, asked: dict[str, Any], registry: Registry) -> dict[str, Any] | None:
        """The answer of an operation that is done here; ``None`` for moto's."""
        if service == "SageMaker":
            jobs = {"ListTrainingJobs": self.jobs.listed, "DescribeTrainingJob": self.jobs.described}
            return jobs[operation](registry.region, asked) if operation in jobs else None
        if service == KMS and operation == "Sign" and asked.get("MessageType") == "DIGEST":
            return signed_digest(registry.account, registry.region, asked)
        if service != ECR:
            return None
        if operation == "GetAuthorizationToken":
            return self._authorization(asked, registry.region)
        if operation == "DescribeImageReplicationStatus":
            named = {"repositoryName": asked["repositoryName"], "imageId": asked["imageId"]}
            made = self.images.copies.get((registry.host, asked["repositoryName"], asked["imageId"]["imageDigest"]), [])
            return {**named, "replicationStatuses": self.copies.pop(0) if self.copies else made}
        ours = {
            "PutImage": self._put_image,
            "PutAccountSetting": self._put_account_setting,
            "PutLifecyclePolicy": self._put_lifecycle_policy,
            "ListImageReferrers": self._referrers,
        }
        if operation in ours:
            return ours[operation](asked, registry)
        if operation in ("DescribeImages", "BatchDeleteImage", "BatchGetImage"):
            repository = self.images.repository(registry.account, registry.region, asked["repositoryName"])
            if operation == "BatchDeleteImage":
                return self.images.delete(repository, asked["imageIds"])
            if operation == "BatchGetImage":
                self.images.pull(repository, asked["imageIds"])
            elif "imageIds" not in asked:
                return self._described(asked, repository)
        return None

    def _described(self, asked: dict[str, Any], repository: Any) -> dict[str, Any]:
        """A page of all images; moto has one page, and neither subjects nor pulls."""
        statuses = {"ANY": ("ACTIVE", "ARCHIVED", "ACTIVATING")}
        status = asked.get("filter", {}).get("imageStatus", "ACTIVE")
        found = self.images.described(repository)
        found = [one for one in found if one["imageStatus"] in statuses.get(status, (status,))]
        begin, count = int(asked.get("nextToken") or 0), asked.get("maxResults", 100)
        more = {"nextToken": str(begin + count)} if begin + count < len(found) else {}
        return {"imageDetails": found[begin : begin + count], **more}

    def _authorization(self, asked: dict[str, Any], region: str) -> dict[str, Any]:
        entries = []
        for account in asked.get("registryIds") or [self.account]:
            password, end = self.tokens.issue(self.token_seconds())
            token = base64.b64encode(f"AWS:{password}".encode()).decode()
            endpoint = f"https://{Registry(account, region).host}"
            entries.append({"authorizationToken": token, "expiresAt": end, "proxyEndpoint": endpoint})
        return {"authorizationData": entries}

    def _put_account_setting(self, asked: dict[str, Any], registry: Registry) -> dict[str, Any] | None:
        if asked["name"] != "BLOB_MOUNTING":
            return None
        (self.images.mounting.add if asked["value"] == "ENABLED" else self.images.mounting.discard)(registry.host)
        return {"name": asked["name"], "value": asked["value"]}

    def _put_image(self, asked: dict[str, Any], registry: Registry) -> dict[str, Any]:
        manifest = asked["imageManifest"]
        repository = self.images.repository(registry.account, registry.region, asked["repositoryName"])
        digest = asked.get("imageDigest") or digest_of(manifest.encode())
        tag = asked.get("imageTag")
        image = self.images.put(repository, manifest, asked.get("imageManifestMediaType"), tag, digest)
        named = {"imageDigest": digest} | ({"imageTag": tag} if tag else {})
        record = {"registryId": registry.account, "repositoryName": repository.name, "imageId": named}
        kind = image.image_manifest_media_type
        return {"image": {**record, "imageManifest": manifest, "imageManifestMediaType": kind}}

    def _put_lifecycle_policy(self, asked: dict[str, Any], registry: Registry) -> dict[str, Any]:
        text = asked["lifecyclePolicyText"]
        if wrong := faults(text):
            raise Refused("InvalidParameterException", f"Lifecycle policy validation failure: {'; '.join(wrong)}")
        repository = self.images.repository(registry.account, registry.region, asked["repositoryName"])
        repository.lifecycle_policy = text
        return {"registryId": registry.account, "repositoryName": repository.name, "lifecyclePolicyText": text}

    def _referrers(self, asked: dict[str, Any], registry: Registry) -> dict[str, Any]:
        """A page of the documents attached to a manifest; moto does not have this operation."""
        repository = self.images.repository(registry.account, registry.region, asked["repositoryName"])
        found = self.images.referrers(repository, asked["subjectId"]["imageDigest"])
        if kinds := asked.get("filter", {}).get("artifactTypes"):
            found = [one for one in found if one["artifactType"] in kinds]
        begin, count = int(asked.get("nextToken") or 0), asked.get("maxResults", 50)
        more = {"nextToken": str(begin + count)} if begin + count < len(found) else {}
        return {"referrers": found[begin : begin + count], **more}


def _json(start: StartResponse, document: dict[str, Any]) -> list[bytes]:
    body = json.dumps(document).encode()
    start("200 OK", _headers("application/x-amz-json-1.1", body))
    return [body]


def _refuse(start: StartResponse, code: str, message: str, status: int, *, xml: bool) -> list[bytes]:
    """An error in the form of the service's protocol: JSON, or XML for services that are asked by forms (STS)."""
    if xml:
        error = f"<Error><Type>Sender</Type><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
        body = f"<ErrorResponse>{error}<RequestId>{uuid.uuid4()}</RequestId></ErrorResponse>".encode()
        start(f"{status} Refused", _headers("text/xml", body))
    else:
        body = json.dumps({"__type": code, "message": message}).encode()
        start(f"{status} Refused", _headers("application/x-amz-json-1.1", body))
    return [body]


def _headers(kind: str, body: bytes) -> list[tuple[str, str]]:
    return [("Content-Type", kind), ("Content-Length", str(len(body))), ("x-amzn-RequestId", str(uuid.uuid4()))]


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: Any) -> None:
        """Calls are in the log of the faults."""


@contextmanager
def served(api: Api) -> Iterator[str]:
    """Serve the API on a free port of 127.0.0.1; yields its URL."""
    server = make_server("127.0.0.1", 0, api, threaded=True, request_handler=_Quiet)
    server.daemon_threads = True  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="aws-api")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
