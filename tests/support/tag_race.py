"""Pushers of one repository whose calls a schedule puts in order, one call at a time.

The repository has ECR's own rules for tags and images (tests/doubles/images.py); nothing goes over a network, so that
thousands of orders are tried in a second.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

from tests.doubles.images import Images, Refused
from trainwright.push.ecr import ImageManifest, Referrer
from trainwright.push.published import Published

KIND = "application/vnd.oci.image.manifest.v1+json"


def image(version: str, day: int, *, unproven: bool = False, plan: str = "1234") -> tuple[ImageManifest, Published]:
    """An image of PyTorch, and what its labels say."""
    built = datetime(2026, 11, day, tzinfo=UTC)
    said = Published(built=built, plan=plan, framework="pytorch", version=version, unproven=unproven)
    text = json.dumps({"config": {}, "labels": said.as_json()})
    return ImageManifest(f"sha256:{sha256(text.encode()).hexdigest()}", text, KIND), said


class Repository:
    """One repository, as :class:`trainwright.push.ecr.Ecr` and :class:`trainwright.push.registry.Registry` see it.

    ``turn`` is called before each call, with its name; a schedule waits there.
    """

    def __init__(self, *, mutability: str = "MUTABLE") -> None:
        self.images = Images()
        self.record: Any = SimpleNamespace(
            name="team/x",
            registry_id="123456789012",
            images=[],
            image_tag_mutability=mutability,
            image_tag_mutability_exclusion_filters=[],
        )
        self.place = self
        self.turn: Callable[[str], None] = lambda _: None
        self.next_call: dict[int, str] = {}  # of each pusher of a race

    def tagged(self, tag: str) -> str:
        return f"registry/team/x:{tag}"

    def digested(self, digest: str) -> str:
        return f"registry/team/x@{digest}"

    def add(self, manifest: ImageManifest, tag: str | None = None) -> None:
        """Keep an image, as a push or somebody else does; not a call of a pusher."""
        self.images.put(self.record, manifest.text, manifest.media_type, tag, manifest.digest)

    def remove(self, digest: str) -> None:
        """Delete an image, as a lifecycle policy does."""
        self.record.images = [one for one in self.record.images if one.image_digest != digest]

    def points_to(self, tag: str) -> str | None:
        found = self.images.find(self.record, tag)
        return None if found is None else str(found.image_digest)

    # --- calls of a pusher

    def manifest(self, *, tag: str | None = None, digest: str | None = None) -> ImageManifest | None:
        self.turn("manifest")
        found = self.images.find(self.record, tag or digest or "")
        return found and ImageManifest(found.image_digest, found.image_manifest, found.image_manifest_media_type)

    def digest(self, tag: str) -> str | None:
        self.turn("digest")
        return self.points_to(tag)

    def put_tag(self, manifest: ImageManifest, tag: str) -> bool:
        self.turn("put_tag")
        try:
            self.add(manifest, tag)
        except Refused as refused:
            return refused.code == "ImageAlreadyExistsException"
        return True

    def referrers(self, digest: str, kind: str) -> list[Referrer]:
        self.turn("referrers")
        found = self.images.referrers(self.record, digest)
        return [Referrer(one["digest"], kind, one["annotations"]) for one in found if one["artifactType"] == kind]

    def store(self, manifest: ImageManifest, tag: str | None = None) -> None:
        self.turn("store")
        if self.images.find(self.record, tag or manifest.digest) is None:
            self.add(manifest, tag)

    def attach(
        self, subject: ImageManifest, content: bytes, kind: str, notes: dict[str, str], *, tag: str | None = None
    ) -> str:
        self.turn("attach")
        body = {"artifactType": kind, "subject": {"digest": subject.digest}, "annotations": notes}
        text = json.dumps(body | {"content": content.decode()})
        made = ImageManifest(f"sha256:{sha256(text.encode()).hexdigest()}", text, KIND)
        self.add(made, tag)
        return made.digest

    def published(self, manifest: ImageManifest) -> Published | None:
        labels = json.loads(manifest.text).get("labels")
        return Published(**{**labels, "built": datetime.fromisoformat(labels["built"])}) if labels else None


def race(
    repository: Repository, pushers: Sequence[Callable[[], Any]], schedule: Callable[[list[int]], int]
) -> list[Any]:
    """Run pushers side by side, of which one at a time makes one call; returns what each of them returned.

    Args:
        repository: that they share.
        pushers: what each of them does.
        schedule: which of the pushers that are not through yet is next. Once it returns a negative number, pusher
            ``-1 - number`` is dead: none of its calls happens any more.
    """
    here = threading.local()
    # A locked lock that another thread releases: a semaphore would be slower.
    gates, back = [threading.Lock() for _ in pushers], threading.Lock()
    for lock in (*gates, back):
        lock.acquire()
    results: list[Any] = [None] * len(pushers)
    dead: set[int] = set()

    def turn(call: str) -> None:
        number = here.number
        repository.next_call[number] = call
        back.release()
        gates[number].acquire()
        if number in dead:
            raise Killed

    def run(number: int) -> None:
        here.number = number
        gates[number].acquire()
        try:
            results[number] = pushers[number]()
        except Killed:
            results[number] = Killed
        except BaseException as failed:
            results[number] = failed
        running.discard(number)
        back.release()

    repository.turn, running = turn, set(range(len(pushers)))
    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(pushers))]
    for thread in threads:
        thread.start()
    while running:
        chosen = schedule(sorted(running))
        if chosen < 0:
            chosen = -1 - chosen
            dead.add(chosen)
        gates[chosen].release()
        back.acquire()
    for thread in threads:
        thread.join()
    repository.turn = lambda _: None
    for failed in results:
        if isinstance(failed, BaseException):
            raise failed
    return results


def orders(count: int, seed: int) -> list[random.Random]:
    """What decides so many orders of calls, the same ones each time."""
    return [random.Random(f"{seed} {number}") for number in range(count)]


def ended(repository: Repository, pushers: Sequence[Callable[[], Any]], chance: random.Random) -> list[Any]:
    """Run pushers in one random order of their calls; returns what each of them returned."""
    # Long runs of one pusher as well as turns: both hide mistakes.
    stay, last = chance.choice([0.0, 0.5, 0.9]), [0]

    def schedule(running: list[int]) -> int:
        if last[0] not in running or chance.random() >= stay:
            last[0] = chance.choice(running)
        return last[0]

    return race(repository, pushers, schedule)


class Killed(Exception):
    """A pusher was killed between two of its calls."""
