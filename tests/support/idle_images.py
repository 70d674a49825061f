"""A repository in the emulated API whose images nobody pushed, and what happens to it: for tests of ``gc``."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from tests.doubles.api import Api
from trainwright.push import gc
from trainwright.push.attest import IN_TOTO, PREDICATE, RECORD
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.published import Published
from trainwright.push.references import PushPlace, PushTarget
from trainwright.push.registry import MANIFEST
from trainwright.site.site import Site

ACCOUNT, REGION = "740000000001", "us-west-2"
INDEX = "application/vnd.oci.image.index.v1+json"
TODAY = datetime.now(UTC)
LONG_AGO = TODAY - timedelta(days=400)


class Papers:
    """The registry over HTTP, as far as it is used here; labels stand in the manifest."""

    def __init__(self, ecr: Ecr, *_: Any, **__: Any) -> None:
        self.ecr = ecr

    def store(self, manifest: ImageManifest, tag: str) -> None:
        self.ecr.put_tag(manifest, tag)

    def attach(self, subject: ImageManifest, content: bytes, kind: str, notes: Mapping[str, str], *, tag: str) -> str:
        body = {"artifactType": kind, "subject": {"digest": subject.digest}, "annotations": dict(notes)}
        made = manifest(body | {"content": content.decode()})
        self.ecr.put_tag(made, tag)
        return made.digest

    def published(self, image: ImageManifest) -> Published | None:
        plan = json.loads(image.text).get("plan")
        return plan and Published(built=LONG_AGO, plan=plan, framework="pytorch", version="2.6.0", unproven=False)


def manifest(body: Mapping[str, Any], kind: str = MANIFEST) -> ImageManifest:
    text = json.dumps({"schemaVersion": 2, "mediaType": kind, **body})
    return ImageManifest(f"sha256:{sha256(text.encode()).hexdigest()}", text, kind)


class Cloud:
    """A repository, and what happens to it."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.place = PushPlace(ACCOUNT, REGION, f"team/{uuid.uuid4().hex[:8]}")
        self.ecr = Ecr(self.place, Site())
        self.ecr._call("create_repository")
        self.papers: Any = Papers(self.ecr)
        self.repository = api.images.repository(ACCOUNT, REGION, self.place.repository)
        self.records = self.repository.images

    def age(self, days: float = 400, *digests: str) -> None:
        """Let everything, or some of it, have been pushed so long ago."""
        for image in self.records:
            if not digests or image.image_digest in digests:
                image.image_pushed_at = (TODAY - timedelta(days=days)).timestamp()
                image.pulled = None

    def image(self, name: str, *tags: str, ours: bool = True, proof: bool = False) -> ImageManifest:
        """An old image with its immutable tag, and those given."""
        made = manifest({"name": name} | ({"plan": "1" * 64} if ours and not proof else {}))
        for tag in (f"{name}-py311-debian12-20250101-{'a' * 12}", *tags):
            self.ecr.put_tag(made, tag)
        if proof:
            for document in ("record", "smoke"):
                notes = {PREDICATE: RECORD if document == "record" else document}
                tag = f"{made.digest.replace(':', '-')}.{document}.{'0' * 8}"
                self.papers.attach(made, b"{}", IN_TOTO, notes, tag=tag)
        self.age()
        return made

    def untagged(self, made: ImageManifest) -> ImageManifest:
        """Keep an image without a tag."""
        self.api.images.put(self.repository, made.text, made.media_type, None, made.digest)
        self.age()
        return made

    def index(self, *images: ImageManifest, tag: str | None = None) -> ImageManifest:
        made = manifest({"manifests": [{"digest": one.digest} for one in images]}, INDEX)
        if tag:
            self.ecr.put_tag(made, tag)
            self.age()
        return made if tag else self.untagged(made)

    def record(self, image: ImageManifest) -> Any:
        """moto's record of an image."""
        return self.api.images.find(self.repository, image.digest)

    def job(self, name: str, image: str | None, days: float = 1, region: str = REGION) -> None:
        # By the clock, not by TODAY: gc looks ten minutes back for new jobs, and a run of all tests takes longer.
        self.api.jobs.add(region, name, image, datetime.now(UTC) - timedelta(days=days))

    def gc(self, *, delete: bool = False, keep_days: int = 90, regions: tuple[str, ...] = (REGION,)) -> gc.GcDocument:
        self.api.faults.calls.clear()
        target = PushTarget(self.place.repository, regions, ACCOUNT)
        return gc.collect(target, Site(), account=ACCOUNT, keep_days=keep_days, delete=delete, say=lambda _: None)

    def states(self, **more: Any) -> dict[str, str]:
        return {row.digest: row.state for row in self.gc(**more).images}

    @property
    def there(self) -> set[str]:
        return {image.image_digest for image in self.records}

    @property
    def calls(self) -> list[str]:
        return self.api.faults.calls

    def refuse(self, operation: str, code: str, times: int = 1, message: str = "") -> None:
        self.api.faults.arm_api(operation, code, message or code, 400, times)

    def when(self, operation: str, do: Callable[[], Any], nth: int = 1) -> None:
        """Do something just before the ``nth`` call of an operation from now on."""
        seen = [0]

        def meanwhile(call: str) -> None:
            seen[0] += call == operation
            if call == operation and seen[0] == nth:
                self.api.meanwhile = lambda _: None
                do()

        self.api.meanwhile = meanwhile
