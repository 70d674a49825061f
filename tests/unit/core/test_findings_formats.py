"""Findings as SARIF and as GitHub's annotations, held against the formats' own sources.

``SARIF`` is the part of the published schema that our logs use, its property names, required keys and enumerations:
oasis-tcs/sarif-spec, ``sarif-2.1/schema/sarif-schema-2.1.0.json``, commit a560296ca8c921f3bdb8d4a8db57ab83dae968a7
(112 kB). Logs of preflight were also validated against the whole file, by hand.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.in_process import call
from tests.support.training_scripts import write
from trainwright.core.findings import FindingsDocument, Rule, Unread, document
from trainwright.core.findings_formats import github, sarif

LEVEL = {"enum": ["none", "note", "warning", "error"]}
URI = {"type": "string", "pattern": "^[!-~]+$"}


def record(*required: str, **properties: Any) -> dict[str, Any]:
    """A closed object, as all of SARIF's are."""
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def rows(item: Any) -> dict[str, Any]:
    return {"type": "array", "items": item}


TEXT = {"type": "string"}
MESSAGE = record("text", text=TEXT)
LOCATION = record(
    physicalLocation=record(
        "artifactLocation",
        artifactLocation=record(uri=URI),
        region=record("startLine", startLine={"type": "integer", "minimum": 1}),
    )
)
DESCRIPTOR = record(
    "id",
    id=TEXT,
    shortDescription=MESSAGE,
    fullDescription=MESSAGE,
    help=MESSAGE,
    defaultConfiguration=record(level=LEVEL),
)
RESULT = record(
    "message",
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    level=LEVEL,
    message=MESSAGE,
    locations=rows(LOCATION),
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
)
NOTIFICATION = record("message", level=LEVEL, message=MESSAGE, locations=rows(LOCATION))
RUN = record(
    "tool",
    tool=record("driver", driver=record("name", name=TEXT, version=TEXT, rules=rows(DESCRIPTOR))),
    invocations=rows(
        record(
            "executionSuccessful",
            executionSuccessful={"type": "boolean"},
            toolExecutionNotifications=rows(NOTIFICATION),
        )
    ),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    results=rows(RESULT),
)
SARIF = record("version", "runs", **{"$schema": URI, "version": {"enum": ["2.1.0"]}, "runs": rows(RUN)})

RULES = {
    code: Rule(code=code, severity="warning", title=f"title of {code}", source="somewhere", remedy="do this")
    for code in ("TW100", "TW101", "TW102")
}


def findings(*rows: tuple[str, str, int | None, str], unread: tuple[Unread, ...] = ()) -> FindingsDocument:
    """A document with findings: code, path, line, message."""
    made = [RULES[code].finding(message, path=path, line=line) for code, path, line, message in rows]
    return document("a.py", ["a.py"], {}, made, unread=unread)


def prints(*rows: tuple[str, str, int | None, str]) -> list[str]:
    return [
        each["partialFingerprints"]["trainwright/v1"] for each in sarif(findings(*rows), RULES)["runs"][0]["results"]
    ]


# ---- SARIF -----------------------------------------------------------------------------------------------------------


def test_a_log_has_the_published_structure():
    gone = Unread(path="b.py", reason="b.py: cannot be read")
    log = sarif(findings(("TW102", "a.py", 3, "m"), ("TW100", "a b/ü%.py", None, "n"), unread=(gone,)), RULES)
    jsonschema.Draft4Validator(SARIF).validate(log)
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["TW100", "TW102"]
    assert [run["tool"]["driver"]["rules"][each["ruleIndex"]]["id"] for each in run["results"]] == ["TW102", "TW100"]
    places = [each["locations"][0]["physicalLocation"] for each in run["results"]]
    assert places[0] == {"artifactLocation": {"uri": "a.py"}, "region": {"startLine": 3}}
    assert places[1]["artifactLocation"]["uri"] == "a%20b/%C3%BC%25.py"  # RFC 3986, in UTF-8
    assert run["invocations"][0]["executionSuccessful"] is False


def test_the_structure_refuses_what_the_schema_refuses():
    log = sarif(findings(("TW102", "a.py", 3, "m")), RULES)
    for path, value in ((("version",), "2.0.0"), (("runs", 0, "results", 0, "level"), "notice"), (("runs", 0, "x"), 1)):
        wrong = copy.deepcopy(log)
        inner: Any = wrong
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
        assert not jsonschema.Draft4Validator(SARIF).is_valid(wrong)


