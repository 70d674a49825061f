"""``build --images`` from command line to summary, interrupted and killed, with processes that build nothing."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.build_records import record_of
from tests.support.fleet_program import stand_in
from tests.support.fleet_units import Yard
from tests.support.in_process import call
from trainwright.build.store import save
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RegistryRefused
from trainwright.core.processes import lives
from trainwright.fleet.run_folder import find, runs
from trainwright.pipeline.images import choose
from trainwright.push.references import PushPlace
from trainwright.push.tagging import TagRow, TagsDocument
from trainwright.site.site import Site
from trainwright.verbs import build_images

ROOT = Path(__file__).parents[3]
# Two that share stages, and one that shares none with them.
IMAGES = "pytorch-2.13.0-cpu,pytorch-2.6.0-cu124-debian,tensorflow-2.21.0-cpu-debian"
CPU, CUDA, TENSORFLOW = "pytorch-2.13.0-cpu-debian", "pytorch-2.6.0-cu124-debian", "tensorflow-2.21.0-cpu-debian"
# The worker knows a line by its version.
VERSIONS = {CPU: "2.13.0", CUDA: "2.6.0", TENSORFLOW: "2.21.0"}


@pytest.fixture
def worked(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Yard:
    stand_in(monkeypatch.setattr)
    return yard


def build(*words: str, code: int = 0) -> Any:
    done = call("build", *words, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def states(document: Any) -> dict[str, str]:
    return {line["name"]: line["state"] for line in document["lines"]}


def commands(yard: Yard) -> list[list[str]]:
    return [shlex.split(line) for line in (yard.folder / "argv").read_text().splitlines()]


def test_shared_stages_are_built_once_and_then_every_line(worked):
    document = build("--images", IMAGES, "--jobs", "3", "--smoke", "--cache", "a.b/c")
    assert states(document) == {CPU: "built", CUDA: "built", TENSORFLOW: "built"}
    (stages,) = document["stages"]
    assert "metis" in stages["stages"] and stages["state"] == "built"
    given = {tuple(sorted(argv[1:])) for argv in commands(worked)}
    plain = ("--progress", "plain", "--json")
    shared = ("--framework", "pytorch", "--cuda", "cu124", "--version", "2.6.0", "--base", "debian")
    cpu = ("--framework", "pytorch", "--cuda", "cpu", "--version", "2.13.0", "--base", "debian")
    tensorflow = ("--framework", "tensorflow", "--cuda", "cpu", "--version", "2.21.0", "--base", "debian")
    options = ("--cache", "a.b/c", "--smoke")
    expected = [(*line, *options, *plain) for line in (shared, cpu, tensorflow)]
    expected.append((*shared, "--stages", ",".join(stages["stages"]), "--cache", "a.b/c", *plain))
    assert given == {tuple(sorted(argv)) for argv in expected}
    assert {argv[0] for argv in commands(worked)} == {"build"}
    end = worked.events.index(f"end {','.join(stages['stages'])}")
    assert end < worked.events.index("start 2.6.0") and end < worked.events.index("start 2.13.0")
    folder = Path(document["folder"])
    assert json.loads((folder / "summary.json").read_text()) == document
    assert f"| {CPU} | built |" in (folder / "summary.md").read_text().replace("\\", "")
    suite = ET.parse(folder / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "0", "0")


def test_a_build_without_the_cache_shares_nothing(worked):
    document = build("--images", IMAGES, "--no-cache")
    assert document["stages"] == []
    assert len(commands(worked)) == 3


def test_a_failed_line_is_said_with_its_reason_and_code(worked):
    worked.tell("2.21.0", "fail 8 source")
    done = call("build", "--images", IMAGES, "--keep-going")
    assert done.returncode == 8
    (run,) = runs()
    assert f"{TENSORFLOW}  failed" in done.stdout
    assert "    2.21.0 is wrong\n    fix 2.21.0" in done.stdout
    assert "2 built, 1 failed" in done.stdout
    assert f"next    ./invoke build --resume {run}" in done.stdout
    assert f"{TENSORFLOW}: failed after" in done.stderr and "exit code 8: 2.21.0 is wrong" in done.stderr
    folder = find(run).path
    assert "2.21.0 is wrong" in (folder / "summary.md").read_text()
    failure = ET.parse(folder / "junit.xml").getroot().find(".//failure")
    assert failure is not None and failure.get("message") == "2.21.0 is wrong"


def test_failures_of_two_kinds_have_the_code_of_a_failed_build(worked):
    worked.tell("2.21.0", "fail 8 source")
    worked.tell("2.6.0", "fail 6 proof")
    document = build("--images", IMAGES, "--keep-going", code=5)
    assert (document["outcome"], document["exit_code"]) == ("failed", 5)


def test_without_keep_going_a_resumed_run_builds_what_is_left(worked):
    worked.tell("2.6.0", "fail 6 proof")
    first = build("--images", IMAGES, "--jobs", "1", "--smoke", code=6)
    assert sorted(states(first).values()) == ["failed", "skipped", "skipped"]
    suite = ET.parse(Path(first["folder"], "junit.xml")).getroot()[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("1", "2")
    begun = len(commands(worked))
    second = build("--resume", first["run"], "--jobs", "1")
    assert set(states(second).values()) == {"built"}
    assert second["images"] == IMAGES
    lines = [argv for argv in commands(worked)[begun:] if "--stages" not in argv]
    assert sorted(argv[argv.index("--version") + 1] for argv in lines) == ["2.13.0", "2.21.0", "2.6.0"]
    assert all("--smoke" in argv for argv in lines)  # as the run was begun
    assert list(Path(first["folder"], "stages").glob("*.json"))
    third = build("--resume", first["run"])
    assert not list(Path(first["folder"], "stages").glob("*.json"))  # nothing is left to share
    assert states(third) == states(second)
    assert len(commands(worked)) == begun + 4


def test_what_is_gone_or_has_another_plan_is_built_again(worked):
    first = build("--images", IMAGES)
    folder = find(first["run"])
    (worked.folder / "gone").write_text("sha256:2.6.0")
    of_cpu = folder.progress("line", CPU)
    folder.keep(of_cpu.replace(plan="0" * 64))
    begun = len(commands(worked))
    second = build("--resume", first["run"])
    built = [argv[argv.index("--version") + 1] for argv in commands(worked)[begun:] if "--stages" not in argv]
    assert sorted(built) == ["2.13.0", "2.6.0"]
    assert [line["plan"] for line in second["lines"]] == [line["plan"] for line in first["lines"]]


def test_images_that_stay_with_their_builders(worked):
    words = ("--registry", "a.b/c", "--stay")
    document = build("--images", IMAGES, "--builder", "farm-1,farm-2", *words)
    assert set(states(document).values()) == {"built"}
    for argv in commands(worked):
        assert ("--stay" in argv) == ("--stages" not in argv)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("pytorch:cu124", "--stay"), "--stay: only with --registry"),
        (("pytorch:cu124", "--registry", "a.b/c", "--stay", "--push", "team/x"), "--push: not with --stay"),
        (("pytorch:cu124", "--registry", "a.b/c", "--stay", "--tag", "x:y"), "--tag: not with --stay"),
        (("--images", "pytorh-*"), "--images pytorh-*: no image line matches. Did you mean pytorch"),
        (("--images", ","), "--images: no line is named"),
        (("--images", "pytorch", "--cuda", "cu124"), "--cuda: not with --images"),
        (("--images", "pytorch", "--tag", "a:b"), "--tag: not with --images"),
        (("--images", "pytorch", "--with-requirements", "x"), "--with-requirements: not with --images"),
        (("--images", "pytorch", "--stages", "os"), "--stages: not with --images"),
        (("--images", "pytorch", "--builder", "a,,b"), "--builder a,,b: a name is empty"),
        (("pytorch:cu124", "--builder", "a,b"), "--builder a,b: one image has one builder"),
        (("pytorch:cu124", "--jobs", "3"), "--jobs: only with --images"),
        (("pytorch:cu124", "--keep-going"), "--keep-going: only with --images"),
        (("pytorch:cu124", "--leave-tags"), "--leave-tags: only with --push"),
        (("--images", "pytorch", "--leave-tags"), "--leave-tags: only with --push"),
        (("--images", "pytorch", "--push", "a.b/c"), "--repository a.b/c: a.b is not an ECR registry"),
        (("--resume", "x"), "--resume x: no such run, and this project has none"),
    ],
)
def test_words_that_do_not_go_together_are_refused_before_a_run_begins(worked, words, says):
    document = build(*words, code=2)
    assert says in document["message"]
    assert runs() == []


@pytest.mark.parametrize("words", [("--images", "pytorch"), ("--smoke",)])
def test_a_run_goes_on_as_it_was_begun(worked, words):
    run = build("--images", "tensorflow:cpu", "--no-cache")["run"]
    document = build("--resume", run, *words, code=2)
    assert "the run was begun with other flags: --images tensorflow:cpu --no-cache" in document["message"]
    assert states(build("--resume", run, "--no-cache", "--images", "tensorflow:cpu")) == {TENSORFLOW: "built"}


def builders_of(yard: Yard) -> dict[str, list[str]]:
    """The builders to which each line was given, in order."""
    found: dict[str, list[str]] = {}
    for argv in commands(yard):
        if "--stages" not in argv:
            found.setdefault(argv[argv.index("--version") + 1], []).append(argv[argv.index("--builder") + 1])
    return found


def test_two_builders_share_the_lines_of_a_run(worked):
    document = build("--images", IMAGES, "--builder", "farm-1,farm-2", "--no-cache")
    assert set(states(document).values()) == {"built"}
    found = builders_of(worked)
    assert {name for names in found.values() for name in names} == {"farm-1", "farm-2"}
    assert {line["name"]: [line["builder"]] for line in document["lines"]} == {
        name: found[VERSIONS[name]] for name in VERSIONS
    }


def test_a_builder_that_does_not_answer_loses_its_lines_to_the_other_one(worked):
    worked.tell("2.21.0", "fail 4 engine", "built")
    worked.tell("2.6.0", "hang", "built")
    worked.go()
    done = call("build", "--images", IMAGES, "--builder", "farm-1,farm-2", "--no-cache", "--json")
    assert done.returncode == 0, done.stderr
    first, second = builders_of(worked)["2.21.0"]
    assert first != second
    assert all(names[-1] == second for version, names in builders_of(worked).items() if version == "2.21.0")
    assert f"{TENSORFLOW}: another builder takes it, as {first} gets nothing more: 2.21.0 is wrong" in done.stderr
    # The last one is asked all the same, and then its failure is that of the line.
    for version in VERSIONS.values():
        worked.tell(version, "fail 4 engine", "fail 4 engine")
    failed = call("build", "--images", IMAGES, "--builder", "farm-1,farm-2", "--no-cache", "--keep-going", "--json")
    assert failed.returncode == 4
    assert set(states(json.loads(failed.stdout)).values()) == {"failed"}


def test_a_run_goes_on_at_other_builders(worked):
    worked.tell("2.21.0", "fail 5 build", "built")
    first = build("--images", IMAGES, "--builder", "farm-1,farm-2", "--no-cache", "--keep-going", code=5)
    document = build("--resume", first["run"], "--builder", "farm-3")
    assert {line["name"]: line["builder"] for line in document["lines"]}[TENSORFLOW] == "farm-3"
    assert states(build("--resume", first["run"])) == states(document)


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """The program as a process of its own."""
    argv = [sys.executable, "-m", "tests.support.fleet_program", "build", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, cwd=ROOT, env=env, stdout=-1, stderr=-1, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(yard: Yard, process: subprocess.Popen[str], *events: str) -> None:
    limit = time.monotonic() + 60
    while not set(events) <= set(yard.events):
        assert process.poll() is None and time.monotonic() < limit, (yard.events, process.returncode)
        time.sleep(0.05)


HUNG = ("start 2.6.0", "start 2.13.0")


def hang(yard: Yard) -> None:
    yard.tell("2.6.0", "hang", "built")
    yard.tell("2.13.0", "hang", "built")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_its_builds_and_goes_on(worked, number):
    hang(worked)
    with running("--images", IMAGES, "--jobs", "3", "--json") as process:
        wait_for(worked, process, *HUNG, "end 2.21.0")
        time.sleep(0.5)  # until it has seen that the third line is built
        os.killpg(process.pid, number)  # as a terminal does it: the builds have groups of their own
        out, err = process.communicate(timeout=60)
    assert process.returncode == 5, err
    (run,) = runs()
    failure = json.loads(out)
    assert failure["message"] == "interrupted: 1 of 3 lines are built; no other has a tag"
    assert failure["remedy"] == f"./invoke build --resume {run}"
    assert {"told 2.6.0", "told 2.13.0"} <= set(worked.events)
    left = {unit.name: unit.state for unit in find(run).units() if unit.kind == "line"}
    assert left == {CPU: "pending", CUDA: "pending", TENSORFLOW: "built"}
    assert json.loads((find(run).path / "summary.json").read_text())["outcome"] == "interrupted"
    document = build("--resume", run)
    assert set(states(document).values()) == {"built"}
    assert worked.events.count("start 2.21.0") == 1


def test_a_killed_run_goes_on_and_what_it_left_running_is_ended(worked):
    hang(worked)
    with running("--images", IMAGES, "--jobs", "3") as process:
        wait_for(worked, process, *HUNG, "end 2.21.0")
        time.sleep(0.5)
        (run,) = runs()
        refused = build("--resume", run, code=2)
        assert f"process {process.pid} works on this run" in refused["message"]
        process.kill()
        process.wait(20)
    left = [unit for unit in find(run).units() if unit.state == "running"]
    assert sorted(unit.name for unit in left) == [CPU, CUDA]
    assert all(lives(unit.process) for unit in left)
    document = build("--resume", run)
    assert set(states(document).values()) == {"built"}
    assert not any(lives(unit.process) for unit in left)
    assert {"told 2.6.0", "told 2.13.0"} <= set(worked.events)
    assert worked.events.count("start 2.21.0") == 1


def test_a_build_is_a_process_of_this_program_wherever_it_is_called(tmp_path):
    (tmp_path / "trainwright").mkdir()  # not ours
    for name in ("trainwright/__init__.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit(99)")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    argv = [*build_images.program(), "build", "--framework", "pytorh"]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "pytorh" in done.stderr


REPOSITORY = "111111111111.dkr.ecr.us-west-2.amazonaws.com/team/training"
PLACE = PushPlace("111111111111", "us-west-2", "team/training")
ADVANCE = f"./invoke tags advance {CUDA} {CPU} {TENSORFLOW} --repository {REPOSITORY}"


class Registry:
    """In place of what moves the tags: notes for what it is asked, and what had been built by then."""

    def __init__(self, yard: Yard) -> None:
        self.yard, self.refusal = yard, ""
        self.asked: list[Any] = []
        self.built: list[str] = []

    def advance(self, places: Any, *_: object, **__: object) -> TagsDocument:
        self.asked.append([(place, [image.name for image in images]) for place, images in places])
        self.built = sorted(event.partition(" ")[2] for event in self.yard.events if event.startswith("end "))
        if self.refusal:
            raise RegistryRefused(self.refusal, remedy="push it")
        row = TagRow(
            tag="one",
            account=PLACE.account,
            region=PLACE.region,
            repository=PLACE.repository,
            digest="sha256:1",
            belongs="sha256:1",
            version="2.6.0",
            built=None,
            held="",
            state="moved",
            history=(),
        )
        rows = (row, row.replace(tag="two", held="held: loss diverges", state="kept"))
        return TagsDocument(schema="trainwright/tags/1", tags=rows)


@pytest.fixture
def registry(worked: Yard, monkeypatch: pytest.MonkeyPatch) -> Registry:
    made = Registry(worked)
    monkeypatch.setattr("trainwright.fresh.advance.advance", made.advance)
    return made


def of_lines(yard: Yard) -> list[list[str]]:
    return [argv for argv in commands(yard) if "--stages" not in argv]


def test_the_tags_of_a_green_set_move_once_and_at_the_end(worked, registry):
    document = build("--images", IMAGES, "--jobs", "3", "--push", REPOSITORY)
    assert registry.asked == [[(PLACE, [CUDA, CPU, TENSORFLOW])]]
    assert set(VERSIONS.values()) <= set(registry.built)
    assert [argv.count("--leave-tags") for argv in of_lines(worked)] == [1, 1, 1]
    assert not any({"--leave-tags", "--push"} & {*argv} for argv in commands(worked) if "--stages" in argv)
    moving = document["moving"]
    assert (moving["state"], [row["tag"] for row in moving["tags"]]) == ("moved", ["one", "two"])
    folder = Path(document["folder"])
    assert json.loads((folder / "summary.json").read_text()) == document
    assert "- 1 moved, 1 kept" in (folder / "summary.md").read_text()
    said = call("build", "--resume", document["run"]).stdout
    assert "tags    1 moved, 1 kept\ntags    two (us-west-2): held: loss diverges\n" in said
    assert "tags advance" not in said


def test_no_tag_of_a_set_moves_if_a_line_failed_and_all_do_when_it_is_resumed(worked, registry):
    worked.tell("2.21.0", "fail 8 source")
    done = call("build", "--images", IMAGES, "--keep-going", "--push", REPOSITORY)
    assert done.returncode == 8
    (run,) = runs()
    assert "tags    no moving tag of the set was moved" in done.stdout
    assert f"move    {ADVANCE}\nnext    ./invoke build --resume {run}" in done.stdout
    kept = json.loads((find(run).path / "summary.json").read_text())["moving"]
    assert (kept["state"], kept["command"]) == ("left", ADVANCE)
    assert f"`{ADVANCE}`" in (find(run).path / "summary.md").read_text()
    assert registry.asked == []
    document = build("--resume", run)
    assert registry.asked == [[(PLACE, [CUDA, CPU, TENSORFLOW])]]  # those of before, too
    assert document["moving"]["state"] == "moved"


def test_a_line_that_was_not_started_holds_the_tags_as_well(worked, registry):
    worked.tell("2.6.0", "fail 6 proof")
    document = build("--images", IMAGES, "--jobs", "1", "--push", REPOSITORY, code=6)
    assert (document["moving"]["state"], registry.asked) == ("left", [])


def test_tags_that_cannot_move_are_a_failure_of_the_run(worked, registry):
    registry.refusal = f"not every image is there\n  {CPU}: is not proven"
    document = build("--images", IMAGES, "--push", REPOSITORY, code=7)
    assert (document["outcome"], document["exit_code"]) == ("failed", 7)
    moving = document["moving"]
    assert (moving["state"], moving["command"], moving["error"]["error"]) == ("failed", ADVANCE, "registry")
    done = call("build", "--resume", document["run"])
    assert done.returncode == 7
    assert f"tags      {CPU}: is not proven\ntags    push it\nmove    {ADVANCE}" in done.stdout
    registry.refusal = ""
    assert build("--resume", document["run"])["moving"]["state"] == "moved"
    assert len(of_lines(worked)) == 3  # nothing was built again


def test_a_set_whose_tags_are_left_to_somebody_else(worked, registry):
    document = build("--images", IMAGES, "--push", REPOSITORY, "--leave-tags")
    assert (document["moving"]["state"], document["moving"]["command"]) == ("left", ADVANCE)
    assert build("--resume", document["run"])["moving"]["state"] == "left"
    assert registry.asked == []


def test_without_a_push_nothing_is_said_of_tags(worked, registry):
    document = build("--images", "tensorflow:cpu")
    assert (document["moving"], registry.asked) == (None, [])
    assert "--leave-tags" not in of_lines(worked)[0]


def test_stale_lines_move_their_tags_alone_also_when_resumed(worked, registry):
    worked.tell("2.6.0", "fail 6 proof")
    first = build("--images", IMAGES, "--stale", "--keep-going", "--push", REPOSITORY, code=6)
    second = build("--resume", first["run"], "--push", REPOSITORY)
    assert (first["moving"], second["moving"], registry.asked) == (None, None, [])
    assert set(states(second).values()) == {"built"}
    assert not any("--leave-tags" in argv or "--stale" in argv for argv in of_lines(worked))


def test_only_stale_lines_are_built(worked):
    images = {image.name: image for image in choose(IMAGES, load_catalog(), Site())}
    for number, name in enumerate((CPU, TENSORFLOW), 1):
        save(record_of(images[name].plan, f"sha256:{number:016x}{0:048x}"))
    assert states(build("--images", IMAGES, "--stale")) == {CUDA: "built"}
    save(record_of(images[CUDA].plan, f"sha256:{3:016x}{0:048x}"))
    assert states(build("--images", IMAGES, "--stale")) == {}
