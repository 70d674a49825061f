"""All image lines for a page: versions of each framework over versions of CUDA, and what is new since another one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.listing import lines
from trainwright.catalog.wheel_lock import Lock
from trainwright.core.data_files import read_json
from trainwright.core.errors import Failure
from trainwright.core.records import parse_record
from trainwright.plan.request import make_request
from trainwright.plan.resolve import bare_of, resolve
from trainwright.proofs.expected import sizes_of
from trainwright.proofs.standing import of_lines
from trainwright.report.compare import changes
from trainwright.report.documents import CatalogDocument, CatalogLine


def catalog_report(catalog: Catalog, against: Path | None = None) -> CatalogDocument:
    """The report of a catalog.

    Args:
        catalog: has the lines.
        against: an earlier report of a catalog, as JSON.

    Raises:
        RequestError: ``against`` is not such a report, or a proof was edited.
    """
    entries = list(catalog.lines)
    rows = lines(catalog, entries, of_lines(entries, catalog), sizes_of(entries), bare_of(catalog)).lines
    defaults = _defaults(catalog)
    found = tuple(
        CatalogLine(
            **row.as_json(),
            download_bytes=sum(package.size or 0 for package in Lock.load(entry.lock_path).packages)
            if entry.lock_path.is_file()
            else 0,
            default=(row.framework, row.cuda, row.version, row.python, row.base, row.kind) in defaults,
        )
        for entry, row in zip(entries, rows, strict=True)
    )
    before = None if against is None else parse_record(CatalogDocument, read_json(against), str(against))
    return CatalogDocument(
        schema="trainwright/catalog/1",
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        lines=found,
        news=() if before is None else tuple(changes("image lines", _said(before.lines), _said(found))),
        against="" if before is None else before.made_at,
    )


def _said(rows: tuple[CatalogLine, ...]) -> dict[str, str]:
    """What a page shows of each line, by its name."""
    return {
        f"{row.framework}/{row.name}": f"{row.version}, {row.cuda}, Python {row.python}, {row.base}; {row.status}; "
        f"proof: {row.proof.text}"
        for row in rows
    }


def _defaults(catalog: Catalog) -> set[tuple[str, ...]]:
    """What a request for each framework and CUDA gets, by what tells lines apart."""
    found: set[tuple[str, ...]] = set()
    for framework, tag in {(entry.line.framework, entry.line.cuda_tag) for entry in catalog.lines}:
        try:
            plan = resolve(make_request(short=f"{framework}:{tag}"), catalog)
        except Failure:  # some lines are for a request that says more
            continue
        found.add((framework, tag, plan.version, plan.python, plan.base.os, plan.base.kind))
    return found
