"""What `./invoke` offers in a checkout: the verbs of Trainwright, and what its developers run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainwright.cli.program import checked, run
from trainwright.verbs.find import find

if TYPE_CHECKING:
    from invoke.collection import Collection


def _all() -> Collection:
    from devtools.verbs import namespace

    return namespace


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], find, _all, checkout=True))

namespace = checked(_all())  # for plain `invoke`
