"""Moving tags: which of them move to a pushed image, which stay, and where they end whoever else moves them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, cast

import pytest

from tests.support.tag_race import KIND, Killed, Repository, ended, image, orders, race
from trainwright.core.errors import RegistryRefused
from trainwright.push.ecr import ImageManifest
from trainwright.push.moving import Move, decide, foresee, move, set_own
from trainwright.push.published import Published
from trainwright.push.tag_log import Decision, TagLog, hindrance, standing

TAG = "pytorch-2.6-cu124"
OLD, NEW, NEWEST = image("2.6.0", 1), image("2.6.0", 2), image("2.6.1", 1)
UNPROVEN = image("2.6.2", 9, unproven=True)
THEIRS = image("1.0", 1, plan="")
ORDERS = 10_000 if os.environ.get("TRAINWRIGHT_THOROUGH") else 1000


def published(version: str = "2.6.0", day: int = 1, **more: Any) -> Published:
    known = {"plan": "1234", "framework": "pytorch", "unproven": False}
    return Published(built=datetime(2026, 11, day, tzinfo=UTC), version=version, **(known | more))


def repository(now: Any = None, *, mutability: str = "MUTABLE", tag: str = TAG) -> Repository:
    """A repository with all images; ``now`` is what the tag points to, set by something that keeps no log."""
    made = Repository(mutability=mutability)
    for manifest, _ in (OLD, NEW, NEWEST, UNPROVEN, THEIRS):
        made.add(manifest)
    if now is not None:
        made.add(now[0], tag)
    return made


def push(here: Repository, what: Any, tag: str = TAG) -> Move:
    return move(cast(Any, here), cast(Any, here), *what, tag)


def log(here: Repository, tag: str = TAG) -> TagLog:
    return TagLog(cast(Any, here), cast(Any, here), tag)


# --- one pusher -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "new", "state", "says"),
    [
        (None, NEW, "made", ""),
        (OLD, NEW, "moved", ""),
        (NEW, NEW, "there already", ""),
        (NEW, OLD, "kept", "it points to a newer image: 2.6.0, built 2026-11-02 00:00 UTC"),
        (THEIRS, NEW, "kept", "it points to an image that was not built by Trainwright"),
        (OLD, UNPROVEN, "kept", "it points to an image that passed its smoke tests, and this one did not"),
        (UNPROVEN, OLD, "moved", ""),
    ],
)
def test_a_tag_moves_forward_and_never_back(now: Any, new: Any, state: str, says: str) -> None:
    here = repository(now)
    calls: list[str] = []
    here.turn = calls.append
    # What a dry run says, of an image that is there and of one that is not, is what the push then does.
    for digest in {new[0].digest, new[0].digest if state == "there already" else "not there"}:
        assert foresee(cast(Any, here), cast(Any, here), digest, new[1], TAG) == Move(TAG, cast(Any, state), says)
    assert not {"put_tag", "attach", "store"} & {*calls}
    assert push(here, new) == Move(TAG, cast(Any, state), says)
    assert here.points_to(TAG) == (now if state == "kept" else new)[0].digest


def test_the_same_push_again_changes_nothing() -> None:
    here = repository()
    push(here, NEW)
    calls: list[str] = []
    here.turn = calls.append
    assert push(here, NEW).state == "there already"
    assert not {"put_tag", "attach", "store"} & {*calls}


def test_what_would_not_move_the_tag_is_not_in_its_log() -> None:
    here = repository()
    push(here, NEW)
    push(here, OLD)
    assert [one.what for one in log(here).read()] == ["pushed"]


def test_an_immutable_tag_is_kept_and_says_so() -> None:
    here = repository(OLD, mutability="IMMUTABLE")
    kept = push(here, NEW)
    assert kept.state == "kept"
    assert "tag mutability" in kept.says
    assert here.points_to(TAG) == OLD[0].digest


def test_what_something_else_set_is_where_the_next_push_goes_on_from() -> None:
    here = repository()
    push(here, NEW)
    here.add(OLD[0], TAG)  # by hand, after the push
    assert push(here, NEW).state == "moved"
    here.add(NEWEST[0], TAG)
    assert push(here, NEW).state == "kept"
    here.add(THEIRS[0], TAG)
    assert push(here, NEWEST).state == "kept"
    assert here.points_to(TAG) == THEIRS[0].digest


def test_a_tag_whose_image_was_deleted_goes_to_the_one_before() -> None:
    here = repository()
    push(here, OLD)
    push(here, NEWEST)
    here.remove(NEWEST[0].digest)
    assert push(here, NEW).state == "made"
    assert here.points_to(TAG) == NEW[0].digest


# --- tags that people set ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("now", "state"), [(None, "made"), (OLD, "moved"), (NEW, "there already")])
def test_a_tag_that_the_user_named_moves_wherever_it_points(now: Any, state: str) -> None:
    here = repository(now, tag="mine")
    assert set_own(cast(Any, here), cast(Any, here), NEW[0], "mine") == Move("mine", cast(Any, state))
    assert here.points_to("mine") == NEW[0].digest
    assert log(here, "mine").read() == []


def test_an_immutable_tag_that_the_user_named_is_a_failure() -> None:
    here = repository(OLD, mutability="IMMUTABLE", tag="mine")
    with pytest.raises(RegistryRefused) as refused:
        set_own(cast(Any, here), cast(Any, here), NEW[0], "mine")
    assert refused.value.message == f"registry/team/x:mine: immutable, and it points to {OLD[0].digest}"
    assert refused.value.details["cause"] == "immutable"
    assert here.points_to("mine") == OLD[0].digest


def test_a_moving_tag_that_the_user_sets_is_in_its_log() -> None:
    here = repository()
    push(here, NEW)
    assert set_own(cast(Any, here), cast(Any, here), OLD[0], TAG).state == "moved"
    assert [one.what for one in log(here).read()] == ["pushed", "moved"]
    assert here.points_to(TAG) == OLD[0].digest
    assert push(here, NEW).state == "moved"


def test_a_dry_run_names_why_a_held_tag_stays() -> None:
    here = repository()
    push(here, OLD)
    decide(log(here), "held", OLD[0], "NEW diverges")
    foreseen = foresee(cast(Any, here), cast(Any, here), NEW[0].digest, NEW[1], TAG)
    assert (foreseen.state, foreseen.says) == ("kept", push(here, NEW).says)
    assert foreseen.says.endswith(": NEW diverges")


def test_a_tag_whose_image_has_no_description_is_left_to_whoever_set_it() -> None:
    """An image of somebody else's tool: not even labels."""
    here = repository()
    bare = ImageManifest(f"sha256:{sha256(b'{}').hexdigest()}", "{}", KIND)
    here.add(bare, TAG)
    assert push(here, NEW) == Move(TAG, "kept", "it points to an image that was not built by Trainwright")
    assert here.points_to(TAG) == bare.digest


