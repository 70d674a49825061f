"""Cold `plan` and `list` beside `hpccm` (HPC Container Maker) on a recipe of the same stack: seconds and ratios."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECIPE = Path(__file__).with_name("recipe_hpccm.py")
PLAN = ("plan", "--framework", "pytorch", "--version", "2.6.0", "--cuda", "cu124")


@dataclass
class Contestant:
    """A command that answers and ends, and what its runs took: seconds of the clock, and of the processors."""

    name: str
    argv: Sequence[str]
    says: str  # in its answer, so that one that fails early does not win
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def run(self, folder: Path) -> None:
        """Run it once, in a process of its own."""
        before, started = os.times(), time.perf_counter()
        done = subprocess.run(self.argv, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
        seconds, after = time.perf_counter() - started, os.times()
        if done.returncode or self.says not in done.stdout:
            raise SystemExit(f"{self.name}: exit {done.returncode}: {done.stderr or done.stdout}")
        self.wall.append(seconds)
        self.cpu.append(after.children_user + after.children_system - before.children_user - before.children_system)


def forget(folders: Sequence[Path]) -> None:
    """Ask the system to drop files from its page cache, which needs no rights; what another process maps may stay."""
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)


def hpccm(folder: Path) -> Path:
    """HPC Container Maker from the package index, in an environment of its own; its bytecode is made, as ours is."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)  # noqa: S603
    subprocess.run([str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "hpccm"], check=True)  # noqa: S603
    subprocess.run([str(folder / "bin/python"), "-m", "compileall", "-q", str(folder / "lib")], check=False)  # noqa: S603
    return folder / "bin/hpccm"


def row(one: Contestant, rival: Contestant) -> str:
    """Median, quartiles and ratio of a contestant, as a line of the table."""
    low, middle, high = statistics.quantiles(one.wall, n=4)
    ratio = middle / statistics.median(rival.wall)
    cpu = statistics.median(one.cpu) / statistics.median(rival.cpu)
    return f"| {one.name} | {middle:.3f} | {low:.3f} to {high:.3f} | {ratio:.2f} | {cpu:.2f} |"


def main() -> None:
    """Run the contestants in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each command (at least 2)")
    parser.add_argument("--page-cache", choices=("warm", "cold"), default="warm", help="cold: files come from the disk")
    words = parser.parse_args()
    environ = os.environ
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    ours = [str(ROOT / "tasks.py")]
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / "trainwright"), *ours], check=True)  # noqa: S603
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rival = Contestant("hpccm", (str(hpccm(folder / "hpccm")), "--recipe", str(RECIPE)), "torch==2.6.0")
        contestants = [
            rival,
            Contestant("plan", (sys.executable, *ours, *PLAN), "pytorch 2.6.0"),
            Contestant("list", (sys.executable, *ours, "list"), "tensorflow"),
            Contestant("list, one framework", (sys.executable, *ours, "list", "--framework", "pytorch"), "pytorch"),
        ]
        read = [ROOT, folder / "hpccm", Path(sys.prefix), Path(sysconfig.get_path("stdlib"))]
        for number in range(words.rounds + 1):
            for one in contestants:
                if words.page_cache == "cold":
                    forget(read)
                one.run(folder)
            if number == 0:  # the first round makes what is missing of bytecode
                for one in contestants:
                    one.wall.clear()
                    one.cpu.clear()
        print(f"{words.rounds} rounds in turns, page cache {words.page_cache}, load {os.getloadavg()[0]:.1f}")
        print("| command | median s | quartiles | / hpccm | CPU / hpccm |\n| --- | --- | --- | --- | --- |")
        print("\n".join(row(one, rival) for one in contestants))


if __name__ == "__main__":
    main()
