"""The goals of image sizes and times, and how far they are met: writes its table in docs/benchmarks.md.

Every figure comes from a file that a bench wrote (``bench/figures/``), or from a committed proof. Nothing is measured
here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.measured import PAGE, Measured, measured, with_part  # noqa: E402
from bench.sizes import FOR_GPUS  # noqa: E402
from trainwright.core.layout import size  # noqa: E402
from trainwright.proofs.proof import read  # noqa: E402

BEGIN, END = "<!-- goals: written by bench/goals.py -->", "<!-- goals: end -->"
PROOFS = ROOT / "proofs"
UNKNOWN = "not measured"
HEAD = ["| what | goal | measured | met | when, on what | by |", "| --- | --- | --- | --- | --- | --- |"]

Values = dict[str, Any]
# What a goal makes of the figures of its bench: a text, and whether the goal is met (None: a part is not measured).
Judge = Callable[[Values], tuple[str, bool | None]]


class Goal(NamedTuple):
    """A row of the table.

    Attributes:
        what: is to be reached.
        limit: as text.
        judge: what the figures say.
        name: of the measurement.
        by: the bench that makes it, with its words.
        about: of sizes, the request for the image.
    """

    what: str
    limit: str
    judge: Judge
    name: str
    by: str
    about: str = ""


def at_most(limit: float, key: str, unit: str) -> Judge:
    """One figure within a limit."""
    return lambda values: (f"{values[key]:g} {unit}", values[key] <= limit)


def times(limit: float) -> Judge:
    """The seconds of ours within so many times those of the recipe."""

    def judge(values: Values) -> tuple[str, bool]:
        ours, recipe = values["seconds"], values["recipe_seconds"]
        return f"{ours / recipe:.2f} ({ours:g} s, recipe {recipe:g} s; {values['line']})", ours <= limit * recipe

    return judge


def weight(unpacked: float, compressed: float | None = None) -> Judge:
    """The sizes of an image, in GB."""

    def judge(values: Values) -> tuple[str, bool | None]:
        pairs = [(values["unpacked"], unpacked * 1e9)]
        pairs += [(values.get("compressed"), compressed * 1e9)] if compressed is not None else []
        text = " / ".join(UNKNOWN if count is None else size(count) for count, _ in pairs)
        if any(count is not None and count > limit for count, limit in pairs):
            return text, False
        return text, None if any(count is None for count, _ in pairs) else True

    return judge


def components(values: Values) -> tuple[str, bool]:
    """What each changed component makes anew, of its own size."""
    ratios = {name: each["new"] / each["own"] for name, each in values["components"].items()}
    return ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()), max(ratios.values()) <= 1.1


def base(values: Values) -> tuple[str, bool]:
    """What a security update makes anew, of its own bytes and of the image."""
    new, own, image = values["new"], values["own"], values["image"]
    text = f"{new / own:.2f}, {new / image:.1%} ({size(new)}; {values['line']})"
    return text, new <= 1.1 * own and new <= 0.05 * image


def users(values: Values) -> tuple[str, bool]:
    """A change of the user's requirements, of a package that installs in no time, and of the user's code."""
    found = values["requirements_seconds"], values["code_seconds"]
    return f"{found[0]:g} s, {found[1]:g} s", max(found) <= 3


def second(values: Values) -> tuple[str, bool]:
    """What another image with the same wheels makes anew, of what only it has."""
    new, own = values["second"]["new"], values["second"]["own"]
    return f"{size(new)}; its own: {size(own)}", new <= 1.1 * own


def same(values: Values) -> tuple[str, bool]:
    """The layers that two builds without a cache have in common."""
    return f"{values['same_layers']} of {values['layers']} layers", values["same_layers"] == values["layers"]


def start(values: Values) -> tuple[str, bool]:
    """The seconds to the first line, and to torch."""
    return f"{values['first_line']:g} s / {values['import_torch']:g} s", values["import_torch"] <= 1.3


def warm(values: Values) -> tuple[str, bool]:
    """The milliseconds of a plan and of its Dockerfile."""
    plan, render = values["plan_ms"], values["render_ms"]
    return f"{plan + render:.1f} ms ({plan:g} + {render:g})", plan + render <= 2


def efa(values: Values) -> tuple[str, None]:
    """What NCCL's plugin adds to the image and to the seconds of a build of every step: nothing is asked of it."""
    ours, other = values["with"], values["without"]
    more = ours["unpacked"] - other["unpacked"], ours["compressed"] - other["compressed"]
    text = f"{size(more[0])} / {size(more[1])} more; {ours['seconds'] / other['seconds']:.2f} of its seconds"
    return f"{text} ({ours['seconds']:g} s, {other['seconds']:g} s)", None


