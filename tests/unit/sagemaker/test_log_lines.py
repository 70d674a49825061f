"""Logs in the forms in which people have them, and of several hosts."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.in_process import call
from trainwright.core.errors import RequestError
from trainwright.sagemaker import log_lines
from trainwright.sagemaker.diagnosis import diagnose_files
from trainwright.sagemaker.log_lines import bare, blocks, host_of, rank_of, time_of

WRONG = "RuntimeError: CUDA error: out of memory"
STREAM = "bert/algo-2-1763800000"
EVENT = {"timestamp": 1763800000000, "message": WRONG, "ingestionTime": 1763800000001}

# The forms are those of the programs that write them: AWS CLI's `logs get-log-events`, `filter-log-events` and `tail`,
# the export to S3, Logs Insights, the console's CSV, a subscription's records, Docker's json-file, loggers.
FORMS = {
    "text": f"start\n{WRONG}\n",
    "CRLF": f"start\r\n{WRONG}\r\n",
    "no end": f"start\n{WRONG}",
    "get-log-events": json.dumps({"events": [EVENT], "nextForwardToken": "f/1"}, indent=4),
    "filter-log-events": json.dumps({"events": [{**EVENT, "logStreamName": STREAM}], "searchedLogStreams": []}),
    "tail": f"2026-11-21T10:00:00.123000+00:00 {STREAM} {WRONG}\n",
    "export": f"2026-11-21T10:00:00.123Z {WRONG}\n",
    "insights": json.dumps(
        {
            "results": [
                [{"field": "@timestamp", "value": "2026-11-21 10:00:00.123"}, {"field": "@message", "value": WRONG}]
            ]
        }
    ),
    "csv": f'timestamp,message\n1763800000000,"{WRONG}"\n',
    "insights csv": f'@timestamp,@message\n2026-11-21 10:00:00.123,"{WRONG}"\n',
    "subscription": json.dumps({"messageType": "DATA_MESSAGE", "logStream": STREAM, "logEvents": [EVENT]}),
    "json-file": "".join(
        json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-11-21T10:00:00Z"}) + "\n"
        for line in ("start", WRONG)
    ),
    "JSON lines": "".join(json.dumps({"level": "ERROR", "message": line}) + "\n" for line in ("start", WRONG)),
    "JSON lines, then text": json.dumps({"level": "INFO", "message": "start"}) + f"\n{WRONG}\n",
    "description": json.dumps({"TrainingJobName": "a", "FailureReason": f"AlgorithmError: x\n{WRONG}"}, indent=2),
    "a dict of Python": f"{{'loss': 1}}\n{WRONG}\n",
    "metrics as JSON": f'{{"loss": 1.5}}\n{WRONG}\n',
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("form", FORMS)
def test_the_cause_is_found_in_every_form(tmp_path, form, packed):
    log = tmp_path / "log"
    log.write_bytes(gzip.compress(FORMS[form].encode()) if packed else FORMS[form].encode())
    assert "gpu-memory" in [cause.id for cause in diagnose_files([str(log)]).causes]


def test_a_pipe_may_be_packed():
    made = b"".join(blocks(io.BytesIO(gzip.compress(FORMS["JSON lines"].encode())), "-"))
    assert made == f"start\n{WRONG}\n".encode()


def test_events_keep_their_time_and_stream():
    made = b"".join(blocks(io.BytesIO(FORMS["filter-log-events"].encode()), "-")).decode()
    assert made == f"2025-11-22T08:26:40.000+00:00 {STREAM} {WRONG}\n"
    assert bare(made.strip()) == WRONG
    assert host_of(made) == "algo-2"


@pytest.mark.parametrize(
    ("line", "rank", "host"),
    [
        ("[1,mpirank:3,algo-1]<stderr>:boom", 3, "algo-1"),
        ("[1,12]<stdout>:boom", 12, None),
        ("[rank7]: boom", 7, None),
        ("[rank12]: boom", 12, None),
        ("[rank7]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 7] boom", 7, None),
        ("[default2]:boom", 2, None),
        ("[E ProcessGroupNCCL.cpp:458] [Rank 5] boom", 5, None),
        ("algo-2-x7y2z  | boom", None, "algo-2"),
        ("boom at rank", None, None),
    ],
)
def test_what_a_line_says_of_its_process(line, rank, host):
    assert (rank_of(line), host_of(line)) == (rank, host)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("2026-11-21T10:00:00.123Z a", "2026-11-21 10:00:00,124 b"),
        ("2026-11-21T10:00:00Z a", "2026-11-21 10:00:00.5 b"),
        ("x | 2026-11-20 23:59:59 a", "2026-11-21T00:00:00 b"),
    ],
)
def test_times_of_all_forms_can_be_compared(earlier, later):
    assert time_of(earlier) < time_of(later)


def logs_of(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name.replace('_', '-')}.log").write_text(text)
    return folder


def test_of_many_ranks_the_one_that_died_first_is_named(tmp_path):
    """Three hosts: two lose their connection and then run into a time-out, the third had run out of memory."""
    lost = "2026-11-21 10:00:05 [rank{}]:NCCL WARN socketProgress: Connection closed by remote peer algo-3<1>\n"
    timeout = "2026-11-21 10:30:05 [rank{}]:Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)\n"
    logs_of(
        tmp_path,
        algo_1=lost.format(0) + timeout.format(0),
        algo_2=lost.format(8) + timeout.format(8),
        algo_3="2026-11-21 10:00:04 [rank17]:RuntimeError: CUDA error: out of memory\n",
    )
    found = diagnose_files([str(tmp_path)])
    assert [cause.id for cause in found.causes] == ["gpu-memory", "collective-timeout", "peer-gone"]
    assert found.first == "rank 17 on algo-3"
    assert found.causes[1].count == 2
    assert [line.log for line in found.causes[1].evidence] == ["algo-1.log", "algo-2.log"]
    assert "algo-3.log:1: " in call("diagnose", str(tmp_path)).stdout


def test_among_equal_causes_the_earliest_of_all_hosts_comes_first(tmp_path):
    logs_of(
        tmp_path,
        algo_1="2026-11-21 10:00:05 ModuleNotFoundError: No module named 'apex'\n",
        algo_2="2026-11-21 10:00:04 OSError: [Errno 28] No space left on device\n",
    )
    assert [cause.id for cause in diagnose_files([str(tmp_path)]).causes] == ["disk-full", "no-module"]


# torch.distributed.elastic.multiprocessing.api, ChildFailedError.format_msg; ompi 4.1, help-orte-runtime.txt.
TORCHRUN = """
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2023-04-23_10:00:01
  host      : algo-1
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 82)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2023-04-23_10:00:00
  host      : algo-2
  rank      : 11 (local_rank: 3)
  exitcode  : -9 (pid: 83)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 83
