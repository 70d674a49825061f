"""The last scan of an image that was built here: ``scan.json`` beside its build record, for its report."""

from __future__ import annotations

import json
from pathlib import Path

from trainwright.build.store import all_records, image_folder
from trainwright.core.data_files import read_state
from trainwright.core.owned import write_atomically
from trainwright.core.records import MisfitError, read_record
from trainwright.scan.documents import ScanDocument


def keep(document: ScanDocument) -> None:
    """Keep a scan, in place of the one before, if it is of an image that was built here."""
    folder = _folder_of(document.image) if document.image else None
    if folder is not None:
        text = json.dumps(without_paths(document).as_json(), indent=1, ensure_ascii=False)
        write_atomically(folder / "scan.json", f"{text}\n")


def kept(image_id: str) -> ScanDocument | None:
    """The last scan of an image; None if there was none, or it is of another version."""
    try:
        return read_record(ScanDocument, read_state(image_folder(image_id) / "scan.json"))
    except MisfitError:
        return None


def without_paths(document: ScanDocument) -> ScanDocument:
    """A scan that others may read: without paths of this machine."""
    return document.replace(databases=tuple(each.replace(path="") for each in document.databases))


def _folder_of(image: str) -> Path | None:
    """The folder of an image, by its id, or by the digest that it has in a registry."""
    for record in all_records(mentions=image):
        if image == record.image_id or (record.pushed or "").endswith(f"@{image}"):
            return record.folder
    return None
