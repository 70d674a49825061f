"""Documents of ``--json``, each held to the schema that is shipped for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).resolve().parents[2] / "trainwright" / "schemas"


def validated(text: str) -> dict[str, Any]:
    """The one document of a text.

    Raises:
        jsonschema.ValidationError: it does not keep to the schema that it names.
        OSError: no schema is shipped for it.
    """
    document: dict[str, Any] = json.loads(text)
    owner, name, _ = document["schema"].split("/")
    assert owner == "trainwright"
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)
    return document
