"""What the command line does not load of others' packages, and that whoever wants it still gets it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"asyncio", "unittest.mock", "invoke.vendor.yaml", "importlib.metadata", "email.message"}


def python(code):
    """What a program of its own prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


QUICK = [["plan", "--framework", "pytorch", "--cuda", "cu124"], ["list"], ["list", "--framework", "pytorch"]]


@pytest.mark.parametrize("words", [*QUICK, ["plan", "--framework", "pytorch-trcomp"], ["--list"]])
def test_the_verbs_that_read_load_none_of_it(words):
    code = f"""
import sys
from trainwright.__main__ import run
assert run({words!r}) == 0
print("loaded:", *sys.modules)
"""
    loaded = python(code)
    loaded = loaded[loaded.index("loaded:") :]
    assert "trainwright.core.records" in loaded
    assert not HEAVY & set(loaded)
    if words in QUICK:
        assert not {"invoke", "trainwright.verbs.build"} & set(loaded)


def test_afterwards_the_real_modules_are_there():
    code = """
import trainwright.cli, trainwright.core.records
import importlib.metadata, unittest.mock
from invoke.vendor import yaml
print(importlib.metadata.version("invoke"), unittest.mock.Mock.__name__, yaml.safe_load("a"))
"""
    version, *rest = python(code)
    assert version[0].isdigit()
    assert rest == ["Mock", "a"]


def test_what_is_loaded_already_stays():
    code = """
import unittest.mock, invoke
import importlib.metadata
real = importlib.metadata, unittest.mock, invoke.vendor.yaml
import trainwright.cli, trainwright.core.records
print(real == (importlib.metadata, unittest.mock, invoke.vendor.yaml), bool(invoke.__version__))
"""
    assert python(code) == ["True", "True"]
