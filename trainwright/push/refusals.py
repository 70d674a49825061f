"""What AWS and registries say when they refuse, as failures with a remedy; which of them another try may help."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from trainwright.core.errors import Failure, RegistryRefused

LOGIN = "aws sso login   # or new keys: aws configure; AWS_PROFILE=NAME takes another profile"
RefusalKind = Literal["token", "busy", "network", "repository", "immutable", "denied", "disk", "other"]
# Said by the engine in the stream of a push, or by a registry; the first that fits counts. Texts were read off ECR's
# errors, off docker's and containerd's sources, and off a registry in which the failures were made.
_TEXTS: tuple[tuple[RefusalKind, str], ...] = (
    ("disk", r"no space left on device|disk quota exceeded"),
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
_RETRIED = frozenset({"token", "busy", "network"})


@dataclass(frozen=True)
class Refusal:
    """What a registry said. ``kind`` tells what may help."""

    kind: RefusalKind
    text: str

    @property
    def retried(self) -> bool:
        """Whether another try may help."""
        return self.kind in _RETRIED


def read_refusal(text: str) -> Refusal:
    """What the text of an error of a push is about."""
    kind: RefusalKind = next((kind for kind, pattern in _TEXTS if re.search(pattern, text, re.IGNORECASE)), "other")
    return Refusal(kind, " ".join(text.split()))


def registry_failure(refusal: Refusal, *, place: str, tries: int, create: str) -> RegistryRefused:
    """The failure of a push that was given up.

    Args:
        refusal: the last thing that was said.
        place: the address that was pushed to.
        tries: how often it was tried.
        create: the flags that name the repository, for a remedy.
    """
    host = place.partition("/")[0]
    remedies: dict[RefusalKind, str] = {
        "token": f"The registry takes no token of these credentials: {LOGIN}",
        "busy": "The registry has too much to do: run the same command again later; what is there is not sent again.",
        "network": f"Run the same command again: layers that are there are not sent again. Does {host} answer?",
        "repository": f"./invoke push … {create} --create   # makes the repository",
        "immutable": "The tag belongs to another image: --revision 2 gives this one a tag of its own.",
        "denied": _permission(refusal.text, "ecr:PutImage and the ecr:*Layer* actions"),
        "disk": "docker system df shows what fills the engine's disk; make room and run the same command again.",
        "other": "Run the same command again; what is there is not sent again.",
    }
    if "x509" in refusal.text or "certificate" in refusal.text:
        remedies["other"] = remedies["network"] = (
            f"The engine does not trust {host}: its authority belongs into /etc/docker/certs.d/{host}/ca.crt"
        )
    if "no such host" in refusal.text:
        remedies["network"] = f"The engine's machine knows no host {host}: its DNS, and --region and --account."
    times = f" ({tries} tries)" if tries > 1 else ""
    return RegistryRefused(
        f"{place}: {refusal.text}{times}; no moving tag was moved",
        remedy=remedies[refusal.kind],
        cause=refusal.kind,
        place=place,
    )


def aws_failure(error: Exception, *, action: str, where: str, create: str = "") -> Failure:
    """The failure of a call to AWS.

    Args:
        error: what botocore raised.
        action: of IAM, such as ``ecr:PutImage``.
        where: what the call was about: a registry, a repository.
        create: the flags that name the repository, for a remedy.
    """
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError):
        said: dict[str, Any] = dict(error.response.get("Error", {}))
        code, text = str(said.get("Code", "")), str(said.get("Message", ""))
        tries = int(error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)) + 1
        remedy = _remedy(code, text, action, create)
        times = f" ({tries} tries)" if tries > 1 else ""
        return RegistryRefused(f"{where}: {action}: {code}: {text}{times}", remedy=remedy, cause=code, place=where)
    name = type(error).__name__
    text = " ".join(str(error).split())
    remedy = "Run the same command again. Does this machine reach AWS? Proxies are read from HTTPS_PROXY and the site."
    if name in ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "NoAuthTokenError"):
        remedy = f"{LOGIN}\n./invoke doctor says where credentials are looked for."
    elif "SSO" in name or name in ("TokenRetrievalError", "UnauthorizedSSOTokenError", "LoginRefreshRequired"):
        remedy = LOGIN
    elif name == "ProfileNotFound":
        remedy = "aws configure list-profiles   # AWS_PROFILE names one of these"
    elif name == "SSLError":
        remedy = (
            "The certificate is of an authority that is not trusted: AWS_CA_BUNDLE or ca_bundle of the site names it."
        )
    return RegistryRefused(f"{where}: {action}: {text}", remedy=remedy, cause=name, place=where)


_AGAIN = "Run the same command again; what is there is not sent again."
_BUSY = "AWS has too much to do: run the same command again later."
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
    "KmsException": "The key of the repository cannot be used: its policy has to allow ECR and this caller.",
}


def _remedy(code: str, text: str, action: str, create: str) -> str:
    if code in ("AccessDeniedException", "AccessDenied", "UnauthorizedOperation"):
        return _permission(text, action)
    if code == "RepositoryNotFoundException":
        return f"./invoke push … {create} --create   # makes it, with immutable tags and scan on push"
    return _REMEDIES.get(code, _AGAIN)


def _permission(text: str, action: str) -> str:
    """Which action of IAM is missing: the one that AWS names, else the one that was called."""
    named = re.search(r"perform: ([\w-]+:\w+)", text)
    return f"The caller lacks the IAM permission {named[1] if named else action}: docs/push.md has the whole policy."
