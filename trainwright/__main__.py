"""``python -m trainwright``, and the ``trainwright`` command of an installed package."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainwright.cli import program
from trainwright.verbs.find import SHELF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invoke.collection import Collection


def _verbs() -> Collection:
    from trainwright.verbs.namespace import namespace

    return namespace


def run(words: Sequence[str], *, checkout: bool = False) -> int:
    """The program of an installed package: :func:`trainwright.cli.program.run` with the verbs that it has.

    ``checkout``: it was called by one that was called as ``./invoke``, so messages say that name.
    """
    return program.run(words, SHELF, _verbs, checkout=checkout)


def main() -> None:
    """Run the words behind the program's name, and exit with its code."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
