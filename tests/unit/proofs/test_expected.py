"""The totals of `plan`: bytes that locks know, and what earlier builds and proofs measured."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.support.build_records import record_of
from tests.support.in_process import call
from tests.support.proofs import line_of, proof_of
from trainwright.build.ledger import LedgerRow, TimedStep, Timeline
from trainwright.build.store import BuildRecord, save
from trainwright.catalog.budget import Budget
from trainwright.catalog.catalog import open_catalog
from trainwright.core.paths import images_dir
from trainwright.plan.plan import Plan, PlannedSource
from trainwright.plan.plan_lock import LockedBase, LockedSystemPackage, PlanLock, lock_path, save_lock
from trainwright.plan.request import make_request
from trainwright.plan.resolve import line_taken, resolve
from trainwright.plan.totals import ExpectedSize, download
from trainwright.proofs.expected import seconds_of, sizes_of, totals_of
from trainwright.proofs.home import save as save_proof
from trainwright.proofs.proof import dump, parse
from trainwright.site.site import Site
from trainwright.verbs.plan import totals_text

pytestmark = pytest.mark.usefixtures("own_places")
CATALOG = open_catalog()
WORDS = ("plan", "--framework", "pytorch", "--cuda", "cpu")


@pytest.fixture(autouse=True)
def no_proofs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of proofs of this test."""
    for module in ("places", "home"):
        monkeypatch.setattr(f"trainwright.proofs.{module}.roots", lambda: [tmp_path / "proofs"])


def plan_of(**request: str) -> Plan:
    return resolve(make_request(framework="pytorch", **({"cuda": "cpu"} | request)), CATALOG)


def recorded(plan: Plan, number: int, **changes: object) -> BuildRecord:
    """A record as of the day of that number in November 2026."""
    image = f"sha256:{hashlib.sha256(str(number).encode()).hexdigest()}"
    when = f"2026-11-{number:02}T10:00:00+00:00"
    record = record_of(plan, image).replace(**({"built_at": when, "size_bytes": number * 10**9} | changes))
    save(record)
    return record


def test_the_download_is_the_sum_of_the_locks_of_line_and_tools():
    """Counted from the lock files, not from the plan: this line has all its packages in one layer each."""
    locks = [images_dir() / "pytorch" / "cpu" / "lock.json", images_dir() / "tools" / "3.11.lock.json"]
    rows = {row["sha256"]: row for path in locks for row in json.loads(path.read_text())["packages"]}
    used = {s.sha256 for c in plan_of().components for s in c.sources}
    tools = {row["sha256"] for row in json.loads(locks[1].read_text())["packages"]}
    wanted = [row["size"] for sha256, row in rows.items() if sha256 in used | tools]
    found = download(plan_of(), None)
    assert (found.bytes, found.files) == (sum(wanted), len(wanted))
    assert found.unknown == ("the base debian-12", "packages of the distribution", "1 file of metis")


def lock_of(plan: Plan, **parts: object) -> PlanLock:
    base = LockedBase(kind="debian", os="debian-12", sha256="b" * 64, size=1)
    common = {"plan": plan.id, "request": "--framework pytorch", "base": base, "python_version": "3.11"}
    return PlanLock(platform="x86_64-manylinux_2_28", **(common | parts))


def test_what_the_lock_of_a_plan_knows_is_counted():
    plan = plan_of()
    before = download(plan, None)
    bash = LockedSystemPackage(
        name="bash", version="5", architecture="amd64", sha256="a" * 64, size=1_000_000, stages=("os",)
    )
    found = download(plan, lock_of(plan, system=(bash,)))
    assert found.bytes == before.bytes + 1_000_000
    assert found.unknown == ("the base debian-12", "1 file of metis")


