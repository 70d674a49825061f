"""Extras: what is missing is named with the command that installs it, before anything of it is imported."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from trainwright.core.errors import EngineError
from trainwright.core.extras import EXTRAS, need
from trainwright.signing.keys import load_public_key
from trainwright.site.site import Site

PYPROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


def test_the_packages_are_those_of_the_project() -> None:
    stated = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        assert packages.split() == [re.split("[<>=~]", each)[0] for each in stated[extra]]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    need("soci", "json", what="this")
    monkeypatch.setitem(sys.modules, "indexed_gzip", None)
    with pytest.raises(EngineError, match=r"--soci needs .*: indexed_gzip$") as refused:
        need("soci", "json", "indexed_gzip", what="--soci")
    assert refused.value.remedy.startswith("pip install 'trainwright[soci]'")


def test_a_key_is_not_read_without_the_package_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(EngineError, match="cryptography"):
        load_public_key(str(tmp_path / "key.pub"), Site(), "us-west-2")
