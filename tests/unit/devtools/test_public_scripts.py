"""The list of public scripts: each has a commit and a job, and findings that preflight can have."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from devtools.public_scripts import JOBS, LIST, fetch, found_in
from trainwright.preflight.preflight import CODES


def test_the_list_is_complete():
    repositories = yaml.safe_load(LIST.read_text())
    for each in repositories:
        assert re.fullmatch(r"[0-9a-f]{40}", each["commit"]) and each["repository"].count("/") == 1
        paths = [row["path"] for row in each["scripts"]]
        assert paths and len(set(paths)) == len(paths)
    rows = [row for each in repositories for row in each["scripts"]]
    assert len(rows) >= 100
    for row in rows:
        assert row["job"] in JOBS
        assert {line.split()[0] for line in row.get("findings", [])} <= set(CODES)


def test_a_checkout_is_compared(tmp_path):
    (tmp_path / "train.py").write_text("import os\nos.environ['N'] = 4\n")
    row = {"path": "train.py", "job": "process"}
    assert found_in(tmp_path, row) == ["TW160 error train.py:2"]
    assert found_in(tmp_path, row | {"path": "missing.py"}) is None


def test_the_folder_of_the_job_may_be_another_than_that_of_the_script(tmp_path):
    """Only from the job's folder is the package beside the script's own folder found."""
    for name, text in {
        "scripts/train.py": "import lib.env\n",
        "lib/env.py": "import os\nos.environ['N'] = 4\n",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    row = {"path": "scripts/train.py", "job": "process"}
    assert found_in(tmp_path, row) == []
    assert found_in(tmp_path, row | {"source_dir": "."}) == ["TW160 error lib/env.py:2"]


def test_missing_checkouts_are_fetched(tmp_path: Path) -> None:
    """Of one commit, not the newest, and only what is needed of it."""
    server = tmp_path / "server" / "team" / "scripts"
    (server / "deep" / "er").mkdir(parents=True)

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        argv = ["git", "-C", str(server), *who, *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    git("init")
    for text in ("os.environ['N'] = 4", "os.environ['N'] = '4'"):
        (server / "deep" / "er" / "train.py").write_text(f"import os\n{text}\n")
        (server / "large.bin").write_text("x")
        git("add", ".")
        git("commit", "-m", text)
    rows = [{"path": "deep/er/train.py", "job": "process"}]
    entry = {"repository": "team/scripts", "commit": git("rev-parse", "HEAD~1"), "scripts": rows}
    # As GitHub allows it: any commit, and not all files of it.
    git("config", "uploadpack.allowAnySHA1InWant", "true")
    git("config", "uploadpack.allowFilter", "true")
    fetch(entry, f"file://{tmp_path}/server/", tmp_path / "made")
    assert found_in(tmp_path / "made", rows[0]) == ["TW160 error train.py:2"]
    assert not (tmp_path / "made" / "large.bin").exists()
    with pytest.raises(subprocess.CalledProcessError):
        fetch({**entry, "commit": "0" * 40}, f"file://{tmp_path}/server", tmp_path / "none")
