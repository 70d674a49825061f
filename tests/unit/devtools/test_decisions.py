"""The list of decisions has every decision, by its title."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "decisions"


def test_every_decision_is_listed_by_its_title() -> None:
    listed = dict(re.findall(r"^\| \[\d{4}\]\((\S+)\) \| (.+?) \|", (FOLDER / "README.md").read_text(), re.MULTILINE))
    written = {}
    for path in sorted(FOLDER.glob("[0-9]*.md")):
        number, title = path.read_text().splitlines()[0].removeprefix("# ").split(". ", 1)
        assert int(number) == int(path.name[:4]), path.name
        written[path.name] = title
    assert len(written) > 40
    assert listed == written
