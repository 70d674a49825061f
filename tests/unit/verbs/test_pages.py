"""What README and docs show after ``$ ``, line by line, and what holds for every verb: JSON, and Ctrl-C."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import jsonschema
import pytest

from devtools.transcripts import PAGES as TRANSCRIPTS
from devtools.transcripts import SHOWN
from tests.support.in_process import call
from trainwright.cli.flags import Verb
from trainwright.verbs.find import NAMES, find

ROOT = Path(__file__).resolve().parents[3]
PAGES = {str(page.relative_to(ROOT)): page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))}
# A command line, continued by a backslash or not, and what it printed.
BLOCK = re.compile(r"^    \$ (?P<line>(?:.*\\\n)*.*)\n(?P<said>(?:(?!    \$)(?:    .*)?\n)*)", re.MULTILINE)

JOB = """\
image: 123456789012.dkr.ecr.us-west-2.amazonaws.com/team/pytorch:1
plan: {framework: pytorch, cuda: cu113, version: 1.10.2}
entry_point: train.py
instance_type: ml.p4d.24xlarge
instance_count: 2
role: arn:aws:iam::123456789012:role/training
distribution: {mpi: {enabled: true, KEY}}
"""
# Files that a line reads.
GIVEN: dict[str, dict[str, str]] = {
    "./invoke estimator --job job.yaml --sdk 2 > start.py": {"job.yaml": JOB.replace("KEY", "processes_per_host: 16")},
}
# Lines that need an engine, and the test that compares what they print with the page.
ELSEWHERE = dict.fromkeys(
    (
        "./invoke build --framework pytorch --cuda cpu",
        "./invoke smoke --image trainwright/pytorch:2.13.0-cpu-py311-debian12",
        "./invoke smoke --verbose",
        "./invoke rehearse --image trainwright/pytorch:2.13.0-cpu-py311-debian12",
    ),
    "tests/e2e/test_tutorial.py",
)


def shown() -> Iterator[tuple[str, str, str]]:
    """Page, command line and what it shows, of every block that ``generate`` does not make."""
    for name, page in PAGES.items():
        made = {f"./invoke {match[1]}" for match in SHOWN.finditer(page)} if name in TRANSCRIPTS else set()
        for match in BLOCK.finditer(page):
            if match["line"] not in made:
                yield name, match["line"], match["said"]


def test_every_line_that_is_shown_is_run_somewhere() -> None:
    lines = [line for _, line, _ in shown()]
    assert len(lines) >= len(GIVEN)
    strange = [line for line in lines if line not in GIVEN and not line.startswith(tuple(ELSEWHERE))]
    assert strange == []
    assert set(GIVEN) <= set(lines)
    gone = [line for line in ELSEWHERE if not any(each.startswith(line) for each in lines)]
    assert gone == []
    assert all((ROOT / test).is_file() for test in ELSEWHERE.values())


@pytest.mark.parametrize(("page", "line", "said"), [row for row in shown() if row[1] in GIVEN])
def test_it_prints_what_the_page_shows(tmp_path: Path, page: str, line: str, said: str) -> None:
    (tmp_path / "train.py").write_text("")
    for name, text in GIVEN[line].items():
        (tmp_path / name).write_text(text)
    words = line.partition(" > ")[0].replace("'", "").split()[1:]
    done = call(*words, cwd=tmp_path, TRAINWRIGHT_STATE=str(tmp_path / "state"), COLUMNS="120")
    printed = [each.rstrip() for each in (done.stdout + done.stderr).splitlines()]
    wanted = [each.removeprefix("    ").rstrip() for each in said.rstrip().splitlines() if each.strip() != "…"]
    assert wanted
    at = 0
    for each in wanted:
        assert each in printed[at:], (page, each, done.stdout + done.stderr)
        at += printed[at:].index(each) + 1


def verb_of(name: str) -> Verb[Any]:
    found = find(name)
    assert found is not None
    return found


WITH_JSON = [name for name in NAMES if "json_" in verb_of(name).record.__struct_fields__]


def test_all_verbs_that_read_or_build_have_json() -> None:
    """The tour: “`--json` on every verb that reads or builds”. The others write files, scripts, or run a container."""
    assert set(NAMES) - set(WITH_JSON) == {"init", "shell", "run", "completion"}


@pytest.mark.parametrize("name", WITH_JSON)
def test_a_failure_of_every_verb_is_one_document(tmp_path: Path, name: str) -> None:
    schema = json.loads((ROOT / "trainwright/schemas/failure.schema.json").read_text())
    done = call(name, "--json", "--nonsense", cwd=tmp_path, TRAINWRIGHT_STATE=str(tmp_path / "state"))
    assert done.returncode == 2
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema)
    assert (document["error"], document["exit_code"]) == ("request", 2)
    assert "--nonsense" in document["message"]


REQUEST = ("--framework", "pytorch", "--cuda", "cpu")
# A valid line of each verb; what an engine or AWS would do comes after the moment at which these are interrupted.
LINES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("plan", "explain", "render", "lock", "build"), REQUEST),
    **dict.fromkeys(("list", "doctor", "pipeline", "sources"), ()),
    "init": ("pytorch:cpu",),
    "prove": ("pytorch/cpu",),
    "shell": ("--image", "a:1"),
    "run": ("--image", "a:1", "--", "true"),
    "completion": ("bash",),
    "mirror": ("pull", "--lock", "a.lock.json", "--to", "mirror"),
    "smoke": ("--image", "a:1"),
    "rehearse": ("--image", "a:1", "--entry-point", "train.py"),
    "push": ("--image", "a:1", "--repository", "a"),
    "promote": (
        f"123456789012.dkr.ecr.us-west-2.amazonaws.com/a@sha256:{'0' * 64}",
        *("--to", "123456789012/eu-west-1/a"),
    ),
    **dict.fromkeys(
        ("sign", "verify"),
        (f"123456789012.dkr.ecr.us-west-2.amazonaws.com/aa@sha256:{'0' * 64}", "--key", "awskms:///alias/a"),
    ),
    "tags": ("list", "--repository", "a"),
    "gc": ("--repository", "a"),
    "fresh": ("pytorch:cpu", "--offline"),
    "scan": ("pytorch/cpu", "--database", "."),
    "estimator": ("--job", "job.yaml"),
    "preflight": ("train.py",),
    "diagnose": ("job.log",),
    "report": ("--lines",),
    "diff": ("pytorch:cu124", "pytorch:cu126"),
}


@pytest.mark.parametrize("after", [1, 12])
@pytest.mark.parametrize("name", NAMES)
def test_ctrl_c_ends_every_verb_with_130_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: int
) -> None:
    """As if SIGINT had arrived in the ``after``-th function that the verb calls."""
    after = min(after, 8) if name == "completion" else after  # it calls no more
    work = tmp_path / "work"
    work.mkdir()
    files = {"train.py": "print()\n", "job.log": "Error\n", "job.yaml": JOB.replace("KEY", "processes_per_host: 8")}
    for file, text in files.items():
        (work / file).write_text(text)
    begin, calls = Verb.run, [0]

    def press(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "/trainwright/" in frame.f_code.co_filename:
            calls[0] += 1
            if calls[0] == after:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def run(*words: Any) -> None:
        sys.setprofile(press)
        try:
            begin(*words)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(Verb, "run", run)
    done = call(name, *LINES[name], cwd=work, TRAINWRIGHT_STATE=str(tmp_path / "state"))
    assert calls[0] == after, done.stderr
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines()[-1] == "interrupted"
    assert {path.name for path in work.iterdir()} == set(files)
