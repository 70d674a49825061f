"""The list of public scripts: each has a commit and a job, and findings that preflight can have."""

from __future__ import annotations

import re

import yaml

from devtools.public_scripts import JOBS, LIST, found_in
from trainwright.preflight.preflight import CODES


def test_the_list_is_complete():
    rows = yaml.safe_load(LIST.read_text())
    assert len(rows) >= 100
    for row in rows:
        assert re.fullmatch(r"[0-9a-f]{40}", row["commit"]) and row["job"] in JOBS and row["repository"].count("/") == 1
        assert {line.split()[0] for line in row["findings"]} <= set(CODES)


def test_a_checkout_is_compared(tmp_path):
    script = tmp_path / "owner+name" / "train.py"
    script.parent.mkdir()
    script.write_text("import os\nos.environ['N'] = 4\n")
    row = {"repository": "owner/name", "path": "train.py", "job": "process"}
    assert found_in(tmp_path, row) == ["TW160 error train.py:2"]
    assert found_in(tmp_path, row | {"path": "missing.py"}) is None


def test_the_folder_of_the_job_may_be_another_than_that_of_the_script(tmp_path):
    """Only from the job's folder is the package beside the script's own folder found."""
    for name, text in {
        "scripts/train.py": "import lib.env\n",
        "lib/env.py": "import os\nos.environ['N'] = 4\n",
    }.items():
        file = tmp_path / "owner+name" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    row = {"repository": "owner/name", "path": "scripts/train.py", "job": "process"}
    assert found_in(tmp_path, row) == []
    assert found_in(tmp_path, row | {"source_dir": "."}) == ["TW160 error lib/env.py:2"]
