"""The revision in an image's own tag: the same image keeps its tag, another one of the day gets the next."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.build_records import record_of
from tests.support.tag_race import KIND, Repository
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RegistryRefused
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push import push
from trainwright.push.ecr import ImageManifest
from trainwright.push.options import PushOptions
from trainwright.push.published import Published
from trainwright.push.references import PushPlace
from trainwright.push.tags import tags_of

DAY = datetime(2026, 11, 25, 3, tzinfo=UTC)
PLACES = [PushPlace("123456789012", region, "team/x") for region in ("us-west-2", "eu-west-1")]


def image(number: int) -> ImageManifest:
    text = json.dumps({"config": {"digest": f"sha256:{number:064x}"}})
    return ImageManifest(f"sha256:{sha256(text.encode()).hexdigest()}", text, KIND)


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch, own_places: None) -> Any:
    """The tag that an image gets, given the images that each place has by revision."""
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())

    def tag(revision: int) -> str:
        return tags_of(plan, DAY, load_catalog(), revision=revision).immutable

    def run(number: int, *places: dict[int, int], revision: int = 1) -> int:
        shelves = {}
        for place, there in zip(PLACES, places, strict=True):
            shelves[place] = Repository()
            for taken, other in there.items():
                shelves[place].add(image(other), tag(taken))
        monkeypatch.setattr(push, "Ecr", lambda place, _: shelves[place])
        monkeypatch.setattr(push, "settle", lambda *_, **__: {})
        said = Published(built=DAY, plan=plan.id, framework="pytorch", version=plan.version, unproven=False)
        own = f"sha256:{number:064x}"
        parcel = push.Parcel(
            "a:1", record_of(plan, own), own, cast(Any, tags_of(plan, DAY, load_catalog())), said, Path(), ""
        )
        options = PushOptions(next_revision=True, revision=revision)
        work = push._Run(cast(Any, None), options, cast(Any, None), print, cast(Any, None))
        made = push._renumbered(work, PLACES, parcel).tags.immutable
        return next(number for number in range(1, 200) if tag(number) == made)

    return run


def test_the_same_image_keeps_its_tag_in_every_build(numbered: Any) -> None:
    assert numbered(7, {}, {}) == 1
    assert numbered(7, {1: 7}, {1: 7}) == 1
    assert numbered(7, {1: 7}, {}) == 1  # a push that broke off between two regions


def test_another_image_of_the_day_gets_the_next_one_in_all_regions(numbered: Any) -> None:
    assert numbered(8, {1: 7}, {1: 7}) == 2
    assert numbered(8, {1: 7}, {}) == 2
    assert numbered(8, {1: 7, 2: 6}, {1: 7, 2: 8}) == 3
    assert numbered(8, {1: 7, 2: 8}, {1: 7}) == 2
    assert numbered(8, {}, {}, revision=5) == 5


def test_there_is_an_end_to_it(numbered: Any) -> None:
    taken = dict.fromkeys(range(1, 101), 7)
    with pytest.raises(RegistryRefused):
        numbered(8, taken, {})
