"""The first exception of a job: in every form in which jobs print one, and never a guess."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.data_files import read_yaml
from trainwright.sagemaker import exceptions
from trainwright.sagemaker.diagnosis import diagnose, diagnose_logs
from trainwright.sagemaker.diagnosis_output import diagnosis_text
from trainwright.sagemaker.log_lines import Log

PUBLIC = read_yaml(Path(__file__).with_name("tracebacks.yaml"))


def of(text):
    return diagnose(text.splitlines()).exception


def as_list(frame):
    return [frame.path, frame.line, frame.function] if frame else None


@pytest.mark.parametrize("known", PUBLIC, ids=lambda known: known["source"])
def test_what_a_public_traceback_says(known):
    found = of(known["text"])
    if known["says"] is None:
        assert found is None
        return
    for name, value in known["says"].items():
        assert getattr(found, name) == value
    assert as_list(found.frame) == known.get("frame")
    assert as_list(found.raised_in) == known.get("raised_in") or "frame" not in known
    assert [[each.type, each.how] for each in found.earlier] == known.get("earlier", [])


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("known", PUBLIC, ids=lambda known: known["source"])
def test_colours_change_nothing(known, times):
    """Lines with colours are read one by one, the frames of others at once, and what comes again is only counted."""
    text = f"{known['text']}\nstep\n" * times
    assert of("\n".join(f"{line}\x1b[0m" for line in text.splitlines())) == of(text)


PLAIN = """\
Traceback (most recent call last):
  File "/opt/ml/code/train.py", line 9, in <module>
    main()
  File "/opt/ml/code/train.py", line 5, in main
    model(batch)
  File "/opt/conda/lib/python3.10/site-packages/torch/nn/modules/linear.py", line 114, in forward
    return F.linear(input, self.weight, self.bias)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x10 and 12x4)
"""


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("", None),
        ("[rank3]: ", 3),
        ("[default3]:", 3),
        ("[1,3]<stderr>:", 3),
        ("[1,mpirank:3,algo-1]<stderr>:", 3),
        ("[3]<stderr>:", 3),
        ("Fri Sep 25 16:52:57 2020[3]<stderr>:", 3),
        ("2026-11-21T10:00:00.123Z ", None),
        ("2026-11-21T10:00:00.123Z [1,3]<stderr>:", 3),
        ("algo-1-x7y2z  | ", None),
    ],
)
def test_the_prefix_of_a_launcher_is_no_part_of_it(prefix, rank):
    found = of("".join(prefix + line for line in PLAIN.splitlines(keepends=True)))
    assert (found.type, found.rank, found.unhandled) == ("RuntimeError", rank, True)
    assert found.message == "mat1 and mat2 shapes cannot be multiplied (8x10 and 12x4)"
    assert as_list(found.frame) == ["/opt/ml/code/train.py", 5, "main"]
    assert found.raised_in.path.endswith("linear.py")


def raised(code):
    """What Python itself prints of an exception."""
    try:
        exec(compile(code, "/opt/ml/code/train.py", "exec"), {})
    except BaseException as error:
        error.__traceback__ = error.__traceback__.tb_next
        return "".join(traceback.format_exception(error))
    raise AssertionError


CHAINED = """
def load():
    try:
        open("/nowhere/data.json")
    except OSError as error:
        raise RuntimeError("no data"){how}
load()
"""


@pytest.mark.parametrize(("how", "name"), [(" from error", "cause"), ("", "context")])
def test_a_chain_names_what_came_first(how, name):
    found = of(raised(CHAINED.replace("{how}", how)))
    assert (found.type, found.message, found.line) == ("RuntimeError", "no data", 1)
    assert as_list(found.frame) == ["/opt/ml/code/train.py", 6, "load"]
    (earlier,) = found.earlier
    assert (earlier.type, earlier.how, earlier.frame.line) == ("FileNotFoundError", name, 4)
    assert "/nowhere/data.json" in earlier.message


def test_a_group_names_its_members():
    code = """
def failed(error):
    try:
        raise error
    except Exception as same:
        return same
