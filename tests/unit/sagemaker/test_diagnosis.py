"""Logs of failed jobs: the cause is named, several are ranked, what is unknown stays unknown."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainwright.core.data_files import read_yaml
from trainwright.core.errors import RequestError
from trainwright.sagemaker.causes import KnownCause, load_causes
from trainwright.sagemaker.diagnosis import diagnose
from trainwright.sagemaker.diagnosis_output import diagnosis_text
from trainwright.sagemaker.log_lines import bare, clean

ROOT = Path(__file__).resolve().parents[3]


def check(found: object) -> None:
    schema = json.loads((ROOT / "trainwright" / "schemas" / "diagnosis.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(found)


def shown(cause: str, line: str) -> list[str]:
    """As many such lines as the cause takes."""
    return [line] * next(c.at_least for c in load_causes() if c.id == cause)


def names(log: str) -> list[str]:
    return [cause.id for cause in diagnose(log.splitlines()).causes]


# A line of a real log (or its form in the source of the program that writes it), and the cause.
LINES = [
    (
        "RuntimeError: tensorflow/compiler/xla/xla_client/computation_client.cc:273 : Missing XLA configuration",
        "xla-configuration",
    ),
    ("The following MCA parameter has been listed multiple times on the command line:", "mca-twice"),
    ("  MCA param:   btl_vader_single_copy_mechanism", "mca-twice"),
    ("[3] find_ofi_provider:611 NCCL WARN NET/OFI Only EFA provider is supported", "efa-only"),
    ("WARN: Function: find_ofi_provider Line: 543: NET/OFI Couldn't find any optimal provider", "efa-not-found"),
    ("ssh: Could not resolve hostname algo-2: Name or service not known", "host-unresolved"),
    ("socket.gaierror: [Errno -2] Name or service not known: algo-1", "host-unresolved"),
    ("sagemaker_pytorch_container.training INFO     Block until all host DNS lookups succeed.", "waits-for-hosts"),
    ("sagemaker-training-toolkit INFO     Cannot connect to host algo-1", "host-unreachable"),
    (" No authentication methods available              Can be ignored for worker when", "ssh-no-key"),
    (" Authentication failed.              Can be ignored for worker when master completes", "ssh-refused"),
    ("ERROR: No matching distribution found for no-such-package==1.0", "requirements"),
    ("error: No solution found when resolving dependencies", "requirements"),
    ("    The user requested (constraint) torch==2.13.0+cpu", "constraint"),
    ("SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "certificate"),
    ("[FATAL tini (7)] exec train failed: No such file or directory", "no-train"),
    ("SMDebug Does Not Currently Support Distributed Training Jobs With Checkpointing Enabled", "debugger-checkpoints"),
    ('exec: "train": executable file not found in $PATH: unknown', "no-train"),
    ("exec /usr/local/bin/train: exec format error", "exec-format"),
    (
        "RuntimeError: The number of node-local MPI processes 8cannot be larger than the device count 4",
        "processes-above-gpus",
    ),
    ("RuntimeError: CUDA error: invalid device ordinal", "invalid-device"),
    ("ImportError: /opt/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommSplit", "nccl-versions"),
    ("Error 803: system has unsupported display driver / cuda driver combination", "cuda-803"),
    ("CUDA initialization: Error 804: forward compatibility was attempted on non supported HW", "cuda-804"),
    ("CUDA driver version is insufficient for CUDA runtime version", "driver-too-old"),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "no-kernel-image"),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "gpu-memory"),
    ("RuntimeError: DataLoader worker (pid 53) is killed by signal: Bus error. It is possible", "shared-memory"),
    ("OutOfMemory: Please use a larger instance and/or reduce the values of other parameters", "host-memory"),
    ("  exitcode  : -9 (pid: 77)", "process-killed"),
    ("SecondaryStatus: MaxRuntimeExceeded", "max-runtime"),
    (
        "ImportError: libboost_thread.so.1.73.0: cannot open shared object file: No such file or directory",
        "library-boost",
    ),
    ("OSError: libsmddpcpp.so: cannot open shared object file: No such file or directory", "library-boost"),
    ("ImportError: libnuma.so.1: cannot open shared object file: No such file or directory", "library"),
    ("/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' not found", "glibcxx"),
    ("TypeError: Descriptors cannot not be created directly.", "protobuf"),
    ("TypeError: Descriptors cannot be created directly.", "protobuf"),
    ("ImportError: cannot import name 'builder' from 'google.protobuf.internal'", "protobuf"),
    ("ModuleNotFoundError: No module named 'mpi4py'", "no-module"),
    ("RuntimeError: cannot load MPI library", "mpi-library"),
    ("prterun was unable to find the executable", "open-mpi-5"),
    ("None of the TCP networks specified to be included for out-of-band communications", "no-tcp-network"),
    ("There are not enough slots available in the system to satisfy the 16", "slots"),
    ("sshd: no hostkeys available -- exiting.", "sshd"),
    ("train.py: error: unrecognized arguments: --epochs 3", "hyperparameter-unknown"),
    ("train.py: error: the following arguments are required: --data", "hyperparameter-missing"),
    ("KeyError: 'SM_CHANNEL_TRAIN'", "channel"),
    ("TypeError: str expected, not int", "environment-text"),
    ("ValueError: invalid literal for int() with base 10: 'INFO'", "log-level"),
    ("python: can't open file '/opt/ml/code/train.py': [Errno 2] No such file or directory", "script-missing"),
    ("AttributeError: 'NoneType' object has no attribute 'endswith'", "no-program"),
    ("Segmentation fault (core dumped)", "host-shim"),
    ("RuntimeError: The server socket has failed to listen: Address already in use", "port-in-use"),
    ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)", "collective-timeout"),
    ("RuntimeError: CUDA error: device-side assert triggered", "device-assert"),
    ("RuntimeError: Expected all tensors to be on the same device, but found cuda:0 and cpu", "mixed-devices"),
    ("OSError: [Errno 28] No space left on device", "disk-full"),
    ("CannotPullContainerError: pull image manifest has been retried", "image-refused"),
    ("botocore.exceptions.NoCredentialsError: Unable to locate credentials", "no-credentials"),
    ("Executable: smddprun", "smdistributed-launcher"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'torchrun'", "torchrun-missing"),
    ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15", "interrupted"),
    ("mpirun detected that one or more processes exited with non-zero status", "rank-failed"),
    ("sagemaker-training-toolkit ERROR ExecuteUserScriptError:", "script-failed"),
]


@pytest.mark.parametrize(("line", "cause"), LINES)
def test_cause(line, cause):
    assert names("\n".join(shown(cause, line)))[0] == cause


def test_every_cause_has_a_line():
    public = read_yaml(Path(__file__).with_name("failures.yaml"))
    known = {text["cause"] for text in public["texts"] + public["consequences"]}
    together = {cause.id for cause in load_causes() if cause.needs}  # they need the line of another one, too
    assert ({cause for _, cause in LINES} | known) - together == {cause.id for cause in load_causes()} - together
    assert len({cause.id for cause in load_causes()}) == len(load_causes())


@pytest.mark.parametrize(
    "line",
    [
        "Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.30",
        "NCCL INFO NET/Plugin: Failed to find ncclCollNetPlugin_v6 symbol.",
        "NCCL version 2.21.5+cuda12.4",
        "Reporting training SUCCESS",
        "                resolved from algo-1",
        "sagemaker-training-toolkit INFO     Cannot connect to host algo-1",
        " Authentication failed.              Can be ignored for worker when master completes and exits.",
        " [Errno None] Unable to connect to port 22 on 192.168.64.2.              Can be ignored for worker",
        "INFO     Sagemaker Debugger is not enabled, debugger exceptions will not be imported.",
        "Installing collected packages: protobuf, mpi4py, torch",
        "Accuracy 803 of 1000, step 804",
        "2026-11-21 10:00:00,137 sagemaker-training-toolkit INFO Invoking user script",
        "WARNING: Running pip as the 'root' user can result in broken permissions",
    ],
)
def test_a_healthy_line_shows_nothing(line):
    assert names(line) == []


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stderr>:",
        "[1,mpirank:0,algo-1]<stderr>:",
        "algo-1-x7y2z  | ",
        "2026-11-21T10:00:00.123Z ",
        "\x1b[31m",
        "2026-11-21T10:00:00Z [1,mpirank:3,algo-2]<stdout>:\x1b[34m",
    ],
)
def test_what_stands_in_front_does_not_hide_a_cause(prefix):
    assert names(prefix + "  MCA param:   pml") == ["mca-twice"]


def test_values_of_the_log_are_in_the_answer():
    (found,) = diagnose(["The number of node-local MPI processes 8cannot be larger than the device count 4"]).causes
    assert "is 8" in found.cause and "4 GPUs" in found.cause and "to 4 or less" in found.remedy
    (found,) = diagnose(["The following MCA parameter has been listed multiple times on the command line:"]).causes
    assert "{" not in found.cause
    found = diagnose(["Missing XLA configuration"]).causes[0]
    assert '{"GPU_NUM_DEVICES": "<GPUs of the instance>"}' in found.remedy


def test_no_answer_keeps_a_place_to_fill():
    for line, _ in LINES:
        for found in diagnose([line]).causes:
            assert "{name}" not in diagnosis_text(diagnose([line]))
            assert "{}" not in found.cause


def test_causes_come_before_consequences_and_early_ones_first():
    log = """
    ExecuteUserScriptError:
    Primary job  terminated normally, but 1 process returned
    Watchdog caught collective operation timeout
    ModuleNotFoundError: No module named 'apex'
    CUDA out of memory
    CUDA out of memory
    """
    found = diagnose(log.splitlines())
    assert [c.id for c in found.causes] == [
        "no-module",
        "gpu-memory",
        "collective-timeout",
        "script-failed",
        "rank-failed",
    ]
    assert [c.certainty for c in found.causes] == ["cause", "cause", "likely", "consequence", "consequence"]
    assert found.causes[1].count == 2
    assert [e.line for e in found.causes[1].evidence] == [6, 7]
    assert not found.unknown and found.matters == ()


# The frames are of aws/amazon-sagemaker-examples #1931, where the answer was 403.
CODE = """
algo-1-xwmby_1  |     files.download_and_extract(uri=uri, path=environment.code_dir)
algo-1-xwmby_1  |   File "/usr/local/lib/python3.6/site-packages/sagemaker_training/files.py", line 131, in {where}
algo-1-xwmby_1  |     s3_download(uri, dst)
algo-1-xwmby_1  | botocore.exceptions.ClientError: An error occurred ({answer}) when calling the HeadObject operation
"""


def code_error(answer: int) -> str:
    return CODE.format(answer=answer, where="download_and_extract")


def test_a_missing_object_is_the_code_where_the_code_is_downloaded():
    assert names(code_error(404)) == ["code-archive"]
    assert names(code_error(403)) == ["s3-denied"]
    assert names(code_error(404).splitlines()[-1]) == ["s3-missing"]
    far = code_error(404).replace("algo-1-xwmby_1  | botocore", "\n" * 99 + "botocore")
    assert names(far) == ["s3-missing"]


def memory(rank: int, time: str) -> str:
    return f"{time} [1,{rank}]<stderr>:torch.OutOfMemoryError: CUDA out of memory."


@pytest.mark.parametrize(
    ("ninth", "first", "line"),
    [
        (memory(9, "2026-11-21T09:59:58.100Z"), "rank 9", 9),
        (memory(9, "").strip(), "rank 1", 1),
        (memory(9, "Sat Nov 21 09:59:58 2026"), "rank 9", 9),
    ],
)
def test_the_process_that_failed_first_is_the_earliest_one(ninth, first, line):
    """Processes write through buffers, so that a log's lines are out of order; without all times, theirs decides."""
    log = [memory(rank, f"2026-11-21T10:00:0{rank}.000Z") for rank in range(1, 9)] + [ninth]
    found = diagnose(log)
    assert found.first == first
    assert found.causes[0].evidence[0].line == line
    assert found.causes[0].count == 9
    assert found.exception is not None and found.exception.line == 1


