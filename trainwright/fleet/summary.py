"""What came of a run, in the run's folder: ``summary.json``, ``summary.md`` and ``junit.xml``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from trainwright.core.junit import Case, Outcome, write_junit
from trainwright.core.layout import duration, size, table
from trainwright.core.owned import write_atomically
from trainwright.core.records import Document, Field
from trainwright.fleet.fleet import exit_code
from trainwright.fleet.run_folder import RunFolder, UnitError, UnitProgress
from trainwright.push.tagging import TagRow
from trainwright.report.markdown import MARK, code, plain

JUNIT, MARKDOWN, JSON = "junit.xml", "summary.md", "summary.json"
_OUTCOMES: dict[str, Outcome] = {"built": "passed", "failed": "failed"}


class SetTags(Document):
    """The moving tags of a run with ``--push``, which move together when all of its lines are in the registry."""

    state: Literal["moved", "left", "failed"] = Field(
        description="left: a line is not built, or --leave-tags; failed: a proof is missing, or AWS refused"
    )
    command: str = Field(description="moves them later, when all images are in the registry")
    tags: tuple[TagRow, ...] = ()
    error: UnitError | None = None


class FleetDocument(Document):
    """``build --images --json``."""

    schema: Literal["trainwright/fleet/1"]
    run: str
    folder: str
    images: str = Field(description="the words of --images")
    outcome: Literal["built", "failed", "interrupted"]
    exit_code: int
    seconds: float = Field(description="of this command; of a resumed run, without those before")
    lines: tuple[UnitProgress, ...]
    stages: tuple[UnitProgress, ...] = Field(description="that several lines share, built by this command")
    moving: SetTags | None = Field(
        default=None,
        description="moving tags of the set; none without --push, and with --stale, where each line moves its own",
    )

    def count(self, state: str) -> int:
        """How many lines are in a state."""
        return sum(line.state == state for line in self.lines)


def summary(
    folder: RunFolder,
    lines: Sequence[UnitProgress],
    stages: Sequence[UnitProgress],
    *,
    seconds: float,
    moving: SetTags | None = None,
) -> FleetDocument:
    """The summary of a run.

    Args:
        folder: of the run.
        lines: all of its lines, in order, those of earlier commands among them.
        stages: what this command built of shared stages.
        seconds: that this command took.
        moving: the moving tags of the set.
    """
    unfinished = any(line.state in ("pending", "running") for line in lines)
    refused = moving.error if moving is not None else None
    failed = refused is not None or any(line.state == "failed" for line in lines)
    return FleetDocument(
        schema="trainwright/fleet/1",
        run=folder.run.id,
        folder=str(folder.path),
        images=folder.run.images,
        outcome="interrupted" if unfinished else "failed" if failed else "built",
        exit_code=exit_code(lines) or (refused.exit_code if refused is not None else 0),
        seconds=round(seconds, 1),
        lines=tuple(lines),
        stages=tuple(stages),
        moving=moving,
    )


def write_summary(folder: RunFolder, document: FleetDocument) -> None:
    """Write the three files, in place of those of an earlier command of the run."""
    write_atomically(folder.path / JSON, json.dumps(document.as_json(), indent=1) + "\n")
    write_atomically(folder.path / MARKDOWN, markdown(document))
    write_junit(folder.path / JUNIT, "trainwright build", [_case(unit) for unit in document.lines])


def _case(line: UnitProgress) -> Case:
    why = ""
    if line.error is not None:
        why = f"{line.error.message}\n{line.error.remedy}\nlog: {line.log}"
    elif line.state != "built":
        why = line.state
    return Case("lines", line.name, _OUTCOMES.get(line.state, "skipped"), why, line.seconds)


def markdown(document: FleetDocument) -> str:
    """The summary as Markdown; what it quotes of logs is escaped."""
    rows = [("line", "state", "time", "size", "tag or reason"), ("---",) * 5]
    for line in document.lines:
        why = code(line.tags[0]) if line.tags else plain(_first(line))
        rows.append((plain(line.name), line.state, duration(line.seconds), _size(line), why))
    parts = [MARK, f"# Build of {code(document.images)}", _counts(document)]
    parts.append("\n".join(f"| {' | '.join(cell or ' ' for cell in row)} |" for row in rows))
    if document.stages:
        shared = [f"- {plain(', '.join(unit.stages))}: {unit.state}" for unit in document.stages]
        parts += ["## Shared stages", "\n".join(shared)]
    if document.moving is not None:
        said = "\n".join(f"- {plain(line)}" for line in _tags(document.moving))
        parts += [
            "## Moving tags",
            said if document.moving.state == "moved" else f"{said}\n- {code(document.moving.command)}",
        ]
    return "\n\n".join(parts) + "\n"


def text(document: FleetDocument) -> str:
    """The summary for a terminal: a row per line, under those that failed the reason, and what to do next."""
    rows = [
        (line.name, line.state, duration(line.seconds), line.tags[0] if line.tags else "") for line in document.lines
    ]
    lines = []
    for row, line in zip(table(rows).splitlines(), document.lines, strict=True):
        lines.append(row)
        if line.error is not None:
            lines += [
                f"    {each}" for each in (*line.error.message.splitlines()[:6], *line.error.remedy.splitlines()[:3])
            ]
    page = f"page    ./invoke report --run {document.run}"
    lines += ["", _counts(document), f"run     {document.folder}", page]
    if document.moving is not None:
        lines += [f"tags    {line}" for line in _tags(document.moving)]
        if document.moving.state != "moved":
            lines.append(f"move    {document.moving.command}")
    if document.outcome != "built":
        lines.append(f"next    ./invoke build --resume {document.run}")
    return "\n".join(lines)


def _tags(moving: SetTags) -> list[str]:
    """What became of the moving tags of the set; those that were kept by their names."""
    if moving.error is not None:
        return [*moving.error.message.splitlines(), *moving.error.remedy.splitlines()]
    if moving.state == "left":
        return ["no moving tag of the set was moved; when every image is in the registry, this moves them:"]
    counts = Counter(row.state for row in moving.tags)
    kept = [f"{row.tag} ({row.region}): {row.held or 'kept'}" for row in moving.tags if row.state == "kept"]
    return [", ".join(f"{number} {state}" for state, number in counts.items()) or "the set has no moving tag", *kept]


def _counts(document: FleetDocument) -> str:
    counts = [
        f"{number} {state}" for state in ("built", "failed", "skipped", "pending") if (number := document.count(state))
    ]
    return f"{', '.join(counts) or 'nothing to build'}, {duration(document.seconds)}"


def _first(line: UnitProgress) -> str:
    return next(iter(line.error.message.splitlines()), "") if line.error is not None else ""


def _size(line: UnitProgress) -> str:
    return size(line.size_bytes) if line.size_bytes else ""
