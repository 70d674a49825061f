"""Imports third-party packages without the parts that nothing here uses, because ``plan`` and ``list`` have to be fast.

invoke loads ``unittest.mock`` (and with it asyncio) for the tests of its users, and a YAML parser for settings that
Trainwright does not read, and ``importlib.metadata`` (and with it the email package) for a version. That is a good part
of their time; ``bench/cold.py`` measures what a command takes in all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_STAND_INS: dict[str, dict[str, object]] = {
    # msgspec can do without the first, no record has the number that it knows, and its uuid asks for a name alone.
    **{"typing_extensions": {}, "decimal": {"Decimal": type("Decimal", (), {})}, "platform": {"system": lambda: ""}},
    "unittest.mock": {"Mock": None},
    "invoke.vendor.yaml": {},
    "importlib.metadata": {"version": lambda _: ""},
}


@contextmanager
def lean_imports() -> Iterator[None]:
    """While this holds, an import of what is not used gives an empty stand-in; afterwards it gives the real module.

    What is loaded already, as all of invoke is under plain ``invoke``, stays as it is.
    """
    made = {name: ModuleType(name) for name in _STAND_INS if name not in sys.modules}
    for name, module in made.items():
        vars(module).update(_STAND_INS[name])
    sys.modules.update(made)
    try:
        yield
    finally:
        for name, module in made.items():
            del sys.modules[name]
            parent, _, own = name.rpartition(".")
            if vars(sys.modules.get(parent, module)).get(own) is module:
                delattr(sys.modules[parent], own)


def import_msgspec() -> None:
    """Load what records use of msgspec."""
    with lean_imports():
        import msgspec  # noqa: F401


def import_invoke() -> None:
    """Load what the command line uses of invoke."""
    with lean_imports():
        import invoke.program  # noqa: F401
