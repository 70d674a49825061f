"""The pins of what ``./invoke`` and ``./invoke test`` install: whole, one package on a line, every file by its hash."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from devtools.requirements import FILES, MADE, ROOT, one_line_each

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WANTED = {
    "requirements.txt": PROJECT["dependencies"],
    "requirements-dev.txt": [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]],
}
COMPILED = """\
networkx==3.6.1 ; python_full_version < '3.12' \\
    --hash=sha256:26b7 \\
    --hash=sha256:d47c
networkx==3.7 ; python_full_version >= '3.12' \\
    --hash=sha256:e3fd
"""
JOINED = """\
networkx==3.6.1 ; python_full_version < '3.12' --hash=sha256:26b7 --hash=sha256:d47c
networkx==3.7 ; python_full_version >= '3.12' --hash=sha256:e3fd
"""


def test_each_package_gets_one_line() -> None:
    assert one_line_each(COMPILED, "What") == MADE.format(what="What") + JOINED


@pytest.mark.parametrize("name", FILES)
def test_the_pins_are_as_they_are_made(name: str) -> None:
    head, *pins = (ROOT / name).read_text().splitlines()
    assert f"{head}\n" == MADE.format(what=FILES[name][0])
    for pin in pins:
        assert re.fullmatch(r"[\w.-]+==\S+( ; [^#]+?)?( --hash=sha256:[0-9a-f]{64})+", pin), pin


@pytest.mark.parametrize("name", FILES)
def test_what_the_project_needs_is_pinned_in_a_version_that_fits(name: str) -> None:
    pinned = [Requirement(pin.partition(" --hash=")[0]) for pin in (ROOT / name).read_text().splitlines()[1:]]
    for wanted in map(Requirement, WANTED[name]):
        found = [pin for pin in pinned if canonicalize_name(pin.name) == canonicalize_name(wanted.name)]
        assert found, f"{wanted.name} is missing: python -m devtools.requirements"
        for pin in found:
            assert all(wanted.specifier.contains(each.version) for each in pin.specifier), f"{pin} is not {wanted}"
