"""An image over its budget gets no tag and no record, and the failure says why; one within it is tagged.

The engine is a program that answers ``history`` with the rows of a file and writes down what it is asked for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.build_records import probe_of, record_of
from trainwright.build import store
from trainwright.build.build import Built
from trainwright.build.ledger import LedgerRow
from trainwright.build.options import BuildOptions
from trainwright.catalog.budget import Budget
from trainwright.catalog.catalog import open_catalog
from trainwright.core.errors import EngineError, ProofFailed
from trainwright.engine.buildkit_log import BuildProgress
from trainwright.engine.engine import Client, Engine
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.sources.gather import gather
from trainwright.verbs import way
from trainwright.verbs.state import State, run

CATALOG = open_catalog()
IMAGE, OTHER = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
MB = 10**6
DOCKERFILE = """\
FROM scratch AS base
ADD rootfs.tar /
FROM base AS os
RUN apt-install
FROM os AS packages
# pytorch 2.13.0+cpu (wheel)
COPY --from=pytorch-layer /out/ /
# metis 5.1.0 (debian)
COPY --from=metis /out/ /
FROM packages AS final
RUN ldconfig
"""
ENGINE = """\
#!/bin/sh
echo "$*" >> {log}
case "$1" in history) cat {rows};; esac
"""


@dataclass
class Fake:
    """An engine of a test: what it was asked for, and the layers of its image."""

    engine: Engine
    log: Path
    rows: Path

    def layers(self, *, pytorch: int, metis: int = 1) -> None:
        """Let the image have these MB, beside 75 MB of base, 100 MB of packages and 5 MB at the end."""
        steps = [("RUN ldconfig", 5), ("COPY /out/ /", metis), ("COPY /out/ /", pytorch)]
        steps += [("RUN apt-install", 100), ("ADD rootfs.tar /", 75)]
        rows = [json.dumps({"CreatedBy": text, "Size": str(count * MB)}) for text, count in steps]
        self.rows.write_text("\n".join([json.dumps({"CreatedBy": "LABEL a=b", "Size": "0"}), *rows]) + "\n")

    def asked(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def fake(tmp_path: Path, own_places: None) -> Fake:
    program, log, rows = tmp_path / "docker", tmp_path / "log", tmp_path / "rows"
    program.write_text(ENGINE.format(log=log, rows=rows))
    program.chmod(0o755)
    return Fake(Engine(Client(str(program), "builtin", "20.10", "plain"), "20.10"), log, rows)


def plan_of(budget: int | None) -> Plan:
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), CATALOG)
    file = "images/pytorch/cpu/line.yaml"
    return plan.replace(budget=None if budget is None else Budget(bytes=budget * MB, file=file))


def after_build(plan: Plan, fake: Fake, monkeypatch: pytest.MonkeyPatch, pushed: str | None = None) -> State:
    """Everything that comes after the build itself, with an image that is what its plan says."""
    monkeypatch.setattr("trainwright.prove.probe.probe", lambda *_, **__: probe_of(plan, IMAGE))
    inputs = gather(plan, CATALOG, Site())
    built = Built(IMAGE, BuildProgress("plain", owner=lambda _: None), pushed)
    state = State(say=lambda _: None, site=Site(), catalog=CATALOG, options=BuildOptions(tags=("team/own:1",)))
    state = replace(state, plan=plan, inputs=inputs, engine=fake.engine, built=built, dockerfile=DOCKERFILE)
    return run(way.STEPS[len(way.upto("build")) :], state)


def tagged(fake: Fake) -> list[str]:
    return [line for line in fake.asked() if line.startswith("tag ")]


@pytest.mark.parametrize(("budget", "pytorch"), [(900, 719), (900, 746), (None, 9000)])
def test_an_image_within_its_budget_is_tagged_and_recorded(fake, monkeypatch, budget, pytorch):
    """900 MB and 3 % are 927 MB; what is not PyTorch has 181."""
    fake.layers(pytorch=pytorch)
    done = after_build(plan_of(budget), fake, monkeypatch)
    assert done.record is not None
    assert done.record.size_bytes == (181 + pytorch) * MB
    assert sorted(tagged(fake)) == sorted(f"tag {IMAGE} {tag}" for tag in done.record.tags)
    assert "team/own:1" in done.record.tags
    assert store.load(IMAGE) is not None


def test_an_image_over_its_budget_gets_no_tag_and_no_record(fake, monkeypatch):
    fake.layers(pytorch=747)
    with pytest.raises(ProofFailed) as failed:
        after_build(plan_of(900), fake, monkeypatch)
    assert failed.value.exit_code == 6
    assert tagged(fake) == []
    assert store.load(IMAGE) is None
    assert store.all_records() == []


def test_it_is_weighed_before_it_is_probed(fake, monkeypatch):
    fake.layers(pytorch=9000)
    monkeypatch.setattr("trainwright.build.build.probe_image", lambda *_, **__: pytest.fail("the image was probed"))
    with pytest.raises(ProofFailed):
        after_build(plan_of(900), fake, monkeypatch)


def test_the_failure_says_how_much_and_what_is_biggest(fake, monkeypatch):
    fake.layers(pytorch=819)
    with pytest.raises(ProofFailed) as failed:
        after_build(plan_of(900), fake, monkeypatch, pushed="registry.example/team@sha256:1")
    message, remedy = failed.value.message, failed.value.remedy
    first, *rows = message.splitlines()
    for said in ("1.00 GB", "100.0 MB", "11.1 %", "900.0 MB", "images/pytorch/cpu/line.yaml", "no tag"):
        assert said in first
    assert [row.split()[:3] for row in rows] == [
        ["pytorch", "819.0", "MB"],
        ["os", "105.0", "MB"],  # what the last stage does itself counts to it
        ["base", "75.0", "MB"],
    ]
    assert "raise budget in images/pytorch/cpu/line.yaml to 1.00 GB" in remedy
    assert IMAGE[7:19] in remedy and "registry.example/team@sha256:1" in remedy
    assert "./invoke report" not in remedy, "nothing was built before"
    details = failed.value.as_json()
    assert (details["size_bytes"], details["image_id"]) == (1000 * MB, IMAGE)
    assert details["budget"] == {"bytes": 900 * MB, "file": "images/pytorch/cpu/line.yaml"}
    assert sum(row["bytes"] for row in details["components"]) == 1000 * MB


def before(plan: Plan, image: str, **sizes: int) -> None:
    """A record of an earlier build of the line, of another plan, with these MB by component."""
    rows = tuple(LedgerRow(name=name, seconds=1.0, bytes=count * MB, cached=False) for name, count in sizes.items())
    record = record_of(plan, image, tag="trainwright/pytorch:earlier")
    store.save(record.replace(ledger=rows, built_at="2026-11-02T10:00:00+00:00", plan=plan.replace(id="e" * 64)))


def test_it_names_what_grew_most_since_the_last_build(fake, monkeypatch):
    plan = plan_of(900)
    before(plan, OTHER, base=75, os=20, pytorch=810)
    before(plan, IMAGE, base=0)  # the same image, of a higher budget then, tells nothing
    fake.layers(pytorch=812, metis=40)
    with pytest.raises(ProofFailed) as failed:
        after_build(plan, fake, monkeypatch)
    rows = failed.value.message.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["os", "metis", "pytorch"]
    assert "more than on 2026-11-02" in rows[0] and "new since 2026-11-02" in rows[1] and "2.0 MB more" in rows[2]
    assert "./invoke report trainwright/pytorch:earlier" in failed.value.remedy
    found = {row["name"]: row["expected_bytes"] for row in failed.value.as_json()["components"]}
    assert (found["pytorch"], found["metis"]) == (810 * MB, None)


def test_it_names_what_is_biggest_where_nothing_grew(fake, monkeypatch):
    plan = plan_of(900)
    before(plan, OTHER, base=75, os=105, pytorch=819, metis=40)
    fake.layers(pytorch=819)
    with pytest.raises(ProofFailed) as failed:
        after_build(plan, fake, monkeypatch)
    assert [row.split()[0] for row in failed.value.message.splitlines()[1:]] == ["pytorch", "os", "base"]


def test_an_engine_that_has_no_such_image_is_an_error_of_the_engine(fake, monkeypatch):
    Path(fake.engine.client.path).write_text("#!/bin/sh\necho no such image >&2\nexit 1\n")
    with pytest.raises(EngineError, match="no such image"):
        after_build(plan_of(900), fake, monkeypatch)
