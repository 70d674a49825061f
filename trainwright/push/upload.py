"""Pushes one image to one repository through the engine; returns the digest that the registry gave it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwright.core.errors import EngineError, RegistryRefused
from trainwright.core.say import Say
from trainwright.engine.build_display import Mode
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.layers import Push
from trainwright.push.options import STALL
from trainwright.push.patience import Patience
from trainwright.push.refusals import Refusal, clash, read_refusal, registry_failure
from trainwright.push.upload_view import make_upload_view

if TYPE_CHECKING:
    import docker

_READS = 5  # attempts to read back a digest; ECR may need a moment to know it


@dataclass(frozen=True)
class Uploaded:
    """The result of a push. ``sent`` in bytes before compression; ``pushed`` and ``present`` count layers."""

    digest: str
    sent: int
    pushed: int
    present: int


def upload(
    client: docker.DockerClient,
    ecr: Ecr,
    image_id: str,
    tag: str,
    *,
    progress: Mode,
    stall: float = STALL,
    say: Say,
    sleep: Callable[[float], None] = time.sleep,
) -> Uploaded:
    """Push an image under one tag; layers that the repository has are not sent.

    The engine needs a local name of the image for this, which is removed afterwards.

    Args:
        client: the engine.
        ecr: the repository.
        image_id: of the image.
        tag: the remote tag. The caller has checked that it belongs to no other image.
        progress: how to show it.
        stall: seconds without progress after which the push is given up.
        say: progress callback, for retries.
        sleep: waits between two attempts.

    Raises:
        RegistryRefused: the registry refused, or did not answer, in every attempt; ``cause`` is ``immutable`` if the
            tag turned out to belong to another image.
        EngineError: the engine stopped answering.
    """
    place = ecr.place
    address = place.tagged(tag)
    # The SDK's limit is for the pause between two events of the stream.
    before, client.api.timeout = client.api.timeout, stall
    # The engine itself tries a layer five times, 75 s in all. This is for failures at which it gives up at once.
    patience, renewed = Patience(), False
    try:
        with _local_name(client, image_id, f"{place.host}/{place.repository}", tag):
            while True:
                push, refusal = _push(client, ecr, tag, progress=progress, stall=stall, renew=renewed)
                if refusal is None:
                    return Uploaded(push.digest, push.sent, push.count("pushed"), push.count("present"))
                # A new token helps once; a second refusal is not about its age.
                hopeless = not refusal.retried or (refusal.kind == "token" and renewed)
                pause = patience.pause()
                if hopeless or pause is None:
                    create = f"--repository {place.repository} --region {place.region}"
                    raise registry_failure(refusal, place=address, tries=patience.failed, create=create)
                renewed = refusal.kind == "token"
                what = "a new token" if renewed else f"again in {pause:.0f} s"
                say(f"{address}: {refusal.text}; {what} (try {patience.failed + 1} of {patience.tries})")
                sleep(0.0 if renewed else pause)
    finally:
        client.api.timeout = before


def upload_checked(
    client: docker.DockerClient,
    ecr: Ecr,
    image_id: str,
    tag: str,
    *,
    progress: Mode,
    stall: float = STALL,
    say: Say,
) -> tuple[Uploaded | None, ImageManifest]:
    """:func:`upload` an image, and read it back.

    Returns:
        What was sent, ``None`` if another push of the same image was faster; and the manifest as the registry holds it.

    Raises:
        RegistryRefused: as :func:`upload`; or ECR has another digest under the tag.
        EngineError: the engine stopped answering.
    """
    try:
        sent = upload(client, ecr, image_id, tag, progress=progress, stall=stall, say=say)
    except RegistryRefused as refused:
        if refused.details.get("cause") != "immutable":
            raise
        # A concurrent push was faster: fine if it pushed the same image.
        manifest = ecr.manifest(tag=tag)
        if manifest is None:
            raise
        if not manifest.holds(image_id):
            raise clash(ecr.place, tag, manifest.digest) from None
        return None, manifest
    for attempt in range(_READS):
        manifest = ecr.manifest(tag=tag)
        if manifest is not None and manifest.digest == sent.digest:
            return sent, manifest
        time.sleep(0.5 * attempt)
    raise RegistryRefused(
        f"{ecr.place.tagged(tag)}: pushed as {sent.digest}, but ECR says {manifest.digest if manifest else 'no image'}"
        "; no moving tag was moved",
        remedy="Run the same command again; layers already pushed are not sent again.",
        cause="digest",
        place=ecr.place.tagged(tag),
    )


def _push(
    client: docker.DockerClient, ecr: Ecr, tag: str, *, progress: Mode, stall: float, renew: bool
) -> tuple[Push, Refusal | None]:
    """One attempt, and why it failed."""
    import requests
    from docker.errors import APIError
    from urllib3.exceptions import HTTPError

    token = ecr.token(renew=renew)
    credentials = {"username": token.user, "password": token.password}
    name = f"{ecr.place.host}/{ecr.place.repository}"
    push, view = Push(), make_upload_view(progress)
    try:
        with _events(client, name, tag, credentials) as events:
            for event in events:
                if (layer := push.feed(event)) is not None:
                    view.update(push, layer)
    except APIError as error:
        push.error = str(error.explanation or error)
    except (requests.exceptions.RequestException, HTTPError, TimeoutError) as error:
        if not _is_timeout(error):
            raise EngineError(
                f"the engine stopped answering during the push: {error}; no moving tag was moved",
                remedy="./invoke doctor --fix starts it again; layers already pushed are not sent again.",
            ) from None
        raise RegistryRefused(
            f"{ecr.place.tagged(tag)}: no progress for {stall:.0f} s, so the push was stopped; no moving tag was moved",
            remedy=f"Does {ecr.place.host} answer from the engine's machine? Run the same command again: layers "
            "already pushed are not sent again. --stall SECONDS waits longer.",
            cause="stall",
            place=ecr.place.tagged(tag),
        ) from None
    finally:
        view.close()
    if push.error:
        return push, read_refusal(push.error)
    if not push.digest:
        return push, Refusal("network", "the push ended without a digest")
    return push, None


@contextmanager
def _events(
    client: docker.DockerClient, name: str, tag: str, credentials: dict[str, str]
) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a push. Leaving early closes the connection, which tells the engine to stop."""
    events = client.api.push(name, tag=tag, stream=True, decode=True, auth_config=credentials)
    try:
        yield events
    finally:
        with contextlib.suppress(Exception):  # errors of a broken connection are of no use
            events.close()


def _is_timeout(error: BaseException) -> bool:
    """Whether an error of the SDK's stack is a timeout, whichever layer wrapped it."""
    seen: set[int] = set()
    queue: list[BaseException | None] = [error]
    while queue:
        one = queue.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, TimeoutError) or "timed out" in str(one).lower() or "Timeout" in type(one).__name__:
            return True
        queue += [one.__cause__, one.__context__, *(arg for arg in one.args if isinstance(arg, BaseException))]
    return False


@contextmanager
def _local_name(client: docker.DockerClient, image_id: str, repository: str, tag: str) -> Iterator[None]:
    """A local name of the image during the push; one that the user gave it stays."""
    from docker.errors import APIError, ImageNotFound, NotFound

    name = f"{repository}:{tag}"
    try:
        kept = client.images.get(name).id == image_id
    except ImageNotFound:
        kept = False
    if not kept:
        # A killed push may have left this name on another image: it moves.
        client.api.tag(image_id, repository, tag=tag)
    try:
        yield
    finally:
        with contextlib.suppress(NotFound, APIError):
            # The engine deletes an image with its last name.
            if not kept and set(client.images.get(name).tags) != {name}:
                client.api.remove_image(name, noprune=True)
