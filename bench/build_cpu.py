"""Trainwright's cpu line against the linear recipe: seconds, bytes, and what a METIS change costs. Prints ratios."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trainwright.build.context import write_context  # noqa: E402
from trainwright.catalog.catalog import load_catalog  # noqa: E402
from trainwright.cli.program import say  # noqa: E402
from trainwright.core.paths import images_dir, templates_dir  # noqa: E402
from trainwright.core.runner import run  # noqa: E402
from trainwright.engine.engine import Engine, connect  # noqa: E402
from trainwright.plan.request import make_request  # noqa: E402
from trainwright.plan.resolve import resolve  # noqa: E402
from trainwright.site.site import Site, load_site  # noqa: E402
from trainwright.sources.fetch import fetch_base  # noqa: E402
from trainwright.sources.gather import gather  # noqa: E402
from trainwright.verbs.show import size, table  # noqa: E402


class Contestant:
    """A Dockerfile in a context; builds of it are timed, its images weighed."""

    def __init__(self, name: str, engine: Engine, site: Site, scratch: Path) -> None:
        self.name, self.engine, self.site, self.scratch = name, engine, site, scratch
        self.layers: list[dict[str, object]] = []

    def build(self, context: Path, dockerfile: Path, *words: str) -> tuple[float, int, int]:
        """Seconds, bytes of the image, bytes of the layers that the build before did not have."""
        identity = self.scratch / f"{self.name}.id"
        argv = [self.engine.client.path, "build", "--iidfile", str(identity), "-f", str(dockerfile), *words]
        for key, path in self.site.secrets(self.scratch / "secrets").items():
            argv += ["--secret", f"id={key},src={path}"]
        started = time.monotonic()
        done = run([*argv, str(context)], env=self.engine.cli_env)
        seconds = time.monotonic() - started
        if not done.ok:
            raise SystemExit(f"{self.name}: {done.tail(20)}")
        client = self.engine.client.path
        image = identity.read_text()
        total = int(run([client, "image", "inspect", "--format", "{{.Size}}", image]).stdout)
        digests = json.loads(run([client, "image", "inspect", "--format", "{{json .RootFS.Layers}}", image]).stdout)
        rows = run([client, "history", "--human=false", "--format", "{{.Size}}", image]).stdout.split()
        sizes = [int(row) for row in reversed(rows) if int(row) > 0]
        # Empty layers have no row of their own size, so only the tail of both lists is compared.
        known = {layer["digest"] for layer in self.layers}
        new = [d for d in digests if d not in known]
        fresh = sum(sizes[len(sizes) - len(new) :]) if known else total
        self.layers = [{"digest": d} for d in digests]
        return seconds, total, fresh


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


main()
