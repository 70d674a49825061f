"""What EFA for NCCL costs: the default CUDA image beside the one without aws-ofi-nccl, in bytes and build seconds."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.measured import keep  # noqa: E402
from bench.sizes import build, weigh  # noqa: E402
from trainwright.cli.output import say  # noqa: E402
from trainwright.core.layout import size, table  # noqa: E402
from trainwright.engine.engine import connect  # noqa: E402

REQUESTS = {"with": "pytorch", "without": "pytorch --without aws-ofi-nccl"}


def every_step(request: str, site: str) -> float:
    """Seconds of a build of every step; downloads stay in the engine's cache, so the network is not timed."""
    started = time.monotonic()
    if build(request, site, "--no-cache", stdout=subprocess.DEVNULL).returncode:
        raise SystemExit(f"{request}: the build failed")
    return time.monotonic() - started


def main() -> None:
    """Build and weigh both, build both again, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", default="", help="a site file, where the plugin's archive is in a folder")
    site = parser.parse_args().site
    engine = connect(say=say)
    found = {name: weigh(engine, request, site) for name, request in REQUESTS.items()}
    for name, request in REQUESTS.items():
        say(f"{request}: every step again")
        found[name]["seconds"] = round(every_step(request, site), 1)
    rows = [("", *REQUESTS, "with / without")]
    for key, text in (("unpacked", size), ("compressed", size), ("seconds", str)):
        a, b = (found[name][key] for name in REQUESTS)
        rows.append((key, text(a), text(b), f"{a / b:.3f}"))
    print(table(rows))
    print(keep("efa", found, engine))


if __name__ == "__main__":
    main()
