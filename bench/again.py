"""How long `./invoke build` takes when nothing has changed since it built the image: seconds of the whole command."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.measured import keep  # noqa: E402
from trainwright.cli.output import say  # noqa: E402
from trainwright.engine.engine import connect  # noqa: E402


def main() -> None:
    """Build a request once more and more, and keep the median of those that took everything from the cache."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("request", nargs="?", default="pytorch:cpu")
    parser.add_argument("--rounds", type=int, default=7, help="after one that may build")
    words = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users' machines have the bytecode of what they run
    engine = connect(say=say)
    took = []
    for round_ in range(words.rounds + 1):
        started = time.monotonic()
        argv = [sys.executable, str(ROOT / "tasks.py"), "build", words.request, "--json"]
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - argv is ours
        seconds = time.monotonic() - started
        if done.returncode or (round_ and not json.loads(done.stdout)["cached"]):
            raise SystemExit(f"{words.request}: not from the cache: {done.stdout[-2000:]}")
        if round_:
            took.append(seconds)
    print(f"{words.request}: {statistics.median(took):.2f} s, {min(took):.2f} at best")
    print(keep("again", {"request": words.request, "seconds": round(statistics.median(took), 2)}, engine))


if __name__ == "__main__":
    main()
