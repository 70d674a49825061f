"""Vulnerability databases for tests: records as published (``tests/corpus/osv``), and records of one's own."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainwright.core.records import read_record
from trainwright.scan.osv import OsvRecord

FOLDER = Path(__file__).resolve().parents[1] / "corpus" / "osv"


def published(name: str) -> OsvRecord:
    """A record of the corpus: ``PyPI/PYSEC-2023-74``."""
    return read_record(OsvRecord, json.loads((FOLDER / f"{name}.json").read_text()))


def record(id: str, package: str, *events: dict[str, str], ecosystem: str = "Debian:12", **more: Any) -> dict[str, Any]:
    """A record about one package, as OSV's export writes it."""
    specific = more.pop("ecosystem_specific", None)
    affected: dict[str, Any] = {
        "package": {"ecosystem": ecosystem, "name": package},
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
    }
    if specific is not None:
        affected["ecosystem_specific"] = specific
    return {"id": id, "modified": "2026-11-01T00:00:00Z", "affected": [affected], **more}


def database(root: Path, *records: dict[str, Any], packed: Iterable[str] = ()) -> Path:
    """A database of the published records of Python packages and others, in the layout of OSV's export.

    Args:
        root: the folder to write it to.
        records: others, each in the ecosystem of its first entry.
        packed: the ecosystems that are an ``all.zip``; the others are folders.
    """
    files: dict[str, dict[str, str]] = {"PyPI": {p.name: p.read_text() for p in (FOLDER / "PyPI").glob("*.json")}}
    for each in records:
        ecosystem = each["affected"][0]["package"]["ecosystem"]
        files.setdefault(ecosystem, {})[f"{each['id']}.json"] = json.dumps(each)
    for ecosystem, texts in files.items():
        folder = root / ecosystem
        folder.mkdir(parents=True, exist_ok=True)
        if ecosystem not in packed:
            for name, text in texts.items():
                (folder / name).write_text(text)
            continue
        with zipfile.ZipFile(folder / "all.zip", "w") as archive:
            for name, text in texts.items():
                archive.writestr(name, text)
    return root
