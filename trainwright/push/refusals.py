"""Turns refusals of AWS and registries into failures with a remedy, and says which are worth a retry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from trainwright.core.errors import Failure, RegistryRefused
from trainwright.push.references import PushPlace

LOGIN = "aws sso login   # or new keys: aws configure; AWS_PROFILE=NAME selects another profile"
RefusalKind = Literal["token", "busy", "network", "repository", "immutable", "denied", "disk", "layer", "other"]
# Texts of the engine in the stream of a push, or of a registry; the first match counts. They come from ECR's errors,
# from docker's and containerd's sources, and from a registry in which the failures were provoked.
_TEXTS: tuple[tuple[RefusalKind, str], ...] = (
    ("disk", r"no space left on device|disk quota exceeded"),
    ("layer", r"manifest[ _]blob[ _]unknown"),
    (
        "token",
        r"authorization token (has expired|is invalid)|no basic auth credentials|unauthorized|authentication required",
    ),
    ("repository", r"name unknown|repository with name .* does not exist|repository name not known"),
    ("immutable", r"tag invalid|tag is immutable|is immutable"),
    ("busy", r"toomanyrequests|too many requests|rate exceeded|throttl|\b429\b"),
    ("denied", r"denied|not authorized|forbidden|\b403\b"),
    (
        "network",
        r"connection (reset|refused|timed out)|broken pipe|\bEOF\b|i/o timeout|tls handshake|timed? ?out|no such host"
        r"|network is unreachable|server misbehaving|blob upload (invalid|unknown)|digest invalid|\b50\d\b"
        r"|unexpected (http )?status|internal server error|use of closed network|http2?: ",
    ),
)
_AGAIN = "Run the same command again; layers already pushed are not sent again."
LOST = (
    "The registry lacks a layer of the image, although it said that it had it. Run the same command again: it sends "
    "what the registry says is missing. If it ends in the same way, send the image to a new repository, which takes "
    "all layers."
)
# At another try an engine asks for each layer again, and sends those that are now said to be missing.
_RETRIED = frozenset({"token", "busy", "network", "layer"})


@dataclass(frozen=True)
class Refusal:
    """A refusal of a registry; the remedy depends on ``kind``."""

    kind: RefusalKind
    text: str

    @property
    def retried(self) -> bool:
        """Whether a retry may help."""
        return self.kind in _RETRIED


def read_refusal(text: str) -> Refusal:
    """The refusal behind the error text of a push."""
    kind: RefusalKind = next((kind for kind, pattern in _TEXTS if re.search(pattern, text, re.IGNORECASE)), "other")
    return Refusal(kind, " ".join(text.split()))


def registry_failure(refusal: Refusal, *, place: str, tries: int, create: str) -> RegistryRefused:
    """The failure of a push that was given up.

    Args:
        refusal: the last refusal.
        place: the address of the push.
        tries: number of attempts.
        create: the flags that name the repository, for a remedy.
    """
    host = place.partition("/")[0]
    remedies: dict[RefusalKind, str] = {
        "token": f"The registry does not accept these credentials: {LOGIN}",
        "busy": "The registry is busy: run the same command again later; layers already pushed are not sent again.",
        "network": f"Run the same command again: layers already pushed are not sent again. Does {host} answer?",
        "repository": f"./invoke push … {create} --create   # creates the repository",
        "immutable": "The tag belongs to another image: --revision 2 gives this one its own tag.",
        "denied": _permission(refusal.text, "ecr:PutImage and the ecr:*Layer* actions"),
        "disk": "docker system df shows what fills the engine's disk; free space and run the same command again.",
        "layer": LOST,
        "other": "Run the same command again; layers already pushed are not sent again.",
    }
    if "x509" in refusal.text or "certificate" in refusal.text:
        remedies["other"] = remedies["network"] = (
            f"The engine does not trust {host}: put its certificate authority into /etc/docker/certs.d/{host}/ca.crt"
        )
    if "no such host" in refusal.text:
        remedies["network"] = f"The engine's machine cannot resolve {host}: check its DNS, --region and --account."
    times = f" ({tries} tries)" if tries > 1 else ""
    return RegistryRefused(
        f"{place}: {refusal.text}{times}; no moving tag was moved",
        remedy=remedies[refusal.kind],
        cause=refusal.kind,
        place=place,
    )


def aws_failure(
    error: Exception, *, action: str, where: str, create: str = "", page: str = "docs/push.md", again: str = _AGAIN
) -> Failure:
    """The failure of a call to AWS.

    Args:
        error: what botocore raised.
        action: of IAM, such as ``ecr:PutImage``.
        where: the registry or repository of the call.
        create: the flags that name the repository, for a remedy.
        page: that has the permissions of the call.
        again: the remedy of a refusal that nothing more is known of.
    """
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError):
        said: dict[str, Any] = dict(error.response.get("Error", {}))
        code, text = str(said.get("Code", "")), str(said.get("Message", ""))
        tries = int(error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)) + 1
        remedy = _remedy(code, text, action, create, page) or again
        times = f" ({tries} tries)" if tries > 1 else ""
        return RegistryRefused(f"{where}: {action}: {code}: {text}{times}", remedy=remedy, cause=code, place=where)
    name = type(error).__name__
    text = " ".join(str(error).split())
    remedy = (
        "Run the same command again. Can this machine reach AWS? Proxies are read from HTTPS_PROXY and the site file."
    )
    if name in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "NoAuthTokenError"):
        remedy = f"{LOGIN}\n./invoke doctor shows where credentials are looked up."
    elif "SSO" in name or name in ("TokenRetrievalError", "UnauthorizedSSOTokenError", "LoginRefreshRequired"):
        remedy = LOGIN
    elif name == "ProfileNotFound":
        remedy = "aws configure list-profiles   # AWS_PROFILE selects one of these"
    elif name == "SSLError":
        remedy = "The certificate authority is not trusted: name it with AWS_CA_BUNDLE or ca_bundle in the site file."
    return RegistryRefused(f"{where}: {action}: {text}", remedy=remedy, cause=name, place=where)


_BUSY = "AWS is busy: run the same command again later."
_EXPIRED = f"The credentials have expired: {LOGIN}"
_UNKNOWN = f"AWS does not know these credentials: {LOGIN}"
_REMEDIES = {
    "ExpiredTokenException": _EXPIRED,
    "ExpiredToken": _EXPIRED,
    "RequestExpired": _EXPIRED,
    "UnrecognizedClientException": _UNKNOWN,
    "InvalidClientTokenId": _UNKNOWN,
    "InvalidSignatureException": _UNKNOWN,
    "SignatureDoesNotMatch": _UNKNOWN,
    "ThrottlingException": _BUSY,
    "Throttling": _BUSY,
    "TooManyRequestsException": _BUSY,
    "RequestLimitExceeded": _BUSY,
    "LimitExceededException": "A quota is used up: aws service-quotas list-service-quotas --service-code ecr",
    "LayersNotFoundException": LOST,
    "KmsException": "The repository's KMS key cannot be used: its policy must allow ECR and this caller.",
}


def _remedy(code: str, text: str, action: str, create: str, page: str) -> str:
    if code in ("AccessDeniedException", "AccessDenied", "UnauthorizedOperation"):
        return _permission(text, action, page)
    if code == "RepositoryNotFoundException":
        return f"./invoke push … {create} --create   # creates it, with immutable tags and scan on push"
    return _REMEDIES.get(code, "")


def _permission(text: str, action: str, page: str = "docs/push.md") -> str:
    """The remedy that names the missing IAM action: the one that AWS names, else the one that was called."""
    named = re.search(r"perform: ([\w-]+:\w+)", text)
    return f"The caller lacks the IAM permission {named[1] if named else action}: {page} has the whole policy."


def clash(place: PushPlace, tag: str, digest: str) -> RegistryRefused:
    """The refusal of an image whose immutable tag another one has."""
    return RegistryRefused(
        f"{place.tagged(tag)}: the tag belongs to another image, {digest}; nothing was sent",
        remedy="The same plan was built twice on one day, with different distribution packages. Use that image: "
        f"{place.digested(digest)}\nor give this one its own tag: --revision 2",
        cause="immutable",
        place=place.tagged(tag),
        uri=place.digested(digest),
    )
