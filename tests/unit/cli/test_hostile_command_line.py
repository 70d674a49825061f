"""The command line against whatever is typed at it: every flag of every verb, invoke's own flags, files and streams."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoke.parser.argument import Argument

from tests.support.tries import Link, Try
from trainwright.verbs.namespace import namespace

ROOT = Path(__file__).resolve().parents[3]
LONG = "a" * 100_000
# What each verb needs beside the flag that is tried.
NEEDS: dict[str, list[str]] = {
    "mirror": ["pull"],
    "diagnose": ["log"],
    "diff": ["pytorch:cu124", "pytorch:cu126"],
    "pipeline": ["--images", "pytorch:cu124"],
    **{verb: ["--framework", "pytorch"] for verb in ("plan", "explain", "render", "lock", "build")},
}
# C0, 8-bit CSI, NUL, and a byte that is not UTF-8 as Python hands it on.
CONTROLS = ("\x1b]0;", "\x9b", "\0", "\udcff", "\x7f")
# 100 000 letters are a name of nothing, or of too long a file; or another fault comes first.
REFUSED = (0, 1, 2, 3, 4, 8)


def flags() -> Iterator[tuple[str, str, Argument]]:
    """Every flag of every verb: verb, flag, what invoke knows of it."""
    for context in namespace.to_contexts():
        for flag, argument in context.flags.items():
            if flag.startswith("--"):
                yield str(context.name), flag, argument


# The verbs that have a document.
SHOWING = {verb for verb, flag, _ in flags() if flag == "--json"}


def words(verb: str, argument: Argument, *values: str) -> list[str]:
    """A command line that is right but for one flag."""
    if verb == "diff" and argument.positional:  # it needs two
        return [verb, "--after" if argument.name == "before" else "--before", "pytorch:cu126", *values]
    needs = [] if argument.positional or argument.names[0] in ("framework", "images") else NEEDS.get(verb, [])
    return [verb, *needs, *values]


def generated() -> Iterator[Try]:
    for number, (verb, flag, argument) in enumerate(flags()):
        if not argument.takes_value:
            yield Try(words(verb, argument, f"{flag}=yes"), 2)
            yield Try(words(verb, argument, f"--no-{flag[2:]}"), 2, "has no flag")
            continue
        bad = CONTROLS[number % len(CONTROLS)]
        yield Try(words(verb, argument, f"{flag}=" if number % 2 else flag, *[""][number % 2 :]), 2, "value is empty")
        yield Try(words(verb, argument, flag), 2, "needs a value")
        yield Try(words(verb, argument, flag, "--json"), 2, "needs a value")
        shown = ["--json"] if verb in SHOWING else []
        yield Try(words(verb, argument, flag, f"a{bad}b", *shown), 2, "control character")
        yield Try(words(verb, argument, flag, LONG), REFUSED)
        if argument.kind is not list and not argument.positional:
            yield Try(words(verb, argument, flag, "1", flag, ("2", verb)[number % 2]), 2, "twice")
        if argument.kind in (int, float):
            for wrong in ("two", "5m", "nan", "inf", "1e3", "0x2", "1_0", "٣", "9" * 5000, " 2", "2 "):
                yield Try(words(verb, argument, flag, wrong), 2, flag)
        if argument.kind is int:
            for wrong in ("0", "-1", "1.5"):
                yield Try(words(verb, argument, flag, wrong), 2, flag)


GENERATED = tuple(generated())
FILES = {"log": "fine\n"}


@pytest.mark.parametrize("row", GENERATED, ids=str)
def test_every_flag_of_every_verb(row, attempt):
    attempt(Try(row.words, row.code, row.says, files=FILES))


INVOKES_OWN = ("-w", "-e", "-p", "-R", "--dry", "--echo", "--pty", "--warn-only", "--prompt-for-sudo-password", "-d")
INVOKES_VALUES = ("-f", "--config", "-T", "--command-timeout", "--hide", "-c", "--collection", "-r", "--search-root")

ROWS = (
    # --- verbs
    Try("", 0, "rehearse"),
    Try("--list", 0, "rehearse"),
    Try("-l", 0, "rehearse"),
    Try("--help", 0, "rehearse"),
    Try("-h", 0, "rehearse"),
    Try("--version", 0, "Trainwright"),
    Try("-V", 0, "Trainwright"),
    Try("--help plan", 0, "--allow-unproven"),
    Try("plan --help", 0, "--allow-unproven"),
    Try("plan --framework pytorch --help", 0, "--allow-unproven"),
    Try("--list-format json --list", 0, '"rehearse"'),
    Try("-F nested -l", 0, "rehearse"),
    Try("-D 1 -l", 0, "rehearse"),
    Try("-F bad -l", 2, "nested"),
    Try("-F json -D 1 -l", 2, "list-depth"),
    Try("-D x -l", 2, "--list-depth x"),
    Try("-D " + "9" * 5000 + " -l", 2, "--list-depth 9"),
    Try("--list plan", 2, "--help plan"),
    Try("--list " + LONG, 2, "characters)"),
    Try("--help biuld", 2, "build"),
    Try("--help " + LONG, 2, "characters"),
    Try("-F", 2),
    Try("--print-completion-script bash", 0, "complete"),
    Try("--print-completion-script cmd.exe", 2, "fish"),
    Try("biuld", 2, "build"),
    Try("biuld --json", 2, "build"),
    Try([LONG], 2, "characters"),
    Try([""], 2, "verb"),
    Try([" "], 2, "verb"),
    Try(["pl\nan"], 2, "verb"),
    Try(["\x1b[31m"], 2, "verb"),
    Try(["plan\udcff"], 2, "verb"),
    Try("plan build", 2, "no framework 'build'"),
    Try("list list", 2, "one verb at a time"),
    Try("list plan --framework pytorch", 2, "one verb at a time"),
    Try("plan --framework pytorch tensorflow", 2, "tensorflow"),
    Try("list pytorch", 2, "pytorch"),
    Try("list -- --json", 2, "--"),
    Try("list --", 2, "--"),
    Try("--framework pytorch plan", 2, "a verb comes first"),
    Try("--json list", 2, "a verb comes first"),
    Try("-x list", 2, "a verb comes first"),
    Try("list -x", 2, "-x"),
    Try("list -xyz", 2),
    Try("list ---json", 2),
    Try("list -", 2),
    Try("list --jsn", 2, "--json"),
    Try("list --" + LONG, 2, "characters"),
    Try("plan --with=compiler --framwork pytorch", 2, "--framework"),
    Try("plan --framework pytorch --set", 2, "--set needs a value"),
    Try("plan --framework pytorch --set nccl=2.21.5 --set --json", 2, "--set needs a value"),
    Try("plan --cuda --frmework pytorch", 2, "Did you mean --framework"),
    Try("plan --framework=pytorch --cuda=cpu", 0, "torch"),
    Try("plan --framework pytorch --cuda cpu --set nccl=2.21.5 --set rmm=1", (2, 3)),
    Try("plan --framework=pytorch=2", 2, "pytorch"),
    Try(["plan", *["--framework=pytorch"] * 500], 2, "twice"),
    Try("list --json --json", 0, "trainwright/list/1"),
    Try("mirror", 2, "action"),
    Try("mirror push", 2, "pull"),
    Try("diagnose", 2, "log"),
    Try("diagnose a b", 2, "a: no such file"),
    Try("diagnose a -", 2, "standard input cannot be one of several logs"),
    Try("diagnose a b --job", 2, "--job takes one job"),
    Try("diagnose --log a --log b", 2),
    # --- invoke's own flags
    *(Try(f"{flag} list", 2, "no meaning") for flag in INVOKES_OWN),
    *(Try(f"list {flag}", 2, flag) for flag in INVOKES_OWN),
    *(Try(f"{flag} 1 list", 2, "no meaning") for flag in INVOKES_VALUES),
    *(Try(f"list {flag} 1", 2, flag) for flag in INVOKES_VALUES),
    Try("plan -f pytorch", 2, "--framework"),
    Try("-f pytorch plan", 2, "no meaning"),
    Try("-we list", 2, "no meaning"),
    Try("--no-dedupe list", 2, "no meaning"),
    Try("render --dry --framework pytorch --output out", 2, "--dry"),
    Try("--dry render --framework pytorch --output out", 2, "--dry"),
    Try("push --dry --image x --repository team/x --region us-west-2", 2, "--dry"),
    # A flag of version 0.1.0 says what became of it; one that is like none is not answered with all of them.
    Try("push --attach-sbom --repository team/x", 2, "is attached to every image"),
    Try("sources --check pytorch/nothing", 2, "pytorch/nothing"),
    Try("push --zzzzzz --repository team/x", 2, "push has no flag --zzzzzz.\n"),
    # --- completion, as a shell asks for it in the middle of a line
    Try(["--complete", "--", "trainwright", "build", "--fram"], 0, "--framework"),
    Try(["--complete", "--", "trainwright", "bui"], 0, "build"),
    Try(["--complete", "--", "trainwright", "build", "--set", "'x"], 0),
    Try(["--complete", "--", "trainwright", "build", "--hosts", "two", "--fram"], 0),
    Try(["--complete", "--", ""], 0),
    # --- settings of invoke's: none is read
    *(
        Try("list", 0, "2.6.0", files={name: "{broken: [", "log": ""})
        for name in ("invoke.yaml", "invoke.json", "invoke.py", "tasks.py", ".invoke.yaml")
    ),
    Try("list", 0, env={"INVOKE_RUNTIME_CONFIG": "nothing.yaml"}),
    Try("list", 0, env={"INVOKE_RUN_WATCHERS": "x", "INVOKE_RUN_ENV": "{", "INVOKE_TASKS_EXECUTOR_CLASS": "no.such"}),
    # --- files
    Try("diagnose nothing", 2, "no such file"),
    Try("diagnose folder", 2, files={"folder": None}),
    Try("diagnose loop", 2, files={"loop": Link("loop")}),
    Try(["diagnose", "a" * 300], 2, "too long"),
    Try(["diagnose", "a/" * 3000], 2),
    Try("diagnose /dev/null", 2, "the log is empty"),
    Try("diagnose log", 2, "empty", files={"log": ""}),
    Try("diagnose log", 0, "unknown", files={"log": os.urandom(20_000)}),
    Try("diagnose log", 0, "CUDA", files={"log": "\x9b31m\u202eRuntimeError: CUDA out of memory.\n"}),
    Try("diagnose - --json", 0, files={}, stdin=b"\xff\xfe\x00RuntimeError\x9b: \x1b]0;x\x07\n"),
    Try("preflight", 2, "preflight train.py"),
    Try("preflight nothing.py a.py", 2, "nothing.py: no such file", files={"a.py": ""}),
    Try("preflight plan", 2, "plan: no such file"),
    Try("preflight a.py --soure-dir x", 2, "--source-dir", files={"a.py": ""}),
    Try(["preflight", "a\x9bb.py"], 2, "control character"),
    Try(["preflight", ""], 2, "empty"),
    Try(["preflight", "a" * 300 + ".py"], 2, "too long"),
    Try("preflight folder", 2, "no training script", files={"folder": None}),
    Try("preflight a.ipynb", 2, "a.ipynb", files={"a.ipynb": '{"cells":' * 40_000}),
    Try("preflight a.ipynb", 2, "a.ipynb", files={"a.ipynb": b"\xff\xfe\x00"}),
    Try("preflight a.ipynb", 0, files={"a.ipynb": '{"cells": [' + ", ".join(["{}"] * 50_000) + "]}"}),
    Try("preflight a.py", 2, "not a regular file", files={"a.py": Link("/dev/zero")}),
    Try("diagnose a.log", 2, "a device, not a log", files={"a.log": Link("/dev/zero")}),
    Try("diagnose /dev/null", 2, "the log is empty"),
    Try("preflight a.py", 2, "a symbolic link that leads to no file", files={"a.py": Link("a.py")}),
    Try("preflight a.sh", 2, "a.sh", files={"a.sh": "python " * 50_000}),
    Try("preflight --entry-point nothing.py", 2, "no such file"),
    Try("preflight --entry-point folder", 2, files={"folder": None}),
    Try("preflight --entry-point a.txt", 2, "Python", files={"a.txt": ""}),
    Try("preflight --entry-point a.py --source-dir a.py", 2, "--source-dir", files={"a.py": ""}),
    Try(["preflight", "--entry-point", "a" * 300 + ".py"], 2, "too long"),
    Try("preflight --entry-point a.py", 0, files={"a.py": f"import {'a' * 5000}\nimport torch\n"}),
    Try("preflight --entry-point a.py", 0, files={"a.py": f"from {'.'.join(['a' * 200] * 30)} import b\n"}),
    Try("preflight --entry-point a.py", 1, "TW100", files={"a.py": b"\xff\xfe\x00"}),
    Try("preflight --entry-point a.py", 1, "TW100", files={"a.py": "x = " + "(" * 5000}),
    Try("preflight --entry-point a.py", (0, 1), files={"a.py": "x = " + "-" * 20_000 + "1\n"}),
    Try("preflight --entry-point a.py", (0, 1), files={"a.py": "import os\nos.environ['\x9b31m\u202e'] = 4\n"}),
    Try("preflight --job job.yaml", 2, files={"job.yaml": Link("/dev/null")}),
    Try("list --catalog nothing", 2, "nothing"),
    Try("list --catalog file", 2, files={"file": ""}),
    Try(["list", "--catalog", "a" * 300], 2),
    Try("estimator --job nothing.yaml", 2, "no such file"),
    Try("estimator --hyperparameters /dev/zero", 2, "--hyperparameters"),
    Try(["estimator", "--hyperparameters", '{"a":' * 40_000], 2, "--hyperparameters"),
    Try("estimator --hyperparameters deep", 2, "--hyperparameters", files={"deep": "[" * 100_000}),
    Try("estimator --distribution deep", 2, "nested", files={"deep": '{"a":' * 100_000}),
    Try("estimator --hyperparameters folder", 2, "--hyperparameters", files={"folder": None}),
    Try("estimator --hyperparameters bytes", 2, "--hyperparameters", files={"bytes": b"\xff\xfe"}),
    Try(["estimator", "--hyperparameters", f'{{"a": {"9" * 5000}}}'], 2, "--hyperparameters"),
    Try("estimator --input a=s3://b --input a=s3://c", 2, "twice"),
    Try("estimator --env A=1 --env A=2", 2, "twice"),
    Try("estimator --env A", 2, "NAME=VALUE"),
    Try("estimator --env =A", 2, "NAME=VALUE"),
    Try("estimator --sdk 4", 2, "--sdk"),
    Try("estimator --instance-count 999999999999999999999999999", 2, "--instance-count"),
    Try("estimator --job j.yaml", 2, "instance_count", files={"j.yaml": f"instance_count: 1{'0' * 26}\n"}),
    Try("estimator --job j.yaml", 2, "max_run", files={"j.yaml": "max_run: 2147483648\n"}),
    Try("estimator --job j.yaml", 2, "volume_gb", files={"j.yaml": "volume_gb: 0\n"}),
    Try("list --json", 0, "trainwright/list/1", env={"TRAINWRIGHT_STATE": "{work}/file"}, files={"file": ""}),
    Try("list --built", 2, "TRAINWRIGHT_STATE", env={"TRAINWRIGHT_STATE": "{work}/file"}, files={"file": ""}),
    Try("list --built --json", 2, "TRAINWRIGHT_STATE", env={"TRAINWRIGHT_STATE": "/proc/trainwright"}),
    Try("list --built", 2, "too long", env={"TRAINWRIGHT_STATE": "{work}/" + "a" * 300}),
    Try("smoke --image x", (2, 4)),
    Try("push", 2, "--repository"),
    Try("pipeline --format nothing", 2, "buildspec"),
    Try("pipeline --images pytorch:cu124 --output folder", 2, files={"folder": None}),
    Try("pipeline --images nothing", 2),
    Try("render --framework pytorch --output file", 2, files={"file": "mine"}),
    Try("lock --framework pytorch --check --upgrade base", 2, "--check"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_hostile(row, attempt):
    attempt(row)


def test_there_are_enough():
    assert len(GENERATED) > 500
    assert len(ROWS) > 120


# --- streams, as only another process has them -----------------------------------------------------------------------


def shell(line: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A line of sh in which $tw is the program."""
    return subprocess.run(
        ["sh", "-c", f'tw() {{ "{sys.executable}" -m trainwright "$@"; }}; {line}'],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("line", "code", "lines"),
    [
        ("tw list --json >/dev/full", 5, 2),
        ("tw list >/dev/full", 5, 2),
        ("tw plan --framework pytorhc --json >/dev/full", 2, 3),
        ("tw list --built >/dev/full", 5, 2),
        ("tw list --built --json >/dev/full", 5, 2),
        ("tw --list >/dev/full", 5, 2),
        ("tw list 2>/dev/full >/dev/null", 0, 0),
        ("tw plan --framework pytorhc 2>/dev/full", 2, 0),
        ("tw list >&-", 0, 0),
        ("tw plan --framework pytorhc 2>&-", 2, 0),
        ("tw list >&- 2>&- <&-", 0, 0),
        ("{ tw list --json; echo $? >code; } | :; exit $(cat code)", 0, 0),
        ("{ tw list --built; echo $? >code; } | :; exit $(cat code)", 0, 0),
        ("{ tw --list; echo $? >code; } | :; exit $(cat code)", 0, 0),
        ("mkdir gone; cd gone; rmdir ../gone; tw list --built", 2, 2),
    ],
)
def test_streams_and_folders_that_are_not_there(line, code, lines, tmp_path):
    done = shell(line, tmp_path)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert len(done.stderr.splitlines()) <= lines, done.stderr


@pytest.mark.parametrize("name", [".invoke.yaml", ".invoke.json", ".invoke.py"])
def test_broken_settings_of_invoke_in_the_home_folder(name, tmp_path):
    (tmp_path / name).write_text("{broken: [")
    done = shell("tw list", tmp_path, HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_text_that_no_terminal_can_show(tmp_path):
    (tmp_path / "log").write_text("RuntimeError: CUDA out of memory “…”\n")
    done = shell("tw diagnose log", tmp_path, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 0, done.stderr
    assert "CUDA" in done.stdout
