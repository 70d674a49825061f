"""Paths of other machines and of channels: every way to write them, and near misses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, codes, findings, parser

ONE: dict[str, Any] = {"instance_type": P4D}
TRAINING: dict[str, Any] = {**ONE, "inputs": {"training": "s3://b/d"}}
DEFAULT = parser('"--data", default="/mnt/data"')
TRAIN = parser('"--data", default="/opt/ml/input/data/train"')
OPENED = "f = open('/data/a.txt')\n"

CASES: list[tuple[str, bool, str, dict[str, Any]]] = [
    ("TW180", False, "where = '/data/a\\n/data/b'\n", ONE),
    # The name of an option is what follows its dashes, whatever letters those are.
    ("TW180", False, parser('"--X_train", default="/mnt/data"'), {"hyperparameters": {"X_train": "s3"}}),
    ("TW180", True, parser('"--X_train", default="/mnt/data"'), {"hyperparameters": {"train": "s3"}}),
    ("TW180", True, parser('"--default", default="/mnt/data"'), ONE),
    (
        "TW180",
        False,
        "import os\n" + parser('"--data", default=os.path.join("/mnt/data", "x")'),
        {"hyperparameters": {"data": "s3"}},
    ),
    # Folders that the script makes: only these are there.
    ("TW180", False, "import os\nos.makedirs('/data', 0o755)\n" + OPENED, ONE),
    ("TW180", True, "import os\nos.makedirs(folder, exist_ok=True)\n" + OPENED, ONE),
    ("TW180", True, "import os\nos.makedirs('', exist_ok=True)\n" + OPENED, ONE),
    ("TW180", True, "import pathlib\npathlib.Path('out').mkdir(0o755)\n" + OPENED, ONE),
    ("TW180", True, "import os\ndef never_called():\n    os.makedirs('/data')\n" + OPENED, ONE),
    # Channels
    ("TW181", True, "f = open('/opt/ml/input/data/train/x.csv')\n", TRAINING),
    ("TW181", False, "f = open('/opt/ml/input/data/train/x.csv')\n", ONE),
    ("TW181", False, "f = os.listdir('/opt/ml/input/data/')\n", TRAINING),
    ("TW181", True, TRAIN, TRAINING),
    ("TW181", False, TRAIN, {**TRAINING, "hyperparameters": {"data": "/opt/ml/input/data/training"}}),
]


@pytest.mark.parametrize(("code", "reported", "script", "job"), CASES)
def test_a_path_is_reported_where_it_leads_nowhere(code: str, reported: bool, script: str, job: dict[str, Any]) -> None:
    found = codes(script, job)
    assert (code in found) == reported, (found, script)


def test_a_default_is_a_note_that_names_its_option() -> None:
    """The job may set another value; what is written into the code stays as it is."""
    (default,) = [each for each in findings(DEFAULT, ONE) if each.code == "TW180"]
    (fixed,) = [each for each in findings(OPENED, ONE) if each.code == "TW180"]
    assert (default.severity, fixed.severity) == ("note", "warning")
    assert "--data" in default.message
    assert "--" not in fixed.message


def test_a_default_with_a_text_for_help_is_reported_once() -> None:
    option = parser('"--data", default="/mnt/data", help="folder"')
    for kept, count in (("options = Options(data='/mnt/data')\n", 1), ("options = Options(data='/mnt/other')\n", 2)):
        assert [each.code for each in findings(option + kept, ONE)].count("TW180") == count
