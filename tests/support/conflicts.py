"""Requests with pins, and what a conflict says and offers."""

from __future__ import annotations

import shlex

import pytest

from tests.support.catalogs import debian_lines
from trainwright.catalog.catalog import Catalog
from trainwright.core.errors import Conflict
from trainwright.plan.plan import Plan
from trainwright.plan.request import Request, make_request
from trainwright.plan.resolve import resolve

CATALOG = debian_lines()


def plan_of(*pins: str, catalog: Catalog = CATALOG, **words) -> Plan:
    return resolve(make_request(framework="pytorch", set_=pins, **words), catalog)


def conflict_of(*pins: str, catalog: Catalog = CATALOG, **words) -> Conflict:
    with pytest.raises(Conflict) as refused:
        plan_of(*pins, catalog=catalog, **words)
    return refused.value


def constraints(conflict: Conflict) -> list[str]:
    """The rows, without that of the framework: whether it plays a part depends on which other frameworks there are."""
    return [row["constraint"] for row in conflict.details["rows"] if not row["constraint"].startswith("--framework")]


def request_of(command: str) -> Request:
    """The request of an offered command line, read as a shell and the program would."""
    words = shlex.split(command)
    assert words[:2] == ["./invoke", "build"]
    given_: dict = {"set_": []}
    rest = words[2:]
    while rest:
        flag = rest.pop(0).removeprefix("--")
        if flag == "allow-unproven":
            given_["allow_unproven"] = True
        elif flag == "set":
            given_["set_"].append(rest.pop(0))
        else:
            name = {"with": "with_", "with-requirements": "requirements"}.get(flag, flag.replace("-", "_"))
            given_[name] = rest.pop(0)
    return make_request(**given_)


def assert_offers_resolve(conflict: Conflict, catalog: Catalog = CATALOG) -> None:
    for offer in conflict.details["offers"]:
        assert resolve(request_of(offer["command"]), catalog).id == offer["plan id"], offer["command"]
