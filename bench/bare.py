"""From a bare machine to a proven image: the first command in a fresh clone, on a machine that has run none before.

Run it with the machine's own Python (3.11 or newer), which needs no packages: ``python3 bench/bare.py``. It refuses a
machine that has this checkout's environment, a cache of ours, or an engine with images.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEEP = """
from bench.measured import keep
from trainwright.engine.engine import connect
print(keep("bare", {{"request": {request!r}, "seconds": {seconds!r}, "engine": {engine!r}}}, connect(setup=False)))
"""


def leftovers() -> list[str]:
    """What is on this machine of an earlier run."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwright"
    found = [str(path) for path in (ROOT / ".venv", ROOT / ".trainwright", cache) if path.exists()]
    if client := shutil.which("docker"):
        images = subprocess.run([client, "images", "--quiet"], capture_output=True, text=True, check=False)  # noqa: S603
        found += ["images in the engine"] if images.stdout.strip() else []
    return found


def main() -> None:
    """Time the command; keep the seconds by the environment that it has made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("request", nargs="?", default="pytorch:cu124")
    request = parser.parse_args().request
    if left := leftovers():
        raise SystemExit(f"not a bare machine: {', '.join(left)}")
    engine = "there" if Path("/var/run/docker.sock").exists() else "set up by the command"
    started = time.monotonic()
    done = subprocess.run([str(ROOT / "invoke"), "build", request, "--smoke"], check=False)  # noqa: S603
    seconds = round(time.monotonic() - started, 1)
    if done.returncode:
        raise SystemExit(done.returncode)
    print(f"{request}: {seconds} s, engine {engine}")
    program = KEEP.format(request=request, seconds=seconds, engine=engine)
    sys.exit(subprocess.run([str(ROOT / ".venv/bin/python"), "-c", program], cwd=ROOT, check=False).returncode)  # noqa: S603


if __name__ == "__main__":
    main()
