"""One image into one repository through the engine: the layers, the manifest, the digest that the registry gave it."""

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
from trainwright.push.ecr import Ecr
from trainwright.push.layers import Push
from trainwright.push.refusals import Refusal, read_refusal, registry_failure
from trainwright.push.upload_view import make_upload_view

if TYPE_CHECKING:
    import docker

# The engine itself tries a layer five times, 75 s in all; these come on top, for what it gives up at once.
TRIES = 4
FIRST_PAUSE = 1.0  # seconds; doubled each time
STALL = 300.0  # seconds in which nothing moves: a registry puts a big layer together in less


@dataclass(frozen=True)
class Uploaded:
    """What a push brought. ``sent`` in bytes before compression; ``pushed`` and ``present`` count layers."""

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
    progress: Mode = "auto",
    stall: float = STALL,
    say: Say,
    sleep: Callable[[float], None] = time.sleep,
) -> Uploaded:
    """Push an image under one tag; layers that the repository has are not sent.

    The engine needs a local name of the image for it, which is gone afterwards.

    Args:
        client: the engine.
        ecr: the repository.
        image_id: of the image.
        tag: the remote tag. The caller has seen to it that it belongs to no other image.
        progress: how to show it.
        stall: seconds without any sign of life after which it is given up.
        say: told of further tries.
        sleep: waits between two tries.

    Raises:
        RegistryRefused: the registry refused, or did not answer, in spite of all tries; ``cause`` is ``immutable``
            where the tag turned out to belong to another image.
        EngineError: the engine went away.
    """
    place = ecr.place
    address = place.tagged(tag)
    # The SDK's limit holds for the pause between two events of the stream.
    before, client.api.timeout = client.api.timeout, stall
    renewed = False
    try:
        with _local_name(client, image_id, f"{place.host}/{place.repository}", tag):
            for attempt in range(1, TRIES + 1):
                push, refusal = _push(client, ecr, tag, progress=progress, stall=stall, renew=renewed)
                if refusal is None:
                    return Uploaded(push.digest, push.sent, push.count("pushed"), push.count("present"))
                # A new token helps once; a second refusal is not about its age.
                hopeless = not refusal.retried or (refusal.kind == "token" and renewed)
                if hopeless or attempt == TRIES:
                    create = f"--repository {place.repository} --region {place.region}"
                    raise registry_failure(refusal, place=address, tries=attempt, create=create)
                renewed = refusal.kind == "token"
                pause = 0.0 if renewed else FIRST_PAUSE * 2 ** (attempt - 1)
                what = "a new token" if renewed else f"again in {pause:.0f} s"
                say(f"{address}: {refusal.text}; {what} (try {attempt + 1} of {TRIES})")
                sleep(pause)
            raise AssertionError("the last try returns or raises")
    finally:
        client.api.timeout = before


def _push(
    client: docker.DockerClient, ecr: Ecr, tag: str, *, progress: Mode, stall: float, renew: bool
) -> tuple[Push, Refusal | None]:
    """One try, and why it failed."""
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
                remedy="./invoke doctor --fix starts it again; layers that are there are not sent again.",
            ) from None
        raise RegistryRefused(
            f"{ecr.place.tagged(tag)}: nothing moved for {stall:.0f} s, so the push was ended; no moving tag was moved",
            remedy=f"Does {ecr.place.host} answer from the engine's machine? Run the same command again: layers that "
            "are there are not sent again. --stall SECONDS waits longer.",
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
    """The events of a push. Left early, the connection is closed, by which the engine knows that nobody waits."""
    events = client.api.push(name, tag=tag, stream=True, decode=True, auth_config=credentials)
    try:
        yield events
    finally:
        with contextlib.suppress(Exception):  # what a broken connection still has to say is of no use
            events.close()


def _is_timeout(error: BaseException) -> bool:
    """Whether an error of the SDK's stack says that nothing came in time, whatever layer wrapped it."""
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
    """A name of the image for as long as it is pushed; one that the user had given already stays."""
    from docker.errors import APIError, ImageNotFound, NotFound

    name = f"{repository}:{tag}"
    try:
        kept = client.images.get(name).id == image_id
    except ImageNotFound:
        kept = False
    if not kept:
        # A name that a killed push left to another image moves over.
        client.api.tag(image_id, repository, tag=tag, force=True)
    try:
        yield
    finally:
        with contextlib.suppress(NotFound, APIError):
            # The engine deletes an image with its last name.
            if not kept and set(client.images.get(name).tags) != {name}:
                client.api.remove_image(name, noprune=True)
