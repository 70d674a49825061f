"""Which builder takes a unit: the one with the least to do, where its cache helps, and none that does not answer."""

from __future__ import annotations

from trainwright.fleet.builders import Builders


def test_the_one_with_the_least_to_do() -> None:
    builders = Builders(["a", "b", "c"])
    assert [builders.take(unit, ()) for unit in ("1", "2", "3", "4")] == ["a", "b", "c", "a"]
    builders.end("2")
    builders.end("4")
    assert [builders.take(unit, ()) for unit in ("5", "6")] == ["b", "a"]


def test_what_is_needed_is_where_it_was_built() -> None:
    builders = Builders(["a", "b"])
    assert (builders.take("stages-1", ()), builders.take("stages-2", ())) == ("a", "b")
    builders.end("stages-1")
    builders.end("stages-2")
    assert builders.take("line-2", ("stages-2",)) == "b"
    assert builders.take("other-2", ("stages-2",)) == "a"  # it does not wait for b


def test_a_lost_one_gets_nothing_more_and_the_last_one_is_never_lost() -> None:
    builders = Builders(["a", "b"])
    builders.take("1", ())
    builders.take("2", ())
    assert builders.lose("1")
    builders.end("1")
    assert [builders.take(unit, ()) for unit in ("1", "3")] == ["b", "b"]
    assert not builders.lose("2")
    assert builders.lose("1") is False
    assert builders.take("4", ()) == "b"
