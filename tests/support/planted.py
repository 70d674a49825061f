"""Faults planted in thin images on top of a built one, and which image tests see them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainwright.core.runner import run
from trainwright.engine.engine import find_client
from trainwright.prove import probe, smoke

# Replaces bytes in a compiled file, as no image has a compiler. Both byte strings are written as in Python and have the
# same length.
REPLACE = """\
import pathlib, sys
path = pathlib.Path(sys.argv[1])
old, new = (each.encode().decode("unicode_escape").encode("latin-1") for each in sys.argv[2:])
data = path.read_bytes()
assert old in data and len(old) == len(new), sys.argv
path.write_bytes(data.replace(old, new))
"""


@contextmanager
def planted(image: str, faults: str, name: str, folder: Path) -> Iterator[str]:
    """Build a thin image on top of ``image`` from these Dockerfile lines; remove it afterwards.

    Args:
        image: what it starts from.
        faults: lines of a Dockerfile; the folder is its context, with :data:`REPLACE` as ``replace.py``.
        name: the tag of the thin image.
        folder: an empty folder, for its context.
    """
    (folder / "replace.py").write_text(REPLACE)
    (folder / "Dockerfile").write_text(f"FROM {image}\n{faults}")
    argv = [find_client().path, "build", "-q", "--network", "none", "-t", name, str(folder)]
    built = run(argv, env={"DOCKER_BUILDKIT": "1"}, timeout=300)
    assert built.ok, built.tail()
    try:
        yield name
    finally:
        run([find_client().path, "rmi", "-f", name])


def failing(
    image: str, plan: Mapping[str, Any], folder: Path, components: Collection[str], only: Collection[str] = ()
) -> tuple[dict[str, Any], set[str]]:
    """Return what the probe finds in an image, and the names of these components' failing tests (``component::test``).

    Args:
        image: an image in the engine.
        plan: what it was built by.
        folder: where the report goes.
        components: the components whose tests are reported.
        only: the names of the tests to run, with their parameters; all tests if empty.
    """
    client = find_client().path
    found = probe.probe(client, image, plan)
    report = smoke.smoke(client, image, plan, found, folder / "report", only=only)
    failed = {f"{row.component}::{row.check.partition('[')[0]}" for row in report.rows if row.outcome == "failed"}
    return found, {each for each in failed if each.partition("::")[0] in components}


def named(component: str, *functions: str) -> set[str]:
    """The full names of a component's tests, given without ``test_``."""
    return {f"{component}::test_{each}" for each in functions}