def test_the_earliest_cause_comes_first():
    log = [
        "2026-11-21T10:00:09.000Z [1,0]<stderr>:ModuleNotFoundError: No module named 'apex'",
        memory(5, "2026-11-21T10:00:03.000Z"),
    ]
    assert [each.id for each in diagnose(log).causes] == ["gpu-memory", "no-module"]
    assert diagnose(log).first == "rank 5"


def test_the_first_exception_is_the_earliest_one():
    log = [
        f"2026-11-21T10:00:0{second}.000Z [1,{rank}]<stderr>:{line}"
        for rank, second in ((0, 7), (3, 2))
        for line in ("Traceback (most recent call last):", '  File "t.py", line 1, in <module>', f"ValueError: {rank}")
    ]
    found = diagnose(log).exception
    assert found is not None and found.rank == 3
    found = diagnose([line.partition("Z ")[2] for line in log]).exception
    assert found is not None and found.rank == 0


def test_what_a_log_goes_on_after_was_no_end():
    wait = "training INFO     Block until all host DNS lookups succeed."
    assert names(f"start\n{wait}\n\n") == ["waits-for-hosts"]
    assert names(f"{wait}\nInvoking user training script.") == []


def test_a_special_cause_hides_the_general_one():
    assert names("libboost_thread.so.1.73.0: cannot open shared object file") == ["library-boost"]


