"""What a plan says of components that differ from its line: those that a word names, and those that it brings along.

The plugin that an installer of EFA brings is that of AWS's release notes of the installer (1.51.0: aws-ofi-nccl 1.22.0;
1.45.0: 1.17.2); what a line has was read in its file.
"""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()
CU132, CU128 = "images/pytorch/cu132/line.yaml", "images/pytorch/2.7.1-cu128/line.yaml"
CU113 = "images/pytorch/1.10.2-cu113/line.yaml"
NO_SMD = "smdistributed-modelparallel,smdistributed-dataparallel"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"cuda": "cu132"}, []),
        (
            {"cuda": "cu132", "set_": ["efa=aws"]},
            [
                f"aws-ofi-nccl 1.22.0 comes from efa with --set efa=aws; {CU132} has 1.21.1 from debian",
                f"efa 1.51.0 comes from aws with --set efa=aws; {CU132} has 2.1.0 from source",
            ],
        ),
        (
            {"version": "2.7.1", "base": "nvidia", "set_": ["efa=1.45.0"]},
            [
                f"aws-ofi-nccl 1.17.2 comes with --set efa=1.45.0; {CU128} has 1.14.2",
                f"efa 1.45.0 was asked for; {CU128} has 1.40.0",
            ],
        ),
        (
            {"version": "2.7.1", "base": "nvidia", "set_": ["efa=1.45.0", "aws-ofi-nccl=1.17.2"]},
            [
                f"aws-ofi-nccl 1.17.2 was asked for; {CU128} has 1.14.2",
                f"efa 1.45.0 was asked for; {CU128} has 1.40.0",
            ],
        ),
        (
            {"version": "1.10.2", "cuda": "cu113", "set_": ["pytorch=index"], "without": NO_SMD},
            [
                f"pytorch comes from index with --set pytorch=index; {CU113} has it from aws",
                f"torchvision comes from index with --set pytorch=index; {CU113} has it from aws",
            ],
        ),
    ],
)
def test_each_change_has_the_word_that_asks_for_it(words: dict[str, Any], told: list[str]) -> None:
    notices = resolve(make_request(framework="pytorch", **words), CATALOG).notices
    assert [notice for notice in notices if " was asked for" in notice or " with --set " in notice] == told
