"""The owner of a rehearsal: distinguishes leftovers of a killed one from what a running one uses."""

from __future__ import annotations

import os

from trainwright.core.processes import described

LABEL = "io.trainwright.rehearsal"
OWNER_LABEL = "io.trainwright.rehearsal.owner"
PREFIX = "trainwright-rehearsal-"


def this_process() -> str:
    """This process, as :func:`trainwright.core.processes.lives` takes it."""
    return described(os.getpid())
