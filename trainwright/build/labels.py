"""The labels that an image gets when it is built: the plan's id, what was found in its base, and those of OCI.

They are not in the Dockerfile, so plan ids do not depend on them. The keys are those of the OCI image specification
("Pre-Defined Annotation Keys"). No value may depend on the moment of the build: a build from the cache makes the same
image (decision 80).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit, urlunsplit

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from trainwright.core.errors import RequestError
from trainwright.core.fields import url_trouble
from trainwright.core.paths import setting
from trainwright.core.runner import run
from trainwright.core.text import fits
from trainwright.plan.plan import PLAN_LABEL, Plan, found_labels
from trainwright.sources.base_image import canonical
from trainwright.sources.debian_base import made_at
from trainwright.sources.inputs import Inputs

OCI = "org.opencontainers.image"
# A base image from a registry may have any of them: they would be taken for those of the image that is built on it.
_INHERITED = (
    *("authors", "base.digest", "base.name", "created", "documentation", "licenses", "ref.name", "source"),
    *("url", "vendor"),
)
_WITHOUT_LICENCE = "user"  # the component of the user's own code and packages


def build_labels(inputs: Inputs) -> dict[str, str]:
    """All labels of an image that its Dockerfile does not have.

    Raises:
        RequestError: SOURCE_DATE_EPOCH, TRAINWRIGHT_SOURCE or TRAINWRIGHT_DOCUMENTATION is invalid.
    """
    source, documentation = _address("TRAINWRIGHT_SOURCE") or _remote(), _address("TRAINWRIGHT_DOCUMENTATION")
    own = {PLAN_LABEL: inputs.plan.id, **found_labels(inputs.plan)}
    return own | content_labels(inputs) | _named({"source": source, "documentation": documentation})


def content_labels(inputs: Inputs) -> dict[str, str]:
    """The labels of OCI that follow from what the image is made of, whoever builds it.

    Raises:
        RequestError: SOURCE_DATE_EPOCH is invalid.
    """
    plan = inputs.plan
    known = {"created": created(inputs), "description": description(plan), "licenses": licenses(plan)}
    if plan.base.image is None:
        return _named(known)
    name, _, digest = plan.base.image.partition("@")
    known |= {"base.name": canonical(name), "base.digest": plan.base.digest or digest}
    return {f"{OCI}.{key}": "" for key in _INHERITED} | _named(known)


def _named(values: Mapping[str, str]) -> dict[str, str]:
    return {f"{OCI}.{key}": value for key, value in values.items() if value}


def created(inputs: Inputs) -> str:
    """When the content of an image was settled (RFC 3339): equal content has an equal time.

    ``SOURCE_DATE_EPOCH`` if it is set, else when the lock of the plan was made, else when the root file system was.
    Empty if none of them is known; then only the image's configuration says when it was built.

    Raises:
        RequestError: SOURCE_DATE_EPOCH is not a number of seconds.
    """
    if epoch := setting("SOURCE_DATE_EPOCH"):
        # https://reproducible-builds.org/specs/source-date-epoch: an ASCII number of seconds since 1970, in UTC.
        if not fits(r"[0-9]{1,11}", epoch):
            raise RequestError(
                f"SOURCE_DATE_EPOCH={epoch}: not a number of seconds",
                remedy="export SOURCE_DATE_EPOCH=$(git log -1 --format=%ct), or unset it",
            )
        return _stamp(datetime.fromtimestamp(int(epoch), UTC))
    if inputs.lock is not None and inputs.lock.made is not None:
        return _stamp(datetime.fromisoformat(inputs.lock.made))
    path = inputs.rootfs.path if inputs.rootfs is not None else None
    when = made_at(path) if path is not None else None
    return _stamp(when) if when is not None else ""


def _stamp(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def description(plan: Plan) -> str:
    """What is in an image, in a line."""
    cuda = "CPU only" if plan.cuda == "cpu" else f"CUDA {plan.cuda}"
    held = ", ".join(f"{c.name} {c.version}".strip() for c in plan.components if c.name != _WITHOUT_LICENCE)
    return f"SageMaker training with {plan.framework} {plan.version}, {cuda}, Python {plan.python}: {held}"


def licenses(plan: Plan) -> str:
    """The licences of the components as an SPDX expression; one without an SPDX name is a ``LicenseRef-``.

    Not those of the packages of Debian and Python, which are in the bill of materials.
    """
    names = {c.licence.name for c in plan.components if c.licence is not None and c.name != _WITHOUT_LICENCE}
    parts = {part for name in names for part in _expressions(name)}
    return " AND ".join(f"({part})" if " OR " in part else part for part in sorted(parts))


def _expressions(name: str) -> Iterator[str]:
    """The parts of a licence's name that all apply, each as SPDX has it."""
    for part in name.split(" AND "):
        try:
            yield canonicalize_license_expression(part)
        except InvalidLicenseExpression:
            yield "LicenseRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-")


def revision() -> str:
    """The git revision of the working folder, for the image's label; ``unknown`` outside a checkout.

    Raises:
        RequestError: TRAINWRIGHT_REVISION is not a revision.
    """
    if named := setting("TRAINWRIGHT_REVISION"):
        if not fits(r"[0-9A-Za-z][0-9A-Za-z._/@:+-]*", named):
            raise RequestError(
                f"TRAINWRIGHT_REVISION={named}: not a revision", remedy="unset TRAINWRIGHT_REVISION, or set a commit"
            )
        return named
    done = run(["git", "rev-parse", "HEAD"])
    return done.stdout.strip() if done.ok else "unknown"


def _address(variable: str) -> str:
    """The web address in a variable; empty if it is not set."""
    named = setting(variable) or ""
    if named and (wrong := url_trouble(named)):
        raise RequestError(f"{variable}={named}: {wrong}", remedy=f"unset {variable}, or set an address")
    return public_address(named)


def _remote() -> str:
    """Where the checkout of the working folder came from; empty if that is nowhere on a network."""
    done = run(["git", "config", "--get", "remote.origin.url"])
    return public_address(done.stdout.strip()) if done.ok else ""


def public_address(remote: str) -> str:
    """A remote of git as an address without user and password; empty for a folder of this machine.

    ``git@host:path``, which is no URL, is ``ssh://host/path``.
    """
    if scp := re.fullmatch(r"(?:[^@/:\s]+@)?([A-Za-z0-9.-]+):(?!//)/?(\S+)", remote):
        remote = f"ssh://{scp[1]}/{scp[2]}"
    try:
        parts = urlsplit(remote)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https", "ssh", "git") or not parts.hostname or not remote.isprintable():
        return ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