"""
MPI = "mpirun noticed that process rank 7 with PID 0 on node algo-2 exited on signal 9 (Killed).\n"


@pytest.mark.parametrize(
    ("log", "first"),
    [
        (TORCHRUN, "rank 11 on algo-2, as torchrun reports"),
        (MPI, "rank 7 on algo-2, which exited on signal 9"),
        ("  Process name: [[31842,1],5]\n  Exit code:    1\n", "rank 5"),
        ("[rank4]:CUDA out of memory\n", "rank 4"),
        ("CUDA out of memory\n", None),
    ],
)
def test_what_the_launcher_says_of_the_first_failure_counts(tmp_path, log, first):
    (tmp_path / "log").write_text(log)
    assert diagnose_files([str(tmp_path / "log")]).first == first


def test_a_broken_archive_is_told(tmp_path):
    log = tmp_path / "log.gz"
    log.write_bytes(gzip.compress(b"x" * 100_000)[:-20])
    done = call("diagnose", str(log))
    assert done.returncode == 2
    assert "broken gzip archive" in done.stderr


def test_a_log_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(log_lines, "MOST_BYTES", 1000)
    with pytest.raises(RequestError, match="more than"):
        list(blocks(io.BytesIO(b"x\n" * 5000), "log"))


def test_an_empty_folder_is_refused(tmp_path):
    done = call("diagnose", str(tmp_path))
    assert done.returncode == 2
    assert "no files" in done.stderr


@given(st.binary(max_size=300))
def test_any_bytes_are_read(content):
    list(blocks(io.BytesIO(content), "log")) if content[:2] != b"\x1f\x8b" else None


def test_lines_that_are_cut_by_blocks_are_whole(monkeypatch):
    monkeypatch.setattr(log_lines, "BLOCK", 7)
    text = b"".join(b"line %d\n" % number for number in range(50)) + b"end"
    made = list(blocks(io.BytesIO(text), "log"))
    assert b"".join(made) == text
    assert all(block.endswith(b"\n") for block in made[:-1])
