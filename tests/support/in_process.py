"""The program in this process: what a verb answers, without the second that a process of its own takes to start."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwright.cli.program import run
from trainwright.verbs.find import SHELF
from trainwright.verbs.namespace import namespace


@contextlib.contextmanager
def one_process() -> Iterator[None]:
    """Put back what a process that ends soon may change."""
    environment, bytecode, handler = dict(os.environ), sys.dont_write_bytecode, signal.getsignal(signal.SIGTERM)
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.dont_write_bytecode = bytecode
        signal.signal(signal.SIGTERM, handler)


def call(
    *words: str, cwd: Path | None = None, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a verb; its exit code, standard output and error.

    Args:
        words: the command line.
        cwd: the working folder.
        stdin: what standard input holds.
        environment: variables to set.
    """
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with one_process(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["invoke", *words])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        for name, value in environment.items():
            patch.setenv(name, value)
        if cwd:
            patch.chdir(cwd)
        code = run(words, SHELF, lambda: namespace, checkout=True)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(list(words), code, *texts)