def test_an_absolute_path_is_a_file_uri():
    (run,) = sarif(findings(("TW100", "/a b/c.py", 1, "m")), RULES)["runs"]
    assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///a%20b/c.py"


def test_fingerprints_stay_when_lines_move():
    before = prints(("TW100", "a.py", 3, "after line 2"), ("TW100", "a.py", 9, "after line 2"))
    after = prints(("TW100", "a.py", 5, "after line 4"), ("TW100", "a.py", 11, "after line 8"))
    assert before == after and len(set(before)) == 2
    assert len({*before, *prints(("TW101", "a.py", 3, "after line 2"), ("TW100", "b.py", 3, "after line 2"))}) == 4


# ---- GitHub ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "line"),
    [
        # actions/toolkit, packages/core/__tests__/command.test.ts: % \r \n in data; : and , in properties as well
        (("TW100", "a.py", 3, "50% of a:b,c\r\n"), "title=TW100,file=a.py,line=3::50%25 of a:b,c%0D%0A%0AFix: do this"),
        (("TW100", "C:\\a,b%.py", None, "m"), "title=TW100,file=C%3A\\a%2Cb%25.py::m%0AFix: do this"),
    ],
)
def test_annotations_are_escaped_as_githubs_own(row, line):
    assert github(findings(row), "preflight").splitlines() == [
        f"::warning {line}",
        "preflight: 0 errors, 1 warning, 0 notes",
    ]


def test_severities_and_unread_files():
    made = document(
        "a.py",
        ["a.py"],
        {},
        [RULES["TW100"].finding("m", path="a.py", severity=kind) for kind in ("error", "warning", "note")],
        unread=(Unread(path="b.py", reason="why"),),
    )
    commands = [line.split(" ")[0] for line in github(made, "preflight").splitlines()[:-1]]
    assert commands == ["::error", "::warning", "::notice", "::error"]


# ---- the verb --------------------------------------------------------------------------------------------------------


def test_formats_of_the_verb(tmp_path):
    write(tmp_path, train="import os\nos.environ['N'] = 4\n")
    made = {kind: call("preflight", "train.py", "--format", kind, cwd=tmp_path) for kind in ("json", "sarif", "github")}
    assert {done.returncode for done in made.values()} == {1}
    assert json.loads(made["json"].stdout)["schema"] == "trainwright/findings/1"
    log = json.loads(made["sarif"].stdout)
    jsonschema.Draft4Validator(SARIF).validate(log)
    assert log["runs"][0]["tool"]["driver"]["rules"][0]["id"] == "TW160"
    assert made["github"].stdout.startswith("::error title=TW160,file=train.py,line=2::")


@pytest.mark.parametrize("words", [["--format", "sraif"], ["--format", "sarif", "--json"]])
def test_an_unknown_format_is_refused(tmp_path, words):
    write(tmp_path, train="")
    done = call("preflight", "train.py", *words, cwd=tmp_path)
    assert done.returncode == 2 and "sarif" in done.stderr


def test_a_hostile_name_is_no_command(tmp_path):
    (tmp_path / "a::error::b.py").write_text("x = 1\n")
    done = call("preflight", "a::error::b.py", "--format", "github", cwd=tmp_path)
    assert done.stdout == "preflight: 0 errors, 0 warnings, 0 notes\n"


def test_the_pattern_for_editors_reads_the_text(tmp_path):
    """docs/preflight.md: the problem matcher of VS Code (microsoft/vscode, problemMatcher.ts, knows ``note``)."""
    import re

    page = (Path(__file__).resolve().parents[3] / "docs" / "preflight.md").read_text()
    matcher = json.loads(re.search(r"```json\n(.*?)```", page, re.S)[1])["problemMatcher"]["pattern"]
    write(tmp_path, train="import os\nos.environ['N'] = 4\nimport torch\ntorch.save(state, 'model.pt')\n")
    rows = call("preflight", "train.py", cwd=tmp_path).stdout.splitlines()
    found = [match for row in rows if (match := re.search(matcher["regexp"], row))]
    read = [tuple(match[matcher[key]] for key in ("file", "line", "severity", "code")) for match in found]
    assert read == [("train.py", "2", "error", "TW160"), ("train.py", "4", "warning", "TW142")]
