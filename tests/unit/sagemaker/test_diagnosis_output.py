"""``diagnose``: what it reads, its document, and its findings in the formats of preflight."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from tests.support.in_process import call
from trainwright.sagemaker import diagnosis
from trainwright.sagemaker.causes import load_causes
from trainwright.sagemaker.diagnosis import DiagnosisDocument, diagnose
from trainwright.sagemaker.diagnosis_output import EXCEPTION, diagnosis_text

ROOT = Path(__file__).resolve().parents[3]


def check(found: object) -> None:
    schema = json.loads((ROOT / "trainwright" / "schemas" / "diagnosis.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(found)


def test_verb_reads_standard_input():
    """In a process of its own: a pipe, and plain ``invoke``, which finds tasks.py for itself."""
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "--search-root", str(ROOT), "diagnose", "-", "--json"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        input=b"\xff\xfe noise\nMissing XLA configuration\n",
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    found = json.loads(done.stdout)
    check(found)
    assert [c["id"] for c in found["causes"]] == ["xla-configuration"]


def test_verb_reads_a_file(tmp_path):
    log = tmp_path / "job.log"
    log.write_text("CUDA out of memory\n")
    done = call("diagnose", str(log))
    assert done.returncode == 0
    assert "gpu-memory" in done.stdout and "fix:" in done.stdout


def test_several_files_are_one_diagnosis_as_their_folder_is(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "algo-1.log").write_text("2026-11-21T10:00:09Z RuntimeError: CUDA out of memory.\n")
    (logs / "algo-2.log").write_text("2026-11-21T10:00:01Z RuntimeError: CUDA out of memory.\n")
    found = json.loads(call("diagnose", "logs/algo-2.log", "logs/algo-1.log", "--json", cwd=tmp_path).stdout)
    folder = json.loads(call("diagnose", "logs", "--json", cwd=tmp_path).stdout)
    assert found == folder
    assert [(each["log"], each["line"]) for each in found["causes"][0]["evidence"]] == [
        ("algo-2.log", 1),
        ("algo-1.log", 1),
    ]
    done = call("diagnose", "logs/algo-1.log", str(logs / "algo-2.log"), "--format", "github", cwd=tmp_path)
    assert f"file={logs}/algo-2.log,line=1::" in done.stdout
    done = call("diagnose", "logs/algo-1.log", "logs/algo-1.log", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["causes"][0]["count"] == 1


def test_a_pipe_is_read(tmp_path):
    """As a process substitution is: /dev/fd/63."""
    reader, writer = os.pipe()
    os.write(writer, b"RuntimeError: CUDA out of memory.\n")
    os.close(writer)
    try:
        done = call("diagnose", f"/dev/fd/{reader}")
    finally:
        os.close(reader)
    assert done.returncode == 0
    assert "gpu-memory" in done.stdout


@pytest.mark.parametrize(("lines", "said"), [(4, "… and 1 more line"), (5, "… and 2 more lines")])
def test_lines_that_are_not_shown_are_counted(lines, said):
    assert f"   {said}" in diagnosis_text(diagnose(["CUDA out of memory"] * lines)).splitlines()


@pytest.mark.parametrize("content", [None, ""])
def test_no_log_is_refused(tmp_path, content):
    log = tmp_path / "job.log"
    if content is not None:
        log.write_text(content)
    done = call("diagnose", str(log), "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"] == "request"


def test_the_document_is_what_is_printed():
    found = diagnose(["CUDA out of memory"])
    assert DiagnosisDocument(**found.as_json()) == found
    assert found.schema == diagnosis.SCHEMA


def test_causes_are_findings_in_the_formats_of_preflight(tmp_path):
    text = "step 1\nRuntimeError: CUDA out of memory.\nExecuteUserScriptError:\n"
    (tmp_path / "algo-1.log").write_text(text)
    (tmp_path / "algo-2.log").write_text("fine\n")
    done = call("diagnose", "algo-1.log", "--format", "sarif", cwd=tmp_path)
    (log,) = json.loads(done.stdout)["runs"]
    first = log["results"][0]
    assert (first["ruleId"], first["level"]) == ("gpu-memory", "error")
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "algo-1.log"},
        "region": {"startLine": 2},
    }
    done = call("diagnose", ".", "--format", "github", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("::error title=gpu-memory,file=./algo-1.log,line=2::")
    assert lines[-1].startswith("diagnose: 1 error, 0 warnings, ")
    done = call("diagnose", "algo-1.log", "--format", "github", "--json", cwd=tmp_path)
    assert done.returncode == 2


# Tracebacks as Python writes them (traceback, "Traceback (most recent call last):"), of a cause that nobody has listed.
UNKNOWN = """\
step 1
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 12, in <module>
    main()
  File "/opt/ml/code/train.py", line 7, in main
    raise Oddity("seven, 50%: odd")
__main__.Oddity: seven, 50%: odd
"""
HANDLED = UNKNOWN.replace("<module>", "attempt")


@pytest.mark.parametrize(("text", "level", "command"), [(UNKNOWN, "error", "error"), (HANDLED, "warning", "warning")])
def test_an_exception_without_a_known_cause_is_a_finding(tmp_path, text, level, command):
    (tmp_path / "algo-1.log").write_text("fine\n")
    (tmp_path / "algo-2.log").write_text(text)
    done = call("diagnose", ".", "--format", "sarif", cwd=tmp_path)
    (log,) = json.loads(done.stdout)["runs"]
    (result,) = log["results"]
    assert (result["ruleId"], result["level"]) == ("unhandled-exception", level)
    assert log["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "unhandled-exception"
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "./algo-2.log"},
        "region": {"startLine": 2},
    }
    said = result["message"]["text"].splitlines()[0]
    assert "Oddity: seven, 50%: odd" in said
    assert said.endswith("in /opt/ml/code/train.py:7 in main")
    done = call("diagnose", ".", "--format", "github", cwd=tmp_path)
    assert done.stdout.startswith(f"::{command} title=unhandled-exception,file=./algo-2.log,line=2::")
    assert "50%25: odd" in done.stdout


def test_a_known_cause_goes_before_the_exception(tmp_path):
    (tmp_path / "job.log").write_text(UNKNOWN + "RuntimeError: CUDA out of memory.\n")
    done = call("diagnose", "job.log", "--format", "sarif", cwd=tmp_path)
    (log,) = json.loads(done.stdout)["runs"]
    assert "unhandled-exception" not in {each["ruleId"] for each in log["results"]}
    (tmp_path / "fine.log").write_text("fine\n")
    done = call("diagnose", "fine.log", "--format", "sarif", cwd=tmp_path)
    assert json.loads(done.stdout)["runs"][0]["results"] == []


def test_the_code_of_an_exception_is_that_of_no_cause():
    assert EXCEPTION.code not in {cause.id for cause in load_causes()}
