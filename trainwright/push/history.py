"""The pushes of an image: ``push.json`` beside its build record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.build.store import BuildRecord
from trainwright.core.data_files import read_state
from trainwright.core.owned import write_atomically
from trainwright.core.paths import locked

FILE = "push.json"


def remember(record: BuildRecord, row: Mapping[str, Any]) -> Path:
    """Record a push of an image; returns the file. It has one row per address, the newest last."""
    path = record.folder / FILE
    with locked(path):
        rows = [one for one in pushes(record) if one.get("uri") != row["uri"]]
        document = {"schema": "trainwright/pushes/1", "image_id": record.image_id, "pushes": [*rows, dict(row)]}
        write_atomically(path, json.dumps(document, indent=1) + "\n")
    return path


def pushes(record: BuildRecord) -> list[dict[str, Any]]:
    """The recorded pushes of an image; none if the file is missing or broken."""
    document = read_state(record.folder / FILE)
    found = document.get("pushes") if isinstance(document, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