def test_a_file_that_two_components_share_is_downloaded_once():
    plan = plan_of()
    shared = PlannedSource(file="a.tar.gz", url="https://example.com/a.tar.gz", sha256="a" * 64, size=5_000_000)
    both = [c.replace(sources=(*c.sources, shared)) if c.name in ("efa", "ssh") else c for c in plan.components]
    found = download(plan.replace(components=tuple(both)), None)
    assert found.bytes == download(plan, None).bytes + 5_000_000


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        ({"cuda": "cu113"}, "the base image nvidia/cuda:11.3.1-cudnn8-runtime-ubuntu20.04"),
        ({"cuda": "cu113"}, "the image of build stages nvidia/cuda:11.3.1-cudnn8-devel-ubuntu20.04"),
        ({"version": "2.99.0", "allow_unproven": True}, "Python packages, as no lock has them"),
    ],
)
def test_what_is_not_known_is_named(request_, wanted):
    assert wanted in download(plan_of(**request_), None).unknown


def test_the_packages_of_a_requirements_file_are_named(tmp_path):
    (tmp_path / "requirements.txt").write_text("six\n")
    plan = plan_of(requirements=str(tmp_path / "requirements.txt"))
    assert "packages of --with-requirements" in download(plan, None).unknown
    assert "packages of --with-requirements" not in download(plan, lock_of(plan, user=())).unknown


def test_nothing_is_expected_of_what_was_never_built():
    totals = totals_of(plan_of(), Site(), None)
    assert (totals.size, totals.time) == (None, None)
    assert totals_text(totals)[1:] == [
        "image     not known: not built here, and no proof",
        "time      not known: no build here has measured it",
    ]


def test_the_last_build_of_the_plan_comes_before_a_newer_one_of_an_earlier_plan():
    plan = plan_of()
    recorded(plan, 1, seconds=44.4, cached_steps=2, total_steps=25)
    recorded(plan, 2, seconds=50.0, total_steps=25)
    recorded(plan.replace(id="e" * 64), 3, seconds=99.0)
    recorded(plan_of(without="metis"), 4, seconds=77.0)
    totals = totals_of(plan, Site(), None)
    assert totals.size is not None
    assert totals.time is not None
    assert (totals.size.bytes, totals.size.measured, totals.size.same_plan) == (2 * 10**9, "built", True)
    assert (totals.time.seconds, totals.time.date, totals.time.steps) == (50.0, "2026-11-02", 25)
    assert totals_text(totals)[1:] == [
        "image     2.00 GB, as built here on 2026-11-02",
        "time      50 s, as built here on 2026-11-02, 0 of 25 steps from the cache",
    ]


# As measured of the CPU image (bench/figures/layers.json).
MEASURED = {
    **{"base": 192_375_124, "python": 6_218_127, "pytorch": 503_277_280, "mpi4py": 3_554_737},
    **{"sagemaker-toolkit": 138_815_389, "metis": 687_976},
}
WHY = "pytorch 503.3 MB, base 192.4 MB, sagemaker-toolkit 138.8 MB, python 6.2 MB, the rest 56.7 MB"


@pytest.mark.parametrize("measured", ["built", "proven"])
def test_what_makes_the_image_so_big_is_named(measured):
    plan = plan_of()
    ledger = [LedgerRow(name=name, seconds=1.0, bytes=count, cached=False) for name, count in MEASURED.items()]
    ledger.append(LedgerRow(name="toolchain", seconds=9.0, bytes=0, cached=False))
    record = recorded(plan, 1, size_bytes=897_379_512, ledger=tuple(ledger))
    assert record.component_bytes == MEASURED
    proof = None
    if measured == "proven":
        proof = parse(dump(proof_of().replace(size_bytes=record.size_bytes, components=record.component_bytes)), "")
        record_file = record.folder / "record.json"
        record_file.unlink()
    totals = totals_of(plan, Site(), proof)
    assert totals.size is not None
    assert totals.size.components == MEASURED
    how, day = ("built here", "2026-11-01") if proof is None else ("proven", proof.date[:10])
    assert totals_text(totals)[1] == f"image     897.4 MB, as {how} on {day}: {WHY}"


def test_parts_that_are_all_named_leave_no_rest():
    expected = ExpectedSize(bytes=3, measured="built", date="2026-11-01", same_plan=True, components={"a": 1, "b": 2})
    totals = totals_of(plan_of(), Site(), None).replace(size=expected)
    assert totals_text(totals)[1] == "image     3 B, as built here on 2026-11-01: b 2 B, a 1 B"