deep = ExceptionGroup("deep", [failed(KeyError("b"))])
raise ExceptionGroup("workers", [failed(ValueError("a")), deep, failed(OSError("c"))])
"""
    found = of(raised(code))
    assert (found.type, found.message) == ("ExceptionGroup", "workers (3 sub-exceptions)")
    said = [(each.type, each.message) for each in found.earlier]
    assert said == [
        ("ValueError", "a"),
        ("ExceptionGroup", "deep (1 sub-exception)"),
        ("KeyError", "'b'"),
        ("OSError", "c"),
    ]


def test_a_chain_in_front_of_a_group_and_what_follows_it():
    group = raised('raise ExceptionGroup("workers", [ValueError("a")])')
    found = of(f"{group}\nDuring handling of the above exception, another exception occurred:\n\n{PLAIN}")
    assert (found.type, found.line) == ("RuntimeError", 1)
    assert [(each.type, each.how) for each in found.earlier][-1] == ("ExceptionGroup", "context")


def test_of_several_ranks_the_first_one_counts():
    """Their lines are mixed, as several processes write into one log."""
    other = PLAIN.replace("RuntimeError", "ValueError").splitlines()
    mixed = [
        line
        for one, two in zip(PLAIN.splitlines(), other, strict=True)
        for line in (f"[rank5]: {two}", f"[rank3]: {one}")
    ]
    found = of("\n".join(mixed))
    assert (found.type, found.rank, found.line) == ("ValueError", 5, 1)


def test_of_several_logs_the_earliest_counts():
    late = "".join(f"2026-11-21T10:00:09Z {line}" for line in PLAIN.splitlines(keepends=True))
    early = late.replace("10:00:09", "10:00:02").replace("RuntimeError", "ValueError")
    found = diagnose_logs([Log("algo-1", [late.encode()]), Log("algo-2", [early.encode()])], "logs").exception
    assert (found.type, found.host, found.log, found.line) == ("ValueError", "algo-2", "algo-2", 1)


def test_mixed_lines_without_marks_show_the_exception():
    lines = PLAIN.splitlines()
    found = of("\n".join([lines[0], lines[0], *(line for each in lines[1:] for line in (each, each))]))
    assert (found.type, found.unhandled) == ("RuntimeError", True)


def test_an_exception_that_was_handled_does_not_hide_the_one_that_was_not():
    handled = """\
WARNING retrying
Traceback (most recent call last):
  File "/opt/ml/code/data.py", line 3, in fetch
    raise OSError("busy")
OSError: busy
"""
    found = of(f"{handled}step 1\n{PLAIN}")
    assert (found.type, found.line, found.unhandled) == ("RuntimeError", 7, True)
    assert not of(handled).unhandled


def test_the_last_exception_is_read_after_many_handled_ones(monkeypatch):
    monkeypatch.setattr(exceptions, "_MOST_LINES", 4_000)
    handled = 'Traceback (most recent call last):\n  File "/opt/ml/code/data.py", line 3, in fetch\nOSError: busy\n'
    found = of(f"{handled}step\n" * 1_500 + PLAIN)
    assert (found.type, found.line, found.unhandled) == ("RuntimeError", 6_001, True)


@pytest.mark.parametrize(("lines", "chained"), [(0, True), (50, True), (500, False)])
def test_what_other_processes_print_within_a_chain(lines, chained):
    first, link, second = raised(CHAINED.replace("{how}", "")).partition("\nDuring")
    found = of("".join([first, "\nstep" * lines, "\n", link, second]))
    assert [each.type for each in found.earlier] == ["FileNotFoundError"] * chained
    assert found.type == "RuntimeError" if chained else "FileNotFoundError"


def test_what_only_reports_a_failure_is_not_named():
    launcher = """\
Traceback (most recent call last):
  File "/opt/conda/bin/torchrun", line 33, in <module>
    sys.exit(load_entry_point('torch', 'console_scripts', 'torchrun')())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""
    assert of(launcher) is None
    assert of(f"{launcher}\n{PLAIN}").type == "RuntimeError"


def test_a_launcher_s_report_of_a_command_is_not_named():
    report = """\
Traceback (most recent call last):
  File "/opt/conda/bin/accelerate", line 8, in <module>
    sys.exit(main())
  File "/opt/conda/lib/python3.10/site-packages/accelerate/commands/launch.py", line 763, in simple_launcher
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.
"""
    assert of(report) is None
    own = report.replace("/opt/conda/lib/python3.10/site-packages/accelerate/commands/launch.py", "run.py")
    assert of(own).frame.path == "run.py"


