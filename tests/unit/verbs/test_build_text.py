"""The end of a build: what it made, and which parts of it one waited for."""

from __future__ import annotations

from typing import Any

from trainwright.build.ledger import LedgerRow
from trainwright.verbs.build import build_text
from trainwright.verbs.documents import BuildDocument


def text(probe: dict[str, Any] | None = None, **seconds: float) -> str:
    rows = tuple(LedgerRow(name=name, seconds=took, bytes=1, cached=not took) for name, took in seconds.items())
    return build_text(
        BuildDocument(
            schema="trainwright/build/1",
            plan="0" * 64,
            image_id=f"sha256:{'1' * 64}",
            tags=("a:1",),
            pushed=None,
            size_bytes=1,
            seconds=200.0,
            cached=False,
            components=rows,
            probe=probe or {},
            smoke=None,
            record="record.json",
            push=None,
        )
    )


def test_the_end_of_a_build_names_what_was_slow() -> None:
    assert "\nslowest rmm 3m20s, metis 2m11s, os 12s\n" in text(os=12.1, metis=131.0, tools=11.0, rmm=200.0, base=0.0)
    assert "slowest" not in text(os=3.0, metis=0.0)


def test_the_end_of_a_build_names_second_copies() -> None:
    found = {"copies": [{"bytes": 66_600_000, "paths": ["/opt/a.so", "/opt/b.so"]}]}
    assert "\nnote    66.6 MB are second copies of files: /opt/a.so = /opt/b.so (66.6 MB)\ntag  " in text(found, os=3.0)
    assert "note" not in text(os=3.0)
