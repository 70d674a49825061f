"""The names of the image that the workers of a test run share (``proven`` in tests/e2e/conftest.py)."""

from __future__ import annotations


def names(run: int) -> tuple[str, str]:
    """Of the image, and of its copy to run jobs in.

    Args:
        run: the process id of the test run.
    """
    return f"trainwright-test/proven:{run}", f"trainwright-test/proven:{run}-used"
