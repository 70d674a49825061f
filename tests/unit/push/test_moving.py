"""Moving tags: which of them move to a pushed image, which stay, and what is said of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from trainwright.core.errors import RegistryRefused
from trainwright.push.ecr import Ecr, ImageManifest
from trainwright.push.moving import Move, hindrance, move, set_own
from trainwright.push.registry import Published, Registry


def published(version: str = "2.6.0", day: int = 1, **more: Any) -> Published:
    known = {"plan": "1234", "framework": "pytorch", "unproven": False}
    return Published(built=datetime(2026, 11, day, tzinfo=UTC), version=version, **(known | more))


def manifest(name: str) -> ImageManifest:
    return ImageManifest(f"sha256:{name}", "{}", "application/vnd.oci.image.manifest.v1+json")


class Repository:
    """Tags and images of a repository. As ECR's ``PutImage``, it refuses to move an immutable tag."""

    def __init__(self, *, immutable: tuple[str, ...] = (), **tags: str) -> None:
        self.tags, self.immutable, self.images = tags, immutable, {}
        self.place = self

    def tagged(self, tag: str) -> str:
        return f"registry/images:{tag}"

    def digested(self, digest: str) -> str:
        return f"registry/images@{digest}"

    def digest(self, tag: str) -> str | None:
        return f"sha256:{self.tags[tag]}" if tag in self.tags else None

    def manifest(self, *, tag: str) -> ImageManifest | None:
        return manifest(self.tags[tag]) if tag in self.tags else None

    def put_tag(self, new: ImageManifest, tag: str) -> bool:
        if tag in self.immutable and self.digest(tag) not in (None, new.digest):
            return False
        self.tags[tag] = new.digest.removeprefix("sha256:")
        return True

    def published(self, current: ImageManifest) -> Published | None:
        return self.images.get(current.digest)


def moved(repository: Repository, new: Published, tag: str = "2.6") -> Move:
    return move(cast(Ecr, repository), cast(Registry, repository), manifest("new"), new, tag)


def test_a_new_tag_is_made() -> None:
    repository = Repository()
    assert moved(repository, published()) == Move("2.6", "made")
    assert repository.tags == {"2.6": "new"}


def test_a_tag_moves_forward() -> None:
    repository = Repository(**{"2.6": "old"})
    repository.images["sha256:old"] = published(day=1)
    assert moved(repository, published(day=2)) == Move("2.6", "moved")
    assert repository.tags == {"2.6": "new"}


def test_a_tag_does_not_move_back() -> None:
    repository = Repository(**{"2.6": "old"})
    repository.images["sha256:old"] = published(day=3)
    kept = moved(repository, published(day=2))
    assert (kept.state, kept.says) == ("kept", "it points to a newer image: 2.6.0, built 2026-11-03 00:00 UTC")
    assert repository.tags == {"2.6": "old"}


def test_a_tag_of_somebody_else_stays() -> None:
    repository = Repository(**{"2.6": "theirs"})
    assert moved(repository, published()).state == "kept"
    assert repository.tags == {"2.6": "theirs"}


def test_the_same_image_again_changes_nothing() -> None:
    repository = Repository(immutable=("2.6",), **{"2.6": "new"})
    assert moved(repository, published()) == Move("2.6", "there already")


def test_an_immutable_tag_is_kept_and_says_so() -> None:
    repository = Repository(immutable=("2.6",), **{"2.6": "old"})
    repository.images["sha256:old"] = published(day=1)
    kept = moved(repository, published(day=2))
    assert kept.state == "kept"
    assert "tag mutability" in kept.says
    assert repository.tags == {"2.6": "old"}


@pytest.mark.parametrize(
    ("tags", "state"), [({}, "made"), ({"mine": "old"}, "moved"), ({"mine": "new"}, "there already")]
)
def test_a_tag_that_the_user_named_moves_wherever_it_points(tags: dict[str, str], state: str) -> None:
    repository = Repository(**tags)
    assert set_own(cast(Ecr, repository), manifest("new"), "mine") == Move("mine", cast(Any, state))
    assert repository.tags == {"mine": "new"}


def test_an_immutable_tag_that_the_user_named_is_a_failure() -> None:
    repository = Repository(immutable=("mine",), mine="old")
    with pytest.raises(RegistryRefused) as refused:
        set_own(cast(Ecr, repository), manifest("new"), "mine")
    assert refused.value.message == "registry/images:mine: immutable, and it points to sha256:old"
    assert refused.value.details["cause"] == "immutable"
    assert repository.tags == {"mine": "old"}


NEWER = "it points to a newer image"


@pytest.mark.parametrize(
    ("current", "new", "says"),
    [
        (None, {}, "it points to an image that was not built by Trainwright"),
        ({"plan": ""}, {}, "it points to an image that was not built by Trainwright"),
        ({"framework": "tensorflow"}, {}, "it points to an image with tensorflow"),
        ({}, {"unproven": True}, "it points to an image that passed its smoke tests, and this one did not"),
        ({"unproven": True, "day": 5}, {}, ""),
        ({"unproven": True}, {"unproven": True}, ""),
        ({"unproven": True, "day": 5}, {"unproven": True}, f"{NEWER}: 2.6.0, built 2026-11-05 00:00 UTC"),
        ({"version": "2.10.0"}, {"day": 5}, f"{NEWER}: 2.10.0, built 2026-11-01 00:00 UTC"),
        ({}, {}, ""),
    ],
)  # fmt: skip
def test_what_keeps_a_tag_where_it_is(current: dict[str, Any] | None, new: dict[str, Any], says: str) -> None:
    assert hindrance(None if current is None else published(**current), published(**new)) == says
