"""How far the copy of a blob is: what was sent counts for the speed, what was there does not."""

from __future__ import annotations

import http.client
import io
from typing import cast

import pytest

from trainwright.core.heartbeat import Transfer
from trainwright.push import registry
from trainwright.push.registry import Registry


def test_each_piece_that_was_taken_counts(monkeypatch):
    monkeypatch.setattr(registry, "_PIECE", 4)
    seen: list[tuple[int, int]] = []
    pieces = registry._pieces(
        cast(http.client.HTTPResponse, io.BytesIO(b"0123456789")), 10, lambda *at: seen.append(at)
    )
    assert next(pieces) == b"0123"
    assert seen == [], "it is not sent before the next one is asked for"
    assert [*pieces] == [b"4567", b"89"]
    assert seen == [(4, 4), (8, 4), (10, 2)]


def test_a_blob_that_is_cut_short_is_not_complete():
    seen: list[tuple[int, int]] = []
    with pytest.raises(http.client.IncompleteRead):
        list(registry._pieces(cast(http.client.HTTPResponse, io.BytesIO(b"0123")), 10, lambda *at: seen.append(at)))
    assert seen == [(4, 4)]


def test_a_blob_that_is_there_is_complete_and_says_nothing_of_the_speed(monkeypatch):
    monkeypatch.setattr(Registry, "__init__", lambda _: None)
    monkeypatch.setattr(Registry, "has_blob", lambda *_: True)
    here, transfer = Registry(), Transfer(2, 3_000_000)  # type: ignore[call-arg]
    assert here.copy_blob(here, "sha256:a", 2_000_000, moved=lambda *at: transfer.at("a", *at)) == 0
    assert transfer.text(5) == "2.0 MB of 3.0 MB, 0 of 2 files, 5s so far"
