"""What a change of the cpu line builds anew, beside the linear recipe: seconds and bytes. Writes docs/benchmarks.md."""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.contestant import Contestant  # noqa: E402
from trainwright.build.context import write_context  # noqa: E402
from trainwright.catalog.catalog import load_catalog  # noqa: E402
from trainwright.cli.program import say  # noqa: E402
from trainwright.core.layout import size  # noqa: E402
from trainwright.core.paths import images_dir, templates_dir  # noqa: E402
from trainwright.engine.engine import connect  # noqa: E402
from trainwright.plan.dockerfile import steps  # noqa: E402
from trainwright.plan.request import make_request  # noqa: E402
from trainwright.plan.resolve import resolve  # noqa: E402
from trainwright.site.site import load_site  # noqa: E402
from trainwright.sources.fetch import fetch_base  # noqa: E402
from trainwright.sources.gather import gather  # noqa: E402

PAGE = ROOT / "docs/benchmarks.md"
BEGIN, END = "<!-- layers: written by bench/layers.py -->", "<!-- layers: end -->"
RECIPE = ROOT / "bench/recipe.Dockerfile"
IMAGE_STAGES = ("base", "os", "packages", "final")
COMPONENTS = ("python", "pytorch", "mpi4py", "sagemaker-toolkit", "metis")


def sizes_by_source(dockerfile: str, contestant: Contestant) -> dict[str, int]:
    """The stage or step that each layer of the image comes from, and its bytes."""
    made = [
        s for s in steps(dockerfile) if s.stage in IMAGE_STAGES and s.instruction.startswith(("RUN", "COPY", "ADD"))
    ]
    names = [
        s.instruction.split("--from=")[1].split()[0] if "--from=" in s.instruction.split("\n")[0] else s.stage
        for s in made
    ]
    found: dict[str, int] = {}
    for name, count in zip(names, contestant.layers.values(), strict=True):
        found[name.removesuffix("-layer")] = found.get(name.removesuffix("-layer"), 0) + count
    return found


def with_a_file(context: Path, name: str) -> Path:
    """A Dockerfile in which the stage of a component makes one file more, so that everything of it is made again."""
    text = (context / "Dockerfile").read_text()
    stage = name if f" AS {name}\n" in text else f"{name}-layer"
    head, start, rest = text.partition(f" AS {stage}\n")
    changed = context / f"Dockerfile.{name}"
    changed.write_text(f"{head}{start}RUN mkdir -p /out/opt && touch /out/opt/changed\n{rest}")
    return changed


def update_base(context: Path) -> int:
    """Replace a file of the base, as a security update does; the bytes of the base."""
    path = context / "base/rootfs.tar"
    with tarfile.open(path, "a") as rootfs:
        update = tarfile.TarInfo("./usr/share/updated")
        update.size, update.mtime = 1_000_000, 1_700_000_000
        rootfs.addfile(update, io.BytesIO(bytes(1_000_000)))
    return path.stat().st_size


def row(what: str, result: tuple[float, int, int], own: int | None = None) -> str:
    seconds, _, new = result
    ratio = f"{new / own:.2f}" if own else ""
    return f"| {what} | {seconds:.1f} s | {size(new)} | {ratio} |"


def measure(scratch: Path) -> list[str]:
    """The rows of the table, from builds one after the other with this machine's engine."""
    engine, site = connect(say=say), load_site()
    catalog = load_catalog(images_dir(), templates_dir())
    ours, recipe = (Contestant(name, engine, site, scratch) for name in ("trainwright", "recipe"))

    def context(name: str, **words: str) -> Path:
        request = make_request(framework="pytorch", cuda="cpu", **words)
        folder = scratch / name
        write_context(fetch_base(gather(resolve(request, catalog), catalog, site), say=say), folder, say=say)
        return folder

    def build(contestant: Contestant, folder: Path, dockerfile: Path, *words: str) -> tuple[float, int, int]:
        say(f"{contestant.name}: {dockerfile.name} of {folder.name} {' '.join(words)}")
        return contestant.build(folder, dockerfile, *words)

    plain = context("plain")
    dockerfile = plain / "Dockerfile"
    rows = []
    whole = build(ours, plain, dockerfile, "--no-cache")
    own = sizes_by_source(dockerfile.read_text(), ours)
    rows.append(row(f"everything ({len(ours.layers)} layers)", (whole[0], whole[1], whole[1])))
    rows.append(row("nothing", build(ours, plain, dockerfile)))
    for name in COMPONENTS:
        ours.layers = {}
        build(ours, plain, dockerfile)
        rows.append(row(name, build(ours, plain, with_a_file(plain, name)), own[name]))
    (scratch / "code").mkdir()
    for text in ("print(1)\n", "print(2)\n"):
        (scratch / "code" / "train.py").write_text(text)
        coded = context("coded", code=str(scratch / "code"), entry_point="train.py")
        result = build(ours, coded, coded / "Dockerfile")
    rows.append(row("the user's code", result))
    build(ours, plain, dockerfile)
    shutil.copytree(plain, scratch / "updated")
    updated = scratch / "updated"
    update_base(updated)
    rows.append(
        row("the base (a security update)", build(ours, updated, updated / "Dockerfile"), own["base"] + own["os"])
    )
    first = build(recipe, plain, RECIPE, "--no-cache")
    rows.append(row(f"the linear recipe: everything ({len(recipe.layers)} layers)", (first[0], first[1], first[1])))
    rows.append(
        row(
            "the linear recipe: METIS",
            build(recipe, plain, RECIPE, "--build-arg", "METIS_OPTIONS=shared=1 assert=1"),
            own["metis"],
        )
    )
    recipe.layers = {}
    build(recipe, plain, RECIPE)
    rows.append(row("the linear recipe: the base", build(recipe, updated, RECIPE), own["base"] + own["os"]))
    return rows


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the table in docs/benchmarks.md")
    write = parser.parse_args().write
    with tempfile.TemporaryDirectory(prefix="trainwright-bench-") as folder:
        rows = measure(Path(folder))
    head = ["| changed | build | layers made anew | of its own size |", "| --- | --- | --- | --- |"]
    text = "\n".join([f"Measured on {datetime.now(UTC):%Y-%m-%d}.", "", *head, *rows])
    print(text)
    if write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