RETRY = (
    "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NewConnectionError('...': /simple/x/"
)


@pytest.mark.parametrize(
    ("cause", "effect", "near"),
    [
        ("NCCL WARN Call to posix_fallocate failed : No space left on device", "OSError: No space left on device", 40),
        (RETRY, "ERROR: No matching distribution found for x", 100),
        ("OutOfMemory: Please use a larger instance", "Process 0 exit with status code 137.", 60),
        ("OSError: [Errno 28] No space left on device", "PytorchStreamWriter failed writing file data/1", 60),
        (
            "CUDA error: uncorrectable ECC error encountered",
            "CUDA error: an illegal memory access was encountered",
            200,
        ),
        (
            "Cannot access gated repo for url x",
            "OSError: x/y is not a local folder and is not a valid model identifier",
            40,
        ),
    ],
)
def test_a_cause_stands_for_its_effects_nearby(cause, effect, near):
    alone = names(effect)
    assert alone
    assert not {*alone} & {*names(f"{cause}\n{effect}")}
    assert {*alone} <= {*names("\n".join([cause, *["step"] * near, effect]))}


def test_what_a_cause_stands_for_exists():
    known = {cause.id for cause in load_causes()}
    for cause in load_causes():
        assert {*cause.over} <= known - {cause.id}
        assert cause.over or not cause.near


