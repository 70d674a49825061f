"""Offers that keep what was asked for: AWS's containers of other versions, and what rules say to leave out.

AWS shipped PyTorch 1.9.0, 1.12.0 and 2.0.0 for SageMaker (aws/deep-learning-containers, its release notes); image lines
have their last patch releases. That AWS's libraries do not go with PyTorch's own build is in templates/rules.yaml.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.conflicts import assert_offers_resolve, conflict_of
from trainwright.catalog.catalog import load_catalog

CATALOG = load_catalog()
BUILD = "./invoke build --framework pytorch "
NO_SMD = "--without smdistributed-dataparallel,smdistributed-modelparallel"


def offers(*pins: str, **words: Any) -> list[str]:
    conflict = conflict_of(*pins, catalog=CATALOG, **words)
    assert_offers_resolve(conflict, CATALOG)
    return [offer["command"].removeprefix(BUILD) for offer in conflict.details["offers"]]


@pytest.mark.parametrize(
    ("words", "offer"),
    [
        ({"version": "1.9.0"}, "--cuda cu111 --version 1.9.0 --base dlc"),
        ({"version": "1.12.0"}, "--cuda cu113 --version 1.12.0 --base dlc"),
        ({"version": "2.0.0"}, "--cuda cu118 --version 2.0.0 --base dlc"),
        ({"version": "2.0.0", "cuda": "cpu"}, "--cuda cpu --version 2.0.0 --base dlc"),
    ],
)
def test_a_container_of_aws_has_a_version_that_no_line_has(words: dict[str, str], offer: str) -> None:
    first, *others = offers(**words)
    assert first == offer
    assert len(others) == 2 and not any("--base dlc" in other for other in others)


@pytest.mark.parametrize(
    "words",
    [
        {"version": "2.0.0", "base": "debian"},  # another base was asked for
        {"version": "2.0.0", "for_": "ec2"},  # AWS's containers are SageMaker's
        {"version": "2.0.3"},
        {"version": "2.7.1", "cuda": "cu113"},  # a line has the version
        {"version": "2.7.0"},  # not all is known of AWS's container
    ],
)
def test_no_container_is_offered_where_none_would_do(words: dict[str, str]) -> None:
    assert not any("--base dlc" in offer for offer in offers(**words))


@pytest.mark.parametrize(("version", "cuda"), [("1.10.2", "cu113"), ("1.13.1", "cu117")])
def test_what_a_rule_says_to_leave_out_is_left_out_to_keep_a_pin(version: str, cuda: str) -> None:
    found = offers("pytorch=index", version=version)
    assert found[0] == f"--cuda {cuda} --version {version} {NO_SMD} --set pytorch=index"


def test_what_is_asked_for_is_not_left_out_to_keep_a_pin() -> None:
    found = offers("pytorch=index", version="1.10.2", with_="smdistributed-dataparallel")
    assert not any("--without" in offer for offer in found)
