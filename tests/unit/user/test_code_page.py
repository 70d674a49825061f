"""docs/code.md says what reads the variables, by version: of every toolkit that an image line installs."""

from __future__ import annotations

from pathlib import Path

from trainwright.catalog.catalog import load_catalog

PAGE = Path(__file__).parents[3] / "docs" / "code.md"


def test_each_toolkit_of_the_image_lines_was_read():
    held = [entry.line.components.get("sagemaker-toolkit") for entry in load_catalog().lines]
    shipped = {package for has in held if has is not None for package in has.packages if "-training==" in package}
    assert len(shipped) >= 8
    rows = [row for row in PAGE.read_text().splitlines() if row.startswith("| `sagemaker-")]
    for name, version in (package.split("==") for package in shipped):
        (row,) = [row for row in rows if row.startswith(f"| `{name}`")]
        assert version in row.split("|")[1], (name, version)