def test_unknown_stays_unknown_with_the_lines_that_matter():
    log = (
        ["start"]
        + ["step"] * 500
        + ["Traceback (most recent call last):", "ZeroDivisionError: division by zero", "bye"]
    )
    found = diagnose(log)
    assert found.unknown and found.causes == ()
    assert {"ZeroDivisionError: division by zero", "bye"} <= {m.text for m in found.matters}
    assert len(found.matters) < 30
    assert diagnosis_text(found).startswith("unknown:")


def test_a_mere_report_of_failure_is_unknown():
    found = diagnose(["ZeroDivisionError: division by zero", "ExecuteUserScriptError:", "ExitCode 1"])
    assert found.unknown
    assert [c.id for c in found.causes] == ["script-failed"]
    assert any("ZeroDivision" in m.text for m in found.matters)


@given(st.lists(st.text(max_size=80), max_size=40))
@example(["\x1b[" * 50, "x\r" * 9, "\x00"])
def test_any_log_has_an_answer(lines):
    found = diagnose(lines)
    check(found.as_json())
    assert found.unknown == (not any(c.certainty != "consequence" for c in found.causes))
    diagnosis_text(found)


@given(st.text(max_size=200))
@example("\n\b")
@example("x" * 3999 + "\n\b" + "y")
def test_cleaning_ends(text):
    once = clean(text)
    assert clean(once) == once
    assert len(bare(once)) <= len(once)


def test_a_long_line_does_not_take_long():
    import time

    started = time.monotonic()
    diagnose(["a" * 1_000_000, "lib" * 300_000, "algo-1 " * 100_000])
    assert time.monotonic() - started < 5


def test_a_wrong_pattern_is_refused(tmp_path):
    book = tmp_path / "causes.yaml"
    book.write_text("causes: [{id: a, rank: 3, patterns: ['('], cause: c, remedy: r, source: s}]")
    with pytest.raises(RequestError, match="a:"):
        load_causes(book)
    book.write_text("causes: [{id: a, rank: 3, patern: ['x'], cause: c, remedy: r, source: s}]")
    with pytest.raises(RequestError, match="patterns"):
        load_causes(book)


def test_own_causes():
    own = KnownCause(
        id="mine", rank=2, patterns=("boom (?P<what>\\w+)",), cause="it was {what}", remedy="r", source="s"
    )
    (found,) = diagnose(["boom today"], causes=[own]).causes
    assert (found.id, found.cause) == ("mine", "it was today")


def test_a_bucket_of_another_region_is_not_called_empty():
    """The message of the service ends with what S3 said; from the README of kedro-aws-sagemaker."""
    message = """\
No S3 objects found under S3 URL "s3://kedro-data" given in input data source.
Please ensure that the bucket exists in the selected region (us-east-1),
that objects exist under that S3 prefix,
and that the role "arn:aws:iam::783560535431:role/SageMaker-ExecRole" has "s3:ListBucket" permissions on \
bucket "kedro-data".
Error message from S3: The bucket is in this region: ap-southeast-1.
Please use this region to retry the request"""
    assert [each.id for each in diagnose(message.splitlines()).causes] == ["bucket-region"]
