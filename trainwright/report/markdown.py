"""Reports as Markdown: a release note, or the summary of a build service's run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from trainwright.catalog.listing import LineRow, by_framework, cuda_tags
from trainwright.core.layout import change, size
from trainwright.core.text import printable
from trainwright.report.documents import CatalogDocument, Comparison, ReportDocument
from trainwright.report.timing import clock, timing_of
from trainwright.report.vulnerabilities import said, scanned
from trainwright.scan.documents import ScanDocument

MARK = "<!-- Made by Trainwright -->"
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&])")
_HEAVIEST = 12
NOTHING = "-"


def image_markdown(report: ReportDocument) -> str:
    """The report of an image. Names in it come from packages and files of other people, and are escaped."""
    cuda = "CPU only" if report.cuda == "cpu" else f"CUDA {report.cuda}"
    smoke = report.smoke
    fitting = sum(row.fits for row in report.facts)
    rows = [
        ("image", code(report.image)),
        ("contents", f"{report.framework} {report.version}, {cuda}, Python {report.python}, {report.base}"),
        ("id", code(report.image_id)),
        *([("in the registry", code(report.pushed))] if report.pushed else []),
        ("plan", code(report.plan[:12])),
        ("size", f"{size(report.size_bytes)} unpacked" + (f", {len(report.layers)} layers" if report.layers else "")),
        ("built", f"{report.built_at}, in {clock(report.seconds)}"),
        ("facts", f"{fitting} of {len(report.facts)} as planned"),
        (
            "smoke tests",
            "not run" if smoke is None else f"{smoke.passed} passed, {smoke.failed} failed, {smoke.skipped} skipped",
        ),
        *(
            ("rehearsal", f"{run.outcome}: {plain(run.entry_point)} on {run.hosts_asked} hosts")
            for run in report.rehearsals[:3]
        ),
        ("proof of its line", report.proof.text),
    ]
    parts = [MARK, f"# {plain(report.image.removeprefix('trainwright/'))}", table(("", ""), rows)]
    if report.differences:
        parts += ["## Not as planned", "\n".join(f"- {plain(line)}" for line in report.differences)]
    if smoke is not None and smoke.failed:
        failed = [row for row in smoke.rows if row.outcome == "failed"]
        parts += [
            "## Failed tests",
            table(
                ("component", "check", "reason"),
                [tuple(map(plain, (r.component, r.check, r.reason[:300]))) for r in failed],
            ),
        ]
    if report.scan is not None:
        parts += ["## Vulnerabilities", scan_markdown(report.scan)]
    if report.against is not None:
        parts += [f"## Compared with {plain(report.against.before)}", comparison_markdown(report.against)]
    heaviest = sorted(report.components, key=lambda row: -row.bytes)[:_HEAVIEST]
    parts += [
        "## Components",
        table(
            ("component", "version", "from", "bytes"),
            [(plain(r.name), plain(r.version), plain(r.provider), size(r.bytes)) for r in heaviest if r.bytes],
        ),
    ]
    if report.timeline is not None and (timing := timing_of(report.timeline)) is not None:
        parts.append(
            f"{clock(timing.work)} of work in {clock(timing.seconds)}, up to {timing.most} steps side by side."
        )
    python = [each for each in report.packages if each.kind == "python"]
    if python:
        listed = table(
            ("package", "version", "licence"), [(plain(p.name), plain(p.version), plain(p.licence)) for p in python]
        )
        parts.append(f"<details><summary>{len(python)} Python packages</summary>\n\n{listed}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def scan_markdown(scan: ScanDocument) -> str:
    """What the last scan found."""
    parts = [scanned(scan)]
    if scan.vulnerabilities:
        rows = [
            (
                row.level,
                plain(row.package),
                code(row.version),
                plain(row.id),
                plain(row.fixed or NOTHING),
                plain(said(row)),
            )
            for row in scan.vulnerabilities
        ]
        parts.append(table(("severity", "package", "version", "id", "fixed in", ""), rows))
    return "\n\n".join(parts)


def comparison_markdown(found: Comparison) -> str:
    """What differs, and what a pull costs."""
    parts = []
    if (pull := found.pull) is not None:
        parts.append(
            f"A pull where {code(found.before)} is: {size(pull.new_bytes)} unpacked in {pull.new_layers} of "
            f"{pull.layers} layers by containerd, {size(pull.above_bytes)} in {pull.above_layers} by Docker's store."
        )
    if found.weights:
        sizes = [(plain(w.name), size(w.before), size(w.after), change(w.before, w.after)) for w in found.weights]
        parts.append(table(("component", "before", "after", "bytes"), sizes))
    if found.changes:
        rows = [
            (
                plain(c.part),
                code(c.name),
                code(c.before) if c.before else NOTHING,
                code(c.after) if c.after else NOTHING,
            )
            for c in found.changes
        ]
        parts.append(table(("part", "name", "before", "after"), rows))
    else:
        parts.append("Nothing differs.")
    return "\n\n".join(parts)


def catalog_markdown(report: CatalogDocument) -> str:
    """The report of a catalog: a matrix, and a table for each framework."""
    parts = [MARK, "# Image lines", f"{len(report.lines)} lines, as of {report.made_at[:10]}."]
    if report.against:
        parts.append(f"## What is new since {report.against[:10]}")
        rows = [(plain(c.name), plain(c.before) or NOTHING, plain(c.after) or NOTHING) for c in report.news]
        parts.append(table(("line", "before", "now"), rows) if rows else "Nothing.")
    return "\n\n".join([*parts, *lines_markdown(report.lines)]) + "\n"


def lines_markdown(rows: Iterable[LineRow]) -> Iterator[str]:
    """Image lines: the newest version of each framework for each CUDA version, and a table for each framework."""
    groups = by_framework(rows)
    tags = cuda_tags(each for own in groups.values() for each in own)
    yield table(
        ("framework", *tags), [(plain(name), *(_newest(own, tag) for tag in tags)) for name, own in groups.items()]
    )
    for name, own in groups.items():
        yield f"## {plain(name)}"
        yield table(("line", "version", "CUDA", "Python", "os", "status", "proof", "size"), [*map(_cells, own)])


def _cells(row: LineRow) -> tuple[str, ...]:
    texts = (row.version, row.cuda, row.python, row.base, row.status, row.proof.text)
    weight = "" if row.size_bytes is None else size(row.size_bytes)
    mark = r" \*" if row.bare else ""
    return (code(f"{row.framework}/{row.name}") + mark, *map(plain, texts), weight)


def _newest(rows: Sequence[LineRow], tag: str) -> str:
    """The newest version that was ever published for a CUDA version, bold if it is proven; lines are sorted."""
    own = [row for row in rows if row.cuda == tag]
    own = [row for row in own if row.status != "unreleased"] or own
    if not own:
        return ""
    version = plain(own[0].version)
    return f"**{version}**" if any(r.proof.state == "proven" for r in own if r.version == own[0].version) else version


def plain(text: str) -> str:
    """Text in a cell or a heading, in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(printable(text, allowed="").split()))


def code(text: str) -> str:
    """Text as code, in a cell: its backticks are replaced, as nothing escapes them there."""
    return "`" + " ".join(printable(text, allowed="").replace("`", "'").replace("|", "\\|").split()) + "`"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; its cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)