def test_an_earlier_plan_of_the_line_says_so():
    plan = plan_of()
    recorded(plan.replace(id="e" * 64), 3, seconds=99.0, total_steps=9)
    assert totals_text(totals_of(plan, Site(), None))[1:] == [
        "image     3.00 GB, as built here on 2026-11-03 from an earlier plan",
        "time      99 s, as built here on 2026-11-03 from an earlier plan, 0 of 9 steps from the cache",
    ]


def timed(start: float, seconds: float, *, cached: bool) -> TimedStep:
    return TimedStep(stage="os", component="os", text="RUN", start=start, seconds=seconds, cached=cached)


def test_a_build_from_the_cache_has_the_time_of_the_build_that_made_the_image():
    plan = plan_of()
    steps = (timed(0.0, 10.0, cached=False), timed(5.0, 30.0, cached=False), timed(1.0, 0.0, cached=True))
    made = Timeline(built_at="2026-11-01T08:00:00+00:00", steps=steps)
    record = recorded(plan, 2, seconds=2.0, cached=True, cached_steps=3, total_steps=3, timeline=made)
    found = totals_of(plan, Site(), None).time
    assert found is not None
    assert (found.seconds, found.steps, found.cached_steps, found.date) == (35.0, 3, 1, "2026-11-01")
    all_cached = Timeline(built_at=made.built_at, steps=(timed(0.0, 0.1, cached=True),))
    save(record.replace(timeline=all_cached))
    assert totals_of(plan, Site(), None).time is None


@pytest.mark.parametrize(
    ("proven", "built", "wanted"),
    [
        ({}, "plan", "1.00 GB, as built here on 2026-11-01"),
        ({}, "earlier", "{size}, as proven on {date}"),
        ({"plan": "0" * 64}, "plan", "1.00 GB, as built here on 2026-11-01"),
        ({"plan": "0" * 64}, "none", "{size}, as proven on {date} from an earlier plan"),
        ({"stands_for": "{plan}"}, "none", "not known: not built here, and no proof"),
    ],
)
def test_the_size_comes_from_a_build_or_a_proof_of_this_plan_before_others(proven, built, wanted):
    plan = plan_of()
    proof = proof_of()
    assert proof.plan == plan.id
    proof = proof.replace(**{key: value.format(plan=plan.id) for key, value in proven.items()})
    if built != "none":
        recorded(plan if built == "plan" else plan.replace(id="e" * 64), 1)
    size = f"{proof.size_bytes / 10**9:.2f} GB"
    text = totals_text(totals_of(plan, Site(), proof))[1]
    assert text == f"image     {wanted.format(size=size, date=proof.date[:10])}"


@pytest.mark.parametrize(
    ("measured", "says", "over"),
    [
        (900, "", False),
        (918, "warning: the image above is 2.0 % over it, which is still allowed", False),
        (927, "warning: the image above is 3.0 % over it, which is still allowed", False),
        (990, "warning: the image above is 10.0 % over it, more than 3 %, so it would get no tag", True),
        (None, "", False),
    ],
)
def test_the_budget_stands_beside_the_size_and_warns_of_one_that_is_over_it(measured, says, over):
    plan = plan_of().replace(budget=Budget(bytes=900_000_000, file="some/line.yaml"))
    if measured is not None:
        recorded(plan, 1, size_bytes=measured * 10**6)
    totals = totals_of(plan, Site(), None)
    assert totals.over_budget is over
    found = totals_text(totals, plan.budget)
    assert [line.split()[0] for line in found] == ["download", "image", "budget", "time"]
    assert found[2] == "budget    900.0 MB (some/line.yaml)" + (f"; {says}" if says else "")


@pytest.mark.parametrize(
    "request_",
    [
        {"without": "metis"},
        {"with_": "compiler"},
        {"for_": "ec2"},
        {"version": "2.99.0", "allow_unproven": True},
    ],
)
def test_the_budget_of_a_line_is_for_its_own_image(request_):
    assert plan_of().budget is not None
    assert plan_of(**request_).budget is None


