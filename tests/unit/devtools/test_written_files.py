"""Files that people write: each shipped one keeps to the schema that its first line names."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from devtools.generated import DOCUMENTS, MODELINE, ROOT, SCHEMAS, with_modeline, written_files
from trainwright.core.data_files import read_yaml


def validator(path: Path) -> jsonschema.Draft202012Validator:
    schema = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", written_files())
def test_every_shipped_file_keeps_to_the_schema_that_its_first_line_names(name: str) -> None:
    files = written_files()[name]
    schemas = {(path.parent / path.open().readline().removeprefix(MODELINE).strip()).resolve() for path in files}
    assert schemas == {SCHEMAS / f"{name}.schema.json"}
    judge = validator(*schemas)
    wrong = {str(path): error.message for path in files for error in judge.iter_errors(read_yaml(path))}
    assert wrong == {}


def test_no_kind_of_file_is_without_a_shipped_one() -> None:
    assert all(written_files().values())
    own = {path for paths in written_files().values() for path in paths}
    assert {path for path in (ROOT / "images").rglob("*.yaml") if path.name == "line.yaml"} <= own


@pytest.mark.parametrize("page", ["project.md", "site.md"])
def test_project_files_of_the_docs_keep_to_their_schema(page: str) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        validator(SCHEMAS / "trainwright.toml.schema.json").validate(tomllib.loads(block))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("line", {"pyhton": "3.11"}),
        ("line", {"status": "fine"}),
        ("component", {"order": "first"}),
        ("rules", {"rules": [{"when": {}}]}),
        ("job", {"instance_count": "two"}),
    ],
)
def test_what_the_loader_refuses_an_editor_marks(name: str, change: dict[str, Any]) -> None:
    path = written_files()[name][0]
    assert not validator(SCHEMAS / f"{name}.schema.json").is_valid(read_yaml(path) | change)


def test_each_schema_has_a_name_of_its_own() -> None:
    names = [json.loads((SCHEMAS / f"{name}.schema.json").read_text())["$id"] for name in DOCUMENTS]
    assert len(set(names)) == len(names)


def test_a_first_line_is_replaced_and_a_comment_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "line.yaml"
    path.write_text("# PyTorch.\nframework: pytorch\n")
    text = with_modeline(path, "line")
    assert text.splitlines()[1:] == ["# PyTorch.", "framework: pytorch"]
    path.write_text(text.replace("line.schema", "old.schema"))
    assert with_modeline(path, "line") == text
