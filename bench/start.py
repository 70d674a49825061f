"""How long a container of an image takes to its first line of Python, and until torch is imported: seconds."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.measured import keep  # noqa: E402
from trainwright.cli.output import say  # noqa: E402
from trainwright.core.runner import run  # noqa: E402
from trainwright.engine.engine import connect  # noqa: E402

PROGRAMS = {"first_line": "print('here')", "import_torch": "import torch; print('here')"}


def main() -> None:
    """Run each program in containers of the image, in turns, and keep the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", required=True, help="an image with PyTorch that the engine has")
    parser.add_argument("--rounds", type=int, default=7, help="after one that reads the files from the disk")
    words = parser.parse_args()
    engine = connect(say=say)
    took: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for round_ in range(words.rounds + 1):
        for name, program in PROGRAMS.items():
            argv = [engine.client.path, "run", "--rm", "--network", "none", "--entrypoint", "python", words.image]
            started = time.monotonic()
            done = run([*argv, "-c", program], env=engine.cli_env, finish=True)
            seconds = time.monotonic() - started
            if not done.ok or "here" not in done.stdout:
                raise SystemExit(f"{words.image}: {done.tail(5)}")
            if round_:
                took[name].append(seconds)
    values = {name: round(statistics.median(each), 2) for name, each in took.items()}
    print(*(f"{name}: {seconds:.2f} s" for name, seconds in values.items()), sep="\n")
    print(keep("start", {**values, "image": words.image, "rounds": words.rounds}, engine))


if __name__ == "__main__":
    main()
