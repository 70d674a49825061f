"""What labels and tags say against what is in an image: each contradiction by itself, and the copy without a proof."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from tests.support.build_records import record_of
from trainwright.build.store import BuildRecord
from trainwright.catalog.catalog import load_catalog
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push.proof import contradictions, mark_unproven, smoke_lacks

IMAGE = "sha256:" + "ab" * 32
LABEL = "io.trainwright."


@pytest.fixture(scope="module")
def record() -> BuildRecord:
    return record_of(resolve(make_request(framework="pytorch", cuda="cu124", version="2.6.0"), load_catalog()), IMAGE)


def rows(record: BuildRecord, change: Any) -> list[tuple[str, str, str, str]]:
    probe = json.loads(json.dumps(record.probe))
    change(probe)
    return [(d.component, d.fact, d.expected, d.found) for d in contradictions(record.replace(probe=probe))]


def without(*path: str) -> Any:
    def change(probe: dict[str, Any]) -> None:
        inner: Any = probe
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]

    return change


def to(value: Any, *path: str) -> Any:
    def change(probe: dict[str, Any]) -> None:
        inner: Any = probe
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return change


def label(name: str) -> tuple[str, ...]:
    return ("image", "labels", LABEL + name)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (to("sha256:0", "image", "id"), [("image", "id", IMAGE, "sha256:0")]),
        (without("image", "id"), [("image", "id", IMAGE, "nothing")]),
        (to("2.20.5", "facts", "nccl", "version"), [("labels", "component.nccl", "2.20.5", "2.21.5")]),
        (without(*label("component.nccl")), [("labels", "component.nccl", "2.21.5", "nothing")]),
        (
            to("2.6.1", "facts", "pytorch", "version"),
            [("labels", "component.pytorch", "2.6.1", "2.6.0"), ("labels", "framework-version", "2.6.1", "2.6.0")],
        ),
        # 2.6.0 is not the beginning of 2.6.01 as a version.
        (
            to("2.6.01", "facts", "pytorch", "version"),
            [("labels", "component.pytorch", "2.6.01", "2.6.0"), ("labels", "framework-version", "2.6.01", "2.6.0")],
        ),
        (to("3.12.1", "interpreter", "version"), [("labels", "python", "3.12.1", "3.11")]),
        (to("13", "os", "VERSION_ID"), [("labels", "base", "debian-13", "debian-12")]),
        (without("os", "VERSION_ID"), []),
        (without("os", "ID"), []),
        (
            to("12.6", *label("cuda")),
            [
                ("labels", "cuda", "12.4 and 12.4", "12.6"),
                ("tags", "cuda", "12.6", "12.4 in 2.6.0-cu124-py311-debian12")],
        ),
        # The image's CUDA may be of another minor version than the framework's.
        (to("12.6", "facts", "cuda", "version"), [("labels", "component.cuda", "12.6", "12.4")]),
        (
            without(*label("python")),
            [
                ("labels", "python", "3.11.9", "nothing"),
                ("tags", "python", "nothing", "3.11 in 2.6.0-cu124-py311-debian12"),
            ],
        ),
    ],
)  # fmt: skip
def test_each_contradiction_is_named(record: BuildRecord, change: Any, expected: list[tuple[str, ...]]) -> None:
    assert list(contradictions(record)) == []
    assert rows(record, change) == expected


def test_an_image_id_alone_is_a_record_of_another_image(record: BuildRecord) -> None:
    assert [d.fact for d in contradictions(record.replace(image_id="sha256:" + "cd" * 32))] == ["id"]


@pytest.mark.parametrize(
    ("smoke", "said"),
    [
        ({}, ""),
        ({"failed": 2}, "2 smoke tests failed"),
        ({"passed": 0}, "no test of its smoke run passed"),
        ({"plan": "0" * 64}, "its smoke tests were run on another image"),
        ({"image_id": "sha256:0"}, "its smoke tests were run on another image"),
    ],
)
def test_what_a_smoke_run_lacks(record: BuildRecord, smoke: dict[str, Any], said: str) -> None:
    assert record.smoke is not None
    assert smoke_lacks(record.replace(smoke={**record.smoke, **smoke})) == said
    assert smoke_lacks(record.replace(smoke=None)) == "no smoke tests were run"


class Images:
    """The engine's images, as its SDK shows them."""

    def __init__(self, labels: dict[str, str] | None) -> None:
        self.labels, self.made = labels, []

    def get(self, name: str) -> Any:
        self.asked = name
        if self.labels is None:
            raise ImageNotFound(name)
        return SimpleNamespace(id="sha256:kept", labels=self.labels)

    def build(self, **words: Any) -> Any:
        self.made.append(words)
        return SimpleNamespace(id="sha256:made"), iter(())


LACKS = {"io.trainwright.unproven-push": "no smoke tests were run", "io.trainwright.built": "2026-11-21T12:00:00+00:00"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, "sha256:made"),
        ({}, "sha256:made"),
        ({**LACKS, "io.trainwright.built": "2026-11-20T12:00:00+00:00"}, "sha256:made"),
        ({**LACKS, "more": "x"}, "sha256:kept"),
    ],
)
def test_a_copy_says_what_it_lacks_and_is_made_once(
    record: BuildRecord, found: dict[str, str] | None, expected: str
) -> None:
    images = Images(found)
    client: Any = SimpleNamespace(images=images)
    assert mark_unproven(client, record, "2026-11-21T12:00:00+00:00", "no smoke tests were run") == expected
    assert images.asked == f"trainwright/pytorch:{'ab' * 6}-unproven-push"
    assert len(images.made) == (expected == "sha256:made")
    for words in images.made:
        assert words.pop("fileobj").read() == f"FROM {IMAGE}\n".encode()
        # Without rm and forcerm the engine keeps a container of each build.
        assert words == {"labels": LACKS, "tag": images.asked, "rm": True, "forcerm": True}
