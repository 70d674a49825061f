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
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.contestant import Contestant  # noqa: E402
from bench.measured import keep, write_part  # noqa: E402
from trainwright.build.context import write_context  # noqa: E402
from trainwright.catalog.catalog import load_catalog  # noqa: E402
from trainwright.cli.output import say  # noqa: E402
from trainwright.core.layout import size  # noqa: E402
from trainwright.core.paths import images_dir, templates_dir  # noqa: E402
from trainwright.engine.engine import Engine, connect  # noqa: E402
from trainwright.plan.dockerfile import steps  # noqa: E402
from trainwright.plan.plan import Plan  # noqa: E402
from trainwright.plan.request import make_request  # noqa: E402
from trainwright.plan.resolve import resolve  # noqa: E402
from trainwright.site.site import load_site  # noqa: E402
from trainwright.sources.fetch import fetch_base  # noqa: E402
from trainwright.sources.gather import gather  # noqa: E402

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
    own = path.with_name("own.tar")
    shutil.copy2(path, own)  # the file of a context is a link to that of the machine's cache
    with tarfile.open(own, "a") as rootfs:
        update = tarfile.TarInfo("./usr/share/updated")
        update.size, update.mtime = 1_000_000, 1_700_000_000
        rootfs.addfile(update, io.BytesIO(bytes(1_000_000)))
    return own.replace(path).stat().st_size


class Bench:
    """Builds one after the other with one engine: the rows of the table, and the figures of the goals."""

    def __init__(self, scratch: Path, engine: Engine) -> None:
        self.scratch, self.site, self.catalog = scratch, load_site(), load_catalog(images_dir(), templates_dir())
        self.ours, self.recipe = (Contestant(name, engine, self.site, scratch) for name in ("trainwright", "recipe"))
        self.rows: list[str] = []
        self.found: dict[str, Any] = {}
        self.plain = self.context("plain")
        self.own: dict[str, int] = {}

    def plan(self, **words: str) -> Plan:
        return resolve(make_request(framework="pytorch", cuda="cpu", **words), self.catalog)

    def context(self, name: str, **words: str) -> Path:
        inputs = gather(self.plan(**words), self.catalog, self.site)
        write_context(fetch_base(inputs, say=say), self.scratch / name, say=say)
        return self.scratch / name

    def build(self, folder: Path, dockerfile: Path | None = None, *words: str) -> tuple[float, int, int]:
        """A build of ours."""
        return self._build(self.ours, folder, dockerfile or folder / "Dockerfile", *words)

    def _build(self, contestant: Contestant, folder: Path, dockerfile: Path, *words: str) -> tuple[float, int, int]:
        say(f"{contestant.name}: {dockerfile.name} of {folder.name} {' '.join(words)}")
        return contestant.build(folder, dockerfile, *words)

    def row(self, what: str, result: tuple[float, int, int], own: int | None = None) -> None:
        seconds, _, new = result
        ratio = f"{new / own:.2f}" if own else ""
        self.rows.append(f"| {what} | {seconds:.1f} s | {size(new)} | {ratio} |")

    def whole(self) -> None:
        """Everything, twice without the cache, and once more with it."""
        seconds, image, _ = self.build(self.plain, None, "--no-cache")
        first, self.ours.layers = self.ours.layers, {}
        self.row(f"everything ({len(first)} layers)", (seconds, image, image))
        self.build(self.plain, None, "--no-cache")
        self.own = sizes_by_source((self.plain / "Dockerfile").read_text(), self.ours)
        same = len({*first} & {*self.ours.layers})
        self.found |= {"image": image, "layers": len(first), "same_layers": same}
        self.row("nothing", self.build(self.plain))

    def parts(self) -> None:
        """One component after the other, and what is the user's."""
        changed = self.found["components"] = {}
        for name in COMPONENTS:
            self.ours.layers = {}
            self.build(self.plain)
            result = self.build(self.plain, with_a_file(self.plain, name))
            changed[name] = {"new": result[2], "own": self.own[name]}
            self.row(name, result, self.own[name])
        (self.scratch / "code").mkdir()
        for text in ("print(1)\n", "print(2)\n"):
            (self.scratch / "code" / "train.py").write_text(text)
            result = self.build(self.context("coded", code=str(self.scratch / "code"), entry_point="train.py"))
        self.row("the user's code", result)
        self.found["code_seconds"] = round(result[0], 1)
        asked = self.scratch / "requirements.txt"
        for text in ("toolz==1.0.0\n", "toolz==0.12.1\n"):  # 60 kB of pure Python: it is installed in no time
            asked.write_text(text)
            result = self.build(self.context("required", requirements=str(asked)))
        self.row("the user's requirements", result)
        self.found["requirements_seconds"] = round(result[0], 1)

    def second(self) -> None:
        """Another image with the same wheels. Its own are its components, the distribution's packages, and what is made
        of all of it."""
        self.build(self.plain)
        folder = self.context("second", for_="ec2")
        result = self.build(folder)
        parts = sizes_by_source((folder / "Dockerfile").read_text(), self.ours)
        names, there = ({c.name for c in plan.components} for plan in (self.plan(for_="ec2"), self.plan()))
        own = sum(parts.get(name, 0) for name in (names - there) | {"os", "bytecode", "final"})
        self.found["second"] = {"new": result[2], "own": own}
        self.row("another image with the same wheels (--for ec2)", result, own)

    def base(self) -> None:
        """The base, as a security update changes it; everything, METIS and the base of the recipe."""
        self.ours.layers = {}
        self.build(self.plain)
        updated = self.scratch / "updated"
        shutil.copytree(self.plain, updated)
        update_base(updated)
        own = self.own["base"] + self.own["os"]
        result = self.build(updated)
        self.found["base"] = {"new": result[2], "own": own}
        self.row("the base (a security update)", result, own)
        seconds, image, _ = self._build(self.recipe, self.plain, RECIPE, "--no-cache")
        self.row(f"the linear recipe: everything ({len(self.recipe.layers)} layers)", (seconds, image, image))
        option = ("--build-arg", "METIS_OPTIONS=shared=1 assert=1")
        result = self._build(self.recipe, self.plain, RECIPE, *option)
        self.row("the linear recipe: METIS", result, self.own["metis"])
        self.recipe.layers = {}
        self._build(self.recipe, self.plain, RECIPE)
        self.row("the linear recipe: the base", self._build(self.recipe, updated, RECIPE), own)


