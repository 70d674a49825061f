"""Trainwright's cpu line against the linear recipe: seconds, bytes, and what a METIS change costs. Prints ratios."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.contestant import Contestant  # noqa: E402
from bench.measured import keep  # noqa: E402
from trainwright.build.context import write_context  # noqa: E402
from trainwright.catalog.catalog import load_catalog  # noqa: E402
from trainwright.cli.output import say  # noqa: E402
from trainwright.core.layout import size, table  # noqa: E402
from trainwright.core.paths import images_dir, templates_dir  # noqa: E402
from trainwright.core.runner import run  # noqa: E402
from trainwright.engine.engine import connect  # noqa: E402
from trainwright.plan.request import make_request  # noqa: E402
from trainwright.plan.resolve import resolve  # noqa: E402
from trainwright.site.site import load_site  # noqa: E402
from trainwright.sources.fetch import fetch_base  # noqa: E402
from trainwright.sources.gather import gather  # noqa: E402


def main() -> None:
    """Run both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cold", action="store_true", help="empty the engine's build cache before each first build")
    cold = parser.parse_args().cold
    engine, site = connect(say=say), load_site()
    with tempfile.TemporaryDirectory(prefix="trainwright-bench-") as folder:
        scratch = Path(folder)
        shutil.copytree(templates_dir(), scratch / "templates")
        ours, recipe = (Contestant(name, engine, site, scratch) for name in ("trainwright", "recipe"))
        first, changed = scratch / "first", scratch / "changed"
        request = make_request(framework="pytorch", cuda="cpu")
        catalog = load_catalog(images_dir(), scratch / "templates")
        write_context(fetch_base(gather(resolve(request, catalog), catalog, site), say=say), first, say=say)
        metis = scratch / "templates/components/metis/Dockerfile.j2"
        metis.write_text(metis.read_text().replace("config shared=1", "config shared=1 assert=1"))
        catalog = load_catalog(images_dir(), scratch / "templates")
        write_context(fetch_base(gather(resolve(request, catalog), catalog, site), say=say), changed, say=say)
        rows: dict[str, list[tuple[float, int, int]]] = {}
        for contestant, dockerfiles, option in (
            (ours, (first / "Dockerfile", changed / "Dockerfile"), ()),
            (recipe, (ROOT / "bench/recipe.Dockerfile",) * 2, ("--build-arg", "METIS_OPTIONS=shared=1 assert=1")),
        ):
            if cold:
                run([engine.client.path, "builder", "prune", "--all", "--force"])
            say(f"{contestant.name}: every step")
            whole = contestant.build(first, dockerfiles[0], "--no-cache")
            say(f"{contestant.name}: a METIS change")
            partly = contestant.build(changed if contestant is ours else first, dockerfiles[1], *option)
            rows[contestant.name] = [whole, partly]
    a, b = rows["trainwright"], rows["recipe"]
    print(
        table(
            [
                ("", "trainwright", "recipe", "recipe / trainwright"),
                ("build, s", f"{a[0][0]:.1f}", f"{b[0][0]:.1f}", f"{b[0][0] / a[0][0]:.1f}"),
                ("image", size(a[0][1]), size(b[0][1]), f"{b[0][1] / a[0][1]:.1f}"),
                ("METIS change, s", f"{a[1][0]:.1f}", f"{b[1][0]:.1f}", f"{b[1][0] / a[1][0]:.1f}"),
                ("new layers", size(a[1][2]), size(b[1][2]), f"{b[1][2] / max(1, a[1][2]):.0f}"),
            ]
        )
    )
    if cold:  # otherwise the wheels of ours came from the cache, and those of the recipe from the index
        recipe_s, ours_s = round(b[0][0], 1), round(a[0][0], 1)
        print(keep("cold", {"line": "pytorch:cpu", "seconds": ours_s, "recipe_seconds": recipe_s}, engine))


main()
