"""What ``smoke`` prints of a run that passed, and what it refuses."""

from __future__ import annotations

import pytest

from tests.support.build_records import record_of
from tests.support.in_process import call
from trainwright.build import smoke as smoking
from trainwright.catalog.catalog import open_catalog
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.prove.smoke import SmokeDocument, SmokeRow
from trainwright.verbs.smoke import smoke_text


def row(check: str, reason: str = "") -> SmokeRow:
    return SmokeRow(
        component="nccl", check=check, outcome="skipped" if reason else "passed", reason=reason, seconds=0.04
    )


RUN = SmokeDocument(
    schema="trainwright/smoke/1",
    image="team/trainer:1",
    image_id="sha256:ab",
    plan="c" * 64,
    passed=1,
    failed=0,
    skipped=3,
    seconds=38.4,
    rows=(row("test_a"), row("test_b", "not run: no GPU"), row("test_c", "no driver"), row("test_d", "no driver")),
)


def test_only_what_was_not_run_is_told_and_why():
    assert smoke_text(RUN).splitlines() == [
        "skipped  2  no driver",
        "skipped  1  not run: no GPU",
        "team/trainer:1: 1 passed, 0 failed, 3 skipped in 38 s",
    ]


def test_a_line_for_each_check_when_asked_for():
    assert smoke_text(RUN, every=True).splitlines() == [
        "passed   nccl  test_a  0.0 s",
        "skipped  nccl  test_b  0.0 s  not run: no GPU",
        "skipped  nccl  test_c  0.0 s  no driver",
        "skipped  nccl  test_d  0.0 s  no driver",
        "",
        "team/trainer:1: 1 passed, 0 failed, 3 skipped in 38 s",
    ]


def test_second_copies_in_the_image_are_a_note(monkeypatch):
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), open_catalog())
    copies = [{"bytes": 66_600_000, "paths": ["/opt/a.so", "/opt/b.so"]}]
    record = record_of(plan, "sha256:ab").replace(probe={"copies": copies})
    monkeypatch.setattr(smoking, "connect", lambda **_: None)
    monkeypatch.setattr(smoking, "built_record", lambda *_: record)
    monkeypatch.setattr(smoking, "smoke_record", lambda record, *_, **__: (record, RUN))
    said: list[str] = []
    assert smoking.smoke_image("team/trainer:1", select=None, say=said.append) == RUN
    assert said == ["note: 66.6 MB are second copies of files: /opt/a.so = /opt/b.so (66.6 MB)"]


@pytest.mark.parametrize(
    "words", [("--attach", "--select", "nccl"), ("--import", "x", "--attach"), ("--import", "x", "--junit", "y")]
)
def test_what_does_not_go_with_an_image_in_a_registry(words):
    done = call("smoke", "--image", "x", *words)
    assert done.returncode == 2 and words[0] in done.stderr


@pytest.mark.parametrize("words", [("--attach",), ("--import", "README.md")])
def test_an_image_in_a_registry_is_named_by_its_digest(words):
    host = "123456789012.dkr.ecr.us-west-2.amazonaws.com"
    for image, near in (("team/x", "./invoke smoke 1"), (f"{host}/team/x:v1", "./invoke tags list v1")):
        done = call("smoke", "--image", image, *words)
        assert done.returncode == 2 and near in done.stderr