def base_of(bench: Bench, line: str) -> dict[str, Any]:
    """What a security update of the base makes anew in an image of a line, as ``framework:cuda``: bytes."""
    framework, _, cuda = line.partition(":")
    plan = resolve(make_request(framework=framework, cuda=cuda), bench.catalog)
    folder = bench.scratch / "line"
    write_context(fetch_base(gather(plan, bench.catalog, bench.site), say=say), folder, say=say)
    _, image, _ = bench.build(folder)
    parts = sizes_by_source((folder / "Dockerfile").read_text(), bench.ours)
    update_base(folder)
    new = bench.build(folder)[2]
    return {"line": line, "image": image, "new": new, "own": parts["base"] + parts["os"]}


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="replace the table in docs/benchmarks.md; keep the figures"
    )
    parser.add_argument("--base-of", metavar="LINE", help="only an update of the base, of a line such as pytorch:cu124")
    words = parser.parse_args()
    write = words.write
    with tempfile.TemporaryDirectory(prefix="trainwright-bench-") as folder:
        engine = connect(say=say)
        bench = Bench(Path(folder), engine)
        if words.base_of:
            print(found := base_of(bench, words.base_of))
            print(keep("base", found, engine) if write else "")
            return
        for part in (bench.whole, bench.parts, bench.second, bench.base):
            part()
    head = ["| changed | build | layers made anew | of its own size |", "| --- | --- | --- | --- |"]
    text = "\n".join([f"Measured on {datetime.now(UTC):%Y-%m-%d}.", "", *head, *bench.rows])
    print(text)
    if write:
        write_part(BEGIN, END, text)
        print(keep("layers", bench.found, engine))


if __name__ == "__main__":
    main()
