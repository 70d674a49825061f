"""`plan` and `render` of every image line in one process that has done so before: milliseconds for each line."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trainwright.catalog.catalog import load_catalog  # noqa: E402
from trainwright.plan.identity import same_templates  # noqa: E402
from trainwright.plan.of_line import plan_of  # noqa: E402
from trainwright.plan.rendered import render_dockerfile  # noqa: E402


def main() -> None:
    """Measure, print, and keep the figures if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="over the whole catalog, after one that does not count")
    parser.add_argument("--write", action="store_true", help="keep the figures in bench/figures/")
    words = parser.parse_args()
    catalog = load_catalog()
    lines = catalog.lines
    took: dict[str, list[float]] = {"plan": [], "render": []}  # ms of the processor for each line
    for round_ in range(words.rounds + 1):
        with same_templates():
            began = time.process_time()
            plans = [plan_of(entry, catalog) for entry in lines]
            planned = time.process_time()
            for plan in plans:
                render_dockerfile(plan, catalog)
            ended = time.process_time()
        if round_:
            took["plan"].append((planned - began) * 1000 / len(lines))
            took["render"].append((ended - planned) * 1000 / len(lines))
    values = {f"{name}_ms": round(statistics.median(each), 2) for name, each in took.items()}
    for name, each in took.items():
        print(
            f"{name}: {statistics.median(each):.2f} ms of the processor for each of {len(lines)} lines, "
            f"{min(each):.2f} at best"
        )
    if words.write:
        from bench.measured import keep

        print(keep("warm", {**values, "lines": len(lines), "rounds": words.rounds}))


if __name__ == "__main__":
    main()
