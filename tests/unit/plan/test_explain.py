"""``explain``: what else a change makes again."""

from __future__ import annotations

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.plan.explain import explain
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("cuda", "version", "expected"),
    [
        # Wheels are unpacked apart from each other, and METIS is compiled apart from them.
        ("cpu", "2.13.0", {}),
        # The plugin is configured with the folders of these three: README.md of aws-ofi-nccl v1.5.0.
        ("cu113", "1.11.0", dict.fromkeys(("efa", "openmpi", "nccl"), ("aws-ofi-nccl",))),
    ],
)
def test_a_change_makes_again_what_is_made_from_it(cuda, version, expected):
    plan = resolve(make_request(framework="pytorch", cuda=cuda, version=version), CATALOG)
    document = explain(plan, CATALOG, Site())
    assert {row.name: row.rebuilds for row in document.components if row.rebuilds} == expected
