"""Packages that only some verbs need, installed as an extra of this program."""

from __future__ import annotations

from importlib.util import find_spec

from trainwright.core.errors import EngineError

EXTRAS = {"signing": "cryptography pynacl", "soci": "flatbuffers indexed-gzip"}  # as in pyproject.toml


def need(extra: str, *modules: str, what: str) -> None:
    """Refuse to begin what needs an extra that is not installed.

    Args:
        extra: its name.
        modules: what is imported of it.
        what: that needs it, in the user's words.

    Raises:
        EngineError: a module is missing.
    """
    if missing := [module for module in modules if find_spec(module) is None]:
        raise EngineError(
            f"{what} needs Python packages that are not installed: {', '.join(missing)}",
            remedy=f"pip install 'trainwright[{extra}]'   "
            f"# in a checkout: .venv/bin/python -m pip install {EXTRAS[extra]}",
        )
