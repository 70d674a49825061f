"""`diagnose` on large logs, beside a search that holds each line against each pattern: seconds of the processor.

One log is that of a long job, the other one repeats a traceback in every step.
"""

from __future__ import annotations

import argparse
import re
import time

from trainwright.sagemaker.causes import load_causes
from trainwright.sagemaker.diagnosis import Log, diagnose_logs

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
            f"    batch = read({step})",
            '  File "/opt/ml/code/data.py", line 7, in read',
            "    return rows[at]",
            f"IndexError: no row {step}",
        ]
    return [*lines, END]


def measure(lines: list[str], patterns: list[re.Pattern[str]]) -> tuple[float, float, float, int]:
    """Megabytes, seconds of `diagnose` and of each line against each pattern, and how many lines these are from."""
    content = [f"{line}\n".encode() for line in lines]
    blocks = [b"".join(content[at : at + 40_000]) for at in range(0, len(content), 40_000)]
    started = time.process_time()
    found = diagnose_logs([Log("job.log", blocks)], "job.log")
    ours = time.process_time() - started
    if [cause.id for cause in found.causes] != ["gpu-memory"]:
        raise SystemExit(f"found {[cause.id for cause in found.causes]}")
    some = lines[:: max(1, len(lines) // 10_000)]
    started = time.process_time()
    for line in some:
        for pattern in patterns:
            pattern.search(line)
    plain = (time.process_time() - started) * len(lines) / len(some)
    return sum(map(len, content)) / 1e6, ours, plain, len(some)


def main() -> None:
    """Print the seconds of both for each log, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=85_000, help="of the long job; 85,000 make 30 MB")
    steps = parser.parse_args().steps
    patterns = [re.compile(pattern) for cause in load_causes() for pattern in cause.patterns]
    print("| log | megabytes | diagnose s | each line, each pattern s | ratio |\n| --- | --- | --- | --- | --- |")
    for name, lines in (("long job", job_log(steps)), ("tracebacks", tracebacks(steps))):
        size, ours, plain, read = measure(lines, patterns)
        print(f"| {name} | {size:.0f} | {ours:.2f} | {plain:.1f} (from {read:,} lines) | {ours / plain:.3f} |")


if __name__ == "__main__":
    main()