def test_a_child_s_traceback_is_what_its_parent_repeats():
    parent = """\
Traceback (most recent call last):
  File "tools/dist_train.py", line 320, in <module>
    main()
  File "/opt/conda/lib/python3.7/site-packages/torch/multiprocessing/spawn.py", line 150, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 0 terminated with the following error:
"""
    child = PLAIN.replace("<module>", "_wrap").replace("train.py", "train.py", 1)
    found = of(parent + child)
    assert (found.type, found.unhandled, found.line) == ("RuntimeError", True, 1)


def test_an_abort_has_the_frames_of_the_fault_handler():
    text = """\
terminate called after throwing an instance of 'c10::Error'
  what():  device not ready
Fatal Python error: Aborted

Thread 0x00007f9fb1cff700 (most recent call first):
  File "/opt/ml/code/other.py", line 1 in wait

Current thread 0x00007fa2972464c0 (most recent call first):
  File "/opt/conda/lib/python3.10/site-packages/torch/_tensor.py", line 522 in backward
  File "/opt/ml/code/train.py", line 30 in step
  File "/opt/ml/code/train.py", line 90 in <module>
"""
    found = of(text)
    assert (found.type, found.message) == ("c10::Error", "device not ready")
    assert as_list(found.frame) == ["/opt/ml/code/train.py", 30, "step"]


def test_a_traceback_that_breaks_off_does_not_take_the_next_one_s_place():
    found = of(f"{PLAIN.partition('RuntimeError')[0]}\n{PLAIN.replace('RuntimeError', 'ValueError')}")
    assert (found.type, found.line, as_list(found.frame)[1]) == ("ValueError", 9, 5)


def test_a_line_of_the_same_prefix_keeps_its_indentation():
    lines = [f"2026-11-21T10:00:00.123Z {line}" for line in PLAIN.splitlines()]
    lines.insert(-1, "2026-11-21T10:00:00.123Z     ValueError: what a line of code says")
    assert of("\n".join(lines)).type == "RuntimeError"


def test_the_summary_of_torchrun_has_a_rank():
    """As in PyTorch's own example: pytorch/pytorch #66182."""
    summary = """\
Root Cause (first observed failure):
[0]:
  time      : 2021-10-05_17:37:22
  host      : devvm4955.prn0.facebook.com
  rank      : 6 (local_rank: 6)
  exitcode  : 1 (pid: 3296201)
  error_file: /home/kiuk/tmp/elastic/none_3_lsytqe/attempt_0/0/error.json
  traceback :
"""
    text = PLAIN.replace("<module>", "wrapper").splitlines(keepends=True)
    found = of(summary + "".join(f"  {line}" for line in text))
    assert (found.type, found.rank, found.unhandled) == ("RuntimeError", 6, True)


def test_a_worker_s_traceback_is_the_exception_and_the_loop_is_the_frame_if_the_worker_has_none():
    outer = """\
Traceback (most recent call last):
  File "train.py", line 52, in <module>
    for batch in loader:
  File "/opt/conda/lib/python3.10/site-packages/torch/_utils.py", line 694, in reraise
    raise exception
IndexError: Caught IndexError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/opt/conda/lib/python3.10/site-packages/torch/utils/data/_utils/worker.py", line 308, in _worker_loop
    data = fetcher.fetch(index)
"""
    found = of(outer + "IndexError: list index out of range\n")
    assert (found.message, found.unhandled, found.line) == ("list index out of range", True, 1)
    assert as_list(found.frame) == ["train.py", 52, "<module>"]
    inner = '  File "/opt/ml/code/data.py", line 8, in __getitem__\n    return self.rows[index]\n'
    assert as_list(of(f"{outer}{inner}IndexError: x\n").frame) == ["/opt/ml/code/data.py", 8, "__getitem__"]


def test_a_kernel_s_assertion_is_the_cause_of_the_error_that_follows():
    kernel = PUBLIC[8]["text"]
    found = of(kernel + PLAIN.replace("mat1 and mat2", "CUDA error: device-side assert triggered"))
    assert (found.type, found.line) == ("RuntimeError", 1)
    assert [(each.type, each.how) for each in found.earlier] == [("CUDA assertion", "cause")]