def test_others_who_never_stop_moving_a_tag_end_it() -> None:
    here = repository()
    push(here, OLD)
    others, inside = itertools.cycle([NEW[0], OLD[0]]), list[str]()

    def turn(call: str) -> None:
        if call == "put_tag" and not inside:
            inside.append(call)
            decide(log(here), "moved", next(others))
            inside.pop()

    here.turn = turn
    with pytest.raises(RegistryRefused, match="others kept moving this tag"):
        decide(log(here), "moved", NEWEST[0])


def test_a_held_tag_stays_until_it_is_released() -> None:
    here = repository()
    push(here, OLD)
    assert decide(log(here), "held", OLD[0], "NEW diverges").says.endswith(": NEW diverges")
    assert push(here, NEW).state == "kept"
    assert "NEW diverges" in push(here, NEW).says
    with pytest.raises(RegistryRefused) as refused:
        set_own(cast(Any, here), cast(Any, here), NEW[0], TAG)
    assert refused.value.details["cause"] == "held"
    assert here.points_to(TAG) == OLD[0].digest
    decide(log(here), "released")
    assert here.points_to(TAG) == OLD[0].digest
    assert push(here, NEW).state == "moved"


def test_a_tag_that_somebody_moves_meanwhile_stays_there() -> None:
    here, moved = repository(), list[str]()
    push(here, OLD)

    def turn(call: str) -> None:
        if call == "put_tag" and not moved:
            moved.append(call)
            decide(log(here), "moved", OLD[0])

    here.turn = turn
    assert push(here, NEW) == Move(TAG, "kept", "another push moved it")
    assert here.points_to(TAG) == OLD[0].digest


