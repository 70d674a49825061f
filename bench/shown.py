"""The table of the fleet in docs/benchmarks.md: what its benches measured. Nothing is measured here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.measured import PAGE, Measured, measured, with_part  # noqa: E402
from trainwright.core.layout import size  # noqa: E402

BEGIN, END = "<!-- fleet: written by bench/shown.py -->", "<!-- fleet: end -->"
HEAD = ["| what | measured | when, on what | by |", "| --- | --- | --- | --- |"]
SIMULATED = (
    "`bench/fleet.py --write`",
    "100 image lines, simulated: lines per hour, by builders, one machine each; from how many on the client decides",
)
MEASURED = {
    "built": "four small lines without a cache on one engine: lines per hour, by builds at a time",
    "uploaded": "an image for two regions of three accounts: what the client sends",
    "promoted": "promote between two accounts, from registry to registry",
    "raced": "two pushers that race for one tag, in random orders of their calls",
}


def with_fleet(page: str) -> str:
    """docs/benchmarks.md with the table as the measurements have it now."""
    return with_part(page, BEGIN, END, "\n".join([*HEAD, *rows()]))


def rows() -> Iterator[str]:
    """A row of the table for each measurement."""
    by, what = SIMULATED
    found = measured("fleet")
    yield _row(what, simulated(found) if found else "", found, by)
    for name, what in MEASURED.items():
        found = measured(f"fleet-{name}")
        yield _row(what, TEXTS[name](found.values) if found else "", found, f"`bench/accounts.py {name}`")


def _row(what: str, text: str, found: Measured | None, by: str) -> str:
    when = f"{found.date}, {found.machine}" if found else ""
    return f"| {what} | {text or 'not measured'} | {when} | {by} |"


def simulated(found: Measured) -> str:
    """The lines per hour of the simulation, by builders, and from how many on the client decides."""
    texts = []
    for way, what in (("results", "proof alone comes back"), ("images", "images come back, too")):
        of = found.values[way]
        hourly = ", ".join(f"{row['builders']}: {row['lines_per_hour']}" for row in of["rows"])
        texts.append(f"{what}: {hourly}; the client's {of['what']} from {of['builders']} builders on")
    return "<br>".join(texts)


def built(values: dict[str, float]) -> str:
    """The lines per hour of real builds; ``values``: builds at a time (as text) to the seconds of four lines."""
    return ", ".join(f"{jobs}: {4 * 3600 / seconds:.0f} ({seconds:.0f} s)" for jobs, seconds in sorted(values.items()))


def uploaded(values: dict[str, int]) -> str:
    """The bytes that a push sent, of those that its image has, and into how many registries it came."""
    share = values["sent"] / values["image"]
    return (
        f"{size(values['sent'])}, {share:.2f} of the image, into {values['registries']} registries; "
        f"again: {size(values['again'])}"
    )


def promoted(values: dict[str, float]) -> str:
    """The seconds of a promotion, beside a pull and a push through an engine."""
    ours, docker = values["seconds"], values["docker_seconds"]
    return f"{size(int(values['bytes']))} in {ours:g} s; docker pull and push {docker:g} s; ratio {ours / docker:.2f}"


def raced(values: dict[str, float]) -> str:
    """The orders of calls that were tried, and after how many something was lost."""
    return f"{values['orders']:,} orders, {values['lost']} with something lost ({values['seconds']:g} s)"


TEXTS = {"built": built, "uploaded": uploaded, "promoted": promoted, "raced": raced}


def main() -> None:
    """Print the table, and write the page."""
    PAGE.write_text(with_fleet(PAGE.read_text()))
    print(*HEAD, *rows(), sep="\n")


if __name__ == "__main__":
    main()
