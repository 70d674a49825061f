"""A baseline: known findings do not count, new ones do, and those that are gone are named."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.support.in_process import call
from tests.support.training_scripts import write

ROOT = Path(__file__).resolve().parents[3]
WRONG = "import os\nos.environ['N'] = 4\n"
BASE = ("--baseline", "known.json")


@pytest.fixture
def place(tmp_path):
    """A folder with a script and its baseline."""
    write(tmp_path, train=WRONG)
    done = call("preflight", "train.py", *BASE, "--write-baseline", cwd=tmp_path)
    assert done.returncode == 0 and "0 errors, 0 warnings, 0 notes, 1 known" in done.stdout
    return tmp_path


def entries(place: Path) -> list[tuple[str, str, int]]:
    known = json.loads((place / "known.json").read_text())
    schema = json.loads((ROOT / "trainwright" / "schemas" / "baseline.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(known)
    return [(each["code"], each["path"], each["count"]) for each in known["findings"]]


def test_what_is_known_does_not_count(place):
    assert entries(place) == [("TW160", "train.py", 1)]
    done = call("preflight", "train.py", *BASE, "--json", cwd=place)
    told = json.loads(done.stdout)
    assert (done.returncode, told["errors"], told["findings"], told["gone"]) == (0, 0, [], [])
    assert [each["code"] for each in told["known"]] == ["TW160"]
    assert call("preflight", "train.py", cwd=place).returncode == 1


def test_a_known_finding_may_move(place):
    write(place, train=f"# a comment\n\n{WRONG}")
    assert call("preflight", "train.py", *BASE, cwd=place).returncode == 0


@pytest.mark.parametrize("more", ["os.environ['N'] = 4\n", "os.environ['M'] = 5\n"])
def test_one_more_is_new(place, more):
    write(place, train=WRONG + more)
    done = call("preflight", "train.py", *BASE, "--format", "github", cwd=place)
    assert done.returncode == 1
    assert [line.partition("::")[2][:40] for line in done.stdout.splitlines()[:-1]] == [
        "error title=TW160,file=train.py,line=3::"
    ]


def test_what_is_gone_is_named_and_dropped(place):
    write(place, train="")
    done = call("preflight", "train.py", *BASE, cwd=place)
    assert done.returncode == 0 and "train.py: no longer there: TW160" in done.stdout
    call("preflight", "train.py", *BASE, "--write-baseline", cwd=place)
    assert entries(place) == []


def test_of_files_that_were_not_checked_nothing_is_gone(place):
    write(place, other=WRONG)
    done = call("preflight", "other.py", *BASE, "--write-baseline", cwd=place)
    assert "no longer there" not in done.stdout
    assert entries(place) == [("TW160", "other.py", 1), ("TW160", "train.py", 1)]
    (place / "train.py").unlink()
    assert "train.py: no longer there" in call("preflight", "other.py", *BASE, cwd=place).stdout


def test_another_file_is_never_replaced(place):
    (place / "mine.json").write_text('{"mine": 1}')
    done = call("preflight", "train.py", "--baseline", "mine.json", "--write-baseline", cwd=place)
    assert done.returncode == 2
    assert (place / "mine.json").read_text() == '{"mine": 1}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "--write-baseline"),
        ("{}", "schema"),
        (
            '{"schema": "trainwright/baseline/1", "findings": [{"code": "TW160", "path": "a", "massage": "b"}]}',
            "message",
        ),
        ("[", "JSON"),
    ],
)
def test_a_baseline_that_is_none_is_refused(place, text, says):
    if text is not None:
        (place / "other.json").write_text(text)
    done = call("preflight", "train.py", "--baseline", "other.json", cwd=place)
    assert done.returncode == 2 and says in done.stderr


def test_writing_needs_the_name_of_the_file(place):
    done = call("preflight", "train.py", "--write-baseline", cwd=place)
    assert done.returncode == 2 and "--baseline FILE" in done.stderr