def test_a_tag_that_cannot_move_is_a_failure_of_who_decides() -> None:
    here = repository(OLD, mutability="IMMUTABLE")
    with pytest.raises(RegistryRefused) as refused:
        decide(log(here), "moved", NEW[0])
    assert refused.value.details["cause"] == "immutable"
    assert here.points_to(TAG) == OLD[0].digest


def test_a_tag_of_somebody_else_can_be_held_and_moved() -> None:
    here = repository(THEIRS)
    assert decide(log(here), "held").state == "there already"
    decide(log(here), "released")
    assert decide(log(here), "moved", OLD[0]).state == "moved"
    assert push(here, NEW).state == "moved"


# --- several pushers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("now", [None, OLD], ids=["new", "older"])
def test_a_tag_never_goes_back_in_any_order_of_two_pushers(now: Any, seed: int) -> None:
    for chance in orders(ORDERS // 4, seed):
        here = repository(now)
        moves = ended(here, [lambda here=here: push(here, NEW), lambda here=here: push(here, NEWEST)], chance)
        assert here.points_to(TAG) == NEWEST[0].digest
        assert moves[1].state in ("made", "moved")


def test_a_tag_is_where_the_whole_log_says_for_three_pushers_and_one_who_holds_it() -> None:
    for chance in orders(ORDERS // 5, 2):
        here = repository()
        pushers: list[Callable[[], Any]] = [lambda here=here, one=one: push(here, one) for one in (OLD, NEWEST, NEW)]
        ended(here, [*pushers, lambda here=here: decide(log(here), "held", OLD[0])], chance)
        assert here.points_to(TAG) == standing(log(here).read()).digest == OLD[0].digest
        decide(log(here), "released")
        assert push(here, NEWEST).state == "moved"


def test_what_a_killed_pusher_left_is_repaired_by_the_next() -> None:
    """It is killed at the worst of moments: it has set the tag back, and not looked at the log again."""
    here = repository()
    late: list[int] = []

    def schedule(running: list[int]) -> int:
        if not late and here.next_call.get(0) != "put_tag":
            return 0
        if 1 in running:
            late.append(0)
            return 1
        late.append(0)
        return 0 if here.next_call[0] == "put_tag" else -1

    moves = race(here, [lambda: push(here, NEW), lambda: push(here, NEWEST)], schedule)
    assert moves[0] is Killed
    assert here.points_to(TAG) == NEW[0].digest
    push(here, NEW)
    assert here.points_to(TAG) == NEWEST[0].digest


# --- the log ----------------------------------------------------------------------------------------------------------


def test_where_a_tag_belongs_does_not_depend_on_the_order_in_which_it_is_read() -> None:
    said = [
        Decision(what=cast(Any, what), number=number, at=new.built, digest=manifest.digest, image=new)
        for number, (what, (manifest, new)) in enumerate(
            [("pushed", OLD), ("pushed", NEWEST), ("moved", OLD), ("pushed", NEW), ("held", NEW)], 1
        )
    ]
    assert {standing(order).digest for order in itertools.permutations(said)} == {NEW[0].digest}
    assert standing(said[:2]).digest == NEWEST[0].digest
    assert standing(said[:3]).digest == OLD[0].digest


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