def test_the_budget_of_a_line_is_for_the_processor_that_it_was_measured_on():
    request = make_request(framework="pytorch", cuda="cu130", platform="linux/arm64")
    line = line_taken(request, CATALOG)
    entry = next(each for each in CATALOG.lines if each.line is line)
    catalog = CATALOG.alone(entry.replace(line=entry.line.replace(budget=6 * 10**9)))
    assert resolve(request, catalog).budget is None
    found = resolve(request.replace(platform="linux/amd64"), catalog).budget
    assert found is not None and found.bytes == 6 * 10**9


def test_plan_ends_with_the_totals_and_reads_the_lock(tmp_path):
    save_proof(proof_of())
    plan, site = plan_of(), Site(locks=tmp_path / "locks")
    save_lock(lock_of(plan, system=()), lock_path(plan, site))
    printed = call(*WORDS, cwd=tmp_path).stdout.splitlines()
    assert printed[-4].endswith("size not known: the base debian-12, 1 file of metis")
    assert [line.split()[0] for line in printed[-4:]] == ["download", "image", "budget", "time"]
    document = json.loads(call(*WORDS, "--json", cwd=tmp_path).stdout)
    assert document["totals"] == totals_of(plan, site, proof_of()).as_json()
    assert document["totals"]["size"]["measured"] == "proven"
    assert document["budget"] == {"bytes": 900_000_000, "file": "images/pytorch/cpu/line.yaml"}


def test_plan_makes_no_folder(tmp_path):
    assert call(*WORDS, cwd=tmp_path).returncode == 0
    assert not (tmp_path / "state").exists()


def test_sizes_of_lines_are_of_the_last_build_here_else_of_their_proof():
    cpu, cu124 = line_of("pytorch/cpu"), line_of("pytorch/cu124")
    save_proof(proof_of().replace(size_bytes=9))
    save_proof(proof_of().replace(size_bytes=8, line="cu126", stands_for="e" * 64))
    assert sizes_of(CATALOG.lines) == {cpu.path: 9}
    plan = plan_of(cuda="cu124")
    for number, size in ((4, 40), (5, 50), (3, 30)):
        recorded(plan, number, size_bytes=size)
    recorded(plan.replace(flavour="compiler"), 6)
    recorded(plan.replace(unproven=("pytorch 2.6.9",)), 7)
    broken = recorded(plan, 8).folder / "record.json"
    broken.write_text("{}")
    assert sizes_of(CATALOG.lines) == {cpu.path: 9, cu124.path: 50}
    assert sizes_of([cpu]) == {cpu.path: 9}


def step_of(component: str, seconds: float, *, cached: bool = False) -> TimedStep:
    return TimedStep(stage="x", component=component, text="RUN x", start=0.0, seconds=seconds, cached=cached)


def took(*steps: TimedStep, day: int) -> Timeline:
    return Timeline(built_at=f"2026-11-{day:02}T10:00:00+00:00", steps=steps)


def test_seconds_of_a_part_are_those_of_the_last_build_that_made_all_of_it():
    plan = plan_of()
    recorded(plan, 3, timeline=took(step_of("metis", 40.0), step_of("metis", 2.5), step_of("bytecode", 9.0), day=3))
    recorded(plan, 4, timeline=took(step_of("metis", 0.0, cached=True), step_of("metis", 2.0), day=4))
    recorded(plan, 5, timeline=None)
    assert seconds_of(["metis", "bytecode", "pytorch"], plan) == {
        "metis": (42.5, "2026-11-03"),
        "bytecode": (9.0, "2026-11-03"),
    }


def test_seconds_of_a_component_are_those_of_another_image_with_it():
    plan, other = plan_of(), plan_of(cuda="cu124")
    recorded(other, 3, timeline=took(step_of("metis", 40.0), step_of("pytorch", 50.0), step_of("bytecode", 9.0), day=3))
    # Its PyTorch is another one, and its bytecode is of other modules.
    assert seconds_of(["metis", "pytorch", "bytecode"], plan) == {"metis": (40.0, "2026-11-03")}