def test_a_box_of_rich_with_a_path_over_two_lines():
    text = """\
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /opt/ml/code/train.py:231 in <module>                                        │
│                                                                              │
│   228 │   else:                                                              │
│ ❱ 231 │   train(accelerator, config=config)                                  │
│                                                                              │
│ /opt/conda/lib/python3.10/site-packages/accelerate/accele                    │
│ rator.py:1022 in _prepare_one                                                │
│                                                                              │
│ ❱ 1022 │   │   │   │   return self.prepare_model(obj)                        │
╰──────────────────────────────────────────────────────────────────────────────╯
ValueError: no such model
"""
    found = of(text)
    assert (found.type, found.message, found.unhandled) == ("ValueError", "no such model", True)
    assert as_list(found.frame) == ["/opt/ml/code/train.py", 231, "<module>"]
    assert found.raised_in.path == "/opt/conda/lib/python3.10/site-packages/accelerate/accelerator.py"


@pytest.mark.parametrize(
    "text",
    [
        'ErrorMessage "raise ValueError(text)\n ValueError: no such model\n "\nCommand "python3 train.py"',
        'ExitCode 1 ErrorMessage "raise ValueError(text) ValueError: no such model" Command "python3 x.py", exit code',
        'ErrorMessage "ValueError: no such model"',
    ],
)
def test_the_toolkit_s_message(text):
    found = of(text)
    assert (found.type, found.message) == ("ValueError", "no such model")


def test_one_line_with_the_line_ends_of_json():
    found = of('ErrorMessage "' + PLAIN.replace('"', '\\"').replace("\n", "\\n") + '"')
    assert (found.type, as_list(found.frame)) == ("RuntimeError", ["/opt/ml/code/train.py", 5, "main"])


def test_without_a_traceback_a_report_of_an_exception_is_all_there_is():
    found = of("step 1\nZeroDivisionError: division by zero\nExecuteUserScriptError:\n")
    assert (found.type, found.unhandled, found.frame) == ("ZeroDivisionError", False, None)
    assert of("INFO: started\nError: 3 of 4\nvalue error: none\nloss: 3.2") is None


def test_people_read_it_before_the_lines_and_that_no_cause_is_known():
    plain = PLAIN.replace("mat1 and mat2 shapes cannot be multiplied (8x10 and 12x4)", "the loss is odd")
    text = diagnosis_text(diagnose(plain.splitlines()))
    lines = text.splitlines()
    assert lines[:5] == [
        "unknown: no known cause found in this log",
        "first exception: ended a process",
        "   1: RuntimeError: the loss is odd",
        "   in your code: /opt/ml/code/train.py:5 in main",
        "   raised in: /opt/conda/lib/python3.10/site-packages/torch/nn/modules/linear.py:114 in forward",
    ]
    marked = diagnosis_text(diagnose([f"[1,mpirank:3,algo-2]<stderr>:{line}" for line in plain.splitlines()]))
    assert "first exception (rank 3): ended a process" in marked


def test_blocks_may_end_anywhere():
    content = ("step\n" * 3 + PLAIN + "bye\n").encode()
    whole = diagnose_logs([Log("x", [content])], "x").exception
    lines = content.splitlines(keepends=True)
    for cut in range(len(lines)):
        parts = [b"".join(lines[:cut]), b"".join(lines[cut:])]
        assert diagnose_logs([Log("x", [part for part in parts if part])], "x").exception == whole
    assert whole.line == 4


WORDS = st.sampled_from(
    [
        *PLAIN.splitlines(),
        "",
        "step",
        "  + Exception Group Traceback (most recent call last):",
        "  +-+---------------- 1 ----------------",
        "    +------------------------------------",
        "  | ValueError: x",
        "During handling of the above exception, another exception occurred:",
        'ErrorMessage "',
        "terminate called after throwing an instance of 'a'",
    ]
)


@given(st.lists(st.tuples(st.sampled_from(["", "[rank1]: ", "[1,2]<stderr>:"]), WORDS), max_size=40))
def test_any_order_of_lines_is_read(parts):
    diagnosis_text(diagnose([prefix + line for prefix, line in parts]))
