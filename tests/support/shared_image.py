"""The name of the image that the workers of a test run share (``proven`` in tests/e2e/conftest.py)."""

from __future__ import annotations


def name(run: int) -> str:
    """Of the image that the test run with this process id makes."""
    return f"trainwright-test/proven:{run}"
