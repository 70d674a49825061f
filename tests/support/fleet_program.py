"""The program, whose builds are the worker's (``fleet_worker.sh``), and which has no engine: for tests of its runs.

As a process of its own: ``python -m tests.support.fleet_program build --images ...``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tests.support.fleet_units import WORKER
from trainwright.build import store
from trainwright.cli.program import run
from trainwright.core.errors import RequestError
from trainwright.engine import engine
from trainwright.verbs import build_images
from trainwright.verbs.find import SHELF
from trainwright.verbs.namespace import namespace

ENGINE = engine.Engine(engine.Client("/bin/false", "builtin", "20.10", "plain"), "20.10")


def there(image: str, _: engine.Engine) -> str:
    """Every image is there but for those that the file ``gone`` of the test names."""
    gone = Path(os.environ["FLEET"], "gone")
    if gone.exists() and image in gone.read_text().split():
        raise RequestError(f"{image}: the engine has no such image")
    return image


def stand_in(set_: Any = setattr) -> None:
    """Let the worker build, and ask no engine."""
    set_(build_images, "program", lambda: [str(WORKER)])
    set_(engine, "connect", lambda **_: ENGINE)
    set_(store, "built_record", there)


if __name__ == "__main__":
    stand_in()
    sys.exit(run(sys.argv[1:], SHELF, lambda: namespace, checkout=True))
