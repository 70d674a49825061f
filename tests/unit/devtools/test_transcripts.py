"""What pages show of commands: made by calling them, but for a few that other tests compare with the page."""

from __future__ import annotations

import re
import textwrap

import pytest

from devtools.transcripts import PAGES, SHOWN, with_transcripts
from trainwright.core.paths import data_root

# Compared with the page by tests/e2e/test_tutorial.py, the last one by tests/unit/verbs/test_pages.py.
COMPARED_ELSEWHERE = {
    "build --framework pytorch --cuda cpu",
    "smoke --image trainwright/pytorch:2.13.0-cpu-py311-debian12",
    "smoke --verbose",
    "rehearse --image trainwright/pytorch:2.13.0-cpu-py311-debian12 --entry-point train.py \\",
    "estimator --job job.yaml --sdk 2 > start.py",
}


def test_every_command_with_an_answer_is_made_again_or_named() -> None:
    pages = [data_root() / "README.md", *(data_root() / "docs").glob("*.md")]
    shown = {
        (page.relative_to(data_root()).as_posix(), line)
        for page in pages
        for line in re.findall(r"^ *\$ \./invoke (.+)$", page.read_text(), re.MULTILINE)
    }
    made = {(name, found[0]) for name in PAGES for found in SHOWN.findall((data_root() / name).read_text())}
    assert {line for _, line in shown - made} == COMPARED_ELSEWHERE
    assert made <= shown and len(made) >= 8


LOST = 'import torch\ntorch.save(torch.nn.Linear(2, 1).state_dict(), "/tmp/model.pt")\n'


@pytest.mark.parametrize("script", ["import os\n", LOST])
def test_an_answer_is_of_the_file_that_the_page_shows(script: str) -> None:
    page = f'```python title="train.py"\n{script}```\n\n    $ ./invoke preflight train.py\n    stale\n\nEnd.\n'
    made = with_transcripts(page)
    assert "stale" not in made and made.endswith("\n\nEnd.\n")
    answer = textwrap.dedent(made.partition("train.py\n    ")[2])
    assert ("0 errors, 0 warnings, 0 notes" in answer) == (script == "import os\n"), answer
