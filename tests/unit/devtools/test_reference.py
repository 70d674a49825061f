"""The pages of the reference that are made from the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devtools.reference import catalog_page, exit_codes_page, schemas_page
from trainwright.catalog.catalog import load_catalog
from trainwright.core import errors

ROOT = Path(__file__).resolve().parents[3]


def rows(page: str, first: str) -> list[str]:
    """The cells of the row of a page that begins so."""
    return next(line for line in page.splitlines() if line.startswith(first)).strip("| ").split(" | ")


def test_a_new_failure_without_a_word_for_its_reader_is_an_error(monkeypatch):
    new = type(
        "NewFailure",
        (errors.Failure,),
        {"exit_code": 11, "kind": "new", "__doc__": "New.", "__module__": errors.__name__},
    )
    with pytest.raises(KeyError, match="NewFailure"):
        exit_codes_page()
    new.__module__ = "elsewhere"
    assert "| 11 |" not in exit_codes_page()


def test_what_happened_is_the_first_paragraph_of_a_class():
    assert rows(exit_codes_page(), "| 70 |")[1:3] == ["`internal`", "a bug in Trainwright; please report it"]
    assert "`gc`: an image could not be deleted" in rows(exit_codes_page(), "| 7 |")[2]


def test_each_schema_of_the_package_is_on_the_page():
    page = (ROOT / "docs" / "schemas.md").read_text()
    names = [
        path.name.removesuffix(".schema.json") for path in (ROOT / "trainwright" / "schemas").glob("*.schema.json")
    ]
    assert len(names) > 40
    missing = [name for name in names if f"| `{name}` |" not in page and f"`{name}.schema.json`, `urn:" not in page]
    assert missing == []


def test_keys_of_a_file_with_their_values():
    schema = json.loads((ROOT / "trainwright" / "schemas" / "line.schema.json").read_text())
    page = schemas_page({"line": schema}, {"line": "A line"})
    assert rows(page, "| **`python`**") == ["**`python`**", "text"]
    status = rows(page, "| **`status`**")[1]
    assert sorted(status.split(", ")) == ["`end-of-support`", "`supported`", "`unmaintained`"]
    assert rows(page, "| `architectures`")[1] == "list of text"
    assert rows(page, "| **`base`**")[1] == "text or LineBase"
    assert rows(page, "| **`components`**")[1] == "name: Selection"
    assert rows(page, "| `budget`")[1] == "text or whole number"


def test_the_newest_released_line_is_in_the_matrix_and_each_line_in_a_table():
    catalog = load_catalog()
    page = catalog_page(catalog)
    heads, pytorch = rows(page, "| framework |"), rows(page, "| pytorch |")
    # 1.13.0 with CUDA 11.3 was never published: images/pytorch/1.13.0-cu113/line.yaml.
    assert pytorch[heads.index("cu113")] == "1.12.1"
    assert heads[1:3] == ["cu132", "cu130"]
    assert heads[-1] == "cpu"
    assert page.count("\n| `") == len(catalog.lines)
    assert sum(r" \* |" in line for line in page.splitlines()) == len(catalog.frameworks())
