"""Waiting for the copies that ECR makes itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.doubles.api import Api, served
from tests.doubles.faults import Faults
from tests.doubles.images import Images
from tests.doubles.tokens import Tokens
from trainwright.core.errors import RegistryRefused
from trainwright.push.ecr import Ecr
from trainwright.push.references import PushPlace
from trainwright.push.replicas import await_replicas
from trainwright.site.site import Site

PLACE = PushPlace("123456789012", "us-west-2", "team/x")
DIGEST = "sha256:" + "a" * 64
OTHER = "210987654321"


@pytest.fixture(scope="module")
def ecr() -> Iterator[tuple[Api, Ecr]]:
    api = Api(PLACE.account, Images(), Tokens(), Faults())
    with pytest.MonkeyPatch.context() as patch, served(api) as url:
        patch.delenv("AWS_PROFILE", raising=False)
        for name, value in {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x"}.items():
            patch.setenv(f"AWS_{name}", value)
        yield api, Ecr(PLACE, Site())


def state(status: str, region: str = "eu-west-1", account: str = PLACE.account, **more: str) -> dict[str, str]:
    """As botocore's service model has it (ImageReplicationStatus)."""
    return {"region": region, "registryId": account, "status": status, **more}


def waited(ecr: tuple[Api, Ecr], *answers: list[dict[str, str]], **more: Any) -> tuple[list[str], list[float]]:
    """The addresses of the copies, and the pauses, where ECR gives these answers."""
    ecr[0].copies[:] = list(answers)
    pauses: list[float] = []
    found = await_replicas(ecr[1], DIGEST, say=lambda _: None, sleep=pauses.append, **more)
    return [one.uri for one in found], pauses


def test_every_copy_is_waited_for(ecr: tuple[Api, Ecr]) -> None:
    east, other = state("COMPLETE", "us-east-1"), state("COMPLETE", "us-west-2", OTHER)
    uris, pauses = waited(
        ecr,
        [state("IN_PROGRESS", "us-east-1"), state("IN_PROGRESS", "us-west-2", OTHER)],
        [east, state("IN_PROGRESS", "us-west-2", OTHER)],
        [east, other],
    )
    assert uris == [
        f"{PLACE.account}.dkr.ecr.us-east-1.amazonaws.com/team/x@{DIGEST}",
        f"{OTHER}.dkr.ecr.us-west-2.amazonaws.com/team/x@{DIGEST}",
    ]
    assert len(pauses) == 2


def test_a_copy_that_failed_is_named_with_its_code(ecr: tuple[Api, Ecr]) -> None:
    with pytest.raises(RegistryRefused, match="to 210987654321/eu-west-1: AccessDenied") as refused:
        waited(ecr, [state("COMPLETE"), state("FAILED", account=OTHER, failureCode="AccessDenied")])
    assert refused.value.details["uri"] == PLACE.digested(DIGEST)  # it is pushed all the same


def test_without_a_rule_nothing_would_ever_come(ecr: tuple[Api, Ecr]) -> None:
    with pytest.raises(RegistryRefused, match="no replication rule"):
        waited(ecr, [])


def test_it_does_not_wait_for_ever(ecr: tuple[Api, Ecr]) -> None:
    minutes = count(step=600)
    with pytest.raises(RegistryRefused, match="not yet copied to 123456789012/eu-west-1"):
        waited(ecr, *([state("IN_PROGRESS")] for _ in range(9)), clock=lambda: float(next(minutes)))
