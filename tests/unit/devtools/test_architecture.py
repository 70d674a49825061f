"""docs/architecture.md: a chapter per package in the order of the tower, and lists that follow the modules."""

from __future__ import annotations

import re

import pytest

from devtools.architecture import PAGE, architecture_page, purpose
from tests.unit.core.test_storeys import STOREYS
from trainwright.core.errors import RequestError


def test_the_chapters_are_the_storeys_in_their_order():
    chapters = re.findall(r"^## (\d+)\. (.+)$", PAGE.read_text(), re.MULTILINE)
    assert [int(number) for number, _ in chapters] == list(range(1, len(chapters) + 1))
    assert [name for _, name in chapters][: len(STOREYS)] == STOREYS
    assert re.findall(r"<!-- modules of (\w+) -->", PAGE.read_text()) == STOREYS


def test_the_page_is_what_generate_makes_of_it():
    assert architecture_page(PAGE.read_text()) == PAGE.read_text()


def test_a_stale_list_is_made_anew():
    stale = "<!-- modules of core -->\n| `gone` | was here |\n<!-- end -->\nafter"
    made = architecture_page(stale)
    assert "gone" not in made
    assert "| `errors` | " in made
    assert made.endswith("<!-- end -->\nafter")


def test_a_mark_without_modules_is_an_error():
    with pytest.raises(RequestError, match="no modules in nowhere"):
        architecture_page("<!-- modules of nowhere -->\n<!-- end -->")


@pytest.mark.parametrize(
    ("docstring", "said"),
    [
        ("One thing.", "One thing"),
        ("One thing\nover two lines. And more.\n\nDetails.", "One thing over two lines"),
        ("A file (``a.json``), as :mod:`x.y` has it: e.g. so. Next.", "A file (`a.json`), as `x.y` has it: e.g. so"),
    ],
)
def test_a_modules_purpose_is_its_first_sentence(tmp_path, docstring, said):
    path = tmp_path / "m.py"
    path.write_text(f'"""{docstring}"""\n')
    assert purpose(path) == said
