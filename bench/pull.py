"""How long an engine without any image takes to pull the cpu line and the linear recipe from a registry: seconds.

The registry is on loopback, so what is measured is unpacking rather than a network. Each pull has a second engine of
its own with an empty disk, which needs root, ``dockerd``, and the packages of ``./invoke test``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.contestant import Contestant  # noqa: E402
from bench.measured import keep  # noqa: E402
from tests.doubles.registry import registry  # noqa: E402
from tests.e2e.conftest import _spare_engine  # noqa: E402
from trainwright.build.context import write_context  # noqa: E402
from trainwright.catalog.catalog import load_catalog  # noqa: E402
from trainwright.cli.output import say  # noqa: E402
from trainwright.core.runner import run  # noqa: E402
from trainwright.engine.engine import Engine, connect  # noqa: E402
from trainwright.plan.request import make_request  # noqa: E402
from trainwright.plan.resolve import resolve  # noqa: E402
from trainwright.site.site import load_site  # noqa: E402
from trainwright.sources.fetch import fetch_base  # noqa: E402
from trainwright.sources.gather import gather  # noqa: E402

RECIPE = ROOT / "bench/recipe.Dockerfile"


def docker(engine: Engine, *words: str) -> None:
    """Run the engine's client; its failure ends the bench."""
    done = run([engine.client.path, *words], env=engine.cli_env)
    if not done.ok:
        raise SystemExit(f"docker {' '.join(words)}: {done.tail(5)}")


def pull(engine: Engine, reference: str) -> float:
    """Seconds that an engine with an empty disk takes to pull an image."""
    # A socket's path may have 107 characters at most.
    with _spare_engine(Path(tempfile.mkdtemp(prefix="tw-")), None, False) as spare:
        started = time.monotonic()
        docker(engine, "-H", spare.endpoint, "pull", "--quiet", reference)
        return time.monotonic() - started


def main() -> None:
    """Build both, push them, pull them in turns, and keep the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="pulls of each image")
    words = parser.parse_args()
    engine, site = connect(say=say), load_site()
    catalog = load_catalog()
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), catalog)
    took: dict[str, list[float]] = {"trainwright": [], "recipe": []}
    with tempfile.TemporaryDirectory(prefix="trainwright-bench-") as folder:
        scratch, context = Path(folder), Path(folder, "context")
        write_context(fetch_base(gather(plan, catalog, site), say=say), context, say=say)
        for name, dockerfile in (("trainwright", context / "Dockerfile"), ("recipe", RECIPE)):
            say(f"building {name}")
            Contestant(name, engine, site, scratch).build(context, dockerfile)
        with registry(scratch / "registry") as port:
            references = {name: f"127.0.0.1:{port}/bench/{name}:1" for name in took}
            try:
                for name, reference in references.items():
                    docker(engine, "tag", (scratch / f"{name}.id").read_text().strip(), reference)
                    docker(engine, "push", "--quiet", reference)
                for _ in range(words.rounds):
                    for name, reference in references.items():
                        took[name].append(pull(engine, reference))
                        say(f"{name}: {took[name][-1]:.1f} s")
            finally:
                run([engine.client.path, "rmi", *references.values()], env=engine.cli_env)
    ours, recipe = (round(statistics.median(took[name]), 1) for name in ("trainwright", "recipe"))
    print(f"trainwright {ours} s, recipe {recipe} s, ratio {ours / recipe:.2f}")
    print(keep("pull", {"line": "pytorch:cpu", "seconds": ours, "recipe_seconds": recipe}, engine))


if __name__ == "__main__":
    main()