SIZES, LAYERS = ("sizes", "sizes.py"), ("layers", "layers.py --write")
GOALS = (
    Goal("`cu124`: size, unpacked / compressed", "≤ 5.0 / 2.7 GB", weight(5.0, 2.7), *SIZES, "pytorch:cu124"),
    Goal("the same for A100 and H100 alone (`--for-gpus`)", "≤ 5.0 / 2.7 GB", weight(5.0, 2.7), *SIZES, FOR_GPUS),
    Goal(
        "the default CUDA line, with EFA (AWS's own: 21 to 28 GB)",
        "≤ 5.5 / 3.0 GB",
        weight(5.5, 3.0),
        *SIZES,
        "pytorch",
    ),
    Goal("the same beside one without aws-ofi-nccl: size, seconds of a build", "", efa, "efa", "efa.py"),
    Goal("`cpu`: size, unpacked", "≤ 0.9 GB", weight(0.9), *SIZES, "pytorch:cpu"),
    Goal("from a bare machine to a proven `cu124`", "≤ 100 s", at_most(100, "seconds", "s"), "bare", "bare.py"),
    Goal("cold build", "≤ 0.35 of the linear recipe's", times(0.35), "cold", "build_cpu.py --cold"),
    Goal(
        "security update of the base: made anew",
        "≤ 1.1 of its own bytes, ≤ 5 % of the image",
        base,
        "base",
        "layers.py --base-of pytorch:cu124 --write",
    ),
    Goal("one component changed: made anew", "≤ 1.1 of its size, each", components, *LAYERS),
    Goal("the user's requirements / code changed", "≤ 3 s, and what installs", users, *LAYERS),
    Goal("a second image with the same wheels: made anew", "≤ 1.1 of its own bytes", second, *LAYERS),
    Goal("two builds without a cache: the same digests", "all layers", same, *LAYERS),
    Goal("`build` without a change", "≤ 0.5 s", at_most(0.5, "seconds", "s"), "again", "again.py"),
    Goal("pull into an empty engine", "≤ 0.6 of the linear recipe's", times(0.6), "pull", "pull.py"),
    Goal(
        "start of a container to its first line / to `import torch`",
        "≤ 1.3 s",
        start,
        "start",
        "start.py --image IMAGE",
    ),
    Goal("`plan` and `render` of a line, warm", "≤ 2 ms", warm, "warm", "warm.py --write"),
)
# The lines of requests whose proofs have their size, for as long as no bench has weighed them.
PROVEN = {"pytorch:cu124": "pytorch/cu124", "pytorch:cpu": "pytorch/cpu"}


def proven(request: str) -> Measured | None:
    """The size of a line in its proof, which knows no compressed one."""
    path = PROOFS / f"{PROVEN.get(request, '')}.json"
    if not path.is_file():
        return None
    proof = read(path)
    where = f"Docker {proof.engine.server} (`{path.relative_to(ROOT)}`)"
    return Measured(date=proof.date[:10], machine=where, values={"unpacked": proof.size_bytes})


def figures(goal: Goal) -> Measured | None:
    """What was measured for a goal; ``None`` if nothing was."""
    found = measured(goal.name)
    if not goal.about:
        return found
    if found is None or goal.about not in found.values:
        return proven(goal.about)
    values = found.values[goal.about]
    return Measured(date=values.get("date", found.date), machine=values.get("machine", found.machine), values=values)


def rows() -> Iterator[str]:
    """A row of the table for each goal."""
    for goal in GOALS:
        found = figures(goal)
        by = f"`bench/{goal.by}`"
        if found is None:
            yield f"| {goal.what} | {goal.limit} | {UNKNOWN} |  |  | {by} |"
            continue
        text, met = goal.judge(found.values)
        word = {True: "yes", False: "**no**", None: ""}[met]
        yield f"| {goal.what} | {goal.limit} | {text} | {word} | {found.date}, {found.machine} | {by} |"


def with_goals(page: str) -> str:
    """docs/benchmarks.md with the table as the measurements have it now."""
    return with_part(page, BEGIN, END, "\n".join([*HEAD, *rows()]))


def main() -> None:
    """Print the table, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="replace the table in docs/benchmarks.md, as generate does"
    )
    if parser.parse_args().write:
        PAGE.write_text(with_goals(PAGE.read_text()))
    print(*HEAD, *rows(), sep="\n")


if __name__ == "__main__":
    main()
