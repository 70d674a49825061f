"""What a build took: its layers with their owners, and when its steps ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.build.ledger import layers_of, timeline_of
from trainwright.engine.buildkit_log import BuildProgress

COLD = Path(__file__).parents[1] / "engine" / "buildkit" / "raw-cold.txt"
DOCKERFILE = """\
FROM scratch AS base
ADD rootfs.tar /
FROM base AS os
RUN apt-install
FROM os AS packages
# metis 5.1.0 (source)
COPY --from=metis /out/ /
FROM packages AS final
WORKDIR /
RUN true && \\
    ldconfig
"""
# Newest first, as the engine has it.
HISTORY = [
    ("LABEL a=b", 0),
    ("RUN /bin/sh -c true && ldconfig", 7),
    ("WORKDIR /", 0),
    ("ENV PATH=/bin", 0),
    ("COPY /out/ / # buildkit", 500),
    ("RUN /bin/sh -c apt-install", 70),
    ("ADD rootfs.tar / # buildkit", 900),
]


def owners(history: list[tuple[str, int]], digests: list[str]) -> list[tuple[str, str, int]]:
    return [(layer.digest, layer.component, layer.bytes) for layer in layers_of(DOCKERFILE, history, digests)]


def test_each_layer_has_its_digest_its_component_and_its_bytes():
    found = owners(HISTORY, ["d1", "d2", "d3", "d4"])
    assert [(digest, size) for digest, _, size in found] == [("d1", 900), ("d2", 70), ("d3", 500), ("d4", 7)]
    assert [owner for _, owner, _ in found][:3] == ["base", "os", "metis"]


def test_a_folder_that_was_not_there_is_a_layer():
    found = owners(HISTORY, ["d1", "d2", "d3", "d4", "d5"])
    assert [size for _, _, size in found] == [900, 70, 500, 0, 7]


def test_what_lies_below_our_own_steps_belongs_to_the_base():
    below = [*HISTORY, ("/bin/sh -c #(nop) ADD file:1 in / ", 3000)]
    assert owners(below, ["d0", "d1", "d2", "d3", "d4"])[0] == ("d0", "base", 3000)


def test_a_timeline_starts_at_zero_and_keeps_what_ran_side_by_side():
    progress = BuildProgress("rawjson", owner=lambda vertex: vertex.stage)
    for line in COLD.read_text().splitlines():
        progress.feed(line)
    progress.close()
    ran = timeline_of(progress.steps, "2026-11-23T08:00:00+00:00").steps
    assert min(step.start for step in ran) == 0
    for step, vertex in zip(ran, progress.steps, strict=True):
        assert step.stage == vertex.stage
        assert step.seconds == pytest.approx(vertex.seconds, abs=0.01)
    overlapping = [(a, b) for a in ran for b in ran if a.start < b.start < a.start + a.seconds]
    assert overlapping, "the captured build had stages side by side"


def test_steps_that_never_started_are_not_in_a_timeline():
    assert timeline_of([], "2026-11-23T08:00:00+00:00").steps == ()
