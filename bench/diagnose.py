"""`diagnose` on large logs, beside a search that holds each line against each pattern: seconds of the processor.

Logs of 30 MB: that of a long job whose lines mention no error, one that repeats a traceback in every step, and others
that repeat lines which mention an error. In the last two, letters differ from line to line, too.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import re
import time
from collections.abc import Callable
from functools import partial
from itertools import count

from trainwright.sagemaker.causes import load_causes
from trainwright.sagemaker.diagnosis import diagnose_logs
from trainwright.sagemaker.log_lines import Log, blocks

MEGABYTES = 30
END = "[1,mpirank:3,algo-1]<stderr>:RuntimeError: CUDA out of memory."


def job_log(steps: int) -> list[str]:
    """The lines of a job of 16 ranks that ends for want of memory, four for each step; all differ."""
    lines = []
    for step in range(steps):
        rank = f"[1,mpirank:{step % 16},algo-{step % 2 + 1}]<stdout>:"
        lines += [
            f"{rank}Train Epoch: {step // 900} [{step}/300000] Loss: {step / 7:.6f}, lr: {1 / (step + 1):.3e}, 99/s",
            f"algo-1:{step}:{step + 40} [0] NCCL INFO Channel 00 : 0[{step}] -> 1[101d0] via P2P/IPC/read, connected",
            f"2026-11-21T10:00:00.{step % 1000:03d}Z {step} - mean_absolute_error: {step / 3:.5f} - val_accuracy: 0.1",
            f"{{'loss': {step / 9:.4f}, 'grad_norm': {step / 5:.3f}, 'lr': 5e-05, 'epoch': {step / 900:.9f}}}",
        ]
    return [*lines, END]


def tracebacks(steps: int) -> list[str]:
    """The lines of a job whose every step prints the traceback of an exception that it handles, eight for each."""
    lines = []
    for step in range(steps):
        lines += [
            "Traceback (most recent call last):",
            '  File "/opt/ml/code/train.py", line 40, in <module>',
            "    main()",
            '  File "/opt/ml/code/train.py", line 31, in main',
            "    batch = read(at)",
            '  File "/opt/ml/code/data.py", line 7, in read',
            "    return rows[at]",
            f"IndexError: no row {step}",
        ]
    return [*lines, END]


def user_warning(step: int) -> list[str]:
    """A warning of each step, and the source line that Python prints of it."""
    text = "None of the inputs have requires_grad=True. Gradients will be None"
    rank = f"[1,mpirank:{step % 16},algo-{step % 2 + 1}]<stderr>:"
    module = "/opt/conda/lib/python3.10/site-packages/torch/utils/checkpoint.py"
    return [f"{rank}{module}:31: UserWarning: {text}", f'{rank}  warnings.warn("{text}")']


def json_line(step: int) -> list[str]:
    """A record of a logger that writes JSON."""
    when = f"2026-11-21T10:{step // 60 % 60:02d}:{step % 60:02d}.{step % 1000:03d}Z"
    return [json.dumps({"timestamp": when, "level": "INFO", "message": f"step {step} loss {step / 7:.4f}", "rank": 3})]


def _bar(step: int) -> str:
    at = step % 1000
    bar = f"Map (num_proc=8): {at // 10:3d}%|{'█' * (at // 20):50s}| {at}/1000"
    return f"{bar} [{at // 60:02d}:{at % 60:02d}<00:10, {step % 97:5.2f} examples/s]"


def progress(step: int) -> list[str]:
    """A progress bar of tqdm, one line for each update."""
    return [_bar(step)]


def progress_in_place(step: int) -> list[str]:
    """A thousand updates of a progress bar that overwrites its line."""
    return ["\r".join(_bar(step * 1000 + update) for update in range(1000))]


def op_requires(step: int) -> list[str]:
    """TensorFlow's report of an operation that failed and was handled."""
    kernel = "W tensorflow/core/framework/op_kernel.cc:1767] OP_REQUIRES failed at conv_ops.cc"
    when = f"2026-11-21 10:{step // 60 % 60:02d}:{step % 60:02d}.{step % 1_000_000:06d}"
    return [f"{when}: {kernel}:{step % 900} : Invalid argument: input must be 4-dimensional[{step % 32},224,224]"]


