"""The Dockerfile of a plan: rendered, or from the user's cache if an earlier run rendered the same.

Importing jinja2 and rendering take a sixth of the time of a build that has nothing to do.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from trainwright.catalog.catalog import Catalog
from trainwright.core.errors import RequestError
from trainwright.core.owned import write_atomically
from trainwright.core.paths import cache_dir, templates_dir
from trainwright.plan.identity import code_is_as_loaded, render_files
from trainwright.plan.plan import Plan

KEPT = 400  # rendered files, of some 20 kB each


def render_dockerfile(plan: Plan, catalog: Catalog) -> str:
    """The Dockerfile of a plan: readable, and buildable with a plain ``docker build`` in its context.

    Such a build leaves out the stages of the image's proof.

    Args:
        plan: the resolved record; nothing else decides what is in the file.
        catalog: has the components' templates.

    Raises:
        RequestError: the plan has no lock; a template is missing, broken or names something that does not exist.
    """
    if plan.unlocked:
        raise RequestError(f"plan {plan.id[:12]} has no lock, so its Dockerfile would install no Python packages")
    key = hashlib.sha256(msgspec.json.encode([plan, render_files(plan, catalog)], enc_hook=os.fspath)).hexdigest()
    loaded = code_is_as_loaded()
    text = _kept(key) if loaded else None
    if text is None:
        from trainwright.plan.render import render

        text = render(plan, catalog)
        if loaded:
            with suppress(OSError, RequestError):  # no home, or it cannot be written
                _keep(key, text)
    return text + proof_stages()


def proof_stages() -> str:
    """The end of every Dockerfile, the same for all: the stages of the proof. No plan's id depends on them."""
    return (templates_dir() / "proof" / "Dockerfile").read_text()


def _place(key: str) -> Path:
    return cache_dir() / "dockerfiles" / key


def _kept(key: str) -> str | None:
    """A rendered file from the cache; None if it is missing or is not what was written."""
    with suppress(OSError, ValueError, RequestError):
        digest, _, text = _place(key).read_text().partition("\n")
        return text if digest == hashlib.sha256(text.encode()).hexdigest() else None
    return None


def _keep(key: str, text: str) -> None:
    place = _place(key)
    write_atomically(place, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
    files = [(file.stat().st_mtime, file) for file in place.parent.iterdir()]
    for _, file in sorted(files)[:-KEPT]:
        file.unlink(missing_ok=True)
