"""The probe's program, as a module whose functions a test can call."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from trainwright.core.paths import templates_dir

PROGRAM = templates_dir() / "probe" / "probe.py"


def probe_program() -> ModuleType:
    """Load the program; it belongs to no package."""
    spec = importlib.util.spec_from_file_location("probe_program", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
