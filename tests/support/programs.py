"""The programs of build steps as modules: they have no suffix."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from types import ModuleType

from trainwright.core.paths import templates_dir


def load_program(path: str) -> ModuleType:
    """The functions of a program.

    Args:
        path: in ``templates/``; no bytecode is left there, as its folders are part of build contexts.
    """
    loader = importlib.machinery.SourceFileLoader(path.rpartition("/")[2], str(templates_dir() / path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module, before = importlib.util.module_from_spec(spec), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module