def retries(step: int) -> list[str]:
    """Lines that mention errors, and retries that succeed."""
    when = f"2026-11-21 10:{step // 60 % 60:02d}:{step % 60:02d}"
    return [
        f"{when} INFO step {step} error rate {step / 7:.4f}",
        f"{when} WARNING retry {step} of s3://bucket/key-{step}: connection error",
        f"{when} WARNING request {step * 31} failed, status {step % 5 + 500}",
    ]


def illegal_access(step: int) -> list[str]:
    """A line that shows a cause, again and again."""
    when = f"2026-11-21 10:{step // 60 % 60:02d}:{step % 60:02d}"
    return [f"{when} [rank{step % 8}]: RuntimeError: CUDA error: an illegal memory access was encountered, step {step}"]


def random_words(step: int) -> list[str]:
    """Words of random letters."""
    some = random.Random(step)  # noqa: S311  no secret
    return [" ".join("".join(some.choices("abcdefghijklmnopqrstuvwxyz", k=some.randint(2, 9))) for _ in range(14))]


def requests(step: int) -> list[str]:
    """Requests with random names that failed."""
    some = random.Random(step)  # noqa: S311  no secret
    path = f"/opt/ml/input/data/train/{some.getrandbits(64):016x}/part"
    return [f"WARNING request {some.getrandbits(128):032x} to {path} failed: retrying"]


KINDS: dict[str, Callable[[int], list[str]]] = {
    "repeated UserWarning": user_warning,
    "JSON lines": json_line,
    "progress bar": progress,
    "progress bar in place": progress_in_place,
    "OP_REQUIRES failed": op_requires,
    "error, retry, failed": retries,
    "a cause in each line": illegal_access,
    "random words": random_words,
    "random names, failed": requests,
}


def repeated(kind: Callable[[int], list[str]], megabytes: float) -> list[str]:
    """The lines of many steps, and the end."""
    lines: list[str] = []
    size = 0
    for step in count():
        if size >= megabytes * 1e6:
            break
        new = kind(step)
        lines += new
        size += sum(len(line.encode()) + 1 for line in new)
    return [*lines, END]


def measure(lines: list[str], patterns: list[re.Pattern[str]]) -> tuple[float, float, float, int]:
    """Megabytes, seconds of `diagnose` and of each line against each pattern, and how many lines these are from."""
    content = "".join(f"{line}\n" for line in lines).encode()
    started = time.process_time()
    found = diagnose_logs([Log("job.log", blocks(io.BytesIO(content), "job.log"))], "job.log")
    ours = time.process_time() - started
    if "gpu-memory" not in [cause.id for cause in found.causes]:
        raise SystemExit(f"found {[cause.id for cause in found.causes]}")
    some = lines[:: max(1, len(lines) // 2_000)][-2_000:]
    started = time.process_time()
    for line in some:
        for pattern in patterns:
            pattern.search(line.rpartition("\r")[2])
    plain = (time.process_time() - started) * len(lines) / len(some)
    return len(content) / 1e6, ours, plain, len(some)


def main() -> None:
    """Print the seconds of both for each log, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=MEGABYTES, help="of each log")
    megabytes = parser.parse_args().megabytes
    steps = round(85_000 * megabytes / MEGABYTES)
    patterns = [re.compile(pattern) for cause in load_causes() for pattern in cause.patterns]
    print("| log | megabytes | diagnose s | each line, each pattern s | ratio |\n| --- | --- | --- | --- | --- |")
    logs: dict[str, Callable[[], list[str]]] = {
        "long job": lambda: job_log(steps),
        "tracebacks": lambda: tracebacks(steps),
        **{name: partial(repeated, kind, megabytes) for name, kind in KINDS.items()},
    }
    for name, made in logs.items():
        lines = made()
        size, ours, plain, read = measure(lines, patterns)
        print(f"| {name} | {size:.0f} | {ours:.2f} | {plain:.1f} (from {read:,} lines) | {ours / plain:.3f} |")


if __name__ == "__main__":
    main()
