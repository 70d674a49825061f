"""The copies of an image that ECR makes itself, by the replication rules of its registry."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainwright.core.errors import RegistryRefused
from trainwright.core.say import Say
from trainwright.push.documents import Replica
from trainwright.push.ecr import Ecr
from trainwright.push.references import PushPlace

SECONDS = 1800.0  # most images are there in less than 30 minutes (ECR user guide, "Private image replication")
_PAUSE = 5.0


def await_replicas(
    ecr: Ecr,
    digest: str,
    *,
    say: Say,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Replica, ...]:
    """Wait until every copy of an image is there.

    Args:
        ecr: the repository that the image was pushed to.
        digest: of the image.
        say: progress callback.
        sleep: waits between two looks, in seconds.
        clock: in seconds.

    Raises:
        RegistryRefused: no rule copies from this repository, a copy failed, or it takes too long. The image itself is
            pushed.
    """
    where, ends = ecr.place.digested(digest), clock() + SECONDS
    told: set[str] = set()
    while True:
        states = ecr.replication(digest)
        if not states:
            raise RegistryRefused(
                f"{where}: pushed, but no replication rule of its registry is about this repository",
                remedy="infra/trainwright.yaml makes one (docs/setup-aws.md), or leave --wait-for-replicas out.",
                cause="replication",
                uri=where,
            )
        failed = [state for state in states if state.status == "FAILED"]
        if failed:
            raise RegistryRefused(
                "\n".join([f"{where}: pushed, but not copied", *(f"  to {one.place}: {one.code}" for one in failed)]),
                remedy="aws ecr start-replication-backfill tries again; docs/setup-aws.md says what a copy needs.",
                cause="replication",
                uri=where,
            )
        waiting = [state.place for state in states if state.status != "COMPLETE"]
        if not waiting:
            places = [PushPlace(one.account, one.region, ecr.place.repository) for one in states]
            return tuple(
                Replica(account=place.account, region=place.region, uri=place.digested(digest)) for place in places
            )
        if clock() > ends:
            raise RegistryRefused(
                f"{where}: pushed, but after {SECONDS / 60:.0f} minutes not yet copied to {', '.join(waiting)}",
                remedy="Run the same command again: it sends nothing, and goes on waiting.",
                cause="replication",
                uri=where,
            )
        for place in sorted(set(waiting) - told):
            say(f"waiting for the copy in {place}")
        told |= set(waiting)
        sleep(_PAUSE)
